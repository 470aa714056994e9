"""Commands as words: headers, ring entries, launch descriptors."""

from __future__ import annotations

import pytest
from tg_nv.queue.methods import COMPUTE, COPY, HOST, Semaphore, header
from tg_nv.queue.qmd import LAYOUTS, QMD_TABLES
from tg_nv.queue.queues import CopyQueue
from tg_nv.queue.ring import entry

from tests.emulators.nv.profiles import PROFILES
from tgcore.hcq.queue import Words
from tgcore.hcq.symbol import Symbol


class QMDWords(Words):
    word_type = "I"


def descriptor(major: int) -> QMDWords:
    words = QMDWords()
    words.push(*[0] * LAYOUTS[major].words)
    return words


@pytest.mark.parametrize(
    ("word", "value"),
    [
        (header(COMPUTE.SET_OBJECT, 1), 0x20012000),
        (header(COPY.SET_OBJECT, 1), 0x20018000),
        (header(HOST.SEM_ADDR_LO, 5), 0x20050017),
        (header(COMPUTE.SEND_PCAS_A, 1), 0x200120AD),
        (header(COPY.OFFSET_IN_UPPER, 4), 0x20048100),
        (header(COPY.LAUNCH_DMA, 1), 0x200180C0),
    ],
)
def test_headers(word: int, value: int) -> None:
    assert word == value


def test_words_of_semaphores() -> None:
    execute = HOST.SEM_EXECUTE.word
    acquire, release = Semaphore.ACQUIRE_GREATER_OR_EQUAL, Semaphore.RELEASE
    assert execute(operation=acquire, payload_64=1) == 0x01000003
    assert execute(operation=acquire, payload_64=1, switch=1) == 0x01001003
    timed = {"wait_for_idle": 1, "timestamp": 1}
    assert execute(operation=release, payload_64=1, **timed) == 0x03100001


def test_words_of_copies() -> None:
    fields = {"transfer": 2, "source_pitch": 1, "dest_pitch": 1}
    assert COPY.LAUNCH_DMA.word(**fields) == 0x182
    invalidate = COMPUTE.INVALIDATE_SHADER_CACHES_NO_WFI
    assert invalidate.word(instruction=1, global_data=1, constant=1) == 0x1011


def test_ring_entries() -> None:
    assert entry(0x1000200000, 10) == 0x0000281000200000
    with pytest.raises(ValueError, match="cannot be at"):
        entry(1 << 40, 1)
    with pytest.raises(ValueError, match="cannot have 0 words"):
        entry(0x1000, 0)


def test_a_value_too_large_for_its_field_is_named() -> None:
    with pytest.raises(ValueError, match="SEM_EXECUTE: 0x8 does not fit in field operation"):
        HOST.SEM_EXECUTE.word(operation=8)


def test_a_symbol_stands_among_the_other_bits_of_a_word() -> None:
    word = HOST.SEM_ADDR_HI.word(offset=Symbol("place") >> 32)
    assert isinstance(word, Symbol) and word.resolve(0x12_3456_789A) == 0x12


def test_fields_do_not_overlap() -> None:
    for major, layout in LAYOUTS.items():
        used = [bit for f in layout.fields.values() for bit in range(f.low, f.low + f.width)]
        assert len(used) == len(set(used)), major
        assert max(used) < 32 * layout.words


def test_no_field_crosses_a_word() -> None:
    for layout in LAYOUTS.values():
        assert all(f.low % 32 + f.width <= 32 for f in layout.fields.values())


# version: field, value, (byte, bytes that hold it)
PLACES = [
    (3, "cta_thread_dimension0", 0x1234, 74, 2),
    (3, "cta_raster_width", 0x12345678, 48, 4),
    (3, "cta_raster_height", 0x1234, 52, 2),
    (3, "cta_raster_depth", 0x1234, 56, 2),
    (4, "cta_raster_width", 0x12345678, 128, 4),
    (4, "cta_raster_height", 0x1234, 132, 2),
    (4, "cta_raster_depth", 0x1234, 136, 2),
    (4, "cta_thread_dimension0", 0x1234, 144, 2),
    (4, "cta_thread_dimension1", 0x1234, 146, 2),
    (4, "cta_thread_dimension2", 0x1234, 148, 2),
    (4, "register_count", 0x55, 150, 1),
    (4, "program_address_lower", 0x12345678, 152, 4),
    (4, "constant_buffer_addr_lower_0", 0x12345678, 192, 4),
    (5, "cta_raster_width", 0x12345678, 156, 4),
    (5, "cta_raster_height", 0x1234, 160, 2),
    (5, "cta_raster_depth", 0x1234, 164, 2),
    (5, "cta_thread_dimension0", 0x1234, 136, 2),
    (5, "cta_thread_dimension1", 0x1234, 138, 2),
    (5, "cta_thread_dimension2", 0x12, 140, 1),
    (5, "program_address_lower", 0x12345678, 128, 4),
]


@pytest.mark.parametrize(("major", "name", "value", "byte", "count"), PLACES)
def test_fields_are_where_the_headers_have_them(
    major: int, name: str, value: int, byte: int, count: int
) -> None:
    words = descriptor(major)
    LAYOUTS[major].place(words, 0, name, value)
    raw = words.words.tobytes()
    assert int.from_bytes(raw[byte : byte + count], "little") == value
    assert raw.count(0) == len(raw) - sum(b != 0 for b in value.to_bytes(count, "little"))


def test_a_field_is_replaced_and_its_neighbours_stay() -> None:
    words, layout = descriptor(3), LAYOUTS[3]
    layout.place(words, 0, "cta_thread_dimension1", 7)
    layout.place(words, 0, "cta_thread_dimension2", 9)
    layout.place(words, 0, "cta_thread_dimension1", 5)
    assert words.words[19] == 9 << 16 | 5


def test_addresses_may_be_symbols() -> None:
    words, layout = descriptor(4), LAYOUTS[4]
    layout.place_scaled(words, 0, "constant_buffer_size_0", 1000)
    layout.place_address(words, 0, "constant_buffer_addr", "_0", Symbol("data") + 512)
    words.patch({"data": 0x12_3456_7800})
    assert words.words[48] == 0x12_3456_7A00 >> 6 & 0xFFFFFFFF
    assert words.words[49] == 0x12_3456_7A00 >> 38 | 63 << 19


def test_every_version_that_a_gpu_needs_is_there() -> None:
    assert set(QMD_TABLES) == {profile.qmd for profile in PROFILES.values()}


def test_a_large_copy_is_cut() -> None:
    queue = CopyQueue().copy(0x10_0000_0000, 0x20_0000_0000, (1 << 31) + 8)
    lengths = [queue.words[n + 1] for n, w in enumerate(queue.words) if w == 0x20028106]
    assert lengths == [1 << 31, 8]
