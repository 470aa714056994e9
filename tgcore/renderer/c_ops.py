"""How GNU C writes types, constants, arithmetic and casts, for scalars and vectors.

Vectors are the compiler's own (`vector_size`), with lanes rounded up to a power of two. A vector of
bools is a mask: integer lanes of 0 and -1, as wide as the lanes of what was compared. What has no
vector operator is a small function over the lanes, written out only if it is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tgcore.dtype import DType, dtypes
from tgcore.errors import CompileError
from tgcore.uop.node import UOp
from tgcore.uop.ops import GroupOp, Ops

_SCALARS: Final = {
    dtypes.bool: "_Bool",
    dtypes.int8: "signed char",
    dtypes.int16: "short",
    dtypes.int32: "int",
    dtypes.int64: "long long",
    dtypes.uint8: "unsigned char",
    dtypes.uint16: "unsigned short",
    dtypes.uint32: "unsigned",
    dtypes.uint64: "unsigned long long",
    dtypes.float16: "_Float16",
    dtypes.float32: "float",
    dtypes.float64: "double",
}
_SIGNED: Final = {1: dtypes.int8, 2: dtypes.int16, 4: dtypes.int32, 8: dtypes.int64}
_UNSIGNED: Final = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}
_BUILTIN_SUFFIX: Final = {dtypes.float32: "f", dtypes.float64: ""}


class CBody:
    """The text of a function while it is written: lines, and what each node is called."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[UOp, str] = {}
        self.mask_bytes: dict[UOp, int] = {}  # of bool vectors: bytes of a lane
        self.typedefs: dict[str, None] = {}
        self.helpers: dict[str, str] = {}
        self.registers: list[str] = []
        self.zero_bytes = 0
        self.depth = 1
        self.counter = 0

    def line(self, text: str) -> None:
        """A line of the body."""
        self.lines.append("  " * self.depth + text)

    def fresh(self, prefix: str = "v") -> str:
        """A new name."""
        self.counter += 1
        return f"{prefix}{self.counter}"

    def value(self, kind: str, expression: str) -> str:
        """A variable with that value."""
        name = self.fresh()
        self.line(f"const {kind} {name} = {expression};")
        return name

    def type(self, dtype: DType) -> str:
        """A type's name; a vector's is declared."""
        scalar = dtype.scalar()
        if scalar not in _SCALARS:
            raise CompileError(f"C has no type for {dtype}")
        if dtype.count == 1:
            return _SCALARS[scalar]
        if scalar is dtypes.bool:
            scalar = dtypes.int8
        lanes = padded(dtype.count)
        letter = "f" if dtypes.is_float(scalar) else "u" if dtypes.is_unsigned(scalar) else "i"
        name = f"{letter}{scalar.itemsize * 8}x{lanes}"
        nbytes = lanes * scalar.itemsize
        attributes = f"vector_size({nbytes})"
        loose = f"{attributes}, aligned({scalar.itemsize}), may_alias"
        self.typedefs[f"typedef {_SCALARS[scalar]} {name} __attribute__(({attributes}));"] = None
        self.typedefs[f"typedef {_SCALARS[scalar]} {name}u __attribute__(({loose}));"] = None
        return name

    def mask_type(self, nbytes: int, count: int) -> str:
        """The type of a mask."""
        return self.type(_SIGNED[nbytes].vec(count))

    def mask(self, node: UOp, nbytes: int) -> str:
        """A bool vector as a mask with lanes of so many bytes."""
        name = self.names[node]
        if self.mask_bytes[node] == nbytes:
            return name
        return f"__builtin_convertvector({name}, {self.mask_type(nbytes, node.dtype.count)})"


def padded(count: int) -> int:
    """Lanes rounded up to a power of two."""
    return 1 << (count - 1).bit_length()


def is_mask(dtype: DType) -> bool:
    """Whether it is a vector of bools."""
    return dtype.count > 1 and dtypes.is_bool(dtype)


# *** constants ***


def constant(body: CBody, value: Any, dtype: DType) -> str:
    """A constant."""
    scalar = dtype.scalar()
    if dtype.count == 1:
        return scalar_constant(value, scalar)
    values = list(value) if isinstance(value, tuple) else [value] * dtype.count
    values += [values[-1]] * (padded(dtype.count) - len(values))
    if scalar is dtypes.bool:
        texts = ["-1" if v else "0" for v in values]
    else:
        texts = [scalar_constant(v, scalar) for v in values]
    return f"({body.type(dtype)}){{{', '.join(texts)}}}"


