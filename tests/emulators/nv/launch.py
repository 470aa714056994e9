"""A launch: what a QMD must say on its chip, and running the kernel that it names.

What a GPU answers with an exception is a ChannelError. What it lets pass, although the kernel then
sees wrong values, is a complaint of the fake's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tests.emulators.nv import ptx
from tests.emulators.nv.code import BankWord, Code, Place
from tests.emulators.nv.faults import (
    BAD_LAUNCH,
    ILLEGAL_INSTRUCTION,
    INVALID_ADDRESS_SPACE,
    MISALIGNED,
    STACK,
    ChannelError,
    HungKernel,
    mmu_error,
    sm_error,
)
from tests.emulators.nv.memory import PTE_MISSING, READ, READ_ONLY, WRITE, MmuFault
from tests.emulators.nv.profiles import Profile
from tests.emulators.nv.qmd import BANKS, Qmd

if TYPE_CHECKING:
    from tests.emulators.nv.gpu import FakeGpu
    from tests.emulators.nv.memory import PageTable

RESERVED_SHARED: Final = 0x400
STACK_TOP: Final = 0xFF_FDC0  # the 0x240 bytes above are the system's
STACK_RESERVE: Final = 0x240
LOCAL_WINDOW, SHARED_WINDOW = 1 << 24, 1 << 32  # bytes
_SLACK: Final = 4096  # that the instruction prefetcher reads after the code
_PREFETCH_ACCESS: Final = 3


@dataclass(frozen=True)
class Windows:
    """Where generic addresses mean local and shared memory."""

    local: int
    shared: int


@dataclass(frozen=True)
class LocalMemory:
    """What backs local memory: where, and bytes for each TPC."""

    address: int
    per_tpc: int


@dataclass(frozen=True)
class HeadOffsets:
    """Where bank 0 has what the driver tells kernels."""

    block: int
    grid: int
    shared_window: int | None
    local_window: int
    stack: int
    descriptor: int


_EARLY = HeadOffsets(0x00, 0x0C, 0x18, 0x20, 0x28, 0x118)
_HOPPER = HeadOffsets(0x00, 0x0C, None, 0x20, 0x28, 0x208)
_BLACKWELL = HeadOffsets(0x360, 0x370, 0x2F0, 0x2F8, 0x37C, 0x358)
HEADS: Final = {3: _EARLY, 4: _HOPPER, 5: _BLACKWELL}


def prepare(
    gpu: FakeGpu, pages: PageTable, qmd: Qmd, windows: Windows, local: LocalMemory | None
) -> Callable[[], None]:
    """Check a launch; what is returned runs it. Raises ChannelError, MmuFault."""
    launch = _Launch(gpu, pages, qmd, windows, local)
    launch.check()
    return launch.run


class _Launch:
    def __init__(
        self,
        gpu: FakeGpu,
        pages: PageTable,
        qmd: Qmd,
        windows: Windows,
        local: LocalMemory | None,
    ) -> None:
        self.gpu, self.pages, self.qmd = gpu, pages, qmd
        self.windows, self.local = windows, local
        self.code: Code | None = None
        self.bank_0 = b""  # as the GPU sees it
        self.bank_0_memory = b""  # as it is

    @property
    def profile(self) -> Profile:
        return self.gpu.profile

    def complain(self, text: str) -> None:
        self.gpu.system.complain(f"launch of QMD {self.qmd.address:#x}: {text}")

    def require(self, condition: object, text: str, kind: int = BAD_LAUNCH) -> None:
        if not condition:
            raise self.error(text, kind)

    def error(self, text: str, kind: int, address: int = 0) -> ChannelError:
        where = f"QMD {self.qmd.address:#x}: {text}"
        return sm_error(kind, where, self.qmd.program, address)

    def check(self) -> None:
        self._check_header()
        self._check_sizes()
        self._check_shared()
        self._check_windows()
        self._check_local_memory()
        self._take_banks()
        self._take_code()
        self._check_head()
        self._check_kernel()

    # the descriptor alone

    def _check_header(self) -> None:
        q = self.qmd
        found = (q["major"], q["minor"])
        right = (self.profile.qmd, 0)
        self.require(found == right, f"version {found} on a chip of version {right}")
        self.require(not q.unknown, f"bits {q.unknown} of no known field are set")
        if self.profile.qmd > 3:
            self.require(q["type"] == 2, f"type {q['type']}: not a grid of blocks")
        for name in ("require_scheduling_pcas", "shared_allocation", "dependence_counter"):
            self.require(not q[name], f"{name} is set")
        if not q["call_limit"]:
            self.complain("the limit of API-visible calls is checked")
        if not q["membar"]:
            self.complain("no memory barrier at the grid's end")

    def _check_sizes(self) -> None:
        q = self.qmd
        grid, block = q.grid, q.block
        self.require(all(grid) and grid[0] < 1 << 31, f"grid {grid}")
        self.require(all(block) and q.threads <= 1024, f"block {block}")
        self.require(block[0] <= 1024 and block[1] <= 1024 and block[2] <= 64, f"block {block}")
        registers = q["registers"]
        self.require(0 < registers <= 255, f"{registers} registers")
        warps = -(-q.threads // 32)
        used = warps * -(-registers * 32 // 256) * 256
        self.require(used <= 65536, f"{registers} registers for {warps} warps")

    def _check_shared(self) -> None:
        q, sizes = self.qmd, self.profile.carve_outs
        self.require(q.shared % 128 == 0, f"shared size {q.shared:#x}")
        self.require(q.shared >= RESERVED_SHARED, "shared size without the reserved KiB")
        self.require(q.shared <= self.profile.shared_limit, f"shared size {q.shared:#x}")
        fields = {name: q[f"{name}_shared"] for name in ("min", "max", "target")}
        for name, value in fields.items():
            known = value and 4 * (value - 1) in sizes
            self.require(known, f"{name} shared configuration {value} is of no carve-out")
        ordered = fields["min"] <= fields["target"] <= fields["max"]
        self.require(ordered, f"shared configurations {fields}")
        fits = q.shared <= 4096 * (fields["min"] - 1)
        self.require(fits, f"shared size {q.shared:#x} does not fit the carve-out")

    def _check_windows(self) -> None:
        local, shared = self.windows.local, self.windows.shared
        self.require(local % LOCAL_WINDOW == 0 and local, f"local window {local:#x}")
        aligned = shared % SHARED_WINDOW == 0 if self.profile.wide else shared % LOCAL_WINDOW == 0
        self.require(aligned and shared, f"shared window {shared:#x}")
        for base, nbytes in ((local, LOCAL_WINDOW), (shared, SHARED_WINDOW)):
            free = not self.pages.overlaps(base, nbytes)
            text = f"memory is mapped in the window at {base:#x}"
            self.require(free, f"Invalid Address Space: {text}", INVALID_ADDRESS_SPACE)

    def _check_local_memory(self) -> None:
        per_thread = self.qmd.local_low + self.qmd.local_high
        if not per_thread:
            return
        self.require(per_thread % 16 == 0, f"{per_thread} bytes of local memory a thread")
        self.require(self.local, "no local memory is set up", STACK)
        assert self.local is not None
        profile = self.profile
        per_warp = -(-per_thread * 32 // 0x200) * 0x200
        warps = profile.max_warps * profile.sms_per_tpc
        per_tpc = -(-per_warp * warps // 0x8000) * 0x8000
        enough = per_tpc <= self.local.per_tpc
        self.require(enough, f"{self.local.per_tpc:#x} of {per_tpc:#x} bytes a TPC", STACK)
        self.require(self.local.address % 0x20000 == 0, "local memory is not aligned")
        tpcs = profile.tpc_slots * len(profile.tpc_masks)
        total = -(-self.local.per_tpc * tpcs // 0x20000) * 0x20000
        self.pages.check(self.local.address, total, WRITE)

    # what it points to

    def _take_banks(self) -> None:
        q, caches = self.qmd, self.gpu.caches
        if q["invalidate_constant"]:
            caches.invalidate_constants()
        if q["invalidate_instruction"]:
            caches.invalidate_code()
        for index in range(BANKS):
            bank = q.bank(index)
            if bank is None:
                continue
            address, nbytes = bank
            aligned = address % (256 if q.version == 3 else 64) == 0
            self.require(aligned, f"bank {index} at {address:#x}")
            self.require(0 < nbytes <= 65536, f"bank {index} has {nbytes} bytes")
            if q[f"bank_invalidate[{index}]"]:
                caches.invalidate_range(self.pages, address, nbytes)
            data = caches.constants(self.pages, address, nbytes)
            if index == 0:
                self.bank_0, self.bank_0_memory = data, self.pages.read(address, nbytes)
        self.require(self.bank_0, "bank 0 is not bound")
        least = self.profile.parameter_base
        self.require(len(self.bank_0) >= least, f"bank 0 has {len(self.bank_0):#x} bytes")

    def _take_code(self) -> None:
        program = self.qmd.program
        self.require(program % 128 == 0, f"program at {program:#x}", ILLEGAL_INSTRUCTION)
        self.code = self.gpu.caches.code(self.pages, program)
        self.require(self.code, f"unknown code at {program:#x}", ILLEGAL_INSTRUCTION)
        assert self.code is not None
        self.pages.check(program, self.code.nbytes + _SLACK, _PREFETCH_ACCESS)
        address, nbytes = self.qmd.prefetch
        if nbytes:
            self.pages.check(address, nbytes, _PREFETCH_ACCESS)

    # bank 0 and what the kernel needs

    def _word(self, offset: int, nbytes: int = 4) -> int:
        return int.from_bytes(self.bank_0[offset : offset + nbytes], "little")

    def _check_head(self) -> None:
        q, head = self.qmd, HEADS[self.profile.qmd]
        for name, offset, wanted in (("block", head.block, q.block), ("grid", head.grid, q.grid)):
            found = tuple(self._word(offset + 4 * i) for i in range(3))
            if found != wanted:
                self.complain(f"bank 0 says {name} {found}, the QMD {wanted}")
        wide = {head.local_window: self.windows.local, head.descriptor: 0}
        if head.shared_window is not None:
            wide[head.shared_window] = self.windows.shared
        for offset, value in wide.items():
            if self._word(offset, 8) != value:
                self.complain(
                    f"bank 0 at {offset:#x} is {self._word(offset, 8):#x}, not {value:#x}"
                )
        if (q.local_low or q.local_high) and self._word(head.stack) != STACK_TOP:
            self.complain(f"bank 0's stack pointer is {self._word(head.stack):#x}")
        self._check_rest(head)

    def _check_rest(self, head: HeadOffsets) -> None:
        """The rest of the head is zero."""
        rest = bytearray(self.bank_0[: self.profile.parameter_base])
        for offset in (head.block, head.grid):
            rest[offset : offset + 12] = bytes(12)
        for wide in (head.shared_window, head.local_window, head.descriptor):
            if wide is not None:
                rest[wide : wide + 8] = bytes(8)
        rest[head.stack : head.stack + 4] = bytes(4)
        if any(rest):
            self.complain("bank 0's head has words that must be zero")

    def _check_kernel(self) -> None:
        code, q = self.code, self.qmd
        assert code is not None
        kernel = code.kernel()
        self.require(q["registers"] >= code.registers, f"fewer than {code.registers} registers")
        if "barrier" in kernel.features:
            self.require(q["barriers"], "a barrier, but no barriers are given")
        shared = RESERVED_SHARED + kernel.shared_bytes
        self.require(q.shared >= shared, f"{q.shared:#x} of {shared:#x} bytes of shared memory")
        limit = kernel.max_threads
        self.require(limit is None or q.threads <= limit, f"{q.threads} threads of {limit}")
        required = kernel.required_threads
        self.require(required in (None, q.block), f"block {q.block}, not {required}")
        if code.stack:
            enough = q.local_high >= code.stack + STACK_RESERVE or q.local_low >= code.stack
            self.require(enough, f"a stack of {code.stack} bytes has no local memory", STACK)
        end = self.profile.parameter_base + kernel.parameter_bytes
        self.require(len(self.bank_0) >= end, f"bank 0 ends before the parameters ({end:#x})")

    # running it

    def run(self) -> None:
        assert self.code is not None
        kernel, base = self.code.kernel(), self.profile.parameter_base
        bank = self.qmd.bank(0)
        if bank is not None and self.pages.read(*bank) != self.bank_0_memory:
            self.complain("bank 0 changed while the grid was run")
        self.gpu.launches.append(self.qmd)
        try:
            ptx.run(
                kernel,
                self.qmd.grid,
                self.qmd.block,
                self.bank_0[base : base + kernel.parameter_bytes],
                _GlobalMemory(self.pages),
                shared_bytes=self.qmd.shared - RESERVED_SHARED - kernel.shared_bytes,
                shared_window=self.windows.shared,
                local_window=self.windows.local,
                symbols=self._symbols(),
                budget=self.gpu.system.kernel_budget,
            )
        except ptx.Hang as hang:
            raise HungKernel(str(hang)) from None
        except ptx.Fault as fault:
            raise self._fault(fault) from None

    def _symbols(self) -> dict[str, int]:
        """Addresses of the module's variables."""
        assert self.code is not None
        result: dict[str, int] = {}
        for name in self.code.kernel().symbols:
            found = self.code.symbols.get(name)
            self.require(found is not None, f"nobody knows where the variable {name} is")
            assert found is not None
            place: Place = found
            if isinstance(place, int):
                result[name] = place
                continue
            bank = self.qmd.bank(place.bank)
            self.require(bank, f"bank {place.bank}, which {name} is in, is not bound")
            assert bank is not None
            address = bank[0] + place.offset
            result[name] = self.pages.word(address, 8) if isinstance(place, BankWord) else address
        return result

    def _fault(self, fault: ptx.Fault) -> ChannelError:
        if isinstance(fault, ptx.MisalignedAddress):
            return self.error(str(fault), MISALIGNED, fault.address)
        if isinstance(fault, ptx.MemoryFault):
            access = WRITE if fault.write else READ
            mapped = self.pages.find(fault.address)
            window = self._window_of(fault.address)
            if window:
                return self.error(f"{window}: {fault}", INVALID_ADDRESS_SPACE, fault.address)
            kind = READ_ONLY if mapped is not None else PTE_MISSING
            return mmu_error(MmuFault(fault.address, kind, access), str(fault))
        return self.error(str(fault), ILLEGAL_INSTRUCTION)

    def _window_of(self, address: int) -> str:
        for name, base, size in (
            ("local", self.windows.local, LOCAL_WINDOW),
            ("shared", self.windows.shared, SHARED_WINDOW),
        ):
            if base <= address < base + size:
                return f"beyond {name} memory"
        return ""


class _GlobalMemory:
    """Global memory as the interpreter wants it."""

    def __init__(self, pages: PageTable) -> None:
        self._pages = pages

    def resolve(self, address: int, nbytes: int, write: bool) -> tuple[Any, int] | None:
        """The bytes of the mapping at an address, and its first address."""
        found = self._pages.find(address)
        if found is None or (write and not found.writable):
            return None
        data = np.frombuffer(found.memory.view, np.uint8)
        return data[found.offset : found.offset + found.end - found.start], found.start
