"""EXP2, LOG2, SIN and POW in terms of arithmetic and bits, for devices that lack them.

All work on scalars and vectors alike. EXP2 and SIN look at their source, and are exact for the
forms in which the front end has exp and cos. Errors in units in the last place (ULP), measured by
tests over all exponents: EXP2, LOG2 and SIN at most 2, for float32 and float64; infinities, nan,
zeros and denormals are right. float16 is computed as float32. The polynomials are Chebyshev fits
made for this file, on the interval that the comment beside them names.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tgcore.dtype import DType, dtypes
from tgcore.uop.node import UOp
from tgcore.uop.ops import Ops


@dataclass(frozen=True)
class _Format:
    """A float type's bits, and the constants of each function in it."""

    int_type: DType
    uint_type: DType
    mantissa: int  # bits of it
    bias: int
    exp2: tuple[float, ...]  # (2**f - 1) / f on [-1/2, 1/2]
    sin: tuple[float, ...]  # (sin(r) / r - 1) / r**2 in powers of r**2, on [0, pi/4]
    cos: tuple[float, ...]  # (cos(r) - 1 + r**2 / 2) / r**4, likewise
    half_pi: tuple[float, float]  # a rounded value, and what is left
    ln2: tuple[float, float]  # a value of few bits, and what is left


_FLOAT32: Final = _Format(
    dtypes.int32,
    dtypes.uint32,
    23,
    127,
    (0.6931471880262288, 0.24022650760568126, 0.05550357114219078, 0.009618082557277852,
     0.0013390863364671234, 0.0001545316294512069),
    (-0.1666666666385529, 0.008333331874710208, -0.00019840086735384846, 2.724992580305979e-06),
    (0.0416666666643212, -0.001388888767201679, 2.480060037715673e-05, -2.730095920390147e-07),
    (1.5707963705062866, -4.371138828673793e-08),
    (0.693359375, -0.00021219444005469057),
)  # fmt: skip

_FLOAT64: Final = _Format(
    dtypes.int64,
    dtypes.uint64,
    52,
    1023,
    (0.6931471805599453, 0.24022650695910072, 0.055504108664821625, 0.00961812910762848,
     0.001333355814640647, 0.00015403530393370734, 1.5252733841556773e-05, 1.3215486808705563e-06,
     1.0178057087733941e-07, 7.0548973041554995e-09, 4.4558179083360645e-10,
     2.5729324177362305e-11),
    (-0.16666666666666666, 0.008333333333330948, -0.00019841269836758574, 2.755731610255244e-06,
     -2.5051131845003624e-08, 1.5918129294866608e-10),
    (0.041666666666666664, -0.0013888888888887398, 2.480158729876569e-05, -2.7557317271729793e-07,
     2.08761462684032e-09, -1.1382632425521717e-11),
    (1.5707963267948966, 6.123233995736766e-17),
    (0.6931471803691238, 1.9082149292705877e-10),
)  # fmt: skip

_LOG2_E: Final = math.log2(math.e)
_FORMATS: Final = {dtypes.float32: _FLOAT32, dtypes.float64: _FLOAT64}

# log2(1 + f) = f * L + f**2 * (this polynomial), on [sqrt(1/2) - 1, sqrt(2) - 1]
_LOG2_FLOAT32: Final = (
    *(-0.7213474865378442, 0.4808982992822264, -0.36068503113027606, 0.28855681768676966),
    *(-0.2398717919576035, 0.20493275239316275, -0.1893905943710658, 0.18354936938116376),
    -0.11070724540024855,
)
_LOG2_E_FLOAT32: Final = (1.4426950216293335, 1.925963033500011e-08)
# (ln((1+s)/(1-s)) / s - 2) / s**2 in powers of s**2, for |s| <= (sqrt(2)-1) / (sqrt(2)+1)
_ATANH_FLOAT64: Final = (
    *(0.6666666666666666, 0.4000000000000088, 0.28571428570803614, 0.22222222391713917),
    *(0.18181795640132906, 0.15386239702814658, 0.13268773138656886, 0.13086626147840102),
)
_LOG2_E_FLOAT64: Final = (1.4426946640014648, 3.7688749856360991e-07)

