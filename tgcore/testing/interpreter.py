"""Runs linear programs in numpy, one node after another: slow, obvious, and easy to trust.

In: the nodes that `linearize` gives (`ProgramSpec.uops`), and the memory of the parameters. Out:
that memory as the program leaves it, and counts of what the program did. It shares no code with
the renderers, so a kernel that is wrong here too was lowered wrongly, and one that is right here
was rendered or compiled wrongly. It also proves for the inputs given that

- no access lies outside of its memory (`OutOfBoundsError`),
- registers and local memory are written before they are read (`UninitializedError`),
- work groups and threads do not read or write what another one writes, nor do the items of a
  group without a barrier in between (`DataRaceError`),
- the work items of a group meet at the same barriers (`BarrierError`),
- every node is computed before it is used, in its own loop or around it (`InterpreterError`).

Work groups run one after another. The items of a group run in turns, each up to the next barrier or
matrix instruction, which the lanes of a warp carry out together.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tgcore.dtype import AddrSpace, DType
from tgcore.errors import TgcoreError
from tgcore.testing.lanes import Lanes, bitcast, cast, constant, elementwise, numpy_type
from tgcore.uop.node import UOp, infer
from tgcore.uop.ops import GroupOp, Ops
from tgcore.uop.tensor_core import Fragment, TensorCore


class InterpreterError(TgcoreError):
    """A linear program does what it may not do; `node` is where."""

    def __init__(self, message: str, node: UOp | None = None) -> None:
        self.node = node
        super().__init__(message if node is None else f"{message}\n  at {node}")


class NotInterpretableError(InterpreterError):
    """The program holds what only a device can run: text of a language."""


class OutOfBoundsError(InterpreterError):
    """An access lies outside of its memory."""


class UninitializedError(InterpreterError):
    """A register or local memory is read before anything was written there."""


class DataRaceError(InterpreterError):
    """A work group, thread or item touches what another one writes, without a barrier between."""


class BarrierError(InterpreterError):
    """The items of a work group do not meet at the same barrier."""


@dataclass
class Counts:
    """What one run of a program did.

    `ops` are operations on lanes (a multiply-add counts two), without those that only make
    addresses, gates and loop sizes, and without casts; `index_ops` are those. `read` and `written`
    say for each parameter how many distinct bytes of it were; `moved` are the bytes of all loads
    and stores outside of registers. Lanes whose gate is off touch and move nothing.
    """

    ops: int = 0
    index_ops: int = 0
    moved: int = 0
    read: dict[int, int] = field(default_factory=dict)
    written: dict[int, int] = field(default_factory=dict)

    @property
    def touched(self) -> int:
        """Bytes of global memory: those read, and those written, of all parameters."""
        return sum(self.read.values()) + sum(self.written.values())


def run_program(
    program: Sequence[UOp],
    buffers: Mapping[int, NDArray[Any]],
    variables: Mapping[str, int] | None = None,
) -> Counts:
    """Runs a linear program and counts what it does.

    `program` is a list of nodes as `linearize` gives it. `buffers` holds the memory of each
    parameter by its number: a contiguous array of any shape whose elements have the parameter's
    type (or its size, where the parameter is the bits of a smaller float); it is changed in place.
    `variables` are values by name. Raises an `InterpreterError` of the kind that fits.

    >>> from tgcore.dtype import dtypes
    >>> from tgcore.uop.ops import AxisType
    >>> data = UOp(Ops.DEFINE_GLOBAL, dtypes.int32.ptr(4), (), 0)
    >>> i = UOp(Ops.RANGE, dtypes.int32, (UOp.const(dtypes.int32, 4),), (0, AxisType.LOOP))
    >>> address = UOp(Ops.INDEX, data.dtype, (data, i))
    >>> value = address.load() * 10
    >>> end = address.store(value).end(i)
    >>> memory = np.arange(4, dtype=np.int32)
    >>> run_program(list(end.toposort()), {0: memory})
    Counts(ops=4, index_ops=0, moved=32, read={0: 16}, written={0: 16})
    >>> memory
    array([ 0, 10, 20, 30], dtype=int32)
    """
    return _Run(program, buffers, dict(variables or {})).run()


# *** memory ***


class _Memory:
    """Elements that can be read and written, and notes of who did."""

    def __init__(self, node: UOp, data: Lanes, name: str) -> None:
        self.node, self.data, self.name = node, data, name
        self.lanes: int = node.dtype.base.count  # of the elements that an index counts
        self.is_global = node.dtype.addrspace is AddrSpace.GLOBAL
        self.is_shared = node.dtype.addrspace is not AddrSpace.REG
        self.read = np.zeros(data.size, bool)
        self.written = np.zeros(data.size, bool)
        # who touched an element last: see `_Visit`
        self.reader = np.full(data.size, _NOBODY)
        self.writer = np.full(data.size, _NOBODY)

    def load(self, where: Lanes, visit: _Visit, node: UOp) -> Lanes:
        """The elements at these places."""
        self._check(where, node)
        if not self.is_global and not self.written[where].all():
            place = where[~self.written[where]][0]
            raise UninitializedError(f"{self.name}[{place}] is read but was never written", node)
        if self.is_shared:
            self._check_others(self.writer, where, visit, node, "reads what another one writes")
            self.read[where] = True
            self.reader[where] = visit.joined(self.reader[where])
        return self.data[where]

    def store(self, where: Lanes, values: Lanes, visit: _Visit, node: UOp) -> None:
        """Write these elements."""
        self._check(where, node)
        if self.is_shared:
            self._check_others(self.writer, where, visit, node, "writes what another one writes")
            self._check_others(self.reader, where, visit, node, "writes what another one reads")
            self.writer[where] = visit.code
        self.written[where] = True
        self.data[where] = values

    def _check(self, where: Lanes, node: UOp) -> None:
        bad = where[(where < 0) | (where >= self.data.size)]
        if bad.size:
            index, size = int(bad[0]) // self.lanes, self.data.size // self.lanes
            raise OutOfBoundsError(f"{self.name}[{index}] does not exist: its size is {size}", node)

    def _check_others(
        self, touched: Lanes, where: Lanes, visit: _Visit, node: UOp, what: str
    ) -> None:
        others = visit.conflicts(touched[where])
        if others.any():
            place, other = where[others][0], touched[where][others][0]
            who = visit.name(int(other))
            raise DataRaceError(f"{self.name}[{place}]: {who} {what}", node)


_NOBODY: Final = -1
_SEVERAL: Final = -2  # work groups
_ITEMS: Final = 1 << 12  # more than a work group has
_BARRIERS: Final = 1 << 24


class _Visit:
    """An item of a work group between two barriers, as a number: what it writes, others may touch
    after the next barrier, and other groups never."""

    def __init__(self, group: int, barriers: int, item: int) -> None:
        self.group, self.barriers, self.item = group, barriers, item
        self.together = (group * _BARRIERS + barriers) * _ITEMS
        self.code = self.together + item

    def after_barrier(self) -> _Visit:
        """The same item, later."""
        return _Visit(self.group, self.barriers + 1, self.item)

    def conflicts(self, others: Lanes) -> Lanes:
        """Which of those that touched elements before may do so at the same time."""
        elsewhere = others // (_ITEMS * _BARRIERS) != self.group
        beside = (others // _ITEMS == self.together // _ITEMS) & (others != self.code)
        return np.asarray((others != _NOBODY) & (elsewhere | beside))

    def joined(self, others: Lanes) -> Lanes:
        """Who read elements, now that this one does too."""
        elsewhere = (others != _NOBODY) & (others // (_ITEMS * _BARRIERS) != self.group)
        several = np.where(self.conflicts(others), self.together + _ITEMS - 1, self.code)
        return np.where(elsewhere, _SEVERAL, several)

    def name(self, other: int) -> str:
        """Who this one is, told from the other one."""
        if other // (_ITEMS * _BARRIERS) != self.group:
            return f"work group {self.group}"
        return f"item {self.item} of work group {self.group}"


def _parameter(node: UOp, buffers: Mapping[int, NDArray[Any]]) -> _Memory:
    name = f"parameter {node.arg}"
    if node.arg not in buffers:
        raise InterpreterError(f"there is no buffer for {name}", node)
    array, kind = buffers[node.arg], numpy_type(node.dtype.base)
    if not array.flags.c_contiguous:
        raise InterpreterError(f"the buffer for {name} is not contiguous", node)
    if array.dtype != kind:
        # bits of a float that the device does not know
        if kind.kind != "u" or array.dtype.itemsize != kind.itemsize:
            raise InterpreterError(f"{name} holds {kind}, its buffer {array.dtype}", node)
        array = array.view(kind)
    size = node.dtype.size * node.dtype.base.count
    flat = array.reshape(-1)
    return _Memory(node, flat if node.dtype.size < 0 else flat[:size], name)


def _own_memory(node: UOp) -> _Memory:
    kind = "local memory" if node.op is Ops.DEFINE_LOCAL else "registers"
    size = max(node.dtype.size, 1) * node.dtype.base.count
    return _Memory(node, np.zeros(size, numpy_type(node.dtype.base)), f"{kind} {node.arg}")


# *** running ***


class _Run:
    """One run of a program: its memory, and what was counted so far."""

    def __init__(
        self,
        program: Sequence[UOp],
        buffers: Mapping[int, NDArray[Any]],
        variables: Mapping[str, int],
    ) -> None:
        self.program, self.variables = list(program), variables
        self.parameters = {
            n: _parameter(n, buffers) for n in self.program if n.op is Ops.DEFINE_GLOBAL
        }
        self.jumps = _jumps(self.program)
        self.data_nodes = _data_nodes(self.program)
        self.counts = Counts()

    def run(self) -> Counts:
        """All work groups, one after another."""
        sizes = {n.arg: self._launch_size(n) for n in self.program if n.op is Ops.SPECIAL}
        # the fastest axis last
        specials = {name: sizes[name] for name in sorted(sizes, reverse=True)}
        groups = {name: size for name, size in specials.items() if not name.startswith("l")}
        items = {name: size for name, size in specials.items() if name.startswith("l")}
        for number, group in enumerate(_positions(groups)):
            shared = {n: _own_memory(n) for n in self.program if n.op is Ops.DEFINE_LOCAL}
            known = {**self.parameters, **shared}
            _in_turns(
                [
                    _Item(self, known, {**group, **item}, number, place)
                    for place, item in enumerate(_positions(items))
                ]
            )
        for memory in self.parameters.values():
            number, size = memory.node.arg, memory.data.dtype.itemsize
            if memory.read.any():
                self.counts.read[number] = int(memory.read.sum()) * size
            if memory.written.any():
                self.counts.written[number] = int(memory.written.sum()) * size
        return self.counts

    def count_matrix_instruction(self, node: UOp) -> None:
        """One item's share of it."""
        self.counts.ops += node.arg.operations // node.arg.threads

    def _launch_size(self, node: UOp) -> int:
        missing = [v for v in node.src[0].variables() if v.arg[0] not in self.variables]
        if missing:
            raise InterpreterError(f"there is no value for the variable {missing[0].arg[0]}", node)
        return infer(node.src[0], self.variables)


