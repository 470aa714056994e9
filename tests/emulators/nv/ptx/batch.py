"""Thread blocks that run together: which thread is where, and what generated code asks for."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .faults import Fault, IllegalInstruction, Index3, PtxError
from .memory import GenericSpace, GlobalSpace, Memory, ParameterSpace, Space, Threads, WindowSpace
from .module import Kernel
from .types import DTYPES
from .warps import per_warp

Values = Any
Numbers = NDArray[np.int64]
SHARED_WINDOW_SIZE = 1 << 32
LOCAL_WINDOW_SIZE = 1 << 24
# generic addresses of parameters: where no device memory can be
PARAMETER_WINDOW = 0x7FFF_0000_0000_0000
ONE = np.uint32(1)


@dataclass(frozen=True)
class Launch:
    """What is the same for all blocks of a launch."""

    kernel: Kernel
    grid: Index3
    block: Index3
    parameters: bytes
    memory: Memory
    shared_bytes: int
    shared_window: int
    local_window: int
    symbols: dict[str, int]

    @property
    def threads(self) -> int:
        x, y, z = self.block
        return x * y * z

    @property
    def shared_size(self) -> int:
        kernel = self.kernel
        return kernel.shared_bytes + self.shared_bytes + (16 if self.shared_bytes else 0)


def unravel(number: int, size: Index3) -> Index3:
    x, y, _ = size
    return number % x, number // x % y, number // (x * y)


class Batch:
    """Some consecutive blocks. Threads that have left are taken out by `compact`."""

    def __init__(self, launch: Launch, first: int, blocks: int) -> None:
        self.launch = launch
        self.first = first
        self.blocks = blocks
        self.per_block = launch.threads
        self.n = blocks * self.per_block
        self.slots: Numbers | None = None  # of the threads that are left; None: all are there
        self.full_warps = self.per_block % 32 == 0
        self.values: dict[str, Values] = {}
        self.parameter_values: dict[tuple[int, str], Values] = {}
        self._lanes: tuple[Numbers, Numbers] | None = None
        self.set_up_memory()

    def set_up_memory(self) -> None:
        launch = self.launch
        slots = np.arange(self.n)
        owners = None if self.blocks == 1 else slots // self.per_block
        local = launch.kernel.local_bytes
        self.outer = GlobalSpace(self, launch.memory)
        self.shared = WindowSpace(self, "shared", launch.shared_size, self.blocks, owners)
        self.local = WindowSpace(self, "local", local, self.n if local else 0, slots)
        self.parameters = ParameterSpace(self, launch.parameters)
        self.shared_window = np.uint64(launch.shared_window)
        self.local_window = np.uint64(launch.local_window)
        self.param_window = np.uint64(PARAMETER_WINDOW)
        windows: list[tuple[int, int, Space]] = [
            (launch.shared_window, SHARED_WINDOW_SIZE, self.shared),
            (launch.local_window, LOCAL_WINDOW_SIZE, self.local),
            (PARAMETER_WINDOW, 1 << 16, self.parameters),
        ]
        self.generic = GenericSpace(self, self.outer, windows)

    # --- who is where

    def all_slots(self) -> Numbers:
        return np.arange(self.n) if self.slots is None else self.slots

    def slots_of(self, t: Threads) -> Numbers:
        slots = self.all_slots()
        return slots if t is None else slots[t]

    def count(self, t: Threads) -> int:
        return self.n if t is None else int(t.size)

    def compact(self, t: Numbers) -> None:
        """Only these threads are left."""
        self.slots = self.slots_of(t)
        self.n = int(t.size)
        for space in (self.shared, self.local):
            if space.owners is not None:
                space.owners = space.owners[t]
        self.values.clear()
        self._lanes = None

    def whole(self, t: Threads) -> bool:
        """Are all lanes of all warps active, and in their places?"""
        return t is None and self.full_warps and self.slots is None

    def warps(self, t: Threads) -> tuple[Numbers, Numbers]:
        if self._lanes is None:
            slots = self.all_slots()
            thread = slots % self.per_block
            warps_per_block = (self.per_block + 31) // 32
            self._lanes = slots // self.per_block * warps_per_block + thread // 32, thread % 32
        warp, lane = self._lanes
        return (warp, lane) if t is None else (warp[t], lane[t])

    def existing_lanes(self, warp: Numbers) -> Values:
        """Masks of the lanes that warps were started with: the last one of a block may be short."""
        per_block = (self.per_block + 31) // 32
        lanes = np.minimum(self.per_block - warp % per_block * 32, 32)
        return ((np.uint64(1) << lanes.astype(np.uint64)) - np.uint64(1)).astype(np.uint32)

    def blocks_of(self, t: Threads) -> Numbers:
        return self.slots_of(t) // self.per_block

    def fault(self, fault: Fault, place: int, threads: Threads) -> Fault:
        """Says where a fault was."""
        at = place if threads is None or threads.size <= place else int(threads[place])
        slot = at if self.slots is None else int(self.slots[min(at, self.n - 1)])
        launch = self.launch
        fault.kernel = launch.kernel.name
        fault.block = unravel(self.first + slot // self.per_block, launch.grid)
        fault.thread = unravel(slot % self.per_block, launch.block)
        return fault

    def illegal(self, what: str, place: int, t: Threads, line: int) -> Fault:
        return self.fault(IllegalInstruction(what, line), place, t)

    def trap_if(self, p: Values, what: str, t: Threads, line: int) -> None:
        if p.any():
            raise self.illegal(what, int(np.argmax(p)), t, line)

    # --- special registers

    def special(self, name: str, t: Threads, line: int) -> Values:
        if name.startswith(("clock", "globaltimer")):
            now = time.monotonic_ns()
            if name in ("clock64", "globaltimer"):
                return np.uint64(now)
            return np.uint32((now >> 32 if name.endswith("hi") else now) & 0xFFFFFFFF)
        found = self.values.get(name)
        if found is None:
            found = self.compute_special(name, line)
            self.values[name] = found
        return found if t is None or found.ndim == 0 else found[t]

    def compute_special(self, name: str, line: int) -> Values:
        launch = self.launch
        base, _, axis = name.partition(".")
        if axis in ("x", "y", "z"):
            at = "xyz".index(axis)
            base = {"clusterid": "ctaid", "nclusterid": "nctaid"}.get(base, base)
            if base in ("ntid", "nctaid"):
                return np.uint32((launch.block if base == "ntid" else launch.grid)[at])
            if base == "tid":
                return self.coordinate(self.all_slots() % self.per_block, launch.block, at)
            if base == "ctaid":
                if self.blocks == 1:
                    return np.uint32(unravel(self.first, launch.grid)[at])
                number = self.first + self.all_slots() // self.per_block
                return self.coordinate(number, launch.grid, at)
            if base in ("cluster_ctaid", "cluster_nctaid"):
                return np.uint32(base == "cluster_nctaid")
        lane = self.warps(None)[1].astype(np.uint32)
        masks = {"eq": ONE << lane, "lt": (ONE << lane) - ONE, "ge": ~((ONE << lane) - ONE)}
        if name == "laneid":
            return lane
        if name == "warpid":
            return (self.all_slots() % self.per_block // 32).astype(np.uint32)
        if name.startswith("lanemask_") and name[9:] in masks:
            return masks[name[9:]]
        if name == "lanemask_le":
            return masks["eq"] | masks["lt"]
        if name == "lanemask_gt":
            return ~(masks["eq"] | masks["lt"])
        numbers = {
            "nwarpid": 64, "smid": 0, "nsmid": 1, "cluster_ctarank": 0, "cluster_nctarank": 1,
            "dynamic_smem_size": launch.shared_bytes, "total_smem_size": launch.shared_size,
        }  # fmt: skip
        if name == "gridid":
            return np.uint64(1)
        if name not in numbers:
            raise PtxError(f"unknown special register %{name}", line)
        return np.uint32(numbers[name])

    def coordinate(self, number: Numbers, size: Index3, axis: int) -> Values:
        """One coordinate of a linear number; the same for all where there is one only."""
        if size[axis] == 1:
            return np.uint32(0)
        if axis == 0:
            place = number % size[0] if size[1] * size[2] > 1 else number
        elif axis == 1:
            place = number // size[0] % size[1]
        else:
            place = number // (size[0] * size[1])
        return place.astype(np.uint32)

    # --- what generated code calls

    def parameter(self, offset: int, code: str, line: int) -> Values:
        """A parameter of the kernel: the same for all threads."""
        found = self.parameter_values.get((offset, code))
        if found is None:
            found = self.parameters.load(np.uint64(offset), code, None, line)
            self.parameter_values[offset, code] = found
        return found

    def symbol(self, name: str, line: int) -> Values:
        address = self.launch.symbols.get(name)
        if address is None:
            raise PtxError(f"no address was given for the variable {name}", line)
        return np.uint64(address)

    def in_space(self, a: Values, space: str) -> Values:
        launch = self.launch
        windows = {
            "shared": (launch.shared_window, SHARED_WINDOW_SIZE),
            "local": (launch.local_window, LOCAL_WINDOW_SIZE),
            "param": (PARAMETER_WINDOW, 1 << 16),
        }
        if space in windows:
            base, size = windows[space]
            return (a >= np.uint64(base)) & (a < np.uint64(base + size))
        outside = ~self.in_space(a, "shared") & ~self.in_space(a, "local")
        return outside if space == "global" else outside & ~outside

    def block_vote(self, kind: str, p: Values, t: Threads) -> Values:
        """bar.red: over the threads of each block, which are all here."""
        blocks = self.blocks_of(t)
        votes = np.broadcast_to(p, blocks.shape).astype(np.uint32)
        if kind == "popc":
            return per_warp(blocks, votes, np.add).astype(np.uint32)
        return per_warp(blocks, votes, np.minimum if kind == "and" else np.maximum) != 0

    def copy_async(
        self, to: Values, source: Values, size: int, count: Values, t: Threads, line: int
    ) -> None:
        """size bytes from global to shared memory; only `count` of them are read, the rest is 0."""
        width = size // 4
        n = self.count(t)
        words = np.zeros((width, n), DTYPES["u4"])
        for have in np.unique(size if count is None else count):
            if have == 0:
                continue
            if have != size:
                raise PtxError(f"cp.async that reads {have} of {size} bytes is not known", line)
            chosen = np.arange(n) if count is None or count.ndim == 0 else count == have
            threads = np.arange(n)[chosen] if t is None else t[chosen]
            at = np.broadcast_to(source, n)[chosen]
            if width == 1:
                words[0, chosen] = self.outer.load(at, "u4", threads, line)
            else:
                words[:, chosen] = self.outer.load_vector(at, "u4", width, threads, line)
        target = np.broadcast_to(to, n)
        if width == 1:
            self.shared.store(target, words[0], "u4", t, line)
        else:
            self.shared.store_vector(target, tuple(words), "u4", t, line)
