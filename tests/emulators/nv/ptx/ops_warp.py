"""Barriers, operations between lanes, matrix instructions.

Each of them is the first of its block: the scheduler has waited for the other threads already.
"""

from __future__ import annotations

from . import matrix
from .flow import Op
from .ops_memory import address
from .syntax import Pair, Vector
from .types import TYPES
from .writer import Modifiers, Writer, emits


@emits("bar", "barrier")
def barrier(w: Writer, op: Op, m: Modifiers) -> None:
    if m.flag("warp"):
        if not m.flag("sync"):
            raise m.error("only bar.warp.sync is known")
        m.operands(1)
        return
    m.skip("cta", "aligned")
    if m.flag("sync"):
        m.operands(1, 2)
        return
    if not m.flag("red"):
        raise m.error("only sync and red are known")
    kind = m.one("popc", "and", "or")
    target = m.type("u32", "pred")
    if (kind == "popc") != (target.name == "u32"):
        raise m.error("type")
    m.operands(3, 4)
    p = w.predicate(op.operands[-1])
    code = "u4" if kind == "popc" else "b1"
    w.write(op.operands[0], f"B.block_vote({kind!r}, {p}, t)", code)


def result_pair(operand: object) -> tuple[object, object | None]:
    if isinstance(operand, Pair):
        return operand.first, operand.second
    return operand, None


def write_both(w: Writer, d: object, found: str, code: str, p: object | None) -> None:
    w.write(d, f"{found}[0]", code)
    if p is not None:
        w.write(p, f"{found}[1]", "b1")


def synced(m: Modifiers) -> None:
    if not m.flag("sync"):
        raise m.error("only the .sync form is known")


@emits("shfl")
def shfl(w: Writer, op: Op, m: Modifiers) -> None:
    synced(m)
    m.type("b32")
    m.operands(5)
    mode = m.one("up", "down", "bfly", "idx")
    d, p = result_pair(op.operands[0])
    x = w.word(op.operands[1], 4)
    y, z = (w.source(operand, "u4") for operand in op.operands[2:4])
    found = w.let(f"W.shuffle(B, {x}, {y}, {z}, {mode!r}, t)")
    write_both(w, d, found, "u4", p)


@emits("vote")
def vote(w: Writer, op: Op, m: Modifiers) -> None:
    synced(m)
    m.operands(3)
    mode = m.one("all", "any", "uni", "ballot")
    target = m.type("b32" if mode == "ballot" else "pred")
    p, mask = w.predicate(op.operands[1]), w.source(op.operands[2], "u4")
    w.write(op.operands[0], f"W.vote(B, {p}, {mode!r}, {mask}, t)", target.code)


@emits("activemask")
def activemask(w: Writer, op: Op, m: Modifiers) -> None:
    m.type("b32")
    m.operands(1)
    w.write(op.operands[0], "W.ballot(B, true, t)", "u4")


@emits("match")
def match(w: Writer, op: Op, m: Modifiers) -> None:
    mode = m.one("any", "all")
    synced(m)
    kind = m.type("b32", "b64")
    m.operands(3)
    d, p = result_pair(op.operands[0])
    x, mask = w.source(op.operands[1], kind.code), w.source(op.operands[2], "u4")
    write_both(w, d, w.let(f"W.match(B, {x}, {mode!r}, {mask}, t)"), "u4", p)


@emits("redux")
def redux(w: Writer, op: Op, m: Modifiers) -> None:
    synced(m)
    operation = m.one("add", "min", "max", "and", "or", "xor")
    logic = operation in ("and", "or", "xor")
    kind = m.type("b32") if logic else m.type("u32", "s32")
    m.operands(3)
    x = w.source(op.operands[1], kind.code)
    w.write(op.operands[0], f"W.reduce_lanes(B, {x}, {operation!r}, t)", kind.code)


@emits("elect")
def elect(w: Writer, op: Op, m: Modifiers) -> None:
    synced(m)
    m.operands(2)
    d, p = result_pair(op.operands[0])
    write_both(w, d, w.let("W.elect(B, t)"), "u4", p)


MMA_RESULTS = {
    "f16": ("f16", "f32"), "bf16": ("f32",), "tf32": ("f32",), "s8": ("s32",), "u8": ("s32",),
    "e4m3": ("f16", "f32"), "e5m2": ("f16", "f32"), "f64": ("f64",),
}  # fmt: skip


@emits("mma")
def mma(w: Writer, op: Op, m: Modifiers) -> None:
    synced(m)
    if not (m.flag("aligned") and m.flag("row") and m.flag("col")):
        raise m.error("only mma.sync.aligned with .row.col is known")
    shape = next((name for name in m.left if name.startswith(("m16n8k", "m8n8k"))), "")
    m.one(shape)
    m.flag("kind::f8f6f4")
    saturated = m.flag("satfinite")
    names = tuple(m.left)
    m.left = []
    if len(names) != 4:
        raise m.error("four types are expected")
    d, a, b, c = names
    pairs = ({"s8", "u8"}, {"e4m3", "e5m2"})
    alike = a == b or any({a, b} <= pair for pair in pairs)
    known = shape in matrix.SHAPES.get(a, ()) and alike and d in MMA_RESULTS[a]
    if not known or c not in MMA_RESULTS[a] or (d != c and "f16" not in (d, c)):
        raise m.error("this combination of shape and types is not known")
    m.operands(4)
    values = [
        registers(w, op.operands[1], matrix.a_registers(shape, a), a),
        registers(w, op.operands[2], matrix.b_registers(shape, b), b),
        registers(w, op.operands[3], matrix.c_registers(shape, c), c),
    ]
    text = ", ".join(values)
    found = w.let(f"X.multiply(B, {shape!r}, {names!r}, {text}, {saturated}, t)")
    results = op.operands[0]
    code = {"f16": "u4", "s32": "i4", "f32": "f4", "f64": "f8"}[d]
    if not isinstance(results, Vector) or len(results.items) != matrix.c_registers(shape, d):
        raise m.error("number of results")
    for number, item in enumerate(results.items):
        w.write(item, f"{found}[{number}]", code)


def registers(w: Writer, operand: object, count: int, kind: str) -> str:
    if kind in ("f64", "s32", "f32"):
        code = TYPES[kind].code
    else:
        code = "u4"
    if not isinstance(operand, Vector) or len(operand.items) != count:
        raise w.error(f"{count} registers are expected")
    return f"({', '.join(w.source(item, code) for item in operand.items)},)"


@emits("ldmatrix", "stmatrix")
def matrices(w: Writer, op: Op, m: Modifiers) -> None:
    synced(m)
    m.type("b16")
    if not (m.flag("aligned") and m.flag("m8n8")):
        raise m.error("only .sync.aligned.m8n8 is known")
    count = int((m.one("x1", "x2", "x4") or "x0")[1:])
    transposed = m.flag("trans")
    shared = m.one("shared", "shared::cta")
    m.operands(2)
    loads = op.op == "ldmatrix"
    values, at = op.operands if loads else reversed(op.operands)
    if not isinstance(values, Vector) or len(values.items) != count:
        raise m.error(f"{count} registers are expected")
    space = "B.shared" if shared else "B.generic"
    where = address(w, at, space)
    if loads:
        text = f"X.load_matrices(B, {space}, {where}, {count}, {transposed}, t, {op.line})"
        found = w.let(text)
        for number, item in enumerate(values.items):
            w.write(item, f"{found}[{number}]", "u4")
        return
    sources = ", ".join(w.source(item, "u4") for item in values.items)
    w.emit(f"X.store_matrices(B, {space}, {where}, ({sources},), {transposed}, t, {op.line})")
