"""Floats that a device cannot compute with: stored as their bits, computed in float32.

Every value of such a type becomes a float32, rounded where it is cast to the type or stored; what
is computed from such values in between keeps the float32's precision. Registers hold the float32;
global and local memory hold the bits in an unsigned integer.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from tgcore.dtype import AddrSpace, DType, PtrDType, dtypes
from tgcore.uop.node import UOp
from tgcore.uop.ops import GroupOp, Ops
from tgcore.uop.pattern import PatternMatcher, UPat

_STORAGE = {1: dtypes.uint8, 2: dtypes.uint16}


def storage_type(dtype: DType) -> DType:
    """The integer type that holds the bits."""
    return _STORAGE[dtype.scalar().itemsize].vec(dtype.count)


def computed_type(dtype: DType) -> DType:
    """The type that values are computed in."""
    return dtypes.float32.vec(dtype.count)


# *** conversions, by bits ***


def from_bits(bits: UOp, dtype: DType) -> UOp:
    """The float32 that these bits of a smaller type stand for; exact."""
    scalar, count = dtype.scalar(), bits.dtype.count
    wide = bits.cast(dtypes.uint32.vec(count))
    single = dtypes.float32.vec(count)
    if scalar is dtypes.bfloat16:
        return (wide << 16).bitcast(single)
    if scalar is dtypes.fp8e5m2:  # the upper half of a float16
        wide, scalar = wide << 8, dtypes.float16
    exponent_bits, mantissa_bits = dtypes.finfo(scalar)
    width = 1 + exponent_bits + mantissa_bits
    body = wide & ((1 << (width - 1)) - 1)
    sign = (wide & (1 << (width - 1))) << (32 - width)
    bias = (1 << (exponent_bits - 1)) - 1
    # the product moves the bias, and makes normal numbers of denormal ones
    value = (body << (23 - mantissa_bits)).bitcast(single) * 2.0 ** (127 - bias)
    if scalar is dtypes.fp8e4m3:
        special = body.alu(Ops.CMPNE, body.const_like(0x7F)).logical_not()
        value = special.where(value.const_like(math.nan), value)
    else:
        infinity = ((1 << exponent_bits) - 1) << mantissa_bits
        special = (body < infinity).logical_not()
        full = (body << (23 - mantissa_bits)) | 0x7F800000
        value = special.where(full.bitcast(single), value)
    return (value.bitcast(wide.dtype) | sign).bitcast(single)


def to_bits(value: UOp, dtype: DType) -> UOp:
    """The bits of a float32 rounded to a smaller type, to nearest even."""
    scalar, count = dtype.scalar(), value.dtype.count
    bits = value.bitcast(dtypes.uint32.vec(count))
    storage = storage_type(scalar).vec(count)
    body, sign = bits & 0x7FFFFFFF, bits & 0x80000000
    is_nan = bits.const_like(0x7F800000) < body
    if scalar is dtypes.bfloat16:
        rounded = (_round_off(bits, 16) >> 16).cast(storage)
        nan = ((bits >> 16) | 0x40).cast(storage)
        return is_nan.where(nan, rounded)
    exponent_bits, mantissa_bits = dtypes.finfo(scalar)
    width, bias = 1 + exponent_bits + mantissa_bits, (1 << (exponent_bits - 1)) - 1
    dropped = 23 - mantissa_bits
    normal = (_round_off(body, dropped) >> dropped) - ((127 - bias) << mantissa_bits)
    # below the normal numbers: an addition rounds off what is finer than the smallest one
    magic = 2.0 ** (1 - bias - mantissa_bits + 23)
    shifted = body.bitcast(value.dtype) + value.const_like(magic)
    denormal = shifted.bitcast(bits.dtype) - _magic_bits(magic)
    result = (body < (127 - bias + 1) << 23).where(denormal, normal)
    largest, beyond, nan_bits = _limits(scalar, exponent_bits, mantissa_bits)
    # compared after rounding: what rounds beyond the largest number is infinite (or nan)
    too_large = (body < (127 + bias + 2) << 23).logical_not() | (
        result.const_like(largest) < result
    )
    result = too_large.where(result.const_like(beyond), result)
    result = is_nan.where(result.const_like(nan_bits), result)
    return (result | (sign >> (32 - width))).cast(storage)


def _limits(scalar: DType, exponent_bits: int, mantissa_bits: int) -> tuple[int, int, int]:
    """Bits of: the largest finite number, what lies beyond, nan."""
    if scalar is dtypes.fp8e4m3:
        return 0x7E, 0x7F, 0x7F
    infinity = ((1 << exponent_bits) - 1) << mantissa_bits
    return infinity - 1, infinity, infinity | 1 << (mantissa_bits - 1)


def _magic_bits(value: float) -> int:
    mantissa, exponent = math.frexp(value)
    assert mantissa == 0.5
    return (exponent - 1 + 127) << 23


def _round_off(bits: UOp, count: int) -> UOp:
    """Bits rounded so that the low ones may be cut off: to nearest, ties to even."""
    last = (bits >> count) & 1
    return bits + ((1 << (count - 1)) - 1) + last


def to_odd_float32(value: UOp) -> UOp:
    """A float64 as a float32 whose last bit is set if anything was lost.

    Rounding that once more, to at most 21 bits, gives what one single rounding would have given.
    """
    count = value.dtype.count
    single = value.cast(dtypes.float32.vec(count))
    bits = single.bitcast(dtypes.uint32.vec(count))
    back = single.cast(value.dtype)
    lost = back.alu(Ops.CMPNE, value)
    finite = (bits & 0x7FFFFFFF) < 0x7F800000
    too_far = _size(value) < _size(back)
    toward_zero = too_far.where(bits - 1, bits)
    return (lost & finite).where(toward_zero | 1, bits).bitcast(single.dtype)


def _size(value: UOp) -> UOp:
    bits = value.bitcast(dtypes.uint64.vec(value.dtype.count))
    return (bits & ((1 << 63) - 1)).bitcast(value.dtype)


def _as_float32(value: UOp) -> UOp:
    """Any value as a float32 that can be rounded once more."""
    if value.dtype.scalar() is dtypes.float64:
        return to_odd_float32(value)
    if dtypes.is_int(value.dtype) and value.dtype.scalar().itemsize > 2:
        return to_odd_float32(value.cast(dtypes.float64.vec(value.dtype.count)))
    return value.cast(dtypes.float32.vec(value.dtype.count))


# *** the rules ***

_SAME_SHAPE = (*GroupOp.ALU, Ops.VECTORIZE, Ops.GEP, Ops.CAT, Ops.CONST, Ops.VCONST)


def pm_small_floats(emulated: Collection[DType]) -> PatternMatcher:
    """Rules that leave no value of the emulated types."""
    types = frozenset(emulated)

    def is_emulated(dtype: DType) -> bool:
        return dtype.scalar() in types

    def pointer(node: UOp) -> UOp | None:
        if not isinstance(node.dtype, PtrDType) or not is_emulated(node.dtype.base):
            return None
        in_register = node.dtype.addrspace is AddrSpace.REG
        base = (computed_type if in_register else storage_type)(node.dtype.base)
        tag = _mark(node.dtype.base) if node.op in GroupOp.Define else node.tag
        return node.replace(dtype=base.ptr(node.dtype.size, node.dtype.addrspace), tag=tag)

    def load(node: UOp) -> UOp | None:
        if not is_emulated(node.dtype):
            return None
        if node.src[0].dtype.addrspace is AddrSpace.REG:
            return node.replace(dtype=computed_type(node.dtype))
        others = tuple(to_bits(s, node.dtype) for s in node.src[1:])
        bits = UOp(Ops.LOAD, storage_type(node.dtype), (node.src[0], *others), node.arg, node.tag)
        return from_bits(bits, node.dtype).rtag(_mark(node.dtype))

    def store(node: UOp) -> UOp | None:
        address, value = node.src[:2]
        kind = _marked(address)
        if kind is None or address.dtype.addrspace is AddrSpace.REG:
            return None
        if value.dtype.scalar() is not dtypes.float32:
            return None
        return node.replace(src=(address, to_bits(value, kind), *node.src[2:]))

    def value(node: UOp) -> UOp | None:
        if isinstance(node.dtype, PtrDType) or not is_emulated(node.dtype):
            return None
        return node.replace(dtype=computed_type(node.dtype), tag=_mark(node.dtype))

    def cast(node: UOp) -> UOp | None:
        if not is_emulated(node.dtype):
            return node.src[0] if node.dtype is node.src[0].dtype else None
        rounded = to_bits(_as_float32(node.src[0]), node.dtype)
        return from_bits(rounded, node.dtype).rtag(_mark(node.dtype))

    def bitcast(node: UOp) -> UOp | None:
        source = node.src[0]
        if source.dtype.itemsize != node.dtype.itemsize:  # it was of an emulated type
            size = node.dtype.scalar().itemsize
            kind = _marked_value(source, [t for t in emulated if t.itemsize == size])
            return to_bits(source, kind).bitcast(node.dtype)
        if not is_emulated(node.dtype):
            return None
        bits = source.bitcast(storage_type(node.dtype))
        return from_bits(bits, node.dtype).rtag(_mark(node.dtype))

    return PatternMatcher(
        [
            (UPat((*GroupOp.Define, Ops.INDEX, Ops.AFTER), name="node"), pointer),
            (UPat(Ops.LOAD, name="node"), load),
            (UPat(Ops.STORE, name="node"), store),
            (UPat(Ops.CAST, name="node"), cast),
            (UPat(Ops.BITCAST, name="node"), bitcast),
            (UPat((*_SAME_SHAPE, Ops.AFTER), name="node"), value),
        ]
    )


def _mark(dtype: DType) -> tuple[str, str]:
    return ("stored", dtype.scalar().name)


def _marked_value(value: UOp, types: Collection[DType]) -> DType:
    """The emulated type that a float32 stands for, whose bits are asked for."""
    if isinstance(value.tag, tuple) and value.tag[:1] == ("stored",):
        return dtypes.from_name(value.tag[1])
    return next(iter(types))


def _marked(address: UOp) -> DType | None:
    """The emulated type whose bits lie at an address."""
    while address.op not in GroupOp.Define:
        address = address.src[0]
    tag = address.tag
    if isinstance(tag, tuple) and len(tag) == 2 and tag[0] == "stored":
        return dtypes.from_name(tag[1])
    return None
