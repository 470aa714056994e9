"""Who gets which GPU addresses. All GPUs of a process share one division of them.

Memory that the host sees has the same address there: its range is reserved in this process. What
the host does not see lies above. Everything stays below 2**40, as some pointers have 40 bits.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from typing import Final

LOCAL_WINDOW: Final = 0xFF00_0000
"""Where kernels see their local memory: 16 MiB."""
SHARED_WINDOW: Final = 0x4_0000_0000
"""Where kernels see their block's shared memory: 4 GiB."""

CHANNEL_WINDOWS: Final = (0x8_0000_0000, 0x10_0000_0000)
HOST_RANGE: Final = (0x10_0000_0000, 0x20_0000_0000)
VIDEO_RANGE: Final = (0x20_0000_0000, 0x100_0000_0000)

CHANNEL_WINDOW_BYTES: Final = 256 << 20


class AddressRange:
    """Gives out parts of a range of addresses: the first free place that is large enough."""

    def __init__(self, start: int, end: int) -> None:
        self._free: list[tuple[int, int]] = [(start, end)]
        self._lock = threading.Lock()

    def take(self, nbytes: int, alignment: int) -> int:
        """So many addresses, aligned; MemoryError if there are none left."""
        with self._lock:
            for number, (start, end) in enumerate(self._free):
                place = start + alignment - 1 & -alignment
                if place + nbytes <= end:
                    rest = [(start, place), (place + nbytes, end)]
                    self._free[number : number + 1] = [r for r in rest if r[0] < r[1]]
                    return place
        raise MemoryError(f"no {nbytes} free addresses")

    def give_back(self, place: int, nbytes: int) -> None:
        """The addresses are free again; neighbouring free ranges become one."""
        with self._lock:
            start, end = place, place + nbytes
            position = bisect_left(self._free, (start, end))
            if position < len(self._free) and self._free[position][0] == end:
                end = self._free.pop(position)[1]
            if position and self._free[position - 1][1] == start:
                start = self._free.pop(position - 1)[0]
            insort(self._free, (start, end))

    @property
    def free_ranges(self) -> list[tuple[int, int]]:
        """What is free, as (start, end), sorted."""
        return list(self._free)
