"""Runs a schedule: finds the buffers, compiles what is new, launches, counts, and reports.

`buffers` is the registry that gives each BUFFER node its memory. A kernel that ran before costs a
few dictionary look-ups and the launch.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tgcore.codegen.program import ProgramSpec
from tgcore.errors import TgcoreError
from tgcore.helpers import (
    DEBUG,
    IGNORE_OOB,
    NOOPT,
    PCONTIG,
    THREADS,
    ansilen,
    ansistrip,
    colored,
)
from tgcore.plugin import observers
from tgcore.runtime.buffer import Buffer
from tgcore.runtime.compile import compile_ahead, get_program
from tgcore.runtime.compiled import CompiledDevice, Dims, Program
from tgcore.runtime.counters import GlobalCounters
from tgcore.runtime.device import Device
from tgcore.schedule.item import ScheduleItem
from tgcore.uop.node import UOp, infer, sint
from tgcore.uop.ops import Ops

_NAME_COLUMNS: Final = 44

# *** the memory of BUFFER nodes ***

buffers: Final[weakref.WeakKeyDictionary[UOp, Buffer]] = weakref.WeakKeyDictionary()
"""The buffer of every BUFFER (and BUFFER_VIEW) node that has one; it goes with the node."""


def buffer_of(node: UOp) -> Buffer:
    """The buffer that a BUFFER or BUFFER_VIEW node stands for; made if there is none."""
    found = buffers.get(node)
    if found is None:
        found = buffers[node] = _new_buffer(node)
    return found


def _new_buffer(node: UOp) -> Buffer:
    if node.op is Ops.BUFFER_VIEW:
        size, offset = node.arg
        return buffer_of(node.src[0]).view(size, node.dtype, offset)
    if node.op is not Ops.BUFFER:
        raise TgcoreError(f"{node.op} has no memory of its own: {node}")
    return Buffer(Device.canonicalize(node.src[1].arg), node.arg, node.dtype)


# *** kernels, ready to launch ***


class Kernel:
    """A program on a device, with what a launch needs worked out once."""

    __slots__ = ("device", "launch", "positions", "program", "runs", "spec", "symbolic",
                 "variable_names")  # fmt: skip

    def __init__(self, device: CompiledDevice, program: Program, spec: ProgramSpec) -> None:
        self.device, self.program, self.spec = device, program, spec
        self.positions = spec.globals
        self.variable_names = tuple(v.arg[0] for v in spec.vars)
        self.runs = 0
        sizes = (*(spec.global_size or ()), *(spec.local_size or ()))
        self.symbolic = any(isinstance(size, UOp) for size in sizes)
        self.launch = None if self.symbolic else launch_sizes(spec, {})

    def run(
        self, memory: Sequence[Buffer], variables: Mapping[str, int], wait: bool
    ) -> float | None:
        """Launch on buffers in the order of `spec.globals`."""
        for buffer in memory:
            if buffer._memory is None:
                buffer.ensure_allocated()
        values = [variables[name] for name in self.variable_names]
        sizes = self.launch or launch_sizes(self.spec, variables)
        self.runs += 1
        return self.program(memory, values, global_size=sizes[0], local_size=sizes[1], wait=wait)


def launch_sizes(spec: ProgramSpec, variables: Mapping[str, int]) -> tuple[Dims, Dims]:
    """The launch's sizes as numbers."""
    return _dims(spec.global_size, variables), _dims(spec.local_size, variables)


def _dims(sizes: tuple[sint, ...] | None, variables: Mapping[str, int]) -> Dims:
    if sizes is None:
        return (1, 1, 1)
    x, y, z = (*(infer(size, variables) for size in sizes), 1, 1, 1)[:3]
    return (x, y, z)


_MOST_KERNELS: Final = 4096  # kept loaded; the oldest goes first
_kernels: dict[tuple[UOp, str, int, int, int, int], Kernel] = {}


