"""Graphs as data that JSON can hold: a row a node, sources by position.

    [["DEFINE_VAR", "index", [], ["tuple", "n", 1, 8]], ["CONST", "index", [], 2],
     ["MUL", "index", [0, 1], null]]

A row is op, data type, sources, argument, and the tag if there is one. Nodes are hash-consed, so
decoding gives the very object that was encoded. What is decoded may come from a stranger: every
name is looked up in a table of what may occur, every number has a limit, and whatever does not fit
is a ValueError. Nothing that the data names is imported or called.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeAlias

from tgcore.dtype import AddrSpace, DType, Invalid, PtrDType, dtypes
from tgcore.uop.node import BufferizeInfo, UOp
from tgcore.uop.ops import AxisType, Ops
from tgcore.uop.tensor_core import Fragment, TensorCore

Data: TypeAlias = Any
"""What JSON can hold: None, bools, numbers, strings, lists of these."""

# limits of what is decoded, far above what a kernel needs
MOST_NODES: Final = 1 << 20
_MOST_LANES: Final = 1 << 16
_MOST_BITS: Final = 256
_DEEPEST: Final = 32  # tuples in tuples, pointers to pointers


class NotEncodable(ValueError):
    """Something has no form as data."""


# *** text ***


def to_text(data: Data) -> str:
    """The data as JSON on one line, in plain ASCII."""
    try:
        return json.dumps(data, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise NotEncodable(str(error)) from None


def from_text(text: str | bytes) -> Data:
    """The data that the JSON stands for; ValueError if it is none."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("JSON that is nested too deep") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


# *** graphs ***


def encode_graph(root: UOp) -> Data:
    """The nodes of the graph, sources first; the root is the last one."""
    positions: dict[UOp, int] = {}
    rows: list[Data] = []
    for node in root.toposort():
        positions[node] = len(rows)
        sources = [positions[s] for s in node.src]
        row = [node.op.name, encode_dtype(node.dtype), sources, encode_value(node.arg)]
        rows.append(row if node.tag is None else [*row, encode_value(node.tag)])
    if len(rows) > MOST_NODES:
        raise NotEncodable(f"the graph has {len(rows)} nodes, more than {MOST_NODES}")
    return rows


def decode_graph(data: Data) -> UOp:
    """The root of the graph that `encode_graph` made the data of."""
    if not isinstance(data, list) or not 1 <= len(data) <= MOST_NODES:
        raise _junk(data, f"a graph, which is a list of 1 to {MOST_NODES} rows")
    nodes: list[UOp] = []
    used: set[int] = set()
    for row in data:
        op, dtype, sources, arg, tag = _split_row(row)
        if not all(type(s) is int and 0 <= s < len(nodes) for s in sources):
            raise _junk(sources, f"positions of earlier rows, in row {len(nodes)}")
        used.update(sources)
        src = tuple([nodes[s] for s in sources])
        nodes.append(UOp(op, decode_dtype(dtype), src, decode_value(arg), decode_value(tag)))
    if len(used) != len(nodes) - 1:
        raise ValueError("not one graph: some rows are not used by the last one")
    return nodes[-1]


def _split_row(row: Data) -> tuple[Ops, Data, list[Data], Data, Data]:
    if not isinstance(row, list) or len(row) not in (4, 5):
        raise _junk(row, "a row: op, data type, sources, argument, perhaps a tag")
    name, dtype, sources, arg, *tag = row
    if not isinstance(name, str) or name not in Ops.__members__:
        raise _junk(name, "an op")
    if not isinstance(sources, list):
        raise _junk(sources, "a list of positions")
    return Ops[name], dtype, sources, arg, tag[0] if tag else None


def _junk(data: Data, wanted: str) -> ValueError:
    text = repr(data) if isinstance(data, str | int | float) else type(data).__name__
    return ValueError(f"{text[:60]} is not {wanted}")


# *** data types ***

_SCALARS: Final = {d.name: d for d in (dtypes.void, dtypes.index, *dtypes.all)}


def encode_dtype(dtype: DType) -> Data:
    """`"float32"`, `["float32", 4]` for a vector, `["ptr", "float32", 64, "LOCAL"]`."""
    if isinstance(dtype, PtrDType):
        return ["ptr", encode_dtype(dtype.base), dtype.size, dtype.addrspace.name]
    if dtype.count > 1:
        return [dtype.scalar().name, dtype.count]
    return dtype.name


def decode_dtype(data: Data, depth: int = 0) -> DType:
    """The data type that `encode_dtype` made the data of."""
    match data:
        case str() if data in _SCALARS:
            return _SCALARS[data]
        case [str(name), int(count)] if name in _SCALARS and 1 < count <= _MOST_LANES:
            return _SCALARS[name].vec(count)
        case ["ptr", base, int(size), str(space)] if space in AddrSpace.__members__:
            if depth < _DEEPEST and type(size) is int and size >= -1:
                return decode_dtype(base, depth + 1).ptr(_decode_int(size), AddrSpace[space])
    raise _junk(data, "a data type")


