"""The fake operating system: device files of a fake NVIDIA driver with fake GPUs.

    system = FakeSystem(gpus=[profiles.GH100], driver="580.142")

is a `tgcore.hcq.files.FileSystem`. Calls are checked like the real driver does, or stricter; what
the fake does not know, it refuses, and says so in `complaints`, which a test wants to be empty.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.emulators.nv import cubin, status
from tests.emulators.nv.code import Code, CodeRegistry, Place
from tests.emulators.nv.gpu import FakeGpu
from tests.emulators.nv.memory import PAGE, Memory
from tests.emulators.nv.objects import MemoryNode, Usermode
from tests.emulators.nv.profiles import GH100, Profile
from tests.emulators.nv.rm import MapContext, ResourceManager, refuse_call
from tests.emulators.nv.status import Refused
from tests.emulators.nv.uvm import Uvm, UvmSpace
from tests.emulators.nv.watcher import Watcher
from tgcore.hcq import mapping as host

_FIRST_FILE = 10000
Injected = int | OSError | None
Hook = Callable[[int, str, str], Injected]


class FakeSystem:
    """The device files of a machine; takes the place of `tgcore.hcq.files.HOST`."""

    def __init__(
        self,
        gpus: Sequence[Profile] = (GH100,),
        driver: str = "580.142",
        peers: bool | set[frozenset[int]] = True,
        delay: float = 0,
        host_bytes: int = 64 << 30,
    ) -> None:
        """`delay`: seconds that GPUs let pass before they work, in a thread of their own; 0: at
        once, before the doorbell's write returns. `host_bytes`: of system memory that is there.
        """
        self.driver, self.major = driver, int(driver.partition(".")[0])
        self.peers = peers  # which pairs of GPUs can reach each other
        self.delay, self.host_free = delay, host_bytes
        self.pid = os.getpid()
        self.log: list[str] = []
        self.complaints: list[str] = []
        self.missing: dict[str, int] = {}  # path -> errno of opening it
        self.hook: Hook | None = None  # (call number, name, detail) -> failure or None
        self.calls = 0
        self.kernel_budget = 20_000_000  # instructions, after which a kernel counts as endless
        self.files: dict[int, FakeFile] = {}
        self.mappings: list[_WatchedMapping] = []
        self.code = CodeRegistry()
        self.gpus = [FakeGpu(self, index, profile) for index, profile in enumerate(gpus)]
        self.rm = ResourceManager(self)
        self.uvm = Uvm(self)
        self._next_file = _FIRST_FILE
        self._failing_calls: dict[int, int | OSError] = {}
        self._failing_commands: dict[str, list[int]] = {}
        self._polling = False
        self.lock = threading.RLock()
        self._watcher = Watcher()

    # the file system

    def open(self, path: str, *, writable: bool = True) -> FakeFile:
        """Open a device file. Raises OSError."""
        if path in self.missing:
            raise _os_error(self.missing[path], path)
        kind, gpu = self._kind(path)
        file = FakeFile(self, path, kind, gpu, self._next_file, writable=writable)
        self.files[self._next_file] = file
        self._next_file += 1
        self.note(f"open {path} -> {file.number}")
        if gpu is not None:
            gpu.opened += 1
        return file

    def _kind(self, path: str) -> tuple[str, FakeGpu | None]:
        if path == "/dev/nvidiactl":
            return "ctl", None
        if path == "/dev/nvidia-uvm":
            return "uvm", None
        for gpu in self.gpus:
            if path == f"/dev/nvidia{gpu.minor}":
                return "gpu", gpu
        raise _os_error(errno.ENOENT, path)

    def check(self, path: str) -> None:
        """Raises what `open` would raise."""
        if path in self.missing:
            raise _os_error(self.missing[path], path)
        self._kind(path)

    def read_text(self, path: str) -> str:
        """The driver's text files. Raises OSError."""
        if path in self.missing:
            raise _os_error(self.missing[path], path)
        if path == "/proc/driver/nvidia/version":
            return (
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  "
                f"{self.driver}  Release Build\n"
            )
        if path == "/sys/module/nvidia/version":
            return f"{self.driver}\n"
        for gpu in self.gpus:
            if path == f"/proc/driver/nvidia/gpus/{gpu.pci}/information":
                return gpu.information()
        raise _os_error(errno.ENOENT, path)

    def by_number(self, number: int) -> FakeFile | None:
        """The open file of a number."""
        return self.files.get(number)

    # calls

    def ioctl(self, file: FakeFile, request: int, argument: Any) -> int:
        """A call on a file."""
        if file.closed:
            raise refuse_call(errno.EBADF, file.path)
        buffer = memoryview(argument).cast("B")
        if buffer.readonly:
            raise refuse_call(errno.EFAULT, "the argument is read-only")
        with self.lock:
            if file.kind == "uvm":
                self.uvm.call(file, request, buffer)
            else:
                self.rm.call(file, request, buffer)
        self.kick()
        return 0

    def parked(self) -> list[str]:
        """What channels wait for: when the CPU waits, too, it is a deadlock."""
        return [line for gpu in self.gpus for line in gpu.parked()]

    def poll(self) -> None:
        """Let all GPUs work until nothing moves any more."""
        with self.lock:
            if self._polling:
                return
            self._polling = True
            try:
                moved = True
                while moved:
                    moved = sum(gpu.advance() for gpu in self.gpus) > 0
            finally:
                self._polling = False
            self._watch()

    def kick(self) -> None:
        """There is new work."""
        if not self.delay:
            self.poll()
            return
        with self.lock:
            self._watch()

    def _watch(self) -> None:
        self._watcher.watch(self)

    def pending(self) -> bool:
        """Whether a channel has something to do, or waits for the CPU."""
        if self.parked():
            return True
        runs = [c.run for gpu in self.gpus for c in gpu.channels if c.scheduled and not c.dead]
        return any(run.pending for run in runs)

    def time(self) -> int:
        """The machine's clock, in nanoseconds."""
        return time.perf_counter_ns()

    def register_code(
        self,
        code: bytes,
        ptx: str,
        entry: str,
        *,
        stack: int = 0,
        registers: int = 0,
        symbols: Mapping[str, Place] | None = None,
        patched: tuple[int, ...] = (),
    ) -> None:
        """Say which PTX machine code stands for, which is all that the fake can run."""
        kernel = Code(len(code), ptx, entry, stack, registers, symbols or {})
        self.code.add(code, kernel, patched)

    def register_cubin(self, image: bytes, ptx: str) -> None:
        """The same for all kernels of a cubin that was compiled from the same source."""
        found = cubin.read(image)
        for kernel in found.kernels:
            if f".entry {kernel.name}(" not in ptx:
                continue  # a helper of the machine code alone, such as division
            self.register_code(
                kernel.code,
                ptx,
                kernel.name,
                stack=kernel.stack,
                registers=kernel.registers,
                symbols=found.symbols,
                patched=kernel.patched,
            )

    # records

    def note(self, line: str) -> None:
        """Write a line of the log."""
        self.log.append(line)

    def complain(self, line: str) -> None:
        """Something that a right program does not do, or that the fake does not know."""
        self.complaints.append(line)
        self.log.append(f"COMPLAINT: {line}")

    def objects(self) -> dict[str, int]:
        """What is alive, by kind: shows leaks."""
        counts = dict(self.rm.objects())
        spaces = [f.uvm for f in self.files.values() if f.kind == "uvm"]
        counts["UVM range"] = sum(len(s.ranges) for s in spaces)
        counts["UVM mapping"] = sum(len(v.pages) for s in spaces for v in s.spaces.values())
        counts["UVM channel"] = sum(len(s.channels) for s in spaces)
        counts["CPU mapping"] = len(self.mappings)
        counts["file"] = len(self.files)
        counts["video memory"] = sum(gpu.used for gpu in self.gpus)
        return {kind: count for kind, count in counts.items() if count}

    # failures on request

    def fail_ioctl(self, number: int, failure: int | OSError) -> None:
        """Let the number-th call from now (1: the next) fail: a status, or an OSError."""
        self._failing_calls[self.calls + number] = failure

    def fail_command(self, name: str, failure: int, times: int = 1) -> None:
        """Let a control command fail with a status, by its name or number in hexadecimal."""
        self._failing_commands.setdefault(name, []).extend([failure] * times)

    def inject(self, name: str, detail: str) -> int | None:
        """The status that a call is made to fail with. Raises an injected OSError."""
        self.calls += 1
        failure: Injected = self._failing_calls.pop(self.calls, None)
        if failure is None and self.hook is not None:
            failure = self.hook(self.calls, name, detail)
        if isinstance(failure, OSError):
            raise failure
        return failure

    def inject_command(self, name: str, number: int) -> int | None:
        """The same for a control command."""
        for key in (name, f"{number:#x}"):
            if self._failing_commands.get(key):
                return self._failing_commands[key].pop(0)
        return None

    # what several parts need

    def peers_possible(self, a: int, b: int) -> bool:
        """Whether two GPUs can reach each other's memory."""
        return self.peers if isinstance(self.peers, bool) else frozenset((a, b)) in self.peers

    def allocate(self, gpu: FakeGpu, nbytes: int, place: str) -> Memory:
        """Video or system memory. Raises Refused when there is none."""
        if place != "video":
            return self._allocate_host(gpu, nbytes, place)
        if gpu.used + nbytes > gpu.profile.vram:
            raise Refused(status.NO_MEMORY, f"{nbytes} bytes of video memory")
        gpu.used += nbytes

        def released() -> None:
            gpu.used -= nbytes

        return Memory(nbytes, place, gpu.index, released)

    def _allocate_host(self, gpu: FakeGpu, nbytes: int, place: str) -> Memory:
        if nbytes > self.host_free:
            raise Refused(status.NO_MEMORY, f"{nbytes} bytes of system memory")
        self.host_free -= nbytes

        def released() -> None:
            self.host_free += nbytes

        return Memory(nbytes, place, gpu.index, released)

    def check_identity(self, gpu: FakeGpu, memory: Memory) -> None:
        """Hopper fails now and then when CPU and GPU see memory at different addresses."""
        if gpu.profile.chip != "GH100" or memory.place == "host":
            return
        cpu = {address - offset for address, offset in memory.cpu_views}
        seen = {address - offset for address, offset in memory.gpu_views}
        if cpu and seen and not cpu & seen:
            self.complain(f"memory is at {min(cpu):#x} for the CPU, at {min(seen):#x} for the GPU")


