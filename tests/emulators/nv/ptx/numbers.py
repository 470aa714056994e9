"""Arithmetic of PTX on arrays over threads, where it is more than one numpy call.

All of it takes arrays and scalars alike. Named without underscores: generated code calls these.
Minimum and maximum take -0.0 and +0.0 as equal (a GPU takes -0.0 as the smaller one).
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from .types import DTYPES

Values = Any  # an array over threads, or a scalar that all of them share

F32, F64 = np.dtype("f4"), np.dtype("f8")
U16, U32, U64, I32, I64 = (np.dtype(c) for c in ("u2", "u4", "u8", "i4", "i8"))
BF16 = np.dtype(ml_dtypes.bfloat16)
FP8 = {"e4m3": np.dtype(ml_dtypes.float8_e4m3fn), "e5m2": np.dtype(ml_dtypes.float8_e5m2)}
FP8_MAX = {"e4m3": 448.0, "e5m2": 57344.0}
SMALLEST_NORMAL = {"f8": 2.0**-1022, "f4": np.float32(2.0**-126), "f2": np.float16(2.0**-14)}


def select(p: Values, a: Values, b: Values) -> Values:
    """a where p, else b; stays a scalar where it can."""
    if p.ndim == 0:
        return a if p else b
    return np.where(p, a, b)


# --- floats


def narrow(x: Values, code: str, mode: str = "rn") -> Values:
    """A wider float to a narrower one, rounded once in the given direction."""
    target = DTYPES[code]
    near = x.astype(target)
    if mode == "rn":
        return near
    back = near.astype(x.dtype)
    zero, top, bottom = (target.type(x) for x in (0, np.inf, -np.inf))
    if mode == "rz":
        return np.where(np.abs(back) > np.abs(x), np.nextafter(near, zero), near)
    if mode == "rm":
        return np.where(back > x, np.nextafter(near, bottom), near)
    return np.where(back < x, np.nextafter(near, top), near)


def directed(operation: Any, code: str, mode: str, *args: Values) -> Values:
    """One operation in wider arithmetic, then rounded; exact unless the wide result was inexact."""
    wide = np.dtype("f8") if code in ("f2", "f4") else np.dtype(np.longdouble)
    return narrow(operation(*(a.astype(wide) for a in args)), code, mode)


def fma32(a: Values, b: Values, c: Values) -> Values:
    """The product is exact in float64; the sum is rounded there and once more to float32.

    The second rounding is wrong by one unit in the last place in about one of 2**29 cases.
    """
    return (np.multiply(a, b, dtype=F64) + c).astype(F32)


def fma16(a: Values, b: Values, c: Values) -> Values:
    return (np.multiply(a, b, dtype=F64) + c).astype(np.float16)


def _split(a: Values) -> tuple[Values, Values]:
    scaled = a * 134217729.0  # 2**27 + 1: Veltkamp's halves of a float64
    high = scaled - (scaled - a)
    return high, a - high


def fma64(a: Values, b: Values, c: Values) -> Values:
    """Product and sum as pairs of float64; the last bit may differ from a real fma."""
    product = a * b
    (ah, al), (bh, bl) = _split(a), _split(b)
    low = ((ah * bh - product) + ah * bl + al * bh) + al * bl
    total = product + c
    t = total - product
    rest = (product - (total - t)) + (c - t)
    exact = total + (low + rest)
    return np.where(np.isfinite(exact), exact, total)


def ftz(x: Values) -> Values:
    """Subnormal numbers become zero of the same sign."""
    return np.where(
        np.abs(x) < SMALLEST_NORMAL[x.dtype.str[1:]], np.copysign(x.dtype.type(0), x), x
    )


def saturate(x: Values) -> Values:
    """[0, 1], NaN to 0."""
    one = x.dtype.type(1)
    return np.fmin(np.fmax(x, x.dtype.type(0)), one)


def relu(x: Values) -> Values:
    """Negative numbers, -0.0 too, to +0; a NaN stays."""
    zero = x.dtype.type(0)
    return np.maximum(x, zero) + zero


def widen_bf16(x: Values) -> Values:
    """Bits of bfloat16 to float32."""
    return (x.astype(U32) << np.uint32(16)).view(F32)


def to_bf16(x: Values, mode: str = "rn") -> Values:
    """float32 or float64 to bits of bfloat16."""
    if x.dtype == F64:
        x = round_to_odd(x)
    if mode == "rz":
        cut = (x.view(U32) >> np.uint32(16)).astype(U16)
        return np.where(np.isnan(x), np.uint16(0x7FFF), cut)
    return np.asarray(x).astype(BF16).view(U16)[()]


def round_to_odd(x: Values) -> Values:
    """float64 to a float32 that rounds on to fewer bits as the float64 itself would."""
    cut = narrow(x, "f4", "rz")
    inexact = (cut.astype(F64) != x) & np.isfinite(x)
    return (cut.view(U32) | inexact.astype(U32)).view(F32)


def to_tf32(x: Values, mode: str) -> Values:
    """float32 to a float32 with 10 bits of mantissa; rna: to nearest, ties away from zero."""
    bits = x.view(U32)
    if mode == "rna":
        bits = bits + np.uint32(0x1000)
    elif mode == "rn":
        bits = bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
    return np.where(np.isfinite(x), bits & np.uint32(0xFFFFE000), x.view(U32))


def to_fp8(x: Values, name: str) -> Values:
    """float32 to bits of an 8-bit float, to nearest, too large ones to the largest finite."""
    limit = np.float32(FP8_MAX[name])
    return np.asarray(np.clip(x, -limit, limit)).astype(FP8[name]).view(np.uint8)[()]


def from_fp8(x: Values, name: str) -> Values:
    return np.asarray(x.astype(np.uint8)).view(FP8[name]).astype(F32)[()]


def halves(x: Values, code: str) -> tuple[Values, Values]:
    """The low and the high 16 bits of a 32-bit word."""
    low, high = x.astype(U16), (x >> np.uint32(16)).astype(U16)
    return low.view(DTYPES[code]), high.view(DTYPES[code])


def join(low: Values, high: Values) -> Values:
    """Two 16-bit values to a 32-bit word."""
    upper = high.view(U16).astype(U32) << np.uint32(16)
    return low.view(U16).astype(U32) | upper


def words(x: Values, code: str) -> tuple[Values, Values]:
    """The low and the high half of a 64-bit word."""
    low, high = x.astype(U32), (x >> np.uint64(32)).astype(U32)
    return low.view(DTYPES[code]), high.view(DTYPES[code])


def join_words(low: Values, high: Values) -> Values:
    return low.view(U32).astype(U64) | (high.view(U32).astype(U64) << np.uint64(32))


def to_integer(x: Values, code: str, mode: str) -> Values:
    """Float to integer: rounded, NaN to 0, too large ones to the nearest that there is."""
    rounded = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[mode](x)
    info = np.iinfo(code)
    wide = np.where(np.isnan(rounded), 0.0, rounded).astype(F64)
    if info.bits < 64:
        return np.clip(wide, info.min, info.max).astype(DTYPES[code])
    top = 2.0**63 if info.min < 0 else 2.0**64
    inside = np.clip(wide, float(info.min), np.nextafter(top, 0)).astype(DTYPES[code])
    return np.where(wide >= top, DTYPES[code].type(info.max), inside)


def saturate_integer(x: Values, code: str) -> Values:
    """An integer to a narrower or differently signed one, clamped."""
    info, source = np.iinfo(code), np.iinfo(x.dtype)
    low, high = max(info.min, source.min), min(info.max, source.max)
    return np.clip(x, x.dtype.type(low), x.dtype.type(high)).astype(DTYPES[code])


def integer_to_float(x: Values, code: str, mode: str) -> Values:
    if mode == "rn" or not mode:
        return x.astype(DTYPES[code])
    return narrow(x.astype(np.longdouble), code, mode)


# --- integers


def high_product(a: Values, b: Values) -> Values:
    """The upper half of a product of two integers of the same type."""
    size = a.dtype.itemsize
    if size < 8:
        wide = np.dtype(f"{a.dtype.kind}{size * 2}")
        return (a.astype(wide) * b.astype(wide) >> wide.type(size * 8)).astype(a.dtype)
    signed = a.dtype.kind == "i"
    ua, ub = a.view(U64), b.view(U64)
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    al, ah, bl, bh = ua & mask, ua >> half, ub & mask, ub >> half
    middle = ah * bl + (al * bl >> half)
    other = al * bh + (middle & mask)
    high = ah * bh + (middle >> half) + (other >> half)
    if signed:
        zero = np.uint64(0)
        high = high - np.where(a < 0, ub, zero) - np.where(b < 0, ua, zero)
    return high.view(a.dtype)


def quotient(a: Values, b: Values) -> Values:
    """Truncated; division by zero gives all ones, as the hardware does."""
    result = (a - np.fmod(a, b)) // b if a.dtype.kind == "i" else a // b
    return np.where(b == 0, ~(b ^ b), result)


def remainder(a: Values, b: Values) -> Values:
    return np.where(b == 0, a, np.fmod(a, b))


def add_saturated(a: Values, b: Values, sign: int) -> Values:
    wide = a.astype(I64) + b.astype(I64) * np.int64(sign)
    return saturate_integer(wide, "i4")


def leading_zeros(x: Values) -> Values:
    """Of an unsigned word of 32 or 64 bits, as uint32."""
    if x.dtype.itemsize == 4:
        return (np.int64(32) - np.frexp(x.astype(F64))[1]).astype(U32)
    low, high = words(x, "u4")
    return np.where(high != 0, leading_zeros(high), np.uint32(32) + leading_zeros(low))


def find_leading(x: Values, shift_amount: bool) -> Values:
    """bfind: the place of the highest bit that differs from the sign; all ones if none."""
    bits = x.dtype.itemsize * 8
    plain = np.where(x < 0, ~x, x) if x.dtype.kind == "i" else x
    zeros = leading_zeros(plain.view(np.dtype(f"u{x.dtype.itemsize}")))
    place = zeros if shift_amount else np.uint32(bits - 1) - zeros
    return np.where(zeros == bits, np.uint32(0xFFFFFFFF), place)


def reverse_bits(x: Values) -> Values:
    kind = x.dtype.type
    bits = x.dtype.itemsize * 8
    full = (1 << bits) - 1
    step = 1
    while step < bits:
        mask = kind(full // ((1 << step) + 1))  # 0101.., 0011.., 00001111..
        x = ((x >> kind(step)) & mask) | ((x & mask) << kind(step))
        step *= 2
    return x


def extract_field(a: Values, start: Values, length: Values) -> Values:
    """bfe: a field of bits, sign-extended for signed types."""
    kind, bits = a.dtype, a.dtype.itemsize * 8
    start, length = start & np.uint32(255), length & np.uint32(255)
    unsigned = np.dtype(f"u{kind.itemsize}")
    one = unsigned.type(1)
    mask = np.where(length >= bits, ~unsigned.type(0), (one << length.astype(unsigned)) - one)
    field = (a.view(unsigned) >> start.astype(unsigned)) & mask
    if kind.kind == "u":
        return field
    last = np.minimum(start + length - np.uint32(1), np.uint32(bits - 1)).astype(unsigned)
    negative = ((a.view(unsigned) >> last) & one).astype(np.bool_) & (length != 0)
    return np.where(negative, field | ~mask, field).view(kind)


def insert_field(a: Values, b: Values, start: Values, length: Values) -> Values:
    """bfi: the low bits of a into b."""
    unsigned, bits = b.dtype, b.dtype.itemsize * 8
    start, length = (start & np.uint32(255)).astype(unsigned), length & np.uint32(255)
    one = unsigned.type(1)
    mask = np.where(length >= bits, ~unsigned.type(0), (one << length.astype(unsigned)) - one)
    mask = mask << start
    return (b & ~mask) | ((a << start) & mask)


def make_mask(a: Values, b: Values, clamp: bool) -> Values:
    """bmsk: b ones from place a on."""
    if not clamp:
        a, b = a & np.uint32(31), b & np.uint32(31)
    one = np.uint64(1)
    a, b = np.minimum(a, 32).astype(U64), np.minimum(b, 32).astype(U64)
    return (((one << b) - one) << a).astype(U32)


def sign_extend_at(a: Values, bits: Values, clamp: bool) -> Values:
    """szext: the low bits of a as a number of their own."""
    bits = np.minimum(bits, np.uint32(32)) if clamp else bits & np.uint32(31)
    return extract_field(a, np.uint32(0) * bits, bits)


def funnel(a: Values, b: Values, c: Values, left: bool, wrap: bool) -> Values:
    """shf: 32 bits of the 64 that b and a make, shifted."""
    count = c & np.uint32(31) if wrap else np.minimum(c, np.uint32(32))
    both = (b.astype(U64) << np.uint64(32)) | a.astype(U64)
    moved = both << count.astype(U64) if left else both >> count.astype(U64)
    return (moved >> np.uint64(32)).astype(U32) if left else moved.astype(U32)


def lookup3(a: Values, b: Values, c: Values, table: int) -> Values:
    """lop3: any function of three bits."""
    found: Values = None
    for case in range(8):
        if table >> case & 1:
            term = (a if case & 4 else ~a) & (b if case & 2 else ~b) & (c if case & 1 else ~c)
            found = term if found is None else found | term
    return a ^ a if found is None else found


def _byte_of(pair: Values, place: Values) -> Values:
    return (pair >> (place.astype(U64) * np.uint64(8))) & np.uint64(0xFF)


def permute(a: Values, b: Values, selector: Values, mode: str) -> Values:
    """prmt: four of the eight bytes of a and b."""
    pair = a.astype(U64) | (b.astype(U64) << np.uint64(32))
    result: Values = np.uint64(0)
    for byte in range(4):
        if mode:
            step = selector & np.uint32(3)
            place = _permute_place(mode, step, byte)
            value = _byte_of(pair, place)
        else:
            nibble = (selector >> np.uint32(4 * byte)) & np.uint32(15)
            value = _byte_of(pair, nibble & np.uint32(7))
            sign = np.where(value & np.uint64(0x80), np.uint64(0xFF), np.uint64(0))
            value = np.where(nibble & np.uint32(8), sign, value)
        result = result | (value << np.uint64(8 * byte))
    return result.astype(U32)


def _permute_place(mode: str, step: Values, byte: int) -> Values:
    number = np.uint32(byte)
    if mode == "f4e":
        return step + number
    if mode == "b4e":
        return (step - number) & np.uint32(7)
    if mode == "rc8":
        return step
    if mode == "ecl":
        return np.maximum(step, number)
    if mode == "ecr":
        return np.minimum(step, number)
    return (step & np.uint32(1)) * np.uint32(2) + np.uint32(byte & 1)  # rc16


def dot(a: Values, b: Values, c: Values, signed_a: bool, signed_b: bool, parts: int) -> Values:
    """dp4a and dp2a: a's parts times the (low) bytes of b, added to c."""
    total = c.astype(I64)
    bits = 32 // parts
    for part in range(parts):
        x = _part(a, part * bits, bits, signed_a)
        total = total + x * _part(b, part * 8, 8, signed_b)
    return total.astype(U64).astype(U32).view(c.dtype)


