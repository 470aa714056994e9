"""What each elementwise op gives on the lanes of numpy arrays: slow, obvious, for checks only.

Written from the meaning of the ops (`tgcore.uop.ops.TABLE`), apart from constant folding and from
all renderers, so that these can be held against it. A value is an array with one axis, an element
for each lane; integers wrap around at their width, floats are rounded to their type by each op.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tgcore.dtype import DType, dtypes
from tgcore.uop.ops import Ops

Lanes: TypeAlias = NDArray[Any]

# those that numpy has no type for, by their names in ml_dtypes
_ML_DTYPES: Final = {
    dtypes.bfloat16: "bfloat16",
    dtypes.fp8e4m3: "float8_e4m3fn",
    dtypes.fp8e5m2: "float8_e5m2",
}


def numpy_type(dtype: DType) -> np.dtype[Any]:
    """The type of a lane as numpy's; bfloat16 and fp8 are those of the package ml_dtypes.

    >>> numpy_type(dtypes.int16.vec(4))
    dtype('int16')
    """
    scalar = dtype.scalar()
    if scalar in _ML_DTYPES:
        import ml_dtypes  # only where such types occur: it is an optional dependency

        scalar_type: Any = getattr(ml_dtypes, _ML_DTYPES[scalar])
        found: np.dtype[Any] = np.dtype(scalar_type)
        return found
    return np.dtype(scalar.name)


def constant(value: Any, dtype: DType) -> Lanes:
    """A constant of the type: one value for all lanes, or a tuple with one for each."""
    values = value if isinstance(value, tuple) else (value,) * dtype.count
    if dtypes.is_float(dtype):
        return np.array([float(v) for v in values]).astype(numpy_type(dtype))
    return np.array(values, dtype=numpy_type(dtype))


def elementwise(op: Ops, dtype: DType, operands: Sequence[Lanes]) -> Lanes:
    """The op on every lane; `dtype` is the result's. KeyError for an op that is not elementwise.

    >>> elementwise(Ops.IDIV, dtypes.int32.vec(2), [np.array([-7, 7]), np.array([2, 0])])
    array([-3,  0], dtype=int32)
    """
    with np.errstate(all="ignore"):
        result = _RULES[op](dtype, *operands)
    return np.asarray(result).astype(numpy_type(dtype), copy=False)


# *** casts ***


def cast(value: Lanes, source: DType, target: DType) -> Lanes:
    """The value in another type. A float that does not fit an integer (nan too) is the least int32,
    or int64 for targets of 32 unsigned bits and more, and then wraps as integers do.

    >>> cast(np.array([-1.5, 300.0, np.nan]), dtypes.float64, dtypes.int8)
    array([-1, 44,  0], dtype=int8)
    """
    kind = numpy_type(target)
    with np.errstate(all="ignore"):
        if dtypes.is_bool(target):
            return np.asarray(value != 0)
        if dtypes.is_float(source) and not dtypes.is_float(target):
            wrapped = [_wrap(_whole(float(x), target), target) for x in value]
            return np.array(wrapped, dtype=kind)
        if target.scalar() in _ML_DTYPES or source.scalar() in _ML_DTYPES:
            value = value.astype(np.float64)  # holds them all; from there it is rounded once
        return value.astype(kind)


def _whole(x: float, target: DType) -> int:
    """The float towards zero, in the integers that hardware converts to."""
    scalar = target.scalar()
    if scalar is dtypes.uint64 and 2.0**63 <= x < 2.0**64:
        return int(x)
    bits = 63 if scalar is dtypes.uint32 or scalar.itemsize == 8 else 31
    # -(2**31) itself is what everything that does not fit becomes anyway
    return int(x) if abs(x) < 2.0**bits else -(1 << bits)


def bitcast(value: Lanes, target: DType) -> Lanes:
    """The bits of the lanes as another type; a bool is a byte that is not 0."""
    if dtypes.is_bool(target):
        return np.asarray(value.view(np.uint8) != 0)
    return np.ascontiguousarray(value).view(numpy_type(target))


# *** integers: as Python's, without bounds, then wrapped to the type ***


def _wrap(number: int, dtype: DType) -> int:
    bits = dtype.scalar().itemsize * 8
    number %= 1 << bits
    signed = not dtypes.is_unsigned(dtype)
    return number - (1 << bits) if signed and number >= 1 << (bits - 1) else number


def _exactly(function: Callable[[int, int, int], int]) -> Callable[[DType, Lanes, Lanes], Lanes]:
    """A rule for integers from a function of two numbers and the bits of the type."""

    def rule(dtype: DType, a: Lanes, b: Lanes) -> Lanes:
        bits = dtype.scalar().itemsize * 8
        pairs = zip(*np.broadcast_arrays(a, b))
        numbers = [_wrap(function(int(x), int(y), bits), dtype) for x, y in pairs]
        return np.array(numbers, dtype=numpy_type(dtype))

    return rule


def _quotient(dtype: DType, a: Lanes, b: Lanes) -> Lanes:
    """Towards zero; 0 for a division by 0."""
    safe = np.where(b == 0, np.ones_like(b), b)
    down = a // safe
    whole = down + ((a - down * safe != 0) & ((a < 0) != (safe < 0))).astype(a.dtype)
    return np.where(b == 0, np.zeros_like(a), whole)


def _remainder(dtype: DType, a: Lanes, b: Lanes) -> Lanes:
    return np.where(b == 0, np.zeros_like(a), a - b * _quotient(dtype, a, b))


def _left(dtype: DType, a: Lanes, amount: Lanes) -> Lanes:
    inside = (amount >= 0) & (amount < a.dtype.itemsize * 8)
    return np.where(inside, a << np.where(inside, amount, 0).astype(a.dtype), np.zeros_like(a))


def _right(dtype: DType, a: Lanes, amount: Lanes) -> Lanes:
    inside = (amount >= 0) & (amount < a.dtype.itemsize * 8)
    shifted = a >> np.where(inside, amount, 0).astype(a.dtype)
    return np.where(inside, shifted, np.where(a < 0, ~np.zeros_like(a), np.zeros_like(a)))


def _integer_power(a: int, b: int, bits: int) -> int:
    if b >= 0:
        return pow(a, b, 1 << bits)
    return 1 if a == 1 else (-1 if b % 2 else 1) if a == -1 else 0


def _threefry(counter: int, key: int, bits: int) -> int:
    """Threefry-2x32 with 20 rounds: Salmon et al., "Parallel Random Numbers", 2011, section 4."""
    words = [counter % 2**32, (counter >> 32) % 2**32]
    keys = [key % 2**32, (key >> 32) % 2**32]
    keys.append(0x1BD11BDA ^ keys[0] ^ keys[1])
    words = [(w + k) % 2**32 for w, k in zip(words, keys)]
    for step in range(20):
        amount = (13, 15, 26, 6, 17, 29, 16, 24)[step % 8]
        total = (words[0] + words[1]) % 2**32
        turned = (words[1] << amount | words[1] >> (32 - amount)) % 2**32
        words = [total, turned ^ total]
        if step % 4 == 3:
            turn = step // 4 + 1
            added = (keys[turn % 3], keys[(turn + 1) % 3] + turn)
            words = [(w + k) % 2**32 for w, k in zip(words, added)]
    return words[1] << 32 | words[0]


# *** rules that differ between kinds of numbers ***


def _subtract(dtype: DType, a: Lanes, b: Lanes) -> Lanes:
    return np.asarray(a ^ b if dtypes.is_bool(dtype) else a - b)


def _negate(dtype: DType, a: Lanes) -> Lanes:
    return np.asarray(a if dtypes.is_bool(dtype) else -a)


def _power(dtype: DType, a: Lanes, b: Lanes) -> Lanes:
    if dtypes.is_float(dtype):
        return np.asarray(a**b)
    return _exactly(_integer_power)(dtype, a, b)


def _multiply_add(dtype: DType, a: Lanes, b: Lanes, c: Lanes) -> Lanes:
    if not dtypes.is_float(dtype):
        return np.asarray(a * b + c)
    rounded = [_fused(x, y, z) for x, y, z in zip(*np.broadcast_arrays(a, b, c))]
    return np.array(rounded, dtype=numpy_type(dtype))


def _fused(a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once."""
    in_two_steps = a * b + c
    if not all(math.isfinite(float(x)) for x in (a, b, c)) or a == 0 or b == 0:
        return in_two_steps
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    return in_two_steps if exact == 0 else _nearest(exact, type(a))