def scalar_constant(value: Any, dtype: DType) -> str:
    """A constant of a scalar type."""
    if dtypes.is_float(dtype):
        return _float_constant(float(value), dtype)
    value = int(value)
    if dtype in (dtypes.int64, dtypes.uint64):
        if value == -(1 << 63):
            return "(-9223372036854775807LL - 1)"
        return f"{value}{'ULL' if dtype is dtypes.uint64 else 'LL'}"
    if dtype is dtypes.int32 and value == -(1 << 31):
        return "(-2147483647 - 1)"
    return f"{value}u" if dtype is dtypes.uint32 else str(value)


def _float_constant(value: float, dtype: DType) -> str:
    suffix = "" if dtype is dtypes.float64 else "f"
    if math.isnan(value):
        text = f'__builtin_nan{suffix}("")'
    elif math.isinf(value):
        text = f"{'-' if value < 0 else ''}__builtin_inf{suffix}()"
    else:
        text = value.hex() + suffix
    return f"(_Float16){text}" if dtype is dtypes.float16 else text


# *** arithmetic ***

Writer = Callable[[CBody, UOp], str]


def _arithmetic(symbol: str, bools: str) -> Writer:
    """+, -, *: integers are computed unsigned, where wrapping around is defined."""

    def write(body: CBody, node: UOp) -> str:
        left, right = (body.names[s] for s in node.src)
        dtype = node.dtype
        if dtypes.is_bool(dtype):
            return _bool_binary(body, node, bools)
        kind = body.type(dtype)
        if dtypes.is_float(dtype):
            return body.value(kind, f"{left} {symbol} {right}")
        if dtypes.is_unsigned(dtype) and dtype.scalar().itemsize >= 4:
            return body.value(kind, f"{left} {symbol} {right}")
        wide = dtype.scalar().itemsize if dtype.count > 1 else max(dtype.itemsize, 4)
        unsigned = body.type(_UNSIGNED[wide].vec(dtype.count))
        return body.value(kind, f"({kind})(({unsigned}){left} {symbol} ({unsigned}){right})")

    return write


def _bitwise(symbol: str) -> Writer:
    def write(body: CBody, node: UOp) -> str:
        if dtypes.is_bool(node.dtype):
            return _bool_binary(body, node, symbol)
        left, right = (body.names[s] for s in node.src)
        kind = body.type(node.dtype)
        return body.value(kind, f"({kind})({left} {symbol} {right})")

    return write


def _bool_binary(body: CBody, node: UOp, symbol: str) -> str:
    if node.dtype.count == 1:
        left, right = (body.names[s] for s in node.src)
        return body.value("_Bool", f"{left} {symbol} {right}")
    nbytes = _common_mask(body, node.src)
    left, right = (body.mask(s, nbytes) for s in node.src)
    return new_mask(body, node, nbytes, f"{left} {symbol} {right}")


def _common_mask(body: CBody, nodes: Sequence[UOp]) -> int:
    sizes = [body.mask_bytes[n] for n in nodes if n.op not in GroupOp.Constant]
    return max(sizes, default=1)


def new_mask(body: CBody, node: UOp, nbytes: int, expression: str) -> str:
    """A variable that holds a bool vector."""
    body.mask_bytes[node] = nbytes
    kind = body.mask_type(nbytes, node.dtype.count)
    # a comparison gives lanes of `long` where ours are of `long long`
    return body.value(kind, f"({kind})({expression})")


def _compare(symbol: str, bools: str) -> Writer:
    def write(body: CBody, node: UOp) -> str:
        source = node.src[0].dtype
        left, right = (body.names[s] for s in node.src)
        if source.count == 1:
            return body.value("_Bool", f"{left} {symbol} {right}")
        if dtypes.is_bool(source):
            nbytes = _common_mask(body, node.src)
            a, b = (body.mask(s, nbytes) for s in node.src)
            return new_mask(body, node, nbytes, bools.format(a, b))
        return new_mask(body, node, source.scalar().itemsize, f"{left} {symbol} {right}")

    return write


