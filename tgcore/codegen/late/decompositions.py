"""What a device lacks, in terms of what it has: rewrite rules made for a target.

In comes a kernel with any arithmetic on any type; out comes one that only uses `target.ops` on
`target.dtypes`. Ops that every device has are taken for granted: ADD, MUL, CMPLT, CMPNE, WHERE,
AND, OR, XOR, casts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from tgcore.codegen.late import transcendental
from tgcore.codegen.late.small_floats import pm_small_floats, to_odd_float32
from tgcore.codegen.target import Target
from tgcore.dtype import DType, dtypes
from tgcore.helpers import is_power_of_two
from tgcore.uop.node import UOp
from tgcore.uop.ops import Ops
from tgcore.uop.pattern import PatternMatcher, UPat

Rule: TypeAlias = tuple[UPat, Callable[..., Any]]

_FUNCTIONS: Final = {
    Ops.EXP2: transcendental.exp2,
    Ops.LOG2: transcendental.log2,
    Ops.SIN: transcendental.sin,
}
_COMPUTED_IN: Final = (dtypes.float32, dtypes.float64)
_NARROW: Final = (dtypes.float16, dtypes.bfloat16, *dtypes.fp8s)


@functools.cache
def decompositions(target: Target) -> PatternMatcher:
    """All rules that the target needs."""
    missing = [d for d in _NARROW if d not in target.dtypes]
    matcher = PatternMatcher(
        [
            *_function_rules(target),
            *_float_rules(target),
            *_integer_rules(target),
            *_fusion_rules(target),
        ]
    )
    if missing:
        matcher = pm_small_floats(missing) + matcher
    return matcher


# *** functions ***


def _function_rules(target: Target) -> list[Rule]:
    rules: list[Rule] = [
        # computed in float32, where there are bits enough
        (UPat((*_FUNCTIONS, Ops.POW), _NARROW, name="n"), _in_float32),
        (UPat(Ops.THREEFRY, name="n"), lambda n: threefry(*n.src)),
    ]
    for op, function in _FUNCTIONS.items():
        if op not in target.ops:
            rules.append((UPat(op, _COMPUTED_IN, (UPat.var("x"),)), function))
    if Ops.POW not in target.ops:
        rules.append((UPat(Ops.POW, name="n"), lambda n: _power(target, n)))
    return rules


def _in_float32(n: UOp) -> UOp:
    single = dtypes.float32.vec(n.dtype.count)
    return UOp(n.op, single, tuple(s.cast(single) for s in n.src), n.arg).cast(n.dtype)


def _power(target: Target, n: UOp) -> UOp | None:
    x, y = n.src
    if dtypes.is_int(n.dtype) or dtypes.is_bool(n.dtype):
        return transcendental.integer_power(x, y)
    if n.dtype.scalar() not in _COMPUTED_IN:
        return None
    wider = None
    if n.dtype.scalar() is dtypes.float32 and dtypes.float64 in target.dtypes:
        wider = dtypes.float64
    return transcendental.power(x, y, wider)


_ROTATIONS: Final = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry(counter: UOp, key: UOp) -> UOp:
    """Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3").

    The low halves of counter, key and result are the first words.
    """
    half = dtypes.uint32.vec(counter.dtype.count)
    wide = counter.dtype
    x0, x1 = counter.cast(half), (counter >> 32).cast(half)
    k0, k1 = key.cast(half), (key >> 32).cast(half)
    keys = (k0, k1, k0 ^ k1 ^ 0x1BD11BDA)
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = ((x1 << rotation) | (x1 >> (32 - rotation))) ^ x0
        x0 = x0 + keys[(group + 1) % 3]
        x1 = x1 + (keys[(group + 2) % 3] + (group + 1))
    return (x1.cast(wide) << 32) | x0.cast(wide)


# *** floats ***


def _float_rules(target: Target) -> list[Rule]:
    rules: list[Rule] = []
    if dtypes.float16 in target.dtypes:
        # in two steps, as if in one: hardware converts float32 only
        rules.append((UPat(Ops.CAST, dtypes.float16, (UPat.var("x", dtypes.float64),)), _to_half))
    if Ops.RECIPROCAL not in target.ops:
        rules.append((UPat(Ops.RECIPROCAL, src=(UPat.var("x"),)), _one_over))
    if Ops.FDIV not in target.ops:
        rules.append((UPat(Ops.FDIV, name="n"), lambda n: n.src[0] * n.src[1].reciprocal()))
    if Ops.MAX not in target.ops:
        rules.append((UPat(Ops.MAX, name="n"), lambda n: _greater(*n.src)))
    if Ops.TRUNC not in target.ops:
        rules.append((UPat(Ops.TRUNC, src=(UPat.var("x"),)), _truncated))
    return rules


def _to_half(x: UOp) -> UOp:
    return to_odd_float32(x).cast(dtypes.float16.vec(x.dtype.count))


def _one_over(x: UOp) -> UOp:
    return x.const_like(1.0).alu(Ops.FDIV, x)


def _greater(a: UOp, b: UOp) -> UOp:
    greater = (a < b).where(b, a)
    if not dtypes.is_float(a.dtype):
        return greater
    return transcendental.is_nan(b).where(b, greater)


def _truncated(x: UOp) -> UOp:
    """Through integers where there may be a fraction, with the sign put back (for zeros)."""
    kind = {2: dtypes.int16, 4: dtypes.int32, 8: dtypes.int64}[x.dtype.scalar().itemsize]
    whole_from = 2.0 ** dtypes.finfo(x.dtype)[1]
    has_fraction = transcendental.absolute(x) < x.const_like(whole_from)
    whole = has_fraction.where(x, x.const_like(0.0)).cast(kind.vec(x.dtype.count)).cast(x.dtype)
    bits = dtypes.from_name(f"u{kind.name}").vec(x.dtype.count)
    sign = x.bitcast(bits) & (1 << (x.dtype.scalar().itemsize * 8 - 1))
    signed = (whole.bitcast(bits) | sign).bitcast(x.dtype)
    return has_fraction.where(signed, x)


# *** integers ***


def _integer_rules(target: Target) -> list[Rule]:
    rules: list[Rule] = []
    x, c = UPat.var("x", dtypes.ints), UPat.cvar("c", dtypes.ints)
    if Ops.SHR in target.ops:
        rules.append((x // c, _shift_for_division))
    rules.append((x % c, _mask_for_remainder))
    if Ops.SHL in target.ops:
        rules.append((x * c, _shift_for_product))
    else:
        shift = UPat(Ops.SHL, src=(UPat.var("x"), UPat.cvar("c")))
        rules.append((shift, lambda x, c: x * (1 << c.arg)))
    if Ops.IDIV not in target.ops:
        rules.append((x // c, _multiply_for_division))
    if Ops.MOD not in target.ops:
        rules.append((UPat(Ops.MOD, dtypes.ints, name="n"), _remainder))
    if Ops.CMPEQ not in target.ops:
        rules.append((UPat(Ops.CMPEQ, name="n"), lambda n: n.src[0].ne(n.src[1]).logical_not()))
    return rules


def _shift_for_division(x: UOp, c: UOp) -> UOp | None:
    if not is_power_of_two(c.arg) or x.vmin < 0:
        return None
    return x if c.arg == 1 else x.alu(Ops.SHR, x.const_like(c.arg.bit_length() - 1))


def _mask_for_remainder(x: UOp, c: UOp) -> UOp | None:
    if not is_power_of_two(c.arg) or x.vmin < 0:
        return None
    return x & x.const_like(c.arg - 1)


def _shift_for_product(x: UOp, c: UOp) -> UOp | None:
    if c.arg < 2 or not is_power_of_two(c.arg):
        return None
    return x.alu(Ops.SHL, x.const_like(c.arg.bit_length() - 1))


def _multiply_for_division(x: UOp, c: UOp) -> UOp | None:
    """x // c for 0 <= x as (x * m) >> s, where the product fits 64 bits.

    With m = ceil(2**s / c), the error m*c - 2**s times x must stay below 2**s.
    """
    divisor, greatest = c.arg, x.vmax
    if divisor <= 0 or x.vmin < 0:
        return None
    for shift in range(64):
        factor = -(-(1 << shift) // divisor)
        if (factor * divisor - (1 << shift)) * greatest < 1 << shift:
            break
    else:
        return None
    if factor * greatest >= 1 << 63:
        return None
    wide = dtypes.int64.vec(x.dtype.count)
    product: UOp = x.cast(wide) * factor
    return product.alu(Ops.SHR, UOp.const(wide, shift)).cast(x.dtype)


def _remainder(n: UOp) -> UOp:
    x, y = n.src
    return x - x.alu(Ops.IDIV, y) * y


# *** what is one instruction ***


def _fusion_rules(target: Target) -> list[Rule]:
    rules: list[Rule] = []
    a, b = UPat.var("a"), UPat.var("b")
    if Ops.SUB in target.ops:
        rules.append((a + b * UPat.cvar("c"), _minus_for_product))
        rules.append((a + UPat(Ops.NEG, src=(b,)), lambda a, b: a.alu(Ops.SUB, b)))
    if Ops.NEG in target.ops:
        rules.append((UPat.var("x") * UPat.cvar("c"), _negative))
    else:
        rules.append((UPat(Ops.NEG, src=(UPat.var("x"),)), lambda x: x * x.const_like(-1)))
    if Ops.CMPEQ in target.ops:
        rules.append((a.ne(b).ne(True), lambda a, b: a.alu(Ops.CMPEQ, b)))
    if Ops.FDIV in target.ops:
        rules.append((a * UPat(Ops.RECIPROCAL, src=(b,)), _quotient))
        inverse = UPat(Ops.FDIV, src=(UPat.const(1.0), b))
        rules.append((a * inverse, _quotient))
    if Ops.MULACC in target.ops:
        kinds = [d for d in dtypes.floats if d in target.dtypes]
        sum_of_product = UPat(Ops.ADD, kinds, [UPat(Ops.MUL, src=(a, b)), UPat.var("c")])
        rules.append((sum_of_product, lambda a, b, c: a.alu(Ops.MULACC, b, c)))
    return rules


def _is_minus_one(c: UOp) -> bool:
    return bool(not dtypes.is_bool(c.dtype) and c.arg == dtypes.as_const(-1, c.dtype))


def _minus_for_product(a: UOp, b: UOp, c: UOp) -> UOp | None:
    return a.alu(Ops.SUB, b) if _is_minus_one(c) else None


def _negative(x: UOp, c: UOp) -> UOp | None:
    return x.alu(Ops.NEG) if _is_minus_one(c) else None


def _quotient(a: UOp, b: UOp) -> UOp | None:
    """a * (1/b) as a/b, unless 1/b is computed less often than the product."""
    if b.op is Ops.VECTORIZE and all(s is b.src[0] for s in b.src):
        return None
    if a.dtype.count == 1 and any(r not in b.ranges for r in a.ranges):
        return None
    return a.alu(Ops.FDIV, b)


def emulated_types(target: Target) -> list[DType]:
    """The floats that are stored as bits and computed as float32."""
    return [d for d in _NARROW if d not in target.dtypes]
