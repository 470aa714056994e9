"""From scalar expressions over ranges to memory, accumulators and machine integers.

In: an expanded kernel. Out: every access is a LOAD or a STORE of an address, whose gate is a source
of its own; every REDUCE is an accumulator in registers and a loop; THREAD, GLOBAL and LOCAL ranges
are positions of the launch; nothing has the index type any more.
"""

from __future__ import annotations

import functools
import itertools

from tgcore.codegen.group import share_reduces
from tgcore.codegen.launch import add_launch_positions
from tgcore.codegen.opt.tensor_core import add_to
from tgcore.codegen.target import Target
from tgcore.codegen.wide import widen_accesses
from tgcore.dtype import AddrSpace, DType, Invalid, dtypes
from tgcore.uop.evaluate import identity_of
from tgcore.uop.node import UOp
from tgcore.uop.ops import GroupOp, Ops
from tgcore.uop.pattern import PatternMatcher, UPat
from tgcore.uop.rewrite import graph_rewrite
from tgcore.uop.symbolic import split_valid, symbolic

# *** memory inside the kernel ***


def define_local_buffers(ast: UOp) -> UOp:
    """BUFFERIZE inside a kernel becomes registers (or local memory), filled by loops of its own."""
    numbers = itertools.count()

    @functools.cache
    def fill(node: UOp) -> UOp:
        value, ranges = node.src[0], node.src[1:]
        sizes = [r.vmax + 1 for r in ranges]
        size = functools.reduce(lambda a, b: a * b, sizes, 1)
        memory = UOp(
            Ops.DEFINE_REG, node.dtype.ptr(size, AddrSpace.REG), (), ("local", next(numbers))
        )
        address = memory.index(_flat(sizes, ranges), dtype=node.dtype)
        return memory.after(address.store(value).end(*[r for r in ranges if r.op is Ops.RANGE]))

    def read(node: UOp, stored: UOp) -> UOp:
        conditions = [split_valid(i)[0] for i in node.src[1:]]
        plain = [split_valid(i)[1] for i in node.src[1:]]
        index = _flat([r.vmax + 1 for r in stored.src[1:]], plain)
        known = [c for c in dict.fromkeys(conditions) if c is not None]
        if known:
            index = functools.reduce(lambda a, b: a & b, known).where(index, Invalid)
        return UOp(Ops.INDEX, node.dtype, (fill(stored), index))

    matcher = PatternMatcher(
        [
            (
                UPat(
                    Ops.INDEX, src=(UPat(Ops.BUFFERIZE, name="stored"),), any_len=True, name="node"
                ),
                read,
            )
        ]
    )
    return graph_rewrite(ast, matcher, name="local buffers")


def _flat(sizes: list[int], indices: tuple[UOp, ...] | list[UOp]) -> UOp:
    total = UOp.const(dtypes.index, 0)
    for size, index in zip(sizes, indices):
        total = total * size + index
    return total


def _load(node: UOp) -> UOp | None:
    if node.is_pointer:
        return None
    memory = node.src[0]
    return UOp(Ops.INDEX, _pointer(memory), node.src).load(dtype=node.dtype)


def _pointer(memory: UOp) -> DType:
    while memory.op is Ops.AFTER:
        memory = memory.src[0]
    return memory.dtype  # type: ignore[no-any-return]


def _store_address(node: UOp, address: UOp, value: UOp) -> UOp | None:
    pointer = address.src[0]
    return pointer.store(value) if address.op is Ops.LOAD else None


def _gate_load(node: UOp, address: UOp) -> UOp | None:
    if address.src[1].arg is Invalid:
        return node.const_like(0)
    valid, index = split_valid(address.src[1])
    if valid is None or len(address.src) > 2:
        return None
    gated = address.replace(src=(address.src[0], index, valid))
    return gated.load(node.const_like(0), dtype=node.dtype)


def _gate_store(node: UOp, address: UOp, value: UOp) -> UOp | None:
    if address.src[1].arg is Invalid:
        return UOp(Ops.NOOP)
    valid, index = split_valid(address.src[1])
    if valid is None or len(address.src) > 2:
        return None
    return address.replace(src=(address.src[0], index, valid)).store(value)


