"""Optimisation of one kernel: moves on its ranges, and who chooses them."""

from tgcore.codegen.opt.by_hand import optimize_by_hand
from tgcore.codegen.opt.kernel import Kernel, Opt, OptOps

__all__ = ["Kernel", "Opt", "OptOps", "optimize_by_hand"]
