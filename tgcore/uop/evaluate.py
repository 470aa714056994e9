"""What an elementwise op gives on Python values: the meaning of the ops, used to fold constants."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from tgcore.dtype import DType, Invalid, dtypes
from tgcore.uop.ops import Ops


def _safe(function: Callable[[float], float], domain: float = math.nan) -> Callable[[Any], Any]:
    def call(x: Any) -> Any:
        try:
            return function(x)
        except OverflowError:
            return math.inf
        except ValueError:
            return domain

    return call


def _log2(x: float) -> float:
    return math.log2(x) if x > 0 else -math.inf if x == 0 else math.nan


def _reciprocal(x: float) -> float:
    return 1 / x if x != 0 else math.copysign(math.inf, x)


def _fdiv(a: float, b: float) -> float:
    if b != 0:
        return a / b
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)


def _truncated_div(a: int, b: int) -> int:
    if b == 0:
        return 0
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _pow(a: Any, b: Any) -> Any:
    try:
        result = a**b
    except ZeroDivisionError:
        odd = float(b).is_integer() and b % 2 == 1
        return math.copysign(math.inf, a) if odd else math.inf
    except OverflowError:
        odd = float(b).is_integer() and b % 2 == 1
        return -math.inf if a < 0 and odd else math.inf
    return math.nan if isinstance(result, complex) else result


def _max(a: Any, b: Any) -> Any:
    return math.nan if a != a or b != b else max(a, b)  # noqa: PLR0124 - nan differs from itself


def threefry2x32(counter: int, key: int) -> int:
    """Threefry-2x32 with 20 rounds: Salmon et al., "Parallel Random Numbers", 2011."""
    mask = 0xFFFFFFFF
    x0, x1, k0, k1 = counter & mask, counter >> 32 & mask, key & mask, key >> 32 & mask
    keys = (k0, k1, k0 ^ k1 ^ 0x1BD11BDA)
    rotations = ((13, 15, 26, 6), (17, 29, 16, 24))
    x0, x1 = (x0 + k0) & mask, (x1 + k1) & mask
    for group in range(5):
        for rotation in rotations[group % 2]:
            x0 = (x0 + x1) & mask
            x1 = ((x1 << rotation | x1 >> (32 - rotation)) & mask) ^ x0
        x0 = (x0 + keys[(group + 1) % 3]) & mask
        x1 = (x1 + keys[(group + 2) % 3] + group + 1) & mask
    return x1 << 32 | x0


_EVALUATE: Final[dict[Ops, Callable[..., Any]]] = {
    Ops.EXP2: _safe(lambda x: 2.0**x),
    Ops.LOG2: _log2,
    Ops.SIN: _safe(math.sin),
    Ops.SQRT: _safe(math.sqrt),
    Ops.RECIPROCAL: _reciprocal,
    Ops.NEG: operator.neg,
    Ops.TRUNC: lambda x: float(math.trunc(x)) if math.isfinite(x) else x,
    Ops.ADD: operator.add,
    Ops.SUB: operator.sub,
    Ops.MUL: operator.mul,
    Ops.FDIV: _fdiv,
    Ops.IDIV: _truncated_div,
    Ops.MOD: lambda a, b: a - _truncated_div(a, b) * b if b else 0,
    Ops.MAX: _max,
    Ops.POW: _pow,
    Ops.SHL: operator.lshift,
    Ops.SHR: operator.rshift,
    Ops.AND: operator.and_,
    Ops.OR: operator.or_,
    Ops.XOR: operator.xor,
    Ops.CMPLT: operator.lt,
    Ops.CMPNE: operator.ne,
    Ops.CMPEQ: operator.eq,
    Ops.THREEFRY: threefry2x32,
    Ops.WHERE: lambda condition, yes, no: yes if condition else no,
    Ops.MULACC: lambda a, b, c: a * b + c,
}


def identity_of(op: Ops, dtype: DType) -> Any:
    """The value that changes nothing in a reduce by the op."""
    return {Ops.ADD: 0, Ops.MUL: 1, Ops.MAX: dtypes.min(dtype)}[op]


def evaluate(op: Ops, dtype: DType, operands: Sequence[Any]) -> Any:
    """The value of the op, as a constant of the type (of one lane)."""
    if Invalid in operands and op is not Ops.WHERE:
        return Invalid
    if dtype.scalar() is dtypes.index and op in (Ops.IDIV, Ops.MOD):
        numerator, divisor = operands
        if divisor == 0:
            return 0
        return numerator // divisor if op is Ops.IDIV else numerator % divisor
    return dtypes.as_const(_EVALUATE[op](*operands), dtype)


def evaluate_cast(value: Any, dtype: DType) -> Any:
    """The value in another type: out of range, a float becomes the nearest integer there is and
    then wraps as integers do; nan becomes 0."""
    if isinstance(value, float) and not dtypes.is_float(dtype) and dtype is not dtypes.bool:
        if math.isnan(value):
            return 0
        low, high = -(1 << 63), (1 << 64) - 1 if dtype is dtypes.uint64 else (1 << 63) - 1
        value = int(max(min(value, high), low))
    return dtypes.as_const(value, dtype)


def evaluate_bitcast(value: Any, source: DType, target: DType) -> Any:
    """The bits of the value read as another type; None for types that Python has no format of."""
    if source.fmt is None or target.fmt is None:
        return None
    return dtypes.as_const(struct.unpack(target.fmt, struct.pack(source.fmt, value))[0], target)
