"""An evaluator of index expressions that shares nothing with tgcore but the names of the ops."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from tgcore.uop import Ops, UOp

MEANING = {
    Ops.ADD: lambda a, b: a + b,
    Ops.MUL: lambda a, b: a * b,
    Ops.IDIV: lambda a, b: a // b,
    Ops.MOD: lambda a, b: a % b,
    Ops.MAX: max,
    Ops.CMPLT: lambda a, b: a < b,
    Ops.CMPNE: lambda a, b: a != b,
    Ops.CMPEQ: lambda a, b: a == b,
    Ops.AND: lambda a, b: a & b,
    Ops.OR: lambda a, b: a | b,
    Ops.WHERE: lambda c, a, b: a if c else b,
    Ops.CAST: lambda a: a,
}


def value_of(expression: UOp, variables: Mapping[str, int]) -> Any:
    """The value of the expression where the variables have these values."""
    values: dict[UOp, Any] = {}
    for node in expression.toposort():
        if node.op is Ops.CONST:
            values[node] = node.arg
        elif node.op is Ops.DEFINE_VAR:
            values[node] = variables[node.arg[0]]
        else:
            values[node] = MEANING[node.op](*[values[s] for s in node.src])
    return values[expression]


def assignments(variables: list[UOp]) -> Iterator[dict[str, int]]:
    """All values that the variables can have together."""
    spans = [range(v.arg[1], v.arg[2] + 1) for v in variables]
    for chosen in itertools.product(*spans):
        yield {v.arg[0]: value for v, value in zip(variables, chosen)}
