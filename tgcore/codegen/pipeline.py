"""One kernel, from its AST to a graph that can be linearised.

In: a kernel as the scheduler made it. Out: loads, stores, accumulators and machine arithmetic that
the device's language can write, ready for `late.linearize`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tgcore.codegen.expand import expand
from tgcore.codegen.lower import define_local_buffers, lower
from tgcore.codegen.opt import Kernel, Opt, optimize_by_hand
from tgcore.codegen.simplify import cut_loops, simplify_kernel
from tgcore.codegen.target import Target
from tgcore.helpers import NOOPT, colored
from tgcore.uop.node import UOp, to_sint
from tgcore.uop.ops import AXIS_STYLE, AxisType


@dataclass(frozen=True)
class OptimizedKernel:
    """A kernel with the moves made: its name tells its kind and its axes, in colours."""

    ast: UOp
    name: str
    opts: tuple[Opt, ...]
    threads: int


def optimize(ast: UOp, target: Target, opts: Sequence[Opt] | None = None) -> OptimizedKernel:
    """The kernel simplified and optimised: by the given moves, or by the default ones."""
    simple = simplify_kernel(define_local_buffers(ast))
    if opts is None and not NOOPT and not target.parallel_grid:
        pieces = cut_loops(simple)
        if pieces is not simple:
            return _optimize_pieces(pieces, target)
    kernel = Kernel(simple, target)
    if opts is not None:
        for opt in opts:
            kernel.apply(opt)
    elif not NOOPT:
        optimize_by_hand(kernel)
    return _finished(kernel)


def _optimize_pieces(ast: UOp, target: Target) -> OptimizedKernel:
    """Loops in a row are optimised one by one; they are too short to be shared by threads."""
    alone = replace(target, threads=0)
    kernels = [Kernel(UOp.sink(effect), alone) for effect in ast.src]
    for kernel in kernels:
        optimize_by_hand(kernel)
    longest = max(kernels, key=lambda k: math.prod(r.vmax + 1 for r in k.ranges))
    effects = tuple(effect for kernel in kernels for effect in kernel.ast.src)
    return OptimizedKernel(
        ast.replace(src=effects), kernel_name(longest), tuple(longest.applied), 1
    )


def _finished(kernel: Kernel) -> OptimizedKernel:
    threads = 1
    for r in kernel.ranges:
        if r.axis_type is AxisType.THREAD:
            threads = r.vmax + 1
    return OptimizedKernel(kernel.ast, kernel_name(kernel), tuple(kernel.applied), threads)


def kernel_name(kernel: Kernel) -> str:
    """`r_64_16_4`: r for a reduce, E for elementwise, then the axes' sizes, coloured by type."""
    kind = "r" if kernel.reduces else "E"
    parts = [kind]
    for r in kernel.ranges:
        size = to_sint(r.src[0])
        text = str(size) if isinstance(size, int) else "_".join(v.arg[0] for v in size.variables())
        parts.append(colored(text, AXIS_STYLE[r.axis_type].color))
    return colored("_", "black").join(parts) if len(parts) > 1 else kind


def lower_kernel(optimized: OptimizedKernel, target: Target) -> UOp:
    """The optimised kernel as loads, stores and machine arithmetic."""
    return lower(expand(optimized.ast, target), target)
