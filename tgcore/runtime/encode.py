"""Programs as bytes: JSON for what describes them, then the binary. Nothing is unpickled."""

from __future__ import annotations

import json
import struct
from typing import Any, Final

from tgcore.codegen.opt import Opt, OptOps
from tgcore.codegen.program import Estimates, ProgramSpec
from tgcore.dtype import dtypes
from tgcore.uop.node import UOp, sint
from tgcore.uop.ops import Ops

_MAGIC: Final = b"tgp2"
_SAFE_ARGS: Final = (int, float, str, bool, type(None))


class NotEncodable(ValueError):
    """The program holds something that has no form as text; it is then not stored."""


def encode_program(spec: ProgramSpec, binary: bytes) -> bytes:
    """Everything but the AST and the UOps."""
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
        "opts": [[o.op.name, o.axis, o.arg] for o in spec.applied_opts],
    }
    try:
        text = json.dumps(fields).encode()
    except (TypeError, ValueError) as error:
        raise NotEncodable(str(error)) from None
    return _MAGIC + struct.pack("<I", len(text)) + text + binary


def decode_program(data: bytes, ast: UOp) -> tuple[ProgramSpec, bytes]:
    """The program of this AST; ValueError if the bytes are not one."""
    if data[:4] != _MAGIC or len(data) < 8:
        raise ValueError("not a stored program")
    (length,) = struct.unpack("<I", data[4:8])
    try:
        fields = json.loads(data[8 : 8 + length])
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
            applied_opts=tuple(Opt(OptOps[o], axis, arg) for o, axis, arg in fields["opts"]),
        )
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"not a stored program: {error}") from None
    return spec, data[8 + length :]


def _as_node(value: sint) -> UOp:
    if not isinstance(value, UOp):
        raise ValueError("not a node")
    return value


# *** symbolic integers: a list of nodes, sources by position ***


def encode_sint(value: sint) -> Any:
    """An int as itself, a node as the list of the nodes below it."""
    if isinstance(value, int):
        return value
    positions: dict[UOp, int] = {}
    nodes: list[Any] = []
    for node in value.toposort():
        positions[node] = len(nodes)
        arg = list(node.arg) if isinstance(node.arg, tuple) else node.arg
        if node.dtype.count > 1 or not _is_safe(arg) or node.tag is not None:
            raise NotEncodable(f"{node} has no form as text")
        nodes.append([node.op.name, node.dtype.name, [positions[s] for s in node.src], arg])
    return nodes


def _is_safe(arg: Any) -> bool:
    return all(isinstance(a, _SAFE_ARGS) for a in arg) if isinstance(arg, list) else (
        isinstance(arg, _SAFE_ARGS)
    )  # fmt: skip


def decode_sint(data: Any) -> sint:
    """What `encode_sint` made the data of."""
    if isinstance(data, int):
        return data
    nodes: list[UOp] = []
    for op, dtype, sources, arg in data:
        src = tuple(nodes[s] for s in sources)
        kind = getattr(dtypes, dtype)
        nodes.append(UOp(Ops[op], kind, src, tuple(arg) if isinstance(arg, list) else arg))
    return nodes[-1]


def _encode_sizes(sizes: tuple[sint, ...] | None) -> Any:
    return None if sizes is None else [encode_sint(s) for s in sizes]


def _decode_sizes(data: Any) -> tuple[sint, ...] | None:
    return None if data is None else tuple(decode_sint(s) for s in data)