class FakeFile:
    """An open device file."""

    def __init__(
        self,
        system: FakeSystem,
        path: str,
        kind: str,
        gpu: FakeGpu | None,
        number: int,
        *,
        writable: bool,
    ) -> None:
        self.system, self.path, self.kind, self.gpu = system, path, kind, gpu
        self.number, self.writable = number, writable
        self.closed = self.linked = False
        self.context: MapContext | None = None
        self.uvm = UvmSpace()

    def fileno(self) -> int:
        """The number that the driver knows it by."""
        return self.number

    def ioctl(self, request: int, argument: Any) -> int:
        """Call the driver."""
        return self.system.ioctl(self, request, argument)

    def _mapped(self, nbytes: int, offset: int) -> MapContext:
        """What RM_MAP_MEMORY prepared, if it is mapped the right way."""
        if self.closed:
            raise refuse_call(errno.EBADF, self.path)
        if self.context is None:
            raise refuse_call(errno.EINVAL, "no RM_MAP_MEMORY was done for this file")
        if offset:
            raise refuse_call(errno.EINVAL, "an offset other than 0")
        if nbytes != -(-self.context.nbytes // PAGE) * PAGE:
            raise refuse_call(errno.ENXIO, f"{nbytes} bytes, not {self.context.nbytes}")
        node = self.context.node
        system = isinstance(node, MemoryNode) and node.memory.place == "system"
        right = self.kind == "ctl" if system else self.gpu is node.gpu
        if not right:
            raise refuse_call(errno.ENXIO, f"{node} is not mapped through {self.path}")
        return self.context

    def mmap(
        self, nbytes: int, offset: int = 0, *, writable: bool = True, address: int = 0
    ) -> host.Mapping:
        """Map memory that RM_MAP_MEMORY prepared."""
        context = self._mapped(nbytes, offset)
        if not isinstance(context.node, MemoryNode):
            self.system.complain("the usermode page is mapped as memory, not as registers")
            raise refuse_call(errno.EINVAL, "registers")
        if writable and not context.writable:
            raise refuse_call(errno.EACCES, "mapped for reading only")
        mapping = _WatchedMapping(self.system, context, nbytes, address, writable=writable)
        self.system.note(f"mmap {context.node} {nbytes:#x} bytes at {mapping.address:#x}")
        return mapping

    def registers(self, nbytes: int, offset: int = 0) -> UsermodeRegisters:
        """Map the usermode page."""
        context = self._mapped(nbytes, offset)
        if not isinstance(context.node, Usermode):
            self.system.complain(f"{context.node} is mapped as registers")
            raise refuse_call(errno.EINVAL, "memory")
        return UsermodeRegisters(self.system, context.node)

    def close(self) -> None:
        """Close the file and what lives by it."""
        with self.system.lock:
            self._close()

    def _close(self) -> None:
        if self.closed:
            return
        self.closed = True
        del self.system.files[self.number]
        self.system.note(f"close {self.path} {self.number}")
        if self.gpu is not None:
            self.gpu.opened -= 1
        if self.kind == "ctl":
            self.system.rm.file_closed(self)
        if self.kind == "uvm":
            self.system.uvm.file_closed(self)


class _WatchedMapping(host.Mapping):
    """A CPU mapping that the fake knows of."""

    def __init__(
        self, system: FakeSystem, context: MapContext, nbytes: int, address: int, *, writable: bool
    ) -> None:
        assert isinstance(context.node, MemoryNode)
        self._system, self._memory = system, context.node.memory
        file = self._memory.fileno()
        found = host.map_memory(file, nbytes, context.offset, writable=writable, address=address)
        super().__init__(found.address, nbytes, reserved=bool(address), writable=writable)
        self._key = (found.address, context.offset)
        self._memory.cpu_views.append(self._key)
        system.mappings.append(self)
        system.check_identity(context.node.gpu, self._memory)

    def close(self) -> None:
        if self in self._system.mappings:
            self._system.mappings.remove(self)
            self._memory.cpu_views.remove(self._key)
        super().close()


class UsermodeRegisters:
    """The usermode page: doorbell and timer."""

    TIME_0, TIME_1, DOORBELL = 0x80, 0x84, 0x90

    def __init__(self, system: FakeSystem, node: Usermode) -> None:
        self._system, self._gpu = system, node.gpu
        self._node: Usermode | None = node

    def __getitem__(self, offset: int) -> int:
        self._system.kick()
        if self._node is None or offset not in (self.TIME_0, self.TIME_1):
            self._system.complain(f"read of usermode register {offset:#x}")
            return 0xFFFF_FFFF
        now = self._gpu.time()
        return now & 0xFFFF_FFFF if offset == self.TIME_0 else now >> 32

    def __setitem__(self, offset: int, value: int) -> None:
        if self._node is None or offset != self.DOORBELL:
            self._system.complain(f"write of usermode register {offset:#x}")
            return
        with self._system.lock:
            self._gpu.ring(value)
        self._system.kick()

    def close(self) -> None:
        """Unmap."""
        self._node = None


def _os_error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)
