"""Facts that follow from a node and its sources; each is computed once and kept on the node.

Every function here may read the same fact of the node's sources: they are there already.
"""

from __future__ import annotations

import hashlib
import operator
from typing import TYPE_CHECKING, Any

from tgcore.dtype import Invalid, PtrDType, dtypes
from tgcore.errors import ShapeError
from tgcore.uop.ops import GroupOp, Ops

if TYPE_CHECKING:
    from tgcore.uop.node import UOp

# the first source that is a range which the op ends
RANGE_START = {Ops.BUFFERIZE: 1, Ops.REDUCE: 1, Ops.END: 1, Ops.CONTRACT: 1}

_NO_RANGES: dict[Any, None] = {}


def movement_arg(node: UOp, position: int = 1) -> tuple[Any, ...]:
    """The sizes that a source of a movement op holds: ints, or nodes where symbolic."""
    sizes = node.src[position]
    if sizes.op is Ops.VCONST:
        return sizes.arg  # type: ignore[no-any-return]
    return tuple(s.arg if s.op is Ops.CONST else s for s in sizes.src)


# *** shape ***


def shape(node: UOp) -> tuple[Any, ...] | None:
    """The shape of a tensor-level node; () for scalars; None for what has no shape."""
    rule = _SHAPE_RULES.get(node.op)
    if rule is not None:
        return rule(node)  # type: ignore[no-any-return]
    if node.op in GroupOp.Elementwise:
        return _elementwise_shape(node)
    return None


def _elementwise_shape(node: UOp) -> tuple[Any, ...] | None:
    shapes = [s.shape for s in node.src]
    if None in shapes:
        return None
    full = [s for s in shapes if s != ()]
    if any(s != full[0] for s in full[1:]):
        raise ShapeError(f"{node.op} needs equal shapes, not {' and '.join(map(str, shapes))}")
    return full[0] if full else ()


def _reduced_shape(node: UOp) -> tuple[Any, ...]:
    axes = node.arg[1]
    inner = node.src[0].shape
    assert inner is not None
    return tuple(1 if axis in axes else size for axis, size in enumerate(inner))


def _index_shape(node: UOp) -> tuple[Any, ...] | None:
    return None if isinstance(node.dtype, PtrDType) else ()


def _first_shape(node: UOp) -> tuple[Any, ...] | None:
    return node.src[0].shape if node.src else None


def _permuted_shape(node: UOp) -> tuple[Any, ...]:
    inner = node.src[0].shape
    assert inner is not None
    return tuple(inner[axis] for axis in node.arg)


def _pointer_shape(node: UOp) -> tuple[Any, ...] | None:
    return (node.dtype.size,) if isinstance(node.dtype, PtrDType) else None


_SHAPE_RULES: dict[Ops, Any] = {
    **dict.fromkeys((Ops.CONST, Ops.DEFINE_VAR, Ops.BIND, Ops.RANGE, Ops.SPECIAL), lambda n: ()),
    **dict.fromkeys((Ops.RESHAPE, Ops.EXPAND), movement_arg),
    **dict.fromkeys((Ops.PAD, Ops.SHRINK), lambda n: movement_arg(n, 2)),
    **dict.fromkeys(
        (
            *(Ops.FLIP, Ops.ASSIGN, Ops.COPY, Ops.CONTIGUOUS, Ops.CONTIGUOUS_BACKWARD),
            *(
                Ops.CUSTOM_GRADIENT,
                Ops.DETACH,
                Ops.AFTER,
                Ops.NOOP,
                Ops.MULTI,
                Ops.MSELECT,
                Ops.MSTACK,
                Ops.ALLREDUCE,
            ),
        ),
        _first_shape,
    ),
    **dict.fromkeys((Ops.DEFINE_GLOBAL, Ops.DEFINE_LOCAL), _pointer_shape),
    Ops.PERMUTE: _permuted_shape,
    Ops.REDUCE_AXIS: _reduced_shape,
    Ops.INDEX: _index_shape,
    Ops.REDUCE: lambda n: (),
    Ops.BUFFER: lambda n: (n.arg,),
    Ops.BUFFER_VIEW: lambda n: (n.arg[0],),
    Ops.BUFFERIZE: lambda n: tuple(
        r.src[0].arg if r.op is Ops.RANGE and r.src[0].op is Ops.CONST else (r.vmax + 1)
        for r in n.src[1:]
    ),
}


# *** device ***


