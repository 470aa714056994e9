"""What differs from one architecture to the next, as one table.

Class numbers, launch descriptors (QMD), constant bank 0 and shared memory; from NVIDIA's class
headers and from code that its compiler makes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from tgcore.errors import DeviceError


@dataclass(frozen=True)
class ConstantBank:
    """Where constant bank 0 has what the driver fills in, in bytes, and where parameters begin."""

    block: int
    grid: int
    shared_window: int | None
    local_window: int
    stack_pointer: int
    params: int


_BANK_8X: Final = ConstantBank(0x00, 0x0C, 0x18, 0x20, 0x28, 0x160)
_BANK_90: Final = ConstantBank(0x00, 0x0C, None, 0x20, 0x28, 0x210)
_BANK_100: Final = ConstantBank(0x360, 0x370, 0x2F0, 0x2F8, 0x37C, 0x380)


@dataclass(frozen=True)
class Architecture:
    """One generation of GPUs.

    `channels`, `computes`, `copies` and `usermodes` are class numbers, best first; `qmd` is the
    version of launch descriptors; `carve_outs` are the sizes of shared memory that a
    multiprocessor can be set to, in KiB; `va_bits` is the width of GPU addresses.
    """

    name: str
    sm: str
    channels: tuple[int, ...]
    computes: tuple[int, ...]
    copies: tuple[int, ...]
    usermodes: tuple[int, ...]
    qmd: tuple[int, int]
    bank: ConstantBank
    carve_outs: tuple[int, ...]
    shared_reserve_included: bool = False
    copy_payload_64: bool = True
    wide_semaphores: bool = False
    va_bits: int = 49

    @property
    def shared_bytes(self) -> int:
        """The most shared memory of a block, without what the system keeps."""
        return (self.carve_outs[-1] - 1) << 10


_LARGE: Final = (8, 16, 32, 64, 100, 132, 164)
_SMALL: Final = (8, 16, 32, 64, 100)
_HUGE: Final = (8, 16, 32, 64, 100, 132, 164, 196, 228)

_AMPERE_USERMODE: Final = (0xC561, 0xC461, 0xC361)

A100: Final = Architecture(
    "Ampere", "sm_80", (0xC56F,), (0xC6C0,), (0xC6B5,), _AMPERE_USERMODE, (3, 0), _BANK_8X,
    _LARGE, copy_payload_64=False,
)  # fmt: skip
AMPERE: Final = Architecture(
    "Ampere", "sm_86", (0xC56F,), (0xC7C0,), (0xC7B5,), _AMPERE_USERMODE, (3, 0), _BANK_8X, _SMALL
)
ADA: Final = Architecture(
    "Ada", "sm_89", (0xC56F,), (0xC9C0,), (0xC7B5,), _AMPERE_USERMODE, (3, 0), _BANK_8X, _SMALL
)
HOPPER: Final = Architecture(
    "Hopper", "sm_90", (0xC86F,), (0xCBC0,), (0xC8B5,), (0xC661, 0xC561), (4, 0), _BANK_90,
    _HUGE, True, wide_semaphores=True, va_bits=57,
)  # fmt: skip
BLACKWELL: Final = Architecture(
    "Blackwell", "sm_100", (0xC96F, 0xC86F), (0xCDC0,), (0xC9B5,), (0xC661, 0xC561), (5, 0),
    _BANK_100, _HUGE, True, wide_semaphores=True, va_bits=57,
)  # fmt: skip
BLACKWELL_RTX: Final = Architecture(
    "Blackwell", "sm_120", (0xCA6F, 0xC96F), (0xCEC0,), (0xCAB5,), (0xC761, 0xC661), (5, 0),
    _BANK_100, _SMALL, True, wide_semaphores=True, va_bits=57,
)  # fmt: skip

ALL: Final = (A100, AMPERE, ADA, HOPPER, BLACKWELL, BLACKWELL_RTX)

WARP: Final = 32
MOST_THREADS: Final = 1024
MOST_BLOCK: Final = (1024, 1024, 64)
MOST_GRID: Final = (0x7FFF_FFFF, 0xFFFF, 0xFFFF)
REGISTERS: Final = 65536
REGISTER_UNIT: Final = 256  # registers are given to warps in multiples of it

_BY_COMPUTE_CLASS: Final = {number: a for a in ALL for number in a.computes}


def architecture_of(classes: Collection[int], name: str) -> Architecture:
    """The architecture of a GPU with these classes; DeviceError if it is none of those here."""
    found = [number for number in classes if number in _BY_COMPUTE_CLASS]
    if not found:
        known = ", ".join(f"{a.name} ({a.sm})" for a in ALL)
        raise DeviceError(
            f"{name} is of an architecture that is not supported",
            "",
            f"it has none of the compute classes of {known}",
            "use a newer GPU, or a newer tg-nv",
        )
    return _BY_COMPUTE_CLASS[max(found)]


def first_of(wanted: tuple[int, ...], classes: Collection[int], what: str) -> int:
    """The first of the class numbers that the GPU has."""
    for number in wanted:
        if number in classes:
            return number
    text = ", ".join(f"{number:#x}" for number in wanted)
    raise DeviceError(f"the GPU has no {what}", "", f"none of its classes is {text}", "see dmesg")


def compile_target(sm_version: int, architecture: Architecture) -> str:
    """What to compile for, from the SM version that the driver gives (major << 8 | minor)."""
    exact = {0x806: "sm_86", 0x807: "sm_87", 0x809: "sm_89", 0xA00: "sm_100", 0xA03: "sm_103"}
    return exact.get(sm_version, architecture.sm)
