"""The address spaces of a running batch: where an access goes, and loads and stores on arrays.

A space turns the addresses of threads into places in byte regions. Loads and stores are then
numpy gathers and scatters; of threads that store to one place the last one wins.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .faults import Fault, MemoryFault, MisalignedAddress
from .types import DTYPES

Values = Any
Threads = NDArray[np.int64] | None  # places of the active threads in the batch; None: all
Bytes = NDArray[np.uint8]
I64 = np.dtype("i8")
SHIFTS = {1: 0, 2: 1, 4: 2, 8: 3, 16: 4, 32: 5}


class Memory(Protocol):
    """Global memory, by virtual address. Mappings must start at multiples of 16."""

    def resolve(self, address: int, nbytes: int, write: bool) -> tuple[Bytes, int] | None:
        """The bytes of the mapping that holds the address, and the address of its first byte.

        None where nothing is mapped, or no writes are allowed. The answer may be kept for as
        long as a kernel runs.
        """


class Reporter(Protocol):
    """Who knows which thread stands at a place of the batch."""

    def fault(self, fault: Fault, place: int, threads: Threads) -> Fault: ...


class Region:
    """Bytes and their views as numbers."""

    __slots__ = ("base", "data", "end", "views")

    def __init__(self, data: Bytes, base: int) -> None:
        if base % 16:
            raise ValueError(f"a mapping at {base:#x}, which is no multiple of 16")
        self.data, self.base, self.end = data, base, base + data.size
        self.views: dict[tuple[str, int], NDArray[Any]] = {}

    def view(self, code: str, width: int = 1) -> NDArray[Any]:
        """As numbers, or as rows of `width` numbers."""
        found = self.views.get((code, width))
        if found is None:
            dtype = DTYPES[code]
            step = dtype.itemsize * width
            flat = self.data[: self.data.size // step * step].view(dtype)
            found = flat if width == 1 else flat.reshape(-1, width)
            self.views[code, width] = found
        return found


Parts = list[tuple[Region, Values, NDArray[np.int64] | None]]


class Space:
    """Common to all spaces: from the parts of an access to values."""

    name = ""

    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter

    def parts(self, a: Values, size: int, write: bool, t: Threads, line: int) -> Parts:
        """Regions and offsets in them; more than one part says which threads it is for."""
        raise NotImplementedError

    def unmapped(self, a: Values, place: int, write: bool, t: Threads, line: int) -> Fault:
        address = int(a if a.ndim == 0 else a[place])
        what = "store to" if write else "load from"
        message = f"{what} {self.name} address {address:#x}, where nothing is"
        fault = MemoryFault(message, line, address=address, write=write)
        return self.reporter.fault(fault, place, t)

    def check_alignment(self, a: Values, size: int, write: bool, t: Threads, line: int) -> None:
        mask = size - 1
        if a.ndim == 0:
            if not int(a) & mask:
                return
            place = 0
        else:
            if not int(np.bitwise_or.reduce(a)) & mask:
                return
            place = int(np.argmax((a & a.dtype.type(mask)) != 0))
        address = int(a if a.ndim == 0 else a[place])
        message = f"{self.name} address {address:#x} is no multiple of {size}"
        fault = MisalignedAddress(message, line, address=address, write=write)
        raise self.reporter.fault(fault, place, t)

    def load(self, a: Values, code: str, t: Threads, line: int) -> Values:
        size = DTYPES[code].itemsize
        if size > 1:
            self.check_alignment(a, size, False, t, line)
        parts = self.parts(a, size, False, t, line)
        shift = SHIFTS[size]
        if len(parts) == 1:
            region, offset, _ = parts[0]
            return region.view(code)[offset >> shift]
        result = np.empty(a.shape, DTYPES[code])
        for region, offset, chosen in parts:
            result[chosen] = region.view(code)[offset >> shift]
        return result

    def load_vector(self, a: Values, code: str, width: int, t: Threads, line: int) -> Any:
        size = DTYPES[code].itemsize * width
        self.check_alignment(a, size, False, t, line)
        parts = self.parts(a, size, False, t, line)
        shift = SHIFTS[size]
        if len(parts) == 1:
            region, offset, _ = parts[0]
            rows = region.view(code, width)[offset >> shift]
            return rows if rows.ndim == 1 else rows.T.copy()
        result = np.empty((width, *a.shape), DTYPES[code])
        for region, offset, chosen in parts:
            result[:, chosen] = region.view(code, width)[offset >> shift].T
        return result

    def store(self, a: Values, value: Values, code: str, t: Threads, line: int) -> None:
        size = DTYPES[code].itemsize
        if size > 1:
            self.check_alignment(a, size, True, t, line)
        for region, offset, chosen in self.parts(a, size, True, t, line):
            part = value if chosen is None or value.ndim == 0 else value[chosen]
            if part.ndim and not np.ndim(offset):
                part = part[-1]
            region.view(code)[offset >> SHIFTS[size]] = part

    def store_vector(
        self, a: Values, values: tuple[Values, ...], code: str, t: Threads, line: int
    ) -> None:
        width = len(values)
        size = DTYPES[code].itemsize * width
        self.check_alignment(a, size, True, t, line)
        for region, offset, chosen in self.parts(a, size, True, t, line):
            rows = offset >> SHIFTS[size]
            view = region.view(code, width)
            for column, value in enumerate(values):
                part = value if chosen is None or value.ndim == 0 else value[chosen]
                view[rows, column] = part if not part.ndim or np.ndim(rows) else part[-1]

    # a guard: only some of the active threads take part

    def guarded_load(
        self, p: Values, old: tuple[Values, ...], a: Values, code: str, t: Threads, line: int
    ) -> tuple[Values, ...]:
        """What the guarded threads load, and what the others had before."""
        chosen = chosen_of(p)
        if chosen is not None and chosen.size == 0:
            return old
        inner, threads = (a, t) if chosen is None else narrowed(a, chosen, t)
        width = len(old)
        if width == 1:
            found = (self.load(inner, code, threads, line),)
        else:
            found = tuple(self.load_vector(inner, code, width, threads, line))
        found = tuple(f.astype(o.dtype) for f, o in zip(found, old))
        if chosen is None:
            return found
        merged = tuple(np.broadcast_to(o, p.shape).copy() for o in old)
        for m, f in zip(merged, found):
            m[chosen] = f
        return merged

    def guarded_store(
        self, p: Values, a: Values, values: tuple[Values, ...], code: str, t: Threads, line: int
    ) -> None:
        chosen = chosen_of(p)
        if chosen is not None:
            if chosen.size == 0:
                return
            a, t = narrowed(a, chosen, t)
            values = tuple(v[chosen] if v.ndim else v for v in values)
        if len(values) == 1:
            self.store(a, values[0], code, t, line)
        else:
            self.store_vector(a, values, code, t, line)


def chosen_of(p: Values) -> NDArray[np.int64] | None:
    """Places where a guard holds; None for everywhere."""
    if p.ndim == 0:
        return None if p else np.empty(0, np.int64)
    chosen = np.flatnonzero(p)
    return None if chosen.size == p.size else chosen


def narrowed(a: Values, chosen: NDArray[np.int64], t: Threads) -> tuple[Values, Threads]:
    return a[chosen] if a.ndim else a, chosen if t is None else t[chosen]


class GlobalSpace(Space):
    """Virtual memory; also what `.const` variables live in."""

    name = "global"

    def __init__(self, reporter: Reporter, memory: Memory) -> None:
        super().__init__(reporter)
        self.memory = memory
        self.regions: dict[bool, list[Region]] = {False: [], True: []}

    def find(self, address: int, size: int, write: bool) -> Region | None:
        for region in self.regions[write]:
            if region.base <= address < region.end:
                return region
        found = self.memory.resolve(address, size, write)
        if found is None:
            return None
        region = Region(*found)
        self.regions[write].append(region)
        return region

    def parts(self, a: Values, size: int, write: bool, t: Threads, line: int) -> Parts:
        if a.ndim == 0:
            low = high = int(a)
        else:
            low, high = int(a.min()), int(a.max())
        region = self.find(low, size, write)
        if region is None:
            place = 0 if a.ndim == 0 else int(a.argmin())
            raise self.unmapped(a, place, write, t, line)
        if high + size <= region.end:
            if a.ndim == 0:
                return [(region, low - region.base, None)]
            return [(region, (a - np.uint64(region.base)).view(I64), None)]
        if a.ndim == 0:
            raise self.unmapped(a, 0, write, t, line)
        return self.several(a, size, write, t, line)

    def several(self, a: Values, size: int, write: bool, t: Threads, line: int) -> Parts:
        """Threads that access several mappings with one instruction."""
        parts: Parts = []
        left = np.arange(a.size)
        while left.size:
            rest = a[left]
            low = int(rest.min())
            region = self.find(low, size, write)
            limit = 0 if region is None else region.end - size
            inside = rest <= np.uint64(max(limit, 0))
            if region is None or limit < low:
                raise self.unmapped(a, int(left[rest.argmin()]), write, t, line)
            chosen = left[inside]
            parts.append((region, (a[chosen] - np.uint64(region.base)).view(I64), chosen))
            left = left[~inside]
        return parts


class WindowSpace(Space):
    """Memory of its own for each block (shared) or thread (local), from address 0 on."""

    def __init__(self, reporter: Reporter, name: str, size: int, owners: int, bases: Values):
        super().__init__(reporter)
        self.name = name
        self.size = size
        self.stride = (size + 31) // 32 * 32
        # what nobody has written is not zero on a GPU either
        self.region = Region(np.full(self.stride * owners, 0xCD, np.uint8), 0)
        # owner of each thread; None where there is one owner only
        self.owners = bases

    def parts(self, a: Values, size: int, write: bool, t: Threads, line: int) -> Parts:
        high = int(a if a.ndim == 0 else a.max())
        if high + size > self.size:
            place = 0 if a.ndim == 0 else int(a.argmax())
            raise self.unmapped(a, place, write, t, line)
        offset = a.astype(I64)
        if self.owners is None:
            return [(self.region, int(offset) if a.ndim == 0 else offset, None)]
        base = self.owners if t is None else self.owners[t]
        return [(self.region, base * self.stride + offset, None)]


class ParameterSpace(WindowSpace):
    """The parameters of the kernel: the same for all threads, and not to be written."""

    def __init__(self, reporter: Reporter, data: bytes) -> None:
        super().__init__(reporter, "param", len(data), 1, None)
        self.region.data[: len(data)] = np.frombuffer(data, np.uint8)

    def parts(self, a: Values, size: int, write: bool, t: Threads, line: int) -> Parts:
        if write:
            raise self.unmapped(a, 0, write, t, line)
        return super().parts(a, size, write, t, line)


class GenericSpace(Space):
    """Addresses that say by their value which space they mean."""

    name = "generic"

    def __init__(self, reporter: Reporter, outer: Space, windows: list[tuple[int, int, Space]]):
        super().__init__(reporter)
        self.outer = outer
        self.windows = windows  # base, size, space

    def parts(self, a: Values, size: int, write: bool, t: Threads, line: int) -> Parts:
        low, high = (int(a), int(a)) if a.ndim == 0 else (int(a.min()), int(a.max()))
        for base, length, space in self.windows:
            if base <= low and high < base + length:
                return space.parts(a - np.uint64(base), size, write, t, line)
        if all(high < base or low >= base + length for base, length, _ in self.windows):
            return self.outer.parts(a, size, write, t, line)
        return self.several(a, size, write, t, line)

    def several(self, a: Values, size: int, write: bool, t: Threads, line: int) -> Parts:
        parts: Parts = []
        rest = np.ones(a.size, np.bool_)
        groups = []
        for base, length, space in self.windows:
            inside = (a >= np.uint64(base)) & (a < np.uint64(base + length))
            groups.append((inside, base, space))
            rest &= ~inside
        for inside, base, space in [*groups, (rest, 0, self.outer)]:
            chosen = np.flatnonzero(inside)
            if not chosen.size:
                continue
            threads = chosen if t is None else t[chosen]
            for found in space.parts(a[chosen] - np.uint64(base), size, write, threads, line):
                region, offset, part = found
                parts.append((region, offset, chosen if part is None else chosen[part]))
        return parts
