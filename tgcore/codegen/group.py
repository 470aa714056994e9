"""Reduces that the items of a work group share: each sums a part, then all sum the parts.

In: an expanded kernel whose REDUCEs may have GROUP_REDUCE ranges. Out: REDUCEs without; where there
were some, every item stores what it reduced in memory of its group, a BARRIER waits until all
have, and each item reduces what all of them stored, so that all know the result. A store of the
kernel is then left to one of the items.

Reduces side by side share one memory for each type, and one barrier. The i-th GROUP_REDUCE
range of every reduce is the same position among the items of a group, so reduces one after another
need no items of their own.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tgcore.codegen.opt.tensor_core import sum_of
from tgcore.dtype import Invalid, dtypes
from tgcore.errors import KernelOptError
from tgcore.uop.node import UOp
from tgcore.uop.ops import AxisType, Ops
from tgcore.uop.symbolic import split_valid

# parts that are read at once, next to each other; so many that they are summed in two stages
_AT_ONCE = 4
_MANY_PARTS = 64
# what a shared reduce may depend on: its barrier must be reached by all items of a group, once
_AROUND = (
    *(AxisType.GLOBAL, AxisType.LOCAL, AxisType.WARP),
    *(AxisType.UPCAST, AxisType.UNROLL),
)


def group_ranges(reduce: UOp) -> list[UOp]:
    """The ranges of a reduce that a group shares, in order."""
    found = [r for r in reduce.src[1:] if r.axis_type is AxisType.GROUP_REDUCE]
    return sorted(found, key=lambda r: r.arg[:-1])


def positions_of(reduces: Iterable[UOp]) -> list[UOp] | None:
    """The ranges that stand for the positions in the group; None if sizes differ."""
    longest: list[UOp] = []
    for node in reduces:
        found = group_ranges(node)
        if any(a.vmax != b.vmax for a, b in zip(found, longest)):
            return None
        if found and longest and len(found) != len(longest):
            return None
        longest = longest or found
    return longest


def check_shared(reduce: UOp, cause: object) -> None:
    """Raises if a reduce cannot be shared where it stands."""
    if not group_ranges(reduce):
        return
    inside = [r for r in reduce.ranges if r.axis_type not in _AROUND]
    if inside:
        raise KernelOptError(
            f"{cause}: a reduce inside of another loop ({inside[0].axis_type}) cannot be shared"
        )
    if reduce.dtype.count > 1 or reduce.src[0].op is Ops.WMMA:
        raise KernelOptError(f"{cause}: matrix instructions are shared by their own group already")


def shared_bytes(reduces: Iterable[UOp], local_items: int) -> int:
    """The memory that the shared reduces take, if a group has so many items beside."""
    total = 0
    for node in reduces:
        if parts := group_ranges(node):
            copies = [r for r in node.ranges if r.axis_type in (AxisType.UPCAST, AxisType.UNROLL)]
            shared = _count(parts)
            shared += sum(left for left in stages(shared) if left > 1)
            total += shared * _count(copies) * local_items * node.dtype.itemsize
    return total


# *** lowering ***


def share_reduces(ast: UOp) -> UOp:
    """The kernel without GROUP_REDUCE ranges in its reduces."""
    reduces = [n for n in ast.toposort() if n.op is Ops.REDUCE]
    positions = positions_of(reduces)
    if not positions:
        return ast
    ast = _same_positions(ast, reduces, positions)
    numbers = itertools.count(1 + max(n.arg[0] for n in ast.toposort() if n.op is Ops.RANGE))
    memories = itertools.count()
    local = [
        n
        for n in ast.toposort()
        if n.op is Ops.RANGE and n.axis_type in (AxisType.WARP, AxisType.LOCAL)
    ]
    while True:
        # those that have others inside of them come later
        ready = [
            n
            for n in ast.toposort()
            if n.op is Ops.REDUCE and group_ranges(n) and not _holds_shared(n)
        ]
        if not ready:
            break
        ast = ast.substitute(_shared(ready, positions, local, numbers, memories))
    return _stored_once(ast, positions)


def _holds_shared(node: UOp) -> bool:
    return any(n.op is Ops.REDUCE and group_ranges(n) for n in node.src[0].toposort())


def _same_positions(ast: UOp, reduces: list[UOp], positions: list[UOp]) -> UOp:
    table = {r: p for node in reduces for r, p in zip(group_ranges(node), positions)}
    return ast.substitute({r: p for r, p in table.items() if r is not p})


def _shared(
    group: Sequence[UOp],
    positions: Sequence[UOp],
    local: Sequence[UOp],
    numbers: itertools.count[int],
    memories: itertools.count[int],
) -> dict[UOp, UOp]:
    """What replaces reduces side by side: reduces of parts that are in shared memory."""
    values = {node: _of_one_item(node) for node in group}
    parts, position = _count(positions), _flat(positions)
    mine, writes = position, None
    for left in stages(parts):
        loop = UOp.range(parts // left // math.gcd(parts // left, _AT_ONCE), next(numbers))
        loop = loop.replace(arg=(*loop.arg[:-1], AxisType.REDUCE))
        exchange = _Exchange(parts, left, mine, writes, loop, _flat(local), _count(local))
        values = exchange.run(values, memories)
        parts, mine, writes = left, position % left, position < left
    return values


def stages(parts: int) -> list[int]:
    """How many sums are left after each exchange. If there are many parts, the items first sum some
    of them each: so each reads few."""
    near = [d for d in range(2, parts) if parts % d == 0 and d * d <= parts * _AT_ONCE]
    return [max(near), 1] if parts > _MANY_PARTS and near else [1]


def _count(ranges: Sequence[UOp]) -> int:
    return math.prod(r.vmax + 1 for r in ranges)


@dataclass(frozen=True)
class _Exchange:
    """Each item stores its value, and sums up those whose number leaves the same rest as its own.

    Of `parts` values sums of `left` kinds are left. The value of the item is number `mine`; if
    `writes` is given, only items for which it holds store theirs. `place` is the position of the
    item among the `items` that have values of their own.
    """

    parts: int
    left: int
    mine: UOp
    writes: UOp | None
    loop: UOp
    place: UOp
    items: int

    def run(self, values: dict[UOp, UOp], memories: itertools.count[int]) -> dict[UOp, UOp]:
        """The sums, for each of the reduces that the values belong to."""
        by_type: dict[object, list[UOp]] = {}
        for node in values:
            by_type.setdefault(node.dtype, []).append(node)
        stores: list[UOp] = []
        memory_of: dict[UOp, tuple[UOp, int, int]] = {}
        for nodes in by_type.values():
            size = self.parts * self.items * len(nodes)
            memory = UOp.define(Ops.DEFINE_LOCAL, nodes[0].dtype, size, ("parts", next(memories)))
            for copy, node in enumerate(nodes):
                memory_of[node] = memory, copy, len(nodes)
                index = self._index(self.mine, copy, len(nodes))
                if self.writes is not None:
                    index = self.writes.where(index, Invalid)
                stores.append(memory.index(index).store(values[node]))
        done = barrier(tuple(stores))
        return {
            node: self._sum(node, memory.after(done), copy, copies)
            for node, (memory, copy, copies) in memory_of.items()
        }

    def _index(self, part: UOp, copy: int, copies: int) -> UOp:
        return (part * self.items + self.place) * copies + copy

    def _sum(self, node: UOp, memory: UOp, copy: int, copies: int) -> UOp:
        at_once = self.parts // self.left // (self.loop.vmax + 1)
        values = []
        for step in range(at_once):
            part = (self.loop * at_once + step) * self.left + self.mine % self.left
            values.append(memory.index(self._index(part, copy, copies)))
        if self.loop.vmax == 0:
            only = {self.loop: self.loop.const_like(0)}
            return sum_of([v.substitute_ranges(only) for v in values], node.arg)
        value = values[0] if at_once == 1 else UOp(Ops.GROUP, node.dtype, tuple(values))
        return node.replace(src=(value, self.loop))


def barrier(effects: tuple[UOp, ...]) -> UOp:
    """All items of the group have come to the end of the effects."""
    return UOp(Ops.BARRIER, dtypes.void, effects)


def _of_one_item(node: UOp) -> UOp:
    kept = [r for r in node.src[1:] if r.axis_type is not AxisType.GROUP_REDUCE]
    if kept:
        return node.replace(src=(node.src[0], *kept))
    value = node.src[0]
    return sum_of(value.src if value.op is Ops.GROUP else (value,), node.arg)


def _flat(ranges: Sequence[UOp]) -> UOp:
    total = UOp.const(dtypes.index, 0)
    for r in ranges:
        total = total * (r.vmax + 1) + r
    return total


def _stored_once(ast: UOp, positions: Sequence[UOp]) -> UOp:
    """All items of a group hold the same values: the first one stores them."""
    first = functools.reduce(lambda a, b: a & b, [r < 1 for r in positions])
    table: dict[UOp, UOp] = {}
    for node in ast.toposort():
        if node.op is Ops.STORE and node.src[0].src[0].op is Ops.DEFINE_GLOBAL:
            address, value = node.src
            valid, index = split_valid(address.src[1])
            valid = first if valid is None else valid & first
            gated = address.replace(src=(address.src[0], valid.where(index, Invalid)))
            table[node] = gated.store(value)
    return ast.substitute(table)
