"""A GPU's memory: large pieces from the driver, small ones from slabs cut into equal parts."""

from __future__ import annotations

import weakref
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from tg_nv.interface import MemoryKind
from tgcore.hcq.memory import HCQAllocator, HCQMemory, lose

if TYPE_CHECKING:
    from tg_nv.device import NVDevice

_SLAB_BYTES: Final = 2 << 20
_LEAST: Final = 256
_LARGEST_SMALL: Final = 256 << 10


class _Slab:
    """Memory that is cut into parts of one size."""

    def __init__(self, memory: HCQMemory, part_bytes: int) -> None:
        self.memory, self.part_bytes = memory, part_bytes
        self.count = memory.nbytes // part_bytes
        self.free = list(range(self.count))


class NVAllocator(HCQAllocator):
    """Memory of the GPU; what the host copies goes through memory of the host."""

    device: NVDevice

    def __init__(self, device: NVDevice) -> None:
        super().__init__(device)
        self.closed = False
        self._slabs: dict[int, list[_Slab]] = {}  # by the size of their parts
        self._live: dict[int, int] = {}  # address -> size, for messages
        self._given: weakref.WeakSet[HCQMemory] = weakref.WeakSet()

    def available(self) -> int:
        return self.device.interface.free_bytes()

    def _alloc(self, nbytes: int) -> HCQMemory:
        self.device.check_alive()
        memory = (
            self._alloc_small(nbytes)
            if nbytes <= _LARGEST_SMALL
            else self.device.interface.alloc(nbytes, MemoryKind.VIDEO, "a buffer")
        )
        self._live[memory.address] = nbytes
        self._given.add(memory)
        return memory

    def offset(self, memory: HCQMemory, nbytes: int, offset: int) -> HCQMemory:
        part = super().offset(memory, nbytes, offset)
        self._given.add(part)
        return part

    def lose(self) -> None:
        """All that was given is lost with the device."""
        self.closed = True
        self._staging.clear()
        lose(list(self._given), self.device.death)
        self._given.clear()

    def _alloc_small(self, nbytes: int) -> HCQMemory:
        part_bytes = max(_LEAST, 1 << max(nbytes - 1, 0).bit_length())
        slabs = self._slabs.setdefault(part_bytes, [])
        slab = next((s for s in slabs if s.free), None)
        if slab is None:
            memory = self.device.interface.alloc(_SLAB_BYTES, MemoryKind.VIDEO, "small buffers")
            slab = _Slab(memory, part_bytes)
            slabs.append(slab)
        number = slab.free.pop()
        return HCQMemory(slab.memory.address + number * part_bytes, nbytes, None, slab)

    def _free(self, memory: HCQMemory, nbytes: int) -> None:
        if self.closed:
            return  # all went with the device
        self._live.pop(memory.address, None)
        slab = memory.owner
        if not isinstance(slab, _Slab):
            self.device.interface.free(memory)
            return
        slab.free.append((memory.address - slab.memory.address) // slab.part_bytes)

    def free_cache(self) -> None:
        super().free_cache()
        for part_bytes, slabs in self._slabs.items():
            unused = [s for s in slabs if len(s.free) == s.count]
            self._slabs[part_bytes] = [s for s in slabs if len(s.free) < s.count]
            for slab in unused:
                self.device.interface.free(slab.memory)

    def _alloc_staging(self, nbytes: int) -> HCQMemory:
        return self.device.interface.alloc(nbytes, MemoryKind.HOST, "copies with the host")

    def forget(self, memory: HCQMemory) -> None:
        """The memory is no buffer: messages do not speak of it."""
        self._live.pop(memory.address, None)

    def nearest(self, address: int) -> str:
        """Which buffer is at the address, or closest to it, in words."""
        starts = sorted(self._live)
        position = bisect_right(starts, address) - 1
        if position >= 0 and address < starts[position] + self._live[starts[position]]:
            start = starts[position]
            return f"byte {address - start} of a buffer of {self._live[start]} bytes"
        near = starts[max(position, 0) : position + 2]
        if not near:
            return "no buffer is near"
        start = min(near, key=lambda s: min(abs(address - s), abs(address - s - self._live[s])))
        nbytes = self._live[start]
        if address < start:
            return f"{start - address} bytes before a buffer of {nbytes} bytes at {start:#x}"
        after = address - start - nbytes
        return f"{after} bytes after the end of a buffer of {nbytes} bytes at {start:#x}"