def _nearest(exact: Fraction, kind: Any) -> Any:
    """The number of the type that is nearest, the even one of two."""
    try:
        close = kind(float(exact))
    except OverflowError:
        return kind(math.inf if exact > 0 else -math.inf)
    if not np.isfinite(close) or kind is np.float64:
        return close
    # rounded to float64 first, it may be off by one
    around = [close, np.nextafter(close, kind(np.inf)), np.nextafter(close, kind(-np.inf))]
    finite = [x for x in around if np.isfinite(x)]
    return min(finite, key=lambda x: (abs(Fraction(float(x)) - exact), _is_odd(x)))


def _is_odd(x: Any) -> int:
    return np.asarray(x).tobytes()[0] & 1  # little-endian: the first byte holds the last bit


_RULES: Final[dict[Ops, Callable[..., Any]]] = {
    Ops.EXP2: lambda dtype, a: np.exp2(a),
    Ops.LOG2: lambda dtype, a: np.log2(a),
    Ops.SIN: lambda dtype, a: np.sin(a),
    Ops.SQRT: lambda dtype, a: np.sqrt(a),
    Ops.RECIPROCAL: lambda dtype, a: np.ones_like(a) / a,
    Ops.NEG: _negate,
    Ops.TRUNC: lambda dtype, a: np.trunc(a),
    Ops.ADD: lambda dtype, a, b: a + b,
    Ops.MUL: lambda dtype, a, b: a * b,
    Ops.SUB: _subtract,
    Ops.FDIV: lambda dtype, a, b: a / b,
    Ops.IDIV: _quotient,
    Ops.MOD: _remainder,
    Ops.MAX: lambda dtype, a, b: np.maximum(a, b),
    Ops.POW: _power,
    Ops.SHL: _left,
    Ops.SHR: _right,
    Ops.AND: lambda dtype, a, b: a & b,
    Ops.OR: lambda dtype, a, b: a | b,
    Ops.XOR: lambda dtype, a, b: a ^ b,
    Ops.CMPLT: lambda dtype, a, b: a < b,
    Ops.CMPNE: lambda dtype, a, b: a != b,
    Ops.CMPEQ: lambda dtype, a, b: a == b,
    Ops.THREEFRY: _exactly(_threefry),
    Ops.WHERE: lambda dtype, condition, yes, no: np.where(condition, yes, no),
    Ops.MULACC: _multiply_add,
}
