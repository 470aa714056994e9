"""Runs tensor graphs with the reference interpreter instead of a device."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.codegen.running import VECTORS, program
from tgcore.runtime.compile import make_program
from tgcore.runtime.device import Device
from tgcore.runtime.execute import buffers
from tgcore.schedule import create_schedule
from tgcore.schedule.item import ScheduleItem
from tgcore.testing.interpreter import Counts, run_program
from tgcore.testing.lanes import numpy_type
from tgcore.uop import Ops, UOp
from tgcore.uop.node import infer

Array = NDArray[Any]
Lowering = Callable[[UOp], Sequence[UOp]]


def for_device(ast: UOp) -> Sequence[UOp]:
    """The program that the CPU is given: without what it cannot compute."""
    return make_program(ast, Device["CPU"].renderer).uops


def for_vectors(ast: UOp) -> Sequence[UOp]:
    """The program for a device with vectors, with all ops on all types still in it."""
    return program(ast)


def as_written(ast: UOp) -> Sequence[UOp]:
    """The program without moves: plain loops over scalars."""
    return program(ast, [], VECTORS)


def interpreted(
    *nodes: UOp, lowering: Lowering = for_device, variables: Mapping[str, int] | None = None
) -> list[Array]:
    """The values of the nodes, every kernel run by the interpreter."""
    wanted = [n.contiguous() for n in nodes]
    schedule = create_schedule(UOp.sink(*wanted), "CPU")
    memory: dict[UOp, Array] = {}
    for _ in run_schedule(schedule.items, memory, lowering, variables or schedule.variables):
        pass
    found = []
    for node in wanted:
        output = schedule.outputs[node]
        shape = [infer(size, schedule.variables) for size in output.known_shape]
        flat = _memory_of(output.base, memory).reshape(-1)
        found.append(flat[: math.prod(shape)].reshape(shape))
    return found


def run_schedule(
    items: Sequence[ScheduleItem],
    memory: dict[UOp, Array],
    lowering: Lowering,
    variables: Mapping[str, int],
) -> Iterator[tuple[Sequence[UOp], Counts]]:
    """Runs kernel after kernel; gives each one's program and counts."""
    for item in items:
        arrays = [_memory_of(b, memory) for b in item.buffers]
        assert item.ast.op is Ops.SINK, "only kernels can be interpreted"
        linear = lowering(item.ast)
        yield linear, run_program(linear, dict(enumerate(arrays)), variables)


def _memory_of(buffer: UOp, memory: dict[UOp, Array]) -> Array:
    """The elements of a BUFFER: a copy of what it holds, or nothing of use yet."""
    kind = numpy_type(buffer.dtype)
    if buffer.op is Ops.BUFFER_VIEW:
        size, offset = buffer.arg
        raw = _memory_of(buffer.src[0], memory).view(np.uint8)
        return raw[offset : offset + size * kind.itemsize].view(kind)
    if buffer not in memory:
        known = buffers.get(buffer)
        if known is None:
            memory[buffer] = np.full(buffer.arg, 77).astype(kind)
        else:
            memory[buffer] = np.frombuffer(known.numpy().tobytes(), kind).copy()
    return memory[buffer]
