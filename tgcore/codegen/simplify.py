"""Simplification of a kernel before it is optimised.

In: a kernel's AST. Out: the same with neighbouring loops that walk memory as one merged to one,
and, where loop variables are compared with constants, the store's loop cut at these.
"""

from __future__ import annotations

import itertools

from tgcore.uop.collapse import pm_reduce_collapse
from tgcore.uop.node import UOp, to_sint
from tgcore.uop.ops import Ops
from tgcore.uop.pattern import PatternMatcher, UPat
from tgcore.uop.rewrite import graph_rewrite
from tgcore.uop.symbolic import symbolic

# more pieces than this are not worth the code
_MOST_PIECES = 8


def _divisions(node: UOp) -> int:
    return sum(1 for n in node.toposort() if n.op in (Ops.IDIV, Ops.MOD))


def merge_neighbours(node: UOp) -> UOp | None:
    """Two ranges that END or REDUCE closes, as one range, if no index gets harder by it."""
    closed = node.src[1:]
    for outer, inner in itertools.pairwise(closed):
        if outer.op is not Ops.RANGE or inner.op is not Ops.RANGE:
            continue
        if outer.axis_type is not inner.axis_type:
            continue
        sizes = to_sint(outer.src[0]), to_sint(inner.src[0])
        if not all(isinstance(s, int) for s in sizes):
            continue
        if not _both_in_all_accesses(node, outer, inner):
            continue
        merged = outer.replace(src=(outer.src[0].const_like(int(sizes[0]) * int(sizes[1])),))
        body = node.src[0].substitute({outer: merged // sizes[1], inner: merged % sizes[1]})
        body = graph_rewrite(body, symbolic, name="merge ranges")
        if _divisions(body) <= _divisions(node.src[0]):
            kept = [merged if r is outer else r for r in closed if r is not inner]
            return node.replace(src=(body, *kept))
    return None


def _both_in_all_accesses(node: UOp, outer: UOp, inner: UOp) -> bool:
    """A range that some access does not use is worth keeping apart: that access can be reused."""
    for n in node.src[0].toposort():
        if n.op is Ops.INDEX:
            used = n.ranges
            if (outer in used) != (inner in used):
                return False
    return True


pm_merge_ranges = PatternMatcher([(UPat((Ops.END, Ops.REDUCE), name="node"), merge_neighbours)])


def cut_at_comparisons(end: UOp) -> list[UOp] | None:
    """A loop whose body compares its variable with constants, as one loop for each part between."""
    nodes = end.src[0].toposort()
    if end.src[0].op is not Ops.STORE or any(n.op in (Ops.REDUCE, Ops.END) for n in nodes):
        return None
    for r in end.src[1:]:
        size = to_sint(r.src[0]) if r.op is Ops.RANGE else None
        if not isinstance(size, int):
            continue
        cuts = {
            n.src[1].arg
            for n in nodes
            if n.op is Ops.CMPLT and n.src[0] is r and n.src[1].op is Ops.CONST
        }
        cuts |= {
            1 - n.src[1].arg
            for n in nodes
            if n.op is Ops.CMPLT and n.src[1].op is Ops.CONST and _is_negated(n.src[0], r)
        }
        points = sorted({0, size, *(c for c in cuts if 0 < c < size)})
        if 2 < len(points) <= _MOST_PIECES + 1:
            return _pieces(end, r, points)
    return None


def _is_negated(node: UOp, r: UOp) -> bool:
    return node.op is Ops.MUL and node.src[0] is r and node.src[1].arg == -1


def _pieces(end: UOp, r: UOp, points: list[int]) -> list[UOp]:
    ranges = [n for n in end.toposort() if n.op is Ops.RANGE]
    parts = []
    for number, (begin, stop) in enumerate(itertools.pairwise(points)):
        own = {o: o.replace(arg=(*o.arg[:-1], number, o.axis_type)) for o in ranges}
        own[r] = own[r].replace(src=(r.src[0].const_like(stop - begin),))
        table = {**own, r: own[r] + begin}
        # the ranges that reduces close are renamed as well: no loop belongs to two pieces
        body = _rename(end.src[0], table, own)
        body = graph_rewrite(body, symbolic, name="cut loop")
        parts.append(body.end(*[own[o] for o in end.src[1:] if o.op is Ops.RANGE]))
    return parts


def _rename(body: UOp, table: dict[UOp, UOp], own: dict[UOp, UOp]) -> UOp:
    done: dict[UOp, UOp] = dict(table)
    for node in body.toposort():
        if node in table:
            continue
        if node.op in (Ops.REDUCE, Ops.END):
            src = (done[node.src[0]], *[own.get(s, s) for s in node.src[1:]])
        else:
            src = tuple(done[s] for s in node.src)
        done[node] = node if src == node.src else node.replace(src=src)
    return done[body]


def cut_loops(ast: UOp) -> UOp:
    """The kernel with its loops cut where they compare with constants, along one axis each: a `cat`
    or a `pad` becomes loops without branches."""
    parts: list[UOp] = []
    for effect in ast.src:
        pieces = cut_at_comparisons(effect) if effect.op is Ops.END else None
        parts.extend([effect] if pieces is None else pieces)
    return ast if len(parts) == len(ast.src) else ast.replace(src=tuple(parts))


def simplify_kernel(ast: UOp) -> UOp:
    """The kernel with fewer and simpler loops."""
    ast = graph_rewrite(ast, symbolic + pm_reduce_collapse, name="simplify kernel")
    return graph_rewrite(ast, pm_merge_ranges, name="merge ranges")
