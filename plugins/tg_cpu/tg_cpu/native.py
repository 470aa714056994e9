"""The C interface: functions of the C library, and the types of our own native functions."""

from __future__ import annotations

import contextlib
import functools
import io
import sys
import tempfile
from pathlib import Path
from typing import Any

import cffi

from tg_cpu.filecache import cached

_RTLD_NOW = 2

OWN_SYMBOLS: dict[str, int] = {}
"""Functions of ours that compiled kernels may call, by the names that LLVM uses."""

_CDEF = """
void *dlsym(void *, const char *);
void *dlopen(const char *, int);
char *dlerror(void);
void *mmap(void *, size_t, int, int, int, long);
int munmap(void *, size_t);
int mprotect(void *, size_t, int);
int madvise(void *, size_t, int);
void *aligned_alloc(size_t, size_t);
void free(void *);
typedef int32_t (*run_t)(void *state);
typedef int32_t (*submit_t)(void *state, void *words, int64_t count);
typedef void (*stop_t)(void *state);
typedef int32_t (*wait_t)(void *signal, int64_t value, int64_t spins, int64_t nanoseconds);
typedef void (*set_t)(void *signal, int64_t value);
"""


@functools.cache
def ffi() -> Any:
    """The cffi interface. Parsing the C text takes longer than all else, so its result is kept."""
    key = f"{cffi.__version__} {sys.version} {_CDEF}"
    code = cached("tg-cpu-cdef", key, _parse)
    space: dict[str, Any] = {}
    exec(compile(code, "<tg_cpu cdef>", "exec"), space)
    return space["ffi"]


def _parse() -> bytes:
    builder = cffi.FFI()
    builder.cdef(_CDEF)
    builder.set_source("tg_cpu_native", None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tg_cpu_native.py"
        with contextlib.redirect_stdout(io.StringIO()):  # it says that it generates a file
            builder.emit_python_code(str(path))
        return path.read_bytes()


@functools.cache
def libc() -> Any:
    """The C library, as this process has it."""
    return ffi().dlopen(None)


def symbol_address(name: str) -> int | None:
    """Where a function is: ours, the C library's or the mathematical library's; None if nowhere."""
    if name in OWN_SYMBOLS:
        return OWN_SYMBOLS[name]
    return function_address(0, name)


def function_address(library: int, name: str) -> int | None:
    """Where a function of an opened library is (0: all that this process has loaded)."""
    found = libc().dlsym(pointer(library), name.encode())
    return int(ffi().cast("uintptr_t", found)) or None


def open_library(path: str) -> int:
    """Open a shared object; OSError if it does not load."""
    handle = libc().dlopen(path.encode(), _RTLD_NOW)
    if handle == ffi().NULL:
        raise OSError(ffi().string(libc().dlerror()).decode(errors="replace"))
    return int(ffi().cast("uintptr_t", handle))


def address_of(buffer: Any) -> int:
    """The address of an object's memory."""
    return int(ffi().cast("uintptr_t", ffi().from_buffer(buffer)))


def pointer(address: int) -> Any:
    """The address as a `void *`."""
    return ffi().cast("void *", address)


def view(address: int, nbytes: int) -> memoryview:
    """The memory at an address as bytes. The caller keeps it alive."""
    return memoryview(ffi().buffer(pointer(address), nbytes)).cast("B")
