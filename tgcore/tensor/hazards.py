"""Which values must be computed before memory is overwritten, because a graph mixes old and new.

Each assign makes a new version of its memory; a version is the BUFFER, or an ASSIGN to it. The
scheduler orders reads of a version before the assign that overwrites it, where the order is free.
Where one node needs both a version and the one after it, or two assigns each read what the other
overwrites, the part that reads the old one must be stored first. This finds such parts.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable

from tgcore.uop.node import UOp
from tgcore.uop.ops import Ops


def version_before(assign: UOp) -> UOp:
    """The version of the memory that an assign overwrites."""
    node = assign.src[0]
    while node.op not in (Ops.BUFFER, Ops.ASSIGN) and node.src:
        node = node.src[0]
    return node


def parts_to_store_first(roots: list[UOp]) -> list[UOp]:
    """What to compute before the graph can be ordered; compute it, then ask again."""
    nodes = UOp.sink(*roots).toposort()
    overwriters: dict[UOp, set[UOp]] = {}
    for node in nodes:
        if node.op is Ops.ASSIGN:
            overwriters.setdefault(version_before(node), set()).add(node)
    return _old_beside_new(nodes, overwriters) or _first_in_a_circle(nodes, overwriters)


def _old_beside_new(nodes: dict[UOp, None], overwriters: dict[UOp, set[UOp]]) -> list[UOp]:
    """Nodes that read a version and are used together with what depends on the one after it."""
    bits = {version: 1 << n for n, version in enumerate(overwriters)}
    old: dict[UOp, int] = {}  # the versions that the node itself reads
    new: dict[UOp, int] = {}  # those that are overwritten before the node can be computed
    found: dict[UOp, None] = {}
    for node in nodes:
        sources = node.src[1:] if node.op is Ops.ASSIGN else node.src
        new[node] = _union(new[s] for s in node.src)
        old[node] = _union(old[s] | bits.get(s, 0) for s in sources)
        for source in sources:
            if old[source] & new[node] & ~new[source]:
                found[source] = None
        if node.op is Ops.ASSIGN:
            new[node] |= bits[version_before(node)]
        if node.op in (Ops.ASSIGN, Ops.CONTIGUOUS, Ops.COPY):
            old[node] = 0  # it is stored, and so is what it read
    parts = [n for n in found if n.shape is not None]
    # those that need no assign can run at once; of the others, one at a time
    return [n for n in parts if not new[n]] or parts[:1]


def _union(sets: Iterable[int]) -> int:
    return functools.reduce(operator.or_, sets, 0)


def _first_in_a_circle(nodes: dict[UOp, None], overwriters: dict[UOp, set[UOp]]) -> list[UOp]:
    """The value of the first assign that reads a version which another assign overwrites."""
    for node in nodes:
        if node.op is not Ops.ASSIGN or node.src[1].base.op is Ops.BUFFER:
            continue
        value = node.src[1]
        for inner in value.toposort(lambda n: n.op is not Ops.ASSIGN):
            if any(overwriters.get(s, {node}) - {node} for s in inner.src):
                return [value]
    return []
