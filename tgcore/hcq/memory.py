"""Memory of HCQ devices: a piece of address space, and the allocator that copies through queues."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from tgcore.runtime.allocator import LRUAllocator

if TYPE_CHECKING:
    from tgcore.hcq.device import HCQDevice

_STAGING_BYTES: Final = 1 << 20


class HCQMemory:
    """A piece of a device's address space; `view` is the same memory where the host sees it."""

    __slots__ = ("__weakref__", "address", "nbytes", "owner", "view")

    def __init__(
        self, address: int, nbytes: int, view: memoryview | None = None, owner: object = None
    ) -> None:
        self.address, self.nbytes, self.view, self.owner = address, nbytes, view, owner

    def part(self, nbytes: int, offset: int) -> HCQMemory:
        """So many bytes from the offset on; it keeps what owns the memory alive."""
        view = None if self.view is None else self.view[offset : offset + nbytes]
        return HCQMemory(self.address + offset, nbytes, view, self.owner)


def lose(memories: Iterable[HCQMemory], error: Callable[[], Exception]) -> None:
    """The memories are gone with their device: who wants an address gets the error instead.

    Another device may have something else at that address by now.
    """

    def lost(memory: HCQMemory) -> int:
        raise error()

    kind = type("LostMemory", (HCQMemory,), {"__slots__": (), "address": property(lost)})
    for memory in memories:
        memory.__class__ = kind


class HCQAllocator(LRUAllocator[HCQMemory]):
    """Copies by the host where it sees the memory, else by queue through staging memory.

    A back end implements `_alloc`, `_free`, and, if its memory is not host-visible,
    `_alloc_staging`.
    """

    def __init__(self, device: HCQDevice, **options: Any) -> None:
        super().__init__(device.name, **options)
        self.device = device
        self._leaving: deque[tuple[int, HCQMemory, int]] = deque()  # until this timeline value
        self._staging: deque[tuple[HCQMemory, int]] = (
            deque()
        )  # memory, timeline value of its last use

    @property
    def provider(self) -> str:
        return self.device.provider

    @abstractmethod
    def _alloc(self, nbytes: int) -> HCQMemory: ...

    def _alloc_staging(self, nbytes: int) -> HCQMemory:
        """Memory that the host sees and the device can copy from and to."""
        raise NotImplementedError(f"{self.name} has memory that the host cannot see, and no other")

    def _release(self, memory: HCQMemory, nbytes: int) -> None:
        """Commands in the queues may still use the memory: it is freed once they are done."""
        reached = self.device.timeline.value
        self._leaving.append((self.device.submitted, memory, nbytes))
        while self._leaving and self._leaving[0][0] <= reached:
            _, old, size = self._leaving.popleft()
            self._free(old, size)

    def free_cache(self) -> None:
        if self._kept or self._leaving or self._returned:
            self.device.synchronize()
        with self._lock:
            leaving = list(self._leaving)
            self._leaving.clear()
        for _, memory, nbytes in leaving:
            self._free(memory, nbytes)
        super().free_cache()

    def as_memoryview(self, memory: HCQMemory) -> memoryview | None:
        return memory.view

    def offset(self, memory: HCQMemory, nbytes: int, offset: int) -> HCQMemory:
        return memory.part(nbytes, offset)

    def copyin(self, dest: HCQMemory, source: memoryview) -> None:
        if dest.view is not None:
            self.device.synchronize()
            dest.view[:] = source
            return
        for start in range(0, source.nbytes, _STAGING_BYTES):
            part = source[start : start + _STAGING_BYTES]
            staging = self._next_staging()
            assert staging.view is not None
            staging.view[: part.nbytes] = part
            done = self.device.enqueue_copy(dest.address + start, staging.address, part.nbytes)
            self._staging.append((staging, done))

    def copyout(self, dest: memoryview, source: HCQMemory) -> None:
        if source.view is not None:
            self.device.synchronize()
            dest[:] = source.view
            return
        for start in range(0, dest.nbytes, _STAGING_BYTES):
            part = dest[start : start + _STAGING_BYTES]
            staging = self._next_staging()
            assert staging.view is not None
            done = self.device.enqueue_copy(staging.address, source.address + start, part.nbytes)
            self.device.wait_for(done)
            part[:] = staging.view[: part.nbytes]
            self._staging.append((staging, done))

    def transfer(self, dest: HCQMemory, source: HCQMemory, nbytes: int, source_device: Any) -> bool:
        if not self.device.reaches(source_device):
            return False
        self.device.enqueue_transfer(dest.address, source.address, nbytes, source_device)
        return True

    def _next_staging(self) -> HCQMemory:
        """One of two pieces in turn: the host fills one while the device reads the other."""
        if len(self._staging) < 2:
            return self._alloc_staging(_STAGING_BYTES)
        staging, last_use = self._staging.popleft()
        self.device.wait_for(last_use)
        return staging
