"""What tgcore asks the plugin of NVIDIA GPUs for: description, probe, doctor, opened devices."""

from __future__ import annotations

from typing import Any

from tg_nv.driver.client import UVM_FILE, RMClient, gpu_file, why_not
from tgcore.errors import DeviceError
from tgcore.hcq.files import HOST, FileSystem
from tgcore.plugin import BackendDescription, Probe
from tgcore.plugin.hookspecs import hookimpl
from tgcore.runtime.compiled import CompiledDevice

TGCORE_CONTRACT = (1, 0)

FILES: FileSystem = HOST
"""Where device files are opened; tests put a fake driver here."""


@hookimpl
def tgcore_describe_backend() -> BackendDescription:
    """The default device where there is one."""
    return BackendDescription("NV", priority=100, open=open_device)


@hookimpl
def tgcore_probe() -> Probe:
    """The GPUs that the kernel driver knows, or why there is none."""
    try:
        client = RMClient(FILES)
    except DeviceError as error:
        return Probe((), f"{error.what}: {error.why}", error.fix)
    try:
        cards = client.cards()
        if not cards:
            why = "the driver knows no GPU"
            return Probe((), why, "see whether lspci shows the GPU, and dmesg")
        for path in (UVM_FILE, gpu_file(cards[0].minor_number)):
            try:
                FILES.check(path)  # not opened: that would start the GPU
            except OSError as refused:
                reason = why_not(path, refused)
                return Probe((), f"{reason.what}: {reason.why}", reason.fix)
        return Probe(tuple(_describe(card, client.version) for card in cards))
    finally:
        client.close()


@hookimpl
def tgcore_doctor() -> list[str]:
    """Driver and compilers."""
    from tg_nv.languages.nvjitlink import JitLinkCompiler
    from tg_nv.languages.nvrtc import NVRTCCompiler

    lines = []
    try:
        client = RMClient(FILES)
        lines.append(f"driver {client.version}")
        client.close()
    except DeviceError as error:
        lines.append(f"driver: {error.what}: {error.why}")
    for name, compiler in (("nvrtc", NVRTCCompiler("sm_80")), ("llvm", JitLinkCompiler("sm_80"))):
        lines.append(f"compiler {name}: {compiler.available() or 'available'}")
    return lines


def _describe(card: Any, version: str) -> str:
    minor = int(card.minor_number)
    place = f"{card.domain:04x}:{card.bus:02x}:{card.slot:02x}.{card.function}"
    name = f"GPU {minor}"
    try:
        text = FILES.read_text(f"/proc/driver/nvidia/gpus/{place}/information")
    except OSError:
        text = ""
    for line in text.splitlines():
        if line.startswith("Model:"):
            name = line.partition(":")[2].strip()
    return f"{name}, {place}, driver {version}"


def open_device(name: str, index: int) -> CompiledDevice:
    """Open a GPU by its index among those of the driver."""
    from tg_nv.device import NVDevice
    from tg_nv.driver.ioctl import IoctlInterface
    from tg_nv.languages.choice import choose_language

    interface = IoctlInterface(FILES, index)
    try:
        renderer, compiler = choose_language(interface.facts)
    except BaseException:
        interface.close()
        raise
    return NVDevice(name, interface, renderer, compiler)
