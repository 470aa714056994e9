"""Command streams as text: one line a method, with its fields by name; for golden tests.

`lines(segment)` of each segment in `gpu.segments`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.emulators.nv import compute, copy
from tests.emulators.nv.host import COMPUTE_SUBCHANNEL, COPY_SUBCHANNEL, HOST_METHODS
from tests.emulators.nv.pushbuffer import Malformed, Segment, entry_of, methods
from tests.emulators.nv.qmd import Qmd

# a field: its name, high and low bit, names of values (others as numbers)
_Field = tuple[str, int, int, tuple[str, ...]]
_SEM_EXECUTE: Final[list[_Field]] = [
    (
        "operation",
        2,
        0,
        ("acquire", "release", "acquire_ge", "acquire_circular_ge", "acquire_and", "acquire_nor"),
    ),
    ("switch_tsg", 12, 12, ()),
    ("wfi", 20, 20, ()),
    ("payload", 24, 24, ("32", "64")),
    ("timestamp", 25, 25, ()),
    ("reduction", 30, 27, ()),
    ("unsigned", 31, 31, ()),
]
_COPY_LAUNCH: Final[list[_Field]] = [
    ("transfer", 1, 0, ("none", "pipelined", "non_pipelined")),
    ("flush", 2, 2, ()),
    ("semaphore", 4, 3, ("none", "one_word", "four_words", "conditional")),
    ("interrupt", 6, 5, ()),
    ("src_pitch", 7, 7, ()),
    ("dst_pitch", 8, 8, ()),
    ("multi_line", 9, 9, ()),
    ("remap", 10, 10, ()),
    ("force_rmw_disable", 11, 11, ()),
    ("src_physical", 12, 12, ()),
    ("dst_physical", 13, 13, ()),
    ("flush_type", 25, 25, ()),
    ("disable_plc", 26, 26, ()),
    ("payload", 27, 27, ("32", "64")),
]
_SOURCES: Final = ("src_x", "src_y", "src_z", "src_w", "const_a", "const_b", "no_write")
_REMAP: Final[list[_Field]] = [
    *((f"dst_{c}", 4 * i + 2, 4 * i, _SOURCES) for i, c in enumerate("xyzw")),
    ("component_size", 17, 16, ("1", "2", "3", "4")),
    ("src_components", 21, 20, ("1", "2", "3", "4")),
    ("dst_components", 25, 24, ("1", "2", "3", "4")),
]
_INVALIDATE: Final[list[_Field]] = [
    ("instruction", 0, 0, ()),
    ("global_data", 4, 4, ()),
    ("constant", 12, 12, ()),
]
_REPORT: Final[list[_Field]] = [
    ("operation", 1, 0, ("release", "acquire", "report", "trap")),
    ("flush_disable", 2, 2, ()),
    ("one_word", 28, 28, ()),
]
_UPLOAD: Final[list[_Field]] = [
    ("pitch", 0, 0, ()),
    ("completion", 5, 4, ("none", "flush", "semaphore")),
    ("sysmembar_disable", 6, 6, ()),
]
_FIELDS: Final[dict[tuple[str, str], list[_Field]]] = {
    ("host", "SEM_EXECUTE"): _SEM_EXECUTE,
    ("copy", "LAUNCH_DMA"): _COPY_LAUNCH,
    ("copy", "SET_REMAP_COMPONENTS"): _REMAP,
    ("compute", "LAUNCH_DMA"): _UPLOAD,
    ("compute", "INVALIDATE_SHADER_CACHES"): _INVALIDATE,
    ("compute", "INVALIDATE_SHADER_CACHES_NO_WFI"): _INVALIDATE,
    ("compute", "SET_REPORT_SEMAPHORE_D"): _REPORT,
}
_PCAS_2: Final = 0x2C0
_PCAS: Final = 0x2BC
_SCHEDULES: Final = (2, 3, 9, 0xA, 0xB)


def entry_line(word: int) -> str:
    """A ring entry."""
    try:
        entry = entry_of(word)
    except Malformed as error:
        return f"MALFORMED {error}"
    if not entry.words:
        return f"control opcode={entry.opcode} operand={entry.operand:#x}"
    flags = (" level=1" if entry.level else "") + (" wait=1" if entry.wait else "")
    return f"segment address={entry.address:#x} words={entry.words}{flags}"


def method_line(subchannel: int, address: int, data: int) -> str:
    """A method."""
    unit, name = _name(subchannel, address)
    fields = _fields(_FIELDS.get((unit, name), []), data)
    return " ".join([f"{unit}.{name}", f"{data:#x}", *fields])


def _name(subchannel: int, address: int) -> tuple[str, str]:
    if address < 0x100:
        return "host", HOST_METHODS.get(address, (f"{address:#x}", 0))[0]
    tables = {
        COMPUTE_SUBCHANNEL: ("compute", compute.METHODS),
        COPY_SUBCHANNEL: ("copy", copy.METHODS),
    }
    unit, table = tables.get(subchannel, (f"subchannel{subchannel}", {}))
    return unit, table.get(address, (f"{address:#x}", 0))[0]


def _fields(fields: list[_Field], data: int) -> Iterator[str]:
    for name, high, low, values in fields:
        value = data >> low & (1 << high - low + 1) - 1
        if value < len(values):
            yield f"{name}={values[value]}"
        elif value:
            yield f"{name}={value}"


def words(stream: list[int], qmds: list[Qmd] | None = None) -> Iterator[str]:
    """The methods of a pushbuffer; under each launch the fields of its QMD, if they are given."""
    left = list(qmds or [])
    try:
        for subchannel, address, data in methods(stream):
            yield method_line(subchannel, address, data)
            launches = address == _PCAS_2 and data in _SCHEDULES
            launches |= address == _PCAS and bool(data & 2)
            if launches and subchannel == COMPUTE_SUBCHANNEL and left:
                yield from (f"    {line}" for line in left.pop(0).text())
    except Malformed as error:
        yield f"MALFORMED {error}"


def lines(segment: Segment) -> list[str]:
    """A fetched segment."""
    return [entry_line(segment.entry), *words(segment.words, segment.qmds)]
