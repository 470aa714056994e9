"""nvJitLink: NVIDIA's assembler and linker of PTX as a library.

The library comes in the wheel `nvidia-nvjitlink`, which is found wherever it is installed, or with
a CUDA toolkit of the system's.
"""

from __future__ import annotations

import functools
from typing import Any, Final

from cffi import FFI

from tg_nv.languages import nvptx
from tg_nv.languages.libraries import candidates
from tgcore.errors import CompileError
from tgcore.renderer.base import Compiler

_FOLDERS: Final = ("cu13/lib", "nvjitlink/lib")  # in the namespace package `nvidia`
_PTX: Final = 2  # kind of input
_OLDEST: Final = (12, 8)  # of the library: older ones end the process at new architectures
_OPTIONS: Final = ("-O3",)

_ffi = FFI()
_ffi.cdef("""
    typedef struct link *nvJitLinkHandle;
    int nvJitLinkVersion(unsigned *major, unsigned *minor);
    int nvJitLinkCreate(nvJitLinkHandle *handle, uint32_t count, const char **options);
    int nvJitLinkDestroy(nvJitLinkHandle *handle);
    int nvJitLinkAddData(nvJitLinkHandle handle, int kind, const void *data, size_t nbytes,
                         const char *name);
    int nvJitLinkComplete(nvJitLinkHandle handle);
    int nvJitLinkGetLinkedCubinSize(nvJitLinkHandle handle, size_t *nbytes);
    int nvJitLinkGetLinkedCubin(nvJitLinkHandle handle, void *binary);
    int nvJitLinkGetErrorLogSize(nvJitLinkHandle handle, size_t *nbytes);
    int nvJitLinkGetErrorLog(nvJitLinkHandle handle, char *log);
""")


@functools.cache
def library() -> tuple[Any, str]:
    """The library and its version; CompileError if there is none that is new enough."""
    too_old = ""
    for path in candidates("nvJitLink", _FOLDERS):
        try:
            loaded: Any = _ffi.dlopen(path)
        except OSError:
            continue
        major, minor = _ffi.new("unsigned *"), _ffi.new("unsigned *")
        loaded.nvJitLinkVersion(major, minor)
        version = f"{major[0]}.{minor[0]}"
        if (major[0], minor[0]) >= _OLDEST:
            return loaded, version
        too_old = f"nvJitLink {version} is too old"
    missing = too_old or "nvJitLink is not installed"
    raise CompileError(f"{missing}: pip install nvidia-nvjitlink")


class JitLinkCompiler(Compiler):
    """LLVM IR to PTX by LLVM, and that to machine code for one architecture, such as "sm_90"."""

    def __init__(self, architecture: str) -> None:
        self.architecture = architecture

    @functools.cached_property
    def cache_key(self) -> str:  # type: ignore[override]
        """Versions, options and architecture."""
        options = " ".join(_OPTIONS)
        return f"{nvptx.version()} nvjitlink {library()[1]} {self.architecture} {options}"

    def available(self) -> str | None:
        if (reason := nvptx.why_not()) is not None:
            return reason
        try:
            library()
        except CompileError as error:
            return str(error)
        return None

    def compile(self, source: str) -> bytes:
        return self.link(self.compile_to_ptx(source))

    def compile_to_ptx(self, source: str) -> str:
        """The program as PTX."""
        return nvptx.emit_ptx(source, self.architecture)

    def link(self, ptx: str) -> bytes:
        """PTX as a cubin."""
        linker, _ = library()
        handle = _ffi.new("nvJitLinkHandle *")
        kept = [_ffi.new("char[]", o.encode()) for o in (f"-arch={self.architecture}", *_OPTIONS)]
        if result := linker.nvJitLinkCreate(handle, len(kept), kept):
            raise CompileError(f"nvJitLink cannot compile for {self.architecture}: error {result}")
        try:
            text = ptx.encode()
            result = linker.nvJitLinkAddData(handle[0], _PTX, text, len(text), b"kernel.ptx")
            result = result or linker.nvJitLinkComplete(handle[0])
            if result:
                log = self._read(handle[0], "ErrorLog").rstrip(b"\0").decode(errors="replace")
                what = f"nvJitLink rejects the PTX for {self.architecture}: error {result}"
                raise CompileError(what, ptx, log)
            return self._read(handle[0], "LinkedCubin")
        finally:
            linker.nvJitLinkDestroy(handle)

    def _read(self, handle: Any, what: str) -> bytes:
        linker, _ = library()
        nbytes = _ffi.new("size_t *")
        getattr(linker, f"nvJitLinkGet{what}Size")(handle, nbytes)
        buffer = _ffi.new("char[]", int(nbytes[0]))
        getattr(linker, f"nvJitLinkGet{what}")(handle, buffer)
        return bytes(_ffi.buffer(buffer))

    def disassemble(self, lib: bytes) -> str:
        from tg_nv.languages.disassembly import disassemble

        return disassemble(lib)