def _neg(body: CBody, node: UOp) -> str:
    kind, name = body.type(node.dtype), body.names[node.src[0]]
    if dtypes.is_float(node.dtype):
        return body.value(kind, f"-{name}")
    unsigned = body.type(_UNSIGNED[node.dtype.scalar().itemsize].vec(node.dtype.count))
    return body.value(kind, f"({kind})(-({unsigned}){name})")


def _division_of_floats(body: CBody, node: UOp) -> str:
    left, right = (body.names[s] for s in node.src)
    return body.value(body.type(node.dtype), f"{left} / {right}")


def _reciprocal(body: CBody, node: UOp) -> str:
    one = constant(body, 1.0, node.dtype)
    return body.value(body.type(node.dtype), f"{one} / {body.names[node.src[0]]}")


def _mulacc(body: CBody, node: UOp) -> str:
    a, b, c = (body.names[s] for s in node.src)
    return body.value(body.type(node.dtype), f"{a} * {b} + {c}")


def _max(body: CBody, node: UOp) -> str:
    if dtypes.is_bool(node.dtype):
        return _bool_binary(body, node, "|")
    left, right = (body.names[s] for s in node.src)
    dtype, kind = node.dtype, body.type(node.dtype)
    if dtype.count == 1:
        test = f"{left} > {right}"
        if dtypes.is_float(dtype):  # nan on the left stays; on the right, the comparison fails
            test += f" || {left} != {left}"
        return body.value(kind, f"({test}) ? {left} : {right}")
    mask = body.mask_type(dtype.scalar().itemsize, dtype.count)
    test = f"({left} > {right})"
    if dtypes.is_float(dtype):
        test += f" | ({left} != {left})"
    chosen = body.value(mask, f"({mask})({test})")
    return body.value(kind, select(mask, kind, chosen, left, right))


def select(mask: str, kind: str, condition: str, yes: str, no: str) -> str:
    """Lanes of `yes` where the mask is set, else of `no`."""
    return f"({kind})(({condition} & ({mask}){yes}) | (~{condition} & ({mask}){no}))"


def _where(body: CBody, node: UOp) -> str:
    condition, yes, no = node.src
    if node.dtype.count == 1:
        kind = body.type(node.dtype)
        names = [body.names[s] for s in node.src]
        return body.value(kind, f"{names[0]} ? {names[1]} : {names[2]}")
    if condition.dtype.count == 1:
        name = body.names[condition]
        condition_text = f"{name} ? {body.names[yes]} : {body.names[no]}"
        return body.value(body.type(node.dtype), condition_text)
    if is_mask(node.dtype):
        nbytes = _common_mask(body, node.src)
        m, a, b = (body.mask(s, nbytes) for s in node.src)
        return new_mask(body, node, nbytes, f"({m} & {a}) | (~{m} & {b})")
    nbytes = node.dtype.scalar().itemsize
    mask, kind = body.mask_type(nbytes, node.dtype.count), body.type(node.dtype)
    chosen = body.mask(condition, nbytes)
    if not chosen.isidentifier():
        chosen = body.value(mask, chosen)
    return body.value(kind, select(mask, kind, chosen, body.names[yes], body.names[no]))


# *** functions over the lanes ***


def _by_lane(body: CBody, node: UOp, name: str, scalar_text: str) -> str:
    """A call of a function that is written for one lane, in `a`, `b`, for results of type `T`."""
    types = [s.dtype for s in node.src]
    result = node.dtype
    scalar_kind = body.type(result.scalar())
    one = f"tg_{name}_{_tag(result.scalar())}"
    parameters = ", ".join(f"{body.type(t.scalar())} {p}" for t, p in zip(types, "abc"))
    body.helpers.setdefault(
        one,
        f"static inline {scalar_kind} {one}({parameters}) {{ "
        f"{scalar_text.replace('T ', scalar_kind + ' ')} }}",
    )
    arguments = ", ".join(body.names[s] for s in node.src)
    kind = body.type(result)
    if result.count == 1:
        return body.value(kind, f"{one}({arguments})")
    many = f"{one}x{result.count}"
    parameters = ", ".join(f"{body.type(t)} {p}" for t, p in zip(types, "abc"))
    lanes = ", ".join(f"{p}[i]" for _, p in zip(types, "abc"))
    body.helpers.setdefault(
        many,
        f"static inline {kind} {many}({parameters}) {{ {kind} r; "
        f"for (int i = 0; i < {padded(result.count)}; i++) r[i] = {one}({lanes}); return r; }}",
    )
    return body.value(kind, f"{many}({arguments})")


