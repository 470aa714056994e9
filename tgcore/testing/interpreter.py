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

The work items of many work groups run side by side, node by node: a value is an array with a row
for each item (or one row, where it is the same for all) and a column for each lane. On a device
what no barrier orders may come in another order; where that matters, it is a race. The lanes of a
warp carry out matrix instructions together.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
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

_NOBODY: Final = -1
_FAR: Final = np.iinfo(np.int32).max


class _Visitors:
    """Who touched each element: the least and the greatest number."""

    def __init__(self, size: int) -> None:
        self.least = np.full(size, _FAR, np.int32)
        self.greatest = np.full(size, _NOBODY, np.int32)

    def add(self, where: Lanes, who: Lanes) -> None:
        """These touch elements."""
        np.minimum.at(self.least, where, who)
        np.maximum.at(self.greatest, where, who)

    def others(self, where: Lanes, who: Lanes) -> Lanes:
        """Whether elements were touched by others than these."""
        greatest = self.greatest[where]
        return np.asarray((greatest != _NOBODY) & ((greatest != who) | (self.least[where] != who)))

    def forget(self) -> None:
        """Nobody touched anything."""
        self.least.fill(_FAR)
        self.greatest.fill(_NOBODY)


class _Memory:
    """Elements that can be read and written, and notes of who did.

    `copies` is None for memory that all items share; else it says for each item which of the
    copies is its own. `items` and `groups` are the numbers of all items and of their groups.
    """

    def __init__(self, node: UOp, data: Lanes, name: str) -> None:
        self.node, self.name = node, name
        self.lanes: int = node.dtype.base.count  # of the elements that an index counts
        self.is_global = node.dtype.addrspace is AddrSpace.GLOBAL
        self.is_shared = node.dtype.addrspace is not AddrSpace.REG
        self.size = data.size
        self.copies: Lanes | None = None
        self._hold(data)

    def _hold(self, data: Lanes) -> None:
        self.data = data
        self.read = np.zeros(data.size, bool)
        self.written = np.zeros(data.size, bool)
        # by group: as long as the program runs; by item: since the last barrier
        self.readers: dict[str, _Visitors] = {}
        self.writers: dict[str, _Visitors] = {}

    def watch(self) -> None:
        """From now on, notes who touches what."""
        for kind in ("work group", "item") if self.is_global else ("item",):
            self.readers[kind] = _Visitors(self.data.size)
            self.writers[kind] = _Visitors(self.data.size)

    def with_copies(self, copies: Lanes) -> _Memory:
        """New memory of this kind, a copy for each of these numbers."""
        new = _Memory(self.node, self.data[: self.size], self.name)
        new.copies = copies
        new._hold(np.zeros(self.size * (int(copies.max()) + 1), self.data.dtype))
        return new

    def load(self, where: Lanes, who: Mapping[str, Lanes], node: UOp) -> Lanes:
        """The elements at these places, each for one item."""
        where = self._checked(where, who, node)
        if not self.is_global and not self.written[where].all():
            self._check_visitors(self.writers, where, who, node, "reads what another one writes")
            place = where[~self.written[where]][0] % self.size
            raise UninitializedError(f"{self.name}[{place}] is read but was never written", node)
        if self.is_shared:
            self.read[where] = True
        if self.readers:
            self._check_visitors(self.writers, where, who, node, "reads what another one writes")
            for kind, visitors in self.readers.items():
                visitors.add(where, who[kind])
        return self.data[where]

    def store(self, where: Lanes, values: Lanes, who: Mapping[str, Lanes], node: UOp) -> None:
        """Write these elements, each by one item."""
        where = self._checked(where, who, node)
        if self.writers:
            for kind, visitors in self.writers.items():
                visitors.add(where, who[kind])
            self._check_visitors(self.writers, where, who, node, "writes what another one writes")
            self._check_visitors(self.readers, where, who, node, "writes what another one reads")
        self.written[where] = True
        self.data[where] = values

    def _checked(self, where: Lanes, who: Mapping[str, Lanes], node: UOp) -> Lanes:
        if where.min() < 0 or where.max() >= self.size:
            bad = where[(where < 0) | (where >= self.size)]
            index, size = int(bad[0]) // self.lanes, self.size // self.lanes
            raise OutOfBoundsError(f"{self.name}[{index}] does not exist: its size is {size}", node)
        if self.copies is None:
            return where
        return np.asarray(where + self.copies[who["row"]] * self.size)

    def _check_visitors(
        self,
        visitors: Mapping[str, _Visitors],
        where: Lanes,
        who: Mapping[str, Lanes],
        node: UOp,
        what: str,
    ) -> None:
        for kind, known in visitors.items():
            others = known.others(where, who[kind])
            if others.any():
                place, number = where[others].max() % self.size, who[kind][others].max()
                text = f"{self.name}[{place}]: {kind} {number} {what}"
                raise DataRaceError(text, node)

    def barrier(self) -> None:
        """What was touched before may be touched by other items of the group."""
        for visitors in (self.readers, self.writers):
            if "item" in visitors:
                visitors["item"].forget()


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