def _part(x: Values, start: int, bits: int, signed: bool) -> Values:
    part = (x.view(U32) >> np.uint32(start)) & np.uint32((1 << bits) - 1)
    wide = part.astype(I64)
    if not signed:
        return wide
    return np.where(wide >= 1 << (bits - 1), wide - np.int64(1 << bits), wide)


def pack(values: tuple[Values, ...], size: int) -> Values:
    """Unsigned parts, the lowest first, to one word of so many bytes."""
    if size == 16:
        return pack128(values)
    word = np.dtype(f"u{size}")
    step = size * 8 // len(values)
    result: Values = values[0].astype(word)
    for number, value in enumerate(values[1:], 1):
        result = result | (value.astype(word) << word.type(step * number))
    return result


def unpack(value: Values, count: int) -> tuple[Values, ...]:
    """The unsigned parts of a word, the lowest first."""
    if value.dtype.names:
        return unpack128(value, count)
    size = value.dtype.itemsize // count
    part = np.dtype(f"u{size}")
    kind = value.dtype.type
    return tuple((value >> kind(size * 8 * k)).astype(part) for k in range(count))


def pack128(values: tuple[Values, ...]) -> Values:
    if len(values) > 2:
        half = len(values) // 2
        values = (pack(values[:half], 8), pack(values[half:], 8))
    shape = np.broadcast_shapes(*(np.shape(v) for v in values))
    result = np.empty(shape, DTYPES["q"])
    result["lo"], result["hi"] = values
    return result


def unpack128(value: Values, count: int) -> tuple[Values, ...]:
    low, high = value["lo"], value["hi"]
    if count == 2:
        return low, high
    return unpack(low, count // 2) + unpack(high, count // 2)


def test_property(x: Values, name: str) -> Values:
    """testp"""
    if name == "finite":
        return np.isfinite(x)
    if name == "infinite":
        return np.isinf(x)
    if name == "number":
        return ~np.isnan(x)
    if name == "notanumber":
        return np.isnan(x)
    normal = np.isfinite(x) & (np.abs(x) >= np.finfo(x.dtype).tiny)
    if name == "normal":
        return normal
    return np.isfinite(x) & ~normal
