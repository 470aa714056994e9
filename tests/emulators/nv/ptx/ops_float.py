"""Floating-point instructions, and those that floats and integers share."""

from __future__ import annotations

from collections.abc import Callable

from . import ops_integer as integer
from .flow import Op
from .syntax import Pair
from .types import Type
from .writer import Modifiers, Writer, emits

FLOATS = ("f16", "f32", "f64", "bf16", "f16x2", "bf16x2", "f32x2")
ROUNDINGS = ("rn", "rz", "rm", "rp")
# the numpy type that one number is computed in
BASE = {
    "f16": "f2", "f32": "f4", "f64": "f8", "bf16": "f4", "f16x2": "f2", "bf16x2": "f4",
    "f32x2": "f4",
}  # fmt: skip


def lanes(w: Writer, kind: Type, operand: object) -> list[str]:
    """An operand as one or two expressions of the type that is computed in."""
    if kind.name in ("f16", "f32", "f64"):
        return [w.source(operand, kind.code)]
    if kind.name == "bf16":
        return [f"N.widen_bf16({w.source(operand, 'u2')})"]
    if kind.name == "f32x2":
        pair = w.let(f"N.words({w.source(operand, 'u8')}, 'f4')")
        return [f"{pair}[0]", f"{pair}[1]"]
    part = "f2" if kind.name == "f16x2" else "u2"
    pair = w.let(f"N.halves({w.source(operand, 'u4')}, {part!r})")
    if part == "f2":
        return [f"{pair}[0]", f"{pair}[1]"]
    return [f"N.widen_bf16({pair}[0])", f"N.widen_bf16({pair}[1])"]


def unlane(kind: Type, results: list[str]) -> str:
    """The reverse: results to what the register holds."""
    if kind.name in ("f16", "f32", "f64"):
        return results[0]
    if kind.name == "bf16":
        return f"N.to_bf16({results[0]})"
    if kind.name == "f32x2":
        return f"N.join_words({results[0]}, {results[1]})"
    if kind.name == "bf16x2":
        results = [f"N.to_bf16({r})" for r in results]
    return f"N.join({results[0]}, {results[1]})"


def compute(
    w: Writer,
    m: Modifiers,
    kind: Type,
    function: Callable[..., str],
    *operands: object,
    narrow: Type | None = None,
) -> None:
    """function of the operands' expressions, with ftz, sat and relu around it.

    narrow: the type of all sources but the last, where it is not that of the result.
    """
    flush, clamp, relu = m.flag("ftz"), m.flag("sat"), m.flag("relu")
    m.skip("noftz")
    d, *rest = operands
    if narrow is None:
        columns = [lanes(w, kind, operand) for operand in rest]
    else:
        columns = [[f"{x}.astype(f4)" for x in lanes(w, narrow, o)] for o in rest[:-1]]
        columns.append(lanes(w, kind, rest[-1]))
    results = []
    for row in zip(*columns):
        inputs = [f"N.ftz({x})" for x in row] if flush else list(row)
        result = function(*inputs)
        if flush:
            result = f"N.ftz({result})"
        if clamp:
            result = f"N.saturate({result})"
        if relu:
            result = f"N.relu({result})"
        results.append(result)
    w.write(d, unlane(kind, results), kind.code)


def rounded(mode: str, kind: Type, operation: str, plain: str) -> Callable[..., str]:
    """A ufunc by name, in the direction that the instruction asks for."""
    if mode in ("", "rn"):
        return plain.format
    code = BASE[kind.name]
    return lambda *args: f"N.directed({operation}, {code!r}, {mode!r}, {', '.join(args)})"


def mixed(m: Modifiers, kind: Type) -> tuple[Type, Type | None]:
    """Types of the result and of narrower sources, as in add.f32.f16."""
    if kind.name in ("f16", "bf16") and m.left[-1:] == ["f32"]:
        return m.type("f32"), kind
    return kind, None


