"""Programs, targets and moves as data, and back. Nothing is unpickled.

A stored program is JSON for what describes it, then the binary.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import fields as fields_of
from typing import Any, Final

from tgcore.codegen.opt import Opt, OptOps
from tgcore.codegen.program import Estimates, ProgramSpec
from tgcore.codegen.target import Target, TensorCore
from tgcore.dtype import DType
from tgcore.uop.encode import (
    Data,
    decode_graph,
    decode_value,
    encode_graph,
    encode_value,
    from_text,
    to_text,
)
from tgcore.uop.node import UOp, sint
from tgcore.uop.ops import Ops

_MAGIC: Final = b"tgp3"


def encode_program(spec: ProgramSpec, binary: bytes) -> bytes:
    """Everything but the AST and the UOps; NotEncodable if something has no form as data."""
    fields = {
        "name": spec.name,
        "function_name": spec.function_name,
        "source": spec.source,
        "device": spec.device,
        "globals": spec.globals,
        "outs": spec.outs,
        "ins": spec.ins,
        "vars": [encode_sint(v) for v in spec.vars],
        "global_size": _encode_sizes(spec.global_size),
        "local_size": _encode_sizes(spec.local_size),
        "threads": spec.threads,
        "estimates": [
            encode_sint(v) for v in (spec.estimates.ops, spec.estimates.mem, spec.estimates.lds)
        ],
        "opts": encode_opts(spec.applied_opts),
    }
    text = to_text(fields).encode()
    return _MAGIC + struct.pack("<I", len(text)) + text + binary


def decode_program(data: bytes, ast: UOp) -> tuple[ProgramSpec, bytes]:
    """The program of this AST; ValueError if the bytes are not one."""
    if data[:4] != _MAGIC or len(data) < 8:
        raise ValueError("not a stored program")
    (length,) = struct.unpack("<I", data[4:8])
    try:
        fields = from_text(data[8 : 8 + length])
        spec = ProgramSpec(
            name=fields["name"],
            function_name=fields["function_name"],
            source=fields["source"],
            device=fields["device"],
            ast=ast,
            uops=(),
            globals=tuple(fields["globals"]),
            outs=tuple(fields["outs"]),
            ins=tuple(fields["ins"]),
            vars=tuple(_as_node(decode_sint(v)) for v in fields["vars"]),
            global_size=_decode_sizes(fields["global_size"]),
            local_size=_decode_sizes(fields["local_size"]),
            threads=fields["threads"],
            estimates=Estimates(*(decode_sint(v) for v in fields["estimates"])),
            applied_opts=decode_opts(fields["opts"]),
        )
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"not a stored program: {error}") from None
    return spec, data[8 + length :]


def _as_node(value: sint) -> UOp:
    if not isinstance(value, UOp):
        raise ValueError("not a node")
    return value


# *** symbolic integers ***


def encode_sint(value: sint) -> Data:
    """An int as itself, a node as its graph."""
    return value if isinstance(value, int) else encode_graph(value)


def decode_sint(data: Data) -> sint:
    """What `encode_sint` made the data of."""
    return data if isinstance(data, int) else decode_graph(data)


def _encode_sizes(sizes: tuple[sint, ...] | None) -> Any:
    return None if sizes is None else [encode_sint(s) for s in sizes]


def _decode_sizes(data: Any) -> tuple[sint, ...] | None:
    return None if data is None else tuple(decode_sint(s) for s in data)


# *** moves ***


def encode_opts(opts: Iterable[Opt]) -> Data:
    """`[["UPCAST", 0, 4], ...]`."""
    return [[opt.op.name, opt.axis, opt.arg] for opt in opts]


def decode_opts(data: Data) -> tuple[Opt, ...]:
    """The moves that `encode_opts` made the data of."""
    if not isinstance(data, list):
        raise ValueError("not a list of moves")
    return tuple([_decode_opt(item) for item in data])


def _decode_opt(data: Data) -> Opt:
    match data:
        case [str(name), axis, arg] if name in OptOps.__members__:
            if all(value is None or type(value) is int for value in (axis, arg)):
                return Opt(OptOps[name], decode_value(axis), decode_value(arg))
    raise ValueError(f"not a move: {data!r:.60}")


# *** targets ***

_NO_TARGET: Final = Target("")  # for the types of the fields
_ELEMENTS: Final = {"dtypes": DType, "ops": Ops, "tensor_cores": TensorCore}  # the rest holds ints


def encode_target(target: Target) -> Data:
    """The fields by name; sets in a fixed order."""
    return {f.name: _encode_field(getattr(target, f.name)) for f in fields_of(target)}


def _encode_field(value: Any) -> Data:
    if isinstance(value, frozenset):
        return sorted(map(encode_value, value), key=to_text)
    if isinstance(value, tuple):
        return [encode_value(v) for v in value]
    return encode_value(value)


def decode_target(data: Data) -> Target:
    """The target that `encode_target` made the data of; fields that lack have their defaults."""
    known = {f.name for f in fields_of(Target)}
    if not isinstance(data, dict) or not data.keys() <= known or "device" not in data:
        raise ValueError("not a target, or one with fields that are not known here")
    return Target(**{name: _decode_field(name, value) for name, value in data.items()})


def _decode_field(name: str, data: Data) -> Any:
    kind = type(getattr(_NO_TARGET, name))
    if kind not in (frozenset, tuple):
        value = decode_value(data)
        if type(value) is not kind:
            raise ValueError(f"a target's {name} must be of type {kind.__name__}")
        return value
    element = _ELEMENTS.get(name, int)
    if not isinstance(data, list):
        raise ValueError(f"a target's {name} must be a list")
    values = [decode_value(v) for v in data]
    if not all(type(v) is element for v in values):
        raise ValueError(f"a target's {name} must hold elements of type {element.__name__}")
    return kind(values)
