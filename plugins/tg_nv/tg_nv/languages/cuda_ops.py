"""How CUDA C writes types, constants and scalar arithmetic.

Half and bfloat16 are the bits of an unsigned short: they are computed with as floats and rounded
once. The compiler's own headers for them are not needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from tgcore.dtype import DType, dtypes
from tgcore.errors import CompileError
from tgcore.uop.node import UOp
from tgcore.uop.ops import Ops

TYPES: Final = {
    dtypes.bool: "bool",
    dtypes.int8: "signed char",
    dtypes.int16: "short",
    dtypes.int32: "int",
    dtypes.int64: "long long",
    dtypes.uint8: "unsigned char",
    dtypes.uint16: "unsigned short",
    dtypes.uint32: "unsigned",
    dtypes.uint64: "unsigned long long",
    dtypes.float16: "unsigned short",
    dtypes.bfloat16: "unsigned short",
    dtypes.float32: "float",
    dtypes.float64: "double",
}
_UNSIGNED: Final = {1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "unsigned long long"}
_BITS: Final = {dtypes.float16: "f16", dtypes.bfloat16: "bf16"}

_INLINE: Final = "static __device__ __forceinline__"
HELPERS: Final = {
    "from_f16": f"""{_INLINE} float from_f16(unsigned short x) {{
  float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x)); return r;
}}""",
    "to_f16": f"""{_INLINE} unsigned short to_f16(float x) {{
  unsigned short r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x)); return r;
}}""",
    "to_f16_from_double": f"""{_INLINE} unsigned short to_f16_from_double(double x) {{
  unsigned short r; asm("cvt.rn.f16.f64 %0, %1;" : "=h"(r) : "d"(x)); return r;
}}""",
    "to_tf32": f"""{_INLINE} unsigned to_tf32(float x) {{
  unsigned r; asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x)); return r;
}}""",
    "from_bf16": f"""{_INLINE} float from_bf16(unsigned short x) {{
  return __uint_as_float((unsigned)x << 16);
}}""",
    "to_bf16": f"""{_INLINE} unsigned short to_bf16(float x) {{
  unsigned short r; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x)); return r;
}}""",
}


class CudaBody:
    """The text of a kernel while it is written: lines, and what each node is called."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[UOp, str] = {}
        self.typedefs: dict[str, None] = {}
        self.helpers: dict[str, str] = {}
        self.depth = 1
        self.counter = 0

    def line(self, text: str) -> None:
        """A line of the kernel."""
        self.lines.append("  " * self.depth + text)

    def fresh(self, prefix: str = "v") -> str:
        """A new name."""
        self.counter += 1
        return f"{prefix}{self.counter}"

    def value(self, dtype: DType, expression: str) -> str:
        """A variable with that value."""
        name = self.fresh()
        self.line(f"const {self.type(dtype)} {name} = {expression};")
        return name

    def type(self, dtype: DType) -> str:
        """A type's name; a vector's, a structure with its lanes in `v`, is declared."""
        scalar = dtype.scalar()
        if scalar not in TYPES:
            raise CompileError(f"CUDA C has no type for {dtype}")
        if dtype.count == 1:
            return TYPES[scalar]
        alignment = min(16, dtype.itemsize & -dtype.itemsize)
        name = f"{TYPES[scalar].replace(' ', '_')}_x{dtype.count}"
        self.typedefs[
            f"struct __align__({alignment}) {name} {{ {TYPES[scalar]} v[{dtype.count}]; }};"
        ] = None
        return name

    def help(self, name: str) -> str:
        """The name of a helper, which is written out."""
        self.helpers[name] = HELPERS[name]
        return name

    def number(self, node: UOp) -> str:
        """The node's value as something that can be computed with."""
        return self.widened(self.names[node], node.dtype)

    def widened(self, name: str, dtype: DType) -> str:
        """A value of a small float type as a float; others as they are."""
        kind = _BITS.get(dtype.scalar())
        return name if kind is None else f"{self.help(f'from_{kind}')}({name})"

    def narrowed(self, text: str, dtype: DType) -> str:
        """The other way round."""
        kind = _BITS.get(dtype.scalar())
        return text if kind is None else f"{self.help(f'to_{kind}')}({text})"


