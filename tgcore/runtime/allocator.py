"""Memory of a device: the base class of allocators, and reuse of freed memory."""

from __future__ import annotations

import itertools
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from typing import Any, ClassVar, Generic, TypeVar

from tgcore.errors import OutOfMemoryError

Memory = TypeVar("Memory")

_BYTES_KEPT = 1 << 30  # freed memory that a device holds for reuse, unless it says otherwise


class Allocator(ABC, Generic[Memory]):
    """Gives out, takes back, fills and reads a device's memory.

    A back end implements `_alloc`, `_free`, `copyin`, `copyout`, `offset`, and where it can
    `as_memoryview` (memory that the host sees), `transfer` (from another device of its kind) and
    `external` (memory that someone else owns).
    """

    # whether what it gives out takes up memory (mapped files do not)
    is_memory: ClassVar[bool] = True

    def __init__(self, name: str) -> None:
        self.name = name
        self.used = 0
        self._lock = threading.Lock()
        self._returned: deque[tuple[Memory, int]] = deque()  # freed, not yet dealt with

    @property
    def provider(self) -> str:
        """Which wheel supplies the device, for messages."""
        return ""

    def alloc(self, nbytes: int) -> Memory:
        """Memory of that size; OutOfMemoryError if there is not so much."""
        memory = self._reuse(nbytes)
        if memory is None:
            memory = self._alloc_or_complain(nbytes)
        with self._lock:
            self.used += nbytes
        self._settle()
        return memory

    def free(self, memory: Memory, nbytes: int) -> None:
        """Take memory back. Never blocks: the garbage collector may call it amid anything."""
        self._returned.append((memory, nbytes))
        self._settle()

    def _settle(self) -> None:
        """Deal with returned memory, unless someone is at it, who then does so in the end."""
        while self._returned and self._lock.acquire(blocking=False):
            try:
                while self._returned:
                    memory, nbytes = self._returned.popleft()
                    self.used -= nbytes
                    self._take_back(memory, nbytes)
            finally:
                self._lock.release()

    def _reuse(self, nbytes: int) -> Memory | None:
        """Memory of that size that was kept, if there is any."""
        return None

    def _take_back(self, memory: Memory, nbytes: int) -> None:
        """Keep or free returned memory; the lock is held."""
        self._release(memory, nbytes)

    def _release(self, memory: Memory, nbytes: int) -> None:
        """Give memory back to the system as soon as the device no longer uses it."""
        self._free(memory, nbytes)

    def free_cache(self) -> None:
        """Give memory that is only kept for reuse back to the system."""

    def unlock(self) -> None:
        """In a process just forked: forget that another thread held the lock."""
        self._lock = threading.Lock()

    def available(self) -> int | None:
        """Bytes that could still be allocated, or None if that is not known."""
        return None

    def _alloc_or_complain(self, nbytes: int) -> Memory:
        if not self._fits(nbytes):
            self.free_cache()
            if not self._fits(nbytes):
                raise self._out_of_memory(nbytes)
        try:
            return self._alloc(nbytes)
        except MemoryError:
            self.free_cache()
        try:
            return self._alloc(nbytes)
        except MemoryError:
            raise self._out_of_memory(nbytes) from None

    def _fits(self, nbytes: int) -> bool:
        """Whether to try at all: a host that overcommits kills the process instead of failing."""
        if nbytes < 1 << 26:
            return True
        available = self.available()
        return available is None or nbytes <= available

    def _out_of_memory(self, nbytes: int) -> OutOfMemoryError:
        free = self.available()
        left = "" if free is None else f", {_size(free)} are free"
        return OutOfMemoryError(
            f"{self.name} is out of memory: {_size(nbytes)} were asked for",
            self.provider,
            f"{_size(self.used)} are in use{left}",
            "use smaller batches, or drop tensors that are no longer needed",
        )

    @abstractmethod
    def _alloc(self, nbytes: int) -> Memory:
        """Allocate; MemoryError if there is not so much."""

    @abstractmethod
    def _free(self, memory: Memory, nbytes: int) -> None:
        """Give memory back to the system; the device does not use it any more."""

    @abstractmethod
    def copyin(self, dest: Memory, source: memoryview) -> None:
        """Copy from the host. Ordered after all that was queued; `source` may be reused at once."""

    @abstractmethod
    def copyout(self, dest: memoryview, source: Memory) -> None:
        """Copy to the host, after all that was queued; `dest` is filled on return."""

    @abstractmethod
    def offset(self, memory: Memory, nbytes: int, offset: int) -> Memory:
        """A part of the memory."""

    def as_memoryview(self, memory: Memory) -> memoryview | None:
        """The memory as the host sees it, without waiting; None if the host does not see it."""
        return None

    def transfer(self, dest: Memory, source: Memory, nbytes: int, source_device: Any) -> bool:
        """Copy from another device (or this one) without the host; False if it cannot."""
        return False

    def external(self, address: int, nbytes: int, owner: object) -> Memory | None:
        """Memory at that address that `owner` owns and that is never freed; None if it cannot."""
        return None


class LRUAllocator(Allocator[Memory]):
    """Keeps freed memory for the next allocation of the same size, oldest dropped first."""

    def __init__(self, name: str, bytes_kept: int = _BYTES_KEPT) -> None:
        super().__init__(name)
        self.bytes_kept = bytes_kept
        self._kept: OrderedDict[int, tuple[Memory, int]] = OrderedDict()  # by a running number
        self._by_size: dict[int, list[int]] = {}
        self._kept_bytes = 0
        self._numbers = itertools.count()

    def _reuse(self, nbytes: int) -> Memory | None:
        with self._lock:
            numbers = self._by_size.get(nbytes)
            if not numbers:
                return None
            self._kept_bytes -= nbytes
            return self._kept.pop(numbers.pop())[0]

    def _take_back(self, memory: Memory, nbytes: int) -> None:
        number = next(self._numbers)
        self._kept[number] = (memory, nbytes)
        self._by_size.setdefault(nbytes, []).append(number)
        self._kept_bytes += nbytes
        while self._kept_bytes > self.bytes_kept:
            self._release(*self._drop_oldest())

    def _drop_oldest(self) -> tuple[Memory, int]:
        number, (memory, nbytes) = self._kept.popitem(last=False)
        self._by_size[nbytes].remove(number)
        self._kept_bytes -= nbytes
        return memory, nbytes

    def free_cache(self) -> None:
        self._settle()
        with self._lock:
            kept = list(self._kept.values())
            self._kept.clear()
            self._by_size.clear()
            self._kept_bytes = 0
        for memory, nbytes in kept:
            self._free(memory, nbytes)


def _size(nbytes: int) -> str:
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= scale:
            return f"{nbytes / scale:.2f} {unit}"
    return f"{nbytes} bytes"
