"""Memory that the CPU and the fake GPUs share, and the page tables through which GPUs see it."""

from __future__ import annotations

import mmap
import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from tests.emulators.nv.userspace import window

PAGE: Final = 4096
READ, WRITE, ATOMIC = 0, 1, 2  # access types of a fault report
PDE_MISSING, PTE_MISSING, READ_ONLY = 0, 2, 6  # its fault types


class MmuFault(Exception):
    """A GPU's access through its page tables failed."""

    def __init__(self, address: int, kind: int, access: int) -> None:
        what = {PTE_MISSING: "not mapped", READ_ONLY: "read-only"}.get(kind, f"fault {kind}")
        super().__init__(f"MMU fault: {address:#x} is {what} (access {access})")
        self.address, self.kind, self.access = address, kind, access


class Memory:
    """Bytes with a physical place: "video" of one GPU, "system", or "host" (the process's own)."""

    def __init__(
        self,
        nbytes: int,
        place: str,
        gpu: int,
        released: Callable[[], None],
        *,
        host_address: int = 0,
        read_only: bool = False,
    ) -> None:
        self.nbytes, self.place, self.gpu = nbytes, place, gpu
        self.read_only = read_only  # for devices
        self.host_address = host_address
        self.cpu_views: list[tuple[int, int]] = []  # (address, offset in this memory)
        self.gpu_views: list[tuple[int, int]] = []  # the same for GPUs; nothing is taken out
        self._holds, self._released = 1, released
        self._file = -1
        self._view: memoryview | None = None
        if place != "host":
            self._file = os.memfd_create(f"fake-nv-{place}")
            os.ftruncate(self._file, nbytes)

    def fileno(self) -> int:
        """The file behind it, for CPU mappings."""
        return self._file

    @property
    def view(self) -> memoryview:
        """Its bytes."""
        if self._view is None:
            if self.place == "host":
                self._view = window(self.host_address, self.nbytes)
            else:
                self._view = memoryview(mmap.mmap(self._file, self.nbytes))
        return self._view

    def hold(self) -> None:
        """One more user: RM object, UVM mapping."""
        self._holds += 1

    def drop(self) -> None:
        """One user less; the last one frees it."""
        self._holds -= 1
        if not self._holds:
            self._view = None
            if self._file >= 0:
                os.close(self._file)
            self._released()


@dataclass(frozen=True)
class Mapped:
    """A run of GPU addresses that show a run of a memory's bytes."""

    start: int
    end: int
    memory: Memory
    offset: int
    writable: bool

    def cut(self, start: int, end: int) -> Mapped:
        """The part within these addresses."""
        return replace(self, start=start, end=end, offset=self.offset + start - self.start)


class PageTable:
    """One GPU's address space."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._mapped: list[Mapped] = []

    def __iter__(self) -> Iterator[Mapped]:
        return iter(self._mapped)

    def __len__(self) -> int:
        return len(self._mapped)

    def map(self, base: int, nbytes: int, memory: Memory, offset: int, *, writable: bool) -> None:
        """Map memory, instead of what was mapped there."""
        self.unmap(base, nbytes)
        memory.hold()
        memory.gpu_views.append((base, offset))
        self._insert(Mapped(base, base + nbytes, memory, offset, writable))

    def unmap(self, base: int, nbytes: int) -> None:
        """Nothing is mapped there afterwards; neighbours that reach into it are cut."""
        end = base + nbytes
        for old in self._within(base, end):
            index = bisect_right(self._starts, old.start) - 1
            del self._mapped[index], self._starts[index]
            for start, stop in ((old.start, base), (end, old.end)):
                if start < stop:
                    old.memory.hold()
                    self._insert(old.cut(start, stop))
            old.memory.drop()

    def overlaps(self, base: int, nbytes: int) -> bool:
        """Whether anything is mapped in these addresses."""
        return bool(self._within(base, base + nbytes))

    def find(self, address: int) -> Mapped | None:
        """What is mapped at an address."""
        index = bisect_right(self._starts, address) - 1
        if index >= 0 and address < self._mapped[index].end:
            return self._mapped[index]
        return None

    def pieces(self, address: int, nbytes: int, access: int = READ) -> Iterator[memoryview]:
        """The bytes at these addresses, in runs. Raises MmuFault at the first bad address."""
        end = address + nbytes
        while address < end:
            found = self.find(address)
            if found is None:
                raise MmuFault(address, PTE_MISSING, access)
            if access in (WRITE, ATOMIC) and not found.writable:
                raise MmuFault(address, READ_ONLY, access)
            stop = min(end, found.end)
            first = found.offset + address - found.start
            yield found.memory.view[first : first + stop - address]
            address = stop

    def check(self, address: int, nbytes: int, access: int = READ) -> None:
        """Raises MmuFault unless all of it may be accessed."""
        for _ in self.pieces(address, nbytes, access):
            pass

    def read(self, address: int, nbytes: int) -> bytes:
        """Bytes at an address."""
        return b"".join(bytes(piece) for piece in self.pieces(address, nbytes))

    def write(self, address: int, data: bytes | bytearray | memoryview) -> None:
        """Write bytes; nothing is written if any of them may not be."""
        self.check(address, len(data), WRITE)
        done = 0
        for piece in self.pieces(address, len(data), WRITE):
            piece[:] = data[done : done + len(piece)]
            done += len(piece)

    def word(self, address: int, nbytes: int = 4) -> int:
        """An integer at an address."""
        return int.from_bytes(self.read(address, nbytes), "little")

    def _within(self, base: int, end: int) -> list[Mapped]:
        """What reaches into these addresses."""
        first = max(bisect_right(self._starts, base) - 1, 0)
        last = bisect_left(self._starts, end)
        return [m for m in self._mapped[first:last] if base < m.end]

    def _insert(self, mapped: Mapped) -> None:
        index = bisect_right(self._starts, mapped.start)
        self._starts.insert(index, mapped.start)
        self._mapped.insert(index, mapped)
