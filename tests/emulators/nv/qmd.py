"""QMDs, the launch descriptors: where fields lie in versions 3.0, 4.0 and 5.0, and their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

# name -> (high bit, low bit); array fields: (high bit, low bit, step, count)
Place = tuple[int, int] | tuple[int, int, int, int]
BANKS, RELEASES = 8, 2

_V3: Final[dict[str, Place]] = {
    "major": (583, 580),
    "minor": (579, 576),
    "group_id": (133, 128),
    "global_caching": (134, 134),
    "call_limit": (378, 378),
    "sampler_index": (382, 382),
    "require_scheduling_pcas": (140, 140),
    "grid_x": (415, 384),
    "grid_y": (431, 416),
    "grid_z": (463, 448),
    "block_x": (607, 592),
    "block_y": (623, 608),
    "block_z": (639, 624),
    "program_low": (1567, 1536),
    "program_high": (1584, 1568),
    "registers": (656, 648),
    "barriers": (767, 763),
    "shared": (561, 544),
    "shared_allocation": (663, 663),
    "min_shared": (568, 562),
    "max_shared": (574, 569),
    "target_shared": (662, 657),
    "local_low": (759, 736),
    "local_high": (1623, 1600),
    "sass_version": (1663, 1656),
    "bank_valid": (640, 640, 1, BANKS),
    "bank_low": (1055, 1024, 64, BANKS),
    "bank_high": (1072, 1056, 64, BANKS),
    "bank_size": (1087, 1075, 64, BANKS),
    "bank_invalidate": (1074, 1074, 64, BANKS),
    "bank_prefetch": (1073, 1073, 64, BANKS),
    "invalidate_texture_header": (186, 186),
    "invalidate_texture_sampler": (187, 187),
    "invalidate_texture_data": (188, 188),
    "invalidate_shader_data": (189, 189),
    "invalidate_instruction": (190, 190),
    "invalidate_constant": (191, 191),
    "membar": (369, 368),
    "prefetch_low": (287, 256),
    "prefetch_high": (1640, 1632),
    "prefetch_size": (1649, 1641),
    "prefetch_type": (1651, 1650),
    "dependent_enable": (512, 512, 0, 1),
    "dependent_action": (515, 513, 0, 1),
    "dependent_prefetch": (516, 516, 0, 1),
    "dependent_pointer": (511, 480, 0, 1),
    "dependence_counter": (157, 142),
    "release_enable": (823, 823, 128, RELEASES),
    "release_size": (831, 830, 128, RELEASES),
    "release_membar": (819, 819, 128, RELEASES),
    "release_reduction": (826, 826, 0, 1),
    "release_wide": (829, 829, 128, RELEASES),
    "release_low": (799, 768, 128, RELEASES),
    "release_high": (807, 800, 128, RELEASES),
    "payload_low": (863, 832, 128, RELEASES),
    "payload_high": (895, 864, 128, RELEASES),
    "correlation": (2047, 2016),
}
_V4: Final[dict[str, Place]] = {
    "major": (583, 580),
    "minor": (579, 576),
    "type": (25, 23),
    "group_id": (21, 16),
    "call_limit": (568, 568),
    "sampler_index": (569, 569),
    "require_scheduling_pcas": (30, 30),
    "grid_x": (1055, 1024),
    "grid_y": (1071, 1056),
    "grid_z": (1103, 1088),
    "block_x": (1167, 1152),
    "block_y": (1183, 1168),
    "block_z": (1199, 1184),
    "program_low": (1247, 1216),
    "program_high": (1272, 1248),
    "registers": (1208, 1200),
    "barriers": (1215, 1211),
    "shared": (601, 584),
    "shared_allocation": (626, 626),
    "min_shared": (613, 608),
    "max_shared": (619, 614),
    "target_shared": (625, 620),
    "local_low": (535, 512),
    "local_high": (567, 544),
    "sass_version": (543, 536),
    "bank_valid": (416, 416, 4, BANKS),
    "bank_low": (1567, 1536, 64, BANKS),
    "bank_high": (1586, 1568, 64, BANKS),
    "bank_size": (1599, 1587, 64, BANKS),
    "bank_invalidate": (419, 419, 4, BANKS),
    "bank_prefetch": (418, 417, 4, BANKS),
    "invalidate_texture_header": (602, 602),
    "invalidate_texture_sampler": (603, 603),
    "invalidate_texture_data": (604, 604),
    "invalidate_shader_data": (605, 605),
    "invalidate_instruction": (606, 606),
    "invalidate_constant": (607, 607),
    "membar": (1137, 1136),
    "prefetch_low": (1375, 1344),
    "prefetch_high": (1392, 1376),
    "prefetch_size": (1401, 1393),
    "prefetch_type": (1403, 1402),
    "dependent_enable": (368, 368, 5, 2),
    "dependent_action": (371, 369, 5, 2),
    "dependent_prefetch": (372, 372, 5, 2),
    "dependent_pointer": (479, 448, 32, 2),
    "dependence_counter": (15, 0),
    "release_enable": (320, 320, 16, RELEASES),
    "release_size": (322, 321, 16, RELEASES),
    "release_membar": (323, 323, 16, RELEASES),
    "release_reduction": (324, 324, 16, RELEASES),
    "release_wide": (332, 332, 16, RELEASES),
    "release_low": (671, 640, 128, RELEASES),
    "release_high": (696, 672, 128, RELEASES),
    "payload_low": (735, 704, 128, RELEASES),
    "payload_high": (767, 736, 128, RELEASES),
    "correlation": (415, 384),
}
_V5: Final[dict[str, Place]] = {
    "major": (471, 468),
    "minor": (467, 464),
    "type": (153, 151),
    "group_id": (149, 144),
    "call_limit": (456, 456),
    "sampler_index": (457, 457),
    "require_scheduling_pcas": (158, 158),
    "grid_x": (1279, 1248),
    "grid_y": (1295, 1280),
    "grid_z": (1327, 1312),
    "block_x": (1103, 1088),
    "block_y": (1119, 1104),
    "block_z": (1127, 1120),
    "program_low": (1055, 1024),
    "program_high": (1076, 1056),
    "registers": (1136, 1128),
    "barriers": (1141, 1137),
    "shared": (1162, 1152),
    "shared_allocation": (351, 351),
    "min_shared": (1168, 1163),
    "max_shared": (1174, 1169),
    "target_shared": (1180, 1175),
    "local_low": (1199, 1184),
    "local_high": (1215, 1200),
    "sass_version": (455, 448),
    "bank_valid": (1856, 1856, 4, BANKS),
    "bank_low": (1375, 1344, 64, BANKS),
    "bank_high": (1394, 1376, 64, BANKS),
    "bank_size": (1407, 1395, 64, BANKS),
    "bank_invalidate": (1859, 1859, 4, BANKS),
    "bank_prefetch": (1858, 1857, 4, BANKS),
    "invalidate_texture_header": (472, 472),
    "invalidate_texture_sampler": (473, 473),
    "invalidate_texture_data": (474, 474),
    "invalidate_shader_data": (475, 475),
    "invalidate_instruction": (476, 476),
    "invalidate_constant": (477, 477),
    "membar": (625, 624),
    "prefetch_low": (1919, 1888),
    "prefetch_high": (1936, 1920),
    "prefetch_size": (1085, 1077),
    "prefetch_type": (1087, 1086),
    "dependent_enable": (336, 336, 8, 2),
    "dependent_action": (339, 337, 8, 2),
    "dependent_prefetch": (340, 340, 8, 2),
    "dependent_pointer": (415, 384, 32, 2),
    "dependence_counter": (143, 128),
    "release_enable": (288, 288, 16, RELEASES),
    "release_size": (290, 289, 16, RELEASES),
    "release_membar": (291, 291, 16, RELEASES),
    "release_reduction": (292, 292, 16, RELEASES),
    "release_wide": (300, 300, 16, RELEASES),
    "release_low": (511, 480, 288, RELEASES),
    "release_high": (536, 512, 288, RELEASES),
    "payload_low": (575, 544, 288, RELEASES),
    "payload_high": (607, 576, 288, RELEASES),
    "correlation": (383, 352),
}
VERSIONS: Final[dict[int, dict[str, Place]]] = {3: _V3, 4: _V4, 5: _V5}
NBYTES: Final = {3: 256, 4: 384, 5: 384}


def bits_of(version: int) -> dict[str, tuple[int, int]]:
    """Every field, elements of arrays one by one as `name[i]`: high and low bit."""
    result = {}
    for name, place in VERSIONS[version].items():
        high, low, *array = place
        if not array:
            result[name] = (high, low)
            continue
        step, count = array
        for i in range(count):
            result[f"{name}[{i}]"] = (high + step * i, low + step * i)
    return result


_BITS: Final = {version: bits_of(version) for version in VERSIONS}


@dataclass(frozen=True)
class Qmd:
    """A decoded descriptor."""

    version: int
    address: int
    fields: Mapping[str, int]
    unknown: tuple[int, ...]  # bits that are set, but are of no known field

    def __getitem__(self, name: str) -> int:
        return self.fields.get(name, 0)

    @property
    def grid(self) -> tuple[int, int, int]:
        """Blocks in x, y, z."""
        return self["grid_x"], self["grid_y"], self["grid_z"]

    @property
    def block(self) -> tuple[int, int, int]:
        """Threads in x, y, z."""
        return self["block_x"], self["block_y"], self["block_z"]

    @property
    def threads(self) -> int:
        """Threads of a block."""
        x, y, z = self.block
        return x * y * z

    @property
    def program(self) -> int:
        """Address of the code."""
        return (self["program_high"] << 32 | self["program_low"]) << (4 if self.version == 5 else 0)

    @property
    def shared(self) -> int:
        """Bytes of shared memory of a block, with those that are reserved."""
        return self["shared"] << (7 if self.version == 5 else 0)

    @property
    def local_low(self) -> int:
        """Bytes of local memory of a thread, of the kind that grows up."""
        return self["local_low"] << (4 if self.version == 5 else 0)

    @property
    def local_high(self) -> int:
        """The same, of the kind that grows down from the window's end: stacks."""
        return self["local_high"] << (4 if self.version == 5 else 0)

    def bank(self, index: int) -> tuple[int, int] | None:
        """Address and bytes of a constant bank, if it is bound."""
        if not self[f"bank_valid[{index}]"]:
            return None
        address = self[f"bank_high[{index}]"] << 32 | self[f"bank_low[{index}]"]
        shift = 0 if self.version == 3 else 6
        return address << shift, self[f"bank_size[{index}]"] << 4

    @property
    def prefetch(self) -> tuple[int, int]:
        """Address and bytes of the code to fetch ahead."""
        address = self["prefetch_high"] << 32 | self["prefetch_low"]
        return address << 8, self["prefetch_size"] << 8

    def text(self) -> list[str]:
        """One line a field that is not zero."""
        return [f"{name} = {value:#x}" for name, value in self.fields.items() if value]


def decode(data: bytes, version: int, address: int = 0) -> Qmd:
    """The fields of a descriptor."""
    whole = int.from_bytes(data[: NBYTES[version]], "little")
    fields, known = {}, 0
    for name, (high, low) in _BITS[version].items():
        mask = (1 << high - low + 1) - 1
        fields[name] = whole >> low & mask
        known |= mask << low
    rest = whole & ~known
    unknown = tuple(bit for bit in range(8 * NBYTES[version]) if rest >> bit & 1)
    return Qmd(version, address, fields, unknown)


def encode(version: int, values: Mapping[str, int]) -> bytes:
    """A descriptor from its fields, for tests."""
    whole = 0
    for name, value in values.items():
        high, low = _BITS[version][name]
        assert value >> high - low + 1 == 0, (name, value)
        whole |= value << low
    return whole.to_bytes(NBYTES[version], "little")
