"""A channel's ring: where submissions are put, and the memory that their words pass through."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

from tg_nv.interface import Channel, MemoryKind, NVInterface
from tgcore.hcq.mapping import store_fence
from tgcore.hcq.memory import HCQMemory
from tgcore.hcq.signal import Signal

_GP_GET: Final = 0x88 // 4
_GP_PUT: Final = 0x8C // 4
_LENGTH_SHIFT: Final = 42

_SEGMENTS: Final = 4
_SEGMENT_BYTES: Final = 1 << 20
ALIGNMENT: Final = 256


def entry(address: int, words: int) -> int:
    """A ring entry: so many words of commands at that address."""
    if address & 3 or address >> 40:
        raise ValueError(f"commands cannot be at {address:#x}")
    if not 0 < words < 1 << 21:
        raise ValueError(f"an entry cannot have {words} words")
    return address | words << _LENGTH_SHIFT


class Ring:
    """Takes submissions, one after another. `fence` counts those that are done."""

    def __init__(
        self,
        interface: NVInterface,
        channel: Channel,
        fence: Signal,
        wait: Callable[[Signal, int], None],
    ) -> None:
        self.interface, self.channel, self.fence = interface, channel, fence
        self.submitted = 0
        self._wait = wait
        self._put = 0
        nbytes = _SEGMENTS * _SEGMENT_BYTES
        self._stream = interface.alloc(nbytes, MemoryKind.STREAM, "commands")
        self._segment, self._position = 0, 0
        self._last_use = [0] * _SEGMENTS  # the fence once all of a segment is done
        self._leaving: deque[tuple[int, HCQMemory]] = deque()

    # *** memory that submissions pass through ***

    def room(self, nbytes: int) -> HCQMemory:
        """Memory for the next submission; it may be used again once that is done."""
        while self._leaving and self._leaving[0][0] <= self.fence.value:
            self.interface.free(self._leaving.popleft()[1])
        nbytes = nbytes + ALIGNMENT - 1 & -ALIGNMENT
        if nbytes > _SEGMENT_BYTES:
            memory = self.interface.alloc(nbytes, MemoryKind.STREAM, "commands")
            self._leaving.append((self.submitted + 1, memory))
            return memory
        if self._position + nbytes > _SEGMENT_BYTES:
            self._next_segment()
        place = self._stream.part(nbytes, self._segment * _SEGMENT_BYTES + self._position)
        self._position += nbytes
        return place

    def _next_segment(self) -> None:
        """Go on in the next part of the stream, once what was submitted from it is done."""
        self._last_use[self._segment] = self.submitted
        self._segment = (self._segment + 1) % len(self._last_use)
        self._position = 0
        self._wait(self.fence, self._last_use[self._segment])

    # *** submission ***

    def submit(self, address: int, words: int) -> None:
        """Hand over commands. They signal the fence with `submitted`, as it is after this."""
        ring, userd = self.channel.ring, self.channel.userd
        following = (self._put + 1) % len(ring)
        if following == userd[_GP_GET]:
            self._wait_for_place(following)
        store_fence()
        ring[self._put] = entry(address, words)
        store_fence()
        userd[_GP_PUT] = self._put = following
        self.submitted += 1
        self.interface.ring_doorbell(self.channel)

    def _wait_for_place(self, following: int) -> None:
        """Until the GPU has read the entry that follows."""
        done = max(1, self.submitted + 2 - len(self.channel.ring))
        self._wait(self.fence, done)
        while self.channel.userd[_GP_GET] == following:
            time.sleep(0)  # the index is written back a little later than the fence