# the bits of 2 / pi, behind 64 zeros
_TWO_OVER_PI: Final = (
    *(0, 0, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041),
    *(0xFE5163AB, 0xDEBBC561, 0xB7246E3A, 0x424DD2E0, 0x06492EEA, 0x09D1921C, 0xFE1DEB1C),
    *(0xB129A73E, 0xE88235F5, 0x2EBB4484, 0xE99C7026, 0xB45F7E41, 0x3991D639, 0x835339F4),
    *(0x9C845F8B, 0xBDF9283B, 0x1FF897FF, 0xDE05980F, 0xEF2F118B, 0x5A0A6D1F, 0x6D367ECF),
    *(0x27CB09B7, 0x4F463F66, 0x9E5FEA2D, 0x7527BAC7, 0xEBE5F17B, 0x3D0739F7, 0x8A5292EA),
    *(0x6BFB5FB1, 0x1F8D5D08, 0x56033046, 0xFC7B6BAB, 0xF0CFBC20, 0x9AF4361D),
)


def _like(dtype: DType, node: UOp) -> DType:
    """The scalar type with as many lanes as the node."""
    return dtype.vec(node.dtype.count)


def _format(node: UOp) -> _Format:
    return _FORMATS[node.dtype.scalar()]


def _int_bits(x: UOp) -> UOp:
    return x.bitcast(_like(_format(x).int_type, x))


def _uint_bits(x: UOp) -> UOp:
    return x.bitcast(_like(_format(x).uint_type, x))


