"""Integer and logic instructions."""

from __future__ import annotations

from collections.abc import Callable

from .flow import Op
from .syntax import Int
from .types import Type
from .writer import Modifiers, Writer, emits

INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")
WORDS = ("b16", "b32", "b64")


def require_unguarded(w: Writer) -> None:
    if w.op.guard is not None:
        raise w.error("a guard on an instruction with a carry is not known")


def sources(w: Writer, code: str, *operands: object) -> list[str]:
    return [w.source(operand, code) for operand in operands]


def add_integers(w: Writer, op: Op, m: Modifiers, kind: Type) -> None:
    m.operands(3)
    d, a, b = op.operands
    sign = "+" if op.op == "add" else "-"
    if m.flag("sat"):
        if kind.name != "s32":
            raise m.error("sat is for s32")
        x, y = sources(w, "i4", a, b)
        w.write(d, f"N.add_saturated({x}, {y}, {sign}1)", "i4")
        return
    if kind.kind == "x":
        halves_of(w, kind, d, (a, b), lambda x, y: f"({x} {sign} {y})")
        return
    code = w.integer_code(kind, a, b)
    x, y = sources(w, code, a, b)
    if m.flag("cc"):
        add_with_carry(w, d, x, y, kind, sign, "", True)
        return
    w.write(d, f"{x} {sign} {y}", code)


def add_with_carry(
    w: Writer, d: object, x: str, y: str, kind: Type, sign: str, carry: str, out: bool
) -> None:
    """Carry (or borrow) is a predicate of its own, local to the block."""
    require_unguarded(w)
    code = f"u{kind.size}"
    x, y = w.let(f"{x}.view({code})"), w.let(f"{y}.view({code})")
    total = w.let(f"{x} {sign} {y}")
    lost = f"({total} < {x})" if sign == "+" else f"({x} < {y})"
    result = total
    if carry:
        result = w.let(f"{total} {sign} {carry}.astype({code})")
        second = f"({result} < {total})" if sign == "+" else f"({total} < {carry})"
        lost = f"{lost} | {second}"
    if out:
        w.emit(f"carry = {lost}")
        w.has_carry = True
    w.write(d, result, code)


@emits("addc", "subc")
def add_carried(w: Writer, op: Op, m: Modifiers) -> None:
    kind = m.type("u32", "s32", "u64", "s64")
    m.operands(3)
    d, a, b = op.operands
    x, y = sources(w, f"u{kind.size}", a, b)
    sign = "+" if op.op == "addc" else "-"
    add_with_carry(w, d, x, y, kind, sign, carry_in(w), m.flag("cc"))


def carry_in(w: Writer) -> str:
    if not w.has_carry:
        raise w.error("no carry was set before in this block")
    return "carry"


def wide_source(w: Writer, operand: object, kind: Type, wide: str) -> str:
    """A source of twice its size, extended as its type says."""
    if isinstance(operand, Int):
        value = operand.value & ((1 << kind.bits) - 1)
        if kind.kind == "s" and value >> (kind.bits - 1):
            value -= 1 << kind.bits
        return w.constant(value, wide)
    return f"{w.source(operand, kind.code)}.astype({wide})"


def product(w: Writer, m: Modifiers, kind: Type, a: object, b: object) -> tuple[str, str]:
    """The product of mul and mad, and its code."""
    part = m.one("lo", "hi", "wide")
    if part == "wide":
        if kind.size > 4:
            raise m.error("no wide product of 64 bits")
        wide = f"{kind.code[0]}{kind.size * 2}"
        x, y = (wide_source(w, operand, kind, wide) for operand in (a, b))
        return f"{x} * {y}", wide
    if part == "hi":
        x, y = sources(w, kind.code, a, b)
        return f"N.high_product({x}, {y})", kind.code
    if part == "lo":
        code = w.integer_code(kind, a, b)
        x, y = sources(w, code, a, b)
        return f"{x} * {y}", code
    raise m.error("one of lo, hi, wide is missing")


def multiply_integers(w: Writer, op: Op, m: Modifiers, kind: Type) -> None:
    m.operands(3)
    d, a, b = op.operands
    expression, code = product(w, m, kind, a, b)
    w.write(d, expression, code)


def mad_integers(w: Writer, op: Op, m: Modifiers, kind: Type) -> None:
    m.operands(4)
    d, a, b, c = op.operands
    carries, out = op.op == "madc", m.flag("cc")
    expression, code = product(w, m, kind, a, b)
    z = w.source(c, code)
    if not carries and not out:
        w.write(d, f"{expression} + {z}", code)
        return
    total = Type(kind.name, int(code[1]), kind.kind, code)
    carry = carry_in(w) if carries else ""
    add_with_carry(w, d, f"({expression})", z, total, "+", carry, out)


