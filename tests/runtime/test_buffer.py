"""Buffers, allocators and the file device."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

from tgcore.dtype import dtypes
from tgcore.errors import DeviceError, OutOfMemoryError
from tgcore.runtime.allocator import LRUAllocator
from tgcore.runtime.buffer import Buffer
from tgcore.runtime.device import Device


class Fake(LRUAllocator[int]):
    """Numbers instead of memory; at most 100 bytes."""

    def __init__(self) -> None:
        super().__init__("FAKE", bytes_kept=80)
        self.held: dict[int, int] = {}
        self.count = 0

    def _alloc(self, nbytes: int) -> int:
        if sum(self.held.values()) + nbytes > 100:
            raise MemoryError
        self.count += 1
        self.held[self.count] = nbytes
        return self.count

    def _free(self, memory: int, nbytes: int) -> None:
        assert self.held.pop(memory) == nbytes

    def copyin(self, dest: int, source: memoryview) -> None: ...
    def copyout(self, dest: memoryview, source: int) -> None: ...
    def offset(self, memory: int, nbytes: int, offset: int) -> int:
        return memory


def test_freed_memory_is_used_again() -> None:
    fake = Fake()
    first = fake.alloc(40)
    fake.free(first, 40)
    assert fake.held == {1: 40} and fake.used == 0
    assert fake.alloc(40) == first and fake.used == 40
    assert fake.alloc(20) != first


def test_the_oldest_is_dropped() -> None:
    fake = Fake()
    pieces = [(fake.alloc(n), n) for n in (10, 30, 50)]
    for memory, nbytes in pieces:
        fake.free(memory, nbytes)
    assert list(fake.held.values()) == [30, 50]


def test_out_of_memory_frees_what_is_kept_then_complains() -> None:
    fake = Fake()
    fake.free(fake.alloc(60), 60)
    fake.alloc(70)
    assert list(fake.held.values()) == [70]
    with pytest.raises(OutOfMemoryError, match=r"31 bytes were asked for\n  why:  70 bytes are in"):
        fake.alloc(31)
    fake.alloc(30)


def test_a_file_is_a_buffer(tmp_path: Path) -> None:
    path = tmp_path / "Some File"
    values = np.arange(10, dtype=np.float32)
    buffer = Buffer(f"DISK:{path}", 10, dtypes.float32, initial=values.tobytes())
    np.testing.assert_array_equal(buffer.numpy(), values)
    np.testing.assert_array_equal(buffer.view(2, dtypes.float32, 8).numpy(), [2, 3])
    del buffer
    gc.collect()
    np.testing.assert_array_equal(np.fromfile(path, dtype=np.float32), values)


def test_trouble_with_files(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="No such file"):
        Buffer(f"DISK:{tmp_path}/no/file", 4, dtypes.uint8).ensure_allocated()
    with pytest.raises(DeviceError, match="names no file"):
        Device["DISK"]
    device = Device[f"DISK:{tmp_path}/x"]
    with pytest.raises(DeviceError, match="runs no programs"):
        _ = device.renderer


def test_a_view_must_lie_inside_its_base() -> None:
    base = Buffer("DISK:/none", 4, dtypes.int32)
    with pytest.raises(ValueError, match="not inside"):
        base.view(2, dtypes.int32, 12)
    with pytest.raises(ValueError, match="whole buffer"):
        Buffer("DISK:/none", 1, dtypes.int32, base=base.view(2, dtypes.int32, 4))


def test_sizes_are_checked(tmp_path: Path) -> None:
    buffer = Buffer(f"DISK:{tmp_path}/x", 4, dtypes.int32)
    with pytest.raises(ValueError, match="do not fill"):
        buffer.copyin(memoryview(b"123"))
    with pytest.raises(ValueError, match="do not hold"):
        buffer.copyout(memoryview(bytearray(3)))


def test_memory_of_others() -> None:
    pytest.importorskip("tg_cpu")
    array = np.arange(8, dtype=np.int32)
    buffer = Buffer.external("CPU", array.ctypes.data, 8, dtypes.int32, array)
    buffer.copyin(memoryview(np.full(8, 3, dtype=np.int32)))
    assert array.tolist() == [3] * 8
    address = buffer.memory.address
    del array
    gc.collect()
    assert buffer.numpy().tolist() == [3] * 8 and buffer.memory.address == address


def test_zero_copy_arrays_keep_the_memory() -> None:
    pytest.importorskip("tg_cpu")
    buffer = Buffer("CPU", 1 << 16, dtypes.int32, initial=bytes(1 << 18))
    array = buffer.numpy(copy=False)
    buffer.copyin(memoryview(np.full(1 << 16, 7, dtype=np.int32)))
    del buffer
    gc.collect()
    other = Buffer("CPU", 1 << 16, dtypes.int32, initial=bytes(1 << 18))
    assert array.min() == array.max() == 7 and other.numpy().max() == 0


def test_freeing_amid_an_allocation_does_not_block() -> None:
    fake = Fake()
    piece = fake.alloc(40)
    with fake._lock:  # as the garbage collector may find it
        fake.free(piece, 40)
        assert fake.used == 40
    assert fake.alloc(30) != piece
    assert fake.used == 30 and fake.alloc(40) == piece


def test_memory_that_is_not_kept_waits_for_the_queue() -> None:
    pytest.importorskip("tg_cpu")
    device = Device["CPU"]
    kept = device.allocator.bytes_kept  # type: ignore[attr-defined]
    device.allocator.bytes_kept = 0  # type: ignore[attr-defined]
    try:
        source = Buffer("CPU", 1 << 20, dtypes.uint8, initial=b"a" * (1 << 20))
        for _ in range(200):
            copy = Buffer("CPU", 1 << 20, dtypes.uint8).copy_from(source)
            source, copy = copy, source
        assert source.numpy().min() == source.numpy().max() == ord("a")
    finally:
        device.allocator.bytes_kept = kept  # type: ignore[attr-defined]
