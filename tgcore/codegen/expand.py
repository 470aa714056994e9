"""UPCAST and UNROLL ranges disappear: one becomes the lanes of vectors, the others copies.

In: an optimised kernel. Out: the same without UPCAST and UNROLL ranges. `vectorize` turns one of
them, the axis along which memory is walked element by element, into vector types: a load of
neighbours becomes one load of a vector, anything else a vector of loads. `replicate` then writes
every remaining node once for each position of the other ranges it depends on. So the number of
nodes grows with the number of registers that the kernel uses, not with the number of elements.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable

from tgcore.codegen.opt.tensor_core import sum_of
from tgcore.codegen.target import Target
from tgcore.dtype import Invalid, dtypes
from tgcore.uop.divmod import split_sum
from tgcore.uop.node import UOp
from tgcore.uop.ops import AxisType, Ops
from tgcore.uop.rewrite import graph_rewrite
from tgcore.uop.symbolic import simplify, split_valid, symbolic

_SPREAD = (AxisType.UPCAST, AxisType.UNROLL)
# a reduce keeps the copies of its unrolled steps apart while it has no more accumulators than this
_MOST_SEPARATE_ACCUMULATORS = 8


def spread_ranges(ast: UOp) -> list[UOp]:
    """The ranges that are to disappear."""
    return [n for n in ast.toposort() if n.op is Ops.RANGE and n.axis_type in _SPREAD]


def stride_along(index: UOp, r: UOp) -> int | None:
    """By how much the index grows with the range; None if that differs from step to step."""
    if r not in index.ranges:
        return 0
    terms, _ = split_sum(index)
    stride = terms.pop(r, 0)
    if all(r not in t.ranges for t in terms):
        return stride
    steps = [simplify(index.substitute({r: r.const_like(k)})) for k in range(r.vmax + 1)]
    deltas = {simplify(b - a) for a, b in itertools.pairwise(steps)}
    if len(deltas) == 1 and (delta := deltas.pop()).op is Ops.CONST:
        return int(delta.arg)
    return None


def vector_axis(ast: UOp, target: Target) -> UOp | None:
    """The range that becomes lanes: the one along which the most accesses have stride 1."""
    candidates = spread_ranges(ast)
    if not candidates or not target.vector_bytes:
        return None
    accesses = [n for n in ast.toposort() if n.op is Ops.INDEX]
    scored = []
    for position, r in enumerate(candidates):
        strides = [stride_along(split_valid(a.src[1])[1], r) for a in accesses]
        scored.append((strides.count(1), -position, r))
    return max(scored, key=lambda s: s[:2])[2]


# *** lanes ***


class _Vectorizer:
    """Rebuilds the graph with one range as lanes."""

    def __init__(self, r: UOp, target: Target) -> None:
        self.r, self.target = r, target
        self.lanes = r.vmax + 1
        self.done: dict[UOp, UOp] = {}
        self.steps = [r.const_like(k) for k in range(self.lanes)]

    def run(self, ast: UOp) -> UOp:
        for node in ast.toposort():
            self.done[node] = self._rebuild(node)
        return self.done[ast]

    def _rebuild(self, node: UOp) -> UOp:
        if node is self.r:
            return UOp.const(dtypes.index.vec(self.lanes), tuple(range(self.lanes)))
        if node.op is Ops.END:
            kept = [s for s in node.src[1:] if s is not self.r]
            return self.done[node.src[0]].end(*[self.done[s] for s in kept])
        if node.op is Ops.STORE and self.r in node.ranges:
            return self._store(node)
        if node.op is Ops.REDUCE and (self.r in node.src[1:] or self.r in node.ranges):
            return self._reduce(node)
        if self.r not in node.ranges:
            src = tuple(self.done[s] for s in node.src)
            return node if src == node.src else node.replace(src=src)
        if node.op is Ops.INDEX:
            return self._load(node)
        return self._lanewise(node)

    def _lanewise(self, node: UOp) -> UOp:
        src = tuple(self._wide(self.done[s]) for s in node.src)
        return node.replace(dtype=node.dtype.vec(self.lanes), src=src)

    def _wide(self, value: UOp) -> UOp:
        if value.dtype is dtypes.void or value.dtype.count == self.lanes or value.is_pointer:
            return value
        return value.broadcast(self.lanes)

    def _reduce(self, node: UOp) -> UOp:
        value = self._wide(self.done[node.src[0]])
        kept = [self.done[s] for s in node.src[1:] if s is not self.r]
        wide = value.reduce(node.arg, *kept)
        return horizontal(node.arg, wide) if self.r in node.src[1:] else wide

    def _load(self, node: UOp) -> UOp:
        valid, index = split_valid(node.src[1])
        memory = self.done[node.src[0]]
        if stride_along(index, self.r) == 1 and self._can_gate(valid):
            base = simplify(index.substitute({self.r: self.steps[0]}))
            address = UOp(Ops.INDEX, memory.dtype, (memory, self._base(base, valid)))
            return address.load(dtype=node.dtype.vec(self.lanes))
        parts = [self._at(node, step) for step in self.steps]
        return UOp.vectorize(*parts)

    def _can_gate(self, valid: UOp | None) -> bool:
        return valid is None or self.r not in valid.ranges or self.target.masked

    def _base(self, base: UOp, valid: UOp | None) -> UOp:
        if valid is None:
            return base
        gate = self.done.get(valid)
        if gate is None:
            gate = self._nested(valid)
        return UOp(Ops.WHERE, dtypes.index, (gate, base, UOp.invalid()))

    def _nested(self, node: UOp) -> UOp:
        for inner in node.toposort():
            if inner not in self.done:
                self.done[inner] = self._rebuild(inner)
        return self.done[node]

    def _at(self, node: UOp, step: UOp) -> UOp:
        """The node at one position of the range."""
        found = simplify(node.substitute({self.r: step}))
        return self._nested(found)

    def _store(self, node: UOp) -> UOp:
        address, value = node.src
        valid, index = split_valid(address.src[1])
        wide = self._wide(self.done[value])
        if stride_along(index, self.r) == 1 and self._can_gate(valid):
            base = simplify(index.substitute({self.r: self.steps[0]}))
            memory = self.done[address.src[0]]
            return UOp(Ops.INDEX, memory.dtype, (memory, self._base(base, valid))).store(wide)
        stores = []
        for lane, step in enumerate(self.steps):
            part = simplify(address.substitute({self.r: step}))
            memory = self.done[address.src[0]]
            target = UOp(Ops.INDEX, memory.dtype, (memory, self._nested(part.src[1])))
            stores.append(target.store(wide.gep(lane)))
        return UOp.group(*stores)


def horizontal(op: Ops, vector: UOp) -> UOp:
    """All lanes combined by the op: halves first, so that the vector unit does most of it."""
    count = vector.dtype.count
    while count > 1 and count % 2 == 0:
        half = count // 2
        low, high = vector.gep(tuple(range(half))), vector.gep(tuple(range(half, count)))
        vector, count = low.alu(op, high), half
    lanes = [vector.gep(lane) for lane in range(count)]
    return functools.reduce(lambda a, b: a.alu(op, b), lanes)


def vectorize(ast: UOp, r: UOp, target: Target) -> UOp:
    """The kernel with the range as the lanes of vectors."""
    return _Vectorizer(r, target).run(ast)


# *** copies ***


class _Replicator:
    """Writes every node once for each position of the ranges that it depends on."""

    def __init__(self, ranges: Iterable[UOp]) -> None:
        self.ranges = tuple(ranges)
        self.copies: dict[UOp, tuple[tuple[UOp, ...], dict[tuple[int, ...], UOp]]] = {}

    def run(self, ast: UOp) -> UOp:
        for node in ast.toposort():
            self.copies[node] = self._copies_of(node)
        return self.copies[ast][1][()]

    def _axes(self, node: UOp) -> tuple[UOp, ...]:
        return tuple(r for r in self.ranges if r in node.ranges)

    def _at(self, node: UOp, position: dict[UOp, int]) -> UOp:
        axes, copies = self.copies[node]
        return copies[tuple(position[a] for a in axes)]

    def _copies_of(self, node: UOp) -> tuple[tuple[UOp, ...], dict[tuple[int, ...], UOp]]:
        if node in self.ranges:
            return (node,), {(k,): node.const_like(k) for k in range(node.vmax + 1)}
        if node.op is Ops.END:
            return self._end(node)
        if node.op is Ops.REDUCE:
            return self._reduce(node)
        if node.op is Ops.CONTRACT:
            return self._contract(node)
        if node.op is Ops.UNROLL:
            return self._unroll(node)
        axes = self._axes(node)
        copies: dict[tuple[int, ...], UOp] = {}
        for place in _positions(axes):
            position = dict(zip(axes, place))
            src = tuple(self._at(s, position) for s in node.src)
            copies[place] = node if src == node.src else node.replace(src=src)
        return axes, copies

    def _end(self, node: UOp) -> tuple[tuple[UOp, ...], dict[tuple[int, ...], UOp]]:
        inner_axes = self.copies[node.src[0]][0]
        axes = self._axes(node)
        closed = [a for a in inner_axes if a not in axes]
        kept = [s for s in node.src[1:] if s not in self.ranges]
        copies: dict[tuple[int, ...], UOp] = {}
        for place in _positions(axes):
            position = dict(zip(axes, place))
            effects = [
                self._at(node.src[0], {**position, **dict(zip(closed, inner))})
                for inner in _positions(closed)
            ]
            ends = [self._at(s, position) for s in kept]
            copies[place] = UOp.group(*dict.fromkeys(effects)).end(*ends)
        return axes, copies

    def _contract(self, node: UOp) -> tuple[tuple[UOp, ...], dict[tuple[int, ...], UOp]]:
        axes, (value, r) = self._axes(node), node.src
        copies: dict[tuple[int, ...], UOp] = {}
        for place in _positions(axes):
            position = dict(zip(axes, place))
            lanes = [self._at(value, {**position, r: lane}) for lane in range(r.vmax + 1)]
            copies[place] = UOp.vectorize(*lanes)
        return axes, copies

    def _unroll(self, node: UOp) -> tuple[tuple[UOp, ...], dict[tuple[int, ...], UOp]]:
        axes, (vector, r) = self._axes(node), node.src
        copies: dict[tuple[int, ...], UOp] = {}
        for place in _positions(axes):
            position = dict(zip(axes, place))
            copies[place] = self._at(vector, position).gep(position[r])
        return axes, copies

    def _reduce(self, node: UOp) -> tuple[tuple[UOp, ...], dict[tuple[int, ...], UOp]]:
        axes = self._axes(node)
        unrolled = [r for r in self.ranges if r in node.src[1:]]
        kept = [s for s in node.src[1:] if s not in self.ranges]
        results = functools.reduce(lambda a, r: a * (r.vmax + 1), axes, 1)
        steps = functools.reduce(lambda a, r: a * (r.vmax + 1), unrolled, 1)
        apart = results * steps <= _MOST_SEPARATE_ACCUMULATORS
        copies: dict[tuple[int, ...], UOp] = {}
        for place in _positions(axes):
            position = dict(zip(axes, place))
            values = [
                self._at(node.src[0], {**position, **dict(zip(unrolled, inner))})
                for inner in _positions(unrolled)
            ]
            ends = [self._at(s, position) for s in kept]
            copies[place] = _combine(node, values, ends, apart)
        return axes, copies


def _combine(node: UOp, values: list[UOp], ends: list[UOp], apart: bool) -> UOp:
    """A reduce of several values for each step: one accumulator for each, or all into one."""
    shared = [r for r in ends if r.axis_type is AxisType.GROUP_REDUCE]
    if shared:  # each item makes one value of all that it has
        rest = [r for r in ends if r.axis_type is not AxisType.GROUP_REDUCE]
        return _combine(node, values, rest, apart).reduce(node.arg, *shared)
    if not ends:
        return sum_of(values, node.arg)
    if apart and values[0].op is not Ops.WMMA:
        parts = [v.reduce(node.arg, *ends) for v in values]
        return functools.reduce(lambda a, b: a.alu(node.arg, b), parts)
    # the values stand side by side until there is an accumulator to add them to, one by one
    return UOp(Ops.REDUCE, node.dtype, (UOp(Ops.GROUP, node.dtype, tuple(values)), *ends), node.arg)


def _positions(axes: Iterable[UOp]) -> Iterable[tuple[int, ...]]:
    return itertools.product(*[range(a.vmax + 1) for a in axes])


def replicate(ast: UOp) -> UOp:
    """The kernel with the UPCAST and UNROLL ranges written out."""
    ranges = spread_ranges(ast)
    return _Replicator(ranges).run(ast) if ranges else ast


# *** memory inside the kernel ***


def widen_local_buffers(ast: UOp, lanes: UOp | None) -> UOp:
    """The kernel with room in its local buffers for every position of the ranges that disappear.

    A buffer that is filled anew at each position gets an axis for each such range, the lanes last,
    and the fill closes them: it is done at all positions before the first is read.
    """
    done: dict[UOp, UOp] = {}
    for node in ast.toposort():
        src = tuple(done.get(s, s) for s in node.src)
        done[node] = node if src == node.src else node.replace(src=src)
        if node.op is Ops.AFTER:
            done[node] = _with_axes(done[node], _spread_axes(node, lanes))
        elif node.op is Ops.INDEX and src[0].op is Ops.AFTER:
            done[node] = _at_position(done[node], _spread_axes(node.src[0], lanes))
    return done[ast]


def _spread_axes(buffer: UOp, lanes: UOp | None) -> list[UOp]:
    """The disappearing ranges on which the contents depend, in the order of the buffer's axes."""
    axes = [r for r in buffer.ranges if r.op is Ops.RANGE and r.axis_type in _SPREAD]
    return sorted(axes, key=lambda r: (r is lanes, r.arg[:-1]))


