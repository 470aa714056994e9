"""Basic blocks to Python functions: the text of one numpy call after the other.

`full(B, R)` runs a block for all threads of batch B, `part(B, R, t)` for some of them; R are the
registers between blocks. Within a block registers are local variables, one for each numpy type
that the register has been looked at as. Both return the number of the next block, or pairs of
block and threads where they part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import matrix, numbers, warps
from .atomics import atomic
from .faults import PtxError
from .flow import Block, Flow, Negated, Op, Register, Special, Symbol, Target
from .memory import Threads
from .syntax import Float, Int
from .types import DTYPES, TYPES, Type, size_of, unsigned

EXIT = -1
Emitter = Callable[["Writer", "Op", "Modifiers"], None]
EMITTERS: dict[str, Emitter] = {}


def emits(*names: str) -> Callable[[Emitter], Emitter]:
    """Registers the function that writes these instructions."""

    def register(function: Emitter) -> Emitter:
        for name in names:
            EMITTERS[name] = function
        return function

    return register


class Modifiers:
    """The modifiers of an instruction; what nobody has taken is an error."""

    def __init__(self, op: Op) -> None:
        self.op = op
        self.left = list(op.modifiers)

    def error(self, message: str) -> PtxError:
        return PtxError(f"{self.op}: {message}", self.op.line)

    def flag(self, *names: str) -> bool:
        return bool(self.one(*names))

    def one(self, *names: str) -> str:
        """The one of these that is there, or ''."""
        for name in self.left:
            if name in names:
                self.left.remove(name)
                return name
        return ""

    def skip(self, *names: str) -> None:
        """These have no effect on what is computed."""
        self.left = [m for m in self.left if m not in names]

    def type(self, *names: str) -> Type:
        """The type at the end; one of `names` if there are any."""
        name = self.left.pop() if self.left else ""
        if name not in TYPES or (names and name not in names):
            raise self.error(f"type {name or 'missing'}")
        return TYPES[name]

    def operands(self, *counts: int) -> int:
        if len(self.op.operands) not in counts:
            raise self.error(f"{len(self.op.operands)} operands")
        return len(self.op.operands)

    def end(self) -> None:
        if self.left:
            raise self.error(f"modifier .{self.left[0]} is not known here")


WIDE_SPECIALS = {"clock64", "globaltimer", "gridid"}
CLOCKS = {"clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi"}


def cast(name: str, own: str, code: str) -> str:
    """An integer expression as another integer type."""
    if own == code:
        return name
    return f"{name}.view({code})" if own[1] == code[1] else f"{name}.astype({code})"


# --- what generated code calls


def gather(x: Any, t: Any) -> Any:
    return x[t] if x.ndim else x


def scatter(B: Any, R: list[Any], index: int, x: Any, t: Any) -> None:
    """Values of some threads into a register; the array may be shared, so it is a new one."""
    old = R[index]
    fresh = old.copy() if old.ndim else np.full(B.n, old)
    fresh[t] = x
    R[index] = fresh


def split(p: Any, taken: int, other: int, t: Threads) -> Any:
    """Where the threads go after a branch: one block, or pairs of block and threads."""
    count = int(np.count_nonzero(p))
    if count == 0:
        return other
    if count == p.size:
        return taken
    if t is None:
        return ((taken, np.flatnonzero(p)), (other, np.flatnonzero(~p)))
    return ((taken, t[p]), (other, t[~p]))


def split_by_index(index: Any, blocks: tuple[int, ...], B: Any, t: Threads, line: int) -> Any:
    """brx.idx"""
    places = np.arange(B.n) if t is None else t
    index = np.broadcast_to(index, places.shape)
    if int(index.max()) >= len(blocks):
        raise B.illegal("brx.idx beyond its targets", int(index.argmax()), t, line)
    groups: dict[int, list[Any]] = {}
    for value in np.unique(index):
        groups.setdefault(blocks[value], []).append(places[index == value])
    return tuple((block, np.sort(np.concatenate(g))) for block, g in groups.items())


NAMESPACE: dict[str, Any] = {
    "np": np, "N": numbers, "W": warps, "X": matrix, "G": gather, "P": scatter,
    "split": split, "split_by_index": split_by_index, "atomic": atomic, "select": numbers.select,
    "true": np.bool_(True), **DTYPES,
}  # fmt: skip


class Writer:
    """Writes the functions of one block."""

    def __init__(self, flow: Flow, block: Block, constants: dict[Any, str], space: dict[str, Any]):
        self.flow = flow
        self.block = block
        self.constants = constants
        self.namespace = space  # of the kernel: its constants
        self.lines: list[str] = []
        self.loads: dict[int, None] = {}  # registers that come from R, in order
        self.held: dict[int, dict[str, str]] = {}  # register: code: variable
        self.current: dict[int, str] = {}  # register: the code that it was written as
        self.written: dict[int, None] = {}
        self.temporaries = 0
        self.has_carry = False
        self.specials: dict[str, str] = {}
        self.op: Op = block.ops[0]

    def error(self, message: str) -> PtxError:
        return PtxError(f"{self.op}: {message}", self.op.line)

    def emit(self, line: str) -> None:
        self.lines.append(line)

    def fresh(self) -> str:
        self.temporaries += 1
        return f"x{self.temporaries}"

    def let(self, expression: str) -> str:
        """A variable for an expression that is used twice."""
        name = self.fresh()
        self.emit(f"{name} = {expression}")
        return name

    def constant(self, value: Any, code: str) -> str:
        dtype = DTYPES[code]
        number = dtype.type(value)
        key = (code, number.tobytes())
        if key not in self.constants:
            self.constants[key] = f"c{len(self.constants)}"
            self.namespace[self.constants[key]] = number
        return self.constants[key]

    # --- reading

    def read(self, register: Register, code: str) -> str:
        """The variable that holds a register, looked at as this numpy type."""
        if size_of(code) != register.type.size or (code == "b1") != (register.type.kind == "p"):
            raise self.error(f"{register.name} is a .{register.type.name}")
        index = register.index
        if index not in self.held:
            own = self.flow.codes[index]
            self.loads[index] = None
            self.held[index] = {own: f"r{index}{own}"}
            self.current[index] = own
        held = self.held[index]
        if code not in held:
            name = f"r{index}{code}"
            self.emit(f"{name} = {held[self.current[index]]}.view({code})")
            held[code] = name
        return held[code]

    def source(self, operand: object, code: str) -> str:
        """An operand as an expression of this numpy type."""
        if isinstance(operand, Register):
            return self.read(operand, code)
        if isinstance(operand, Int):
            return self.integer(operand.value, code)
        if isinstance(operand, Float):
            return self.floating(operand, code)
        if isinstance(operand, Special):
            return self.special(operand.name, code)
        if isinstance(operand, Symbol):
            return self.address_of(operand, code)
        if isinstance(operand, Negated):
            return f"~{self.source(operand.register, code)}"
        raise self.error("operand of another kind expected")

    def integer(self, value: int, code: str) -> str:
        if code == "b1":
            return self.constant(bool(value), code)
        if code in ("f4", "f8"):
            raise self.error("an integer where a float is expected")
        size = size_of(code)
        # of a value that is too large for the type, ptxas takes the low bits
        if not -(1 << 63) <= value < 1 << 64:
            raise self.error(f"{value} is too large")
        bits = (value & ((1 << size * 8) - 1)).to_bytes(size, "little")
        if size == 16:
            raise self.error("a literal of 128 bits")
        return self.constant(np.frombuffer(bits, DTYPES[code])[0], code)

    def floating(self, value: Float, code: str) -> str:
        if code in ("f2", "f4", "f8"):
            return self.constant(value.value, code)
        if code == "u4" and value.bits32 is not None:
            return self.constant(value.bits32, code)
        if code in ("u8", "i8") and value.bits64 is not None:
            return self.constant(np.uint64(value.bits64).view(code), code)
        if code == "i4" and value.bits32 is not None:
            return self.constant(np.uint32(value.bits32).view(code), code)
        raise self.error("a float where an integer is expected")

    def special(self, name: str, code: str) -> str:
        if name == "_":
            raise self.error("_ is no source")
        if name == "WARP_SZ":
            return self.constant(32, code)
        own = "u8" if name in WIDE_SPECIALS else "u4"
        if name in CLOCKS:
            variable = self.let(f"B.special({name!r}, t, {self.op.line})")
        else:
            if name not in self.specials:
                self.specials[name] = self.let(f"B.special({name!r}, t, {self.op.line})")
            variable = self.specials[name]
        return cast(variable, own, code)

    def address_of(self, symbol: Symbol, code: str) -> str:
        if symbol.space in ("global", "const"):
            return cast(f"B.symbol({symbol.name!r}, {self.op.line})", "u8", code)
        return self.constant(self.offset_of(symbol), code)

    def offset_of(self, symbol: Symbol) -> int:
        return self.flow.shared[symbol.name] if symbol.space == "shared" else symbol.offset

    def word(self, operand: object, size: int) -> str:
        """The bits of an operand, unsigned."""
        return self.source(operand, unsigned(size))

    def predicate(self, operand: object) -> str:
        return self.source(operand, "b1")

    def common_code(self, kind: Type, *operands: object) -> str:
        """For operations that do not care about the type: one that needs few views."""
        integers = any(isinstance(operand, Int) for operand in operands)
        for operand in operands:
            if isinstance(operand, Register):
                self.read(operand, self.flow.codes[operand.index])
                code = self.current[operand.index]
                if size_of(code) == kind.size and not (integers and code[0] == "f"):
                    return code
        return kind.code

    def integer_code(self, kind: Type, *operands: object) -> str:
        """The same, of integers."""
        for operand in operands:
            if isinstance(operand, Register) and operand.index in self.current:
                code = self.current[operand.index]
                if code[0] in "iu" and size_of(code) == kind.size:
                    return code
        return kind.code

    # --- writing

    def write(self, operand: object, expression: str, code: str) -> None:
        """An expression of this numpy type into a register; under the guard, if there is one."""
        if isinstance(operand, Special) and operand.name == "_":
            return
        if not isinstance(operand, Register):
            raise self.error("a register is expected as the result")
        if size_of(code) != operand.type.size or (code == "b1") != (operand.type.kind == "p"):
            raise self.error(f"{operand.name} is a .{operand.type.name}")
        index = operand.index
        if self.op.guard is not None:
            expression = f"select({self.guard()}, {expression}, {self.read(operand, code)})"
        name = f"r{index}{code}"
        self.emit(f"{name} = {expression}")
        self.set(operand, name, code)

    def set(self, operand: Register, name: str, code: str) -> None:
        """The register is now held by this variable."""
        self.held[operand.index] = {code: name}
        self.current[operand.index] = code
        self.written[operand.index] = None

    def write_sized(self, operand: object, expression: str, code: str) -> None:
        """The same into a register that may be wider: extended as the type says."""
        if isinstance(operand, Register) and operand.type.size != size_of(code):
            if operand.type.size < size_of(code) or code[0] not in "iu":
                raise self.error(f"{operand.name} is a .{operand.type.name}")
            wide = f"{code[0]}{operand.type.size}"
            self.write(operand, f"{expression}.astype({wide})", wide)
        else:
            self.write(operand, expression, code)

    def source_sized(self, operand: object, code: str) -> str:
        """An operand whose register may be wider than the type: its low bits."""
        if isinstance(operand, Register) and operand.type.size > size_of(code):
            if code[0] not in "iu":
                raise self.error(f"{operand.name} is a .{operand.type.name}")
            return f"{self.read(operand, unsigned(operand.type.size))}.astype({code})"
        return self.source(operand, code)

    def guard(self) -> str:
        assert self.op.guard is not None
        p = self.read(self.op.guard, "b1")
        return f"~{p}" if self.op.negated else p

    # --- whole functions

    def functions(self) -> tuple[str, str]:
        """The texts of `full` and `part`."""
        end = self.body()
        spilled = self.spills()
        head = [f"    r{i}{self.flow.codes[i]} = R[{i}]" for i in self.loads]
        masked = [f"    r{i}{self.flow.codes[i]} = G(R[{i}], t)" for i in self.loads]
        body = [f"    {line}" for line in self.lines]
        tail = [f"    R[{i}] = {name}" for i, name in spilled]
        scattered = [f"    P(B, R, {i}, {name}, t)" for i, name in spilled]
        full = ["def full(B, R):", "    t = None", *head, *body, *tail, f"    {end}"]
        part = ["def part(B, R, t):", *masked, *body, *scattered, f"    {end}"]
        return "\n".join(full), "\n".join(part)

    def body(self) -> str:
        """All operations; returns the statement at the end."""
        for op in self.block.ops:
            self.op = op
            if op.op in ENDS:
                return ENDS[op.op](self, op)
            emitter = EMITTERS.get(op.op)
            if emitter is None:
                raise PtxError(f"unknown instruction {op}", op.line)
            modifiers = Modifiers(op)
            try:
                emitter(self, op, modifiers)
            except (AttributeError, IndexError, KeyError, TypeError) as error:
                raise self.error("operands or types are not understood") from error
            modifiers.end()
        return f"return {self.block.number + 1}"

    def spills(self) -> list[tuple[int, str]]:
        """Registers to keep: other blocks know them, or this one does when it runs again."""
        found = []
        for index in self.written:
            mentions = self.flow.mentions.get(index, {self.block.number})
            if len(mentions) > 1 or index in self.loads:
                found.append((index, self.read(self.flow.registers[index], self.flow.codes[index])))
        return found


def _leave(w: Writer, op: Op, target: int) -> str:
    if op.guard is None:
        return f"return {target}"
    p = w.guard()
    after = w.block.number + 1
    return f"return split({p}, {target}, {after}, t)"


def _target(w: Writer, operand: object) -> int:
    if not isinstance(operand, Target):
        raise w.error("a label is expected")
    return operand.number


def _branch(w: Writer, op: Op) -> str:
    if op.modifiers not in ((), ("uni",)) or len(op.operands) != 1:
        raise w.error("branch not understood")
    return _leave(w, op, _target(w, op.operands[0]))


def _exit(w: Writer, op: Op) -> str:
    if op.modifiers not in ((), ("uni",)) or op.operands:
        raise w.error("modifier or operand is not known here")
    return _leave(w, op, EXIT)


def _trap(w: Writer, op: Op) -> str:
    if op.modifiers or op.operands:
        raise w.error("modifier or operand is not known here")
    if op.guard is None:
        return f"raise B.illegal({op.op!r}, 0, t, {op.line})"
    p = w.guard()
    w.emit(f"B.trap_if({p}, {op.op!r}, t, {op.line})")
    return f"return {w.block.number + 1}"


def _indexed(w: Writer, op: Op) -> str:
    if op.modifiers not in (("idx",), ("idx", "uni")) or op.guard is not None:
        raise w.error("branch not understood")
    index = w.source(op.operands[0], "u4")
    blocks = tuple(_target(w, operand) for operand in op.operands[1:])
    return f"return split_by_index({index}, {blocks}, B, t, {op.line})"


ENDS: dict[str, Callable[[Writer, Op], str]] = {
    "bra": _branch, "ret": _exit, "exit": _exit, "trap": _trap, "brkpt": _trap, "brx": _indexed,
}  # fmt: skip
