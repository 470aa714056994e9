"""How LLVM IR writes types, constants, arithmetic and casts.

What is undefined in LLVM is defined here: integer division by zero gives 0 (and the remainder 0, as
numpy), shifts by the width or more give what ever more single shifts would, and a float that does
not fit an integer type gives what `float_to_int` says.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from tgcore.dtype import DType, dtypes
from tgcore.uop.node import UOp
from tgcore.uop.ops import Ops

_SCALARS: Final = {
    dtypes.void: "void",
    dtypes.bool: "i1",
    **dict.fromkeys((dtypes.int8, dtypes.uint8, *dtypes.fp8s), "i8"),
    **dict.fromkeys((dtypes.int16, dtypes.uint16), "i16"),
    **dict.fromkeys((dtypes.int32, dtypes.uint32), "i32"),
    **dict.fromkeys((dtypes.int64, dtypes.uint64, dtypes.index), "i64"),
    dtypes.float16: "half",
    dtypes.bfloat16: "bfloat",
    dtypes.float32: "float",
    dtypes.float64: "double",
}
_SUFFIX: Final = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}


class LLVMBody:
    """The text of a function while it is written: lines, and what each node is called."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[UOp, str] = {}
        self.declarations: dict[str, None] = {}
        self.entry: list[str] = []  # what must stand at the start: stack memory
        self.zero_bytes = 0  # size of the zeroed memory that gated loads read instead
        self.group_items = 1  # work items of a group, by the launch positions seen so far
        self.block = "entry"
        self.counter = 0

    def fresh(self, prefix: str = "v") -> str:
        """A new name."""
        self.counter += 1
        return f"%{prefix}{self.counter}"

    def emit(self, instruction: str) -> str:
        """An instruction with a value; returns the value's name."""
        self.counter += 1
        name = f"%v{self.counter}"
        self.lines.append(f"  {name} = {instruction}")
        return name

    def effect(self, instruction: str) -> None:
        """An instruction without a value."""
        self.lines.append(f"  {instruction}")

    def label(self, name: str) -> None:
        """Start of a block."""
        self.lines.append(f"{name}:")
        self.block = name

    def typed(self, node: UOp) -> str:
        """`type name`, as operands are written."""
        return f"{type_name(node.dtype)} {self.names[node]}"

    def call(self, name: str, dtype: DType, *operands: str, flags: str = "") -> str:
        """A call of an intrinsic that is overloaded on one type; operands are all of that type."""
        kind = type_name(dtype)
        full = f"@llvm.{name}.{suffix(dtype)}"
        self.declarations[f"declare {kind} {full}({', '.join([kind] * len(operands))})"] = None
        arguments = ", ".join(f"{kind} {o}" for o in operands)
        return self.emit(f"call {flags}{kind} {full}({arguments})")


def type_name(dtype: DType) -> str:
    """A type as LLVM writes it."""
    name = _TYPE_NAMES.get(dtype)
    if name is None:
        scalar = _SCALARS[dtype.scalar()]
        name = scalar if dtype.count == 1 else f"<{dtype.count} x {scalar}>"
        _TYPE_NAMES[dtype] = name
    return name


_TYPE_NAMES: dict[DType, str] = {}


def memory_type(dtype: DType) -> DType:
    """The type that a value has in memory: a bool is a byte there."""
    return dtypes.uint8.vec(dtype.count) if dtypes.is_bool(dtype) else dtype


def suffix(dtype: DType) -> str:
    """The type in the name of an intrinsic: f32, v8i32, ..."""
    scalar = _SCALARS[dtype.scalar()]
    short = _SUFFIX.get(scalar, scalar)
    return short if dtype.count == 1 else f"v{dtype.count}{short}"


# *** constants ***


def constant(value: Any, dtype: DType) -> str:
    """A constant as an operand, without its type."""
    if isinstance(value, tuple):
        kind = type_name(dtype.scalar())
        return f"<{', '.join(f'{kind} {_scalar_constant(v, dtype.scalar())}' for v in value)}>"
    text = _scalar_constant(value, dtype.scalar())
    if dtype.count == 1:
        return text
    return f"splat ({type_name(dtype.scalar())} {text})"


def _scalar_constant(value: Any, dtype: DType) -> str:
    if dtype is dtypes.bool:
        return "true" if value else "false"
    if not dtypes.is_float(dtype):
        return str(int(value))
    value = float(value)
    if dtype is dtypes.float16:
        packed = struct.unpack("<H", struct.pack("<e", value))[0]
        return f"0xH{packed:04X}"
    if dtype is dtypes.bfloat16:
        packed = struct.unpack("<I", struct.pack("<f", value))[0] >> 16
        return f"0xR{packed | (0x40 if math.isnan(value) else 0):04X}"
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


