"""From one kernel to a linear program: optimise, expand, lower, linearise."""

from tgcore.codegen.opt import Kernel, Opt, OptOps, optimize_by_hand
from tgcore.codegen.pipeline import OptimizedKernel, lower_kernel, optimize
from tgcore.codegen.program import Estimates, ProgramSpec
from tgcore.codegen.target import Fragment, Target, TensorCore

__all__ = [
    "Estimates",
    "Fragment",
    "Kernel",
    "Opt",
    "OptOps",
    "OptimizedKernel",
    "ProgramSpec",
    "Target",
    "TensorCore",
    "lower_kernel",
    "optimize",
    "optimize_by_hand",
]
