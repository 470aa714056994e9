"""The host device for files: a buffer on `DISK:/path` is that file, mapped in memory."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Final

from tgcore.errors import DeviceError
from tgcore.plugin.contract import BackendDescription
from tgcore.runtime.allocator import Allocator
from tgcore.runtime.compiled import CompiledDevice

NAME: Final = "DISK"


class DiskAllocator(Allocator[memoryview]):
    """Maps the device's file; makes or lengthens it when a buffer needs that."""

    is_memory = False

    def __init__(self, name: str, path: Path) -> None:
        super().__init__(name)
        self.path = path

    def _alloc(self, nbytes: int) -> memoryview:
        try:
            writable = not self.path.exists() or os.access(self.path, os.W_OK)
            flags = (os.O_RDWR | os.O_CREAT) if writable else os.O_RDONLY
            descriptor = os.open(self.path, flags | getattr(os, "O_CLOEXEC", 0), 0o666)
        except OSError as error:
            raise self._trouble(error.strerror or str(error)) from None
        try:
            return self._map(descriptor, nbytes, writable)
        except OSError as error:
            raise self._trouble(error.strerror or str(error)) from None
        finally:
            os.close(descriptor)

    def _map(self, descriptor: int, nbytes: int, writable: bool) -> memoryview:
        length = os.fstat(descriptor).st_size
        if length < nbytes and not writable:
            raise self._trouble(f"it has {length} bytes, {nbytes} are needed, and it is read-only")
        if length < nbytes:
            _reserve(descriptor, nbytes)
        if nbytes == 0:
            return memoryview(b"")
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        return memoryview(mmap.mmap(descriptor, nbytes, access=access))

    def _free(self, memory: memoryview, nbytes: int) -> None:
        """Nothing to do: the mapping ends with the last view of it."""

    def copyin(self, dest: memoryview, source: memoryview) -> None:
        if dest.readonly:
            raise self._trouble("it is read-only")
        dest[:] = source

    def copyout(self, dest: memoryview, source: memoryview) -> None:
        dest[:] = source

    def offset(self, memory: memoryview, nbytes: int, offset: int) -> memoryview:
        return memory[offset : offset + nbytes]

    def as_memoryview(self, memory: memoryview) -> memoryview:
        return memory

    def _trouble(self, why: str) -> DeviceError:
        return DeviceError(f"the file {self.path} cannot be used", "", why, "check path and rights")


def _reserve(descriptor: int, nbytes: int) -> None:
    """Lengthen the file; where the system can, so that a full disk is an error now, not a crash."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, nbytes)
    else:
        os.ftruncate(descriptor, nbytes)


def open_disk(name: str, index: int) -> CompiledDevice:
    """The device for the file that the name holds."""
    path = name.partition(":")[2]
    if not path:
        raise DeviceError(f"{name} names no file", "", "", f"e.g. {NAME}:/path/to/file")
    return CompiledDevice(name, DiskAllocator(name, Path(path)))


DESCRIPTION: Final = BackendDescription(NAME, -1, open_disk, hcq=False, by_default=False)
