"""What tgcore asks the CPU's plugin for: description, probe, and the opened device."""

from __future__ import annotations

import os

from tg_cpu import host
from tgcore.codegen.target import Target
from tgcore.dtype import dtypes
from tgcore.errors import DeviceError
from tgcore.plugin import BackendDescription, Probe
from tgcore.plugin.hookspecs import hookimpl
from tgcore.renderer.base import Compiler, Renderer
from tgcore.runtime.compiled import CompiledDevice

TGCORE_CONTRACT = (1, 0)


@hookimpl
def tgcore_describe_backend() -> BackendDescription:
    """The CPU: available everywhere, of lower priority than any accelerator."""
    return BackendDescription("CPU", priority=10, open=open_device)


@hookimpl
def tgcore_probe() -> Probe:
    """One device: this machine's processor."""
    threads = host.thread_count()
    width = host.vector_bytes() * 8
    return Probe((f"{host.processor_name()}, {threads} threads, {width}-bit vectors",))


@hookimpl
def tgcore_doctor() -> list[str]:
    """Which compilers there are."""
    from tg_cpu import compilers

    found = {"llvm": compilers.LLVMCompiler(), "c": compilers.CCompiler()}
    return [f"compiler {name}: {found[name].available() or 'available'}" for name in found]


def open_device(name: str, index: int) -> CompiledDevice:
    """Open a CPU device; each index is a queue of its own."""
    from tg_cpu.device import CPUDevice

    renderer, compiler = choose_language()
    if (reason := compiler.available()) is not None:
        other = "CPU_RENDERER=c" if _wanted() == "llvm" else "CPU_RENDERER=llvm"
        fix = f"install it, or use another compiler: {other}"
        raise DeviceError(f"{name} cannot compile kernels", "", reason, fix)
    return CPUDevice(name, renderer, compiler, host.thread_count())


def choose_language() -> tuple[Renderer, Compiler]:
    """The renderer and compiler that CPU_RENDERER names."""
    from tg_cpu import compilers

    match _wanted():
        case "llvm":
            from tgcore.renderer.llvm import LLVMRenderer

            target = cpu_target(LLVMRenderer)
            return LLVMRenderer(target), compilers.LLVMCompiler()
        case "c":
            from tgcore.renderer.c import CRenderer

            return CRenderer(cpu_target(CRenderer)), compilers.CCompiler()
        case other:
            why = f"CPU_RENDERER={other!r} is neither llvm nor c"
            raise DeviceError("the CPU's renderer is not known", "", why, "unset CPU_RENDERER")


def cpu_target(renderer: type[Renderer]) -> Target:
    """What this machine's processor can do, in the renderer's language."""
    native = {dtypes.bool, *dtypes.ints, dtypes.float32, dtypes.float64}
    if host.has_half():
        native.add(dtypes.float16)
    width = host.vector_bytes()
    return Target(
        device="CPU",
        arch=host.host_key(),
        dtypes=frozenset(native),
        ops=renderer.supported_ops(),
        vector_bytes=width,
        vector_registers=32 if width == 64 else 16,
        memory_widths=(2, 4, 8, 16, 32, 64),
        masked=True,
        threads=host.thread_count(),
    )


def _wanted() -> str:
    return os.environ.get("CPU_RENDERER", "").lower() or "llvm"
