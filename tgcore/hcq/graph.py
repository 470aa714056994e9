"""A captured list of calls as one submission per queue, replayed with other inputs and variables.

Calls on one queue run in order. A call waits for calls on other queues that touch the same memory,
through one signal a queue. Addresses of inputs, variables and signal values are symbols, so a
replay patches words and submits.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

from tgcore.hcq.queue import HWQueue
from tgcore.hcq.signal import Signal
from tgcore.hcq.symbol import Symbol, Value
from tgcore.helpers import PROFILE
from tgcore.runtime.compiled import (
    CompiledDevice,
    CopyCall,
    Graph,
    GraphCall,
    GraphError,
    ProgramCall,
)
from tgcore.uop.node import UOp, infer

if TYPE_CHECKING:
    from tgcore.hcq.device import HCQDevice
    from tgcore.runtime.buffer import Buffer

Queue = HWQueue[Any]
Key = tuple[str, str]  # device name, kind of queue

_TICK = Symbol("tick")  # where the lanes' signals stood before this replay


def _timeline(device: HCQDevice) -> Symbol:
    """Where a device's timeline stood before this replay."""
    return Symbol(("timeline", device.name))


class _Touch(NamedTuple):
    """A call's use of a range of memory."""

    start: int
    end: int
    writes: bool
    call: int


class _Lane:
    """One queue of the graph while it is built."""

    def __init__(self, device: HCQDevice, kind: str) -> None:
        make = device.copy_queue if kind == "copy" else None
        self.device, self.kind = device, kind
        self.queue: Queue = (make or device.compute_queue)()
        self.signal: Signal = device.new_signal()
        self.waited: dict[Key, int] = {}  # the last call of another lane that was waited for
        self.last = -1  # its last call


