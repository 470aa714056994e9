"""A kernel's statements to basic blocks: names are resolved, calls are inlined, guards are placed.

Invariants of the result: each block runs from its first operation to its end; an operation that
needs other threads (a barrier, a shuffle) is the first of its block; a guard is left only on
operations that can be masked (arithmetic, memory) and on branches; blocks are in the order of the
text, so that "smallest block first" lets threads meet again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from . import syntax
from .faults import PtxError
from .syntax import Function, Instruction, Statement, Variable
from .types import TYPES, Type, unsigned


@dataclass(frozen=True)
class Register:
    index: int
    type: Type
    name: str


@dataclass(frozen=True)
class Special:
    name: str


@dataclass(frozen=True)
class Negated:
    """`!%p` as an operand."""

    register: object


@dataclass(frozen=True)
class Symbol:
    """A variable; its offset is known for the spaces local and param, the rest by name."""

    space: str
    name: str
    offset: int = 0
    size: int = 0


@dataclass(frozen=True)
class Target:
    """A place to branch to: first the number of a label, then that of a block."""

    number: int


@dataclass(frozen=True)
class Op:
    """An instruction whose names are resolved; Vector, Pair and Address hold resolved ones."""

    line: int
    op: str
    modifiers: tuple[str, ...]
    operands: tuple[object, ...]
    guard: Register | None = None
    negated: bool = False

    def __str__(self) -> str:
        return ".".join((self.op, *self.modifiers))


@dataclass
class Block:
    number: int
    ops: list[Op] = field(default_factory=list)
    sync: str = ""  # "cta" or "warp": the first operation waits for the others
    leaves: bool = False  # does nothing but end the thread


BRANCHES = {"bra", "brx", "ret", "exit", "trap", "brkpt"}
CTA_SYNCS = {"bar", "barrier"}
WARP_SYNCS = {"shfl", "vote", "match", "mma", "ldmatrix", "stmatrix", "movmatrix", "redux", "elect"}
# a guard on anything else that is no plain arithmetic becomes a branch around it
MASKED_MEMORY = {"ld", "st", "atom", "red", "ldu"}
BRANCH_AROUND = {"call", "cp", "nanosleep", "activemask", *CTA_SYNCS, *WARP_SYNCS}
LOCKS = {"cas", "exch", "inc", "dec"}


def sync_kind(op: Op) -> str:
    if op.op == "bar" and op.modifiers[:1] == ("warp",):
        return "warp"
    if op.op in CTA_SYNCS:
        return "cta"
    return "warp" if op.op in WARP_SYNCS else ""


def round_up(number: int, step: int) -> int:
    return (number + step - 1) // step * step


@dataclass
class Flow:
    """What lowering finds out about a kernel."""

    name: str
    blocks: list[Block] = field(default_factory=list)
    registers: list[Register] = field(default_factory=list)
    shared: dict[str, int] = field(default_factory=dict)  # offsets
    shared_bytes: int = 0
    shared_align: int = 1
    local_bytes: int = 0
    symbols: set[str] = field(default_factory=set)  # global and const variables that are used
    features: set[str] = field(default_factory=set)
    mentions: dict[int, set[int]] = field(default_factory=dict)  # register to blocks
    codes: list[str] = field(default_factory=list)  # how each register is held between blocks


@dataclass
class Frame:
    """A function that is being inlined: its names, innermost scope last."""

    function: Function
    end: int
    scopes: list[dict[str, object]]


class Lowering:
    """Builds the Flow of one kernel."""

    def __init__(self, functions: dict[str, Function], variables: dict[str, Variable]) -> None:
        self.functions = functions
        self.variables = variables
        self.code: list[Op | int] = []  # operations and labels
        self.labels = 0
        self.stack: list[str] = []

    def lower(self, kernel: Function) -> Flow:
        self.flow = Flow(kernel.name)
        names: dict[str, object] = {}
        offset = 0
        for parameter in kernel.parameters:
            offset = round_up(offset, parameter.align)
            names[parameter.name] = Symbol("param", parameter.name, offset, parameter.size)
            offset += parameter.size
        self.inline(kernel, names, self.new_label())
        self.code.append(Op(kernel.line, "exit", (), ()))
        self.place_dynamic_shared()
        self.cut()
        self.choose_codes()
        return self.flow

    def new_label(self) -> int:
        self.labels += 1
        return self.labels

    def inline(self, function: Function, names: dict[str, object], end: int) -> None:
        if function.name in self.stack:
            raise PtxError(f"{function.name} calls itself: recursion is not known", function.line)
        if function.body is None:
            message = f"{function.name} has no body: calls out of the module are not known"
            raise PtxError(message, function.line)
        self.stack.append(function.name)
        frame = Frame(function, end, [names])
        self.open_scope(frame, function.body)
        for position, statement in enumerate(function.body):
            self.statement(frame, statement, position)
        self.code.append(end)
        self.stack.pop()

    def open_scope(self, frame: Frame, statements: list[Statement]) -> None:
        """Labels may be used before their place: they are named when their scope opens."""
        found: dict[str, object] = {}
        depth = 0
        for statement in statements:
            if isinstance(statement, syntax.Scope):
                depth += 1 if statement.opens else -1
                if depth < 0:
                    break
            elif depth == 0 and isinstance(statement, syntax.Label):
                if statement.name in found:
                    raise PtxError(f"label {statement.name} is there twice", statement.line)
                found[statement.name] = Target(self.new_label())
            elif depth == 0 and isinstance(statement, syntax.Targets):
                found[statement.name] = statement
        frame.scopes.append(found)

    def statement(self, frame: Frame, statement: Statement, position: int) -> None:
        if isinstance(statement, syntax.Scope):
            if statement.opens:
                assert frame.function.body is not None
                self.open_scope(frame, frame.function.body[position + 1 :])
            else:
                frame.scopes.pop()
        elif isinstance(statement, syntax.Registers):
            self.declare_registers(frame, statement)
        elif isinstance(statement, Variable):
            frame.scopes[-1][statement.name] = self.place(statement)
        elif isinstance(statement, syntax.Label):
            target = self.find(frame, statement.name, statement.line)
            assert isinstance(target, Target)
            self.code.append(target.number)
        elif isinstance(statement, Instruction):
            self.instruction(frame, statement)

    def declare_registers(self, frame: Frame, statement: syntax.Registers) -> None:
        for prefix, count in statement.names:
            for number in range(1 if count is None else count):
                name = prefix if count is None else f"{prefix}{number}"
                frame.scopes[-1][name] = self.new_register(statement.type, name)

    def new_register(self, type: Type, name: str) -> Register:
        register = Register(len(self.flow.registers), type, name)
        self.flow.registers.append(register)
        return register

    def place(self, variable: Variable) -> Symbol:
        """A variable of a body gets its place; parameters of calls live in local memory."""
        flow = self.flow
        if variable.space in ("local", "param"):
            offset = round_up(flow.local_bytes, max(variable.align, 1))
            flow.local_bytes = offset + variable.size
            return Symbol("local", variable.name, offset, variable.size)
        if variable.space == "shared":
            return self.place_shared(variable, f"{self.stack[-1]}:{variable.name}")
        raise PtxError(f"a .{variable.space} variable in a body", variable.line)

    def place_shared(self, variable: Variable, key: str) -> Symbol:
        flow = self.flow
        flow.features.add("shared")
        if variable.data or variable.relocations:
            raise PtxError("shared memory has no initial values", variable.line)
        flow.shared_align = max(flow.shared_align, variable.align)
        if variable.extern:
            flow.shared.setdefault(key, -variable.align)  # placed when the size is known
        elif key not in flow.shared:
            flow.shared[key] = round_up(flow.shared_bytes, variable.align)
            flow.shared_bytes = flow.shared[key] + variable.size
        return Symbol("shared", key, 0, variable.size)

    def place_dynamic_shared(self) -> None:
        for key, offset in self.flow.shared.items():
            if offset < 0:
                self.flow.features.add("dynamic_shared")
                self.flow.shared[key] = round_up(self.flow.shared_bytes, max(16, -offset))

    def find(self, frame: Frame, name: str, line: int) -> object:
        for scope in reversed(frame.scopes):
            if name in scope:
                return scope[name]
        variable = self.variables.get(name)
        if variable is not None:
            if variable.space == "shared":
                return self.place_shared(variable, name)
            self.flow.symbols.add(name)
            return Symbol(variable.space, name, 0, variable.size)
        if name == "_" or name.startswith("%") or name == "WARP_SZ":
            return Special(name.lstrip("%"))
        raise PtxError(f"unknown name {name}", line)

    def resolve(self, frame: Frame, operand: object, line: int) -> object:
        if isinstance(operand, syntax.Name):
            found = self.find(frame, operand.text, line)
            return Negated(found) if operand.negated else found
        if isinstance(operand, syntax.Vector):
            items = tuple(self.resolve(frame, item, line) for item in operand.items)
            return syntax.Vector(items)
        if isinstance(operand, syntax.Pair):
            first = self.resolve(frame, operand.first, line)
            second = self.resolve(frame, operand.second, line)
            return syntax.Pair(first, second)
        if isinstance(operand, syntax.Address):
            base = self.resolve(frame, operand.base, line)
            return syntax.Address(base, operand.offset)
        return operand

    def instruction(self, frame: Frame, found: Instruction) -> None:
        guard = None
        negated = False
        if found.guard is not None:
            register = self.find(frame, found.guard.name, found.line)
            if not isinstance(register, Register) or register.type.kind != "p":
                raise PtxError(f"guard {found.guard.name} is no predicate", found.line)
            guard, negated = register, found.guard.negated
        if guard is not None and found.op in BRANCH_AROUND:
            around = self.new_label()
            jump = Op(found.line, "bra", (), (Target(around),), guard, not negated)
            self.code.append(jump)
            self.unguarded(frame, found, None, False)
            self.code.append(around)
        else:
            self.unguarded(frame, found, guard, negated)

    def unguarded(
        self, frame: Frame, found: Instruction, guard: Register | None, negated: bool
    ) -> None:
        line = found.line
        if found.op == "call":
            self.call(frame, found)
            return
        if found.op == "ret" and len(self.stack) > 1:
            self.code.append(Op(line, "bra", (), (Target(frame.end),), guard, negated))
            return
        operands = tuple(self.resolve(frame, operand, line) for operand in found.operands)
        if found.op == "brx":
            operands = (operands[0], *self.branch_targets(frame, operands[1], line))
        self.note_features(found)
        self.code.append(Op(line, found.op, found.modifiers, operands, guard, negated))

    def branch_targets(self, frame: Frame, targets: object, line: int) -> Iterator[object]:
        if not isinstance(targets, syntax.Targets):
            raise PtxError("brx.idx needs the name of a .branchtargets", line)
        for label in targets.labels:
            yield self.find(frame, label, line)

    def note_features(self, found: Instruction) -> None:
        features = self.flow.features
        if found.op in ("atom", "red"):
            features.add("atomics")
            if LOCKS & set(found.modifiers):
                features.add("locks")
        if found.op in CTA_SYNCS and "warp" not in found.modifiers:
            features.add("barrier")
        if found.op in WARP_SYNCS:
            features.add("collectives")
        if found.op in ("mma", "ldmatrix"):
            features.add("matrix")
        if found.op in ("ld", "st") and {"acquire", "release", "volatile"} & set(found.modifiers):
            features.add("locks")

    def call(self, frame: Frame, found: Instruction) -> None:
        """`call (results), name, (arguments)`: its parameters are the caller's variables."""
        operands = list(found.operands)
        first = operands[0]
        results = first.items if isinstance(first, syntax.Group) else ()
        del operands[: isinstance(first, syntax.Group)]
        callee = operands.pop(0)
        group = operands.pop(0) if operands else syntax.Group(())
        plain = found.modifiers in ((), ("uni",)) and not operands
        if not plain or not isinstance(callee, syntax.Name) or not isinstance(group, syntax.Group):
            raise PtxError("indirect calls are not known", found.line)
        arguments = group.items
        function = self.functions.get(callee.text)
        if function is None:
            raise PtxError(f"unknown function {callee.text}", found.line)
        pairs = [*zip(function.parameters, arguments), *zip(function.results, results)]
        if len(pairs) != len(arguments) + len(results) or len(pairs) != len(
            function.parameters
        ) + len(function.results):
            raise PtxError(f"{callee.text} takes other arguments", found.line)
        names: dict[str, object] = {}
        for formal, actual in pairs:
            value = self.resolve(frame, actual, found.line)
            if not isinstance(value, Symbol) or value.size < formal.size:
                raise PtxError("an argument of a call is no .param variable", found.line)
            names[formal.name] = value
        self.inline(function, names, self.new_label())

    def cut(self) -> None:
        """Code to blocks; labels become block numbers."""
        used = {t.number for op in self.code if isinstance(op, Op) for t in _targets(op)}
        blocks = [Block(0)]
        places: dict[int, int] = {}

        def fresh() -> Block:
            if blocks[-1].ops:
                blocks.append(Block(len(blocks)))
            return blocks[-1]

        for item in self.code:
            if isinstance(item, int):
                if item in used:
                    places[item] = fresh().number
                continue
            kind = sync_kind(item)
            block = fresh() if kind else blocks[-1]
            block.sync = block.sync or kind
            block.ops.append(item)
            if item.op in BRANCHES:
                fresh()
        if not blocks[-1].ops:
            blocks.pop()
        for block in blocks:
            block.ops = [_with_targets(op, places) for op in block.ops]
            for op in block.ops:
                for register in registers_of(op):
                    self.flow.mentions.setdefault(register.index, set()).add(block.number)
            first = block.ops[0]
            block.leaves = first.op in ("ret", "exit") and first.guard is None
        self.flow.blocks = blocks

    def choose_codes(self) -> None:
        """A register is held as what most instructions take it for: fewer views of arrays."""
        votes: list[dict[str, int]] = [{} for _ in self.flow.registers]
        for block in self.flow.blocks:
            for op in block.ops:
                kinds = [TYPES[m] for m in op.modifiers if m in TYPES]
                for kind in kinds[-2:]:
                    if kind.kind not in "fus":
                        continue
                    for register in registers_of(op):
                        if register.type.size == kind.size and register.type.kind != "p":
                            count = votes[register.index]
                            count[kind.code] = count.get(kind.code, 0) + 1
        for register, count in zip(self.flow.registers, votes):
            if register.type.kind == "p":
                code = "b1"
            elif register.type.size == 16:
                code = "q"
            else:
                code = max(count, key=lambda c: count[c]) if count else unsigned(register.type.size)
            self.flow.codes.append(code)


def _flatten(operands: Iterable[object]) -> Iterator[object]:
    for operand in operands:
        if isinstance(operand, syntax.Vector):
            yield from operand.items
        elif isinstance(operand, syntax.Pair):
            yield from (operand.first, operand.second)
        elif isinstance(operand, syntax.Address):
            yield from _flatten((operand.base,))
        elif isinstance(operand, Negated):
            yield operand.register
        else:
            yield operand


def registers_of(op: Op) -> list[Register]:
    found = [o for o in _flatten(op.operands) if isinstance(o, Register)]
    return found if op.guard is None else [*found, op.guard]


def _targets(op: Op) -> list[Target]:
    return [o for o in op.operands if isinstance(o, Target)]


def _with_targets(op: Op, places: dict[int, int]) -> Op:
    if not _targets(op):
        return op
    moved = (Target(places[o.number]) if isinstance(o, Target) else o for o in op.operands)
    return Op(op.line, op.op, op.modifiers, tuple(moved), op.guard, op.negated)
