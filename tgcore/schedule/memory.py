"""The memory planner: temporaries whose lives do not overlap share memory.

In: steps in order. Out: for each temporary a place, (arena, offset in bytes); an arena is one
allocation. First fit over a free list, largest gap merging, in order of first use.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tgcore.dtype import dtypes
from tgcore.helpers import round_up
from tgcore.schedule.kernels import Step
from tgcore.uop.node import UOp
from tgcore.uop.ops import Ops

# every buffer begins at a multiple of this many bytes, for aligned vector access
ALIGNMENT = 128


def plan_memory(steps: Sequence[Step], keep: Collection[UOp]) -> dict[UOp, UOp]:
    """Replaces temporaries by views of arenas; those to keep stay as they are."""
    first: dict[UOp, int] = {}
    last: dict[UOp, int] = {}
    for number, step in enumerate(steps):
        for buffer in step.buffers:
            if _is_temporary(buffer) and buffer not in keep:
                first.setdefault(buffer, number)
                last[buffer] = number
    arenas: dict[str, _Arena] = {}
    places: dict[UOp, int] = {}
    begins: dict[int, list[UOp]] = {}
    ends: dict[int, list[UOp]] = {}
    for buffer, number in first.items():
        begins.setdefault(number, []).append(buffer)
        ends.setdefault(last[buffer], []).append(buffer)
    for number in range(len(steps)):
        for buffer in begins.get(number, ()):
            arena = arenas.setdefault(str(buffer.device), _Arena())
            places[buffer] = arena.take(_bytes(buffer))
        for buffer in ends.get(number, ()):
            arenas[str(buffer.device)].give(places[buffer], _bytes(buffer))
    return _views(places, arenas)


def _views(places: dict[UOp, int], arenas: dict[str, _Arena]) -> dict[UOp, UOp]:
    bases = {
        device: UOp(
            Ops.BUFFER,
            dtypes.uint8,
            (UOp(Ops.UNIQUE, arg=("arena", device)), UOp(Ops.DEVICE, arg=device)),
            arena.size,
        )
        for device, arena in arenas.items()
    }
    return {
        buffer: UOp(
            Ops.BUFFER_VIEW, buffer.dtype, (bases[str(buffer.device)],), (buffer.arg, offset)
        )
        for buffer, offset in places.items()
    }


def _is_temporary(buffer: UOp) -> bool:
    unique = buffer.src[0].arg
    return buffer.op is Ops.BUFFER and isinstance(unique, tuple) and unique[0] == "temporary"


def _bytes(buffer: UOp) -> int:
    return round_up(max(1, buffer.arg * buffer.dtype.itemsize), ALIGNMENT)


class _Arena:
    """Offsets in one allocation that grows as needed."""

    def __init__(self) -> None:
        self.size = 0
        self.free: list[tuple[int, int]] = []  # (offset, bytes), sorted

    def take(self, size: int) -> int:
        fitting = [(gap, offset) for offset, gap in self.free if gap >= size]
        if fitting:
            gap, offset = min(fitting)
            self.free.remove((offset, gap))
            if gap > size:
                self._insert(offset + size, gap - size)
            return offset
        if self.free and self.free[-1][0] + self.free[-1][1] == self.size:
            offset, _ = self.free.pop()
        else:
            offset = self.size
        self.size = offset + size
        return offset

    def give(self, offset: int, size: int) -> None:
        self._insert(offset, size)

    def _insert(self, offset: int, size: int) -> None:
        merged: list[tuple[int, int]] = []
        for begin, length in self.free:
            if begin + length == offset:
                offset, size = begin, length + size
            elif offset + size == begin:
                size += length
            else:
                merged.append((begin, length))
        self.free = sorted([*merged, (offset, size)])
