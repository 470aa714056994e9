"""Queues, signals, the timeline, profiles."""

from __future__ import annotations

import pytest

from tgcore.errors import DeviceError
from tgcore.hcq.device import HCQDevice
from tgcore.hcq.symbol import Symbol
from tgcore.helpers import Context
from tgcore.testing import kernels
from tgcore.testing.conftest import MakeBuffer


def test_signal(hcq: HCQDevice) -> None:
    signal = hcq.new_signal()
    assert signal.value == 0
    hcq.compute_queue().signal(signal, 7).submit(hcq)
    assert signal.wait(7, timeout=10) and signal.value == 7


def test_wait_in_a_queue(hcq: HCQDevice) -> None:
    first, second = hcq.new_signal(), hcq.new_signal()
    hcq.compute_queue().signal(first, 3).submit(hcq)
    hcq.compute_queue().wait(first, 3).signal(second, 1).submit(hcq)
    assert second.wait(1, timeout=10)


def test_timestamps_grow(hcq: HCQDevice) -> None:
    first, second = hcq.new_signal(), hcq.new_signal()
    hcq.compute_queue().timestamp(first).timestamp(second).signal(second, 1).submit(hcq)
    assert second.wait(1, timeout=10)
    assert 0 <= first.timestamp <= second.timestamp


def test_a_bound_queue_is_patched(hcq: HCQDevice) -> None:
    signal = hcq.new_signal()
    queue = hcq.compute_queue().signal(signal, Symbol("n") + 1).bind(hcq)
    for n in range(1, 100):
        queue.submit(hcq, {"n": n})
        assert signal.wait(n + 1, timeout=10) and signal.value == n + 1


def test_the_timeline_advances(hcq: HCQDevice, make: MakeBuffer) -> None:
    before = hcq.submitted
    kernels.add_variable(hcq)([make([0])], [1])
    assert hcq.submitted > before
    hcq.synchronize()
    assert hcq.timeline.value == hcq.submitted


def test_a_hanging_device_is_an_error_that_names_it(hcq: HCQDevice) -> None:
    with Context(HCQ_TIMEOUT=50), pytest.raises(DeviceError, match=hcq.name):
        hcq.wait_for(hcq.submitted + 1)
    hcq.synchronize()


def test_profile(hcq: HCQDevice, make: MakeBuffer) -> None:
    program, data = kernels.add_variable(hcq), make([0])
    hcq.synchronize()
    del hcq.profile[:]
    with Context(PROFILE=1):
        program([data], [1])
        program([data], [2])
        hcq.synchronize()
    events = [event for event in hcq.profile if event.name == program.function_name]
    assert len(events) == 2
    assert events[0].start <= events[0].end <= events[1].start <= events[1].end
