"""Nodes that any graph may hold."""

from __future__ import annotations

from collections.abc import Iterable

from tgcore.dtype import DType, Invalid, PtrDType, dtypes
from tgcore.uop.node import UOp
from tgcore.uop.ops import AxisType, GroupOp, Ops
from tgcore.uop.pattern import UPat
from tgcore.uop.spec.base import Family, Spec

_ARITY = {
    **dict.fromkeys(GroupOp.Unary, 1),
    **dict.fromkeys(GroupOp.Binary, 2),
    **dict.fromkeys(GroupOp.Ternary, 3),
}
_FLOAT_ONLY = frozenset(
    {Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.SQRT, Ops.RECIPROCAL, Ops.FDIV, Ops.TRUNC}
)
_INT_ONLY = frozenset({Ops.IDIV, Ops.MOD})
_INT_OR_BOOL = frozenset({Ops.AND, Ops.OR, Ops.XOR})
REDUCES = frozenset({Ops.ADD, Ops.MUL, Ops.MAX})
"""The ops that can reduce."""


def yes() -> bool:
    """The verdict of a rule whose pattern says it all."""
    return True


def is_value(dtype: DType) -> bool:
    """Whether it is a type of values, not void and no pointer."""
    return dtype is not dtypes.void and not isinstance(dtype, PtrDType)


def same_types(node: UOp, sources: Iterable[UOp]) -> bool:
    """Whether the sources have the node's type."""
    return all(s.dtype is node.dtype for s in sources)


def keeps_type(node: UOp) -> bool:
    """Whether the type is that of the first source."""
    return node.dtype is node.src[0].dtype


def legal_arithmetic(node: UOp) -> bool:
    """Sources of one type, which is the result's; floats for float ops, integers for theirs."""
    if len(node.src) != _ARITY[node.op] or not is_value(node.dtype) or node.arg is not None:
        return False
    if node.op in _FLOAT_ONLY and not dtypes.is_float(node.dtype):
        return False
    if node.op in _INT_ONLY and not dtypes.is_int(node.dtype):
        return False
    if node.op in _INT_OR_BOOL and dtypes.is_float(node.dtype):
        return False
    return same_types(node, node.src)


def legal_comparison(node: UOp) -> bool:
    """Two values of one type; the result is a bool for each lane."""
    if len(node.src) != 2 or node.arg is not None:
        return False
    a, b = node.src
    return a.dtype is b.dtype and is_value(a.dtype) and node.dtype is _bools(a.dtype.count)


def _bools(count: int) -> DType:
    return dtypes.bool.vec(count)


def legal_where(node: UOp) -> bool:
    """A bool for each lane, and two values of the result's type."""
    if len(node.src) != 3 or node.arg is not None or not is_value(node.dtype):
        return False
    return node.src[0].dtype is _bools(node.dtype.count) and same_types(node, node.src[1:])


def legal_shift(node: UOp) -> bool:
    """An integer, shifted by integers."""
    if len(node.src) != 2 or node.arg is not None or not dtypes.is_int(node.dtype):
        return False
    value, amount = node.src
    fits = dtypes.is_int(amount.dtype) and amount.dtype.count == node.dtype.count
    return value.dtype is node.dtype and fits


def legal_constant(node: UOp) -> bool:
    """A value of the type, as Python has it."""
    return _is_constant(node.arg, node.dtype)


def _is_constant(value: object, dtype: DType) -> bool:
    if not is_value(dtype):
        return False
    scalar = dtype.scalar()
    if value is Invalid:
        return scalar is dtypes.index
    if dtypes.is_float(scalar):
        return isinstance(value, float) and (value != value or _is_rounded(value, scalar))  # noqa: PLR0124 - nan
    if scalar is dtypes.bool:
        return type(value) is bool
    if type(value) is not int:
        return False
    return scalar is dtypes.index or dtypes.min(scalar) <= value <= dtypes.max(scalar)


def _is_rounded(value: float, scalar: DType) -> bool:
    return bool(dtypes.as_const(value, scalar) == value)