@emits("add", "sub")
def add(w: Writer, op: Op, m: Modifiers) -> None:
    kind = m.type(*integer.INTEGERS, "u16x2", "s16x2", *FLOATS)
    if kind.name not in FLOATS:
        integer.add_integers(w, op, m, kind)
        return
    m.operands(3)
    kind, narrow = mixed(m, kind)
    mode = m.one(*ROUNDINGS)
    sign, name = ("+", "np.add") if op.op == "add" else ("-", "np.subtract")
    function = rounded(mode, kind, name, f"({{}} {sign} {{}})")
    compute(w, m, kind, function, *op.operands, narrow=narrow)


@emits("mul")
def mul(w: Writer, op: Op, m: Modifiers) -> None:
    kind = m.type(*integer.INTEGERS, *FLOATS)
    if kind.name not in FLOATS:
        integer.multiply_integers(w, op, m, kind)
        return
    m.operands(3)
    mode = m.one(*ROUNDINGS)
    compute(w, m, kind, rounded(mode, kind, "np.multiply", "({} * {})"), *op.operands)


@emits("fma", "mad")
def fma(w: Writer, op: Op, m: Modifiers) -> None:
    names = FLOATS if op.op == "fma" else (*integer.INTEGERS, "f32", "f64")
    kind = m.type(*names)
    if kind.name not in FLOATS:
        integer.mad_integers(w, op, m, kind)
        return
    m.operands(4)
    kind, narrow = mixed(m, kind)
    mode = m.one(*ROUNDINGS)
    plain = {"f4": "N.fma32({}, {}, {})", "f2": "N.fma16({}, {}, {})"}
    text = plain.get(BASE[kind.name], "N.fma64({}, {}, {})")
    if kind.name in ("bf16", "bf16x2"):
        text = "(np.multiply({}, {}, dtype=f8) + {})"
    function = rounded(mode, kind, "(lambda a, b, c: a * b + c)", text)
    compute(w, m, kind, function, *op.operands, narrow=narrow)


@emits("div")
def div(w: Writer, op: Op, m: Modifiers) -> None:
    kind = m.type(*integer.INTEGERS, "f32", "f64")
    if kind.kind != "f":
        integer.divide_integers(w, op, m, kind)
        return
    m.operands(3)
    mode = m.one(*ROUNDINGS)
    if not mode and not m.flag("approx", "full"):
        raise m.error("one of approx, full, rn is missing")
    compute(w, m, kind, rounded(mode, kind, "np.divide", "({} / {})"), *op.operands)


@emits("rcp", "sqrt", "rsqrt")
def root(w: Writer, op: Op, m: Modifiers) -> None:
    kind = m.type("f32", "f64")
    m.operands(2)
    mode = m.one(*ROUNDINGS)
    if not mode and not m.flag("approx"):
        raise m.error("one of approx, rn is missing")
    one = w.constant(1, kind.code)
    plain = {"rcp": f"({one} / {{}})", "sqrt": "np.sqrt({})", "rsqrt": f"({one} / np.sqrt({{}}))"}
    name = {"rcp": "np.reciprocal", "sqrt": "np.sqrt"}.get(op.op, "lambda x: 1 / np.sqrt(x)")
    compute(w, m, kind, rounded(mode, kind, name, plain[op.op]), *op.operands)


TRANSCENDENTAL = {"ex2": "exp2", "lg2": "log2", "sin": "sin", "cos": "cos", "tanh": "tanh"}
HALF_TOO = ("ex2", "tanh")


@emits(*TRANSCENDENTAL)
def transcendental(w: Writer, op: Op, m: Modifiers) -> None:
    """The hardware's approximations are computed as well as numpy can."""
    small = ("f16", "f16x2", "bf16", "bf16x2") if op.op in HALF_TOO else ()
    kind = m.type("f32", *small)
    m.operands(2)
    if not m.flag("approx"):
        raise m.error("approx is missing")
    name = TRANSCENDENTAL[op.op]
    if BASE[kind.name] == "f2":
        text = f"np.{name}({{}}.astype(f4)).astype(f2)"
    else:
        text = f"np.{name}({{}})"
    compute(w, m, kind, text.format, *op.operands)


SIGN_BITS = {"bf16": 0x8000, "bf16x2": 0x80008000, "f16x2": 0x80008000}


