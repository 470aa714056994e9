"""The moves that a kernel gets by default on devices with a launch grid.

Work items that run side by side should access neighbours in memory, each of them a vector at once,
and there should be enough of them. So, in this order:

- a matmul of types that a matrix instruction takes becomes tiles of these;
- another reduce whose operands can be reused gets register tiles: UPCAST along an axis on which one
  operand does not depend, and along one on which another does not;
- reduces along neighbours in memory, and those of few results, are shared by work groups;
- what walks along neighbours without a reduce is UPCAST to vectors;
- short reduces are unrolled; loops over results become LOCAL, the one along neighbours first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tgcore.codegen.opt.kernel import Kernel, Opt, OptOps, static_size, try_move
from tgcore.codegen.opt.tensor_core import MatMul, matmuls
from tgcore.codegen.opt.vectors import stride_in_lanes
from tgcore.dtype import dtypes
from tgcore.helpers import TC, round_up
from tgcore.uop.node import UOp
from tgcore.uop.ops import AxisType, GroupOp, Ops
from tgcore.uop.symbolic import split_valid
from tgcore.uop.tensor_core import TensorCore

# work items that keep a large chip busy (some 100 units of a few hundred items): with fewer, tiles
# are made smaller and reduces are shared
_ENOUGH_ITEMS = 1 << 14
_ENOUGH_WARPS = 1 << 9
# items that run in lockstep, on most chips; items of a work group
_WARP = 32
_GROUP_ITEMS = 128
_MOST_SHARING = 256
# padding may make this much more work; matrix instructions are worth more
_MOST_WASTE = 1.25
_MOST_MATRIX_WASTE = 4.0
# results that an item (or in tiles of matrix instructions, a warp) keeps: rows, columns
_REGISTER_TILE = (8, 4)
_MATRIX_TILE = (4, 4)
# items of a group along rows and columns of register tiles
_GROUP_TILE = (8, 16)
_MOST_WARPS = 4
_MOST_COPIES = 128
_SHORT_REDUCE = 8
_SHORTEST_SHARED = 32


def optimize_for_grid(kernel: Kernel) -> None:
    """Applies the default moves."""
    if TC and kernel.target.local and _use_matrix_instructions(kernel):
        return
    if not _tile(kernel):
        if kernel.reduces:
            _share(kernel)
        else:
            _widen(kernel)
    _unroll(kernel)
    _add_locals(kernel)


# *** what is known of a kernel ***


def _axis(kernel: Kernel, r: UOp) -> int | None:
    """Where the range is, or what was left of it by a move."""
    for axis, other in enumerate(kernel.ranges):
        if other.arg == r.arg:
            return axis
    return None


def _move(kernel: Kernel, op: OptOps, r: UOp, amount: int) -> bool:
    axis = _axis(kernel, r)
    return axis is not None and try_move(kernel, Opt(op, axis, amount))


def _left_of(kernel: Kernel, r: UOp) -> int:
    """The size that the range has now: 1 if it is gone."""
    axis = _axis(kernel, r)
    return 1 if axis is None else int(kernel.ranges[axis].vmax + 1)


def _loops(kernel: Kernel, *types: AxisType) -> list[UOp]:
    """The ranges of these types whose sizes are known."""
    return [r for r in kernel.ranges if r.axis_type in types and static_size(r) is not None]


def _items(kernel: Kernel, *types: AxisType) -> int:
    kinds = types or (AxisType.GLOBAL, AxisType.LOCAL, AxisType.WARP, AxisType.GROUP_REDUCE)
    return math.prod(r.vmax + 1 for r in kernel.ranges if r.axis_type in kinds)


def _copies(kernel: Kernel) -> int:
    return _items(kernel, AxisType.UPCAST, AxisType.UNROLL)


def _accesses(kernel: Kernel) -> list[UOp]:
    return [n for n in kernel.indices if n.src[0].op is Ops.DEFINE_GLOBAL]


def _stored(kernel: Kernel) -> list[UOp]:
    ends = [end.src[0] for end in kernel.ast.src if end.op is Ops.END]
    return [store.src[0] for store in ends if store.op is Ops.STORE]


def _stride(access: UOp, r: UOp, width: int = 0) -> int | None:
    """By how much the access moves along the innermost steps of a range."""
    size = r.vmax + 1
    width = width or next((d for d in (2, 3, 5, 7) if size % d == 0), size)
    return stride_in_lanes(split_valid(access.src[1])[1], r, min(width, size))


def _neighbours(accesses: Sequence[UOp], r: UOp) -> int:
    """In how much memory the accesses touch neighbours along the range."""
    return sum(abs(n.src[0].dtype.size) for n in accesses if _stride(n, r) in (1, -1))


def _is_near(kernel: Kernel, r: UOp) -> bool:
    """Whether much of the memory that is accessed is walked along the range."""
    accesses = _accesses(kernel)
    largest = max([abs(n.src[0].dtype.size) for n in accesses], default=0)
    return _neighbours(accesses, r) * 8 >= largest > 0


def _divisor(size: int, most: int) -> int:
    """The largest divisor that is not above `most`; a power of two, if that is not much less."""
    divisors = [d for d in range(1, min(size, most) + 1) if size % d == 0]
    even = max(d for d in divisors if d & (d - 1) == 0)
    return even if even * 2 > divisors[-1] else divisors[-1]


def _vector(kernel: Kernel, accesses: Sequence[UOp], r: UOp, size: int) -> int:
    """How many neighbours along the range one access may take: of all that walk along it."""
    near = [n for n in accesses if _stride(n, r) in (1, -1)]
    widest = max([n.dtype.base.itemsize for n in near], default=1)
    most = kernel.target.memory_bytes // widest
    fitting = [w for w in kernel.target.memory_widths if w <= most and size % w == 0]
    return max(fitting, default=1) if near else 1


# *** matrix instructions ***


def _use_matrix_instructions(kernel: Kernel) -> bool:
    """Tiles of the first instruction for which little padding is needed."""
    best: tuple[float, int, int, TensorCore, MatMul] | None = None
    for position, core in enumerate(kernel.target.tensor_cores):
        if any(d not in kernel.target.dtypes for d in core.dtypes):
            continue
        for way, match in enumerate(matmuls(kernel, core)):
            sizes = [(r.vmax + 1, tile) for r, tile in zip(match.ranges, core.dims)]
            waste = math.prod(round_up(size, tile) / size for size, tile in sizes)
            if waste <= _MOST_MATRIX_WASTE and (best is None or (waste, position, way) < best[:3]):
                best = (waste, position, way, core, match)
    if best is None:
        return False
    _, number, _, core, match = best
    tiles = _matrix_tiles(kernel, core, match)
    for r, tile, amount in zip(match.ranges, core.dims, (*tiles, 1)):
        if _left_of(kernel, r) % (tile * amount):
            _move(kernel, OptOps.PADTO, r, tile * amount)
        if amount > 1:
            _move(kernel, OptOps.UPCAST, r, amount)
    chosen = _way_to(kernel, core, match)
    if chosen is None or not try_move(kernel, Opt(OptOps.TC, chosen, number)):
        return False
    _unroll_steps(kernel, match)
    for r in (match.m, match.n, match.m, match.n):
        warps = _items(kernel, AxisType.LOCAL)
        if warps < _MOST_WARPS and _left_of(kernel, r) % 2 == 0:
            _move(kernel, OptOps.LOCAL, r, 2)
    return True


def _matrix_tiles(kernel: Kernel, core: TensorCore, match: MatMul) -> tuple[int, int]:
    """How many instructions side by side along n and m share what they load: as many as leave
    enough warps, and need little more padding."""
    found = [1, 1]
    others = _items(kernel, AxisType.GLOBAL) // ((match.n.vmax + 1) * (match.m.vmax + 1))
    for _ in range(3):
        for place, (r, tile) in enumerate(zip(match.ranges[:2], core.dims[:2])):
            more = list(found)
            more[place] *= 2
            counts = [-(-(x.vmax + 1) // (t * c)) for x, t, c in zip(match.ranges, core.dims, more)]
            padded = counts[place] * tile * more[place]
            little = padded <= max(_MOST_WASTE * (r.vmax + 1), round_up(r.vmax + 1, tile))
            if (
                more[place] <= _MATRIX_TILE[1 - place]
                and little
                and math.prod(counts) * others >= _ENOUGH_WARPS
            ):
                found = more
    return found[0], found[1]


def _way_to(kernel: Kernel, core: TensorCore, match: MatMul) -> int | None:
    """The number of the match, as the kernel is now."""
    fitting = [
        m
        for m in matmuls(kernel, core)
        if all((r.vmax + 1) % tile == 0 for r, tile in zip(m.ranges, core.dims))
    ]
    wanted = [r.arg for r in match.ranges]
    return next((w for w, m in enumerate(fitting) if [r.arg for r in m.ranges] == wanted), None)


def _unroll_steps(kernel: Kernel, match: MatMul) -> None:
    """Several steps at once: the loads of one go on while another is computed."""
    for r in _loops(kernel, AxisType.REDUCE):
        if r.arg != match.k.arg and r.vmax < _SHORT_REDUCE // 2:
            _move(kernel, OptOps.UNROLL, r, 0)
    for amount in (4, 2):
        if _left_of(kernel, match.k) % amount == 0 and _copies(kernel) * amount <= 1 << 13:
            _move(kernel, OptOps.UNROLL, match.k, amount)
            return


# *** register tiles ***


def _tile(kernel: Kernel) -> bool:
    """A tile of results for each item, if operands of the reduce can be reused both ways."""
    if len(kernel.reduces) != 1:
        return False
    inside = [n for n in kernel.reduces[0].toposort() if n.op is Ops.INDEX]
    axes = [r for r in _loops(kernel, AxisType.GLOBAL) if _may_be_reused(inside, r)]
    stored = _stored(kernel)
    columns = max(
        axes, key=lambda r: (_neighbours(stored, r), _neighbours(inside, r), r.vmax), default=None
    )
    if columns is None:
        return False
    rows = [
        r
        for r in axes
        if any(r not in n.ranges and columns in n.ranges for n in inside)
        and any(r in n.ranges and columns not in n.ranges for n in inside)
    ]
    if not rows:
        return False
    row = max(rows, key=lambda r: r.vmax)
    for r, most in ((columns, _REGISTER_TILE[1]), (row, _REGISTER_TILE[0])):
        amount = most if r.vmax >= most else 1
        while amount > 1 and _items(kernel) < _ENOUGH_ITEMS * amount:
            amount //= 2
        _upcast(kernel, r, amount)
    if _items(kernel) < _ENOUGH_ITEMS:
        _share_rest(kernel)
    if kernel.target.local and not kernel.axes(AxisType.GROUP_REDUCE):
        # a group's tile is about square: what it loads is used by more of its items
        for r, most in ((columns, _GROUP_TILE[1]), (row, _GROUP_TILE[0])):
            _make_local(kernel, r, most, first=False)
    return True


def _may_be_reused(accesses: Sequence[UOp], r: UOp) -> bool:
    uses = [r in n.ranges for n in accesses]
    return any(uses) and not all(uses)


def _upcast(kernel: Kernel, r: UOp, amount: int) -> None:
    """UPCAST by about that much: by a divisor, or after some padding."""
    size = r.vmax + 1
    divisor = max(d for d in range(1, amount + 1) if size % d == 0)
    if divisor * 2 <= amount and round_up(size, amount) <= _MOST_WASTE * size:
        _move(kernel, OptOps.PADTO, r, amount)
        divisor = amount
    if divisor > 1:
        _move(kernel, OptOps.UPCAST, r, divisor)


# *** shared reduces ***


def _share(kernel: Kernel) -> None:
    """The loop of a reduce along neighbours in memory, or of one with few results."""
    inside = list(
        dict.fromkeys(
            n
            for reduce in kernel.reduces
            for n in reduce.toposort()
            if n.op is Ops.INDEX and n.src[0].op is Ops.DEFINE_GLOBAL
        )
    )
    reduced = _loops(kernel, AxisType.REDUCE)
    if not reduced or not kernel.target.local_bytes:
        return
    if len(kernel.reduces) > 1:
        _share_alike(kernel, reduced)
        return
    along = max(reduced, key=lambda r: (_neighbours(inside, r), r.vmax))
    kept = _loops(kernel, AxisType.GLOBAL)
    near = _neighbours(inside, along)
    if near and near >= max([_neighbours(inside, r) for r in kept], default=0):
        _share_rows(kernel, inside, along)
    else:
        for r in sorted(kept, key=lambda r: -_neighbours(inside, r))[:1]:
            if _items(kernel) >= 4 * _ENOUGH_ITEMS and _neighbours(inside, r):
                width = _vector(kernel, inside, r, r.vmax + 1)
                _move(kernel, OptOps.UPCAST, r, min(width, 4))
        _share_rest(kernel)


def _share_rows(kernel: Kernel, inside: Sequence[UOp], along: UOp) -> None:
    """Each item reads vectors, side by side with those of its neighbours."""
    outputs, size = _items(kernel), along.vmax + 1
    wanted = _WARP
    while wanted * outputs < 2 * _ENOUGH_ITEMS and wanted < _MOST_SHARING:
        wanted *= 2
    if outputs <= 16:
        wanted = kernel.target.local_items
    width = _vector(kernel, inside, along, size)
    if size // width < 8:
        return
    items = _divisor(size // width, wanted)
    if items < min(wanted, _WARP, size // width):
        multiple = width * min(wanted, 1 << ((size // width).bit_length() - 1))
        while multiple > width * 8 and round_up(size, multiple) > _MOST_WASTE * size:
            multiple //= 2
        if multiple // width > items and _move(kernel, OptOps.PADTO, along, multiple):
            items = multiple // width
    if width > 1:
        _move(kernel, OptOps.UNROLL, along, width)
    if items > 1:
        _move(kernel, OptOps.GROUP, along, items)


def _share_rest(kernel: Kernel) -> None:
    """Where there are few results, several items share the longest loop of each."""
    outputs = _items(kernel)
    loops = _loops(kernel, AxisType.REDUCE)
    if not loops or outputs >= _ENOUGH_ITEMS:
        return
    longest = max(loops, key=lambda r: r.vmax)
    if longest.vmax + 1 < _SHORTEST_SHARED:
        return
    near = [r for r in _loops(kernel, AxisType.GLOBAL) if _is_near(kernel, r)]
    wide = any(r.vmax + 1 >= _WARP // 2 for r in near)
    wanted = 2
    while wanted * outputs < _ENOUGH_ITEMS and wanted < (_WARP // 4 if wide else _WARP):
        wanted *= 2
    while wanted > 1 and not _move(
        kernel, OptOps.GROUPTOP, longest, _divisor(longest.vmax + 1, wanted)
    ):
        wanted //= 2


def _share_alike(kernel: Kernel, loops: Sequence[UOp]) -> None:
    """Several reduces one after another, all over as many steps: by the same items."""
    sizes = {r.vmax + 1 for r in loops}
    if len(sizes) != 1 or len(loops) != len(kernel.reduces):
        return
    size = sizes.pop()
    wanted = _WARP
    while wanted * _items(kernel) < 2 * _ENOUGH_ITEMS and wanted < _MOST_SHARING:
        wanted *= 2
    items = _divisor(size, wanted)
    if items >= 8:
        for r in loops:
            _move(kernel, OptOps.GROUP, r, items)


# *** vectors ***


def _widen(kernel: Kernel) -> None:
    """The axis along which neighbours are stored (or loaded) becomes vectors in memory."""
    accesses, stored = _accesses(kernel), _stored(kernel)
    loops = _loops(kernel, AxisType.GLOBAL)
    if not loops:
        return
    r = max(loops, key=lambda r: (_neighbours(stored, r), _neighbours(accesses, r)))
    widths = [w for w in kernel.target.memory_widths if (r.vmax + 1) % w == 0]
    for width in sorted(widths, reverse=True):
        near = [n for n in accesses if _stride(n, r, width) == 1]
        itemsize = max([n.dtype.base.itemsize for n in near], default=0)
        if not near or width * itemsize > kernel.target.memory_bytes:
            continue
        if _items(kernel) < _ENOUGH_ITEMS * width and _items(kernel) > _WARP * width:
            continue
        if all(_stride(n, r, width) in (0, 1) for n in accesses):
            _move(kernel, OptOps.UPCAST, r, width)
            return


# *** the rest ***


def _unroll(kernel: Kernel) -> None:
    """Short reduces disappear; of a long one, several steps are taken at once."""
    body = sum(1 for n in kernel.nodes if n.op in GroupOp.ALU and n.dtype is not dtypes.index)
    most = max(1, _MOST_COPIES * 4 // max(body, 4))
    for r in reversed(_loops(kernel, AxisType.REDUCE)):
        if r.vmax < _SHORT_REDUCE and _copies(kernel) * (r.vmax + 1) <= most:
            _move(kernel, OptOps.UNROLL, r, 0)
    for r in reversed(_loops(kernel, AxisType.REDUCE)):
        for amount in (4, 2):
            if (r.vmax + 1) % amount == 0 and _copies(kernel) * amount <= most:
                _move(kernel, OptOps.UNROLL, r, amount)
                return


def _add_locals(kernel: Kernel) -> None:
    """Loops over results become items of a group: those along neighbours in memory first."""
    if not kernel.target.local:
        return
    wanted = _GROUP_ITEMS
    while wanted > _WARP and _items(kernel) < wanted * (_ENOUGH_ITEMS // _GROUP_ITEMS):
        wanted //= 2
    loops = _loops(kernel, AxisType.GLOBAL)
    loops.sort(key=lambda r: (_closeness(kernel, r), r.arg[:-1]), reverse=True)
    near = [_is_near(kernel, r) for r in loops]
    several = sum(near) > 1  # some accesses walk along one range, some along another
    for number, r in enumerate(loops[:3]):
        taken = _items(kernel, AxisType.LOCAL, AxisType.WARP, AxisType.GROUP_REDUCE)
        first = number == 0 and not kernel.axes(AxisType.LOCAL)
        most = wanted // taken
        if several and number < 2:
            most = min(_WARP, kernel.target.local_items // taken) if first else 2 * most
        elif first and near[0]:
            most = max(most, min(_WARP, kernel.target.local_items // taken))
        if most < 2:
            return
        _make_local(kernel, r, most, first and taken == 1)


def _closeness(kernel: Kernel, r: UOp) -> float:
    """Much for a range along which accesses move by little."""
    strides = [_stride(n, r) for n in (*_accesses(kernel), *_stored(kernel))]
    return sum(1 / abs(s) for s in strides if s)


def _make_local(kernel: Kernel, r: UOp, most: int, first: bool) -> None:
    size = r.vmax + 1
    amount = _divisor(size, most)
    if first and amount < min(most, _WARP) < size:
        multiple = _WARP if round_up(size, most) > _MOST_WASTE * size else most
        if round_up(size, multiple) <= _MOST_WASTE * size:
            _move(kernel, OptOps.PADTO, r, multiple)
            amount = multiple
    while amount > 1 and not _move(kernel, OptOps.LOCAL, r, amount):
        amount = _divisor(_left_of(kernel, r), amount - 1)
