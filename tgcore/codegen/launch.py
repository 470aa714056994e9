"""THREAD, GLOBAL, WARP and LOCAL ranges become positions in the launch (SPECIAL nodes).

A launch has three axes for work groups (g0, g1, g2) and three for the items of a group (l0, ..);
number 0 is the fastest: items whose l0 are neighbours run side by side. So l0 is the range along
which memory is walked most closely, and WARP ranges, which matrix instructions ask for, come
before all others; among work groups the innermost loop is the fastest. Ranges that are more than
three, or larger than an axis may be, are folded: several share an axis, or one takes several.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from tgcore.codegen.target import Target
from tgcore.dtype import AddrSpace, Invalid, dtypes
from tgcore.errors import CodegenError
from tgcore.helpers import prod
from tgcore.uop.divmod import split_sum
from tgcore.uop.node import UOp, sint, smax, to_index, to_sint
from tgcore.uop.ops import AxisType, Ops
from tgcore.uop.symbolic import split_valid

_AXES = 3
_LOCAL = (AxisType.WARP, AxisType.LOCAL, AxisType.GROUP_REDUCE)
LAUNCH = (AxisType.THREAD, AxisType.GLOBAL, *_LOCAL)
"""The axis types of ranges that are positions in the launch."""


def add_launch_positions(ast: UOp, target: Target) -> UOp:
    """The kernel with positions in the launch in place of ranges."""
    ranges = [n for n in ast.toposort() if n.op is Ops.RANGE and n.axis_type in LAUNCH]
    if not ranges:
        return ast
    kinds = {
        "t": [r for r in ranges if r.axis_type is AxisType.THREAD],
        "g": sorted(_of(ranges, AxisType.GLOBAL), key=lambda r: r.arg[:-1], reverse=True),
        "l": _closest_first(ast, _of(ranges, *_LOCAL)),
    }
    maxima = {"t": (), "g": target.global_max, "l": target.local_max}
    table: dict[UOp, UOp] = {}
    conditions: dict[UOp, UOp] = {}
    for letter, found in kinds.items():
        positions, inside = launch_positions(letter, found, maxima[letter])
        table.update(zip(found, positions))
        if inside is not None:
            conditions.update(dict.fromkeys(found, inside))
    return _rebuilt(ast, table, conditions)


def _of(ranges: Sequence[UOp], *types: AxisType) -> list[UOp]:
    return [r for r in ranges if r.axis_type in types]


def _closest_first(ast: UOp, ranges: list[UOp]) -> list[UOp]:
    """The ranges by how many accesses walk memory in smaller steps along it than along others;
    stores count twice, since no cache joins their parts."""
    votes = dict.fromkeys(ranges, 0)
    nodes = ast.toposort() if len(ranges) > 1 else {}
    for node in (*nodes, *(n.src[0] for n in nodes if n.op is Ops.STORE)):
        if node.op is Ops.INDEX and _is_global(node):
            terms, _ = split_sum(split_valid(node.src[1])[1])
            strides = {r: abs(terms[r]) for r in ranges if terms.get(r)}
            if strides:
                votes[min(strides, key=lambda r: strides[r])] += 1
    return sorted(
        ranges, key=lambda r: (r.axis_type is not AxisType.WARP, -votes[r], _backwards(r.arg[:-1]))
    )


def _backwards(numbers: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([-n for n in numbers])


def _is_global(access: UOp) -> bool:
    memory = access.src[0]
    while memory.op is Ops.AFTER:
        memory = memory.src[0]
    return memory.op is Ops.DEFINE_GLOBAL and memory.dtype.addrspace is AddrSpace.GLOBAL


# *** axes of the launch ***


def launch_positions(
    letter: str, ranges: Sequence[UOp], maxima: tuple[int, ...]
) -> tuple[list[UOp], UOp | None]:
    """What each range (the fastest first) becomes; and, if there are more positions than the
    ranges have steps, which of these count."""
    sizes = [to_sint(r.src[0]) for r in ranges]
    groups = folded(sizes, maxima)
    if groups is not None:
        found: dict[int, UOp] = {}
        for axis, group in enumerate(groups):
            position = UOp.special(f"{letter}{axis}", prod(sizes[n] for n in group))
            found.update(zip(group, _digits(position, [sizes[n] for n in group])))
        return [found[n] for n in range(len(ranges))], None
    return _spread(letter, sizes, maxima)


def folded(sizes: Sequence[sint], maxima: tuple[int, ...]) -> list[list[int]] | None:
    """The numbers of the sizes that share each axis: neighbours, as few as possible on one
    axis; None if there is no way to keep to the limits (none: no limits)."""
    limits = maxima or (1 << 62,) * max(_AXES, len(sizes))
    for parts in range(len(sizes), -1, -1):
        if parts > len(limits):
            continue
        for groups in _partitions(len(sizes), parts):
            if all(
                math.prod(smax(sizes[n]) for n in group) <= limit
                for group, limit in zip(groups, limits)
            ):
                return groups
    return None


def _partitions(count: int, parts: int) -> Iterator[list[list[int]]]:
    """All ways to cut so many things in a row into so many parts that are not empty."""
    if parts == 0:
        if count == 0:
            yield []
        return
    for cuts in itertools.combinations(range(1, count), parts - 1):
        yield [list(range(a, b)) for a, b in itertools.pairwise((0, *cuts, count))]


def _digits(position: UOp, sizes: Sequence[sint]) -> list[UOp]:
    """The position in a box of that shape, the fastest axis first."""
    found: list[UOp] = []
    for size in sizes[:-1]:
        found.append(position % to_index(size))
        position = position // to_index(size)
    return [*found, position]


def _spread(
    letter: str, sizes: Sequence[sint], maxima: tuple[int, ...]
) -> tuple[list[UOp], UOp | None]:
    """All ranges of known size as one, over as many axes as it takes."""
    unknown = [s for s in sizes if not isinstance(s, int)]
    total = math.prod(s for s in sizes if isinstance(s, int))
    free = maxima[: len(maxima) - len(unknown)]
    fits = zip(unknown, maxima[len(free) :]) if len(unknown) <= len(maxima) else [(1 << 62, 0)]
    parts = _factors(total, free)
    if parts is None or any(smax(size) > limit for size, limit in fits):
        text = " x ".join(map(str, sizes))
        raise CodegenError(f"a launch of {text} positions does not fit the limits {maxima}")
    linear = UOp.const(dtypes.index, 0)
    for axis in range(len(parts) - 1, -1, -1):
        linear = linear * parts[axis] + UOp.special(f"{letter}{axis}", parts[axis])
    digits = iter(_digits(linear, [s for s in sizes if isinstance(s, int)]))
    axes = iter(range(len(free), len(maxima)))
    found = [
        next(digits) if isinstance(s, int) else UOp.special(f"{letter}{next(axes)}", s)
        for s in sizes
    ]
    return found, None if math.prod(parts) == total else linear < total


def _factors(total: int, maxima: tuple[int, ...]) -> list[int] | None:
    """Sizes within the limits whose product is the total, or a little more."""
    exact: list[int] = []
    rest = total
    for limit in maxima:
        exact.append(next(d for d in range(min(limit, rest), 0, -1) if rest % d == 0))
        rest //= exact[-1]
    if rest == 1:
        return exact
    sizes: list[int] = []
    rest = total
    for limit in maxima:
        steps = -(-rest // limit)
        sizes.append(-(-rest // steps))
        rest = steps
    return sizes if rest == 1 else None


# *** the kernel with positions ***


def _rebuilt(ast: UOp, table: dict[UOp, UOp], conditions: dict[UOp, UOp]) -> UOp:
    done: dict[UOp, UOp] = dict(table)
    for node in ast.toposort():
        if node in table:
            continue
        src = node.src
        if node.op is Ops.END:
            src = (src[0], *[s for s in src[1:] if s not in table])
        new_src = tuple(done.get(s, s) for s in src)
        if node.op is Ops.INDEX and conditions and _is_global(node):
            inside = dict.fromkeys(c for r, c in conditions.items() if r in node.ranges)
            new_src = (new_src[0], *(_under(s, list(inside)) for s in new_src[1:]))
        if node.op is Ops.END and len(new_src) == 1:
            done[node] = new_src[0]
        elif new_src != node.src:
            done[node] = node.replace(src=new_src)
    return done[ast]


def _under(index: UOp, conditions: list[UOp]) -> UOp:
    valid, plain = split_valid(index)
    for condition in conditions:
        valid = condition if valid is None else valid & condition
    return index if valid is None else valid.where(plain, Invalid)
