"""The chips that can be faked: what a driver sees of them. Floorswept to a small size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

_COMMON: Final = (0x902D, 0xA06C, 0x9067, 0x90F1)
_SMALL_CARVE_OUTS: Final = (0, 8, 16, 32, 64, 100)
_AMPERE_CARVE_OUTS: Final = (0, 8, 16, 32, 64, 100, 132, 164)
_LARGE_CARVE_OUTS: Final = (0, 8, 16, 32, 64, 100, 132, 164, 196, 228)


@dataclass(frozen=True)
class Profile:
    """One chip."""

    chip: str
    name: str  # on the box
    target: str  # of the compiler
    device_id: int
    architecture: int
    implementation: int
    sm_version: int
    channels: tuple[int, ...]  # classes, best first
    compute: int
    copy: int
    usermodes: tuple[int, ...]
    qmd: int  # major version
    tpc_masks: tuple[int, ...]  # of each GPC slot; 0: the GPC is fused off
    tpc_slots: int
    max_warps: int
    carve_outs: tuple[int, ...]  # of shared memory, KiB
    va_bits: int
    parameter_base: int
    copy_engines: int  # mask of those present
    graphics_copies: int  # mask of those on the graphics runlist
    vram: int = 1 * GIB
    bar1: int = 1 * GIB
    token_enable: int = 0
    sms_per_tpc: int = 2
    max_channels: int = 64
    context_bytes: int = 3 * MIB  # what a graphics channel's window must hold

    @property
    def classes(self) -> tuple[int, ...]:
        """What the class list says."""
        return (*_COMMON, *self.usermodes, *self.channels, self.compute, self.copy)

    @property
    def sms(self) -> int:
        """How many SMs work."""
        return sum(mask.bit_count() for mask in self.tpc_masks) * self.sms_per_tpc

    @property
    def shared_limit(self) -> int:
        """Bytes of shared memory a block may have, with the reserved KiB."""
        return self.carve_outs[-1] * KIB

    @property
    def wide(self) -> bool:
        """Whether methods take 57-bit addresses: Hopper and later."""
        return self.va_bits == 57

    @property
    def copy_payload_64(self) -> bool:
        """Whether copies may release 64-bit semaphores."""
        return self.copy != 0xC6B5


GA100 = Profile(
    chip="GA100",
    name="NVIDIA A100-FAKE",
    target="sm_80",
    device_id=0x20B0,
    architecture=0x170,
    implementation=0,
    sm_version=0x800,
    channels=(0xC56F,),
    compute=0xC6C0,
    copy=0xC6B5,
    usermodes=(0xC561, 0xC461, 0xC361),
    qmd=3,
    tpc_masks=(0b0000_0011, 0, 0b0000_0101),
    tpc_slots=8,
    max_warps=64,
    carve_outs=_AMPERE_CARVE_OUTS,
    va_bits=49,
    parameter_base=0x160,
    copy_engines=0b11_1110_0011,
    graphics_copies=0b00_0000_0011,
)
GA102 = Profile(
    chip="GA102",
    name="NVIDIA GeForce RTX 3090-FAKE",
    target="sm_86",
    device_id=0x2204,
    architecture=0x170,
    implementation=2,
    sm_version=0x806,
    channels=(0xC56F,),
    compute=0xC7C0,
    copy=0xC7B5,
    usermodes=(0xC561, 0xC461, 0xC361),
    qmd=3,
    tpc_masks=(0b00_0111, 0b00_1001),
    tpc_slots=6,
    max_warps=48,
    carve_outs=_SMALL_CARVE_OUTS,
    va_bits=49,
    parameter_base=0x160,
    copy_engines=0b0_1101,
    graphics_copies=0b0_0001,
    bar1=256 * MIB,
)
AD102 = Profile(
    chip="AD102",
    name="NVIDIA GeForce RTX 4090-FAKE",
    target="sm_89",
    device_id=0x2684,
    architecture=0x190,
    implementation=2,
    sm_version=0x809,
    channels=(0xC56F,),
    compute=0xC9C0,
    copy=0xC7B5,
    usermodes=(0xC561, 0xC461, 0xC361),
    qmd=3,
    tpc_masks=(0b00_0001, 0b10_0000, 0b00_0110),
    tpc_slots=6,
    max_warps=48,
    carve_outs=_SMALL_CARVE_OUTS,
    va_bits=49,
    parameter_base=0x160,
    copy_engines=0b0_1111,
    graphics_copies=0b0_0011,
)
GH100 = Profile(
    chip="GH100",
    name="NVIDIA H200-FAKE",
    target="sm_90",
    device_id=0x2335,
    architecture=0x180,
    implementation=0,
    sm_version=0x900,
    channels=(0xC86F, 0xC56F),
    compute=0xCBC0,
    copy=0xC8B5,
    usermodes=(0xC661, 0xC561),
    qmd=4,
    tpc_masks=(0b0_0000_0111, 0b1_0000_0001, 0, 0b0_0001_0000),
    tpc_slots=9,
    max_warps=64,
    carve_outs=_LARGE_CARVE_OUTS,
    va_bits=57,
    parameter_base=0x210,
    copy_engines=0b11_1111_1111,
    graphics_copies=0b00_0000_0011,
)
GB100 = Profile(
    chip="GB100",
    name="NVIDIA B200-FAKE",
    target="sm_100",
    device_id=0x2901,
    architecture=0x1A0,
    implementation=0,
    sm_version=0xA00,
    channels=(0xC96F, 0xC86F, 0xC56F),
    compute=0xCDC0,
    copy=0xC9B5,
    usermodes=(0xC661,),
    qmd=5,
    tpc_masks=(0b00_0000_0011, 0b00_0100_0000),
    tpc_slots=10,
    max_warps=64,
    carve_outs=_LARGE_CARVE_OUTS,
    va_bits=57,
    parameter_base=0x380,
    copy_engines=0b11_1111_1111 | 0b11 << 10,
    graphics_copies=0b00_0000_1111,
)
GB202 = Profile(
    chip="GB202",
    name="NVIDIA GeForce RTX 5090-FAKE",
    target="sm_120",
    device_id=0x2B85,
    architecture=0x1B0,
    implementation=2,
    sm_version=0xA04,
    channels=(0xCA6F, 0xC96F),
    compute=0xCEC0,
    copy=0xCAB5,
    usermodes=(0xC761, 0xC661),
    qmd=5,
    tpc_masks=(0b00_0010, 0b00_1100),
    tpc_slots=8,
    max_warps=48,
    carve_outs=_SMALL_CARVE_OUTS,
    va_bits=57,
    parameter_base=0x380,
    copy_engines=0b0_1111,
    graphics_copies=0b0_0011,
    token_enable=1 << 30,
)
PROFILES: Final = {p.chip: p for p in (GA100, GA102, AD102, GH100, GB100, GB202)}
