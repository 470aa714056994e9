"""Reduces that the items of a work group share: each sums a part, then all sum the parts.

In: an expanded kernel whose REDUCEs may have GROUP_REDUCE ranges. Out: REDUCEs without; where there
were some, every item stores what it reduced in memory of its group, a BARRIER waits until all
have, and each item reduces what all of them stored, so that all know the result. A store of the
kernel is then left to one of the items.

Reduces side by side over the same ranges share one memory and one barrier. The i-th GROUP_REDUCE
range of every reduce is the same position among the items of a group, so reduces one after another
need no items of their own.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Sequence

from tgcore.dtype import Invalid, dtypes
from tgcore.errors import KernelOptError
from tgcore.uop.node import UOp
from tgcore.uop.ops import AxisType, Ops
from tgcore.uop.symbolic import split_valid

# parts that are read at once, next to each other
_PARTS_AT_ONCE = 4
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
            count = math.prod(r.vmax + 1 for r in (*parts, *copies))
            total += count * local_items * node.dtype.itemsize
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
        found: dict[tuple[UOp, ...], list[UOp]] = {}
        for node in ast.toposort():
            # those that have others inside of them come later
            if node.op is Ops.REDUCE and group_ranges(node) and not _holds_shared(node):
                found.setdefault((*node.src[1:], *node.ranges), []).append(node)
        if not found:
            break
        table: dict[UOp, UOp] = {}
        for group in found.values():
            table.update(_shared(group, positions, local, numbers, memories))
        ast = ast.substitute(table)
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
    """What replaces reduces over the same ranges: reduces of parts that are in shared memory."""
    parts = math.prod(r.vmax + 1 for r in positions)
    items = math.prod(r.vmax + 1 for r in local)
    position, place = _flat(positions), _flat(local)
    at_once = math.gcd(parts, _PARTS_AT_ONCE)
    loop = UOp.range(parts // at_once, next(numbers), AxisType.REDUCE)
    by_type: dict[object, list[UOp]] = {}
    for node in group:
        by_type.setdefault(node.dtype, []).append(node)
    found: dict[UOp, UOp] = {}
    memory_of: dict[object, UOp] = {}
    stores: list[UOp] = []
    for dtype, nodes in by_type.items():
        size = parts * items * len(nodes)
        memory = UOp.define(Ops.DEFINE_LOCAL, nodes[0].dtype, size, ("parts", next(memories)))
        memory_of[dtype] = memory
        for copy, node in enumerate(nodes):
            kept = [r for r in node.src[1:] if r.axis_type is not AxisType.GROUP_REDUCE]
            mine = (position * items + place) * len(nodes) + copy
            stores.append(memory.index(mine).store(_of_one_item(node, kept)))
    barrier = UOp(Ops.BARRIER, dtypes.void, tuple(stores))
    for dtype, nodes in by_type.items():
        filled = memory_of[dtype].after(barrier)
        for copy, node in enumerate(nodes):
            values = []
            for step in range(at_once):
                part = loop * at_once + step
                values.append(filled.index((part * items + place) * len(nodes) + copy))
            found[node] = _sum_of_parts(node, values, loop)
    return found


def _of_one_item(node: UOp, kept: list[UOp]) -> UOp:
    if kept:
        return node.replace(src=(node.src[0], *kept))
    values = node.src[0].src if node.src[0].op is Ops.GROUP else (node.src[0],)
    return functools.reduce(lambda a, b: a.alu(node.arg, b), values)


def _sum_of_parts(node: UOp, values: list[UOp], loop: UOp) -> UOp:
    if len(values) == 1:
        return node.replace(src=(values[0], loop))
    if loop.vmax == 0:
        only = {loop: loop.const_like(0)}
        return functools.reduce(
            lambda a, b: a.alu(node.arg, b), [v.substitute_ranges(only) for v in values]
        )
    return node.replace(src=(UOp(Ops.GROUP, node.dtype, tuple(values)), loop))


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
