"""What a failed channel means, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tgcore.errors import DeviceError

if TYPE_CHECKING:
    from tg_nv.device import NVDevice

_CODES: Final = {
    13: "an exception in a kernel (bad instruction, misaligned or illegal address)",
    31: "an access to memory that is not mapped",
    32: "a command that the GPU could not decode",
    43: "the channel was reset",
    44: "a fault while contexts were switched",
    45: "the channel was taken off the GPU, after another one's error",
    48: "an uncorrectable error of the memory",
    69: "a method with an illegal value",
    79: "the GPU fell off the bus",
    94: "a contained error of the memory",
    95: "an uncontained error of the memory: the GPU must be reset",
    119: "the GPU's firmware did not answer",
    120: "an error of the GPU's firmware",
}
_NEEDS_RESET: Final = frozenset({48, 79, 95, 119, 120})
_COPY_ENGINES: Final = frozenset({39, 40, 41, *range(70, 73), *range(75, 78), 85, *range(126, 136)})


def meaning(code: int) -> str:
    """What an error code of the driver (an Xid) says."""
    known = "an error of a copy engine" if code in _COPY_ENGINES else _CODES.get(code, "an error")
    return f"{known} (Xid {code})"


def failure(device: NVDevice, running: str) -> DeviceError:
    """The error for a device whose channels have failed while it ran something."""
    report = device.interface.report()
    parts = [meaning(code) for code in report.codes]
    for fault in report.faults:
        where = ""
        if fault.address is not None:
            where = f" at {fault.address:#x}, {device.allocator.nearest(fault.address)}"
        parts.append(fault.what + where)
    reset = _NEEDS_RESET & set(report.codes)
    fix = (
        "reset the GPU (nvidia-smi --gpu-reset) or reboot; this process cannot go on with it"
        if reset
        else f"tensors on {device.name} are lost; the next use of {device.name} opens it anew"
    )
    what = f"{device.name} failed while it ran {running}"
    return DeviceError(
        what, device.provider, "; ".join(parts) or "the driver does not say why", fix
    )
