"""Allocation, copies, views, reuse, and the end of memory."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from tgcore.dtype import dtypes
from tgcore.errors import OutOfMemoryError
from tgcore.plugin import observers
from tgcore.runtime.buffer import Buffer
from tgcore.runtime.compiled import CompiledDevice
from tgcore.runtime.counters import GlobalCounters
from tgcore.testing.conftest import MakeBuffer

SIZES = (1, 3, 255, 4096, 1_000_003)


@pytest.mark.parametrize("size", SIZES)
def test_round_trip(make: MakeBuffer, executes: bool, size: int) -> None:
    values = np.arange(size, dtype=np.int32)
    read = make(values).numpy()
    assert read.shape == values.shape and read.dtype == values.dtype
    if executes:
        np.testing.assert_array_equal(read, values)


def test_empty_buffer(name: str) -> None:
    assert Buffer(name, 0, dtypes.float32).numpy().shape == (0,)


def test_copy_between_buffers(make: MakeBuffer, executes: bool, name: str) -> None:
    source = make(np.arange(1000))
    copy = Buffer(name, 1000, dtypes.int32).copy_from(source)
    if executes:
        np.testing.assert_array_equal(copy.numpy(), np.arange(1000))


def test_copy_from_a_file(name: str, executes: bool, tmp_path: object) -> None:
    path = f"DISK:{tmp_path}/file"
    there = Buffer(path, 4, dtypes.int32, initial=np.arange(4, dtype=np.int32).tobytes())
    here = Buffer(name, 4, dtypes.int32).copy_from(there)
    back = Buffer(path + "2", 4, dtypes.int32).copy_from(here)
    if executes:
        np.testing.assert_array_equal(back.numpy(), np.arange(4))


def test_views_share_memory(make: MakeBuffer, executes: bool) -> None:
    whole = make(np.arange(16))
    part = whole.view(4, dtypes.int32, 16)
    part.view(1, dtypes.int32, 4).copyin(np.array([99], dtype=np.int32).data)
    if executes:
        np.testing.assert_array_equal(part.numpy(), [4, 99, 6, 7])
        assert whole.numpy()[5] == 99


def test_a_view_keeps_its_base_alive(make: MakeBuffer, executes: bool) -> None:
    part = make(np.arange(16)).view(4, dtypes.int32, 16)
    gc.collect()
    make(np.zeros(16))
    if executes:
        np.testing.assert_array_equal(part.numpy(), [4, 5, 6, 7])


def test_memory_is_counted_and_given_back(name: str, device: CompiledDevice) -> None:
    gc.collect()
    before, used = GlobalCounters.mem_used, device.allocator.used
    events: list[str] = []
    with (
        observers.listen(observers.buffer_allocated, lambda **facts: events.append("allocated")),
        observers.listen(observers.buffer_freed, lambda **facts: events.append("freed")),
    ):
        buffer = Buffer(name, 1 << 20, dtypes.uint8)
        assert GlobalCounters.mem_used == before
        buffer.ensure_allocated()
        assert GlobalCounters.mem_used == before + (1 << 20)
        assert device.allocator.used == used + (1 << 20)
        del buffer
        gc.collect()
    assert GlobalCounters.mem_used == before and device.allocator.used == used
    assert events == ["allocated", "freed"]


def test_out_of_memory_is_an_error_and_the_next_allocation_works(
    name: str, make: MakeBuffer
) -> None:
    with pytest.raises(OutOfMemoryError, match="asked for"):
        Buffer(name, 1 << 58, dtypes.uint8).ensure_allocated()
    make(np.arange(10)).numpy()
