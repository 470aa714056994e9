"""Memory and registers that are mapped into this process, at addresses of the driver's choice.

Devices that see memory under the same address as the host need mappings at given addresses.
`reserve` takes a range out of the hands of everybody else; mappings go into it, and when they are
closed their place is reserved again.
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
from typing import Any, Final, Protocol

from cffi import FFI

_ffi = FFI()
_ffi.cdef("""
    void *mmap(void *address, size_t nbytes, int protection, int flags, int file, int64_t offset);
    int munmap(void *address, size_t nbytes);
""")
_libc: Any = _ffi.dlopen(None)

_FIXED: Final = 0x10
_NORESERVE: Final = 0x4000
_FIXED_NOREPLACE: Final = 0x10_0000
_NO_ACCESS: Final = 0


class Mapping:
    """Bytes in this process: `view` is the memory at `address`."""

    def __init__(
        self, address: int, nbytes: int, *, reserved: bool = False, writable: bool = True
    ) -> None:
        self.address, self.nbytes = address, nbytes
        self._reserved = reserved
        self._open = True
        view = memoryview(_ffi.buffer(_ffi.cast("char *", address), nbytes)).cast("B")
        self.view = view if writable else view.toreadonly()

    def close(self) -> None:
        """Unmap. Views do not keep the memory alive: nothing should use them any more."""
        if not self._open:
            return
        self._open = False
        self.view.release()
        if self._reserved:
            # whoever still holds a view reads and writes nothing, instead of ending the process
            protection = mmap.PROT_READ | mmap.PROT_WRITE
            _map(self.address, self.nbytes, protection, _anonymous() | _FIXED | _NORESERVE, -1, 0)
        else:
            _libc.munmap(_ffi.cast("void *", self.address), self.nbytes)


class Registers(Protocol):
    """Registers of 32 bits by their offset in bytes."""

    def __getitem__(self, offset: int) -> int:
        """Read a register."""

    def __setitem__(self, offset: int, value: int) -> None:
        """Write a register, after all memory that was written before."""

    def close(self) -> None:
        """Unmap."""


class _HostRegisters:
    def __init__(self, mapping: Mapping) -> None:
        self._mapping = mapping
        self._words = mapping.view.cast("I")

    def __getitem__(self, offset: int) -> int:
        return self._words[offset >> 2]

    def __setitem__(self, offset: int, value: int) -> None:
        store_fence()
        self._words[offset >> 2] = value

    def close(self) -> None:
        self._words.release()
        self._mapping.close()


def map_memory(
    file: int, nbytes: int, offset: int = 0, *, writable: bool = True, address: int = 0
) -> Mapping:
    """Map a file, shared; at the address (in a range that was reserved), unless that is 0."""
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    flags = mmap.MAP_SHARED | (_FIXED if address else 0)
    found = _map(address, nbytes, protection, flags, file, offset)
    return Mapping(found, nbytes, reserved=bool(address), writable=writable)


def map_registers(file: int, nbytes: int, offset: int = 0) -> Registers:
    """Map registers of a device."""
    return _HostRegisters(map_memory(file, nbytes, offset))


def allocate(nbytes: int, address: int = 0) -> Mapping:
    """Zeroed memory of this process's own, in whole pages."""
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    flags = _anonymous() | (_FIXED if address else 0)
    return Mapping(_map(address, nbytes, protection, flags, -1, 0), nbytes, reserved=bool(address))


_reserved: Final[list[tuple[int, int]]] = []


def reserve(address: int, nbytes: int) -> None:
    """Addresses that nobody else in this process gets; for good, and as often as one likes.

    Raises OSError if something is there already.
    """
    if any(start <= address and address + nbytes <= end for start, end in _reserved):
        return
    flags = _anonymous() | _NORESERVE | _FIXED_NOREPLACE
    found = _map(address, nbytes, _NO_ACCESS, flags, -1, 0)
    if found != address:  # a kernel before 4.17 takes the flag for a hint
        _libc.munmap(_ffi.cast("void *", found), nbytes)
        raise OSError(errno.EEXIST, f"the addresses from {address:#x} on are in use")
    _reserved.append((address, address + nbytes))


_lock = threading.Lock()


def store_fence() -> None:
    """What was written before is seen before what is written after, in write-combined memory, too.

    Taking a lock is an atomic instruction, which on x86 waits for all earlier stores; on ARM its
    acquire and release together order stores around it.
    """
    with _lock:
        pass


def _anonymous() -> int:
    return mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


def _map(address: int, nbytes: int, protection: int, flags: int, file: int, offset: int) -> int:
    found = _libc.mmap(_ffi.cast("void *", address), nbytes, protection, flags, file, offset)
    result = int(_ffi.cast("intptr_t", found))
    if result == -1:
        raise OSError(_ffi.errno, f"{os.strerror(_ffi.errno)}: cannot map {nbytes} bytes")
    return result
