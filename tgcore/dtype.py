"""Data types: scalars, vectors of them, pointers to them, and how they promote.

The lattice of promotion is the one that JAX documents ("JAX type promotion semantics").
"""

from __future__ import annotations

import functools
import math
import struct
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, ClassVar, Final

from tgcore.errors import DTypeError


class AddrSpace(Enum):
    """Where memory lies: the device's, a work group's, or a work item's registers."""

    GLOBAL = auto()
    LOCAL = auto()
    REG = auto()

    def __repr__(self) -> str:
        return str(self)


class InvalidType:
    """The index that may not be used; there is one, `Invalid`, equal only to itself."""

    _instance: ClassVar[InvalidType | None] = None

    def __new__(cls) -> InvalidType:
        if cls._instance is None:
            cls._instance = object.__new__(cls)
        return cls._instance

    def __lt__(self, other: object) -> bool:
        return self is not other

    def __gt__(self, other: object) -> bool:
        return False

    def __repr__(self) -> str:
        return "Invalid"

    def __reduce__(self) -> tuple[type[InvalidType], tuple[()]]:
        return (InvalidType, ())


Invalid: Final = InvalidType()


class _NegativeZero(float):
    """-0.0 as a constant: Python holds it equal to 0.0, a compiler must not."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _NegativeZero)

    def __ne__(self, other: object) -> bool:
        return not isinstance(other, _NegativeZero)

    def __hash__(self) -> int:
        return hash("-0.0")

    def __reduce__(self) -> tuple[Any, ...]:
        return (_NegativeZero, (-0.0,))


_NEGATIVE_ZERO: Final = _NegativeZero(-0.0)


@dataclass(frozen=True, eq=False)
class DType:
    """A data type: a scalar, or (count > 1) a vector of scalars. Equal types are one object."""

    priority: int
    itemsize: int
    name: str
    fmt: str | None
    count: int = 1
    _scalar: DType | None = None

    def __repr__(self) -> str:
        return f"dtypes.{self.scalar().name}" + (f".vec({self.count})" if self.count > 1 else "")

    def __lt__(self, other: DType) -> bool:
        return self._order() < other._order()

    def _order(self) -> tuple[Any, ...]:
        return (self.priority, self.itemsize, self.name, self.count)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._scalar is not None:
            return (_vector_of, (self._scalar, self.count))
        return (getattr, (dtypes, self.name))

    @property
    def base(self) -> DType:
        """What a pointer points to; of anything else, the type itself."""
        return self

    def scalar(self) -> DType:
        """The type of one lane."""
        return self if self._scalar is None else self._scalar

    def vec(self, count: int) -> DType:
        """The vector type of so many lanes; the type itself for one lane."""
        if self.count != 1:
            raise DTypeError(f"{self} is a vector already: no vector of {count} of it")
        return self if count == 1 or self is dtypes.void else _vector_of(self, count)

    def ptr(self, size: int = -1, addrspace: AddrSpace = AddrSpace.GLOBAL) -> PtrDType:
        """A pointer to `size` of these."""
        return _pointer_to(self, size, addrspace)

    @property
    def bitsize(self) -> int:
        """Bits in one element; 1 for bool."""
        return 1 if self.scalar() is dtypes.bool else self.itemsize * 8


@dataclass(frozen=True, eq=False)
class PtrDType(DType):
    """A pointer: what it points to, how many of these, in which address space."""

    _base: DType | None = None
    size: int = -1
    addrspace: AddrSpace = AddrSpace.GLOBAL

    @property
    def base(self) -> DType:
        assert self._base is not None
        return self._base

    def __repr__(self) -> str:
        space = "" if self.addrspace is AddrSpace.GLOBAL else f", {self.addrspace}"
        return f"{self.base!r}.ptr({self.size}{space})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_pointer_to, (self.base, self.size, self.addrspace))

    def vec(self, count: int) -> DType:
        if count != 1:
            raise DTypeError("there are no vectors of pointers")
        return self


@functools.cache
def _vector_of(scalar: DType, count: int) -> DType:
    return DType(
        scalar.priority, scalar.itemsize * count, f"{scalar.name}{count}", None, count, scalar
    )


@functools.cache
def _pointer_to(base: DType, size: int, addrspace: AddrSpace) -> PtrDType:
    return PtrDType(
        base.priority, base.itemsize, f"{base.name}*", None, 1, None, base, size, addrspace
    )


class dtypes:
    """All data types, and questions about them."""

    void: Final = DType(-1, 0, "void", None)
    index: Final = DType(-1, 8, "index", None)
    bool: Final = DType(0, 1, "bool", "?")
    int8: Final = DType(1, 1, "int8", "b")
    uint8: Final = DType(2, 1, "uint8", "B")
    int16: Final = DType(3, 2, "int16", "h")
    uint16: Final = DType(4, 2, "uint16", "H")
    int32: Final = DType(5, 4, "int32", "i")
    uint32: Final = DType(6, 4, "uint32", "I")
    int64: Final = DType(7, 8, "int64", "q")
    uint64: Final = DType(8, 8, "uint64", "Q")
    fp8e4m3: Final = DType(9, 1, "fp8e4m3", None)
    fp8e5m2: Final = DType(10, 1, "fp8e5m2", None)
    float16: Final = DType(11, 2, "float16", "e")
    bfloat16: Final = DType(12, 2, "bfloat16", None)
    float32: Final = DType(13, 4, "float32", "f")
    float64: Final = DType(14, 8, "float64", "d")

    half: Final = float16
    float: Final = float32
    double: Final = float64
    char: Final = int8
    uchar: Final = uint8
    short: Final = int16
    ushort: Final = uint16
    int: Final = int32
    uint: Final = uint32
    long: Final = int64
    ulong: Final = uint64

    fp8s: Final = (fp8e4m3, fp8e5m2)
    floats: Final = (fp8e4m3, fp8e5m2, float16, bfloat16, float32, float64)
    uints: Final = (uint8, uint16, uint32, uint64)
    sints: Final = (int8, int16, int32, int64)
    ints: Final = (*uints, *sints)
    all: Final = (bool, *ints, *floats)

    default_float: ClassVar[DType] = float32
    default_int: ClassVar[DType] = int32

    @staticmethod
    def is_float(dtype: DType) -> _bool:
        """Whether the type (or its lanes) is a float."""
        return dtype.scalar() in dtypes.floats

    @staticmethod
    def is_int(dtype: DType) -> _bool:
        """Whether the type (or its lanes) is an integer; the index type is one, bool is none."""
        return dtype.scalar() in dtypes.ints or dtype.scalar() is dtypes.index

    @staticmethod
    def is_unsigned(dtype: DType) -> _bool:
        """Whether the type (or its lanes) is an unsigned integer."""
        return dtype.scalar() in dtypes.uints

    @staticmethod
    def is_bool(dtype: DType) -> _bool:
        """Whether the type (or its lanes) is bool."""
        return dtype.scalar() is dtypes.bool

    @staticmethod
    def from_name(name: str) -> DType:
        """The type with that name, e.g. `float32`, `half`, `bfloat16`."""
        found = getattr(dtypes, name.lower(), None)
        if not isinstance(found, DType):
            raise DTypeError(f"no data type {name!r}; there are: {[d.name for d in dtypes.all]}")
        return found

    @staticmethod
    def min(dtype: DType) -> Any:
        """The least value: minus infinity for floats that have one."""
        if dtypes.is_int(dtype):
            return 0 if dtypes.is_unsigned(dtype) else -(1 << (dtype.scalar().itemsize * 8 - 1))
        if dtype.scalar() is dtypes.fp8e4m3:
            return -_greatest_finite(dtypes.fp8e4m3)
        return -math.inf if dtypes.is_float(dtype) else False

    @staticmethod
    def max(dtype: DType) -> Any:
        """The greatest value: infinity for floats that have one."""
        if dtypes.is_int(dtype):
            unsigned = dtypes.is_unsigned(dtype)
            return (1 << (dtype.scalar().itemsize * 8 - (0 if unsigned else 1))) - 1
        if dtype.scalar() is dtypes.fp8e4m3:
            return _greatest_finite(dtypes.fp8e4m3)
        return math.inf if dtypes.is_float(dtype) else True

    @staticmethod
    def finfo(dtype: DType) -> tuple[_int, _int]:
        """(exponent bits, mantissa bits) of a float type."""
        return _FLOAT_BITS[dtype.scalar()]

    @staticmethod
    def as_const(value: Any, dtype: DType) -> Any:
        """A Python value as a constant of the type: wrapped, rounded, and comparable."""
        if isinstance(value, tuple):
            return tuple(dtypes.as_const(v, dtype) for v in value)
        if isinstance(value, InvalidType):
            return value
        scalar = dtype.scalar()
        if scalar in _FLOAT_BITS:
            return _float_const(value, scalar)
        if scalar is dtypes.bool:
            return bool(value)
        number = int(value)
        return number if scalar is dtypes.index else _wrap_int(number, scalar)


_bool = bool
_int = int

_FLOAT_BITS: Final = {
    dtypes.fp8e4m3: (4, 3),
    dtypes.fp8e5m2: (5, 2),
    dtypes.float16: (5, 10),
    dtypes.bfloat16: (8, 7),
    dtypes.float32: (8, 23),
    dtypes.float64: (11, 52),
}


def _wrap_int(value: int, dtype: DType) -> int:
    bits = dtype.itemsize * 8
    value &= (1 << bits) - 1
    return value - (1 << bits) if not dtypes.is_unsigned(dtype) and value >> (bits - 1) else value


def _float_const(value: Any, dtype: DType) -> float:
    number = truncate_float(float(value), dtype)
    if math.isnan(number):
        return math.nan  # one object, so that equal graphs stay equal
    return _NEGATIVE_ZERO if number == 0 and math.copysign(1, number) < 0 else number


def truncate_float(value: float, dtype: DType) -> float:
    """The value rounded to the type, to nearest even; out of range becomes infinity.

    `fp8e4m3` has no infinity: out of range becomes nan ("FP8 Formats for Deep Learning", 2022).
    """
    if dtype is dtypes.float64 or value == 0 or not math.isfinite(value):
        return math.nan if dtype is dtypes.fp8e4m3 and math.isinf(value) else value
    if dtype is dtypes.float32:
        try:
            return float(struct.unpack("f", struct.pack("f", value))[0])
        except OverflowError:
            return math.copysign(math.inf, value)
    exponent_bits, mantissa_bits = _FLOAT_BITS[dtype]
    bias = (1 << (exponent_bits - 1)) - 1
    exponent = max(math.frexp(value)[1] - 1, 1 - bias)
    step = 2.0 ** (exponent - mantissa_bits)
    rounded = round(value / step) * step
    if abs(rounded) > _greatest_finite(dtype):
        return math.nan if dtype is dtypes.fp8e4m3 else math.copysign(math.inf, value)
    return rounded if rounded else math.copysign(0.0, value)


def _greatest_finite(dtype: DType) -> float:
    if dtype is dtypes.fp8e4m3:
        return 448.0
    exponent_bits, mantissa_bits = _FLOAT_BITS[dtype]
    return (2 - 2.0**-mantissa_bits) * 2.0 ** ((1 << (exponent_bits - 1)) - 1)


# *** promotion ***

# from each type to the next wider ones
_LATTICE: Final = {
    dtypes.bool: (dtypes.int8, dtypes.uint8),
    dtypes.int8: (dtypes.int16,),
    dtypes.int16: (dtypes.int32,),
    dtypes.int32: (dtypes.int64,),
    dtypes.int64: (dtypes.uint64,),
    dtypes.uint8: (dtypes.int16, dtypes.uint16),
    dtypes.uint16: (dtypes.int32, dtypes.uint32),
    dtypes.uint32: (dtypes.int64, dtypes.uint64),
    dtypes.uint64: (dtypes.fp8e4m3, dtypes.fp8e5m2),
    dtypes.fp8e4m3: (dtypes.float16, dtypes.bfloat16),
    dtypes.fp8e5m2: (dtypes.float16, dtypes.bfloat16),
    dtypes.float16: (dtypes.float32,),
    dtypes.bfloat16: (dtypes.float32,),
    dtypes.float32: (dtypes.float64,),
    dtypes.float64: (),
}


@functools.cache
def _wider(dtype: DType) -> frozenset[DType]:
    return frozenset({dtype}).union(*(_wider(d) for d in _LATTICE[dtype]))


@functools.cache
def least_upper_dtype(*types: DType) -> DType:
    """The narrowest type that holds all of these, by the lattice.

    >>> least_upper_dtype(dtypes.int8, dtypes.uint8)
    dtypes.int16
    """
    return min(frozenset.intersection(*(_wider(d) for d in types)), key=lambda d: d.priority)


def least_upper_float(dtype: DType) -> DType:
    """The type itself if it is a float, else the default float."""
    return dtype if dtypes.is_float(dtype) else least_upper_dtype(dtype, dtypes.default_float)


@functools.cache
def can_lossless_cast(source: DType, target: DType) -> bool:
    """Whether every value of source is a value of target."""
    if source is target or source is dtypes.bool:
        return True
    if dtypes.is_float(source):
        return target in _wider(source)
    if target is dtypes.bool or dtypes.index in (source, target) or not dtypes.is_int(source):
        return False
    bits = source.itemsize * 8 - (0 if dtypes.is_unsigned(source) else 1)
    if dtypes.is_float(target):
        return bits <= dtypes.finfo(target)[1] + 1 and dtypes.finfo(target)[0] >= 5
    signed_ok = dtypes.is_unsigned(source) or not dtypes.is_unsigned(target)
    return signed_ok and bits <= target.itemsize * 8 - (0 if dtypes.is_unsigned(target) else 1)


def sum_acc_dtype(dtype: DType) -> DType:
    """The type that a sum is accumulated in when the user gives none."""
    if dtypes.is_unsigned(dtype):
        return least_upper_dtype(dtype, dtypes.uint32)
    if dtypes.is_int(dtype) or dtype is dtypes.bool:
        return least_upper_dtype(dtype, dtypes.int32)
    return least_upper_dtype(dtype, dtypes.float32)
