"""The core of TinyJit: records what runs, then replays it as graphs with other inputs.

How the front end's TinyJit uses it::

    inputs = [("x", x_buffer), ("y", y_buffer)]       # realised argument buffers, with names
    with recording() as record:                       # items run as usual and are recorded
        result = function(*arguments)                 # must realise its results inside
    captured = record.finish(inputs)                  # JitError if there is nothing to replay

    captured([new_x_buffer, new_y_buffer], {"n": 5})  # each further call

- `inputs` are told apart by identity: wherever the recorded items used one of these buffers (or a
  view of it), the replay uses the buffer at the same position of its argument. All else - weights,
  results, constants - stays the very memory that it was, so the buffers of `result` hold the new
  values after each replay.
- Buffers that only the recorded items used (their BUFFER nodes are gone when `finish` is called)
  share memory where their lives do not overlap.
- Variables: the values that were bound while recording are replaced by those given by name.
- A replayed input must have the size, type and device of the recorded one; the same buffer may not
  be given for two inputs if one of them is written, nor for one if it is used as weights or results
  as well and one of both is written. Errors are JitErrors that name the argument.
- With JIT=2 items are replayed one by one, without graphs. JIT=0 is the front end's business.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tgcore.dtype import DType, dtypes
from tgcore.errors import TgcoreError
from tgcore.helpers import DEBUG, JIT, colored, pluralize, round_up
from tgcore.runtime import execute
from tgcore.runtime.buffer import Buffer
from tgcore.runtime.compiled import CompiledDevice, Graph, GraphError, ProgramCall
from tgcore.runtime.execute import Kernel
from tgcore.schedule.item import ScheduleItem
from tgcore.uop.node import UOp, infer
from tgcore.uop.ops import Ops

_ALIGNMENT: Final = 128


class JitError(TgcoreError):
    """A function cannot be captured, or a capture cannot be replayed with these inputs."""


@dataclass(frozen=True)
class Call:
    """One recorded item: a kernel with its buffers (order of spec.globals), or, without a kernel,
    a copy of the second buffer to the first."""

    kernel: Kernel | None
    buffers: tuple[Buffer, ...]
    metadata: tuple[str, ...]
    ast: UOp

    def written(self) -> list[Buffer]:
        """The buffers that it writes."""
        if self.kernel is None:
            return [self.buffers[0]]
        spec = self.kernel.spec
        return [b for n, b in zip(spec.globals, self.buffers) if n in spec.outs]


class Recording:
    """What ran while it was active."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        # for the base of every buffer that was used, its BUFFER node, if that lives
        self.nodes: dict[int, weakref.ref[UOp]] = {}

    def add(self, item: ScheduleItem, kernel: Kernel | None, memory: list[Buffer]) -> None:
        """Record an item that has run."""
        self.calls.append(Call(kernel, tuple(memory), item.metadata, item.ast))
        for node in item.buffers:
            root = node
            while root.op is Ops.BUFFER_VIEW:
                root = root.src[0]
            self.nodes[id(base_of(execute.buffer_of(node)))] = weakref.ref(root)

    def finish(self, inputs: Sequence[tuple[str, Buffer]], prune: bool = False) -> CapturedJit:
        """The capture, whose inputs are these buffers. With `prune`, calls that depend on no input,
        variable or memory that changes are left out: they have run, and their results stay."""
        if not self.calls:
            raise JitError(
                "the function ran no kernel while it was captured: realise its results inside it"
            )
        names: dict[int, str] = {}
        for name, buffer in inputs:
            other = names.setdefault(id(base_of(buffer)), name)
            if other is not name:
                raise JitError(
                    f"the arguments {other} and {name} share memory while being captured: "
                    "pass a copy for one of them"
                )
        for _, buffer in inputs:
            buffer.ensure_allocated()
        bases = {id(base_of(b)) for _, b in inputs}
        if prune:
            self.calls = _varying_calls(self.calls, bases)
        temporary = self._temporaries(bases)
        calls = _share_memory(self.calls, temporary)
        return CapturedJit(calls, inputs)

    def _temporaries(self, inputs: set[int]) -> set[int]:
        """Bases that nobody but the recorded items can reach, by identity."""
        first_use_writes: dict[int, bool] = {}
        for call in self.calls:
            written = {id(base_of(b)) for b in call.written()}
            read = {id(base_of(b)) for b in _read(call)}
            for buffer in call.buffers:
                key = id(base_of(buffer))
                first_use_writes.setdefault(key, key in written and key not in read)
        return {
            key
            for key, writes in first_use_writes.items()
            if writes and key not in inputs and key in self.nodes and self.nodes[key]() is None
        }