def device(node: UOp) -> str | None:
    """The device that a tensor-level node lives on; None where any will do."""
    if node.op is Ops.DEVICE:
        return node.arg  # type: ignore[no-any-return]
    if node.op in (Ops.COPY, Ops.BUFFER):
        return node.src[1].device
    if node.op is Ops.BUFFERIZE:
        return node.arg.device  # type: ignore[no-any-return]
    if node.op is Ops.KERNEL:
        return node.src[0].device if node.src else None
    for source in node.src:
        if source.device is not None:
            return source.device
    return None


# *** open ranges ***


def ranges(node: UOp) -> dict[UOp, None]:
    """The open ranges that the node depends on, in a fixed order."""
    if node.op is Ops.RANGE:
        size = node.src[0].ranges
        return {**size, node: None} if size else {node: None}
    if not node.src or node.op is Ops.KERNEL:
        return _NO_RANGES
    start = RANGE_START.get(node.op)
    used = node.src if start is None else node.src[:start]
    merged = used[0].ranges
    for source in used[1:]:
        other = source.ranges
        if other and other is not merged and not (other.keys() <= merged.keys()):
            merged = {**merged, **other}
    if start is None:
        return merged
    ended = {r for s in node.src[start:] for r in ([s] if s.op is Ops.RANGE else s.ranges)}
    return {r: None for r in merged if r not in ended}


# *** bounds ***


def bounds(node: UOp) -> tuple[Any, Any]:
    """(least, greatest) value that the node can have."""
    if node.op is Ops.CONST:
        return (node.arg, node.arg) if node.arg is not Invalid else _type_bounds(node)
    if node.op is Ops.VCONST:
        usable = [v for v in node.arg if v is not Invalid]
        return (
            (min(usable), max(usable)) if len(usable) == len(node.arg) > 0 else _type_bounds(node)
        )
    found = exact_bounds(node)
    if found is None:
        return _type_bounds(node)
    if node.dtype.scalar() is not dtypes.index and dtypes.is_int(node.dtype):
        low, high = _type_bounds(node)
        if found[0] < low or found[1] > high:  # it may wrap around
            return (low, high)
    return found


def exact_bounds(node: UOp) -> tuple[Any, Any] | None:
    """The bounds that the value would have if it did not wrap around; None if nothing is known."""
    rule = _BOUND_RULES.get(node.op)
    if rule is None or (dtypes.is_float(node.dtype) and node.op is not Ops.VECTORIZE):
        return None
    return rule(node)  # type: ignore[no-any-return]


_INDEX_LIMIT = 1 << 62


def _type_bounds(node: UOp) -> tuple[Any, Any]:
    scalar = node.dtype.scalar()
    if scalar is dtypes.index:
        return (-_INDEX_LIMIT, _INDEX_LIMIT)
    if scalar is dtypes.void:
        return (0, 0)
    return (dtypes.min(scalar), dtypes.max(scalar))


def _corners(node: UOp, combine: Any) -> tuple[Any, Any]:
    (a, b), (c, d) = node.src[0].bounds, node.src[1].bounds
    values = (combine(a, c), combine(a, d), combine(b, c), combine(b, d))
    return (min(values), max(values))


def _add_bounds(node: UOp) -> tuple[Any, Any]:
    (a, b), (c, d) = node.src[0].bounds, node.src[1].bounds
    if node.dtype.scalar() is dtypes.bool:
        return (a or c, b or d)
    return (a + c, b + d)


def _sub_bounds(node: UOp) -> tuple[Any, Any]:
    (a, b), (c, d) = node.src[0].bounds, node.src[1].bounds
    return (a - d, b - c)


def _mul_bounds(node: UOp) -> tuple[Any, Any]:
    if node.dtype.scalar() is dtypes.bool:
        (a, b), (c, d) = node.src[0].bounds, node.src[1].bounds
        return (a and c, b and d)
    return _corners(node, operator.mul)