def kernel_for(ast: UOp, device_name: str) -> Kernel:
    """The kernel on that device; compiled and loaded on first use."""
    key = (ast, device_name, NOOPT.value, PCONTIG.value, THREADS.value, IGNORE_OOB.value)
    found = _kernels.get(key)
    device = Device[device_name]
    if found is None or found.device is not device:  # new, or the device was closed meanwhile
        spec, binary = get_program(ast, device.renderer, device.compiler)
        if observers.kernel_scheduled:
            observers.kernel_scheduled(name=spec.name, device=device_name, kernel=ast)
        program = device.load(spec.function_name, binary, spec)
        found = _kernels[key] = Kernel(device, program, spec)
        if len(_kernels) > _MOST_KERNELS:
            del _kernels[next(iter(_kernels))]
    return found


def clear_kernel_cache() -> None:
    """Forget loaded kernels (for tests)."""
    _kernels.clear()


# *** running ***

Recorder = Callable[[ScheduleItem, "Kernel | None", "list[Buffer]"], None]
recorders: Final[list[Recorder]] = []
"""Who is told of every item that has run."""


def run(items: Sequence[ScheduleItem], variables: Mapping[str, int] | None = None) -> None:
    """Run the items in order. Returns when all are queued, not when they are done."""
    known = variables if variables is not None else {}
    for number, item in enumerate(items):
        if item.ast not in _seen and item.ast.op is Ops.SINK:
            _look_ahead(items[number:])
        run_item(item, known)


_seen: Final[weakref.WeakSet[UOp]] = weakref.WeakSet()  # kernels that `run` came across


def _look_ahead(items: Sequence[ScheduleItem]) -> None:
    """Have new kernels compiled in the background, if there are several."""
    new: dict[str, dict[UOp, None]] = {}
    for item in items:
        if item.ast.op is Ops.SINK and item.ast not in _seen:
            new.setdefault(buffer_of(item.buffers[0]).device, {})[item.ast] = None
            _seen.add(item.ast)
    for name, kernels in new.items():
        device = Device[name]
        if len(kernels) > 1 and device.runs_programs:
            compile_ahead(kernels, device.renderer, device.compiler)


def run_item(item: ScheduleItem, variables: Mapping[str, int]) -> None:
    """Run one item."""
    op = item.ast.op
    if op is Ops.SINK:
        _run_kernel(item, variables)
    elif op is Ops.COPY:
        _run_copy(item)
    elif op is Ops.BUFFER_VIEW:
        target, source = item.buffers
        size, offset = item.ast.arg
        buffers[target] = buffer_of(source).view(size, item.ast.dtype, offset)
    else:
        raise TgcoreError(f"a schedule cannot hold {op}: {item.ast}")


def _run_kernel(item: ScheduleItem, variables: Mapping[str, int]) -> None:
    everything = [buffer_of(node) for node in item.buffers]
    kernel = kernel_for(item.ast, everything[0].device)
    positions = kernel.positions
    memory = everything if len(positions) == len(everything) else [everything[p] for p in positions]
    if DEBUG >= 2:
        is_first = kernel.runs == 0
        seconds = kernel.run(memory, variables, True)
        count_kernel(kernel.spec, variables, seconds)
        report_kernel(kernel, variables, seconds, item.metadata, "green" if is_first else None)
    else:
        kernel.run(memory, variables, False)
        count_kernel(kernel.spec, variables, None)
    if observers.kernel_launched:
        observers.kernel_launched(
            name=kernel.spec.name, device=everything[0].device, buffers=memory
        )
    for recorder in recorders:
        recorder(item, kernel, memory)


def _run_copy(item: ScheduleItem) -> None:
    target, source = (buffer_of(node) for node in item.buffers)
    copy_buffer(target, source, item.metadata)
    for recorder in recorders:
        recorder(item, None, [target, source])


