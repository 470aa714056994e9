"""An NVIDIA GPU as an HCQ device."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from tg_nv.addresses import LOCAL_WINDOW, SHARED_WINDOW
from tg_nv.faults import failure
from tg_nv.interface import Engine, MemoryKind, NVInterface
from tg_nv.memory import NVAllocator
from tg_nv.program import NVProgram
from tg_nv.queue.queues import SIGNAL_BYTES, ComputeQueue, CopyQueue, NVSignal
from tg_nv.queue.ring import Ring
from tgcore.errors import DeviceError
from tgcore.hcq.device import HCQDevice
from tgcore.hcq.graph import HCQGraph
from tgcore.hcq.memory import HCQMemory
from tgcore.hcq.signal import Signal
from tgcore.runtime.compiled import CompiledDevice
from tgcore.runtime.device import Device

if TYPE_CHECKING:
    from tgcore.codegen.program import ProgramSpec
    from tgcore.renderer.base import Compiler, Renderer

_SIGNAL_BLOCK: Final = 4096
_WARP: Final = 32


def _round_up(value: int, unit: int) -> int:
    return value + unit - 1 & -unit


class NVDevice(HCQDevice):
    """A GPU: one channel that computes, one that copies, a timeline over both."""

    compute_queue = ComputeQueue
    copy_queue = CopyQueue
    allocator: NVAllocator

    def __init__(
        self,
        name: str,
        interface: NVInterface,
        renderer: Renderer | None,
        compiler: Compiler | None,
    ) -> None:
        self.name, self.interface = name, interface
        self.architecture = interface.facts.architecture
        self.provider = ""
        self.dead: DeviceError | None = None
        self.rings: dict[Engine, Ring] = {}
        self._signal_places: list[tuple[HCQMemory, int]] = []
        self._retired: deque[tuple[int, HCQMemory]] = deque()
        self._stack_bytes = 0
        self._stack: HCQMemory | None = None
        self._closed = False
        with ExitStack() as failed:
            failed.callback(interface.close)
            super().__init__(name, NVAllocator(self), renderer, compiler, HCQGraph)
            for engine in Engine:
                self.rings[engine] = self._open_ring(engine)
            self._set_up()
            failed.pop_all()

    # *** set-up ***

    def _open_ring(self, engine: Engine) -> Ring:
        channel = self.interface.open_channel(engine)
        return Ring(self.interface, channel, self.new_signal(), self.wait_signal)

    def _set_up(self) -> None:
        compute, copy = self.rings[Engine.COMPUTE].channel, self.rings[Engine.COPY].channel
        queue = ComputeQueue().set_up(compute.engine_class, LOCAL_WINDOW, SHARED_WINDOW)
        queue.signal(self.timeline, self.submitted + 1).submit(self)
        self.wait_for(self.advance("the set-up of its compute engine"))
        copies = CopyQueue().set_up(copy.engine_class)
        copies.signal(self.timeline, self.submitted + 1).submit(self)
        self.wait_for(self.advance("the set-up of its copy engine"))

    @property
    def sass_version(self) -> int:
        """The version of machine code, as launch descriptors have it."""
        version = self.interface.facts.sm_version
        return (version & 0xF00) >> 4 | version & 0xF

    # *** signals ***

    def new_signal(self) -> Signal:
        if not self._signal_places:
            block = self.interface.alloc(_SIGNAL_BLOCK, MemoryKind.HOST, "signals")
            assert block.view is not None
            block.view[:] = bytes(_SIGNAL_BLOCK)
            self._signal_places = [(block, n) for n in range(0, _SIGNAL_BLOCK, SIGNAL_BYTES)]
        block, offset = self._signal_places.pop()
        assert block.view is not None
        view = block.view[offset : offset + SIGNAL_BYTES]
        return NVSignal(view, block.address + offset)

    # *** programs ***

    def load(self, function_name: str, binary: bytes, spec: ProgramSpec) -> NVProgram:
        self.check_alive()
        return NVProgram(self, function_name, binary, spec)

    def upload(self, image: Sequence[int], at: Callable[[int], bytes]) -> HCQMemory:
        """Put a program's image in memory; `at` gives it as it must be at an address."""
        memory = self.allocator.alloc(len(image))
        self.allocator.forget(memory)
        self.allocator.copyin(memory, memoryview(at(memory.address)))
        return memory

    def ensure_stack(self, bytes_per_thread: int) -> None:
        """Local memory of that size for every thread that may run at once."""
        if bytes_per_thread <= self._stack_bytes:
            return
        facts = self.interface.facts
        per_warp = _round_up(bytes_per_thread * _WARP, 0x200)
        per_tpc = _round_up(per_warp * facts.warps_per_sm * facts.sms_per_tpc, 0x8000)
        total = _round_up(per_tpc * facts.tpcs_per_gpc * facts.gpcs, 0x2_0000)
        memory = self.interface.alloc(total, MemoryKind.VIDEO, "the stacks of threads")
        self.synchronize()
        with self.lock:
            queue = ComputeQueue().set_local_memory(memory.address, per_tpc)
            queue.signal(self.timeline, self.submitted + 1).submit(self)
            done = self.advance("the set-up of stacks")
        self.wait_for(done)
        if self._stack is not None:
            self.interface.free(self._stack)
        self._stack, self._stack_bytes = memory, bytes_per_thread

    # *** memory of commands ***

    def alloc_commands(self, nbytes: int) -> HCQMemory:
        """Memory for commands that are submitted more than once."""
        self._free_retired()
        return self.interface.alloc(nbytes, MemoryKind.STREAM, "commands of a graph")

    def retire(self, memory: HCQMemory) -> None:
        """Free memory of `alloc_commands` once what was submitted is done. Never blocks."""
        self._retired.append((self.submitted, memory))

    def _free_retired(self) -> None:
        while self._retired and self._retired[0][0] <= self.timeline.value:
            memory = self._retired.popleft()[1]
            if not self._closed:
                self.interface.free(memory)

    # *** several devices ***

    def reaches(self, other: CompiledDevice) -> bool:
        return isinstance(other, NVDevice) and self.interface.sees(other.interface)

    # *** waiting and faults ***

    def check_alive(self) -> None:
        """DeviceError if the device has failed, or was closed."""
        if self.dead is not None:
            raise self.death()

    def death(self) -> DeviceError:
        """The error for whoever wants what is lost."""
        why = self.dead.what if self.dead is not None else ""
        fix = "what was on it is lost: make the tensors anew"
        return DeviceError(f"{self.name} failed before", self.provider, why, fix)

    def check_health(self) -> None:
        self.check_alive()
        if self.interface.failed():
            raise self._lose(failure(self, self.running()))

    def _timed_out(self, reached: int, value: int) -> DeviceError:
        """A kernel that does not end holds the channel for ever: the device is given up.

        If its channels have done all that was submitted, the device is well: nobody has submitted
        what is waited for.
        """
        self.check_health()
        error = super()._timed_out(reached, value)
        idle = all(ring.fence.value >= ring.submitted for ring in self.rings.values())
        return error if idle else self._lose(error)

    def _lose(self, error: DeviceError) -> DeviceError:
        """The device takes no more work; the registry opens it anew when it is next wanted."""
        self.dead = error
        self.interface.stop()
        Device.forget(self)
        return error

    def progress(self) -> int:
        return sum(ring.fence.value for ring in self.rings.values()) + self.timeline.value

    def state_report(self) -> str:
        parts = [
            f"its {engine.value} channel did {ring.fence.value} of {ring.submitted} submissions"
            for engine, ring in self.rings.items()
        ]
        return ", ".join(parts)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        with ExitStack() as rest:
            rest.callback(self.interface.close)  # all memory goes with it
            rest.callback(self.allocator.lose)
            if self.dead is None:
                rest.callback(self._retire_device)
                self.synchronize()

    def _retire_device(self) -> None:
        self.dead = DeviceError(f"{self.name} was closed")
