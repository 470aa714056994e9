"""The CPU's memory: the C library's, aligned for vectors, counted against what there is."""

from __future__ import annotations

from tg_cpu.host import available_memory, total_memory
from tg_cpu.native import ffi, libc, pointer, view
from tgcore.hcq.memory import HCQAllocator, HCQMemory

_ALIGN = 64
_HUGE = 2 << 20
_MADV_HUGEPAGE = 14


class CPUAllocator(HCQAllocator):
    """Gives out the C library's memory; large pieces on huge pages."""

    closed = False  # once the device is closed with a kernel still running, nothing is freed

    def available(self) -> int | None:
        """Limited also by what was promised: memory counts for the system once it is touched."""
        free, total = available_memory(), total_memory()
        if free is None or total is None:
            return free
        return max(0, min(free, total - self.used))

    def _alloc(self, nbytes: int) -> HCQMemory:
        align = _HUGE if nbytes >= 2 * _HUGE else _ALIGN
        size = -(-max(nbytes, 1) // align) * align
        memory = libc().aligned_alloc(align, size)
        if memory == ffi().NULL:
            raise MemoryError
        if align == _HUGE:
            libc().madvise(memory, size, _MADV_HUGEPAGE)
        address = int(ffi().cast("uintptr_t", memory))
        return HCQMemory(address, nbytes, view(address, nbytes))

    def _free(self, memory: HCQMemory, nbytes: int) -> None:
        if not self.closed:
            libc().free(pointer(memory.address))

    def external(self, address: int, nbytes: int, owner: object) -> HCQMemory:
        return HCQMemory(address, nbytes, view(address, nbytes), owner)