def _tag(dtype: DType) -> str:
    return _SCALARS[dtype].replace(" ", "_")


def _builtin(name: str) -> Writer:
    def write(body: CBody, node: UOp) -> str:
        suffix = _BUILTIN_SUFFIX.get(node.dtype.scalar(), "f")
        return _by_lane(body, node, name, f"return __builtin_{name}{suffix}(a);")

    return write


def _int_division(body: CBody, node: UOp) -> str:
    left, right = (body.names[s] for s in node.src)
    symbol = "/" if node.op is Ops.IDIV else "%"
    low, high = node.src[1].bounds
    if low > 0 or high < -1:
        kind = body.type(node.dtype)
        return body.value(kind, f"({kind})({left} {symbol} {right})")
    text = f"return b == 0 ? 0 : a {symbol} b;"
    if not dtypes.is_unsigned(node.dtype):
        # the least number by -1 does not fit, and traps
        unsigned = _SCALARS[_UNSIGNED[max(4, node.dtype.scalar().itemsize)]]
        minus = f"(T )(-({unsigned})a)" if node.op is Ops.IDIV else "0"
        text = f"return b == 0 ? 0 : b == -1 ? {minus} : a {symbol} b;"
    return _by_lane(body, node, "div" if node.op is Ops.IDIV else "mod", text)


def _shift(body: CBody, node: UOp) -> str:
    left, right = (body.names[s] for s in node.src)
    dtype, kind = node.dtype, body.type(node.dtype)
    width = dtype.scalar().itemsize * 8
    unsigned = _UNSIGNED[dtype.scalar().itemsize]
    low, high = node.src[1].bounds
    if low >= 0 and high < width:
        if node.op is Ops.SHR:
            return body.value(kind, f"({kind})({left} >> {right})")
        wide = unsigned if dtype.count > 1 or width >= 32 else dtypes.uint32
        cast = body.type(wide.vec(dtype.count))
        return body.value(kind, f"({kind})(({cast}){left} << {right})")
    amount = f"({_SCALARS[unsigned]})b"
    if node.op is Ops.SHL:
        wide = unsigned if width >= 32 else dtypes.uint32
        return _by_lane(
            body, node, "shl", f"return {amount} < {width} ? (T )(({_SCALARS[wide]})a << b) : 0;"
        )
    beyond = "0" if dtypes.is_unsigned(dtype) else f"(T )(a >> {width - 1})"
    return _by_lane(body, node, "shr", f"return {amount} < {width} ? (T )(a >> b) : {beyond};")


# *** casts ***


def _cast(body: CBody, node: UOp) -> str:
    source, target = node.src[0], node.dtype
    kind, name = body.type(target), body.names[source]
    to_bool = dtypes.is_bool(target)
    float_to_int = dtypes.is_float(source.dtype) and not dtypes.is_float(target) and not to_bool
    if target.count == 1:
        if to_bool:
            return body.value(kind, f"{name} != 0")
        if float_to_int:
            return _float_to_int(body, node)
        return body.value(kind, f"({kind}){name}")
    if to_bool:
        if is_mask(source.dtype):
            return new_mask(body, node, body.mask_bytes[source], name)
        return new_mask(body, node, source.dtype.scalar().itemsize, f"{name} != 0")
    if is_mask(source.dtype):
        wide = body.mask_type(target.scalar().itemsize, target.count)
        ones = f"({body.mask(source, target.scalar().itemsize)} & 1)"
        return body.value(kind, f"__builtin_convertvector(({wide}){ones}, {kind})")
    if float_to_int:
        return _float_to_int(body, node)
    return body.value(kind, f"__builtin_convertvector({name}, {kind})")


