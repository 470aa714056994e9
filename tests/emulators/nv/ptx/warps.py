"""Operations between the lanes of a warp. The scheduler has brought the named lanes together."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .memory import Threads

Values = Any
Numbers = NDArray[np.int64]


class Lanes(Protocol):
    """A batch, as these functions see it."""

    def warps(self, t: Threads) -> tuple[Numbers, Numbers]:
        """Warp in the batch and lane in the warp of each active thread, in order."""

    def whole(self, t: Threads) -> bool:
        """Are all lanes of all warps active?"""

    def count(self, t: Threads) -> int:
        """How many threads are active?"""


def shuffle(
    batch: Lanes, value: Values, b: Values, c: Values, mode: str, t: Threads
) -> tuple[Values, Values]:
    """The value of another lane, and whether that lane was in range."""
    warp, lane = batch.warps(t)
    b, c = b.astype(np.int64) & 31, c.astype(np.int64)
    segment, clamp = (c >> 8) & 31, c & 31
    last = (lane & segment) | (clamp & ~segment)
    if mode == "up":
        source = lane - b
        valid = source >= last
    else:
        if mode == "down":
            source = lane + b
        elif mode == "bfly":
            source = lane ^ b
        else:
            source = (lane & segment) | (b & ~segment)
        valid = source <= last
    source = np.where(valid, source, lane)
    if value.ndim == 0:
        return value, valid
    return value[places(batch, warp, lane, source, t)], valid


def places(batch: Lanes, warp: Numbers, lane: Numbers, source: Numbers, t: Threads) -> Numbers:
    """Where among the active threads a lane of the same warp is; itself if that is not active."""
    wanted = warp * 32 + source
    if batch.whole(t):
        return wanted
    table = np.full((int(warp[-1]) + 1) * 32, -1)
    own = np.arange(warp.size)
    table[warp * 32 + lane] = own
    found = table[wanted]
    return np.where(found < 0, own, found)


def per_warp(warp: Numbers, values: Values, reduce: np.ufunc) -> Values:
    """A reduction over the active lanes of each warp, given to each of them."""
    starts = np.flatnonzero(np.concatenate([[True], warp[1:] != warp[:-1]]))
    counts = np.diff([*starts, warp.size])
    return np.repeat(reduce.reduceat(values, starts), counts)


def ballot(batch: Lanes, p: Values, t: Threads) -> Values:
    """For each thread, the lanes of its warp where p holds."""
    warp, lane = batch.warps(t)
    bits = np.where(p, np.uint32(1) << lane.astype(np.uint32), np.uint32(0))
    return per_warp(warp, bits, np.bitwise_or)


def vote(batch: Lanes, p: Values, mode: str, mask: Values, t: Threads) -> Values:
    """vote.sync: the lanes in the mask are compared; a lane's mask is its warp's."""
    votes = ballot(batch, p, t) & mask
    if mode == "ballot":
        return votes
    if mode == "any":
        return votes != 0
    everyone = ballot(batch, np.bool_(True), t) & mask
    if mode == "all":
        return votes == everyone
    return (votes == everyone) | (votes == 0)


def match(
    batch: Lanes, value: Values, mode: str, mask: Values, t: Threads
) -> tuple[Values, Values]:
    """match.sync: the lanes with the same value; `all`: the mask if all have it, else 0."""
    warp, lane = batch.warps(t)
    value = np.broadcast_to(value, warp.shape)
    found = np.zeros(warp.shape, np.uint32)
    active = ballot(batch, np.bool_(True), t) & mask
    for other in range(32):
        source = np.full(warp.shape, other)
        there = (active >> np.uint32(other)) & np.uint32(1)
        same = (value[places(batch, warp, lane, source, t)] == value) & (there != 0)
        found |= same.astype(np.uint32) << np.uint32(other)
    if mode == "any":
        return found, found != 0
    agreed = found == active
    return np.where(agreed, active, np.uint32(0)), agreed


REDUCTIONS: dict[str, np.ufunc] = {
    "add": np.add, "min": np.minimum, "max": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


def reduce_lanes(batch: Lanes, value: Values, operation: str, t: Threads) -> Values:
    warp, _ = batch.warps(t)
    values = np.broadcast_to(value, warp.shape)
    return per_warp(warp, values, REDUCTIONS[operation]).astype(value.dtype)


def elect(batch: Lanes, t: Threads) -> tuple[Values, Values]:
    """The lowest active lane of each warp, and whether it is this one."""
    warp, lane = batch.warps(t)
    leader = per_warp(warp, lane, np.minimum)
    return leader.astype(np.uint32), leader == lane
