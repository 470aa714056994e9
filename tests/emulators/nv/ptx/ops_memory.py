"""Moves, loads, stores, atomics, and what concerns addresses."""

from __future__ import annotations

from .flow import Negated, Op, Register, Special, Symbol
from .ops_integer import INTEGERS, WORDS
from .syntax import Address, Int, Vector
from .types import DTYPES, Type, unsigned
from .writer import Modifiers, Writer, emits

MEMORY_TYPES = ("b8", "u8", "s8", *WORDS, *INTEGERS, "b128", "f16", "f32", "f64")
SPACES = {
    "global": "B.outer", "const": "B.outer", "shared": "B.shared", "shared::cta": "B.shared",
    "shared::cluster": "B.shared", "local": "B.local", "": "B.generic", "param": "B.parameters",
    "param::entry": "B.parameters", "param::func": "B.local",
}  # fmt: skip
SCOPES = ("cta", "cluster", "gpu", "sys")
CACHE_HINTS = (
    "ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc",
    "L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last",
    "L1::no_allocate", "L2::evict_normal", "L2::evict_first", "L2::evict_last",
    "L2::64B", "L2::128B", "L2::256B",
)  # fmt: skip


@emits("mov")
def mov(w: Writer, op: Op, m: Modifiers) -> None:
    kind = m.type("pred", *WORDS, *INTEGERS, "b128", "f16", "f32", "f64", "bf16", "f16x2")
    m.operands(2)
    d, a = op.operands
    if isinstance(a, Vector):
        if kind.kind == "p" or isinstance(d, Vector):
            raise m.error("operands")
        parts = ", ".join(w.word(item, kind.size // len(a.items)) for item in a.items)
        code = unsigned(kind.size)
        w.write(d, f"N.pack(({parts}), {kind.size})", code)
    elif isinstance(d, Vector):
        size = kind.size // len(d.items)
        parts = w.let(f"N.unpack({w.word(a, kind.size)}, {len(d.items)})")
        write_vector(w, d, parts, unsigned(size))
    elif kind.kind == "p":
        w.write(d, w.predicate(a), "b1")
    else:
        code = w.common_code(kind, a) if isinstance(a, Register) else kind.code
        w.write(d, w.source(a, code), code)


def write_vector(w: Writer, d: Vector, parts: str, code: str) -> None:
    for number, item in enumerate(d.items):
        w.write_sized(item, f"{parts}[{number}]", code)


def space_of(w: Writer, m: Modifiers, address: Address) -> str:
    """The expression of the space that an access goes to."""
    space = m.one(*SPACES)
    if isinstance(address.base, Symbol):
        own = address.base.space
        if space.startswith("param") and own in ("local", "param"):
            # the parameters of calls live in local memory
            return SPACES[own]
        if space and SPACES[space] != SPACES[own]:
            raise m.error(f"{address.base.name} is in .{own}")
        return SPACES[own]
    return SPACES[space]


def address(w: Writer, operand: object, space: str) -> str:
    """The address as an unsigned expression."""
    if not isinstance(operand, Address):
        raise w.error("an address is expected")
    base, offset = operand.base, operand.offset
    if isinstance(base, Register):
        small = base.type.size == 4 and space not in ("B.outer", "B.generic")
        code = "u4" if small else "u8"
        text = w.read(base, code)
        return f"{text} + {w.constant(offset % (1 << int(code[1]) * 8), code)}" if offset else text
    if isinstance(base, Symbol):
        if base.space in ("global", "const"):
            return f"B.symbol({base.name!r}, {w.op.line}) + {w.constant(offset % 2**64, 'u8')}"
        return w.constant(w.offset_of(base) + offset, "u8")
    if isinstance(base, Int):
        return w.constant(base.value + offset, "u8")
    raise w.error("an address is expected")


def access(w: Writer, m: Modifiers, operand: object) -> tuple[str, str]:
    """Space and address, with all the hints that have no effect taken away."""
    if not isinstance(operand, Address):
        raise m.error("an address is expected")
    if m.one("relaxed", "acquire", "release", "acq_rel"):
        m.one(*SCOPES)
    m.one("volatile", "weak")
    m.skip(*CACHE_HINTS)
    space = space_of(w, m, operand)
    return space, address(w, operand, space)


def vector_width(w: Writer, m: Modifiers, operand: object) -> int:
    width = int((m.one("v2", "v4", "v8") or "v1")[1:])
    found = len(operand.items) if isinstance(operand, Vector) else 1
    if found != width:
        raise m.error(f"{found} values, not {width}")
    return width


def hinted(m: Modifiers, op: Op) -> tuple[object, ...]:
    """The operands without a cache policy, which is a hint."""
    if m.flag("L2::cache_hint"):
        return op.operands[:-1]
    return op.operands


@emits("ld", "ldu")
def load(w: Writer, op: Op, m: Modifiers) -> None:
    kind = m.type(*MEMORY_TYPES)
    operands = hinted(m, op)
    if len(operands) != 2:
        raise m.error("operands")
    d, a = operands
    width = vector_width(w, m, d)
    space, at = access(w, m, a)
    code = kind.code
    if op.guard is not None:
        guarded_load(w, kind, d, space, at)
    elif width > 1:
        assert isinstance(d, Vector)
        found = w.let(f"{space}.load_vector({at}, {code!r}, {width}, t, {op.line})")
        write_vector(w, d, found, code)
    elif space == "B.parameters" and at in w.namespace:
        w.write_sized(d, f"B.parameter({int(w.namespace[at])}, {code!r}, {op.line})", code)
    else:
        w.write_sized(d, f"{space}.load({at}, {code!r}, t, {op.line})", code)


def guarded_load(w: Writer, kind: Type, d: object, space: str, at: str) -> None:
    """Threads without the guard keep what they had, so the write itself needs no guard."""
    items = list(d.items) if isinstance(d, Vector) else [d]
    olds, codes = [], []
    for item in items:
        if isinstance(item, Special):  # _
            codes.append(kind.code)
            olds.append(w.constant(0, kind.code))
            continue
        if not isinstance(item, Register) or item.type.size < kind.size:
            raise w.error("a register that is large enough is expected")
        wide = kind.code if item.type.size == kind.size else f"{kind.code[0]}{item.type.size}"
        if wide not in DTYPES or (item.type.size != kind.size and wide[0] not in "iu"):
            raise w.error(f"{item.name} is a .{item.type.name}")
        codes.append(wide)
        olds.append(w.read(item, wide))
    values = f"({', '.join(olds)},)"
    line = w.op.line
    text = f"{space}.guarded_load({w.guard()}, {values}, {at}, {kind.code!r}, t, {line})"
    found = w.let(text)
    for number, (item, code) in enumerate(zip(items, codes)):
        if isinstance(item, Register):
            name = f"r{item.index}{code}"
            w.emit(f"{name} = {found}[{number}]")
            w.set(item, name, code)


@emits("st")
def store(w: Writer, op: Op, m: Modifiers) -> None:
    kind = m.type(*MEMORY_TYPES)
    operands = hinted(m, op)
    if len(operands) != 2:
        raise m.error("operands")
    a, value = operands
    width = vector_width(w, m, value)
    space, at = access(w, m, a)
    code = kind.code
    items = value.items if isinstance(value, Vector) else (value,)
    values = [w.source_sized(item, code) for item in items]
    if op.guard is not None:
        text = f"{space}.guarded_store({w.guard()}, {at}, ({', '.join(values)},), {code!r}"
    elif width > 1:
        text = f"{space}.store_vector({at}, ({', '.join(values)}), {code!r}"
    else:
        text = f"{space}.store({at}, {values[0]}, {code!r}"
    w.emit(f"{text}, t, {op.line})")


ATOMIC_TYPES = (
    "b16", "b32", "b64", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "f16x2", "bf16x2",
)  # fmt: skip


@emits("atom", "red")
def atomic(w: Writer, op: Op, m: Modifiers) -> None:
    kind = m.type(*ATOMIC_TYPES)
    operands = list(hinted(m, op))
    d = operands.pop(0) if op.op == "atom" else None
    name = m.one("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")
    m.flag("noftz")
    if len(operands) != (3 if name == "cas" else 2):
        raise m.error("operands")
    check_atomic(m, name, kind)
    space, at = access(w, m, operands[0])
    code = kind.code
    values = [w.source(operand, code) for operand in operands[1:]]
    c = values[1] if name == "cas" else values[0]
    want = d is not None and not (isinstance(d, Special) and d.name == "_")
    p = w.guard() if op.guard is not None else "None"
    old = w.read(d, code) if isinstance(d, Register) and op.guard is not None else "None"
    text = (
        f"atomic({space}, {name!r}, {kind.name!r}, {code!r}, {want}, {p}, {at}, "
        f"{values[0]}, {c}, {old}, t, B.count(t), {op.line})"
    )
    if not want:
        w.emit(text)
        return
    if not isinstance(d, Register) or d.type.size != kind.size:
        raise m.error("a register of the same size is expected")
    variable = f"r{d.index}{code}"
    w.emit(f"{variable} = {text}")
    w.set(d, variable, code)


def check_atomic(m: Modifiers, name: str, kind: Type) -> None:
    allowed = {
        "exch": WORDS, "cas": WORDS, "inc": ("u32",), "dec": ("u32",),
        "and": WORDS[1:], "or": WORDS[1:], "xor": WORDS[1:],
        "min": ("u32", "s32", "u64", "s64", "f16", "f16x2", "bf16", "bf16x2", "f32"),
    }  # fmt: skip
    allowed["max"] = allowed["min"]
    allowed["add"] = ("u32", "s32", "u64", *ATOMIC_TYPES[7:])
    if kind.name not in allowed.get(name, ()):
        raise m.error(f"no atomic {name or '?'} of {kind.name}")


WINDOWS = {"shared": "B.shared_window", "local": "B.local_window", "param": "B.param_window"}


@emits("cvta")
def convert_address(w: Writer, op: Op, m: Modifiers) -> None:
    m.type("u64", "b64")
    m.operands(2)
    back = m.flag("to")
    space = m.one(*SPACES).split("::")[0]
    x = w.source(op.operands[1], "u8")
    if space in WINDOWS:
        x = f"{x} {'-' if back else '+'} {WINDOWS[space]}"
    elif space not in ("global", "const"):
        raise m.error("space missing")
    w.write(op.operands[0], x, "u8")


@emits("isspacep")
def is_in_space(w: Writer, op: Op, m: Modifiers) -> None:
    m.operands(2)
    space = m.one(*SPACES).split("::")[0]
    x = w.source(op.operands[1], "u8")
    w.write(op.operands[0], f"B.in_space({x}, {space!r})", "b1")


@emits("mapa")
def map_to_cluster(w: Writer, op: Op, m: Modifiers) -> None:
    raise m.error("clusters are not known")


@emits("prefetch", "prefetchu")
def prefetch(w: Writer, op: Op, m: Modifiers) -> None:
    """A hint: the address is not even read."""
    m.operands(1)
    m.skip("global", "local", "L1", "L2", "L2::evict_last", "L2::evict_normal")


FENCES = ("cta", "gl", "sys", "gpu", "cluster", "sc", "acq_rel", "acquire", "release", "proxy")
PROXIES = ("alias", "async", "async.global", "global", "shared::cta", "generic", "tensormap")


@emits("membar", "fence")
def fence(w: Writer, op: Op, m: Modifiers) -> None:
    """Everything is in order already: each instruction ends before the next one starts."""
    m.operands(0)
    m.skip(*FENCES, *PROXIES)


@emits("griddepcontrol")
def grid_dependency(w: Writer, op: Op, m: Modifiers) -> None:
    """Kernels run one after the other."""
    m.operands(0)
    m.skip("wait", "launch_dependents")


@emits("nanosleep")
def sleep(w: Writer, op: Op, m: Modifiers) -> None:
    m.type("u32")
    m.operands(1)


@emits("cp")
def copy_async(w: Writer, op: Op, m: Modifiers) -> None:
    """cp.async: copies at once, so that waiting is nothing."""
    if not m.flag("async"):
        raise m.error("only cp.async is known")
    if m.one("commit_group", "wait_all"):
        m.operands(0)
        return
    if m.one("wait_group"):
        m.operands(1)
        return
    kind = m.one("ca", "cg")
    spaces = [name for name in m.left if name in SPACES]
    m.left = [name for name in m.left if name not in SPACES]
    m.skip(*CACHE_HINTS)
    operands = hinted(m, op)
    if spaces not in (["shared", "global"], ["shared::cta", "global"]) or not kind:
        raise m.error("only copies from global to shared memory are known")
    size = operands[2] if len(operands) in (3, 4) else None
    if not isinstance(size, Int) or size.value not in ((4, 8, 16) if kind == "ca" else (16,)):
        raise m.error("size of the copy")
    to, source = address(w, operands[0], "B.shared"), address(w, operands[1], "B.outer")
    count = w.source(operands[3], "u4") if len(operands) == 4 else "None"
    if isinstance(operands[-1], Negated):
        raise m.error("operands")
    w.emit(f"B.copy_async({to}, {source}, {size.value}, {count}, t, {op.line})")