def _positions(sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    for place in itertools.product(*(range(size) for size in sizes.values())):
        yield dict(zip(sizes, place))


def _in_turns(items: list[_Item]) -> None:
    """The items of a group, each up to its next barrier, until all are done."""
    running = [item.run() for item in items]
    answers: list[Lanes | None] = [None] * len(items)
    while running:
        waiting = [_advance(run, answer) for run, answer in zip(running, answers)]
        found = next((node for node in waiting if node is not None), None)
        if found is None:
            return
        if any(node is not found for node in waiting):
            raise BarrierError("some items of the group wait at a barrier, others do not", found)
        if found.op is Ops.WMMA:
            answers = _matrix_instruction(found, items)
        else:
            answers = [None] * len(items)
            for item in items:
                item.visit = item.visit.after_barrier()


def _advance(run: Generator[UOp, Lanes | None], answer: Lanes | None) -> UOp | None:
    try:
        return run.send(answer)
    except StopIteration:
        return None


# *** matrix instructions ***


def _matrix_instruction(node: UOp, items: list[_Item]) -> list[Lanes | None]:
    """What each item gets: warp by warp the elements are put where they belong, multiplied, and
    added up with more digits than they have."""
    core: TensorCore = node.arg
    if len(items) % core.threads:
        raise BarrierError(f"{len(items)} items are no warps of {core.threads} lanes", node)
    n, m, k = core.dims
    results: list[Lanes | None] = []
    for first in range(0, len(items), core.threads):
        warp = items[first : first + core.threads]
        a, b, c = (
            _assembled(fragment, [item.values[source] for item in warp], shape)
            for fragment, source, shape in zip(
                (core.a, core.b, core.c), node.src, ((m, k), (k, n), (m, n))
            )
        )
        if core.mantissa_bits:
            a, b = (_rounded(x, core.mantissa_bits) for x in (a, b))
        kind = numpy_type(core.dtype_out)
        wide = np.float64 if kind.kind not in "iu" else np.int64
        with np.errstate(all="ignore"):
            total = (a.astype(wide) @ b.astype(wide) + c.astype(wide)).astype(kind)
        rows, columns = _places(core.c, core.threads)
        results += list(total[rows, columns])
    return results


@functools.cache
def _places(fragment: Fragment, threads: int) -> tuple[Lanes, Lanes]:
    """Rows and columns, by lane and element."""
    places = [
        [fragment.place(lane, element) for element in range(fragment.elements)]
        for lane in range(threads)
    ]
    rows, columns = np.moveaxis(np.array(places), 2, 0)
    return rows, columns


def _assembled(fragment: Fragment, lanes: list[Lanes], shape: tuple[int, int]) -> Lanes:
    matrix = np.zeros(shape, lanes[0].dtype)
    matrix[_places(fragment, len(lanes))] = np.stack(lanes)
    return matrix


def _rounded(x: Lanes, mantissa_bits: int) -> Lanes:
    """float32 with fewer digits, halves away from zero."""
    dropped = 23 - mantissa_bits
    bits = x.view(np.uint32) + np.uint32(1 << (dropped - 1))
    rounded = (bits & np.uint32(0xFFFFFFFF << dropped & 0xFFFFFFFF)).view(np.float32)
    return np.where(np.isfinite(x), rounded, x)


def _jumps(program: Sequence[UOp]) -> dict[int, int]:
    """For the position of a RANGE or IF that of its END or ENDIF, and the other way round."""
    jumps: dict[int, int] = {}
    opened: list[int] = []
    for position, node in enumerate(program):
        if node.op in (Ops.RANGE, Ops.IF):
            opened.append(position)
        elif node.op in (Ops.END, Ops.ENDIF):
            closed = node.src[1] if node.op is Ops.END else node.src[0]
            if not opened or program[opened[-1]] is not closed:
                raise InterpreterError("it closes a loop or branch that is not the last one", node)
            jumps[position] = opened.pop()
            jumps[jumps[position]] = position
    if opened:
        raise InterpreterError("nothing closes this loop or branch", program[opened[-1]])
    return jumps


def _data_nodes(program: Sequence[UOp]) -> set[UOp]:
    """The nodes whose values reach what is stored, but for addresses, gates and loop sizes."""
    found: set[UOp] = set()
    for node in reversed(program):  # users before sources
        if node.op is Ops.STORE or (node.op is Ops.LOAD and node in found):
            found.update(node.src[1:])
        elif node in found and node.op not in (Ops.INDEX, Ops.RANGE, Ops.SPECIAL):
            found.update(node.src)
    return found


class _Values(dict[UOp, Lanes]):
    """The values of nodes, as far as they are computed."""

    def __missing__(self, node: UOp) -> Lanes:
        raise InterpreterError("it is used before, or outside of the loop where, it is made", node)


class _Item:
    """One work item: its position, its registers, and the value of every node so far."""

    def __init__(
        self,
        run: _Run,
        memory: dict[UOp, _Memory],
        position: Mapping[str, int],
        group: int,
        place: int,
    ) -> None:
        self.shared, self.memory = run, dict(memory)
        self.position = position
        self.visit = _Visit(group, 0, place)
        self.values = _Values()

    def run(self) -> Generator[UOp, Lanes | None]:
        """Runs the program; stops at what takes several items and yields it: at each barrier, and
        at each matrix instruction, whose value is sent."""
        program, jumps = self.shared.program, self.shared.jumps
        at = 0
        while at < len(program):
            node = program[at]
            if node.op is Ops.BARRIER:
                yield node
            elif node.op is Ops.WMMA:
                self.shared.count_matrix_instruction(node)
                value = yield node
                assert value is not None
                self.values[node] = value
            elif node.op is Ops.RANGE and self._number(node.src[0]) < 1:
                at = jumps[at]
            elif node.op is Ops.RANGE:
                self.values[node] = constant(0, node.dtype)
            elif node.op is Ops.END:
                at = self._next_pass(node, at)
            elif node.op is Ops.IF:
                if not self.values[node.src[0]][0]:
                    at = jumps[at]
            else:
                self._execute(node)
            at += 1

    def _next_pass(self, end: UOp, at: int) -> int:
        """Where to go on at the end of a loop: at its begin, or here when it is done."""
        loop, begin = end.src[1], self.shared.jumps[at]
        following = self._number(loop) + 1
        if following < self._number(loop.src[0]):
            self.values[loop] = constant(following, loop.dtype)
            return begin
        for node in self.shared.program[begin:at]:
            self.values.pop(node, None)
        return at

    def _number(self, node: UOp) -> int:
        return int(self.values[node][0])

    def _execute(self, node: UOp) -> None:
        if node.op in GroupOp.ALU:
            self._count(node)
            operands = [self.values[s] for s in node.src]
            self.values[node] = elementwise(node.op, node.dtype, operands)
        elif (rule := _RULES.get(node.op)) is not None:
            value = rule(self, node)
            if value is not None:
                self.values[node] = value
        else:
            raise NotInterpretableError(f"{node.op} cannot be interpreted", node)

    def _count(self, node: UOp) -> None:
        work = node.dtype.count * (2 if node.op is Ops.MULACC else 1)
        if node in self.shared.data_nodes:
            self.shared.counts.ops += work
        else:
            self.shared.counts.index_ops += work

    # *** loads and stores ***

    def load(self, node: UOp) -> Lanes:
        """What memory holds; the alternative in lanes whose gate is off."""
        memory, where = self._place(node.src[0], node.dtype)
        gate = self._gate(node.src[0], where.size)
        result = np.zeros(where.size, memory.data.dtype)
        if not gate.all():
            result[:] = self.values[node.src[1]]
        if gate.any():
            result[gate] = memory.load(where[gate], self.visit, node)
        self._count_moved(memory, int(gate.sum()))
        return result.view(numpy_type(node.dtype))

    def store(self, node: UOp) -> None:
        """Memory gets the value, in lanes whose gate is on."""
        value = self.values[node.src[1]]
        memory, where = self._place(node.src[0], node.src[1].dtype)
        gate = self._gate(node.src[0], where.size)
        if gate.any():
            memory.store(where[gate], value[gate], self.visit, node)
        self._count_moved(memory, int(gate.sum()))

    def _place(self, address: UOp, value: DType) -> tuple[_Memory, Lanes]:
        """The memory, and the numbers of the elements of a value that lies there."""
        memory = self.memory[address.src[0]]
        first = self._number(address.src[1]) * memory.lanes
        return memory, np.arange(first, first + value.count)

    def _gate(self, address: UOp, lanes: int) -> Lanes:
        if len(address.src) < 3:
            return np.ones(lanes, bool)
        return np.broadcast_to(self.values[address.src[2]], (lanes,))

    def _count_moved(self, memory: _Memory, lanes: int) -> None:
        if memory.node.dtype.addrspace is not AddrSpace.REG:
            self.shared.counts.moved += lanes * memory.data.dtype.itemsize

    # *** the rest ***

    def registers(self, node: UOp) -> None:
        """Memory of this item alone."""
        self.memory[node] = _own_memory(node)

    def variable(self, node: UOp) -> Lanes:
        """A value that the caller gave."""
        name, least, greatest = node.arg
        if name not in self.shared.variables:
            raise InterpreterError(f"there is no value for the variable {name}", node)
        value = self.shared.variables[name]
        if not least <= value <= greatest:
            raise InterpreterError(f"{name} = {value} is not in [{least}, {greatest}]", node)
        return constant(value, node.dtype)

    def joined(self, node: UOp) -> Lanes:
        """The lanes of all sources, one after another."""
        return np.concatenate([self.values[s] for s in node.src])


_Rule = Callable[[_Item, UOp], Lanes | None]
_NOTHING: Final[_Rule] = lambda item, node: None  # noqa: E731

_RULES: Final[dict[Ops, _Rule]] = {
    Ops.DEFINE_GLOBAL: _NOTHING,
    Ops.DEFINE_LOCAL: _NOTHING,
    Ops.DEFINE_REG: _Item.registers,
    Ops.DEFINE_VAR: _Item.variable,
    Ops.SPECIAL: lambda item, node: constant(item.position[node.arg], node.dtype),
    Ops.CONST: lambda item, node: constant(node.arg, node.dtype),
    Ops.VCONST: lambda item, node: constant(node.arg, node.dtype),
    Ops.INDEX: _NOTHING,
    Ops.LOAD: _Item.load,
    Ops.STORE: _Item.store,
    Ops.CAST: lambda item, node: cast(item.values[node.src[0]], node.src[0].dtype, node.dtype),
    Ops.BITCAST: lambda item, node: bitcast(item.values[node.src[0]], node.dtype),
    Ops.VECTORIZE: _Item.joined,
    Ops.CAT: _Item.joined,
    Ops.GEP: lambda item, node: item.values[node.src[0]][list(node.arg)],
    Ops.ENDIF: _NOTHING,
    Ops.SINK: _NOTHING,
    Ops.NOOP: _NOTHING,
}