def legal_vconst(node: UOp) -> bool:
    """A value for each lane, or the sizes that a movement op has as its source: any number."""
    if not isinstance(node.arg, tuple):
        return False
    if len(node.arg) != node.dtype.count and not (node.dtype is dtypes.index and len(node.arg) < 2):
        return False
    return all(_is_constant(value, node.dtype) for value in node.arg)


def legal_variable(node: UOp) -> bool:
    """(name, least, greatest) of an integer type."""
    match node.arg:
        case (str(name), int(low), int(high)):
            return bool(name) and low <= high and dtypes.is_int(node.dtype)
    return False


def legal_range(node: UOp) -> bool:
    """A size of the range's own integer type; (number, ..., axis type)."""
    if not isinstance(node.arg, tuple) or len(node.arg) < 2:
        return False
    *numbers, axis = node.arg
    if not isinstance(axis, AxisType) or not all(type(n) is int for n in numbers):
        return False
    return node.dtype is node.src[0].dtype and dtypes.is_int(node.dtype) and node.dtype.count == 1


def legal_cast(node: UOp) -> bool:
    """Another type of as many lanes; no pointers."""
    source = node.src[0].dtype
    return is_value(node.dtype) and is_value(source) and node.dtype.count == source.count


def legal_bitcast(node: UOp) -> bool:
    """Types of one size; no pointers."""
    source = node.src[0].dtype
    values = is_value(node.dtype) and is_value(source)
    return values and node.dtype.itemsize == source.itemsize


def legal_vectorize(node: UOp) -> bool:
    """Scalars of one type, one a lane (or sizes of a movement op)."""
    if node.dtype is dtypes.index and len(node.src) == 1:
        return node.src[0].dtype is dtypes.index
    scalar = node.dtype.scalar()
    return len(node.src) == node.dtype.count > 1 and all(s.dtype is scalar for s in node.src)


SHARED = (
    Family(
        "constants",
        "a constant has no sources, and its arg is a Python value of its type",
        [
            (UPat(Ops.CONST, src=(), name="node"), legal_constant),
            (UPat(Ops.VCONST, src=(), name="node"), legal_vconst),
        ],
    ),
    Family(
        "variables",
        "a variable is an integer without sources; arg is (name, least, greatest)",
        [(UPat(Ops.DEFINE_VAR, src=(), name="node"), legal_variable)],
    ),
    Family(
        "ranges",
        "a range has a size of its own integer type; arg is (number, ..., AxisType)",
        [(UPat(Ops.RANGE, src=(UPat(),), name="node"), legal_range)],
    ),
    Family(
        "arithmetic",
        "as many sources as the op takes, all of the result's type; floats for float ops, integers "
        "for integer ops",
        [
            (
                UPat(
                    GroupOp.ALU - GroupOp.Comparison - {Ops.WHERE, Ops.SHL, Ops.SHR, Ops.THREEFRY},
                    name="node",
                ),
                legal_arithmetic,
            ),
            (UPat((Ops.SHL, Ops.SHR), name="node"), legal_shift),
            (
                UPat(Ops.THREEFRY, dtypes.uint64, (UPat(), UPat()), name="node"),
                lambda node: same_types(node, node.src),
            ),
        ],
    ),
    Family(
        "comparisons",
        "two values of one type are compared; the result is bool, lane by lane",
        [(UPat(GroupOp.Comparison, name="node"), legal_comparison)],
    ),
    Family(
        "choices",
        "WHERE takes a bool for each lane and two values of the result's type",
        [(UPat(Ops.WHERE, name="node"), legal_where)],
    ),
    Family(
        "casts",
        "a cast keeps the number of lanes, a bitcast the number of bytes; pointers are not cast",
        [
            (UPat(Ops.CAST, src=(UPat(),), name="node"), legal_cast),
            (UPat(Ops.BITCAST, src=(UPat(),), name="node"), legal_bitcast),
        ],
    ),
    Family(
        "vectors",
        "VECTORIZE takes a scalar of the vector's type for each lane",
        [(UPat(Ops.VECTORIZE, name="node"), legal_vectorize)],
    ),
)

spec_shared = Spec("any graph", SHARED)