@emits("neg", "abs")
def sign(w: Writer, op: Op, m: Modifiers) -> None:
    kind = m.type("s16", "s32", "s64", "f16", "f32", "f64", *SIGN_BITS)
    m.operands(2)
    d, a = op.operands
    if kind.name in SIGN_BITS:
        if m.flag("ftz") and kind.name != "f16x2":
            raise m.error("ftz is not for bf16")
        bits = SIGN_BITS[kind.name]
        x = w.source(a, kind.code)
        if op.op == "neg":
            w.write(d, f"{x} ^ {w.constant(bits, kind.code)}", kind.code)
        else:
            w.write(d, f"{x} & {w.constant(~bits & (1 << kind.bits) - 1, kind.code)}", kind.code)
        return
    text = "-{}" if op.op == "neg" else "np.abs({})"
    if kind.kind == "f":
        compute(w, m, kind, text.format, d, a)
        return
    w.write(d, text.format(w.source(a, kind.code)), kind.code)


@emits("min", "max")
def extreme(w: Writer, op: Op, m: Modifiers) -> None:
    kind = m.type(*integer.INTEGERS, "u16x2", "s16x2", *FLOATS[:-1])
    if kind.name not in FLOATS:
        integer.extreme_integers(w, op, m, kind)
        return
    m.operands(3, 4)
    nan, magnitude = m.flag("NaN"), m.flag("abs")
    if m.flag("xorsign"):
        raise m.error("xorsign is not known")
    names = {"min": ("np.fmin", "np.minimum"), "max": ("np.fmax", "np.maximum")}
    name = names[op.op][nan]

    def combine(*args: str) -> str:
        result = args[0] if not magnitude else f"np.abs({args[0]})"
        for x in args[1:]:
            result = f"{name}({result}, {f'np.abs({x})' if magnitude else x})"
        return result

    compute(w, m, kind, combine, *op.operands)


