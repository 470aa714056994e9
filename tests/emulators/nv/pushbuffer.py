"""The formats of ring entries and pushbuffers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.emulators.nv.qmd import Qmd

_LOW40: Final = (1 << 40) - 1
INCREASING, NON_INCREASING, IMMEDIATE, INCREASE_ONCE, END = 1, 3, 4, 5, 7


class Malformed(Exception):
    """What no GPU can make sense of."""


@dataclass(frozen=True)
class Entry:
    """A ring entry."""

    address: int
    words: int  # 0: a control entry
    level: int
    wait: int
    opcode: int  # of a control entry
    operand: int


@dataclass
class Segment:
    """A pushbuffer that was fetched, for who wants to look at it later."""

    channel: int  # handle
    entry: int
    words: list[int]
    qmds: list[Qmd] = field(default_factory=list)  # that it launched


def entry_of(word: int) -> Entry:
    """The fields of a ring entry. Raises Malformed."""
    if word & 3 or word >> 40 & 1:
        raise Malformed(f"ring entry {word:#018x} has bits that must be 0")
    return Entry(
        word & _LOW40 & ~3,
        word >> 42 & 0x1F_FFFF,
        word >> 41 & 1,
        word >> 63,
        word >> 32 & 0xFF,
        word >> 8 & 0x1_FFFF,
    )


def methods(words: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Subchannel, address and data of each method. Raises Malformed."""
    at = 0
    while at < len(words):
        header = words[at]
        at += 1
        kind, count = header >> 29, header >> 16 & 0x1FFF
        subchannel, method = header >> 13 & 7, (header & 0xFFF) << 2
        if kind == END:
            return
        if header >> 12 & 1 or kind not in (INCREASING, NON_INCREASING, IMMEDIATE, INCREASE_ONCE):
            raise Malformed(f"method header {header:#010x}")
        if kind == IMMEDIATE:
            yield subchannel, method, count
            continue
        if at + count > len(words):
            raise Malformed(f"method header {header:#010x} at the segment's end")
        for i in range(count):
            step = {INCREASING: i, NON_INCREASING: 0, INCREASE_ONCE: min(i, 1)}[kind]
            yield subchannel, method + 4 * step, words[at + i]
        at += count
