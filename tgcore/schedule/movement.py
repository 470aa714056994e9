"""Movement ops as arithmetic on ranges: from the indices of the result to those of the source.

An index may carry a condition, `where(valid, index, Invalid)`; conditions are taken off before the
arithmetic and put back on top after it, so Invalid never stands inside an expression.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from tgcore.dtype import Invalid, dtypes
from tgcore.helpers import argsort
from tgcore.uop.node import UOp, sint, to_index
from tgcore.uop.ops import Ops
from tgcore.uop.symbolic import simplify, simplify_given, split_valid

Ranges = tuple[UOp, ...]

ZERO = UOp.const(dtypes.index, 0)


def join_valid(conditions: Sequence[UOp | None], index: UOp) -> UOp:
    """The index under all of the conditions."""
    clauses = list(dict.fromkeys(c for c in conditions if c is not None))
    clauses = [c for c in clauses if not (c.op is Ops.CONST and c.arg is True)]
    if not clauses:
        return index
    return functools.reduce(lambda a, b: a & b, clauses).where(index, Invalid)


def all_of(conditions: Sequence[UOp | None]) -> UOp | None:
    """The conjunction of the conditions; None if there are none."""
    clauses = list(dict.fromkeys(c for c in conditions if c is not None))
    return functools.reduce(lambda a, b: a & b, clauses) if clauses else None


def input_ranges(node: UOp, ranges: Ranges) -> Ranges:
    """The indices into the source of a movement op, for these indices of its result."""
    rule = _RULES[node.op]
    return rule(node, ranges)


def _permute(node: UOp, ranges: Ranges) -> Ranges:
    return tuple(ranges[position] for position in argsort(node.arg))


def _flip(node: UOp, ranges: Ranges) -> Ranges:
    shape = node.src[0].known_shape
    flipped = list(ranges)
    for axis in node.arg:
        valid, index = split_valid(ranges[axis])
        flipped[axis] = join_valid([valid], simplify((index * -1) + (shape[axis] - 1)))
    return tuple(flipped)


def _shrink(node: UOp, ranges: Ranges) -> Ranges:
    result = []
    for r, (begin, _) in zip(ranges, node.marg):
        valid, index = split_valid(r)
        moved = index if _is_zero(begin) else simplify(index + begin)
        result.append(join_valid([valid], moved))
    return tuple(result)


def _expand(node: UOp, ranges: Ranges) -> Ranges:
    inner, outer = node.src[0].known_shape, node.known_shape
    return tuple(
        r if _same_size(a, b) else ZERO for r, a, b in zip(ranges, inner, outer, strict=True)
    )


def _pad(node: UOp, ranges: Ranges) -> Ranges:
    result = []
    for r, size, (before, after) in zip(ranges, node.src[0].known_shape, node.marg):
        if _is_zero(before) and _is_zero(after):
            result.append(r)
            continue
        valid, index = split_valid(r)
        inside = inside_condition(index, size, before)
        moved = index if _is_zero(before) else simplify(index + before * -1)
        narrowed = simplify_given(moved, inside) if inside.op is not Ops.CONST else moved
        result.append(join_valid([valid, inside], narrowed))
    return tuple(result)


def inside_condition(index: UOp, size: sint, before: sint) -> UOp:
    """That an index of a padded axis lies in what was padded."""
    low = (index < before).logical_not() if not _is_zero(before) else None
    high = index < (size + before)
    return simplify(high if low is None else low & high)


def pad_condition(node: UOp, ranges: Ranges) -> UOp:
    """Where a PAD shows its source, for these indices of its result."""
    conditions = []
    for r, size, (before, after) in zip(ranges, node.src[0].known_shape, node.marg):
        if _is_zero(before) and _is_zero(after):
            continue
        conditions.append(inside_condition(split_valid(r)[1], size, before))
    found = all_of(conditions)
    return UOp.const(dtypes.bool, True) if found is None else simplify(found)


def _reshape(node: UOp, ranges: Ranges) -> Ranges:
    return _reshaped(node.src[0].known_shape, node.known_shape, ranges)


@functools.lru_cache(maxsize=20_000)
def _reshaped(inner: tuple[sint, ...], outer: tuple[sint, ...], ranges: Ranges) -> Ranges:
    conditions: list[UOp | None] = []
    result: list[UOp] = []
    for inner_axes, outer_axes in _matching_groups(inner, outer):
        if len(inner_axes) == len(outer_axes) == 1:
            result.append(ranges[outer_axes[0]])
            continue
        parts = [split_valid(ranges[axis]) for axis in outer_axes]
        found = [valid for valid, _ in parts]
        flat = _flatten([outer[a] for a in outer_axes], [index for _, index in parts])
        for index in _unflatten([inner[a] for a in inner_axes], flat):
            result.append(join_valid(found, index))
        if not inner_axes:
            conditions.extend(found)
    if any(c is not None for c in conditions) and result:
        valid, index = split_valid(result[0])
        result[0] = join_valid([valid, *conditions], index)
    return tuple(result)


def _matching_groups(
    inner: Sequence[sint], outer: Sequence[sint]
) -> list[tuple[list[int], list[int]]]:
    """The axes of both shapes in the smallest groups that hold equally many elements."""
    groups: list[tuple[list[int], list[int]]] = []
    i = o = 0
    while i < len(inner) or o < len(outer):
        if i < len(inner) and o < len(outer) and _same_size(inner[i], outer[o]):
            groups.append(([i], [o]))
            i, o = i + 1, o + 1
            continue
        inner_axes, outer_axes = [], []
        inner_size: sint = 1
        outer_size: sint = 1
        while True:
            smaller_inside = i < len(inner) and (
                o >= len(outer) or _less(inner_size, outer_size, inner[i])
            )
            if smaller_inside:
                inner_axes.append(i)
                inner_size = _times(inner_size, inner[i])
                i += 1
            elif o < len(outer):
                outer_axes.append(o)
                outer_size = _times(outer_size, outer[o])
                o += 1
            else:
                break
            if _same_size(inner_size, outer_size) and inner_axes and outer_axes:
                break
        groups.append((inner_axes, outer_axes))
    return groups


def _less(inner_size: sint, outer_size: sint, following: sint) -> bool:
    """Whether the inner group should grow next: it holds less so far, or nothing yet."""
    if isinstance(inner_size, int) and isinstance(outer_size, int):
        return inner_size < outer_size or (inner_size == outer_size and following == 1)
    low_inner = inner_size if isinstance(inner_size, int) else inner_size.vmax
    low_outer = outer_size if isinstance(outer_size, int) else outer_size.vmax
    return low_inner < low_outer


def _times(a: sint, b: sint) -> sint:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    product = simplify(to_index(a) * to_index(b))
    return product.arg if product.op is Ops.CONST else product


def _same_size(a: sint, b: sint) -> bool:
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)


def _is_zero(value: sint) -> bool:
    return isinstance(value, int) and value == 0


def _flatten(sizes: Sequence[sint], indices: Sequence[UOp]) -> UOp:
    stride: sint = 1
    total = ZERO
    for size, index in zip(reversed(sizes), reversed(indices)):
        if index is not ZERO:
            total = total + (index if _same_size(stride, 1) else index * stride)
        stride = _times(stride, size)
    return simplify(total)


def _unflatten(sizes: Sequence[sint], flat: UOp) -> list[UOp]:
    result: list[UOp] = []
    for axis in range(len(sizes) - 1, -1, -1):
        size = sizes[axis]
        if axis == 0:
            result.append(ZERO if _same_size(size, 1) else flat)
        else:
            result.append(ZERO if _same_size(size, 1) else simplify(flat % to_index(size)))
            flat = simplify(flat // to_index(size))
    return result[::-1]


def flat_index(shape: Sequence[sint], ranges: Sequence[UOp]) -> UOp:
    """The position in row-major order, under the conditions of all indices."""
    parts = [split_valid(r) for r in ranges]
    return join_valid([v for v, _ in parts], _flatten(shape, [i for _, i in parts]))


_RULES = {
    Ops.PERMUTE: _permute,
    Ops.FLIP: _flip,
    Ops.SHRINK: _shrink,
    Ops.EXPAND: _expand,
    Ops.PAD: _pad,
    Ops.RESHAPE: _reshape,
}
