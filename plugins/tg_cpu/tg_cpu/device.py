"""The CPU as an HCQ device: its signals, queue, programs, and the device itself."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Self

from tg_cpu import processor
from tg_cpu.loader import LoadedCode, load_code
from tg_cpu.memory import CPUAllocator
from tg_cpu.native import pointer, view
from tg_cpu.workers import Processor, functions, host_wait, lasting_memory
from tgcore.hcq.device import HCQDevice
from tgcore.hcq.graph import HCQGraph
from tgcore.hcq.program import HCQProgram
from tgcore.hcq.queue import HWQueue
from tgcore.hcq.signal import MemorySignal, Signal
from tgcore.hcq.symbol import Value
from tgcore.helpers import PROFILE
from tgcore.runtime.buffer import Buffer
from tgcore.runtime.compiled import Dims

if TYPE_CHECKING:
    from tgcore.codegen.program import ProgramSpec
    from tgcore.renderer.base import Compiler, Renderer

_SIGNALS_AT_ONCE: Final = 128

_SIGNAL_HEADER: Final = processor.SIGNAL | 3 << 8
_WAIT_HEADER: Final = processor.WAIT | 3 << 8
_COPY_HEADER: Final = processor.COPY | 4 << 8
_TIMESTAMP_HEADER: Final = processor.TIMESTAMP | 2 << 8


class CPUSignal(MemorySignal):
    """A signal on which host and processor sleep by futex."""

    @property
    def value(self) -> int:
        return self._words[0]

    @value.setter
    def value(self, value: int) -> None:
        functions().signal(pointer(self.address), value)

    def wait_slice(self, value: int, seconds: float) -> bool:
        return host_wait(self.address, value, seconds)


class CPUQueue(HWQueue["CPUDevice"]):
    """Packets of the command processor. They are processed in order, one after another."""

    def __init__(self) -> None:
        super().__init__()
        self.threads = 1

    def exec(
        self,
        program: HCQProgram,
        args: Sequence[Value],
        global_size: Sequence[Value] = (1, 1, 1),
        local_size: Sequence[Value] = (1, 1, 1),
    ) -> Self:
        assert isinstance(program, CPUProgram)
        self.begin()
        self.threads = max(self.threads, program.threads)
        header = processor.EXEC | (3 + len(args)) << 8
        return self.push(header, program.address, program.threads, *args)

    def copy(self, dest: Value, source: Value, nbytes: Value) -> Self:
        self.begin()
        return self.push(_COPY_HEADER, dest, source, nbytes)

    def signal(self, signal: Signal, value: Value) -> Self:
        self.begin()
        return self.push(_SIGNAL_HEADER, signal.address, value)

    def wait(self, signal: Signal, value: Value) -> Self:
        self.begin()
        return self.push(_WAIT_HEADER, signal.address, value)

    def timestamp(self, signal: Signal) -> Self:
        self.begin()
        return self.push(_TIMESTAMP_HEADER, signal.timestamp_address)

    def memory_barrier(self) -> Self:
        return self  # one thread processes all packets: what came earlier is seen

    def _submit(self, device: CPUDevice) -> None:
        for part in self._parts(device.processor.most_words):
            device.processor.submit(part, self.threads)

    def _parts(self, most: int) -> list[array[int]]:
        """The words, cut between commands if they are too many for the ring."""
        if len(self.words) <= most:
            return [self.words]
        parts: list[array[int]] = []
        begin = 0
        for start, end in zip(self.starts, [*self.starts[1:], len(self.words)]):
            if end - begin > most:
                parts.append(self.words[begin:start])
                begin = start
        return [*parts, self.words[begin:]]


class CPUProgram(HCQProgram):
    """A native function: `void f(const int64_t *args, int32_t thread)`."""

    device: CPUDevice

    def __init__(
        self, device: CPUDevice, function_name: str, code: LoadedCode, spec: ProgramSpec
    ) -> None:
        super().__init__(device, function_name, spec)
        self.code = code
        self.address = code.functions[function_name]
        self.threads = max(1, spec.threads)

    def __call__(
        self,
        buffers: Sequence[Buffer],
        values: Sequence[int] = (),
        *,
        global_size: Dims = (1, 1, 1),
        local_size: Dims = (1, 1, 1),
        wait: bool = False,
    ) -> float | None:
        if wait or PROFILE:
            return super().__call__(buffers, values, wait=wait)
        device = self.device
        count = 3 + len(buffers) + len(values)
        words = [processor.EXEC | count << 8, self.address, self.threads]
        words += [buffer.memory.address for buffer in buffers]
        words += values
        # packets are in order, so the wait for the timeline that other devices need is left out
        with device.lock:
            words += (_SIGNAL_HEADER, device.timeline.address, device.submitted + 1)
            device.processor.submit(array("q", words), self.threads)
            device.advance(self.function_name)
        return None

    def __del__(self, finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # the function is a default value because modules are empty at the end of the process
        if hasattr(self, "code") and not finalizing():
            self.device.retire(self.code)


class CPUDevice(HCQDevice):
    """A processor's queue; all CPU devices share the machine's memory and cores."""

    compute_queue = CPUQueue

    def __init__(self, name: str, renderer: Renderer, compiler: Compiler, threads: int) -> None:
        self.name = name
        self._signal_places: list[int] = []
        self._names: dict[int, str] = {}
        self._retired: list[tuple[int, LoadedCode]] = []
        self.processor = Processor(threads)
        super().__init__(name, CPUAllocator(self), renderer, compiler, HCQGraph)
        _opened.add(self)

    def new_signal(self) -> Signal:
        if not self._signal_places:
            size = processor.SIGNAL_BYTES
            start = lasting_memory(_SIGNALS_AT_ONCE * size)
            self._signal_places = [start + n * size for n in range(_SIGNALS_AT_ONCE)]
        address = self._signal_places.pop()
        return CPUSignal(view(address, 16), address)

    def load(self, function_name: str, binary: bytes, spec: ProgramSpec) -> CPUProgram:
        program = CPUProgram(self, function_name, load_code(binary), spec)
        self._names[program.address] = function_name
        return program

    def retire(self, code: LoadedCode) -> None:
        """Release the code of a program that is no longer used once the queue has passed it."""
        reached = self.timeline.value
        self._retired.append((self.submitted, code))
        for value, old in self._retired:
            if value <= reached:
                old.release()
        self._retired = [(value, old) for value, old in self._retired if value > reached]

    def progress(self) -> int:
        return self.processor.consumed

    def state_report(self) -> str:
        running = self._names.get(self.processor.current)
        return f"its processor is in kernel {running}" if running else "its processor waits"

    def close(self) -> None:
        if not self.processor.close():
            self.allocator.closed = True  # type: ignore[attr-defined]
        _opened.discard(self)

    def before_fork(self) -> None:
        """Finish what is queued: the child has no threads to do it."""
        self.timeline.wait(self.submitted)

    def forked(self) -> None:
        """In the child: nothing is queued, locks are free."""
        self.lock = threading.RLock()
        self.allocator.unlock()
        self.processor.forked()
        self.timeline.value = max(self.timeline.value, self.submitted)


_opened: weakref.WeakSet[CPUDevice] = weakref.WeakSet()


def _before_fork() -> None:
    for device in list(_opened):
        device.before_fork()


def _after_fork_in_child() -> None:
    for device in list(_opened):
        device.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
