"""The two compilers: LLVM in this process, or the system's C compiler."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import tempfile
from importlib import metadata
from pathlib import Path

from tg_cpu.host import host_key
from tgcore.errors import CompileError
from tgcore.renderer.base import Compiler

_C_OPTIONS = ("-O3", "-march=native", "-fPIC", "-shared", "-nostartfiles", "-fno-math-errno",
              "-ffp-contract=fast", "-fno-strict-aliasing", "-w")  # fmt: skip


class LLVMCompiler(Compiler):
    """LLVM IR to an object file, by llvmlite. It is imported only when something is compiled."""

    @functools.cached_property
    def cache_key(self) -> str:  # type: ignore[override]
        """Version, options and machine."""
        return f"llvm {_version('llvmlite')} O3 v1 {host_key()}"

    def compile(self, source: str) -> bytes:
        from tg_cpu import llvm

        return llvm.compile_ir(source)

    def disassemble(self, lib: bytes) -> str:
        return disassemble(lib)

    def available(self) -> str | None:
        if importlib.util.find_spec("llvmlite") is None:
            return "the package llvmlite is not installed"
        return None


class CCompiler(Compiler):
    """C to a shared object, by clang, gcc, or what CC names."""

    threads = os.cpu_count() or 1

    def __init__(self) -> None:
        self.command = _find_compiler()

    @functools.cached_property
    def cache_key(self) -> str:  # type: ignore[override]
        """Version, options and machine."""
        command = self.command or "none"
        return f"c {_first_line(command)} {' '.join(_C_OPTIONS)} {host_key()}"

    def compile(self, source: str) -> bytes:
        if (reason := self.available()) is not None:
            raise CompileError(reason, source)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "kernel.so"
            command = [str(self.command), *_C_OPTIONS, "-x", "c", "-", "-o", str(path), "-lm"]
            done = subprocess.run(command, input=source.encode(), capture_output=True, check=False)
            if done.returncode != 0:
                said = done.stderr.decode(errors="replace").replace("<stdin>", "source")
                raise CompileError(f"{self.command} rejects the kernel", source, said)
            return path.read_bytes()

    def disassemble(self, lib: bytes) -> str:
        return disassemble(lib)

    def available(self) -> str | None:
        if self.command is None:
            return "there is no C compiler: install clang or gcc, or name one in CC"
        return None


def disassemble(binary: bytes) -> str:
    """The code as assembly, if the system has objdump."""
    tool = shutil.which("objdump")
    if tool is None:
        return "(to see assembly, install objdump: package binutils)"
    with tempfile.NamedTemporaryFile(suffix=".o") as file:
        file.write(binary)
        file.flush()
        command = [tool, "-d", "--no-show-raw-insn", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout or done.stderr


def _find_compiler() -> str | None:
    named = os.environ.get("CC")
    for name in [named] if named else ["clang", "gcc", "cc"]:
        if (path := shutil.which(name)) is not None:
            return path
    return None


@functools.cache
def _first_line(command: str) -> str:
    try:
        done = subprocess.run([command, "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return command
    return (done.stdout.splitlines() or [command])[0]


@functools.cache
def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"
