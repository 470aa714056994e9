"""Methods of the host unit, the compute engine and the copy engine, with their fields by name.

A table's line is `address NAME field=high:low ...`; a field without bits is the whole word. Names
and numbers are those of NVIDIA's class headers (clc56f.h, clc6c0.h, clc6b5.h and their successors).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from tgcore.hcq.symbol import Symbol, Value


class Subchannel(IntEnum):
    """Where a method's class is bound."""

    HOST = 0
    COMPUTE = 1
    COPY = 4


@dataclass(frozen=True)
class Field:
    """Bits of a word, or of a larger structure."""

    low: int
    width: int

    def fits(self, value: int) -> bool:
        """Whether the number has no more bits."""
        return 0 <= value < 1 << self.width


@dataclass(frozen=True)
class Method:
    """A register of an engine that a command writes."""

    name: str
    subchannel: Subchannel
    address: int
    fields: dict[str, Field]

    def word(self, **values: Value) -> Value:
        """The data of the method with these fields; at most one of them a symbol."""
        bits, symbolic = 0, None
        for name, value in values.items():
            field = self.fields[name]
            if isinstance(value, Symbol):
                symbolic = (value, field)
            elif field.fits(value):
                bits |= value << field.low
            else:
                raise ValueError(f"{self.name}: {value:#x} does not fit in field {name}")
        if symbolic is None:
            return bits
        symbol, field = symbolic
        return symbol.place(field.low, field.width, bits)


def parse_field(text: str) -> tuple[str, Field]:
    """`name=high:low`, or `name=bit`."""
    name, _, bits = text.partition("=")
    if not bits:
        return name, Field(0, 32)
    high, _, low = bits.partition(":")
    lowest = int(low or high)
    return name, Field(lowest, int(high) - lowest + 1)


class MethodTable:
    """The methods of one class family, as attributes."""

    def __init__(self, subchannel: Subchannel, text: str) -> None:
        self.by_address: dict[int, Method] = {}
        for line in text.strip().splitlines():
            address, name, *fields = line.split()
            method = Method(
                name, subchannel, int(address, 16), dict(parse_field(f) for f in fields)
            )
            self.by_address[method.address] = method
            setattr(self, name, method)

    def __getattr__(self, name: str) -> Method:
        raise AttributeError(f"no method {name}")


HOST: Final = MethodTable(
    Subchannel.HOST,
    """
    0x5c SEM_ADDR_LO offset
    0x60 SEM_ADDR_HI offset=24:0
    0x64 SEM_PAYLOAD_LO payload
    0x68 SEM_PAYLOAD_HI payload
    0x6c SEM_EXECUTE operation=2:0 switch=12 wait_for_idle=20 payload_64=24 timestamp=25
    """,
)


class Semaphore(IntEnum):
    """Operations of SEM_EXECUTE."""

    RELEASE = 1
    ACQUIRE_GREATER_OR_EQUAL = 3  # the difference, as a signed number, is not negative


COMPUTE: Final = MethodTable(
    Subchannel.COMPUTE,
    """
    0x000 SET_OBJECT class=15:0
    0x110 WAIT_FOR_IDLE value
    0x298 INVALIDATE_SKED_CACHES value
    0x2a0 SET_SHADER_SHARED_MEMORY_WINDOW_A upper=16:0
    0x2a4 SET_SHADER_SHARED_MEMORY_WINDOW_B lower
    0x2b4 SEND_PCAS_A qmd_address_shifted8
    0x2c0 SEND_SIGNALING_PCAS2_B action=3:0
    0x2e4 SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A upper=7:0
    0x2e8 SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_B lower
    0x2ec SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C most_sms=8:0
    0x790 SET_SHADER_LOCAL_MEMORY_A upper=24:0
    0x794 SET_SHADER_LOCAL_MEMORY_B lower
    0x7b0 SET_SHADER_LOCAL_MEMORY_WINDOW_A upper=16:0
    0x7b4 SET_SHADER_LOCAL_MEMORY_WINDOW_B lower
    0x1698 INVALIDATE_SHADER_CACHES_NO_WFI instruction=0 global_data=4 constant=12
    """,
)

PCAS_SCHEDULE: Final = 3  # invalidate, copy, schedule

COPY: Final = MethodTable(
    Subchannel.COPY,
    """
    0x000 SET_OBJECT class=15:0
    0x300 LAUNCH_DMA transfer=1:0 flush=2 semaphore=4:3 source_pitch=7 dest_pitch=8 multi_line=9
    0x400 OFFSET_IN_UPPER upper=24:0
    0x404 OFFSET_IN_LOWER lower
    0x408 OFFSET_OUT_UPPER upper=24:0
    0x40c OFFSET_OUT_LOWER lower
    0x418 LINE_LENGTH_IN bytes
    0x41c LINE_COUNT lines
    """,
)

PIPELINED: Final = 1
NON_PIPELINED: Final = 2

_INCREASING: Final = 1
_MOST_WORDS: Final = 0x1FFF


def header(method: Method, count: int) -> int:
    """What precedes the data of `count` methods from this one on, word after word."""
    if not 0 < count <= _MOST_WORDS:
        raise ValueError(f"{method.name}: {count} words are none, or too many, for one header")
    return _INCREASING << 29 | count << 16 | method.subchannel << 13 | method.address >> 2