def copy_buffer(target: Buffer, source: Buffer, metadata: Sequence[str] = ()) -> None:
    """Copy, count and report."""
    if DEBUG < 2:
        target.copy_from(source)
        count(0, source.nbytes, None)
        return
    start = time.perf_counter()
    target.copy_from(source)
    Device[target.device].synchronize()
    seconds = time.perf_counter() - start
    count(0, source.nbytes, seconds)
    name = colored(f"copy {source.nbytes:10d}, {target.device} <- {source.device}", "yellow")
    estimates = (0, source.nbytes, source.nbytes)
    report(target.device, name, 2, seconds, estimates, metadata=metadata)


# *** counting ***


def count(ops: int, mem: int, seconds: float | None, kernels: int = 1) -> None:
    """Add to the global counters."""
    GlobalCounters.kernel_count += kernels
    GlobalCounters.global_ops += ops
    GlobalCounters.global_mem += mem
    if seconds is not None:
        GlobalCounters.time_sum_s += seconds


def count_kernel(spec: ProgramSpec, variables: Mapping[str, int], seconds: float | None) -> None:
    """Add one run of a kernel to the global counters."""
    estimates = spec.estimates
    ops, mem = estimates.ops, estimates.mem
    count(
        ops if isinstance(ops, int) else infer(ops, variables),
        mem if isinstance(mem, int) else infer(mem, variables),
        seconds,
    )


# *** one line a kernel ***


def report_kernel(
    kernel: Kernel,
    variables: Mapping[str, int],
    seconds: float | None,
    metadata: Sequence[str] = (),
    color: str | None = None,
) -> None:
    """Print the line that DEBUG=2 promises."""
    spec = kernel.spec
    estimates = spec.estimates
    ops, mem, lds = (infer(v, variables) for v in (estimates.ops, estimates.mem, estimates.lds))
    count_of_args = len(spec.globals) + len(spec.vars)
    report(
        kernel.device.name,
        spec.name,
        count_of_args,
        seconds,
        (ops, mem, lds),
        metadata=metadata,
        color=color,
    )


def report(
    device: str,
    name: str,
    args: int,
    seconds: float | None,
    estimates: tuple[int, int, int],
    *,
    metadata: Sequence[str] = (),
    color: str | None = None,
) -> None:
    """Print a line for something that ran; `color` marks first runs and jitted ones."""
    if os.environ.get("NO_COLOR"):
        name = ansistrip(name)
    head = colored(f"*** {device[:7]:7s} {GlobalCounters.kernel_count:4d}", color)
    padded = name + " " * (_NAME_COLUMNS - ansilen(name))
    line = f"{head} {padded} arg {args:2d} mem {GlobalCounters.mem_used / 1e9:6.2f} GB"
    if seconds is not None:
        total = GlobalCounters.time_sum_s * 1e3
        line += f" tm {_time(seconds)}/{total:9.2f}ms ({_rates(estimates, seconds)})"
    print(f"{line} {' '.join(metadata)}".rstrip())


def _time(seconds: float) -> str:
    for unit, scale, color in (("s ", 1.0, "red"), ("ms", 1e-3, "yellow")):
        if seconds >= 10 * scale:
            return colored(f"{seconds / scale:9.2f}{unit}", color)
    return f"{seconds * 1e6:9.2f}us"


def _rates(estimates: tuple[int, int, int], seconds: float) -> str:
    ops, mem, lds = (value / max(seconds, 1e-20) for value in estimates)
    if ops < 1e14:
        arithmetic = f"{ops / 1e9:9.2f} GFLOPS"
    else:
        arithmetic = colored(f"{ops / 1e12:9.2f} TFLOPS", "green")
    if mem < 1e13 and lds < 1e15:
        return f"{arithmetic} {mem / 1e9:6.1f}|{lds / 1e9:<7.1f} GB/s"
    return f"{arithmetic} " + colored(f"{mem / 1e12:6.1f}|{lds / 1e12:<7.1f} TB/s", "green")
