"""Status codes of the driver: what they are called, and what they mean for a user.

Numbers and names are those of nvstatuscodes.h.
"""

from __future__ import annotations

from typing import Final

from tgcore.errors import DeviceError

OK: Final = 0
NO_MEMORY: Final = 0x51
INSUFFICIENT_RESOURCES: Final = 0x1A
NOTHING_TO_DO: Final = 0x10006  # a warning

_NAMES: Final = {
    0x02: "BUFFER_TOO_SMALL",
    0x03: "BUSY_RETRY",
    0x05: "CARD_NOT_PRESENT",
    0x0F: "GPU_IS_LOST",
    0x11: "GPU_NOT_FULL_POWER",
    0x12: "GPU_UUID_NOT_FOUND",
    0x16: "ILLEGAL_ACTION",
    0x17: "IN_USE",
    0x19: "INSERT_DUPLICATE_NAME",
    0x1A: "INSUFFICIENT_RESOURCES",
    0x1B: "INSUFFICIENT_PERMISSIONS",
    0x1D: "INVALID_ACCESS_TYPE",
    0x1E: "INVALID_ADDRESS",
    0x1F: "INVALID_ARGUMENT",
    0x21: "INVALID_CHANNEL",
    0x22: "INVALID_CLASS",
    0x23: "INVALID_CLIENT",
    0x26: "INVALID_DEVICE",
    0x29: "INVALID_FLAGS",
    0x2E: "INVALID_LIMIT",
    0x31: "INVALID_OBJECT",
    0x33: "INVALID_OBJECT_HANDLE",
    0x36: "INVALID_OBJECT_PARENT",
    0x3A: "INVALID_PARAM_STRUCT",
    0x3B: "INVALID_PARAMETER",
    0x3D: "INVALID_POINTER",
    0x3F: "INVALID_REQUEST",
    0x40: "INVALID_STATE",
    0x4F: "NO_FREE_FIFOS",
    0x51: "NO_MEMORY",
    0x56: "NOT_SUPPORTED",
    0x57: "OBJECT_NOT_FOUND",
    0x59: "OPERATING_SYSTEM",
    0x5B: "OUT_OF_RANGE",
    0x5D: "PAGE_TABLE_NOT_AVAIL",
    0x60: "RC_ERROR",
    0x62: "RESET_REQUIRED",
    0x65: "TIMEOUT",
    0x68: "UVM_ADDRESS_IN_USE",
    0x6A: "LIB_RM_VERSION_MISMATCH",
    0x7A: "FABRIC_MANAGER_NOT_PRESENT",
    0x81: "NVLINK_FABRIC_NOT_READY",
    0x10006: "NOTHING_TO_DO",
    0xFFFF: "GENERIC",
}

_FIXES: Final = {
    0x05: "see whether nvidia-smi finds the GPU",
    0x0F: "the GPU fell off the bus: reset it or reboot (see dmesg for Xid 79)",
    0x1A: "other programs hold all channels, handles or BAR1 space: end some",
    0x1B: "ask for the rights, or run as root",
    0x1F: "if the driver is new, its structures may have changed: report its version",
    0x22: "this GPU does not have the class: report its name",
    0x23: "devices cannot be used after a fork: open them in the child",
    0x3A: "if the driver is new, its structures may have changed: report its version",
    0x40: "if MIG is on, turn it off: nvidia-smi -mig 0",
    0x4F: "other programs hold all hardware channels: end some",
    0x51: "free memory of the GPU: other programs hold it, see nvidia-smi",
    0x62: "reset the GPU or reboot",
    0x65: "the GPU's firmware did not answer: see dmesg for Xid 119 or 120, and reset the GPU",
    0x7A: "start the fabric manager, or use one GPU",
    0x81: "start the fabric manager, or use one GPU",
}


def name_of(status: int) -> str:
    """The status as text, name and number."""
    return f"{_NAMES.get(status, 'unknown status')} ({status:#x})"


class DriverError(DeviceError):
    """The kernel driver refused a step. `step` says which, `status` is its code (0: `errno` is)."""

    def __init__(self, step: str, status: int = 0, errno: int = 0, text: str = "") -> None:
        self.step, self.status, self.errno = step, status, errno
        why = f"the driver says {name_of(status)}" if status else f"{text} (errno {errno})"
        super().__init__(f"{step} failed", "", why, _FIXES.get(status, "see dmesg for more"))
