"""Verifying graphs against their specs, and every node when it is made.

SPEC=1 verifies the graphs between the stages: tensor graphs, kernels, linear programs. SPEC=2
verifies each node as it is made, too, and that each verified graph survives the trip through Python
text; SPEC=3 makes that trip for every node. With SPEC set, nodes know what made them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tgcore.dtype import dtypes
from tgcore.errors import SpecError
from tgcore.helpers import SPEC
from tgcore.uop import trace
from tgcore.uop.node import UOp, observe_new_nodes, unobserved
from tgcore.uop.ops import Ops
from tgcore.uop.render import node_survives, pyrender, survives
from tgcore.uop.spec import Spec, spec_full, spec_program

_MOST_LINES: Final = 40
_HERE: Final = str(Path(__file__).parent)


def verify(graph: UOp, spec: Spec, what: str = "") -> None:
    """Raises SpecError for the first node of the graph that the spec does not allow.

    `what` names the graph in the message, beside the spec's level.
    """
    for node in graph.toposort():
        if not spec.allows(node):
            raise violation(node, spec, what)
    if SPEC.value >= 2:
        _round_trip(graph, what or spec.level)


def verify_program(program: Sequence[UOp], what: str = "program") -> None:
    """Raises SpecError for a linear program with an illegal node, or in an illegal order."""
    for node in program:
        if not spec_program.allows(node):
            raise violation(node, spec_program, what)
    if (flaw := order_flaw(program)) is not None:
        raise flaw
    if SPEC.value >= 2:
        _round_trip(program, what)


def order_flaw(program: Sequence[UOp]) -> SpecError | None:
    """What is wrong with the order of a linear program: sources come first, and whoever needs a
    value stands in the loop where it was made; loops and branches are nested and closed."""
    home: dict[UOp, tuple[UOp, ...]] = {}  # the loops and branches around each node
    around: tuple[UOp, ...] = ()
    for node in program:
        if node in home:
            return _flaw(node, "stands in the program twice")
        for source in node.src:
            if source not in home:
                return _flaw(node, f"comes before its source {source}")
            inside = home[source] == around[: len(home[source])]
            if not inside and source.dtype is not dtypes.void:
                return _flaw(node, f"is outside of the loop in which its source {source} is made")
        if node.op in _CLOSING:
            opened = node.src[-1]
            if not around or around[-1] is not opened:
                return _flaw(node, f"closes {opened}, which is not the innermost open one")
            around = around[:-1]
        home[node] = around
        if node.op in (Ops.RANGE, Ops.IF):
            around = (*around, node)
            home[node] = around
    return _flaw(around[-1], "is never closed") if around else None


_CLOSING: Final = frozenset({Ops.END, Ops.ENDIF})


def _flaw(node: UOp, text: str) -> SpecError:
    return _error(node, f"in a program, {node.op} {text}", "program", "order of the program")


def violation(node: UOp, spec: Spec, what: str = "") -> SpecError:
    """The error for a node that the spec does not allow."""
    place = what or spec.level
    with unobserved():
        families = spec.broken(node)
    names = " or ".join(repr(f.name) for f in families)
    head = f"{place}: an illegal {node.op}"
    if families:
        demands = "\n".join(f"  {f.name}: {f.demand}" for f in families)
        head += f"\nno rule of the family {names} allows it:\n{demands}"
    else:
        head += f"\nno family of the level {spec.level!r} knows {node.op}"
    return _error(node, head, place, names)


def _error(node: UOp, head: str, level: str, family: str) -> SpecError:
    made_by = getattr(node, "made_by", "")
    with unobserved():
        lines = [head, f"node: {node}"]
        lines += [f"  source {number}: {s}" for number, s in enumerate(node.src)]
        lines.append(f"made by: {made_by or 'unknown; SPEC=1 keeps it from the start'}")
        lines += ["as Python:", pyrender(node, most_lines=_MOST_LINES)]
    return SpecError("\n".join(lines), node, level, family, made_by)


def _round_trip(graph: UOp | Sequence[UOp], what: str) -> None:
    if not survives(graph):
        node = graph if isinstance(graph, UOp) else graph[-1]
        raise _error(node, f"{what}: its text gives another graph", what, "round trip")


# *** nodes as they are made ***


def _maker() -> str:
    """The pass and rule at work, or the line of code that is making a node."""
    if (rewriting := trace.at_work()) is not None:
        return rewriting
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""


def _check_new_node(node: UOp) -> None:
    node.made_by = _maker()
    if SPEC.value >= 2 and not trace.when_settled(node, _check_node):
        _check_node(node)


def _check_node(node: UOp) -> None:
    with unobserved():  # what the checks make on the way is not checked in turn
        if not spec_full.allows(node):
            raise violation(node, spec_full, "new node")
        if SPEC.value >= 3 and not node_survives(node):
            raise _error(node, "new node: its text gives another node", "new node", "round trip")


SPEC.on_change(lambda level: observe_new_nodes(_check_new_node, bool(level)))
