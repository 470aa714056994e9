"""The moves that a kernel gets by default on devices with vector registers and threads.

They are chosen by what they do to its memory accesses: one axis becomes the lanes of vectors, the
one along which most accesses touch neighbours; then axes along which some operand stays the same
are upcast, so that it is loaded once for several results (register tiles); short reduces are
unrolled; and the outermost loop is shared by the threads if the work is worth it.
"""

from __future__ import annotations

import functools

from tgcore.codegen.expand import stride_along
from tgcore.codegen.opt.kernel import Kernel, Opt, OptOps, static_size, try_move
from tgcore.dtype import dtypes
from tgcore.helpers import THREADS
from tgcore.uop.divmod import split_sum
from tgcore.uop.node import UOp
from tgcore.uop.ops import AxisType, GroupOp, Ops
from tgcore.uop.symbolic import simplify, split_valid

# copies of the body of a kernel that a tile and unrolling may make
_MOST_COPIES = 128
# a reduce no longer than this is unrolled as a whole
_SHORT_REDUCE = 9
# operations and bytes below which a second thread costs more than it gains
_WORTH_A_THREAD = 1 << 16
_TILE_SIZES = (8, 7, 6, 5, 4, 3, 2)
# an access to elements that are not neighbours costs about this many vector loads, a lane
_GATHER_COST = 1.0
_VECTOR_COST = 1.0


def optimize_for_vectors(kernel: Kernel) -> None:
    """Applies the default moves."""
    if kernel.target.vector_bytes:
        _vectorize(kernel)
        _tile(kernel)
        _widen_rows(kernel)
        _transpose_blocks(kernel)
        _unroll(kernel)
    if kernel.target.threads > 1:
        _share_among_threads(kernel)