def _varying_calls(calls: Sequence[Call], inputs: set[int]) -> list[Call]:
    """The calls that may do something else at the next replay."""
    written: set[int] = set()
    varying = set(inputs)
    everything = {id(base_of(b)) for call in calls for b in call.written()}
    for call in calls:  # what is read before it is written keeps its value between replays
        varying |= ({id(base_of(b)) for b in _read(call)} - written) & everything
        written |= {id(base_of(b)) for b in call.written()}
    kept: set[int] = set()
    while True:
        found = {
            number
            for number, call in enumerate(calls)
            if (call.kernel is not None and call.kernel.variable_names)
            or any(id(base_of(b)) in varying for b in call.buffers)
        }
        if found == kept:
            return [call for number, call in enumerate(calls) if number in kept]
        kept = found
        varying |= {id(base_of(b)) for number in kept for b in calls[number].written()}


def _read(call: Call) -> list[Buffer]:
    if call.kernel is None:
        return [call.buffers[1]]
    spec = call.kernel.spec
    return [b for n, b in zip(spec.globals, call.buffers) if n in spec.ins]


@contextlib.contextmanager
def recording() -> Iterator[Recording]:
    """Records the items that run inside the block."""
    record = Recording()
    if execute.recorders:
        raise JitError("a captured function calls another one that is being captured")
    execute.recorders.append(record.add)
    try:
        yield record
    finally:
        execute.recorders.remove(record.add)


def is_recording() -> bool:
    """Whether a capture is going on."""
    return bool(execute.recorders)


def base_of(buffer: Buffer) -> Buffer:
    """The buffer that owns the memory."""
    return buffer if buffer.base is None else buffer.base


# *** memory of temporaries ***