# *** arithmetic ***

Writer = Callable[[LLVMBody, UOp], str]


def _binary(floats: str, signed: str, unsigned: str = "", bools: str = "") -> Writer:
    def write(body: LLVMBody, node: UOp) -> str:
        left, right = node.src
        scalar = left.dtype.scalar()
        if scalar in dtypes.floats:
            name = floats
        elif scalar is dtypes.bool:
            name = bools or unsigned or signed
        elif scalar in dtypes.uints:
            name = unsigned or signed
        else:
            name = signed + _no_wrap(node)
        return body.emit(f"{name} {body.typed(left)}, {body.names[right]}")

    return write


_EXACT: Final[dict[Ops, Callable[[Any, Any, Any, Any], tuple[Any, Any]]]] = {
    Ops.ADD: lambda a, b, c, d: (a + c, b + d),
    Ops.SUB: lambda a, b, c, d: (a - d, b - c),
    Ops.SHL: lambda a, b, c, d: (a << c, b << d),
    Ops.MUL: lambda a, b, c, d: (
        min(a * c, a * d, b * c, b * d),
        max(a * c, a * d, b * c, b * d),
    ),
}


def _no_wrap(node: UOp) -> str:
    """` nsw` where the bounds prove that a signed result does not wrap around.

    Index arithmetic is of this kind, and LLVM needs to know it to widen loop variables.
    """
    exact = _EXACT.get(node.op)
    if exact is None or node.dtype.scalar() not in (dtypes.int32, dtypes.int64):
        return ""
    if node.op is Ops.SHL and not 0 <= node.src[1].vmin == node.src[1].vmax < 64:
        return ""
    low, high = exact(*node.src[0].bounds, *node.src[1].bounds)
    fits = dtypes.min(node.dtype) <= low and high <= dtypes.max(node.dtype)
    return " nsw" if fits else ""


def _fixed_float(name: str) -> Writer:
    return lambda body, node: body.call(name, node.dtype, *(body.names[s] for s in node.src))


def _neg(body: LLVMBody, node: UOp) -> str:
    if dtypes.is_float(node.dtype):
        return body.emit(f"fneg {body.typed(node.src[0])}")
    zero = constant(0, node.dtype)
    return body.emit(f"sub {type_name(node.dtype)} {zero}, {body.names[node.src[0]]}")


def _reciprocal(body: LLVMBody, node: UOp) -> str:
    one = constant(1.0, node.dtype)
    return body.emit(f"fdiv {type_name(node.dtype)} {one}, {body.names[node.src[0]]}")


def _max(body: LLVMBody, node: UOp) -> str:
    left, right = (body.names[s] for s in node.src)
    if dtypes.is_float(node.dtype):
        # nsz: which zero wins is not promised, and costs instructions
        return body.call("maximum", node.dtype, left, right, flags="nsz ")
    if dtypes.is_bool(node.dtype):
        return body.emit(f"or {body.typed(node.src[0])}, {right}")
    return body.call("umax" if dtypes.is_unsigned(node.dtype) else "smax", node.dtype, left, right)


def _mulacc(body: LLVMBody, node: UOp) -> str:
    names = [body.names[s] for s in node.src]
    if dtypes.is_float(node.dtype):
        return body.call("fma", node.dtype, *names, flags="contract ")
    product = body.emit(f"mul {body.typed(node.src[0])}, {names[1]}")
    return body.emit(f"add {type_name(node.dtype)} {product}, {names[2]}")


def _division(signed: str, unsigned: str) -> Writer:
    def write(body: LLVMBody, node: UOp) -> str:
        left, right = node.src
        kind, name = type_name(node.dtype), body.names[right]
        is_signed = not dtypes.is_unsigned(node.dtype)
        instruction = signed if is_signed else unsigned
        low, high = right.bounds
        if low > 0 or high < -1:
            return body.emit(f"{instruction} {body.typed(left)}, {name}")
        # the processor traps on x / 0 and on least / -1: divide by 1 there
        zero = constant(0, node.dtype)
        is_zero = bad = body.emit(f"icmp eq {kind} {name}, {zero}")
        if is_signed:
            bad = _or_overflow(body, node, is_zero)
        flag = type_name(dtypes.bool.vec(node.dtype.count))
        one = constant(1, node.dtype)
        divisor = body.emit(f"select {flag} {bad}, {kind} {one}, {kind} {name}")
        result = body.emit(f"{instruction} {body.typed(left)}, {divisor}")
        if node.op is Ops.MOD:
            return result  # x mod 1 is 0, as wanted
        return body.emit(f"select {flag} {is_zero}, {kind} {zero}, {kind} {result}")

    return write


