"""Kernels for a target with a launch grid that no machine here has, run by the interpreter.

Every program is verified, and its accesses are proved to stay inside their memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.testing.interpreting import interpreted
from tgcore import Tensor
from tgcore.codegen import Opt, Target, optimize
from tgcore.helpers import Context
from tgcore.renderer.base import Renderer
from tgcore.runtime.compile import make_program
from tgcore.uop import Ops, UOp

# what languages for such devices can write; no MULACC, which takes the interpreter long
_WRITTEN = frozenset(
    {
        *(Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.SQRT, Ops.RECIPROCAL, Ops.TRUNC, Ops.NEG, Ops.SUB),
        *(Ops.FDIV, Ops.IDIV, Ops.MOD, Ops.MAX, Ops.SHL, Ops.SHR, Ops.CMPEQ),
    }
)
GRID = Target(
    "GRID",
    ops=_WRITTEN,
    memory_widths=(2, 4, 8, 16),
    global_max=((1 << 31) - 1, 65535, 65535),
    local_max=(1024, 1024, 64),
    local_items=1024,
    local=True,
    local_bytes=48 << 10,
)
SMALL = replace(
    GRID, global_max=(9, 8, 7), local_max=(8, 8, 4), local_items=32, local_bytes=1 << 10
)


class Unwritten(Renderer):
    """A renderer without a language."""

    def render(self, uops: Sequence[UOp], function_name: str) -> str:
        return ""


def grid_program(
    ast: UOp, opts: Sequence[Opt] | None = None, target: Target = GRID
) -> Sequence[UOp]:
    """The linear program, verified."""
    with Context(SPEC=1, IGNORE_OOB=0):
        return make_program(ast, Unwritten(target), optimize(ast, target, opts)).uops


def run_on_grid(
    *results: UOp | Tensor,
    opts: Sequence[Opt] | None = None,
    target: Target = GRID,
    variables: Mapping[str, int] | None = None,
) -> list[NDArray[Any]]:
    """The values of the graphs; the moves are for all of their kernels (None: heuristics)."""
    nodes = [r.uop if isinstance(r, Tensor) else r for r in results]
    return interpreted(
        *nodes, lowering=lambda ast: grid_program(ast, opts, target), variables=variables
    )


def launch_of(program: Sequence[UOp]) -> dict[str, Any]:
    """The sizes of the launch: ints, or nodes where they are symbolic."""
    return {
        n.arg: n.src[0].arg if n.src[0].op is Ops.CONST else n.src[0]
        for n in program
        if n.op is Ops.SPECIAL
    }


def close(found: NDArray[Any], expected: NDArray[Any], tolerance: float = 1e-5) -> None:
    """Equal but for rounding, relative to the greatest value."""
    scale = float(np.abs(expected.astype(np.float64)).max(initial=1.0))
    np.testing.assert_allclose(
        found.astype(np.float64).reshape(expected.shape),
        expected.astype(np.float64),
        atol=tolerance * scale,
        rtol=tolerance,
    )