def _with_axes(buffer: UOp, axes: list[UOp]) -> UOp:
    if not axes:
        return buffer
    memory, *fills = buffer.src
    size = memory.dtype.size * math.prod(r.vmax + 1 for r in axes)
    wide = memory.replace(dtype=memory.dtype.base.ptr(size, memory.dtype.addrspace))
    closed = []
    for fill in fills:
        store, *ranges = fill.src if fill.op is Ops.END else (fill,)
        address, value = store.src
        place = _at_position(address.replace(src=(wide, *address.src[1:])), axes)
        closed.append(place.store(value).end(*ranges, *axes))
    return wide.after(*closed)


def _at_position(access: UOp, axes: list[UOp]) -> UOp:
    """The access, in the part of the buffer that belongs to this position of the axes."""
    valid, index = split_valid(access.src[1])
    for r in axes:
        index = index * (r.vmax + 1) + r
    if valid is not None:
        index = valid.where(index, Invalid)
    return access.replace(src=(access.src[0], index))


def expand(ast: UOp, target: Target) -> UOp:
    """The kernel without UPCAST and UNROLL ranges; each of its stores has lanes of its own."""
    effects: list[UOp] = []
    for effect in ast.src:
        part = UOp.sink(effect)
        axis = vector_axis(part, target)
        part = widen_local_buffers(part, axis)
        if axis is not None:
            part = vectorize(part, axis, target)
        effects += replicate(part).src
    return graph_rewrite(ast.replace(src=tuple(effects)), symbolic, name="simplify expanded")
