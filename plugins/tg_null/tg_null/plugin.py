"""The smallest complete back end: it compiles all kernels, accounts for all commands, runs nothing.

Read it from top to bottom to see what a back end consists of. A real one differs in that its
compiler makes machine code, its allocator gives real memory, and its queue talks to hardware.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from tgcore.codegen.target import Target
from tgcore.dtype import dtypes
from tgcore.errors import CompileError
from tgcore.hcq.device import HCQDevice
from tgcore.hcq.memory import HCQAllocator, HCQMemory
from tgcore.hcq.program import HCQProgram
from tgcore.hcq.queue import HWQueue
from tgcore.hcq.signal import Signal
from tgcore.hcq.symbol import Value
from tgcore.plugin import BackendDescription, Probe
from tgcore.plugin.hookspecs import hookimpl
from tgcore.renderer.base import Compiler
from tgcore.renderer.llvm import LLVMRenderer

if TYPE_CHECKING:
    from tgcore.codegen.program import ProgramSpec

KERNEL_NS, GRAPH_NS = 1_000_000, 100_000_000
MEMORY_BYTES = 1 << 40

# *** 1. what the core asks first: contract version, description, which devices there are ***

TGCORE_CONTRACT = (1, 0)


@hookimpl
def tgcore_describe_backend() -> BackendDescription:
    """Never the default device by itself; kernels are compiled but compute nothing."""
    return BackendDescription(
        "NULL", priority=-100, open=lambda name, index: NullDevice(name), by_default=False,
        executes=False,
    )  # fmt: skip


@hookimpl
def tgcore_probe() -> Probe:
    """There is always one."""
    return Probe(("compiles every kernel, runs none",))


# *** 2. renderer and compiler: what the device can do, and how source becomes a binary ***


def null_target() -> Target:
    """A plain processor with 256-bit vectors."""
    native = {dtypes.bool, *dtypes.ints, dtypes.float16, dtypes.float32, dtypes.float64}
    return Target(
        "NULL",
        dtypes=frozenset(native),
        ops=LLVMRenderer.supported_ops(),
        vector_bytes=32,
        memory_widths=(2, 4, 8, 16, 32),
        masked=True,
    )


class NullCompiler(Compiler):
    """The binary is the source, packed: equal sources give equal binaries."""

    cache_key = "null 1"
    magic = b"NULL"

    def compile(self, source: str) -> bytes:
        if "define " not in source:
            raise CompileError("the source defines no function", source)
        return self.magic + zlib.compress(source.encode(), level=1)

    def disassemble(self, lib: bytes) -> str:
        return zlib.decompress(lib[len(self.magic) :]).decode()


# *** 3. the allocator: addresses that nothing lies behind ***


class NullAllocator(HCQAllocator):
    """Hands out addresses and counts bytes; what is read back is zero."""

    next_address = 1 << 12

    def available(self) -> int:
        return MEMORY_BYTES - self.used

    def _alloc(self, nbytes: int) -> HCQMemory:
        address = self.next_address
        self.next_address += max(nbytes, 1) + 255 & ~255
        return HCQMemory(address, nbytes)

    def _free(self, memory: HCQMemory, nbytes: int) -> None:
        """Nothing lies behind the address."""

    def copyin(self, dest: HCQMemory, source: memoryview) -> None:
        self.device.enqueue_copy(dest.address, 0, source.nbytes)

    def copyout(self, dest: memoryview, source: HCQMemory) -> None:
        self.device.wait_for(self.device.enqueue_copy(0, source.address, dest.nbytes))
        dest[:] = bytes(dest.nbytes)


# *** 4. signal, queue, program: how work is described and handed over ***


class NullSignal(Signal):
    """A signal in the host's memory, as there is no other."""

    value = 0
    timestamp = 0


class NullQueue(HWQueue["NullDevice"]):
    """Counts commands; when submitted, time passes and signals are set, all at once."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.effects: list[tuple[Signal, int | None, int]] = []  # where its value is; time before

    def _command(self, kind: str, *words: Value) -> Self:
        self.counts[kind] += 1
        self.begin()
        return self.push(*words)

    def exec(
        self,
        program: HCQProgram,
        args: Sequence[Value],
        global_size: Sequence[Value] = (1, 1, 1),
        local_size: Sequence[Value] = (1, 1, 1),
    ) -> Self:
        return self._command("exec", *args, *global_size, *local_size)

    def copy(self, dest: Value, source: Value, nbytes: Value) -> Self:
        return self._command("copy", dest, source, nbytes)

    def signal(self, signal: Signal, value: Value) -> Self:
        self.effects.append((signal, len(self.words), 0))
        return self._command("signal", value)

    def wait(self, signal: Signal, value: Value) -> Self:
        return self._command("wait", value)  # what comes before is done when this is submitted

    def timestamp(self, signal: Signal) -> Self:
        self.effects.append((signal, None, self.counts["exec"]))
        return self._command("timestamp")

    def memory_barrier(self) -> Self:
        return self._command("memory_barrier")

    def _submit(self, device: NullDevice) -> None:
        device.commands += self.counts
        start, kernel_ns = device.clock, 0 if self.bound else KERNEL_NS
        for signal, position, kernels in self.effects:
            if position is None:
                signal.timestamp = start + kernels * kernel_ns  # type: ignore[misc]
            else:
                signal.value = self.words[position]
        device.clock += GRAPH_NS if self.bound else self.counts["exec"] * KERNEL_NS


# *** 5. the device brings them together ***


class NullDevice(HCQDevice):
    """`commands` counts what was submitted by kind, `clock` is its time in nanoseconds."""

    compute_queue = NullQueue

    def __init__(self, name: str) -> None:
        self.name = name
        self.commands: Counter[str] = Counter()
        self.clock = 0
        renderer = LLVMRenderer(null_target())
        super().__init__(name, NullAllocator(self), renderer, NullCompiler())

    def new_signal(self) -> Signal:
        return NullSignal(0)

    def load(self, function_name: str, binary: bytes, spec: ProgramSpec) -> HCQProgram:
        if not binary.startswith(NullCompiler.magic):
            raise CompileError(f"the binary of {function_name} is not one of this device")
        return HCQProgram(self, function_name, spec)