def polynomial(x: UOp, coefficients: Sequence[float]) -> UOp:
    """The polynomial with these coefficients, lowest degree first, by Horner's scheme."""
    result = x.const_like(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = result * x + x.const_like(coefficient)
    return result


def _at_most(x: UOp, limit: float) -> UOp:
    return (x.const_like(limit) < x).where(x.const_like(limit), x)  # keeps nan


def _at_least(x: UOp, limit: float) -> UOp:
    return (x < x.const_like(limit)).where(x.const_like(limit), x)


def is_nan(x: UOp) -> UOp:
    """Where x is not a number."""
    return x.alu(Ops.CMPNE, x)


def absolute(x: UOp) -> UOp:
    """|x|, by its bits."""
    width = x.dtype.scalar().itemsize * 8
    bits = _uint_bits(x)
    return (bits & bits.const_like((1 << (width - 1)) - 1)).bitcast(x.dtype)


def _round(x: UOp) -> tuple[UOp, UOp]:
    """x rounded to an integer, as a float and in the low bits of an int; |x| < 2**(mantissa - 2).

    Adding 1.5 * 2**mantissa leaves no room for a fraction.
    """
    kind = _format(x)
    magic = 1.5 * 2.0**kind.mantissa
    shifted = x + x.const_like(magic)
    return shifted + x.const_like(-magic), _int_bits(shifted)


# *** exponential ***


def exp2(x: UOp) -> UOp:
    """2 to the x. Of y * log2(e) or its negative it is e to the y, to the last bit or two: what the
    product loses by rounding is made up for."""
    kind = _format(x)
    # beyond these all results are zero or infinite
    highest, lowest = kind.bias + 2.0, -kind.bias - kind.mantissa - 2.0
    natural = _natural_exponent(x)
    if natural is None:
        bounded = _at_least(_at_most(x, highest), lowest)
        whole, bits = _round(bounded)
        return _exp2_of(bounded - whole, bits)
    y, sign = natural
    limits = sorted((sign * highest * math.log(2), sign * lowest * math.log(2)))
    bounded = _at_least(_at_most(y, limits[1]), limits[0])
    whole, bits = _round(bounded * (sign * _LOG2_E))
    # whole * first is exact (Cody and Waite, "Software manual for the elementary functions", 1980)
    first, second = (-sign * part for part in kind.ln2)
    rest = bounded + whole * first + whole * second
    return _exp2_of(rest * (sign * _LOG2_E), bits)


def _natural_exponent(x: UOp) -> tuple[UOp, int] | None:
    """(y, s) if x is s * y * log2(e), s being 1 or -1."""
    if x.op is not Ops.MUL:
        return None
    for y, factor in (x.src, x.src[::-1]):
        for sign in (1, -1):
            if _is_constant(factor, sign * _LOG2_E):
                return y, sign
    return None


def _is_constant(x: UOp, value: float) -> bool:
    """Whether x is the value, as its type has it, in all lanes."""
    return x is x.const_like(value) or (
        x.op is Ops.VECTORIZE and all(_is_constant(lane, value) for lane in x.src)
    )


def _exp2_of(fraction: UOp, bits: UOp) -> UOp:
    """2 to the (fraction + the integer in the low bits), |fraction| <= 1/2."""
    kind = _format(fraction)
    power = fraction * polynomial(fraction, kind.exp2) + fraction.const_like(1.0)
    # 2**n in two factors, because n may lie outside the exponents of normal numbers
    exponent_bits = kind.int_type.itemsize * 8 - 1 - kind.mantissa
    unused = bits.const_like(kind.int_type.itemsize * 8 - exponent_bits - 2)
    number = bits.alu(Ops.SHL, unused).alu(Ops.SHR, unused)
    half = number.alu(Ops.SHR, number.const_like(1))
    rest = number - half
    return power * _power_of_two(half, fraction.dtype) * _power_of_two(rest, fraction.dtype)


def _power_of_two(number: UOp, dtype: DType) -> UOp:
    kind = _FORMATS[dtype.scalar()]
    biased = number + number.const_like(kind.bias)
    return biased.alu(Ops.SHL, biased.const_like(kind.mantissa)).bitcast(dtype)


# *** logarithm ***


def log2(x: UOp) -> UOp:
    """The logarithm to base 2."""
    exponent, reduced = _split(x)
    if x.dtype.scalar() is dtypes.float32:
        result = exponent + _log2_near_one(reduced)
    else:
        high, low = _log2_pair(exponent, reduced)
        result = high + low
    return _log2_limits(x, result)


def _log2_limits(x: UOp, result: UOp) -> UOp:
    zero, infinity = x.const_like(0.0), x.const_like(math.inf)
    not_positive = (x < zero).where(x.const_like(math.nan), x.const_like(-math.inf))
    return (x < infinity).where((zero < x).where(result, not_positive), x)


def _split(x: UOp) -> tuple[UOp, UOp]:
    """(e, f) with x = 2**e * (1 + f) and 1 + f between sqrt(1/2) and sqrt(2)."""
    kind = _format(x)
    smallest_normal = 2.0 ** (1 - kind.bias)
    is_denormal = x < x.const_like(smallest_normal)
    scale = 2.0 ** (kind.mantissa + 1)
    bits = _int_bits(is_denormal.where(x * x.const_like(scale), x))
    root = _bits_of(math.sqrt(0.5), kind)
    # the exponent grows by one as the mantissa passes sqrt(1/2)
    number = (bits - bits.const_like(root)).alu(Ops.SHR, bits.const_like(kind.mantissa))
    mantissa = bits - number.alu(Ops.SHL, number.const_like(kind.mantissa))
    reduced = mantissa.bitcast(x.dtype) - x.const_like(1.0)
    offset = is_denormal.where(x.const_like(-float(kind.mantissa + 1)), x.const_like(0.0))
    return number.cast(x.dtype) + offset, reduced


def _bits_of(value: float, kind: _Format) -> int:
    mantissa, exponent = math.frexp(value)  # value = mantissa * 2**exponent, mantissa >= 1/2
    fraction = int((mantissa * 2 - 1) * 2**kind.mantissa)
    return (exponent - 1 + kind.bias) << kind.mantissa | fraction


def _log2_near_one(f: UOp) -> UOp:
    high, low = _LOG2_E_FLOAT32
    rest = f * polynomial(f, _LOG2_FLOAT32) + f.const_like(low)
    return f * f.const_like(high) + f * rest


def _log2_pair(exponent: UOp, f: UOp) -> tuple[UOp, UOp]:
    """log2 of a float64 as a sum of two, so that the sum has more bits than one.

    With s = f / (2 + f), ln(1 + f) = f - f*f/2 + s * (f*f/2 + R(s*s)): the terms that are large are
    exact. Their leading bits times the leading bits of 1/ln(2) are exact as well.
    """
    s = f.alu(Ops.FDIV, f + f.const_like(2.0))
    square = s * s
    half_square = f * f * f.const_like(0.5)
    rest = s * (half_square + square * polynomial(square, _ATANH_FLOAT64))
    high = _leading(f - half_square, 32)
    low = (f - high) - half_square + rest
    log_high, log_low = _LOG2_E_FLOAT64
    product = high * f.const_like(log_high)
    remainder = (low + high) * f.const_like(log_low) + low * f.const_like(log_high)
    total = exponent + product
    return total, remainder + ((exponent - total) + product)


def _leading(x: UOp, cleared: int) -> UOp:
    """x with so many low bits cleared."""
    bits = _uint_bits(x)
    mask = (1 << (x.dtype.scalar().itemsize * 8)) - (1 << cleared)
    return (bits & bits.const_like(mask)).bitcast(x.dtype)


# *** sine ***


def sin(x: UOp) -> UOp:
    """The sine, for arguments of any size (reduced by Payne and Hanek's method). Of pi/2 - y it is
    the cosine of y: the subtraction, which would lose bits, is not done."""
    kind = _format(x)
    complement = _complement(x)
    angle = x if complement is None else complement
    size = absolute(angle)
    quadrant, remainder = _reduce(size)
    is_small = size < size.const_like(0.75)  # less than pi / 4
    remainder = is_small.where(size, remainder)
    quadrant = is_small.where(quadrant.const_like(0), quadrant)
    square = remainder * remainder
    sine = remainder + remainder * (square * polynomial(square, kind.sin))
    half = square * square.const_like(-0.5) + square.const_like(1.0)
    cosine = half + square * square * polynomial(square, kind.cos)
    one = quadrant.const_like(1)
    if complement is not None:
        quadrant = quadrant + one
    is_odd = (quadrant & one).alu(Ops.CMPNE, quadrant.const_like(0))
    value = is_odd.where(cosine, sine)
    # the second half of a turn, and negative arguments, turn the sign
    width = kind.int_type.itemsize * 8
    second_half = quadrant.alu(Ops.SHR, one).cast(_like(kind.uint_type, x))
    turn = second_half.alu(Ops.SHL, second_half.const_like(width - 1))
    signed = _uint_bits(value) ^ turn
    if complement is None:
        signed = signed ^ (_uint_bits(x) & turn.const_like(1 << (width - 1)))
    is_finite = size < size.const_like(math.inf)
    return is_finite.where(signed.bitcast(x.dtype), x.const_like(math.nan))


def _complement(x: UOp) -> UOp | None:
    """y if x is pi/2 - y, in any of the forms that this can have by now."""
    if x.op is Ops.SUB and _is_constant(x.src[0], math.pi / 2):
        return x.src[1]
    if x.op is Ops.MULACC and _is_constant(x.src[2], math.pi / 2):
        return _negated(UOp(Ops.MUL, x.dtype, x.src[:2]))
    if x.op is Ops.ADD:
        for one, other in (x.src, x.src[::-1]):
            if _is_constant(one, math.pi / 2):
                return _negated(other)
    return None


def _negated(x: UOp) -> UOp | None:
    """y if x is -y."""
    if x.op is Ops.NEG:
        return x.src[0]
    if x.op is Ops.MUL:
        for one, other in (x.src, x.src[::-1]):
            if _is_constant(one, -1.0):
                return other
    return None


def _reduce(size: UOp) -> tuple[UOp, UOp]:
    """(q, r): size = (4n + q) * pi/2 + r with |r| <= pi/4, for size >= 1/2.

    size is an integer M times 2**E. 2**E * 2/pi modulo 4 is a window of the bits of 2/pi; M times
    that window is what counts: two bits of quadrant, then the fraction.
    """
    kind = _format(size)
    bits = _uint_bits(size)
    exponent = bits.alu(Ops.SHR, bits.const_like(kind.mantissa))
    # where in the bits the window begins: 64 zeros stand before them
    begin = exponent - exponent.const_like(kind.bias + kind.mantissa - 62)
    whole = (bits & bits.const_like((1 << kind.mantissa) - 1)) | bits.const_like(1 << kind.mantissa)
    wide = _like(dtypes.uint64, size)
    word = begin.alu(Ops.SHR, begin.const_like(5)).cast(wide)
    shift = (begin & begin.const_like(31)).cast(wide)
    if kind is _FLOAT32:
        window = _window(word, shift, 3, 6)
        high = _multiply_short(whole.cast(wide), window)
        low = high.const_like(0)
    else:
        high, low = _multiply_long(whole, _window(word, shift, 6, 33))
    return _fraction(high, low, size.dtype)


def _window(word: UOp, shift: UOp, count: int, positions: int) -> list[UOp]:
    """`count` words of 2/pi from bit 32 * word + shift on; word < positions."""
    words: list[UOp] = [word.const_like(w) for w in _TWO_OVER_PI[: positions + count]]
    for level in reversed(range((positions - 1).bit_length())):
        step = 1 << level
        is_set = (word & word.const_like(step)).alu(Ops.CMPNE, word.const_like(0))
        length = step + count
        words = [
            is_set.where(words[n + step], words[n]) if n + step < len(words) else words[n]
            for n in range(min(length, len(words)))
        ]
    thirty_two = shift.const_like(32)
    pairs = [words[n].alu(Ops.SHL, thirty_two) | words[n + 1] for n in range(count)]
    return [p.alu(Ops.SHL, shift).alu(Ops.SHR, thirty_two) for p in pairs]


def _multiply_short(factor: UOp, words: list[UOp]) -> UOp:
    """The top 64 of 96 bits of factor * words, without what lies above them; factor < 2**24."""
    thirty_two = factor.const_like(32)
    first, second, third = (factor * w for w in words)
    return first.alu(Ops.SHL, thirty_two) + second + third.alu(Ops.SHR, thirty_two)


def _multiply_long(factor: UOp, words: list[UOp]) -> tuple[UOp, UOp]:
    """The top 128 of 192 bits, likewise; factor < 2**53."""
    thirty_two, mask = factor.const_like(32), factor.const_like(0xFFFFFFFF)
    zero = factor.const_like(0)
    low_products = [(factor & mask) * w for w in words]
    high_factor = factor.alu(Ops.SHR, thirty_two)
    high_products = [high_factor * w for w in words] + [zero, zero]
    low_products.append(zero)
    carry, digits = zero, []
    for column in reversed(range(len(words))):
        total = (
            carry
            + (low_products[column] & mask)
            + low_products[column + 1].alu(Ops.SHR, thirty_two)
            + (high_products[column + 1] & mask)
            + high_products[column + 2].alu(Ops.SHR, thirty_two)
        )
        digits.append(total & mask)
        carry = total.alu(Ops.SHR, thirty_two)
    digits.reverse()
    high = digits[0].alu(Ops.SHL, thirty_two) | digits[1]
    low = digits[2].alu(Ops.SHL, thirty_two) | digits[3]
    return high, low


def _fraction(high: UOp, low: UOp, dtype: DType) -> tuple[UOp, UOp]:
    """Quadrant and remaining angle of a fixed-point number with two bits before the point."""
    one = high.const_like(1)
    nearest = high.alu(Ops.SHR, high.const_like(61)) + one
    quadrant = nearest.alu(Ops.SHR, one) & high.const_like(3)
    two, sixty_two = high.const_like(2), high.const_like(62)
    top = high.alu(Ops.SHL, two) | low.alu(Ops.SHR, sixty_two)
    bottom = low.alu(Ops.SHL, two)
    # the fraction lies in [-1/2, 1/2): its size, and the sign apart
    is_negative = top.alu(Ops.SHR, high.const_like(63)).alu(Ops.CMPNE, high.const_like(0))
    ones = high.const_like((1 << 64) - 1)
    top = is_negative.where(top ^ ones, top)
    bottom = is_negative.where(bottom ^ ones, bottom)
    angle = _angle(top, bottom, dtype)
    int_type = _FORMATS[dtype.scalar()].int_type.vec(dtype.count)
    return quadrant.cast(int_type), is_negative.where(-angle, angle)


def _angle(top: UOp, bottom: UOp, dtype: DType) -> UOp:
    """The 128-bit fraction of a quarter turn as an angle, rounded once or little more."""
    kind = _FORMATS[dtype.scalar()]
    if kind is _FLOAT32:
        high = _piece(top, 39, 24, dtype)
        low = _piece(top, 15, 24, dtype) * 2.0**-24 + _piece(top, 0, 15, dtype) * 2.0**-39
        unit = 2.0 ** (39 - 64)
    else:
        high = _piece(top, 32, 31, dtype) * 2.0**32 + _piece(top, 11, 21, dtype) * 2.0**11
        low = _piece(top, 0, 11, dtype) + (
            _piece(bottom, 32, 32, dtype) * 2.0**-32 + _piece(bottom, 0, 32, dtype) * 2.0**-64
        )
        unit = 2.0**-64
    scale, rest = (part * unit for part in kind.half_pi)
    return high * scale + (high * rest + low * scale)


def _piece(word: UOp, begin: int, count: int, dtype: DType) -> UOp:
    """Some bits of a word as a float, exactly."""
    bits = word.alu(Ops.SHR, word.const_like(begin)) & word.const_like((1 << count) - 1)
    narrow = dtypes.int32 if count < 32 else dtypes.int64
    return bits.cast(narrow.vec(dtype.count)).cast(dtype)


# *** power ***


def power(x: UOp, y: UOp, wider: DType | None) -> UOp:
    """x to the y, as IEEE 754 says of zeros, infinities and nan.

    `wider` is a type with at least twice the bits, if there is one: then the result is within
    1 ULP. Else the logarithm is carried as a sum of two floats: within 2 ULP (float32: 3) while
    the result's exponent is small, and up to 8 bits less exact as it nears its limits.
    """
    size = absolute(x)
    if wider is not None:
        wide = wider.vec(x.dtype.count)
        magnitude = exp2(y.cast(wide) * log2(size.cast(wide))).cast(x.dtype)
    else:
        magnitude = _power_of_size(size, y)
    return _power_limits(x, y, size, magnitude)


def _power_limits(x: UOp, y: UOp, size: UOp, magnitude: UOp) -> UOp:
    zero, one, nan = x.const_like(0.0), x.const_like(1.0), x.const_like(math.nan)
    is_whole = y.alu(Ops.TRUNC).alu(Ops.CMPNE, y).logical_not()
    half = y * 0.5
    is_odd = is_whole & half.alu(Ops.TRUNC).alu(Ops.CMPNE, half)
    infinite = size.alu(Ops.CMPNE, size.const_like(math.inf)).logical_not()
    needs_whole = (x < zero) & infinite.logical_not()
    result = (needs_whole & is_whole.logical_not()).where(nan, magnitude)
    kind = _format(x)
    sign = _uint_bits(x) & _uint_bits(x).const_like(1 << (kind.int_type.itemsize * 8 - 1))
    flipped = (_uint_bits(result) ^ sign).bitcast(x.dtype)
    result = is_odd.where(flipped, result)
    # 1**y and x**0 are 1 even for nan; (-1)**inf is 1
    endless = absolute(y).alu(Ops.CMPNE, y.const_like(math.inf)).logical_not()
    is_one = x.alu(Ops.CMPNE, one).logical_not()
    turns = size.alu(Ops.CMPNE, one).logical_not() & endless
    is_zero = y.alu(Ops.CMPNE, zero).logical_not()
    return (is_one | turns | is_zero).where(one, result)


def _power_of_size(size: UOp, y: UOp) -> UOp:
    """size**y for size >= 0, without a wider type."""
    if size.dtype.scalar() is dtypes.float32:
        high, low = _log2_pair_float32(*_split(size))
        cleared = 12
    else:
        high, low = _log2_pair(*_split(size))
        cleared = 27
    first = _leading(high + low, cleared)
    second = (high - first) + low
    y_first = _leading(y, cleared)
    product = y_first * first  # exact: half the bits each
    rest = (y - y_first) * first + y * second
    kind = _format(size)
    limit = kind.bias + kind.mantissa + 2.0
    total = product + rest
    whole, bits = _round(_at_least(_at_most(total, limit), -limit))
    result = _exp2_of((product - whole) + rest, bits)
    # where nothing but the size of the exponent counts
    rough = y * _log2_limits(size, high + low)
    beyond = (absolute(rough) < rough.const_like(limit)).logical_not()
    extreme = is_nan(rough).where(rough, (rough < 0.0).where(rough.const_like(0.0), math.inf))
    return beyond.where(extreme, result)


def _log2_pair_float32(exponent: UOp, f: UOp) -> tuple[UOp, UOp]:
    """log2 of a float32 as a sum of two."""
    log_high, log_low = 1.442626953125, 6.808776379330084e-05
    high = _leading(f, 12)
    rest = f - high
    product = high * f.const_like(log_high)  # exact
    small = f * f.const_like(log_low) + rest * f.const_like(log_high)
    small = small + f * f * polynomial(f, _LOG2_FLOAT32)
    total = exponent + product
    return total, ((exponent - total) + product) + small


def integer_power(x: UOp, y: UOp) -> UOp:
    """x to the y of integers, wrapping around; 0 for negative y (as 1 / x**-y is, mostly)."""
    result = x.const_like(1)
    base = x
    # only the bits that matter: x ** (2**k) wraps to 0 or 1 for large k, but costs little
    bits = max(int(y.vmax), 1).bit_length()
    for bit in range(bits):
        mask = y.const_like(1 << bit)
        is_set = (y & mask).alu(Ops.CMPNE, y.const_like(0))
        result = is_set.where(result * base, result)
        if bit + 1 < bits:
            base = base * base
    if y.vmin >= 0:
        return result
    return (y < y.const_like(0)).where(_inverse_power(x, y), result)


def _inverse_power(x: UOp, y: UOp) -> UOp:
    """x**y for y < 0, towards zero: 1 for 1, -1 or 1 for -1, else 0."""
    zero, one = x.const_like(0), x.const_like(1)
    is_odd = (y & y.const_like(1)).alu(Ops.CMPNE, y.const_like(0))
    minus = is_odd.where(x.const_like(-1), one)
    is_one = x.alu(Ops.CMPNE, one).logical_not()
    is_minus_one = x.alu(Ops.CMPNE, x.const_like(-1)).logical_not()
    return is_one.where(one, is_minus_one.where(minus, zero))