# items that run side by side: more groups come later
_MOST_ITEMS: Final = 1 << 14


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
        """All work groups."""
        sizes = {n.arg: self._launch_size(n) for n in self.program if n.op is Ops.SPECIAL}
        # the fastest axis last
        specials = {name: sizes[name] for name in sorted(sizes, reverse=True)}
        groups = {name: size for name, size in specials.items() if not name.startswith("l")}
        items = {name: size for name, size in specials.items() if name.startswith("l")}
        count, each = math.prod(groups.values()), math.prod(items.values())
        at_once = max(1, _MOST_ITEMS // each)
        if count * each > 1:
            for memory in self.parameters.values():
                memory.watch()
        for first in range(0, count, at_once):
            numbers = np.arange(first * each, min(first + at_once, count) * each)
            places = {**_positions(groups, numbers // each), **_positions(items, numbers % each)}
            _Items(self, places, numbers, each).run()
        for memory in self.parameters.values():
            number, size = memory.node.arg, memory.data.dtype.itemsize
            if memory.read.any():
                self.counts.read[number] = int(memory.read.sum()) * size
            if memory.written.any():
                self.counts.written[number] = int(memory.written.sum()) * size
        return self.counts

    def _launch_size(self, node: UOp) -> int:
        missing = [v for v in node.src[0].variables() if v.arg[0] not in self.variables]
        if missing:
            raise InterpreterError(f"there is no value for the variable {missing[0].arg[0]}", node)
        return infer(node.src[0], self.variables)


def _positions(sizes: Mapping[str, int], numbers: Lanes) -> dict[str, Lanes]:
    """The position along each axis, the last one the fastest, of boxes with these numbers."""
    found: dict[str, Lanes] = {}
    for name in reversed(list(sizes)):
        found[name] = numbers % sizes[name]
        numbers = numbers // sizes[name]
    return found


# *** matrix instructions ***


def _matrix_instruction(core: TensorCore, operands: Sequence[Lanes]) -> Lanes:
    """What a warp gets, a row for each lane: the elements are put where they belong, multiplied,
    and added up with more digits than they have."""
    n, m, k = core.dims
    a, b, c = (
        _assembled(fragment, lanes, shape)
        for fragment, lanes, shape in zip(
            (core.a, core.b, core.c), operands, ((m, k), (k, n), (m, n))
        )
    )
    if core.mantissa_bits:
        a, b = (_rounded(x, core.mantissa_bits) for x in (a, b))
    kind = numpy_type(core.dtype_out)
    wide = np.float64 if kind.kind not in "iu" else np.int64
    with np.errstate(all="ignore"):
        total = (a.astype(wide) @ b.astype(wide) + c.astype(wide)).astype(kind)
    return np.asarray(total[_places(core.c, core.threads)])


@functools.cache
def _places(fragment: Fragment, threads: int) -> tuple[Lanes, Lanes]:
    """Rows and columns, by lane and element."""
    places = [
        [fragment.place(lane, element) for element in range(fragment.elements)]
        for lane in range(threads)
    ]
    rows, columns = np.moveaxis(np.array(places), 2, 0)
    return rows, columns


def _assembled(fragment: Fragment, lanes: Lanes, shape: tuple[int, int]) -> Lanes:
    matrix = np.zeros(shape, lanes.dtype)
    matrix[_places(fragment, len(lanes))] = lanes
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


class _Items:
    """The items of some work groups: their positions, and the value of every node so far."""

    def __init__(self, run: _Run, position: Mapping[str, Lanes], numbers: Lanes, each: int) -> None:
        self.shared, self.position = run, position
        self.each, self.count = each, len(numbers)  # in a group, in all
        self.rows = np.arange(self.count)
        self.who = {"row": self.rows, "item": numbers, "work group": numbers // each}
        self.memory = dict(run.parameters)
        for node in run.program:
            if node.op is Ops.DEFINE_LOCAL:
                self.memory[node] = _own_memory(node).with_copies(self.rows // each)
                self.memory[node].watch()
        self.values = _Values()
        # the items that run: in branches, and in loops that are shorter for some
        self.active, self.running = np.ones(self.count, bool), self.count
        self.around: list[Lanes] = []

    def run(self) -> None:
        """Runs the program."""
        program, jumps = self.shared.program, self.shared.jumps
        at = 0
        while at < len(program):
            node = program[at]
            if node.op is Ops.BARRIER:
                self._barrier(node)
            elif node.op is Ops.RANGE:
                self.values[node] = constant(0, node.dtype)[None]
                if not self._enter(self.values[node.src[0]] > 0):
                    at = jumps[at]
            elif node.op is Ops.END:
                at = self._next_pass(node, at)
            elif node.op is Ops.IF:
                if not self._enter(self.values[node.src[0]]):
                    at = jumps[at]
            elif node.op is Ops.ENDIF:
                self._only(self.around.pop())
            else:
                self._execute(node)
            at += 1

    def _enter(self, condition: Lanes) -> bool:
        """Goes on with those for which it holds, if there are any."""
        inside = self.active & condition[:, 0]
        if not inside.any():
            return False
        self.around.append(self.active)
        self._only(inside)
        return True

    def _only(self, active: Lanes) -> None:
        self.active, self.running = active, int(active.sum())

    def _next_pass(self, end: UOp, at: int) -> int:
        """Where to go on at the end of a loop: at its begin, or here when it is done."""
        loop, begin = end.src[1], self.shared.jumps[at]
        following = self.values[loop] + constant(1, loop.dtype)
        inside = self.active & (following < self.values[loop.src[0]])[:, 0]
        if inside.any():
            self.values[loop] = following
            self._only(inside)
            return begin
        self._only(self.around.pop())
        for node in self.shared.program[begin:at]:
            self.values.pop(node, None)
        return at

    def _barrier(self, node: UOp) -> None:
        if self.running < self.count:
            raise BarrierError("some items of the group wait at a barrier, others do not", node)
        for memory in self.memory.values():
            memory.barrier()

    def _execute(self, node: UOp) -> None:
        if node.op in GroupOp.ALU:
            self._count(node)
            self.values[node] = self._lanewise(
                node, lambda *operands: elementwise(node.op, node.dtype, operands)
            )
        elif (rule := _RULES.get(node.op)) is not None:
            value = rule(self, node)
            if value is not None:
                self.values[node] = value
        else:
            raise NotInterpretableError(f"{node.op} cannot be interpreted", node)

    def _lanewise(self, node: UOp, function: Callable[..., Lanes]) -> Lanes:
        """A function of arrays with one axis, on all lanes of all items."""
        operands = [self.values[s] for s in node.src]
        rows = max([len(v) for v in operands])
        flat = [
            (v if len(v) == rows else np.broadcast_to(v, (rows, v.shape[1]))).reshape(-1)
            for v in operands
        ]
        return function(*flat).reshape(rows, -1)

    def _count(self, node: UOp) -> None:
        work = node.dtype.count * (2 if node.op is Ops.MULACC else 1) * self.running
        if node in self.shared.data_nodes:
            self.shared.counts.ops += work
        else:
            self.shared.counts.index_ops += work

    # *** loads and stores ***

    def load(self, node: UOp) -> Lanes:
        """What memory holds; the alternative in lanes whose gate is off."""
        memory, where, gate = self._places(node.src[0], node.dtype)
        if gate is None:
            flat = memory.load(where.reshape(-1), self._visitors(memory, where, None), node)
            self._count_moved(memory, where.size)
            return flat.reshape(where.shape).view(numpy_type(node.dtype))
        result = np.zeros(where.shape, memory.data.dtype)
        if len(node.src) > 1:
            result[:] = self.values[node.src[1]].view(memory.data.dtype)
        if gate.any():
            who = self._visitors(memory, where, gate)
            result[gate] = memory.load(where[gate], who, node)
        self._count_moved(memory, int(gate.sum()))
        return result.view(numpy_type(node.dtype))

    def store(self, node: UOp) -> None:
        """Memory gets the value, in lanes whose gate is on."""
        memory, where, gate = self._places(node.src[0], node.src[1].dtype)
        value = np.broadcast_to(self.values[node.src[1]], where.shape)
        if gate is None:
            who = self._visitors(memory, where, None)
            memory.store(where.reshape(-1), value.reshape(-1), who, node)
            self._count_moved(memory, where.size)
            return
        if gate.any():
            who = self._visitors(memory, where, gate)
            memory.store(where[gate], value[gate], who, node)
        self._count_moved(memory, int(gate.sum()))

    def _places(self, address: UOp, value: DType) -> tuple[_Memory, Lanes, Lanes | None]:
        """The memory, the numbers of the elements of a value that lies there, and which of them
        are accessed (None: all)."""
        memory, shape = self.memory[address.src[0]], (self.count, value.count)
        where = self.values[address.src[1]].astype(np.int64) * memory.lanes
        if value.count > 1:
            where = where + np.arange(value.count)
        if where.shape != shape:
            where = np.broadcast_to(where, shape)
        if len(address.src) < 3 and self.running == self.count:
            return memory, where, None
        gate = np.broadcast_to(self.active[:, None], shape)
        if len(address.src) > 2:
            gate = gate & self.values[address.src[2]]
        return memory, where, gate

    def _visitors(self, memory: _Memory, where: Lanes, gate: Lanes | None) -> dict[str, Lanes]:
        """For each element that is accessed the item and its group, as far as the memory asks."""
        kinds = ("row", *memory.readers) if memory.readers or memory.copies is not None else ()
        wide = {kind: np.broadcast_to(self.who[kind][:, None], where.shape) for kind in kinds}
        return {k: w.reshape(-1) if gate is None else w[gate] for k, w in wide.items()}

    def _count_moved(self, memory: _Memory, lanes: int) -> None:
        if memory.node.dtype.addrspace is not AddrSpace.REG:
            self.shared.counts.moved += lanes * memory.data.dtype.itemsize

    # *** the rest ***

    def registers(self, node: UOp) -> None:
        """Memory of each item alone."""
        own = _own_memory(node)
        self.memory[node] = own if self.count == 1 else own.with_copies(self.rows)

    def variable(self, node: UOp) -> Lanes:
        """A value that the caller gave."""
        name, least, greatest = node.arg
        if name not in self.shared.variables:
            raise InterpreterError(f"there is no value for the variable {name}", node)
        value = self.shared.variables[name]
        if not least <= value <= greatest:
            raise InterpreterError(f"{name} = {value} is not in [{least}, {greatest}]", node)
        return constant(value, node.dtype)[None]

    def special(self, node: UOp) -> Lanes:
        """The position along an axis of the launch."""
        return self.position[node.arg].astype(numpy_type(node.dtype))[:, None]

    def joined(self, node: UOp) -> Lanes:
        """The lanes of all sources, one after another."""
        parts = [self.values[s] for s in node.src]
        rows = max(len(part) for part in parts)
        return np.concatenate([np.broadcast_to(p, (rows, p.shape[1])) for p in parts], axis=1)

    def matrix_instruction(self, node: UOp) -> Lanes:
        """What each lane of each warp gets."""
        core: TensorCore = node.arg
        if self.each % core.threads:
            text = f"{self.each} items are no warps of {core.threads} lanes"
            raise BarrierError(text, node)
        if self.running < self.count:
            raise BarrierError("some lanes of the warp come here, others do not", node)
        self.shared.counts.ops += core.operations // core.threads * self.count
        values = [self.values[s] for s in node.src]
        operands = [np.broadcast_to(v, (self.count, v.shape[1])) for v in values]
        warps = [slice(n, n + core.threads) for n in range(0, self.count, core.threads)]
        return np.concatenate(
            [_matrix_instruction(core, [values[warp] for values in operands]) for warp in warps]
        )


_Rule = Callable[[_Items, UOp], Lanes | None]
_NOTHING: Final[_Rule] = lambda items, node: None  # noqa: E731


def _cast(items: _Items, node: UOp) -> Lanes:
    return items._lanewise(node, lambda x: cast(x, node.src[0].dtype, node.dtype))


_RULES: Final[dict[Ops, _Rule]] = {
    Ops.DEFINE_GLOBAL: _NOTHING,
    Ops.DEFINE_LOCAL: _NOTHING,
    Ops.DEFINE_REG: _Items.registers,
    Ops.DEFINE_VAR: _Items.variable,
    Ops.SPECIAL: _Items.special,
    Ops.CONST: lambda items, node: constant(node.arg, node.dtype)[None],
    Ops.VCONST: lambda items, node: constant(node.arg, node.dtype)[None],
    Ops.INDEX: _NOTHING,
    Ops.LOAD: _Items.load,
    Ops.STORE: _Items.store,
    Ops.CAST: _cast,
    Ops.BITCAST: lambda items, node: items._lanewise(node, lambda x: bitcast(x, node.dtype)),
    Ops.VECTORIZE: _Items.joined,
    Ops.CAT: _Items.joined,
    Ops.GEP: lambda items, node: items.values[node.src[0]][:, list(node.arg)],
    Ops.WMMA: _Items.matrix_instruction,
    Ops.SINK: _NOTHING,
    Ops.NOOP: _NOTHING,
}
