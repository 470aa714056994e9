"""NVRTC: NVIDIA's compiler of CUDA C as a library, straight to machine code.

The library comes in the wheel `nvidia-cuda-nvrtc`, which is found wherever it is installed, or with
a CUDA toolkit of the system's.
"""

from __future__ import annotations

import functools
from typing import Any, Final

from cffi import FFI

from tg_nv.languages.libraries import candidates
from tgcore.errors import CompileError
from tgcore.renderer.base import Compiler

_FOLDERS: Final = ("cu13/lib", "cuda_nvrtc/lib", "cu12/lib")  # in the namespace package `nvidia`

_ffi = FFI()
_ffi.cdef("""
    typedef struct program *nvrtcProgram;
    const char *nvrtcGetErrorString(int result);
    int nvrtcVersion(int *major, int *minor);
    int nvrtcCreateProgram(nvrtcProgram *program, const char *source, const char *name,
                           int headers, const char **header_texts, const char **header_names);
    int nvrtcDestroyProgram(nvrtcProgram *program);
    int nvrtcCompileProgram(nvrtcProgram program, int count, const char **options);
    int nvrtcGetProgramLogSize(nvrtcProgram program, size_t *nbytes);
    int nvrtcGetProgramLog(nvrtcProgram program, char *log);
    int nvrtcGetCUBINSize(nvrtcProgram program, size_t *nbytes);
    int nvrtcGetCUBIN(nvrtcProgram program, char *binary);
    int nvrtcGetPTXSize(nvrtcProgram program, size_t *nbytes);
    int nvrtcGetPTX(nvrtcProgram program, char *text);
""")


@functools.cache
def library() -> tuple[Any, str]:
    """The library and its version; CompileError if there is none."""
    for path in candidates("nvrtc", _FOLDERS):
        try:
            loaded: Any = _ffi.dlopen(path)
        except OSError:
            continue
        major, minor = _ffi.new("int *"), _ffi.new("int *")
        loaded.nvrtcVersion(major, minor)
        return loaded, f"{major[0]}.{minor[0]}"
    raise CompileError("NVRTC is not installed: pip install nvidia-cuda-nvrtc")


class NVRTCCompiler(Compiler):
    """CUDA C to machine code for one architecture, such as "sm_90"."""

    options: tuple[str, ...] = ("--std=c++17", "--device-as-default-execution-space")

    def __init__(self, architecture: str) -> None:
        self.architecture = architecture

    @functools.cached_property
    def cache_key(self) -> str:  # type: ignore[override]
        """Version, options and architecture."""
        return f"nvrtc {library()[1]} {self.architecture} {' '.join(self.options)}"

    def available(self) -> str | None:
        try:
            library()
        except CompileError as error:
            return str(error)
        return None

    def compile(self, source: str) -> bytes:
        return self._run(source, self.architecture, "CUBIN")

    def compile_to_ptx(self, source: str) -> str:
        """The same program as PTX."""
        architecture = self.architecture.replace("sm_", "compute_")
        return self._run(source, architecture, "PTX").rstrip(b"\0").decode()

    def _run(self, source: str, architecture: str, kind: str) -> bytes:
        nvrtc, _ = library()
        program = _ffi.new("nvrtcProgram *")
        text = source.encode()
        null = _ffi.NULL
        result = nvrtc.nvrtcCreateProgram(program, text, b"kernel.cu", 0, null, null)
        if result:
            raise CompileError(f"NVRTC fails: {_message(nvrtc, result)}", source)
        try:
            options = [f"--gpu-architecture={architecture}", *self.options]
            kept = [_ffi.new("char[]", option.encode()) for option in options]
            result = nvrtc.nvrtcCompileProgram(program[0], len(kept), kept)
            if result:
                log = self._read(program[0], "ProgramLog").rstrip(b"\0").decode(errors="replace")
                what = f"NVRTC rejects the source for {architecture}"
                raise CompileError(f"{what}: {_message(nvrtc, result)}", source, log)
            return self._read(program[0], kind)
        finally:
            nvrtc.nvrtcDestroyProgram(program)

    def _read(self, program: Any, what: str) -> bytes:
        nvrtc, _ = library()
        nbytes = _ffi.new("size_t *")
        getattr(nvrtc, f"nvrtcGet{what}Size")(program, nbytes)
        buffer = _ffi.new("char[]", int(nbytes[0]))
        getattr(nvrtc, f"nvrtcGet{what}")(program, buffer)
        return bytes(_ffi.buffer(buffer))

    def disassemble(self, lib: bytes) -> str:
        from tg_nv.languages.disassembly import disassemble

        return disassemble(lib)


def _message(nvrtc: Any, result: int) -> str:
    text: Any = _ffi.string(nvrtc.nvrtcGetErrorString(result))
    return str(text.decode())