# *** constants ***


def constant(body: CudaBody, value: Any, dtype: DType) -> str:
    """A constant; a vector's as its structure."""
    if dtype.count == 1:
        return _scalar_constant(value, dtype)
    lanes = value if isinstance(value, tuple) else (value,) * dtype.count
    texts = ", ".join(_scalar_constant(lane, dtype.scalar()) for lane in lanes)
    return body.value(dtype, f"{{{{{texts}}}}}")


def _scalar_constant(value: Any, dtype: DType) -> str:
    if dtype in _BITS:
        return f"(unsigned short)0x{_small_float_bits(float(value), dtype):04x}"
    if dtypes.is_float(dtype):
        return _float_constant(float(value), dtype)
    if dtype is dtypes.bool:
        return "true" if value else "false"
    value = int(value)
    if dtype in (dtypes.int64, dtypes.uint64):
        if value == -(1 << 63):
            return "(-9223372036854775807LL - 1)"
        return f"{value}{'ULL' if dtype is dtypes.uint64 else 'LL'}"
    if dtype is dtypes.int32 and value == -(1 << 31):
        return "(-2147483647 - 1)"
    return f"{value}u" if dtype is dtypes.uint32 else str(value)


def _small_float_bits(value: float, dtype: DType) -> int:
    if dtype is dtypes.float16:
        with np.errstate(over="ignore"):
            return int(np.float16(value).view(np.uint16))
    with np.errstate(over="ignore"):
        bits = int(np.float32(value).view(np.uint32))
    if math.isnan(value):
        return bits >> 16 | 0x40
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def _float_constant(value: float, dtype: DType) -> str:
    double = dtype is dtypes.float64
    if math.isfinite(value):
        return value.hex() + ("" if double else "f")
    if double:
        bits = "0x7ff8000000000000LL" if math.isnan(value) else "0x7ff0000000000000LL"
    else:
        bits = "0x7fc00000" if math.isnan(value) else "0x7f800000"
    text = f"{'__longlong_as_double' if double else '__int_as_float'}({bits})"
    return f"(-{text})" if value < 0 else text


# *** arithmetic ***

Writer = Callable[[CudaBody, UOp], str]


def _float_or(symbol: str, bools: str | None = None) -> Writer:
    """+, -, *: integers are computed unsigned, where wrapping around is defined."""

    def write(body: CudaBody, node: UOp) -> str:
        left, right = (body.number(s) for s in node.src)
        dtype = node.dtype
        if dtypes.is_float(dtype):
            return body.value(dtype, body.narrowed(f"{left} {symbol} {right}", dtype))
        if dtypes.is_bool(dtype):
            return body.value(dtype, f"{left} {bools} {right}")
        unsigned = _UNSIGNED[max(dtype.itemsize, 4)]
        kind = body.type(dtype)
        return body.value(dtype, f"({kind})(({unsigned}){left} {symbol} ({unsigned}){right})")

    return write


def _plain(template: str) -> Writer:
    """Text over the sources as numbers."""

    def write(body: CudaBody, node: UOp) -> str:
        text = template.format(*(body.number(s) for s in node.src))
        if dtypes.is_float(node.dtype):
            text = body.narrowed(text, node.dtype)
        else:
            text = f"({body.type(node.dtype)})({text})"
        return body.value(node.dtype, text)

    return write


def _compare(symbol: str) -> Writer:
    def write(body: CudaBody, node: UOp) -> str:
        left, right = (body.number(s) for s in node.src)
        return body.value(dtypes.bool, f"{left} {symbol} {right}")

    return write