def _or_overflow(body: LLVMBody, node: UOp, condition: str) -> str:
    left, right = node.src
    least = constant(dtypes.min(node.dtype), node.dtype)
    flag = type_name(dtypes.bool.vec(node.dtype.count))
    is_least = body.emit(f"icmp eq {body.typed(left)}, {least}")
    is_minus_one = body.emit(f"icmp eq {body.typed(right)}, {constant(-1, node.dtype)}")
    both = body.emit(f"and {flag} {is_least}, {is_minus_one}")
    return body.emit(f"or {flag} {condition}, {both}")


def _shl(body: LLVMBody, node: UOp) -> str:
    left, amount = node.src
    shifted = body.emit(f"shl{_no_wrap(node)} {body.typed(left)}, {body.names[amount]}")
    return shifted if _amount_fits(node) else _zero_if_large(body, node, shifted)


def _shr(body: LLVMBody, node: UOp) -> str:
    left, amount = node.src
    if dtypes.is_unsigned(node.dtype):
        shifted = body.emit(f"lshr {body.typed(left)}, {body.names[amount]}")
        return shifted if _amount_fits(node) else _zero_if_large(body, node, shifted)
    name = body.names[amount]
    if not _amount_fits(node):
        limit = constant(node.dtype.scalar().itemsize * 8 - 1, node.dtype)
        name = body.call("umin", node.dtype, name, limit)
    return body.emit(f"ashr {body.typed(left)}, {name}")


def _amount_fits(node: UOp) -> bool:
    low, high = node.src[1].bounds
    return bool(low >= 0 and high < node.dtype.scalar().itemsize * 8)


def _zero_if_large(body: LLVMBody, node: UOp, shifted: str) -> str:
    kind = type_name(node.dtype)
    width = constant(node.dtype.scalar().itemsize * 8, node.dtype)
    fits = body.emit(f"icmp ult {body.typed(node.src[1])}, {width}")
    flag = type_name(dtypes.bool.vec(node.dtype.count))
    return body.emit(f"select {flag} {fits}, {kind} {shifted}, {kind} {constant(0, node.dtype)}")


def _where(body: LLVMBody, node: UOp) -> str:
    return body.emit("select " + ", ".join(body.typed(s) for s in node.src))


# *** casts ***


def _cast(body: LLVMBody, node: UOp) -> str:
    source = node.src[0]
    return convert(body, body.names[source], source.dtype, node.dtype)


def convert(body: LLVMBody, name: str, source: DType, target: DType) -> str:
    """A value in another type, as numpy's astype."""
    if source is target:
        return name
    if dtypes.is_bool(target):
        compare = "fcmp une" if dtypes.is_float(source) else "icmp ne"
        return body.emit(f"{compare} {type_name(source)} {name}, {constant(0, source)}")
    if dtypes.is_float(source) and not dtypes.is_float(target):
        return float_to_int(body, name, source, target)
    if {source.scalar(), target.scalar()} == {dtypes.float16, dtypes.bfloat16}:
        middle = dtypes.float32.vec(source.count)
        return convert(body, convert(body, name, source, middle), middle, target)
    instruction = _plain_cast(source, target)
    if instruction is None:
        return name
    return body.emit(f"{instruction} {type_name(source)} {name} to {type_name(target)}")


def _plain_cast(source: DType, target: DType) -> str | None:
    unsigned = dtypes.is_unsigned(source) or dtypes.is_bool(source)
    if dtypes.is_float(target):
        if not dtypes.is_float(source):
            return "uitofp" if unsigned else "sitofp"
        return "fpext" if source.itemsize < target.itemsize else "fptrunc"
    if source.bitsize == target.bitsize:
        return None
    if source.bitsize > target.bitsize:
        return "trunc"
    return "zext" if unsigned else "sext"


def float_to_int(body: LLVMBody, name: str, source: DType, target: DType) -> str:
    """Towards zero. What does not fit (nan too) gives the least int32 (least int64 for targets of
    32 unsigned bits and more), wrapped to the target: what numpy gives on x86-64."""
    wide = dtypes.int32 if target.itemsize // target.count <= 4 else dtypes.int64
    if target.scalar() is dtypes.uint32:
        wide = dtypes.int64
    if source.scalar() is dtypes.float16:  # its greatest value is below the limits
        name = body.emit(f"fpext {type_name(source)} {name} to {_vector(source, dtypes.float32)}")
        source = dtypes.float32.vec(source.count)
    signed = _checked(body, name, source, wide.vec(source.count))
    if target.scalar() is dtypes.uint64:
        return _upper_half(body, name, source, target, signed)
    return convert(body, signed, wide.vec(source.count), target)


