"""Storage that does not pay is removed; reduces that need no loop are solved.

In: the graph over ranges. Out: the same with fewer BUFFERIZE nodes: a removed one's expression
stands in its reader, with its ranges replaced by the reader's indices.
"""

from __future__ import annotations

import functools

from tgcore.dtype import Invalid
from tgcore.uop.collapse import pm_reduce_collapse
from tgcore.uop.node import UOp
from tgcore.uop.ops import GroupOp, Ops
from tgcore.uop.pattern import PatternMatcher, UPat
from tgcore.uop.rewrite import graph_rewrite
from tgcore.uop.symbolic import split_valid, symbolic

# an expression that reads more buffers than this is stored rather than computed again
_MOST_BUFFERS_INLINE = 3
# computing a costly expression this many times over is dearer than storing it
_MOST_REPEATS_OF_COSTLY = 4
_COSTLY = frozenset({Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.POW, Ops.THREEFRY})


def inline_buffer(node: UOp, stored: UOp) -> UOp | None:
    """INDEX of a BUFFERIZE whose expression is cheaper than the storage."""
    info = stored.arg
    value = stored.src[0]
    if info.fixed or value.op in (Ops.ASSIGN, Ops.COPY):
        return None
    ranges, indices = stored.src[1:], node.src[1:]
    if value.op not in GroupOp.Constant and not _pays_to_inline(stored, indices):
        return None
    return _inlined(value, ranges, indices)


def _inlined(value: UOp, ranges: tuple[UOp, ...], indices: tuple[UOp, ...]) -> UOp:
    table = {}
    conditions = []
    for r, index in zip(ranges, indices):
        valid, plain = split_valid(index)
        if valid is not None:
            conditions.append(valid)
        if r.op is Ops.RANGE:
            table[r] = plain
    inlined = value.substitute_ranges(table)
    if not conditions:
        return inlined
    valid = functools.reduce(lambda a, b: a & b, dict.fromkeys(conditions))
    return _gate_reads(inlined, valid)


def _gate_reads(value: UOp, valid: UOp) -> UOp:
    """The expression with all of its reads only where the condition holds; elsewhere its value does
    not matter, since what reads it is guarded by the same condition."""
    table: dict[UOp, UOp] = {}
    for node in value.toposort(lambda n: n.op not in (Ops.BUFFERIZE, Ops.BUFFER, Ops.COPY)):
        src = tuple(table.get(s, s) for s in node.src)
        if node.op is Ops.INDEX:
            gated = []
            for index in src[1:]:
                inner, plain = split_valid(index)
                gated.append((valid if inner is None else valid & inner).where(plain, Invalid))
            src = (src[0], *gated)
        if src != node.src:
            table[node] = node.replace(src=src)
    return table.get(value, value)


def _pays_to_inline(stored: UOp, indices: tuple[UOp, ...]) -> bool:
    value = stored.src[0]
    inside = value.toposort(lambda n: n.op not in (Ops.BUFFERIZE, Ops.BUFFER, Ops.COPY, Ops.AFTER))
    reads: set[UOp] = set()
    costly = False
    for node in inside:
        if node.op is Ops.REDUCE:
            return False
        if node.op is Ops.INDEX:
            reads.add(node.src[0])
        costly = costly or node.op in _COSTLY
    if len(reads) > _MOST_BUFFERS_INLINE:
        return False
    return not costly or _repeats(stored, indices) <= _MOST_REPEATS_OF_COSTLY


def _repeats(stored: UOp, indices: tuple[UOp, ...]) -> float:
    """How often an element would be computed: by an EXPAND, or by indices that overlap."""
    elements = functools.reduce(lambda a, r: a * (r.vmax + 1), stored.src[1:], 1)
    reader: dict[UOp, None] = {}
    for index in indices:
        reader.update(index.ranges)
    read = functools.reduce(lambda a, r: a * (r.vmax + 1), reader, 1)
    return max(float(stored.arg.repeats), read / max(1, elements))


def drop_constant_ranges(node: UOp) -> UOp:
    """Storage has no axis of size 1 to speak of. (Assigns are indexed by place in memory.)"""
    if node.op is not Ops.BUFFERIZE or node.src[0].op is Ops.ASSIGN:
        return node
    return node.replace(src=(node.src[0], *[r for r in node.src[1:] if r.op is not Ops.CONST]))


def index_without_constant_ranges(node: UOp, stored: UOp) -> UOp | None:
    """The reader's side of `drop_constant_ranges`."""
    ranges = stored.src[1:]
    target = drop_constant_ranges(stored)
    if target is stored or all(r.op is not Ops.CONST for r in ranges):
        return None
    keep = [i for r, i in zip(ranges, node.src[1:]) if r.op is not Ops.CONST]
    lost = [split_valid(i)[0] for r, i in zip(ranges, node.src[1:]) if r.op is Ops.CONST]
    conditions = [c for c in lost if c is not None]
    if conditions and keep:
        valid, plain = split_valid(keep[0])
        clauses = [*conditions] if valid is None else [valid, *conditions]
        keep[0] = functools.reduce(lambda a, b: a & b, clauses).where(plain, Invalid)
    return UOp(Ops.INDEX, node.dtype, (target, *keep))


def outputs_without_constant_ranges(sink: UOp) -> UOp | None:
    """What is an output and read as well must stay one node."""
    src = tuple([drop_constant_ranges(s) for s in sink.src])
    return sink.replace(src=src) if src != sink.src else None


def flatten_sums_of_reduces(node: UOp, inner: UOp) -> UOp | None:
    """A reduce of a reduce by the same op."""
    if node.arg is inner.arg:
        return inner.src[0].reduce(node.arg, *inner.src[1:], *node.src[1:])
    return None


pm_storage = PatternMatcher(
    [
        (UPat(Ops.SINK, name="sink"), outputs_without_constant_ranges),
        (
            UPat(
                Ops.INDEX,
                src=(UPat(Ops.BUFFERIZE, name="stored"),),
                any_len=True,
                name="node",
            ),
            index_without_constant_ranges,
        ),
        (
            UPat(
                Ops.INDEX,
                src=(UPat(Ops.BUFFERIZE, name="stored"),),
                any_len=True,
                name="node",
            ),
            inline_buffer,
        ),
        (
            UPat(Ops.REDUCE, src=(UPat(Ops.REDUCE, name="inner"),), any_len=True, name="node"),
            flatten_sums_of_reduces,
        ),
    ]
)

pm_simplify_storage = symbolic + pm_reduce_collapse + pm_storage


def remove_costly_buffers(sink: UOp) -> UOp:
    """The graph with only the storage that pays."""
    return graph_rewrite(sink, pm_simplify_storage, name="remove buffers")