def _neg(body: CudaBody, node: UOp) -> str:
    name = body.number(node.src[0])
    if dtypes.is_float(node.dtype):
        return body.value(node.dtype, body.narrowed(f"-{name}", node.dtype))
    unsigned = _UNSIGNED[max(node.dtype.itemsize, 4)]
    return body.value(node.dtype, f"({body.type(node.dtype)})(-({unsigned}){name})")


def _by_type(single: str, double: str) -> Writer:
    """A function of floats, by its names for float and double."""

    def write(body: CudaBody, node: UOp) -> str:
        name = double if node.dtype is dtypes.float64 else single
        text = f"{name}({body.number(node.src[0])})"
        return body.value(node.dtype, body.narrowed(text, node.dtype))

    return write


def _reciprocal(body: CudaBody, node: UOp) -> str:
    one = "1.0" if node.dtype is dtypes.float64 else "1.0f"
    text = f"{one} / {body.number(node.src[0])}"
    return body.value(node.dtype, body.narrowed(text, node.dtype))


def _mulacc(body: CudaBody, node: UOp) -> str:
    a, b, c = (body.number(s) for s in node.src)
    dtype = node.dtype
    if not dtypes.is_float(dtype):
        unsigned = _UNSIGNED[max(dtype.itemsize, 4)]
        text = f"({body.type(dtype)})(({unsigned}){a} * ({unsigned}){b} + ({unsigned}){c})"
        return body.value(dtype, text)
    name = "fma" if dtype is dtypes.float64 else "fmaf"
    return body.value(dtype, body.narrowed(f"{name}({a}, {b}, {c})", dtype))


def _max(body: CudaBody, node: UOp) -> str:
    left, right = (body.names[s] for s in node.src)
    dtype = node.dtype
    if dtypes.is_bool(dtype):
        return body.value(dtype, f"{left} || {right}")
    a, b = (body.number(s) for s in node.src)
    test = f"{a} > {b}"
    if dtypes.is_float(dtype):  # nan on the left stays; on the right, the comparison fails
        test += f" || {a} != {a}"
    return body.value(dtype, f"({test}) ? {left} : {right}")


def _where(body: CudaBody, node: UOp) -> str:
    condition, yes, no = (body.names[s] for s in node.src)
    return body.value(node.dtype, f"{condition} ? {yes} : {no}")


def _int_division(body: CudaBody, node: UOp) -> str:
    left, right = (body.names[s] for s in node.src)
    symbol = "/" if node.op is Ops.IDIV else "%"
    dtype, kind = node.dtype, body.type(node.dtype)
    low, high = node.src[1].bounds
    text = f"({kind})({left} {symbol} {right})"
    if low > 0 or high < -1:
        return body.value(dtype, text)
    if not dtypes.is_unsigned(dtype):  # the least number by -1 does not fit
        unsigned = _UNSIGNED[max(4, dtype.itemsize)]
        minus = f"({kind})(-({unsigned}){left})" if node.op is Ops.IDIV else "0"
        text = f"({right} == -1 ? {minus} : {text})"
    return body.value(dtype, f"{right} == 0 ? ({kind})0 : {text}")


def _shift(body: CudaBody, node: UOp) -> str:
    left, right = (body.names[s] for s in node.src)
    dtype, kind = node.dtype, body.type(node.dtype)
    width = dtype.itemsize * 8
    low, high = node.src[1].bounds
    wide = _UNSIGNED[max(4, dtype.itemsize)]
    if node.op is Ops.SHL:
        text, beyond = f"({kind})(({wide}){left} << {right})", f"({kind})0"
    else:
        text = f"({kind})({left} >> {right})"
        beyond = f"({kind})0" if dtypes.is_unsigned(dtype) else f"({kind})({left} >> {width - 1})"
    if low >= 0 and high < width:
        return body.value(dtype, text)
    amount = f"({_UNSIGNED[node.src[1].dtype.itemsize]}){right}"
    return body.value(dtype, f"{amount} < {width} ? {text} : {beyond}")


# *** casts ***


