"""Which values must be computed before memory is overwritten, because a graph mixes old and new.

The scheduler orders reads of memory before a write to it, where the order is free. Where one node
needs both the old and the new value, or two assigns each read what the other overwrites, the part
that reads the old value must be stored first. This finds such parts.
"""

from __future__ import annotations

from tgcore.uop.node import UOp
from tgcore.uop.ops import Ops


def written_by(assign: UOp) -> UOp | None:
    """The BUFFER that an assign writes."""
    node = assign.src[0]
    while node.op is not Ops.BUFFER:
        if not node.src:
            return None
        node = node.src[0]
    return node


def parts_to_store_first(roots: list[UOp]) -> list[UOp]:
    """Nodes that read memory as it was before the assigns in the graph, depend on none of them and
    are used together with what does."""
    nodes = UOp.sink(*roots).toposort()
    bits: dict[UOp, int] = {}
    for node in nodes:
        if node.op is Ops.ASSIGN and (memory := written_by(node)) is not None:
            bits.setdefault(memory, 1 << len(bits))
    old: dict[UOp, int] = {}  # the memory that the node reads as it was
    new: dict[UOp, int] = {}  # the memory that the node reads after a write, or writes
    found: dict[UOp, None] = {}
    for node in nodes:
        if node.op is Ops.ASSIGN:
            target, value = node.src
            memory = written_by(node)
            own = 0 if memory is None else bits[memory]
            old[node], new[node] = old[value] & ~own, new[value] | new[target] | own
            if not new[value] and old[value] & ~(0 if new[target] else own):
                found[value] = None
            continue
        old[node] = bits.get(node, 0)
        new[node] = 0
        for source in node.src:
            old[node] |= old[source]
            new[node] |= new[source]
        for source in node.src:
            if old[source] & new[node] and not new[source]:
                found[source] = None
    return [n for n in found if n.op is not Ops.BUFFER and n.shape is not None]