class HCQGraph(Graph):
    """Replays calls on one or more devices of a kind. See `tgcore.runtime.compiled.Graph`."""

    def __init__(
        self,
        device: CompiledDevice,
        calls: Sequence[GraphCall],
        inputs: Mapping[tuple[int, int], int],
        var_names: Sequence[str] = (),
    ) -> None:
        self.calls, self.inputs = tuple(calls), dict(inputs)
        self.var_names = tuple(var_names)
        self.main: HCQDevice = device  # type: ignore[assignment]
        self.input_count = max(inputs.values(), default=-1) + 1
        self._sizes: dict[Hashable, UOp] = {}
        self._lanes: dict[Key, _Lane] = {}
        self._touches: dict[Hashable, list[_Touch]] = {}
        self._lane_of: list[Key] = [self._assign(number) for number in range(len(self.calls))]
        self._ticks = len(self.calls) + 1  # how far the lanes' signals move in a replay
        self._replays = 0
        self._name = f"a graph of {len(self.calls)} calls"
        self._stamps: list[tuple[int, Signal, Signal]] = []
        found = {lane.device.name: lane.device for lane in self._lanes.values()}
        self._devices = [found[name] for name in sorted(found)]  # also the order of locking
        self._build()

    # *** building ***

    def _assign(self, number: int) -> Key:
        call = self.calls[number]
        if isinstance(call, ProgramCall):
            owner, kind = call.program.device, "compute"
        else:
            owner, kind = self._owner(call.source), "copy"
            if not self._hcq(self._owner(call.dest)).reaches(owner):
                raise GraphError(f"{owner.name} cannot copy to {call.dest.device} in a graph")
        hcq = self._hcq(owner)
        if kind == "copy" and hcq.copy_queue is None:
            kind = "compute"
        key = (hcq.name, kind)
        if key not in self._lanes:
            self._lanes[key] = _Lane(hcq, kind)
        return key

    def _owner(self, buffer: Buffer) -> CompiledDevice:
        allocator = buffer.allocator
        owner = getattr(allocator, "device", None)
        if not isinstance(owner, CompiledDevice):
            raise GraphError(f"copies from and to {buffer.device} cannot be in a graph")
        return owner

    def _hcq(self, device: CompiledDevice) -> HCQDevice:
        if not self.main.reaches(device):
            raise GraphError(f"{device.name} and {self.main.name} cannot be in one graph")
        return device  # type: ignore[return-value]

    def _build(self) -> None:
        for lane in self._lanes.values():
            for device in self._devices:
                lane.queue.wait(device.timeline, _timeline(device))
            lane.queue.memory_barrier()
        for number, call in enumerate(self.calls):
            self._add(number, call)
        self._finish()

    def _add(self, number: int, call: GraphCall) -> None:
        key = self._lane_of[number]
        lane = self._lanes[key]
        if len(self._lanes) > 1:
            self._wait_for_others(number, call, key)
        if PROFILE:
            stamps = (lane.device.new_signal(), lane.device.new_signal())
            self._stamps.append((number, *stamps))
            lane.queue.timestamp(stamps[0])
        self._emit(number, call, lane.queue)
        if PROFILE:
            lane.queue.timestamp(stamps[1])
        lane.last = number
        if len(self._lanes) > 1:
            lane.queue.signal(lane.signal, _TICK + (number + 1))

    def _emit(self, number: int, call: GraphCall, queue: Queue) -> None:
        addresses = [self._address(number, slot, b) for slot, b in enumerate(call.buffers)]
        if isinstance(call, CopyCall):
            queue.copy(addresses[0], addresses[1], call.dest.nbytes)
            return
        spec = call.program.spec
        variables: list[Value] = [Symbol(("var", var.arg[0])) for var in spec.vars]
        sizes = [self._dims(size) for size in (spec.global_size, spec.local_size)]
        queue.exec(call.program, [*addresses, *variables], *sizes)  # type: ignore[arg-type]
        queue.memory_barrier()

    def _address(self, number: int, slot: int, buffer: Buffer) -> Value:
        if (given := self.inputs.get((number, slot))) is not None:
            return Symbol(("input", given))
        address: int = buffer.memory.address
        return address

    def _dims(self, size: Sequence[int | UOp] | None) -> list[Value]:
        dims: list[Value] = []
        for value in size or ():
            if isinstance(value, UOp):
                self._sizes[("size", value)] = value
                dims.append(Symbol(("size", value)))
            else:
                dims.append(value)
        return [*dims, 1, 1, 1][:3]

    def _wait_for_others(self, number: int, call: GraphCall, key: Key) -> None:
        needed: dict[Key, int] = {}
        for slot in range(len(call.buffers)):
            for earlier in self._touch(number, slot, call):
                other = self._lane_of[earlier]
                if other != key:
                    needed[other] = max(needed.get(other, -1), earlier)
        lane = self._lanes[key]
        for other, earlier in needed.items():
            if lane.waited.get(other, -1) < earlier:
                lane.waited[other] = earlier
                lane.queue.wait(self._lanes[other].signal, _TICK + (earlier + 1))

    def _touch(self, number: int, slot: int, call: GraphCall) -> list[int]:
        """Record the call's use of a slot; the earlier calls that it must come after."""
        buffer = call.buffers[slot]
        writes = _writes(call, slot)
        if (number, slot) in self.inputs:
            place: Hashable = "inputs"  # any two may be the same memory
            start, end = 0, 1
        else:
            place = id(buffer.base or buffer)
            start, end = buffer.offset, buffer.offset + buffer.nbytes
        touches = self._touches.setdefault(place, [])
        earlier = [
            t.call for t in touches if t.start < end and start < t.end and (writes or t.writes)
        ]
        touches.append(_Touch(start, end, writes, number))
        return earlier

    def _finish(self) -> None:
        """The first lane of each device waits for the other lanes, then signals the timeline."""
        for device in self._devices:
            key = next(key for key in self._lanes if key[0] == device.name)
            queue = self._lanes[key].queue
            for other, lane in self._lanes.items():
                if other != key and lane.last >= 0:
                    queue.wait(lane.signal, _TICK + (lane.last + 1))
            queue.signal(device.timeline, _timeline(device) + 1)
        for lane in self._lanes.values():
            lane.queue.bind(lane.device)

    # *** replay ***

    def replay(
        self,
        inputs: Sequence[Buffer],
        var_vals: Mapping[str, int] | None = None,
        *,
        wait: bool = False,
    ) -> float | None:
        if len(inputs) < self.input_count:
            raise ValueError(f"the graph has {self.input_count} inputs, {len(inputs)} were given")
        values = self._values(inputs, var_vals or {})
        stamps = self._time_around() if wait else None
        with ExitStack() as stack:
            for device in self._devices:
                stack.enter_context(device.lock)
                values[("timeline", device.name)] = device.submitted
            for lane in self._lanes.values():
                lane.queue.submit(lane.device, values)
            for device in self._devices:
                device.advance(self._name)
        if self._stamps:
            self._collect_stamps()
        return stamps() if stamps else None

    def _values(
        self, inputs: Sequence[Buffer], variables: Mapping[str, int]
    ) -> dict[Hashable, int]:
        values: dict[Hashable, int] = {
            ("input", number): buffer.memory.address for number, buffer in enumerate(inputs)
        }
        for name in self.var_names:
            values[("var", name)] = variables[name]
        for key, size in self._sizes.items():
            values[key] = infer(size, variables)
        values[_TICK.name] = self._replays * self._ticks
        self._replays += 1
        return values

    def _time_around(self) -> Callable[[], float]:
        """Put a timestamp in the main device's queue now; the result puts another and waits."""
        device = self.main
        start, end = device.take_signal(), device.take_signal()
        device.enqueue("timestamp", lambda queue: queue.timestamp(start))

        def finish() -> float:
            device.wait_for(device.enqueue("timestamp", lambda queue: queue.timestamp(end)))
            seconds = (end.timestamp - start.timestamp) / 1e9
            device.return_signal(start)
            device.return_signal(end)
            return seconds

        return finish

    def _collect_stamps(self) -> None:
        for device in self._devices:
            device.synchronize()
        for number, start, end in self._stamps:
            call, lane = self.calls[number], self._lanes[self._lane_of[number]]
            what = call.program.function_name if isinstance(call, ProgramCall) else "copy"
            lane.device.add_profile(lane.kind, what, start, end)


def _writes(call: GraphCall, slot: int) -> bool:
    if isinstance(call, CopyCall):
        return slot == 0
    spec = call.program.spec
    return spec.globals[slot] in spec.outs