def _share_memory(calls: Sequence[Call], temporary: set[int]) -> list[Call]:
    """The calls with temporaries placed in one allocation a device."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    bases: dict[int, Buffer] = {}
    for number, call in enumerate(calls):
        for buffer in call.buffers:
            base = base_of(buffer)
            if id(base) in temporary:
                bases[id(base)] = base
                first.setdefault(id(base), number)
                last[id(base)] = number
    places, totals = _place(bases, first, last)
    arenas = {d: Buffer(d, total, dtypes.uint8) for d, total in totals.items()}
    for arena in arenas.values():
        arena.is_scratch = True
    moved: dict[int, Buffer] = {}

    def replaced(buffer: Buffer) -> Buffer:
        base = base_of(buffer)
        if id(base) not in places:
            return buffer
        if id(buffer) not in moved:
            offset = places[id(base)] + buffer.offset
            arena = arenas[buffer.device]
            moved[id(buffer)] = arena.view(buffer.size, buffer.dtype, offset)
        return moved[id(buffer)]

    return [replace(c, buffers=tuple(replaced(b) for b in c.buffers)) for c in calls]


def _place(
    bases: Mapping[int, Buffer], first: Mapping[int, int], last: Mapping[int, int]
) -> tuple[dict[int, int], dict[str, int]]:
    """Offsets such that buffers which live at the same time do not overlap; the largest first."""
    places: dict[int, int] = {}
    totals: dict[str, int] = {}
    placed: dict[str, list[int]] = {}
    for key in sorted(bases, key=lambda k: (-bases[k].nbytes, first[k])):
        base = bases[key]
        if not base.nbytes:
            continue
        others = placed.setdefault(base.device, [])
        taken = sorted(
            (places[o], places[o] + round_up(bases[o].nbytes, _ALIGNMENT))
            for o in others
            if first[o] <= last[key] and first[key] <= last[o]
        )
        offset = 0
        for begin, end in taken:
            if offset + base.nbytes <= begin:
                break
            offset = max(offset, end)
        places[key] = offset
        others.append(key)
        totals[base.device] = max(totals.get(base.device, 0), offset + base.nbytes)
    return places, totals


# *** replay ***


@dataclass(frozen=True)
class _InputView:
    """A view of an input that the calls use."""

    number: int
    size: int
    dtype: DType
    offset: int


@dataclass(frozen=True)
class _Step:
    """A call without the recorded inputs: their numbers stand for them."""

    ast: UOp
    device: str
    memory: tuple[int | Buffer, ...]
    metadata: tuple[str, ...]

    def call(self, inputs: Sequence[Buffer]) -> Call:
        """The call with these inputs (and views of them)."""
        memory = tuple(inputs[m] if isinstance(m, int) else m for m in self.memory)
        kernel = execute.kernel_for(self.ast, self.device) if self.device else None
        return Call(kernel, memory, self.metadata, self.ast)


def _restored(
    names: Sequence[str],
    expected: Sequence[tuple[int, DType, str]],
    views: Sequence[_InputView],
    recipe: Sequence[_Step],
) -> CapturedJit:
    """A capture from its parts, as after unpickling; kernels are compiled if no cache has them."""
    inputs = [Buffer(device, size, dtype) for size, dtype, device in expected]
    everything = inputs + [inputs[v.number].view(v.size, v.dtype, v.offset) for v in views]
    calls = [step.call(everything) for step in recipe]
    return CapturedJit(calls, list(zip(names, inputs)))


class _Single:
    """One call that is replayed by itself."""

    def __init__(self, call: Call, slots: Mapping[int, int]) -> None:
        self.kernel, self.metadata = call.kernel, call.metadata
        # a buffer that stays, or the number of an input (whose recorded buffer is let go)
        self.memory = [slots.get(slot, buffer) for slot, buffer in enumerate(call.buffers)]

    def replay(self, inputs: Sequence[Buffer], variables: Mapping[str, int]) -> None:
        memory = [inputs[m] if isinstance(m, int) else m for m in self.memory]
        kernel = self.kernel
        if kernel is None:
            execute.copy_buffer(memory[0], memory[1], self.metadata)
            return
        seconds = kernel.run(memory, variables, DEBUG >= 2)
        execute.count_kernel(kernel.spec, variables, seconds)
        if DEBUG >= 2:
            execute.report_kernel(kernel, variables, seconds, self.metadata, "magenta")


class _Graphed:
    """Calls of one device that are replayed as a graph."""

    def __init__(
        self,
        device: CompiledDevice,
        calls: Sequence[Call],
        inputs: Mapping[tuple[int, int], int],
        names: Sequence[str],
    ) -> None:
        assert device.graph is not None
        self.device, self.count = device, len(calls)
        programs = [ProgramCall(c.kernel.program, c.buffers) for c in calls if c.kernel]
        self.graph: Graph = device.graph(device, programs, inputs, names)
        specs = [c.kernel.spec for c in calls if c.kernel]
        self.ops = [spec.estimates.ops for spec in specs]
        self.mem = [spec.estimates.mem for spec in specs]
        self.lds = [spec.estimates.lds for spec in specs]
        self.fixed = all(isinstance(v, int) for v in (*self.ops, *self.mem, *self.lds))
        self.totals = self._totals({}) if self.fixed else (0, 0, 0)

    def _totals(self, variables: Mapping[str, int]) -> tuple[int, int, int]:
        ops, mem, lds = (
            sum(infer(v, variables) for v in values) for values in (self.ops, self.mem, self.lds)
        )
        return (ops, mem, lds)

    def replay(self, inputs: Sequence[Buffer], variables: Mapping[str, int]) -> None:
        seconds = self.graph.replay(inputs, variables, wait=DEBUG >= 2)
        totals = self.totals if self.fixed else self._totals(variables)
        execute.count(totals[0], totals[1], seconds, self.count)
        if DEBUG >= 2:
            name = colored(f"<graph of {pluralize(self.count, 'kernel')}>", "cyan")
            execute.report(self.device.name, name, len(inputs), seconds, totals, color="magenta")


class CapturedJit:
    """Recorded calls, ready to be replayed with other inputs and values of variables."""

    def __init__(self, calls: Sequence[Call], inputs: Sequence[tuple[str, Buffer]]) -> None:
        self.calls: Sequence[Call] = tuple(calls)
        self.names = tuple(name for name, _ in inputs)
        self.expected = tuple((b.size, b.dtype, b.device) for _, b in inputs)
        self.views: list[_InputView] = []
        self._number_of = {id(base_of(b)): n for n, (_, b) in enumerate(inputs)}
        self._input_offsets = [b.offset for _, b in inputs]
        # (call, slot) -> position among the inputs and the views of inputs
        self.slots: dict[tuple[int, int], int] = {}
        self._find_inputs(inputs)
        self.variable_names = tuple(
            sorted({n for c in calls if c.kernel for n in c.kernel.variable_names})
        )
        self.written_inputs = self._written_inputs()
        # memory that is no input: it is kept, so that it can be told from other memory
        self.state = {id(base_of(b)): base_of(b) for c in calls for b in c.buffers}
        for key in self._number_of:
            self.state.pop(key, None)
        written = {id(base_of(b)) for c in calls for b in c.written()}
        self.written_bases = written & self.state.keys()
        self.kernel_count = sum(call.kernel is not None for call in calls)
        self.parts: list[_Single | _Graphed] = []
        self._build()
        # nothing of the capture may keep the recorded inputs' memory alive
        self.recipe = tuple(self._without_inputs(n, call) for n, call in enumerate(self.calls))
        self.calls = ()
        self._number_of.clear()

    def _without_inputs(self, position: int, call: Call) -> _Step:
        memory = [self.slots.get((position, slot), b) for slot, b in enumerate(call.buffers)]
        device = "" if call.kernel is None else call.kernel.device.name
        return _Step(call.ast, device, tuple(memory), call.metadata)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restored, (self.names, self.expected, self.views, self.recipe))

    def free_intermediates(self) -> None:
        """Give back the memory of temporaries; the next replay takes new memory for them."""
        self.parts = []
        for buffer in self.state.values():
            if buffer.is_scratch:
                buffer.deallocate()

    def __call__(
        self, inputs: Sequence[Buffer], variables: Mapping[str, int] | None = None
    ) -> None:
        """Replay with these inputs and values of variables."""
        known = variables if variables is not None else {}
        checked = self._checked(inputs)
        if self.views:
            checked += [checked[v.number].view(v.size, v.dtype, v.offset) for v in self.views]
        for buffer in checked:
            if buffer._memory is None:
                buffer.ensure_allocated()
        for name in self.variable_names:
            if name not in known:
                raise JitError(f"the variable {name!r} has no value in this call")
        if not self.parts:
            self.calls = [step.call(checked) for step in self.recipe]
            self._build()
            self.calls = ()
        for part in self.parts:
            part.replay(checked, known)

    # *** checks ***

    def _checked(self, inputs: Sequence[Buffer]) -> list[Buffer]:
        if len(inputs) != len(self.expected):
            raise JitError(
                f"captured with {pluralize(len(self.expected), 'input')} "
                f"({', '.join(self.names)}), called with {len(inputs)}"
            )
        for number, (buffer, expected) in enumerate(zip(inputs, self.expected)):
            if (buffer.size, buffer.dtype, buffer.device) != expected:
                size, dtype, device = expected
                raise JitError(
                    f"the argument {self.names[number]} was captured with {size} elements of "
                    f"{dtype} on {device}, and is now {buffer.size} of {buffer.dtype} on "
                    f"{buffer.device}"
                )
            self.check_state(number, buffer)
        self._check_aliases(inputs)
        return list(inputs)

    def check_state(self, number: int, buffer: Buffer) -> None:
        """Refuses an input that is memory which is used as no input too, if one of both is written:
        what is read before and what after was decided while they were two."""
        key = id(base_of(buffer))
        is_written = key in self.written_bases or number in self.written_inputs
        if key in self.state and is_written:
            raise JitError(
                f"the argument {self.names[number]} is memory that the function overwrites, and "
                "uses as its state too: pass a copy (.clone())"
            )

    def _check_aliases(self, inputs: Sequence[Buffer]) -> None:
        if not self.written_inputs:
            return
        owners: dict[int, int] = {}
        for number, buffer in enumerate(inputs):
            other = owners.setdefault(id(base_of(buffer)), number)
            if other != number and self.written_inputs & {number, other}:
                raise JitError(
                    f"the arguments {self.names[other]} and {self.names[number]} share memory "
                    "that the function writes: pass a copy for one of them"
                )

    # *** building ***

    def _find_inputs(self, inputs: Sequence[tuple[str, Buffer]]) -> None:
        view_numbers: dict[_InputView, int] = {}
        whole = {id(b): n for n, (_, b) in enumerate(inputs)}
        for position, call in enumerate(self.calls):
            for slot, buffer in enumerate(call.buffers):
                number = whole.get(id(buffer))
                if number is None:
                    owner = self._number_of.get(id(base_of(buffer)))
                    if owner is None:
                        continue
                    number = self._view_number(owner, buffer, view_numbers)
                self.slots[position, slot] = number

    def _view_number(self, owner: int, buffer: Buffer, known: dict[_InputView, int]) -> int:
        offset = buffer.offset - self._input_offsets[owner]
        size, dtype, _ = self.expected[owner]
        if (buffer.size, buffer.dtype, offset) == (size, dtype, 0):
            return owner
        if offset < 0 or offset + buffer.nbytes > size * dtype.itemsize:
            raise JitError(
                f"the function uses memory around the argument {self.names[owner]}, which is a "
                "view: pass a copy"
            )
        view = _InputView(owner, buffer.size, buffer.dtype, offset)
        if view not in known:
            known[view] = len(self.expected) + len(self.views)
            self.views.append(view)
        return known[view]

    def _written_inputs(self) -> set[int]:
        found = set()
        for call in self.calls:
            for buffer in call.written():
                number = self._number_of.get(id(base_of(buffer)))
                if number is not None:
                    found.add(number)
        return found

    def _build(self) -> None:
        """Graphs and single calls from the calls."""
        for call in self.calls:
            for buffer in call.buffers:
                buffer.ensure_allocated()
        begin = 0
        while begin < len(self.calls):
            end = self._end_of_run(begin)
            self.parts += self._part(begin, end)
            begin = end

    def _end_of_run(self, begin: int) -> int:
        """Up to where the calls are kernels on the same device."""
        kernel = self.calls[begin].kernel
        end = begin + 1
        if kernel is None:
            return end
        while end < len(self.calls):
            other = self.calls[end].kernel
            if other is None or other.device is not kernel.device:
                break
            end += 1
        return end

    def _part(self, begin: int, end: int) -> list[_Single | _Graphed]:
        kernel = self.calls[begin].kernel
        if kernel is not None and kernel.device.graph is not None and JIT < 2:
            calls = self.calls[begin:end]
            inputs = {
                (position - begin, slot): number
                for (position, slot), number in self.slots.items()
                if begin <= position < end
            }
            with contextlib.suppress(GraphError):  # then one by one
                return [_Graphed(kernel.device, calls, inputs, self.variable_names)]
        return [self._single(number) for number in range(begin, end)]

    def _single(self, position: int) -> _Single:
        call = self.calls[position]
        slots = {slot: n for (p, slot), n in self.slots.items() if p == position}
        return _Single(call, slots)