@emits("madc")
def mad_carried(w: Writer, op: Op, m: Modifiers) -> None:
    mad_integers(w, op, m, m.type("u32", "s32", "u64", "s64"))


@emits("mul24", "mad24")
def multiply24(w: Writer, op: Op, m: Modifiers) -> None:
    kind = m.type("u32", "s32")
    if not m.flag("lo"):
        raise m.error("only .lo is known")
    m.operands(3 if op.op == "mul24" else 4)
    code = kind.code
    eight = w.constant(8, code)
    x, y = (f"(({w.source(o, code)} << {eight}) >> {eight})" for o in op.operands[1:3])
    tail = f" + {w.source(op.operands[3], code)}" if op.op == "mad24" else ""
    w.write(op.operands[0], f"{x} * {y}{tail}", code)


@emits("sad")
def sum_of_differences(w: Writer, op: Op, m: Modifiers) -> None:
    kind = m.type(*INTEGERS)
    m.operands(4)
    x, y, z = sources(w, kind.code, *op.operands[1:])
    w.write(op.operands[0], f"{z} + np.where({x} < {y}, {y} - {x}, {x} - {y})", kind.code)


def divide_integers(w: Writer, op: Op, m: Modifiers, kind: Type) -> None:
    m.operands(3)
    x, y = sources(w, kind.code, *op.operands[1:])
    name = "quotient" if op.op == "div" else "remainder"
    w.write(op.operands[0], f"N.{name}({x}, {y})", kind.code)


@emits("rem")
def rem(w: Writer, op: Op, m: Modifiers) -> None:
    divide_integers(w, op, m, m.type(*INTEGERS))


@emits("and", "or", "xor")
def logic(w: Writer, op: Op, m: Modifiers) -> None:
    kind = m.type("pred", *WORDS)
    m.operands(3)
    d, a, b = op.operands
    code = "b1" if kind.kind == "p" else w.integer_code(kind, a, b)
    x, y = sources(w, code, a, b)
    sign = {"and": "&", "or": "|", "xor": "^"}[op.op]
    w.write(d, f"{x} {sign} {y}", code)


@emits("not")
def invert(w: Writer, op: Op, m: Modifiers) -> None:
    kind = m.type("pred", *WORDS)
    m.operands(2)
    code = "b1" if kind.kind == "p" else w.integer_code(kind, op.operands[1])
    w.write(op.operands[0], f"~{w.source(op.operands[1], code)}", code)


@emits("cnot")
def invert_whole(w: Writer, op: Op, m: Modifiers) -> None:
    kind = m.type(*WORDS)
    m.operands(2)
    x = w.source(op.operands[1], kind.code)
    w.write(op.operands[0], f"({x} == {w.constant(0, kind.code)}).astype({kind.code})", kind.code)


@emits("shl", "shr")
def shift(w: Writer, op: Op, m: Modifiers) -> None:
    """numpy shifts by too much as PTX does: to zero, or to the sign."""
    kind = m.type(*WORDS) if op.op == "shl" else m.type(*WORDS, *INTEGERS)
    m.operands(3)
    d, a, b = op.operands
    code = w.integer_code(kind, a) if op.op == "shl" else kind.code
    x = w.source(a, code)
    if isinstance(b, Int):
        y = w.constant(min(b.value & 0xFFFFFFFF, 64), code)
    else:
        y = w.source(b, "u4")
        y = f"{y}.view({code})" if kind.size == 4 else f"{clamped(w, y, kind)}.astype({code})"
    sign = "<<" if op.op == "shl" else ">>"
    w.write(d, f"{x} {sign} {y}", code)


def clamped(w: Writer, y: str, kind: Type) -> str:
    return f"np.minimum({y}, {w.constant(64, 'u4')})" if kind.size < 4 else y


@emits("shf")
def funnel(w: Writer, op: Op, m: Modifiers) -> None:
    m.type("b32")
    m.operands(4)
    left, wrap = m.one("l", "r") == "l", m.one("wrap", "clamp") == "wrap"
    x, y, z = sources(w, "u4", *op.operands[1:])
    w.write(op.operands[0], f"N.funnel({x}, {y}, {z}, {left}, {wrap})", "u4")


@emits("lop3")
def lookup(w: Writer, op: Op, m: Modifiers) -> None:
    m.type("b32")
    m.operands(5)
    table = op.operands[4]
    if not isinstance(table, Int):
        raise m.error("the table must be a number")
    x, y, z = sources(w, "u4", *op.operands[1:4])
    w.write(op.operands[0], f"N.lookup3({x}, {y}, {z}, {table.value & 255})", "u4")