# *** arguments and tags ***


def encode_value(value: Any, depth: int = 0) -> Data:
    """An argument: None, bools, ints and strings as they are, all else as `[kind, ...]`."""
    if depth > _DEEPEST:
        raise NotEncodable("tuples that are nested too deep")
    match value:
        case None | bool():
            return value
        case Ops() | AxisType() | AddrSpace():
            return [_KIND_OF[type(value)], value.name]
        case int():
            if value.bit_length() > _MOST_BITS:
                raise NotEncodable(f"an integer of {value.bit_length()} bits")
            return int(value)
        case float():
            return _encode_float(value)
        case str():
            return str(value)
        case tuple():
            return ["tuple", *[encode_value(v, depth + 1) for v in value]]
        case DType():
            return ["dtype", encode_dtype(value)]
        case BufferizeInfo(device, space, fixed, repeats):
            return ["bufferize", *[encode_value(v, 1) for v in (device, space, fixed, repeats)]]
        case TensorCore():
            return _encode_core(value)
    if value is Invalid:
        return ["invalid"]
    raise NotEncodable(f"{type(value).__name__} has no form as data")


def decode_value(data: Data, depth: int = 0) -> Any:
    """The argument that `encode_value` made the data of."""
    if depth > _DEEPEST:
        raise ValueError("tuples that are nested too deep")
    if data is None or isinstance(data, bool | str):
        return data
    if isinstance(data, int):
        return _decode_int(data)
    if isinstance(data, float):
        if not math.isfinite(data):
            raise _junk(data, "a finite number")
        return data
    match data:
        case ["tuple", *items]:
            return tuple([decode_value(item, depth + 1) for item in items])
        case [str(kind), *rest] if kind in _DECODERS:
            return _DECODERS[kind](rest)
    raise _junk(data, "an argument")


def _encode_float(value: float) -> Data:
    plain = float(value)
    if plain == 0:
        # the -0.0 of constants is not equal to 0.0, any other is
        return 0.0 if value == 0 else ["float", "-0.0"]
    return plain if math.isfinite(plain) else ["float", str(plain)]


def _decode_int(data: int) -> int:
    if data.bit_length() > _MOST_BITS:
        raise ValueError(f"an integer of {data.bit_length()} bits is too large")
    return data


def _decode_member(members: Any) -> Callable[[list[Data]], Any]:
    def decode(rest: list[Data]) -> Any:
        match rest:
            case [str(name)] if name in members:
                return members[name]
        raise _junk(rest[0] if rest else None, f"one of {', '.join(members)}"[:80])

    return decode


def _decode_invalid(rest: list[Data]) -> Any:
    if rest:
        raise _junk(rest, "the invalid index")
    return Invalid


def _decode_dtype_value(rest: list[Data]) -> DType:
    if len(rest) != 1:
        raise _junk(rest, "a data type")
    return decode_dtype(rest[0])


def _decode_bufferize(rest: list[Data]) -> BufferizeInfo:
    match [decode_value(item, 1) for item in rest]:
        case [(str() | None) as device, AddrSpace() as space, bool() as fixed, int() as repeats]:
            if type(repeats) is int:
                return BufferizeInfo(device, space, fixed, repeats)
    raise _junk(rest, "the description of a store")


def _encode_core(core: TensorCore) -> Data:
    texts = [text for f in (core.a, core.b, core.c) for text in (f.rows, f.columns)]
    kinds = (core.dtype_in, core.dtype_out, core.dtype_b)
    values = (core.dims, core.threads, *kinds, *texts, core.mantissa_bits)
    return ["tensor_core", *[encode_value(v, 1) for v in values]]


def _decode_core(rest: list[Data]) -> TensorCore:
    match [decode_value(item, 1) for item in rest]:
        case [
            (int(), int(), int()) as dims,
            int(threads),
            DType() as source,
            DType() as target,
            (DType() | None) as other,
            *texts,
            int(mantissa_bits),
        ] if len(texts) == 6 and all(isinstance(t, str) for t in texts):
            a, b, c = (Fragment(*texts[n : n + 2]) for n in (0, 2, 4))
            return TensorCore(dims, threads, source, target, a, b, c, other, mantissa_bits)
    raise _junk(rest, "a matrix instruction")


_KIND_OF: Final[dict[type, str]] = {Ops: "op", AxisType: "axis", AddrSpace: "space"}
_SPECIAL_FLOATS: Final = {
    "nan": math.nan,  # the one object that constants use
    "inf": math.inf,
    "-inf": -math.inf,
    "-0.0": dtypes.as_const(-0.0, dtypes.float64),
}
_DECODERS: Final[dict[str, Callable[[list[Data]], Any]]] = {
    "op": _decode_member(Ops.__members__),
    "axis": _decode_member(AxisType.__members__),
    "space": _decode_member(AddrSpace.__members__),
    "float": _decode_member(_SPECIAL_FLOATS),
    "invalid": _decode_invalid,
    "dtype": _decode_dtype_value,
    "bufferize": _decode_bufferize,
    "tensor_core": _decode_core,
}