def _truncated_div(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _idiv_bounds(node: UOp) -> tuple[Any, Any] | None:
    low, high = node.src[1].bounds
    if low <= 0 <= high:
        return None
    floor = node.dtype.scalar() is dtypes.index
    return _corners(node, operator.floordiv if floor else _truncated_div)


def _mod_bounds(node: UOp) -> tuple[Any, Any] | None:
    (a, b), (c, d) = node.src[0].bounds, node.src[1].bounds
    if c <= 0:
        return None
    floor = node.dtype.scalar() is dtypes.index
    if c == d and a // c == b // c and (a >= 0 or floor):
        return (a % c, b % c)
    if a >= 0:
        return (0, min(b, d - 1))
    return (0, d - 1) if floor else (max(a, 1 - d), min(max(b, 0), d - 1))


def _max_bounds(node: UOp) -> tuple[Any, Any]:
    (a, b), (c, d) = node.src[0].bounds, node.src[1].bounds
    return (max(a, c), max(b, d))


def _cmplt_bounds(node: UOp) -> tuple[Any, Any] | None:
    if dtypes.is_float(node.src[0].dtype):
        return None
    (a, b), (c, d) = node.src[0].bounds, node.src[1].bounds
    return (b < c, a < d)


def _equal_bounds(node: UOp) -> tuple[Any, Any] | None:
    if dtypes.is_float(node.src[0].dtype):
        return None
    (a, b), (c, d) = node.src[0].bounds, node.src[1].bounds
    always, never = a == b == c == d, b < c or d < a
    return (always, not never) if node.op is Ops.CMPEQ else (never, not always)


def _and_bounds(node: UOp) -> tuple[Any, Any] | None:
    (a, b), (c, d) = node.src[0].bounds, node.src[1].bounds
    if node.dtype.scalar() is dtypes.bool:
        return (a and c, b and d)
    return (0, min(b, d)) if a >= 0 and c >= 0 else None


def _or_bounds(node: UOp) -> tuple[Any, Any] | None:
    if node.dtype.scalar() is not dtypes.bool:
        return None
    (a, b), (c, d) = node.src[0].bounds, node.src[1].bounds
    return (a or c, b or d)


def _shift_bounds(node: UOp) -> tuple[Any, Any] | None:
    low, high = node.src[1].bounds
    if low != high or not 0 <= low < 64:
        return None
    combine = operator.lshift if node.op is Ops.SHL else operator.rshift
    return (combine(node.src[0].vmin, low), combine(node.src[0].vmax, low))


def _where_bounds(node: UOp) -> tuple[Any, Any]:
    chosen = [s.bounds for s in node.src[1:] if s.arg is not Invalid]
    return (min(c[0] for c in chosen), max(c[1] for c in chosen)) if chosen else _type_bounds(node)


def _cast_bounds(node: UOp) -> tuple[Any, Any] | None:
    source = node.src[0]
    if dtypes.is_float(source.dtype):
        return None
    low, high = source.bounds
    if node.dtype.scalar() is dtypes.bool:
        return (low > 0 or high < 0, not low == high == 0)
    return (int(low), int(high))


def _vectorize_bounds(node: UOp) -> tuple[Any, Any] | None:
    if not node.src:
        return None
    return (min(s.vmin for s in node.src), max(s.vmax for s in node.src))


_BOUND_RULES: dict[Ops, Any] = {
    **dict.fromkeys((Ops.RANGE, Ops.SPECIAL), lambda n: (0, max(n.src[0].vmax - 1, 0))),
    **dict.fromkeys((Ops.CMPNE, Ops.CMPEQ), _equal_bounds),
    **dict.fromkeys((Ops.SHL, Ops.SHR), _shift_bounds),
    **dict.fromkeys((Ops.BIND, Ops.GEP, Ops.UNROLL, Ops.CONTRACT), lambda n: n.src[0].bounds),
    Ops.DEFINE_VAR: lambda n: (n.arg[1], n.arg[2]),
    Ops.NEG: lambda n: (-n.src[0].vmax, -n.src[0].vmin),
    Ops.ADD: _add_bounds,
    Ops.SUB: _sub_bounds,
    Ops.MUL: _mul_bounds,
    Ops.IDIV: _idiv_bounds,
    Ops.MOD: _mod_bounds,
    Ops.MAX: _max_bounds,
    Ops.CMPLT: _cmplt_bounds,
    Ops.AND: _and_bounds,
    Ops.OR: _or_bounds,
    Ops.WHERE: _where_bounds,
    Ops.CAST: _cast_bounds,
    Ops.VECTORIZE: _vectorize_bounds,
}


# *** content hash ***


def key(node: UOp) -> bytes:
    """A hash of the graph below the node that is the same in every process."""
    digest = hashlib.blake2b(digest_size=20)
    digest.update(f"{node.op.name} {node.dtype!r} {_stable(node.arg)} {node.tag!r}".encode())
    for source in node.src:
        digest.update(source.key)
    return digest.digest()


def _stable(arg: Any) -> str:
    content = getattr(arg, "content", None)
    return content() if callable(content) else repr(arg)
