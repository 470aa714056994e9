"""The one door to the operating system's device files: open, ioctl, mmap, registers.

Drivers go through a `FileSystem` that they are given, so that tests can put a fake driver in its
place. `HOST` is the real one.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any, Protocol

from tgcore.errors import DeviceError
from tgcore.hcq.mapping import Mapping, Registers, map_memory, map_registers


class DeviceFile(Protocol):
    """An open device file."""

    def fileno(self) -> int:
        """The number that the driver knows the file by."""

    def ioctl(self, request: int, argument: Any) -> int:
        """Call the driver with a writable buffer that it may change. Raises OSError."""

    def mmap(
        self, nbytes: int, offset: int = 0, *, writable: bool = True, address: int = 0
    ) -> Mapping:
        """Map a part of the file, shared with the driver; at the address, unless that is 0."""

    def registers(self, nbytes: int, offset: int = 0) -> Registers:
        """Map registers of the device."""

    def close(self) -> None:
        """Close the file; mappings stay."""


class FileSystem(Protocol):
    """What opens device files."""

    def open(self, path: str, *, writable: bool = True) -> DeviceFile:
        """Open a device file. Raises OSError, see `refusal`."""

    def check(self, path: str) -> None:
        """Raises the OSError that opening the file would raise, without opening it."""

    def read_text(self, path: str) -> str:
        """What a file of the driver's says, such as its version. Raises OSError."""


def refusal(path: str, error: OSError) -> DeviceError:
    """Says why a device file cannot be opened, and what to do."""
    fixes = {
        PermissionError: "join the group that owns the file, or ask for the right to use it",
        FileNotFoundError: "load the kernel driver that makes it",
    }
    fix = fixes.get(type(error), "see the kernel's log (dmesg)")
    return DeviceError(f"{path} cannot be opened", "", error.strerror or str(error), fix)


class _HostFile:
    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def fileno(self) -> int:
        return self.descriptor

    def ioctl(self, request: int, argument: Any) -> int:
        while True:
            try:
                return int(fcntl.ioctl(self.descriptor, request, argument, True))
            except InterruptedError:
                continue

    def mmap(
        self, nbytes: int, offset: int = 0, *, writable: bool = True, address: int = 0
    ) -> Mapping:
        return map_memory(self.descriptor, nbytes, offset, writable=writable, address=address)

    def registers(self, nbytes: int, offset: int = 0) -> Registers:
        return map_registers(self.descriptor, nbytes, offset)

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class _HostFileSystem:
    def open(self, path: str, *, writable: bool = True) -> DeviceFile:
        flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC
        return _HostFile(os.open(path, flags))

    def check(self, path: str) -> None:
        os.stat(path)
        if not os.access(path, os.R_OK | os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    def read_text(self, path: str) -> str:
        return Path(path).read_text("utf-8", errors="replace")


HOST: FileSystem = _HostFileSystem()
