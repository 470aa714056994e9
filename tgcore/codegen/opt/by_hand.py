"""The moves that a kernel gets if nobody chose others."""

from __future__ import annotations

from tgcore.codegen.opt.grid import optimize_for_grid
from tgcore.codegen.opt.kernel import Kernel
from tgcore.codegen.opt.vectors import optimize_for_vectors


def optimize_by_hand(kernel: Kernel) -> None:
    """Applies the default moves for the kernel's target."""
    if kernel.target.parallel_grid:
        optimize_for_grid(kernel)
    else:
        optimize_for_vectors(kernel)