def _float_to_int(body: CBody, node: UOp) -> str:
    """As in the LLVM IR family: what does not fit gives the least int32 or int64, wrapped."""
    source, target = node.src[0].dtype.scalar(), node.dtype.scalar()
    wide = dtypes.int64 if target in (dtypes.uint32, dtypes.int64, dtypes.uint64) else dtypes.int32
    bits = wide.itemsize * 8 - 1
    limit = scalar_constant(
        2.0**bits, dtypes.float64 if source is dtypes.float64 else dtypes.float32
    )
    least = scalar_constant(dtypes.min(wide), wide)
    kind = _SCALARS[wide]
    single = "double" if source is dtypes.float64 else "float"
    text = f"return (T )(x < {limit} && x > -{limit} ? ({kind})x : {least});"
    if target is dtypes.uint64:
        rest = f"x >= {limit} && x < 2 * {limit} ? (T )({kind})(x - {limit}) + (1ULL << 63) : "
        text = text.replace("return (T )(", f"return {rest}(T )(")
    if node.dtype.count == 1 or target is dtypes.uint64:
        name = f"cvt_{_tag(source)}"
        return _by_lane(body, node, name, f"const {single} x = a; {text}")
    return _vector_float_to_int(body, node, wide, (limit, least))


def _vector_float_to_int(body: CBody, node: UOp, wide: DType, limits: tuple[str, str]) -> str:
    count, source = node.dtype.count, node.src[0].dtype
    name = body.names[node.src[0]]
    if source.scalar() is dtypes.float16:
        source = dtypes.float32.vec(count)
        name = body.value(
            body.type(source), f"__builtin_convertvector({name}, {body.type(source)})"
        )
    limit, least = limits
    lane = source.scalar().itemsize
    kind, mask, result = body.type(source), body.mask_type(lane, count), body.type(wide.vec(count))
    fits = body.value(mask, f"({mask})(({name} < {limit}) & ({name} > -{limit}))")
    safe = f"({kind})(({mask}){name} & {fits})"
    number = body.value(result, f"__builtin_convertvector({safe}, {result})")
    if lane != wide.itemsize:
        fits = body.value(result, f"__builtin_convertvector({fits}, {result})")
    whole = body.value(result, f"({number} & {fits}) | (~{fits} & {least})")
    if node.dtype.scalar() is wide:
        return whole
    target = body.type(node.dtype)
    return body.value(target, f"__builtin_convertvector({whole}, {target})")


def _bitcast(body: CBody, node: UOp) -> str:
    source = node.src[0]
    kind, name = body.type(node.dtype), body.names[source]
    if dtypes.is_bool(source.dtype):
        if node.dtype.count == 1:
            return body.value(kind, f"({kind}){name}")
        return body.value(kind, f"({kind})({body.mask(source, 1)} & 1)")
    if dtypes.is_bool(node.dtype):
        if node.dtype.count == 1:
            return body.value(kind, f"{name} != 0")
        return new_mask(body, node, 1, f"{name} != 0")
    if node.dtype.count > 1:
        return body.value(kind, f"({kind}){name}")
    result = body.fresh()
    body.line(f"{kind} {result};")
    body.line(f"__builtin_memcpy(&{result}, &(const {body.type(source.dtype)}){{{name}}}, "
              f"sizeof {result});")  # fmt: skip
    return result


CODE_FOR_OP: Final[Mapping[Ops, Writer]] = {
    Ops.CAST: _cast,
    Ops.BITCAST: _bitcast,
    Ops.SQRT: _builtin("sqrt"),
    Ops.TRUNC: _builtin("trunc"),
    Ops.RECIPROCAL: _reciprocal,
    Ops.NEG: _neg,
    Ops.ADD: _arithmetic("+", "|"),
    Ops.SUB: _arithmetic("-", "^"),
    Ops.MUL: _arithmetic("*", "&"),
    Ops.FDIV: _division_of_floats,
    Ops.IDIV: _int_division,
    Ops.MOD: _int_division,
    Ops.MAX: _max,
    Ops.SHL: _shift,
    Ops.SHR: _shift,
    Ops.AND: _bitwise("&"),
    Ops.OR: _bitwise("|"),
    Ops.XOR: _bitwise("^"),
    Ops.CMPLT: _compare("<", "~{0} & {1}"),
    Ops.CMPNE: _compare("!=", "{0} ^ {1}"),
    Ops.CMPEQ: _compare("==", "~({0} ^ {1})"),
    Ops.WHERE: _where,
    Ops.MULACC: _mulacc,
}
