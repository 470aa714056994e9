"""The intermediate representation: nodes, patterns, rewriting, symbolic algebra."""

from tgcore.uop.node import UOp, Variable, sint
from tgcore.uop.ops import AxisType, GroupOp, Ops

__all__ = ["AxisType", "GroupOp", "Ops", "UOp", "Variable", "sint"]
