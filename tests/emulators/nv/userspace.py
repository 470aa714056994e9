"""The process's own memory as the kernel sees it: copies that fail instead of crashing."""

from __future__ import annotations

import errno
import os
from typing import Any, Final

from cffi import FFI

_ffi = FFI()
_ffi.cdef("""
    ssize_t pwrite(int file, void *bytes, size_t count, int64_t offset);
    ssize_t pread(int file, void *bytes, size_t count, int64_t offset);
""")
_libc: Any = _ffi.dlopen(None)
PAGE: Final = 4096


def copy_in(address: int, nbytes: int) -> bytearray:
    """Read the process's memory. EFAULT where it may not be read."""
    result = bytearray(nbytes)
    if nbytes:
        with _Scratch() as scratch:
            _check(_libc.pwrite(scratch, _pointer(address), nbytes, 0), nbytes)
            result[:] = os.pread(scratch, nbytes, 0)
    return result


def copy_out(address: int, data: bytes | bytearray) -> None:
    """Write the process's memory. EFAULT where it may not be written; nothing checks the size."""
    if data:
        with _Scratch() as scratch:
            os.pwrite(scratch, data, 0)
            _check(_libc.pread(scratch, _pointer(address), len(data), 0), len(data))


def accessible(address: int, nbytes: int) -> bool:
    """Whether the process may read the first byte of each page, as pinning needs."""
    with _Scratch() as scratch:
        pages = range(address, address + nbytes, PAGE)
        return all(_libc.pwrite(scratch, _pointer(page), 1, 0) == 1 for page in pages)


def window(address: int, nbytes: int) -> memoryview:
    """The process's memory itself; it must stay mapped."""
    return memoryview(_ffi.buffer(_ffi.cast("char *", address), nbytes)).cast("B")


def _pointer(address: int) -> Any:
    return _ffi.cast("void *", address)


def _check(copied: int, wanted: int) -> None:
    if copied != wanted:
        raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))


class _Scratch:
    """A file in memory: reading from and writing to it lets the kernel check addresses."""

    def __enter__(self) -> int:
        self.descriptor = os.memfd_create("fake-nv-scratch")
        return self.descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)