ORDERED = {"eq": "==", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
UNSIGNED = {"lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
UNORDERED = {"ltu": ">=", "leu": ">", "gtu": "<=", "geu": "<"}  # negations of these
COMPARISONS = (*ORDERED, "ne", *UNSIGNED, *UNORDERED, "equ", "neu", "num", "nan")


def comparison(m: Modifiers, name: str, x: str, y: str, real: bool) -> str:
    if name in ORDERED:
        return f"({x} {ORDERED[name]} {y})"
    if not real:
        if name == "ne":
            return f"({x} != {y})"
        if name in UNSIGNED:
            return f"({x} {UNSIGNED[name]} {y})"
        raise m.error(f".{name} is for floats")
    if name == "neu":
        return f"({x} != {y})"
    if name == "ne":
        return f"(({x} < {y}) | ({x} > {y}))"
    if name == "equ":
        return f"~(({x} < {y}) | ({x} > {y}))"
    if name in UNORDERED:
        return f"~({x} {UNORDERED[name]} {y})"
    if name == "nan":
        return f"(np.isnan({x}) | np.isnan({y}))"
    if name == "num":
        return f"~(np.isnan({x}) | np.isnan({y}))"
    raise m.error(f".{name} is for unsigned integers")


def compared(w: Writer, m: Modifiers, kind: Type, a: object, b: object) -> list[str]:
    """The comparison of an instruction; two of them for packed pairs."""
    name = m.one(*COMPARISONS)
    if not name:
        raise m.error("comparison missing")
    if kind.kind == "b" and name not in ("eq", "ne"):
        raise m.error(f".{name} of {kind.name}")
    if kind.name not in FLOATS:
        code = w.integer_code(kind, a, b) if name in ("eq", "ne") else kind.code
        if name in UNSIGNED:
            code = f"u{kind.size}"
        return [comparison(m, name, w.source(a, code), w.source(b, code), False)]
    flush = m.flag("ftz")
    rows = zip(lanes(w, kind, a), lanes(w, kind, b))
    pairs = [[f"N.ftz({x})" if flush else x for x in row] for row in rows]
    return [comparison(m, name, w.let(x), w.let(y), True) for x, y in pairs]


def combined(w: Writer, m: Modifiers, result: str, operand: object, mode: str) -> str:
    sign = {"and": "&", "or": "|", "xor": "^"}[mode]
    return f"{result} {sign} {w.predicate(operand)}"


@emits("setp")
def setp(w: Writer, op: Op, m: Modifiers) -> None:
    kind = m.type(*integer.WORDS, *integer.INTEGERS, *FLOATS[:-1])
    mode = m.one("and", "or", "xor")
    m.operands(4 if mode else 3)
    d = op.operands[0]
    p, q = (d.first, d.second) if isinstance(d, Pair) else (d, None)
    results = compared(w, m, kind, op.operands[1], op.operands[2])
    if len(results) == 1:
        result = results[0]
        negation = ""
        if q is not None:
            result = w.let(result)
            negation = f"~{result}"
    else:
        result, negation = w.let(results[0]), w.let(results[1])
        if q is None:
            raise m.error("packed comparisons need p|q")
    if mode:
        extra = w.let(w.predicate(op.operands[3]))
        sign = {"and": "&", "or": "|", "xor": "^"}[mode]
        result = f"{result} {sign} {extra}"
        negation = f"({negation}) {sign} {extra}"
    if q is not None:
        negation = w.let(negation)
    w.write(p, result, "b1")
    if q is not None:
        w.write(q, negation, "b1")


@emits("set")
def set_value(w: Writer, op: Op, m: Modifiers) -> None:
    source = m.type(*integer.WORDS, *integer.INTEGERS, "f16", "f32", "f64", "bf16")
    target = m.type("u16", "s16", "u32", "s32", "f16", "f32", "bf16")
    mode = m.one("and", "or", "xor")
    m.operands(4 if mode else 3)
    result = compared(w, m, source, op.operands[1], op.operands[2])[0]
    if mode:
        result = combined(w, m, result, op.operands[3], mode)
    if target.name == "bf16":
        yes, no = w.constant(0x3F80, "u2"), w.constant(0, "u2")
    else:
        one = 1.0 if target.kind == "f" else (-1 if target.kind == "s" else (1 << target.bits) - 1)
        yes, no = w.constant(one, target.code), w.constant(0, target.code)
    w.write(op.operands[0], f"select(({result}), {yes}, {no})", target.code)


@emits("selp")
def selp(w: Writer, op: Op, m: Modifiers) -> None:
    kind = m.type("pred", *integer.WORDS, *integer.INTEGERS, "f16", "f32", "f64", "bf16")
    m.operands(4)
    d, a, b, p = op.operands
    code = w.common_code(kind, a, b) if kind.kind in "bus" else kind.code
    x, y = w.source(a, code), w.source(b, code)
    w.write(d, f"select({w.predicate(p)}, {x}, {y})", code)


@emits("slct")
def slct(w: Writer, op: Op, m: Modifiers) -> None:
    by = m.type("s32", "f32")
    kind = m.type(*integer.WORDS, *integer.INTEGERS, "f32", "f64")
    m.operands(4)
    c = w.source(op.operands[3], by.code)
    if m.flag("ftz"):
        c = f"N.ftz({c})"
    x, y = w.source(op.operands[1], kind.code), w.source(op.operands[2], kind.code)
    zero = w.constant(0, by.code)
    w.write(op.operands[0], f"select(({c} >= {zero}), {x}, {y})", kind.code)


@emits("copysign")
def copysign(w: Writer, op: Op, m: Modifiers) -> None:
    kind = m.type("f32", "f64")
    m.operands(3)
    x, y = w.source(op.operands[1], kind.code), w.source(op.operands[2], kind.code)
    w.write(op.operands[0], f"np.copysign({y}, {x})", kind.code)


@emits("testp")
def testp(w: Writer, op: Op, m: Modifiers) -> None:
    kind = m.type("f32", "f64")
    m.operands(2)
    name = m.one("finite", "infinite", "number", "notanumber", "normal", "subnormal")
    x = w.source(op.operands[1], kind.code)
    w.write(op.operands[0], f"N.test_property({x}, {name!r})", "b1")