def _gated_value(gate: UOp, load: UOp, other: UOp) -> UOp | None:
    """where(gate, load with that gate, other): the load's own alternative is enough."""
    address = load.src[0]
    if len(address.src) != 3 or len(load.src) != 2 or address.src[2] is not gate:
        return None
    if other.op not in GroupOp.Constant or load.src[1] is other:
        return load if load.src[1] is other else None
    return load.replace(src=(address, other))


pm_add_loads = PatternMatcher(
    [
        (UPat(Ops.INDEX, name="node"), _load),
        (
            UPat(Ops.STORE, src=(UPat(Ops.LOAD, name="address"), UPat.var("value")), name="node"),
            _store_address,
        ),
    ]
)

pm_gates = PatternMatcher(
    [
        (UPat(Ops.LOAD, src=(UPat(Ops.INDEX, name="address"),), name="node"), _gate_load),
        (
            UPat(Ops.STORE, src=(UPat(Ops.INDEX, name="address"), UPat.var("value")), name="node"),
            _gate_store,
        ),
        (
            UPat(
                Ops.WHERE,
                src=(UPat.var("gate"), UPat(Ops.LOAD, name="load"), UPat.var("other")),
            ),
            _gated_value,
        ),
    ]
)


def add_loads(ast: UOp) -> UOp:
    """Values of INDEX become LOADs, conditions of indices become gates."""
    ast = graph_rewrite(ast, pm_add_loads, name="add loads")
    return graph_rewrite(ast, pm_gates, name="gates")


# *** reduces ***


def lower_reduces(ast: UOp) -> UOp:
    """Every REDUCE becomes an accumulator; those over the same ranges share one loop."""
    numbers = itertools.count()
    while True:
        groups: dict[tuple[UOp, ...], list[UOp]] = {}
        for node in ast.toposort():
            if node.op is Ops.REDUCE:
                groups.setdefault(node.src[1:], []).append(node)
        ready = [g for g in groups.values() if not _holds_reduce(g)]
        if not groups:
            return ast
        table: dict[UOp, UOp] = {}
        for group in ready:
            table.update(_accumulate(group, numbers))
        ast = ast.substitute(table)


def _holds_reduce(group: list[UOp]) -> bool:
    return any(n.op is Ops.REDUCE for r in group for n in r.src[0].toposort())


def _accumulate(group: list[UOp], numbers: itertools.count[int]) -> dict[UOp, UOp]:
    ranges = group[0].src[1:]
    outer: dict[UOp, None] = {}
    for node in group:
        outer.update(node.ranges)
    stores: list[UOp] = []
    accumulators: list[UOp] = []
    zero = UOp.const(dtypes.index, 0)
    for node in group:
        dtype = node.dtype
        memory = UOp(Ops.DEFINE_REG, dtype.ptr(1, AddrSpace.REG), (), ("acc", next(numbers)))
        start = memory.after(*outer).index(zero, dtype=memory.dtype)
        initial = start.store(node.const_like(identity_of(node.arg, dtype)))
        address = memory.after(initial, *ranges).index(zero, dtype=memory.dtype)
        total = address.load(dtype=dtype)
        for value in _values(node):
            total = add_to(total, value, node.arg)
        stores.append(memory.index(zero, dtype=memory.dtype).store(total))
        accumulators.append(memory)
    end = UOp.group(*stores).end(*ranges)
    return {
        node: memory.after(end).index(zero, dtype=memory.dtype).load(dtype=node.dtype)
        for node, memory in zip(group, accumulators)
    }


def _values(node: UOp) -> tuple[UOp, ...]:
    value = node.src[0]
    return value.src if value.op is Ops.GROUP else (value,)


# *** one loop for each END ***


def _split_end(node: UOp) -> UOp | None:
    closed = sorted((s for s in node.src[1:]), key=lambda r: r.arg[:-1], reverse=True)
    if len(closed) < 2:
        return None
    return functools.reduce(lambda effect, r: effect.end(r), closed, node.src[0])


pm_split_ends = PatternMatcher([(UPat(Ops.END, name="node"), _split_end)])


# *** index arithmetic as machine integers ***


