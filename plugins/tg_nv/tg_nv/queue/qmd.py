"""Launch descriptors (QMD): what the compute engine is told of one grid of blocks.

One table a version, `field=high:low` in bits of the descriptor; names and positions are those of
NVIDIA's headers cl*qmd.h (3.0 Ampere and Ada, 4.0 Hopper, 5.0 Blackwell). Fields that hold part of
a number (an address from bit 4 on, say) have that shift in `SHIFTS`.
"""

from __future__ import annotations

from typing import Final

from tg_nv.queue.methods import Field, parse_field
from tgcore.hcq.queue import Words
from tgcore.hcq.symbol import Symbol, Value

QMD_TABLES: Final = {
    3: """
    qmd_group_id=133:128 sm_global_caching_enable=134
    invalidate_shader_data_cache=189
    cwd_membar_type=369:368 api_visible_call_limit=378
    cta_raster_width=415:384 cta_raster_height=431:416 cta_raster_depth=463:448
    dependent_qmd_pointer=511:480 dependent_qmd_enable=512 dependent_qmd_action=515:513
    shared_memory_size=561:544 min_sm_config_shared=567:562 max_sm_config_shared=574:569
    qmd_minor_version=579:576 qmd_major_version=583:580
    cta_thread_dimension0=607:592 cta_thread_dimension1=623:608 cta_thread_dimension2=639:624
    constant_buffer_valid_0=640 constant_buffer_valid_2=642 constant_buffer_valid_3=643
    constant_buffer_valid_4=644
    register_count=656:648 target_sm_config_shared=662:657
    barrier_count=767:763 constant_buffer_invalidate_0=1074
    constant_buffer_addr_lower_0=1055:1024 constant_buffer_addr_upper_0=1072:1056
    constant_buffer_size_0=1087:1075
    constant_buffer_addr_lower_2=1183:1152 constant_buffer_addr_upper_2=1200:1184
    constant_buffer_size_2=1215:1203
    constant_buffer_addr_lower_3=1247:1216 constant_buffer_addr_upper_3=1264:1248
    constant_buffer_size_3=1279:1267
    constant_buffer_addr_lower_4=1311:1280 constant_buffer_addr_upper_4=1328:1312
    constant_buffer_size_4=1343:1331
    program_address_lower=1567:1536 program_address_upper=1584:1568
    shader_local_memory_high_size=1623:1600 sass_version=1663:1656
    """,
    4: """
    qmd_group_id=21:16 qmd_type=25:23
    dependent_qmd_enable=368 dependent_qmd_action=371:369 dependent_qmd_pointer=479:448
    constant_buffer_valid_0=416 constant_buffer_invalidate_0=419
    constant_buffer_valid_2=424 constant_buffer_valid_3=428 constant_buffer_valid_4=432
    sass_version=543:536 shader_local_memory_high_size=567:544 api_visible_call_limit=568
    qmd_minor_version=579:576 qmd_major_version=583:580
    shared_memory_size=601:584
    invalidate_shader_data_cache=605
    min_sm_config_shared=613:608 max_sm_config_shared=619:614 target_sm_config_shared=625:620
    cta_raster_width=1055:1024 cta_raster_height=1071:1056 cta_raster_depth=1103:1088
    cwd_membar_type=1137:1136
    cta_thread_dimension0=1167:1152 cta_thread_dimension1=1183:1168 cta_thread_dimension2=1199:1184
    register_count=1208:1200 barrier_count=1215:1211
    program_address_lower=1247:1216 program_address_upper=1272:1248
    constant_buffer_addr_lower_0=1567:1536 constant_buffer_addr_upper_0=1586:1568
    constant_buffer_size_0=1599:1587
    constant_buffer_addr_lower_2=1695:1664 constant_buffer_addr_upper_2=1714:1696
    constant_buffer_size_2=1727:1715
    constant_buffer_addr_lower_3=1759:1728 constant_buffer_addr_upper_3=1778:1760
    constant_buffer_size_3=1791:1779
    constant_buffer_addr_lower_4=1823:1792 constant_buffer_addr_upper_4=1842:1824
    constant_buffer_size_4=1855:1843
    """,
    5: """
    qmd_group_id=149:144 qmd_type=153:151
    dependent_qmd_enable=336 dependent_qmd_action=339:337 dependent_qmd_pointer=415:384
    sass_version=455:448 api_visible_call_limit=456 qmd_minor_version=467:464
    qmd_major_version=471:468
    invalidate_shader_data_cache=475 cwd_membar_type=625:624
    program_address_lower=1055:1024 program_address_upper=1076:1056
    cta_thread_dimension0=1103:1088 cta_thread_dimension1=1119:1104 cta_thread_dimension2=1127:1120
    register_count=1136:1128 barrier_count=1141:1137
    shared_memory_size=1162:1152 min_sm_config_shared=1168:1163 max_sm_config_shared=1174:1169
    target_sm_config_shared=1180:1175 shader_local_memory_high_size=1215:1200
    cta_raster_width=1279:1248 cta_raster_height=1295:1280 cta_raster_depth=1327:1312
    constant_buffer_addr_lower_0=1375:1344 constant_buffer_addr_upper_0=1394:1376
    constant_buffer_size_0=1407:1395
    constant_buffer_addr_lower_2=1503:1472 constant_buffer_addr_upper_2=1522:1504
    constant_buffer_size_2=1535:1523
    constant_buffer_addr_lower_3=1567:1536 constant_buffer_addr_upper_3=1586:1568
    constant_buffer_size_3=1599:1587
    constant_buffer_addr_lower_4=1631:1600 constant_buffer_addr_upper_4=1650:1632
    constant_buffer_size_4=1663:1651
    constant_buffer_valid_0=1856 constant_buffer_invalidate_0=1859
    constant_buffer_valid_2=1864 constant_buffer_valid_3=1868 constant_buffer_valid_4=1872
    """,
}

