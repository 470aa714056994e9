"""NVRTC, where it is installed: machine code and PTX of one source, without a GPU."""

from __future__ import annotations

import glob
import importlib.util
import os
from functools import cache
from typing import Any

from cffi import FFI

_ffi = FFI()
_ffi.cdef("""
    int nvrtcCreateProgram(void **program, const char *source, const char *name, int headers,
                           const char **texts, const char **names);
    int nvrtcCompileProgram(void *program, int count, const char **options);
    int nvrtcGetCUBINSize(void *program, size_t *nbytes);
    int nvrtcGetCUBIN(void *program, char *image);
    int nvrtcGetPTXSize(void *program, size_t *nbytes);
    int nvrtcGetPTX(void *program, char *text);
    int nvrtcGetProgramLogSize(void *program, size_t *nbytes);
    int nvrtcGetProgramLog(void *program, char *text);
""")


@cache
def library() -> Any:
    """The library of the wheel; None if it is not installed."""
    found = importlib.util.find_spec("nvidia")
    for folder in found.submodule_search_locations or [] if found else []:
        for path in glob.glob(os.path.join(folder, "**", "libnvrtc.so.*"), recursive=True):
            return _ffi.dlopen(path)
    return None


@cache
def build(source: str, target: str) -> tuple[bytes, str]:
    """Cubin and PTX of CUDA C for a target such as sm_90."""
    lib = library()
    program = _ffi.new("void **")
    assert (
        lib.nvrtcCreateProgram(program, source.encode(), b"test.cu", 0, _ffi.NULL, _ffi.NULL) == 0
    )
    option = _ffi.new("char[]", f"--gpu-architecture={target}".encode())
    status = lib.nvrtcCompileProgram(program[0], 1, [option])
    if status:
        raise ValueError(_text(lib.nvrtcGetProgramLogSize, lib.nvrtcGetProgramLog, program[0]))
    image = _text(lib.nvrtcGetCUBINSize, lib.nvrtcGetCUBIN, program[0])
    ptx = _text(lib.nvrtcGetPTXSize, lib.nvrtcGetPTX, program[0])
    return image, ptx.rstrip(b"\0").decode()


def _text(size: Any, get: Any, program: Any) -> bytes:
    nbytes = _ffi.new("size_t *")
    assert size(program, nbytes) == 0
    buffer = _ffi.new("char[]", nbytes[0])
    assert get(program, buffer) == 0
    return bytes(_ffi.buffer(buffer))
