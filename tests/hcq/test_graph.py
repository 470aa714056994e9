"""Graphs over several devices, with copies and a copy queue of its own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.hcq import kernels
from tgcore.dtype import dtypes
from tgcore.hcq.device import HCQDevice
from tgcore.hcq.graph import HCQGraph
from tgcore.hcq.memory import HCQMemory
from tgcore.runtime.buffer import Buffer
from tgcore.runtime.compiled import CompiledDevice, CopyCall, GraphCall, GraphError, ProgramCall
from tgcore.runtime.device import Device
from tgcore.uop.node import UOp

pytest.importorskip("tg_cpu")
from tg_cpu.device import CPUQueue
from tg_cpu.workers import Processor


def make(device: str, *values: int) -> Buffer:
    return Buffer(
        device, len(values), dtypes.int32, initial=np.array(values, dtype=np.int32).tobytes()
    )


def test_two_devices() -> None:
    first, second = Device["CPU"], Device["CPU:1"]
    on_first, on_second = kernels.load(first, "add", 3), kernels.load(second, "add", 3)
    given, a = make("CPU", 1, 2, 3, 4), make("CPU", 0, 0, 0, 0)
    b, c = make("CPU:1", 0, 0, 0, 0), make("CPU:1", 0, 0, 0, 0)
    back = make("CPU", 0, 0, 0, 0)
    calls: list[GraphCall] = [
        ProgramCall(on_first, (a, given, given)),
        CopyCall(b, a),
        ProgramCall(on_second, (c, b, b)),
        CopyCall(back, c),
        ProgramCall(on_first, (a, back, given)),
    ]
    graph = HCQGraph(first, calls, {(0, 1): 0, (0, 2): 0, (4, 2): 0})
    for n in range(50):
        graph.replay([make("CPU", n, n + 1, n + 2, 7)])
        np.testing.assert_array_equal(a.numpy(), 5 * np.array([n, n + 1, n + 2, 7]))
        np.testing.assert_array_equal(c.numpy(), 4 * np.array([n, n + 1, n + 2, 7]))


def test_a_host_file_cannot_be_in_a_graph(tmp_path: object) -> None:
    there = make(f"DISK:{tmp_path}/file", 1, 2, 3, 4)
    with pytest.raises(GraphError):
        HCQGraph(Device["CPU"], [CopyCall(make("CPU", 0, 0, 0, 0), there)], {})


def test_missing_inputs() -> None:
    device = Device["CPU"]
    data = make("CPU", 1, 2, 3, 4)
    graph = HCQGraph(device, [CopyCall(make("CPU", 0, 0, 0, 0), data)], {(0, 1): 0})
    with pytest.raises(ValueError, match="1 inputs, 0 were given"):
        graph.replay([])


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[HCQDevice]:
    """A device whose memory the host is told it cannot see, with a queue for copies."""
    device = Device["CPU:3"]
    assert isinstance(device, HCQDevice)
    allocator = device.allocator
    visible = allocator._alloc

    def hidden(nbytes: int) -> HCQMemory:
        memory = visible(nbytes)
        return HCQMemory(memory.address, nbytes, None, memory)

    allocator.free_cache()
    monkeypatch.setattr(allocator, "_alloc", hidden)
    monkeypatch.setattr(allocator, "_alloc_staging", visible, raising=False)
    copier = Processor(1)

    class CopyQueue(CPUQueue):
        """The same packets for a processor of its own."""

        def _submit(self, device: object) -> None:
            copier.submit(self.words)

    monkeypatch.setattr(device, "copy_queue", CopyQueue)
    yield device
    device.synchronize()
    allocator.free_cache()
    assert copier.close()


@pytest.mark.parametrize("size", [1, 1000, 1 << 18, (1 << 20) + 5])
def test_copies_through_staging_memory(apart: CompiledDevice, size: int) -> None:
    values = np.arange(size, dtype=np.int32)
    buffer = Buffer(apart.name, size, dtypes.int32, initial=values.tobytes())
    assert buffer.as_memoryview() is None
    np.testing.assert_array_equal(buffer.numpy(), values)
    other = Buffer("CPU", size, dtypes.int32).copy_from(buffer)
    np.testing.assert_array_equal(other.numpy(), values)
    again = Buffer(apart.name, size, dtypes.int32).copy_from(other)
    np.testing.assert_array_equal(again.numpy(), values)


def test_a_copy_queue_beside_the_compute_queue(apart: HCQDevice) -> None:
    bump = kernels.load(apart, "add_variable", 1, variables=(UOp.variable("n", 0, 100),))
    data, copy, late = (make(apart.name, v) for v in (0, 0, 0))
    calls: list[GraphCall] = [
        ProgramCall(bump, (data,)),
        CopyCall(copy, data),
        ProgramCall(bump, (data,)),
        ProgramCall(bump, (copy,)),
        CopyCall(late, copy),
    ]
    graph = HCQGraph(apart, calls, {}, ["n"])
    assert len(graph._lanes) == 2
    for round_number in range(20):
        graph.replay([], {"n": 3})
        assert data.numpy()[0] == 6 * (round_number + 1)
        assert late.numpy()[0] == copy.numpy()[0] == 6 * round_number + 6