SHIFTS: Final = {
    3: {"constant_buffer_size": 4},
    4: {"constant_buffer_addr": 6, "constant_buffer_size": 4},
    5: {
        "constant_buffer_addr": 6, "constant_buffer_size": 4, "program_address": 4,
        "shared_memory_size": 7, "shader_local_memory_high_size": 4,
    },
}  # fmt: skip

_WORDS: Final = {3: 64, 4: 96, 5: 96}

_SCHEDULE: Final = 1

SLOT_BYTES: Final = 512
"""The room that a descriptor gets: it must begin at a multiple of 256."""


class QMDLayout:
    """The fields of one version."""

    def __init__(self, major: int) -> None:
        self.major = major
        self.words = _WORDS[major]
        self.fields: dict[str, Field] = dict(map(parse_field, QMD_TABLES[major].split()))
        self._shifts = SHIFTS[major]

    def place(self, words: Words, start: int, name: str, value: Value) -> None:
        """Write a field of the descriptor that begins at that word; others stay."""
        field = self.fields[name]
        position, low = start + field.low // 32, field.low % 32
        if low + field.width > 32:
            raise ValueError(f"{name} crosses words")
        others = words.words[position] & ~(((1 << field.width) - 1) << low)
        if isinstance(value, Symbol):
            words.put(position, value.place(low, field.width, others))
        elif field.fits(value):
            words.put(position, others | value << low)
        else:
            raise ValueError(f"{name}: {value:#x} does not fit in {field.width} bits")

    def place_scaled(self, words: Words, start: int, name: str, value: int) -> None:
        """Write a field that holds a number without its lowest bits, rounded up."""
        shift = self._shifts.get(name.rstrip("_0234"), 0)
        self.place(words, start, name, value + (1 << shift) - 1 >> shift)

    def place_address(self, words: Words, start: int, what: str, tail: str, at: Value) -> None:
        """Write an address into the two fields `what_lower` and `what_upper`."""
        shift = self._shifts.get(what, 0)
        self.place(words, start, f"{what}_lower{tail}", (at >> shift) & 0xFFFF_FFFF)
        self.place(words, start, f"{what}_upper{tail}", at >> (32 + shift))

    def chain(self, words: Words, start: int, following: Value) -> None:
        """Have the descriptor at `following` scheduled when the grid of this one is done."""
        self.place(words, start, "dependent_qmd_enable", 1)
        self.place(words, start, "dependent_qmd_action", _SCHEDULE)
        self.place(words, start, "dependent_qmd_pointer", following >> 8)


LAYOUTS: Final = {major: QMDLayout(major) for major in QMD_TABLES}
