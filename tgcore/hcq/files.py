"""The one door to the operating system's device files: open, ioctl, mmap.

Drivers go through a `FileSystem` that they are given, so that tests can put a fake driver in its
place. `HOST` is the real one.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from typing import Protocol

from tgcore.errors import DeviceError


class DeviceFile(Protocol):
    """An open device file."""

    def ioctl(self, request: int, argument: bytearray) -> int:
        """Call the driver; it may change the argument in place."""

    def mmap(self, nbytes: int, offset: int = 0, *, writable: bool = True) -> memoryview:
        """Map a part of the file, shared with the driver."""

    def close(self) -> None:
        """Close the file; mappings stay."""


class FileSystem(Protocol):
    """What opens device files."""

    def open(self, path: str, *, writable: bool = True) -> DeviceFile:
        """Open a device file; DeviceError says why it cannot be."""


class _HostFile:
    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def ioctl(self, request: int, argument: bytearray) -> int:
        return int(fcntl.ioctl(self.descriptor, request, argument, True))

    def mmap(self, nbytes: int, offset: int = 0, *, writable: bool = True) -> memoryview:
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        mapping = mmap.mmap(self.descriptor, nbytes, mmap.MAP_SHARED, protection, offset=offset)
        return memoryview(mapping)

    def close(self) -> None:
        os.close(self.descriptor)


class _HostFileSystem:
    def open(self, path: str, *, writable: bool = True) -> DeviceFile:
        flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC
        try:
            return _HostFile(os.open(path, flags))
        except OSError as error:
            fix = (
                "join the group that owns the file"
                if isinstance(error, PermissionError)
                else ("load the kernel driver that makes it")
            )
            why = error.strerror or str(error)
            raise DeviceError(f"{path} cannot be opened", "", why, fix) from None


HOST: FileSystem = _HostFileSystem()
