"""Which Tensor methods a kernel came from: names of a tensor graph's nodes, followed to the steps.

The front end puts in `names` what made each node, while DEBUG asks for it (see
`tgcore.tensor.naming`). A schedule's template keeps for each step the nodes that it computes; so
equal graphs share a template, and each shows the names of its own nodes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from tgcore.helpers import DEBUG, dedup
from tgcore.schedule.kernels import Step
from tgcore.schedule.realize import ALWAYS_STORED, STORED, is_plain_view
from tgcore.uop.node import UOp
from tgcore.uop.ops import GroupOp, Ops

# these make a constant of constants
_KEPT_UNIFORM: Final = (GroupOp.Elementwise | GroupOp.Movement) - {Ops.PAD}

names: Final[weakref.WeakKeyDictionary[UOp, str]] = weakref.WeakKeyDictionary()
"""The Tensor method that made a node, with " bw" if that was to compute a gradient."""


def wanted() -> bool:
    """Whether somebody shows names."""
    return bool(DEBUG >= 2)


def carry_names(old: UOp, new: UOp) -> None:
    """Names for a graph that was rebuilt over other sources."""
    if not wanted():
        return
    seen: set[UOp] = set()
    stack = [(old, new)]
    while stack:
        before, after = stack.pop()
        if before is after or before.op is not after.op or after in seen:
            continue
        seen.add(after)
        if (name := names.get(before)) is not None:
            names.setdefault(after, name)
        stack.extend(zip(before.src, after.src))


def followed(
    rewrite: Callable[[UOp], UOp], sink: UOp, nodes: Sequence[UOp]
) -> tuple[UOp, dict[UOp, UOp]]:
    """The rewritten sink, and what becomes of nodes below it. (Sources of a sink are rewritten in
    their order, each once: further ones at the end change nothing for the first.)"""
    result = rewrite(UOp.sink(*sink.src, *nodes)).src
    count = len(sink.src)
    return UOp.sink(*result[:count]), dict(zip(nodes, result[count:], strict=True))


def nodes_of_steps(
    steps: Iterable[Step], cleaned: Mapping[UOp, UOp], stored: Mapping[UOp, UOp]
) -> list[tuple[UOp, ...]]:
    """The nodes of the structure that each step computes, sources first.

    `cleaned` is what became of them in the clean-up; `stored` gives for nodes of the clean graph
    what the steps store."""
    came_from: dict[UOp, list[UOp]] = {}
    for node, became in cleaned.items():
        came_from.setdefault(became, []).append(node)
    node_of = {storage: node for node, storage in stored.items()}
    roots = [node_of[step.origin] for step in steps]
    for node in reversed(UOp.sink(*roots).toposort()):
        if node in came_from:
            for source in node.src:  # what the clean-up made belongs to what it was made for
                came_from.setdefault(source, came_from[node])
    ends = set(roots)
    return [tuple(dedup(n for c in _computed(r, ends) for n in came_from[c])) for r in roots]


def _computed(root: UOp, ends: set[UOp]) -> list[UOp]:
    """What is computed for a node down to those that are stored, too. Views of memory and constants
    are shared by whoever needs the same one: they count only if they are all that is stored."""
    given: set[UOp] = set()
    values: list[UOp] = []
    for node in root.toposort(lambda n: n is root or n not in ends):
        if node.op in GroupOp.Constant or (node.op in _KEPT_UNIFORM and given.issuperset(node.src)):
            given.add(node)
        if node.shape is not None and not is_plain_view(node):
            values.append(node)
    computed = [n for n in values if n not in given and n.base.op not in STORED]
    return computed if any(n.op not in ALWAYS_STORED for n in computed) else values


def names_of_steps(
    sink: UOp, table: Mapping[UOp, UOp], nodes: Iterable[tuple[UOp, ...]]
) -> list[tuple[str, ...]]:
    """The names for each step of a template; the table leads from the sink's graph to the
    structure that the steps' nodes are of."""
    known: dict[UOp, str] = {}
    for node in sink.toposort():
        if (name := names.get(node)) is not None:
            known.setdefault(table.get(node, node), name)
    return [tuple(dedup(known[n] for n in step if n in known)) for step in nodes]
