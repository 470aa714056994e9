"""Runs tensor graphs on the CPU and gives numpy arrays, without the Tensor class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tgcore.codegen import Opt, lower_kernel, optimize
from tgcore.codegen.late.linearize import linearize
from tgcore.codegen.target import Target
from tgcore.dtype import DType, dtypes
from tgcore.runtime.buffer import Buffer
from tgcore.runtime.device import Device
from tgcore.runtime.execute import buffer_of, buffers, run
from tgcore.schedule import create_schedule
from tgcore.uop import UOp

DEVICE = "CPU"
rng = np.random.default_rng(7)

VECTORS = Target("T", vector_bytes=64, vector_registers=32, masked=True, index_bits=64, threads=2)


def given(array: NDArray[Any], dtype: DType = dtypes.float32) -> UOp:
    """A tensor node over memory that holds the array."""
    node = UOp.new_buffer(DEVICE, array.size, dtype)
    buffers[node] = Buffer(DEVICE, array.size, dtype).copyin(memoryview(array.copy()).cast("B"))
    return node.reshape(array.shape)


def normal(*shape: int) -> NDArray[Any]:
    """Normally distributed float32 numbers."""
    return rng.standard_normal(shape).astype(np.float32)


def result(node: UOp) -> NDArray[Any]:
    """The values of a graph, computed on the CPU."""
    schedule = create_schedule(UOp.sink(node), DEVICE)
    run(schedule.items, schedule.variables)
    output = schedule.outputs[node]
    Device[DEVICE].synchronize()
    return buffer_of(output.base).numpy().reshape(output.known_shape)


def kernel_of(node: UOp) -> UOp:
    """The one kernel that a graph is."""
    (item,) = create_schedule(UOp.sink(node), DEVICE).items
    return item.ast


def program(ast: UOp, opts: Sequence[Opt] | None = None, target: Target = VECTORS) -> list[UOp]:
    """The linear program of a kernel for a device with vectors."""
    return linearize(lower_kernel(optimize(ast, target, opts), target), target)