@emits("prmt")
def permute(w: Writer, op: Op, m: Modifiers) -> None:
    mode = m.one("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")
    if m.one("f4e", "b4e", "rc8", "ecl", "ecr", "rc16"):
        raise m.error("two modes")
    m.skip("b32")
    m.operands(4)
    x, y, z = sources(w, "u4", *op.operands[1:])
    w.write(op.operands[0], f"N.permute({x}, {y}, {z}, {mode!r})", "u4")


@emits("bfe")
def extract(w: Writer, op: Op, m: Modifiers) -> None:
    kind = m.type("u32", "s32", "u64", "s64")
    m.operands(4)
    x = w.source(op.operands[1], kind.code)
    y, z = sources(w, "u4", *op.operands[2:])
    w.write(op.operands[0], f"N.extract_field({x}, {y}, {z})", kind.code)


@emits("bfi")
def insert(w: Writer, op: Op, m: Modifiers) -> None:
    kind = m.type("b32", "b64")
    m.operands(5)
    a, b = sources(w, kind.code, *op.operands[1:3])
    y, z = sources(w, "u4", *op.operands[3:])
    w.write(op.operands[0], f"N.insert_field({a}, {b}, {y}, {z})", kind.code)


@emits("bmsk")
def mask(w: Writer, op: Op, m: Modifiers) -> None:
    m.type("b32")
    m.operands(3)
    clamp = m.one("clamp", "wrap") == "clamp"
    x, y = sources(w, "u4", *op.operands[1:])
    w.write(op.operands[0], f"N.make_mask({x}, {y}, {clamp})", "u4")


@emits("szext")
def extend(w: Writer, op: Op, m: Modifiers) -> None:
    kind = m.type("u32", "s32")
    m.operands(3)
    clamp = m.one("clamp", "wrap") == "clamp"
    x, y = w.source(op.operands[1], kind.code), w.source(op.operands[2], "u4")
    w.write(op.operands[0], f"N.sign_extend_at({x}, {y}, {clamp})", kind.code)


@emits("popc", "clz", "brev", "bfind")
def count_bits(w: Writer, op: Op, m: Modifiers) -> None:
    kind = m.type("u32", "s32", "u64", "s64") if op.op == "bfind" else m.type("b32", "b64")
    m.operands(2)
    x = w.source(op.operands[1], kind.code)
    d = op.operands[0]
    if op.op == "popc":
        w.write(d, f"np.bitwise_count({x}).astype(u4)", "u4")
    elif op.op == "clz":
        w.write(d, f"N.leading_zeros({x})", "u4")
    elif op.op == "brev":
        w.write(d, f"N.reverse_bits({x})", kind.code)
    else:
        w.write(d, f"N.find_leading({x}, {m.flag('shiftamt')})", "u4")


@emits("dp4a", "dp2a")
def dot(w: Writer, op: Op, m: Modifiers) -> None:
    kind_b = m.type("u32", "s32")
    kind_a = m.type("u32", "s32")
    m.operands(4)
    high = op.op == "dp2a" and m.one("lo", "hi") == "hi"
    signed = kind_a.kind == "s", kind_b.kind == "s"
    code = "i4" if "s" in (kind_a.kind, kind_b.kind) else "u4"
    a, b = sources(w, "u4", *op.operands[1:3])
    b = f"({b} >> {w.constant(16, 'u4')})" if high else b
    c = w.source(op.operands[3], code)
    parts = 4 if op.op == "dp4a" else 2
    w.write(op.operands[0], f"N.dot({a}, {b}, {c}, {signed[0]}, {signed[1]}, {parts})", code)


def halves_of(
    w: Writer,
    kind: Type,
    d: object,
    operands: tuple[object, ...],
    combine: Callable[[str, str], str],
) -> None:
    """u16x2 and s16x2: the same on both halves."""
    code = {"u16x2": "u2", "s16x2": "i2"}[kind.name]
    pairs = [w.let(f"N.halves({w.source(o, 'u4')}, {code!r})") for o in operands]
    low, high = (combine(*(f"{p}[{k}]" for p in pairs)) for k in (0, 1))
    w.write(d, f"N.join({low}, {high})", "u4")


def extreme_integers(w: Writer, op: Op, m: Modifiers, kind: Type) -> None:
    m.operands(3)
    name = "np.minimum" if op.op == "min" else "np.maximum"
    relu = m.flag("relu")
    if kind.kind == "x":
        text = f"N.relu({name}({{}}, {{}}))" if relu else f"{name}({{}}, {{}})"
        halves_of(w, kind, op.operands[0], op.operands[1:], text.format)
        return
    x, y = sources(w, kind.code, *op.operands[1:])
    result = f"{name}({x}, {y})"
    w.write(op.operands[0], f"N.relu({result})" if relu else result, kind.code)