def _vector(source: DType, scalar: DType) -> str:
    return type_name(scalar.vec(source.count))


def _checked(body: LLVMBody, name: str, source: DType, target: DType) -> str:
    kind, result = type_name(source), type_name(target)
    flag = type_name(dtypes.bool.vec(source.count))
    limit = constant(2.0 ** (target.scalar().itemsize * 8 - 1), source)
    size = body.call("fabs", source, name)
    fits = body.emit(f"fcmp olt {kind} {size}, {limit}")
    safe = body.emit(f"select {flag} {fits}, {kind} {name}, {kind} {constant(0.0, source)}")
    number = body.emit(f"fptosi {kind} {safe} to {result}")
    least = constant(dtypes.min(target), target)
    return body.emit(f"select {flag} {fits}, {result} {number}, {result} {least}")


def _upper_half(body: LLVMBody, name: str, source: DType, target: DType, signed: str) -> str:
    """uint64: from 2^63 on, what is left after 2^63 was taken away."""
    kind = type_name(source)
    flag = type_name(dtypes.bool.vec(source.count))
    limit = constant(2.0**63, source)
    rest = body.emit(f"fsub {kind} {name}, {limit}")
    number = _checked(body, rest, source, dtypes.int64.vec(source.count))
    top = constant(-(1 << 63), dtypes.int64.vec(source.count))
    upper = body.emit(f"xor {type_name(target)} {number}, {top}")
    is_upper = body.emit(f"fcmp oge {kind} {name}, {limit}")
    fits = body.emit(f"fcmp olt {kind} {name}, {constant(2.0**64, source)}")
    large = body.emit(f"and {flag} {is_upper}, {fits}")
    result = type_name(target)
    return body.emit(f"select {flag} {large}, {result} {upper}, {result} {signed}")


def _bitcast(body: LLVMBody, node: UOp) -> str:
    source = node.src[0]
    from_type, to_type = memory_type(source.dtype), memory_type(node.dtype)
    name = to_memory(body, body.names[source], source.dtype)
    if type_name(from_type) != type_name(to_type):
        name = body.emit(f"bitcast {type_name(from_type)} {name} to {type_name(to_type)}")
    return from_memory(body, name, node.dtype)


def to_memory(body: LLVMBody, name: str, dtype: DType) -> str:
    """A value as it lies in memory."""
    if not dtypes.is_bool(dtype):
        return name
    return body.emit(f"zext {type_name(dtype)} {name} to {type_name(memory_type(dtype))}")


def from_memory(body: LLVMBody, name: str, dtype: DType) -> str:
    """A value that was read from memory."""
    if not dtypes.is_bool(dtype):
        return name
    stored = memory_type(dtype)
    return body.emit(f"icmp ne {type_name(stored)} {name}, {constant(0, stored)}")


CODE_FOR_OP: Final[Mapping[Ops, Writer]] = {
    Ops.CAST: _cast,
    Ops.BITCAST: _bitcast,
    Ops.SQRT: _fixed_float("sqrt"),
    Ops.TRUNC: _fixed_float("trunc"),
    Ops.RECIPROCAL: _reciprocal,
    Ops.NEG: _neg,
    Ops.ADD: _binary("fadd contract", "add", bools="or"),
    Ops.SUB: _binary("fsub contract", "sub", bools="xor"),
    Ops.MUL: _binary("fmul contract", "mul", bools="and"),
    Ops.FDIV: _binary("fdiv", "sdiv"),
    Ops.IDIV: _division("sdiv", "udiv"),
    Ops.MOD: _division("srem", "urem"),
    Ops.MAX: _max,
    Ops.SHL: _shl,
    Ops.SHR: _shr,
    Ops.AND: _binary("and", "and"),
    Ops.OR: _binary("or", "or"),
    Ops.XOR: _binary("xor", "xor"),
    Ops.CMPLT: _binary("fcmp olt", "icmp slt", "icmp ult"),
    Ops.CMPNE: _binary("fcmp une", "icmp ne"),
    Ops.CMPEQ: _binary("fcmp oeq", "icmp eq"),
    Ops.WHERE: _where,
    Ops.MULACC: _mulacc,
}
