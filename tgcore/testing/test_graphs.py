"""Captured calls are replayed as one, with other inputs and variables."""

from __future__ import annotations

import numpy as np
import pytest

from tgcore.dtype import dtypes
from tgcore.hcq.device import HCQDevice
from tgcore.helpers import Context
from tgcore.runtime.compiled import CompiledDevice, CopyCall, Graph, GraphCall, ProgramCall
from tgcore.testing import kernels
from tgcore.testing.conftest import MakeBuffer
from tgcore.uop.ops import Ops


@pytest.fixture
def graph(device: CompiledDevice) -> type[Graph]:
    """The device's class of graphs."""
    if device.graph is None:
        pytest.skip(f"{device.name} has no graphs")
    return device.graph


def test_replay(
    device: CompiledDevice, graph: type[Graph], make: MakeBuffer, executes: bool
) -> None:
    add = kernels.elementwise(device, Ops.ADD, dtypes.int32, 4, 2)
    given, middle, result = make([1, 2, 3, 4]), make([0] * 4), make([0] * 4)
    calls = [ProgramCall(add, (middle, given, given)), ProgramCall(add, (result, middle, given))]
    inputs = {(0, 1): 0, (0, 2): 0, (1, 2): 0}
    captured = graph(device, calls, inputs)
    for values in ([1, 2, 3, 4], [5, 5, 5, 5], [0, -1, 7, 100]):
        captured.replay([make(values)])
        if executes:
            np.testing.assert_array_equal(result.numpy(), 3 * np.array(values))


def test_variables_and_copies(
    device: CompiledDevice, graph: type[Graph], make: MakeBuffer, executes: bool
) -> None:
    bump = kernels.add_variable(device)
    data, copy = make([0]), make([0])
    calls: list[GraphCall] = [ProgramCall(bump, (data,))] * 3
    calls += [CopyCall(copy, data), ProgramCall(bump, (data,))]
    captured = graph(device, calls, {(3, 0): 0}, ["n"])
    total = 0
    for n in (1, 10, 100):
        captured.replay([copy], {"n": n})
        if executes:
            assert copy.numpy()[0] == total + 3 * n
        total += 4 * n
    if executes:
        assert data.numpy()[0] == total


def test_replays_do_not_overtake_each_other(
    device: CompiledDevice, graph: type[Graph], make: MakeBuffer, executes: bool
) -> None:
    bump, data = kernels.add_variable(device), make([0])
    captured = graph(device, [ProgramCall(bump, (data,))] * 50, {}, ["n"])
    for n in range(100):
        captured.replay([], {"n": n})
    if executes:
        assert data.numpy()[0] == 50 * sum(range(100))


def test_time_and_profile(device: CompiledDevice, graph: type[Graph], make: MakeBuffer) -> None:
    bump, data = kernels.add_variable(device), make([0])
    captured = graph(device, [ProgramCall(bump, (data,))], {}, ["n"])
    seconds = captured.replay([], {"n": 1}, wait=True)
    assert seconds is not None and seconds >= 0
    if isinstance(device, HCQDevice):
        with Context(PROFILE=1):
            profiled = graph(device, [ProgramCall(bump, (data,))] * 3, {}, ["n"])
            del device.profile[:]
            profiled.replay([], {"n": 1})
        names = [event.name for event in device.profile]
        assert names.count(bump.function_name) == 3


def test_a_long_graph(
    device: CompiledDevice, graph: type[Graph], make: MakeBuffer, executes: bool
) -> None:
    bump, data = kernels.add_variable(device), make([0])
    captured = graph(device, [ProgramCall(bump, (data,))] * 20_000, {}, ["n"])
    for n in (1, 2, 3):
        captured.replay([], {"n": n})
    if executes:
        assert data.numpy()[0] == 20_000 * 6