class _IndexLowerer:
    """Rebuilds the graph with int32 or int64 for the index type, by proved bounds."""

    def __init__(self, target: Target) -> None:
        self.scalar = dtypes.int64 if target.index_bits == 64 else dtypes.int32
        self.done: dict[UOp, UOp] = {}

    def run(self, ast: UOp) -> UOp:
        for node in ast.toposort():
            self.done[node] = self._rebuild(node)
        return self.done[ast]

    def _type_of(self, node: UOp) -> DType:
        narrow = self._fits32(node)
        if node.dtype.count > 1:
            return (dtypes.int32 if narrow else dtypes.int64).vec(node.dtype.count)
        return self.scalar if narrow else dtypes.int64

    def _fits32(self, node: UOp) -> bool:
        low, high = dtypes.min(dtypes.int32), dtypes.max(dtypes.int32)
        return all(low <= s.vmin and s.vmax <= high for s in (node, *self._operands(node)))

    def _operands(self, node: UOp) -> tuple[UOp, ...]:
        return tuple(s for s in node.src if s.dtype.scalar() is dtypes.index)

    def _rebuild(self, node: UOp) -> UOp:
        src = tuple(self.done[s] for s in node.src)
        if node.dtype.scalar() is dtypes.index:
            return self._index_node(node, src)
        if node.op in GroupOp.Comparison and node.src[0].dtype.scalar() is dtypes.index:
            wide = max((s.dtype for s in src), key=lambda d: d.itemsize)
            return node.replace(src=tuple(s.cast(wide) for s in src))
        return node if src == node.src else node.replace(src=src)

    def _index_node(self, node: UOp, src: tuple[UOp, ...]) -> UOp:
        dtype = self._type_of(node)
        if node.op in GroupOp.Constant:
            value = 0 if node.arg is Invalid else node.arg
            return UOp.const(dtype, value)
        if node.op is Ops.SPECIAL:
            size = node.src[0]
            whole = size.op is Ops.CONST
            end = UOp.const(dtypes.int32, size.arg) if whole else src[0].cast(dtypes.int32)
            return UOp(Ops.SPECIAL, dtypes.int32, (end,), node.arg).cast(dtype)
        if node.op is Ops.RANGE:
            return node.replace(dtype=dtype, src=tuple(s.cast(dtype) for s in src))
        if node.op is Ops.CAST:
            return src[0].cast(dtype)
        if node.op in (Ops.IDIV, Ops.MOD):
            return _floor_division(node, src[0].cast(dtype), src[1].cast(dtype))
        if node.op is Ops.WHERE:
            return node.replace(dtype=dtype, src=(src[0], src[1].cast(dtype), src[2].cast(dtype)))
        if node.op is Ops.GEP:
            return src[0].gep(node.arg).cast(dtype)
        if node.op is Ops.VECTORIZE:
            return node.replace(dtype=dtype, src=tuple(s.cast(dtype.scalar()) for s in src))
        return node.replace(dtype=dtype, src=tuple(s.cast(dtype) for s in src))


def _floor_division(node: UOp, a: UOp, b: UOp) -> UOp:
    """IDIV and MOD of indices round down; of machine integers towards zero."""
    if node.src[0].vmin >= 0 and node.src[1].vmin > 0:
        return a.alu(node.op, b)
    quotient = a.alu(Ops.IDIV, b)
    rest = a - quotient * b
    wrong = (rest < 0) if node.src[1].vmin > 0 else (rest.ne(0) & ((rest < 0).ne(b < 0)))
    if node.op is Ops.MOD:
        return wrong.where(rest + b, rest)
    return wrong.where(quotient - 1, quotient)


def lower_index_type(ast: UOp, target: Target) -> UOp:
    """The kernel without the index type."""
    return _IndexLowerer(target).run(ast)


def lower(ast: UOp, target: Target) -> UOp:
    """The expanded kernel as loads, stores, accumulators and machine integers."""
    ast = add_launch_positions(share_reduces(ast), target)
    ast = lower_reduces(ast)
    ast = add_loads(ast)
    ast = graph_rewrite(ast, symbolic, name="simplify lowered")
    ast = widen_accesses(ast, target)
    ast = graph_rewrite(ast, pm_split_ends, name="one loop for each END")
    return lower_index_type(ast, target)