def _widest_lanes(kernel: Kernel) -> int:
    """Lanes that fill a register, by the widest type that the kernel computes with."""
    sizes = [
        n.dtype.itemsize
        for n in kernel.nodes
        if n.op in (Ops.INDEX, Ops.REDUCE) or (n.op in GroupOp.ALU and dtypes.is_float(n.dtype))
    ]
    return max(1, int(kernel.target.vector_bytes // max([*sizes, 1])))


# *** lanes ***


def _vectorize(kernel: Kernel) -> None:
    best: tuple[float, int, int, int] | None = None
    lanes = _widest_lanes(kernel)
    for axis, r in enumerate(kernel.ranges):
        size = static_size(r)
        if size is None or size < 2 or not _may_be_lanes(kernel, r):
            continue
        cost, width = _cost_as_lanes(kernel, r, size, lanes)
        candidate = (cost, 0 if r.axis_type is AxisType.LOOP else 1, axis, width)
        if best is None or candidate < best:
            best = candidate
    if best is None or best[3] < 2:
        return
    cost, _, axis, width = best
    if cost >= _cost_of_scalars(kernel):
        return
    _upcast_or_unroll(kernel, axis, width)


def _may_be_lanes(kernel: Kernel, r: UOp) -> bool:
    if r.axis_type is AxisType.REDUCE:
        return all(r in n.src[1:] for n in kernel.reduces if r in n.src[0].ranges)
    return r.axis_type is AxisType.LOOP and r in kernel.store_ranges


def _upcast_or_unroll(kernel: Kernel, axis: int, width: int) -> None:
    r = kernel.ranges[axis]
    size = static_size(r)
    assert size is not None
    if size % width and not try_move(kernel, Opt(OptOps.PADTO, axis, width)):
        return
    op = OptOps.UNROLL if r.axis_type is AxisType.REDUCE else OptOps.UPCAST
    try_move(kernel, Opt(op, axis, width))


def _width_for(size: int, lanes: int, masked: bool) -> int:
    """The vector width for an axis: the widest that divides it, or a masked one if that is few."""
    width = lanes
    while width > 1 and size % width:
        width //= 2
    if masked and width < min(lanes, size) and width * 2 < lanes:
        padded = lanes
        while padded // 2 >= size:
            padded //= 2
        return padded
    return width


def _cost_as_lanes(kernel: Kernel, r: UOp, size: int, lanes: int) -> tuple[float, int]:
    """(cost of the accesses for each element, width) with this range as lanes."""
    width = _width_for(size, lanes, kernel.target.masked)
    steps = -(-size // width)
    waste = steps * width / size
    total = 0.0
    for access in kernel.indices:
        stride = stride_in_lanes(split_valid(access.src[1])[1], r, width)
        if stride == 0:
            total += 0.25 / width
        elif stride == 1:
            total += _VECTOR_COST / width
        else:
            total += _GATHER_COST * 1.5
    arithmetic = sum(1 for n in kernel.nodes if n.op in GroupOp.ALU and r in n.ranges)
    total += 0.25 * arithmetic / width
    horizontal = 0.05 if r.axis_type is AxisType.REDUCE else 0.0
    return (total * waste + horizontal, width)


def stride_in_lanes(index: UOp, r: UOp, width: int) -> int | None:
    """The stride along the innermost `width` steps of a range."""
    size = r.vmax + 1
    if r not in index.ranges or size == width or size % width:
        return stride_along(index, r) if size <= width or _is_affine(index, r) else None
    if _is_affine(index, r):
        return stride_along(index, r)
    lane = UOp.range(width, -1)
    outer = UOp.range(size // width, -2)
    return stride_along(simplify(index.substitute_ranges({r: outer * width + lane})), lane)


def _is_affine(index: UOp, r: UOp) -> bool:
    terms, _ = split_sum(index)
    return all(t is r or r not in t.ranges for t in terms)


def _cost_of_scalars(kernel: Kernel) -> float:
    return len(kernel.indices) + 0.25 * sum(1 for n in kernel.nodes if n.op in GroupOp.ALU)


# *** register tiles ***


def _copies(kernel: Kernel) -> int:
    """How many copies of its body the moves so far make, lanes not counted."""
    spread = [r for r in kernel.ranges if r.axis_type in (AxisType.UPCAST, AxisType.UNROLL)]
    sizes = sorted((static_size(r) or 1 for r in spread), reverse=True)
    lanes = _lanes_of(kernel)
    total = functools.reduce(lambda a, b: a * b, sizes, 1)
    return max(1, total // max(1, lanes))


def _lanes_of(kernel: Kernel) -> int:
    first = next((o for o in kernel.applied if o.op in (OptOps.UPCAST, OptOps.UNROLL)), None)
    return first.arg or 1 if first is not None else 1


def _tile(kernel: Kernel) -> None:
    """Upcasts axes along which an operand of a reduce stays the same."""
    reduces = kernel.reduces
    if len(reduces) != 1:
        return
    budget = kernel.target.vector_registers - 6
    tiled: set[tuple[int, ...]] = set()
    for _ in range(2):
        choice = _best_tile_axis(kernel, budget // _copies(kernel), tiled)
        if choice is None:
            return
        axis, amount = choice
        tiled.add(kernel.ranges[axis].arg[:-1])
        if not try_move(kernel, Opt(OptOps.UPCAST, axis, amount)):
            return


def _is_horizontal(kernel: Kernel) -> bool:
    """Whether the lanes are steps of a reduce."""
    return any(r.axis_type is AxisType.UNROLL for r in kernel.ranges)


def _best_tile_axis(
    kernel: Kernel, most: int, tiled: set[tuple[int, ...]]
) -> tuple[int, int] | None:
    best: tuple[float, int, int] | None = None
    inside = [n for n in kernel.reduces[0].toposort() if n.op is Ops.INDEX]
    upcast = {r for r in kernel.ranges if r.axis_type is AxisType.UPCAST}
    for axis, r in enumerate(kernel.ranges):
        size = static_size(r)
        if r.axis_type is not AxisType.LOOP or r not in kernel.store_ranges or size is None:
            continue
        if r.arg[:-1] in tiled:
            continue
        reused = sum(1 for n in inside if r not in n.ranges)
        if not reused or len(inside) - reused == 0:
            continue
        amounts = [a for a in _TILE_SIZES if a <= most and size % a == 0]
        if not amounts:
            continue
        # a second axis of lanes reuses the other operand; prefer the one that is not tiled yet
        fresh = sum(1 for n in inside if r not in n.ranges and any(t in n.ranges for t in upcast))
        candidate = (float(fresh * 2 + reused), amounts[0], -axis)
        if best is None or candidate > best:
            best = candidate
    return None if best is None else (-best[2], best[1])


# *** whole cache lines, many of them ***

_ROW_VECTORS = 8
_BLOCK_SIZES = (16, 8, 4)


def _lanes_axis(kernel: Kernel) -> int | None:
    """The loop whose innermost steps became lanes."""
    lanes = [r for r in kernel.ranges if r.axis_type is AxisType.UPCAST]
    if len(lanes) != 1:
        return None
    for access in kernel.indices:
        terms = dict(_terms(access))
        factor = terms.get(lanes[0])
        for axis, r in enumerate(kernel.ranges):
            if (
                r.axis_type is AxisType.LOOP
                and factor
                and terms.get(r) == factor * (lanes[0].vmax + 1)
            ):
                return axis
    return None


def _terms(access: UOp) -> dict[UOp, int]:
    return split_sum(split_valid(access.src[1])[1])[0]


def _widen_rows(kernel: Kernel) -> None:
    """A reduce over rows reads a longer piece of each row: pages and prefetchers like that."""
    if len(kernel.reduces) != 1 or _is_horizontal(kernel) or _copies(kernel) > 1:
        return
    axis = _lanes_axis(kernel)
    size = None if axis is None else static_size(kernel.ranges[axis])
    for amount in (_ROW_VECTORS, _ROW_VECTORS // 2):
        if size is not None and size % amount == 0 and size // amount >= kernel.target.threads:
            try_move(kernel, Opt(OptOps.UPCAST, axis, amount))
            return


def _transpose_blocks(kernel: Kernel) -> None:
    """An access that is strided along the lanes gets a block: all of each cache line is used."""
    lanes = [r for r in kernel.ranges if r.axis_type is AxisType.UPCAST]
    if kernel.reduces or len(lanes) != 1:
        return
    strided = [
        n for n in kernel.indices if stride_along(split_valid(n.src[1])[1], lanes[0]) not in (0, 1)
    ]
    for access in strided:
        for axis, r in enumerate(kernel.ranges):
            size = static_size(r)
            if r.axis_type is not AxisType.LOOP or size is None or _terms(access).get(r) != 1:
                continue
            for amount in _BLOCK_SIZES:
                if size % amount == 0 and try_move(kernel, Opt(OptOps.UPCAST, axis, amount)):
                    return


# *** unrolling ***


def _unroll(kernel: Kernel) -> None:
    """Short reduces disappear; one that is all vector lanes gets several accumulators."""
    for _ in range(3):
        axes = kernel.axes(AxisType.REDUCE)
        if not axes:
            return
        axis = axes[-1]
        size = static_size(kernel.ranges[axis])
        if size is None or size > _SHORT_REDUCE or size * _copies(kernel) > _MOST_COPIES:
            break
        if not try_move(kernel, Opt(OptOps.UNROLL, axis, 0)):
            break
    axes = kernel.axes(AxisType.REDUCE)
    if not axes:
        return
    size = static_size(kernel.ranges[axes[-1]])
    for amount in (4, 2):
        if size is not None and size % amount == 0 and _copies(kernel) * amount <= 32:
            try_move(kernel, Opt(OptOps.UNROLL, axes[-1], amount))
            return


# *** threads ***


def _work(kernel: Kernel) -> int:
    """Roughly the operations of the kernel: innermost statements times the trips of all loops."""
    trips = functools.reduce(lambda a, r: a * (r.vmax + 1), kernel.ranges, 1)
    arithmetic = sum(1 for n in kernel.nodes if n.op in GroupOp.ALU and not _is_index(n))
    return int(trips * (arithmetic + len(kernel.indices)))


def _is_index(node: UOp) -> bool:
    return node.dtype.scalar() is dtypes.index or node.op in GroupOp.Comparison


def _share_among_threads(kernel: Kernel) -> None:
    limit = kernel.target.threads if not THREADS else min(int(THREADS), kernel.target.threads)
    if _work(kernel) < _WORTH_A_THREAD * 2:
        return
    limit = min(limit, _work(kernel) // _WORTH_A_THREAD)
    for axis in kernel.axes(AxisType.LOOP):
        size = static_size(kernel.ranges[axis])
        if size is None:
            continue
        for threads in range(min(limit, size), 1, -1):
            if size % threads == 0 and try_move(kernel, Opt(OptOps.THREAD, axis, threads)):
                return