def _cast(body: CudaBody, node: UOp) -> str:
    source, dtype = node.src[0], node.dtype
    name, kind = body.number(source), body.type(node.dtype)
    if dtypes.is_bool(dtype):
        return body.value(dtype, f"{name} != 0")
    if dtype in _BITS:
        if dtype is dtypes.float16 and source.dtype is dtypes.float64:
            return body.value(dtype, f"{body.help('to_f16_from_double')}({name})")
        return body.value(dtype, body.narrowed(f"(float){name}", dtype))
    if dtypes.is_float(source.dtype) and not dtypes.is_float(dtype):
        return _float_to_int(body, node, name)
    return body.value(dtype, f"({kind}){name}")


def _float_to_int(body: CudaBody, node: UOp, name: str) -> str:
    """As on other devices: what does not fit gives the least int32 or int64, wrapped."""
    target = node.dtype
    wide = dtypes.int64 if target in (dtypes.uint32, dtypes.int64, dtypes.uint64) else dtypes.int32
    limit = f"{2.0 ** (wide.itemsize * 8 - 1)!r}"
    limit += "" if node.src[0].dtype is dtypes.float64 else "f"
    least = _scalar_constant(dtypes.min(wide), wide)
    x = name if name.isidentifier() else body.value(dtypes.float32, name)
    kind, whole = body.type(target), body.type(wide)
    text = f"({kind})({x} < {limit} && {x} > -{limit} ? ({whole}){x} : {least})"
    if target is dtypes.uint64:
        high = f"(unsigned long long)({whole})({x} - {limit}) + (1ULL << 63)"
        text = f"{x} >= {limit} && {x} < 2 * {limit} ? {high} : {text}"
    return body.value(target, text)


_REINTERPRET: Final = {
    (dtypes.float32, 4): "__float_as_int",
    (dtypes.float64, 8): "__double_as_longlong",
    (4, dtypes.float32): "__int_as_float",
    (8, dtypes.float64): "__longlong_as_double",
}


def _bitcast(body: CudaBody, node: UOp) -> str:
    source, dtype = node.src[0].dtype, node.dtype
    name, kind = body.names[node.src[0]], body.type(node.dtype)
    if dtypes.is_bool(dtype):
        return body.value(dtype, f"{name} != 0")
    if source is dtype:
        return name
    text = name
    if source in (dtypes.float32, dtypes.float64):
        text = f"{_REINTERPRET[source, source.itemsize]}({text})"
    if dtype in (dtypes.float32, dtypes.float64):
        whole = "int" if dtype is dtypes.float32 else "long long"
        return body.value(dtype, f"{_REINTERPRET[dtype.itemsize, dtype]}(({whole}){text})")
    return body.value(dtype, f"({kind}){text}")


CODE_FOR_OP: Final[Mapping[Ops, Writer]] = {
    Ops.CAST: _cast,
    Ops.BITCAST: _bitcast,
    Ops.SQRT: _by_type("sqrtf", "sqrt"),
    Ops.TRUNC: _by_type("truncf", "trunc"),
    Ops.RECIPROCAL: _reciprocal,
    Ops.NEG: _neg,
    Ops.ADD: _float_or("+", "|"),
    Ops.SUB: _float_or("-", "^"),
    Ops.MUL: _float_or("*", "&"),
    Ops.FDIV: _plain("{0} / {1}"),
    Ops.IDIV: _int_division,
    Ops.MOD: _int_division,
    Ops.MAX: _max,
    Ops.SHL: _shift,
    Ops.SHR: _shift,
    Ops.AND: _plain("{0} & {1}"),
    Ops.OR: _plain("{0} | {1}"),
    Ops.XOR: _plain("{0} ^ {1}"),
    Ops.CMPLT: _compare("<"),
    Ops.CMPNE: _compare("!="),
    Ops.CMPEQ: _compare("=="),
    Ops.WHERE: _where,
    Ops.MULACC: _mulacc,
}
