"""Queues of a GPU: commands as methods, launches as descriptors beside them.

Commands and the data that they refer to (descriptors, constant banks) are two arrays of words.
Both are copied to memory that the GPU reads when the queue is submitted; where that will be is a
symbol until then.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, Self

from tg_nv.interface import Engine
from tg_nv.queue import methods as m
from tg_nv.queue.methods import COMPUTE, COPY, HOST, Method, Semaphore
from tgcore.hcq.memory import HCQMemory
from tgcore.hcq.program import HCQProgram
from tgcore.hcq.queue import NO_VALUES, HWQueue, Words
from tgcore.hcq.signal import MemorySignal, Signal
from tgcore.hcq.symbol import Symbol, Value
from tgcore.helpers import ContextVar

if TYPE_CHECKING:
    from tg_nv.device import NVDevice

_DATA: Final = Symbol("data of the submission")
_FENCE: Final = Symbol("fence of the submission")

SIGNAL_BYTES: Final = 64  # a line of the host's cache of its own
_TIME_OFFSET: Final = 16

_COPY_AT_ONCE: Final = 1 << 31

# words that are the same in all queues
_SEMAPHORE: Final = m.header(HOST.SEM_ADDR_LO, 5)
_EXECUTE: Final = HOST.SEM_EXECUTE.word
_ACQUIRE: Final = _EXECUTE(operation=Semaphore.ACQUIRE_GREATER_OR_EQUAL, switch=1, payload_64=1)
_RELEASE: Final = _EXECUTE(operation=Semaphore.RELEASE, wait_for_idle=1, payload_64=1)
_TIMED_RELEASE: Final = _EXECUTE(
    operation=Semaphore.RELEASE, wait_for_idle=1, payload_64=1, timestamp=1
)
_WAIT_FOR_IDLE: Final = m.header(COMPUTE.WAIT_FOR_IDLE, 1)
_INVALIDATE: Final = m.header(COMPUTE.INVALIDATE_SHADER_CACHES_NO_WFI, 1)
_ALL_CACHES: Final = COMPUTE.INVALIDATE_SHADER_CACHES_NO_WFI.word(
    instruction=1, global_data=1, constant=1
)
_LAUNCH: Final = m.header(COMPUTE.SEND_PCAS_A, 1)
_SCHEDULE: Final = m.header(COMPUTE.SEND_SIGNALING_PCAS2_B, 1)
_SCHEDULE_NOW: Final = COMPUTE.SEND_SIGNALING_PCAS2_B.word(action=m.PCAS_SCHEDULE)

NV_CHAIN = ContextVar(
    "NV_CHAIN", 1, "0 has each launch sent by itself, not chained to the one before it"
)


class NVSignal(MemorySignal):
    """A value, and at 16 bytes from it what a timed release writes: a payload and a time."""

    @property
    def timestamp_address(self) -> int:
        return self.address + _TIME_OFFSET

    @property
    def timestamp(self) -> int:
        return self._words[3]


class _DataWords(Words):
    word_type = "I"


@dataclass
class _Place:
    """One of the places of a bound queue: its words are kept there and patched."""

    memory: HCQMemory
    commands: memoryview
    data: memoryview
    last: dict[Hashable, int] = field(default_factory=dict)
    last_data: dict[Hashable, int] = field(default_factory=dict)
    fence: int = 0


class NVQueue(HWQueue["NVDevice"]):
    """What both kinds of queues have: semaphores, and the way to the GPU."""

    word_type = "I"
    engine: ClassVar[Engine]

    def __init__(self) -> None:
        super().__init__()
        self.data = _DataWords()
        self._finished = False
        self._places: list[_Place] = []
        self._turn = 0

    def _methods(self, first: Method, *values: Value) -> None:
        """Write methods at consecutive addresses."""
        self.push(m.header(first, len(values)), *values)

    def _semaphore(self, address: int, value: Value, execute: Value) -> None:
        low = 0xFFFF_FFFF
        self.push(_SEMAPHORE, address & low, address >> 32, value & low, value >> 32, execute)

    def signal(self, signal: Signal, value: Value) -> Self:
        self.begin()
        self._semaphore(signal.address, value, _RELEASE)
        return self

    def wait(self, signal: Signal, value: Value) -> Self:
        self.begin()
        self._semaphore(signal.address, value, _ACQUIRE)
        return self

    def timestamp(self, signal: Signal) -> Self:
        self.begin()
        self._semaphore(signal.timestamp_address, 0, _TIMED_RELEASE)
        return self

    # *** submission ***

    @property
    def symbols(self) -> set[Hashable]:
        return (super().symbols | self.data.symbols) - {_DATA.name, _FENCE.name}

    def bind(self, device: NVDevice) -> Self:
        self._finish(device)
        nbytes = self._data_bytes + 4 * len(self.words)
        for _ in range(2):  # one is patched while the GPU reads the other
            memory = device.alloc_commands(nbytes)
            self._places.append(self._filled(memory))
            weakref.finalize(self, device.retire, memory)
        return super().bind(device)

    def submit(self, device: NVDevice, values: Mapping[Hashable, int] = NO_VALUES) -> Self:
        if self.bound is not None and self.bound is not device:
            raise ValueError(f"the queue is bound to {self.bound.name}, not {device.name}")
        device.check_health()
        if self.bound is None:
            self._finish(device)
        ring = device.rings[self.engine]
        place = self._next_place(device)
        fields = {**values, _DATA.name: place.memory.address, _FENCE.name: ring.submitted + 1}
        self.patch_into(place.commands, place.last, fields)
        self.data.patch_into(place.data, place.last_data, fields)
        ring.submit(place.memory.address + self._data_bytes, len(self.words))
        place.fence = ring.submitted
        return self

    def _submit(self, device: NVDevice) -> None:
        raise AssertionError("submit does it")

    def _finish(self, device: NVDevice) -> None:
        """The end of the commands: the ring learns that they are done."""
        if not self._finished:
            self._finished = True
            self.signal(device.rings[self.engine].fence, _FENCE)

    @property
    def _data_bytes(self) -> int:
        return 4 * len(self.data.words) + 255 & -256

    def _next_place(self, device: NVDevice) -> _Place:
        if not self._places:
            nbytes = self._data_bytes + 4 * len(self.words)
            return self._filled(device.rings[self.engine].room(nbytes))
        self._turn = (self._turn + 1) % len(self._places)
        place = self._places[self._turn]
        device.wait_signal(device.rings[self.engine].fence, place.fence)
        return place

    def _filled(self, memory: HCQMemory) -> _Place:
        """The words in that memory: data first, as it must be aligned."""
        assert memory.view is not None
        data_bytes, count = self._data_bytes, len(self.words)
        data = memory.view[: 4 * len(self.data.words)].cast("I")
        commands = memory.view[data_bytes : data_bytes + 4 * count].cast("I")
        data[:] = memoryview(self.data.words)
        commands[:] = memoryview(self.words)
        return _Place(memory, commands, data)


class ComputeQueue(NVQueue):
    """Runs programs. A launch that follows another at once is chained to it by the descriptors."""

    engine = Engine.COMPUTE

    def __init__(self) -> None:
        super().__init__()
        self._barrier_due = False
        self._chain: int | None = None  # the last launch's descriptor, if nothing followed it

    def begin(self) -> None:
        """A command that is no launch: what was put off is written."""
        self._chain = None
        if self._barrier_due:
            self._barrier_due = False
            self.push(_WAIT_FOR_IDLE, 0, _INVALIDATE, _ALL_CACHES)
        super().begin()

    def memory_barrier(self) -> Self:
        self._barrier_due = True
        return self

    def exec(
        self,
        program: HCQProgram,
        args: Sequence[Value],
        global_size: Sequence[Value] = (1, 1, 1),
        local_size: Sequence[Value] = (1, 1, 1),
    ) -> Self:
        from tg_nv.program import NVProgram

        assert isinstance(program, NVProgram)
        previous = self._chain if self._barrier_due and NV_CHAIN else None
        if previous is None:
            self.begin()
        self._barrier_due = False
        start = len(self.data.words)
        place = _DATA + 4 * start
        program.write_launch(self.data, place, args, global_size, local_size)
        if previous is not None:
            program.layout.chain(self.data, previous, place)
        else:
            self.push(_LAUNCH, place >> 8, _SCHEDULE, _SCHEDULE_NOW)
        self._chain = start
        return self

    def copy(self, dest: Value, source: Value, nbytes: Value) -> Self:
        raise NotImplementedError("copies go in copy queues")

    # *** set-up of the engine ***

    def set_up(self, engine_class: int, local_window: int, shared_window: int) -> Self:
        """What the engine must be told once."""
        self.begin()
        self._methods(COMPUTE.SET_OBJECT, engine_class)
        windows = (
            (COMPUTE.SET_SHADER_LOCAL_MEMORY_WINDOW_A, local_window),
            (COMPUTE.SET_SHADER_SHARED_MEMORY_WINDOW_A, shared_window),
        )
        for method, window in windows:
            self._methods(method, window >> 32, window & 0xFFFF_FFFF)
        return self

    def set_local_memory(self, address: int, bytes_per_tpc: int) -> Self:
        """Where threads have their local memory."""
        self.begin()
        self._methods(COMPUTE.SET_SHADER_LOCAL_MEMORY_A, address >> 32, address & 0xFFFF_FFFF)
        self._methods(
            COMPUTE.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A,
            bytes_per_tpc >> 32,
            bytes_per_tpc & 0xFFFF_FFFF,
            COMPUTE.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C.word(most_sms=0xFF),
        )
        return self


class CopyQueue(NVQueue):
    """Copies memory."""

    engine = Engine.COPY

    def memory_barrier(self) -> Self:
        return self  # releases wait for what was copied, and flush it

    def exec(
        self,
        program: HCQProgram,
        args: Sequence[Value],
        global_size: Sequence[Value] = (1, 1, 1),
        local_size: Sequence[Value] = (1, 1, 1),
    ) -> Self:
        raise NotImplementedError("programs go in compute queues")

    def set_up(self, engine_class: int) -> Self:
        """What the engine must be told once."""
        self.begin()
        self._methods(COPY.SET_OBJECT, engine_class)
        return self

    def copy(self, dest: Value, source: Value, nbytes: Value) -> Self:
        if isinstance(nbytes, Symbol):
            raise NotImplementedError("the size of a copy must be known")
        self.begin()
        for start in range(0, nbytes, _COPY_AT_ONCE):
            self._copy(dest + start, source + start, min(nbytes - start, _COPY_AT_ONCE))
        return self

    def _copy(self, dest: Value, source: Value, nbytes: int) -> None:
        low = 0xFFFF_FFFF
        self._methods(COPY.OFFSET_IN_UPPER, source >> 32, source & low, dest >> 32, dest & low)
        self._methods(COPY.LINE_LENGTH_IN, nbytes, 1)
        launch = {"transfer": m.NON_PIPELINED, "source_pitch": 1, "dest_pitch": 1}
        self._methods(COPY.LAUNCH_DMA, COPY.LAUNCH_DMA.word(**launch))
