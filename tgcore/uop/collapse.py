"""Reduces that need no loop: over ranges that only comparisons use, and over one-hot gathers.

A sum over r of `where(a <= r + c < b, x, 0)`, x free of r, is x times the number of such r; a sum
of `where(r == e, f(r), 0)` is f(e) where e is a position of r. So arange, tri, cumulative sums of
constants, one-hot and gathers by comparison become arithmetic and plain indexing.
"""

from __future__ import annotations

import functools

from tgcore.dtype import Invalid, dtypes
from tgcore.uop.divmod import join_sum, split_sum
from tgcore.uop.node import UOp
from tgcore.uop.ops import Ops
from tgcore.uop.pattern import PatternMatcher, UPat
from tgcore.uop.symbolic import simplify, split_conditions


def unused_ranges(node: UOp) -> UOp | None:
    """A reduce over ranges that its source does not use: n*x, x**n, x."""
    value = node.src[0]
    unused = [r for r in node.src[1:] if r not in value.ranges]
    if not unused:
        return None
    kept = [r for r in node.src[1:] if r in value.ranges]
    result = value.reduce(node.arg, *kept)
    if node.arg is Ops.MAX:
        return result
    count = functools.reduce(lambda a, b: a * b, [r.src[0] for r in unused])
    if node.arg is Ops.ADD:
        return result * simplify(count).cast(node.dtype)
    if count.vmin != count.vmax or count.vmax > 16:
        return None
    return functools.reduce(lambda a, b: a * b, [result] * count.vmax)


def split_sum_of_terms(node: UOp) -> UOp | None:
    """A sum of a + b, where one of the two can be summed without a loop, as two sums."""
    if node.arg is not Ops.ADD or node.src[0].op is not Ops.ADD:
        return None
    if not dtypes.is_int(node.dtype):
        return None
    parts = [s.reduce(Ops.ADD, *node.src[1:]) for s in node.src[0].src]
    collapsed = [collapse_sum(p) for p in parts]
    if all(c is None for c in collapsed):
        return None
    first, second = (p if c is None else c for p, c in zip(parts, collapsed))
    return first + second


def collapse_sum(node: UOp) -> UOp | None:
    """A sum over one range in closed form; None if it has none."""
    if node.op is not Ops.REDUCE or node.arg is not Ops.ADD:
        return None
    for position, r in enumerate(node.src[1:]):
        if r.op is not Ops.RANGE:
            continue
        found = _collapse_over(node.src[0], r)
        if found is not None:
            others = [o for i, o in enumerate(node.src[1:]) if i != position]
            return found.reduce(Ops.ADD, *others)
    return None


def _collapse_over(value: UOp, r: UOp) -> UOp | None:
    if value.op is Ops.CAST and not dtypes.is_float(value.src[0].dtype):
        return _collapse_cast(value, r)
    if value.op is Ops.MUL:
        return _collapse_product(value, r)
    if value.op is Ops.WHERE:
        return _collapse_where(value, r)
    return None


def _collapse_cast(value: UOp, r: UOp) -> UOp | None:
    inner = value.src[0]
    if inner.dtype.scalar() is dtypes.bool:
        one, zero = value.const_like(1), value.const_like(0)
        return _collapse_where(inner.where(one, zero), r)
    if inner.op is Ops.WHERE:
        return _collapse_where(
            inner.src[0].where(inner.src[1].cast(value.dtype), inner.src[2].cast(value.dtype)), r
        )
    return None


def _collapse_product(value: UOp, r: UOp) -> UOp | None:
    for a, b in ((0, 1), (1, 0)):
        free, bound = value.src[a], value.src[b]
        if r not in free.ranges:
            found = _collapse_over(bound, r)
            if found is not None:
                return free * found
        # a one-hot factor picks one element of the other
        if bound.op in (Ops.CAST, Ops.WHERE):
            condition = _as_one_hot(bound)
            if condition is not None:
                return _collapse_where(condition.where(free, free.const_like(0)), r)
    return None


def _as_one_hot(node: UOp) -> UOp | None:
    """The condition c of a number that is 1 where c holds, else 0."""
    if node.op is Ops.CAST and node.src[0].dtype.scalar() is dtypes.bool:
        return node.src[0]
    if node.op is Ops.WHERE and node.src[1].op is Ops.CONST and node.src[2].op is Ops.CONST:
        return node.src[0] if node.src[1].arg == 1 and node.src[2].arg == 0 else None
    return None


def _collapse_where(value: UOp, r: UOp) -> UOp | None:
    condition, yes, no = value.src
    if r not in condition.ranges:
        return None
    if no.op is Ops.CONST and no.arg == 0:
        return _collapse_guarded(condition, yes, r)
    if yes.op is Ops.CONST and yes.arg == 0:
        return _collapse_guarded(simplify(condition.logical_not()), no, r)
    if r in yes.ranges or r in no.ranges:
        return None
    count = _count(condition, r)
    if count is None:
        return None
    total = r.src[0]
    return yes * count.cast(yes.dtype) + no * (total + count * -1).cast(no.dtype)


def _collapse_guarded(condition: UOp, value: UOp, r: UOp) -> UOp | None:
    """The sum over r of where(condition, value, 0)."""
    clauses = split_conditions(condition)
    free = [c for c in clauses if r not in c.ranges]
    bound = [c for c in clauses if r in c.ranges]
    if not bound:
        return None
    if r in value.ranges:
        return _pick_one(bound, free, value, r)
    count = _count(functools.reduce(lambda a, b: a & b, bound), r)
    if count is None:
        return None
    result = value * count.cast(value.dtype) if not dtypes.is_bool(value.dtype) else None
    if result is None:
        return None
    return _guard(free, result)


def _guard(conditions: list[UOp], value: UOp) -> UOp:
    if not conditions:
        return value
    return functools.reduce(lambda a, b: a & b, conditions).where(value, value.const_like(0))


def _count(condition: UOp, r: UOp) -> UOp | None:
    """How many r fulfil a conjunction of limits on it."""
    low: UOp = UOp.const(dtypes.index, 0)
    high: UOp = r.src[0]
    for clause in split_conditions(condition):
        limit = _limit_on(clause, r)
        if limit is None:
            position = _position(clause, r)
            if position is None:
                return None
            low, high = low.maximum(position), high.minimum(position + 1)
            continue
        upper, bound = limit
        if upper:
            high = high.minimum(bound)
        else:
            low = low.maximum(bound)
    return simplify((high - low).maximum(0))


def _limit_on(clause: UOp, r: UOp) -> tuple[bool, UOp] | None:
    """A clause as r < bound (True, bound) or r >= bound (False, bound)."""
    negated = clause.op is Ops.CMPNE and clause.src[1].op is Ops.CONST and clause.src[1].arg is True
    less = clause.src[0] if negated else clause
    if less.op is not Ops.CMPLT:
        return None
    left, right = _as_index(less.src[0]), _as_index(less.src[1])
    if left is None or right is None:
        return None
    # left - right < 0, with r in it
    terms, constant = split_sum(simplify(left + right * -1))
    factor = terms.pop(r, 0)
    if factor == 0 or any(r in t.ranges for t in terms):
        return None
    rest = join_sum(terms.items(), constant)
    if factor > 0:
        # factor*r < -rest: r < ceil(-rest / factor)
        bound = simplify((rest * -1 + (factor - 1)) // factor)
        return (not negated, bound)
    # -f*r < -rest: f*r > rest: r >= floor(rest / f) + 1
    bound = simplify(rest // -factor + 1)
    return (negated, bound)


def _as_index(node: UOp) -> UOp | None:
    """An integer expression as one of the index type, where nothing can wrap around."""
    scalar = node.dtype.scalar()
    if scalar is dtypes.index:
        return node
    if node.op is Ops.CAST and node.src[0].dtype.scalar() is dtypes.index:
        return node.src[0]
    if scalar not in dtypes.ints:
        return None
    if node.op is Ops.CONST:
        return UOp.const(dtypes.index, node.arg)
    if node.op in (Ops.ADD, Ops.MUL) and _never_wraps(node):
        parts = [_as_index(s) for s in node.src]
        if parts[0] is not None and parts[1] is not None:
            return parts[0].alu(node.op, parts[1])
    return node.cast(dtypes.index) if not node.ranges or node.op is Ops.INDEX else None


def _never_wraps(node: UOp) -> bool:
    # the bounds of a sum that may wrap are those of its type
    return bool(node.vmin > dtypes.min(node.dtype) or node.vmax < dtypes.max(node.dtype))


def _position(clause: UOp, r: UOp) -> UOp | None:
    """The one r that makes an equality true."""
    inner = None
    if clause.op is Ops.CMPEQ:
        inner = clause
    elif clause.op is Ops.CMPNE and clause.src[1].op is Ops.CONST and clause.src[1].arg is True:
        inner = clause.src[0] if clause.src[0].op is Ops.CMPNE else None
    if inner is None:
        return None
    for a, b in (inner.src, inner.src[::-1]):
        left = _as_index(a)
        if left is None:
            continue
        terms, constant = split_sum(simplify(left))
        if terms.pop(r, 0) != 1 or any(r in t.ranges for t in terms) or r in b.ranges:
            continue
        other = b if b.dtype.scalar() is dtypes.index else b.cast(dtypes.index)
        # what was loaded is compared as it is: nothing is added to it that could overflow
        if terms or constant:
            other = other + join_sum([(t, -f) for t, f in terms.items()], -constant)
        return simplify(other)
    return None


def _pick_one(bound: list[UOp], free: list[UOp], value: UOp, r: UOp) -> UOp | None:
    """where(r == e and ..., f(r), 0) summed over r: f(e), if e is a position of r."""
    for clause in bound:
        position = _position(clause, r)
        if position is None:
            continue
        inside = (position < 0).logical_not() & (position < r.src[0])
        others = [_substitute_gated(c, r, position, inside) for c in bound if c is not clause]
        valid = simplify(functools.reduce(lambda a, b: a & b, [inside, *others, *free]))
        picked = _substitute_gated(value, r, position, valid)
        return valid.where(picked, picked.const_like(0))
    return None


def _substitute_gated(value: UOp, r: UOp, position: UOp, valid: UOp) -> UOp:
    """The value at the position; memory is read only where the position is valid."""
    table: dict[UOp, UOp] = {r: position}
    for node in value.toposort(lambda n: n is not r and r in n.ranges):
        if node.op is Ops.INDEX and r in node.ranges:
            src = [table.get(s, s) for s in node.src]
            gated = [
                valid.where(s, Invalid) if r in old.ranges else s
                for s, old in zip(src[1:], node.src[1:])
            ]
            table[node] = node.replace(src=(src[0], *gated))
        elif any(s in table for s in node.src):
            table[node] = node.replace(src=tuple(table.get(s, s) for s in node.src))
    return table.get(value, value)


def guarded_reduce(node: UOp) -> UOp | None:
    """A sum of guarded sums as one sum of what is guarded."""
    condition, inner, no = node.src[0].src
    if node.arg is not Ops.ADD or inner.op is not Ops.REDUCE or inner.arg is not Ops.ADD:
        return None
    if no.op is not Ops.CONST or no.arg != 0:
        return None
    value = inner.src[0]
    guarded = condition.where(value, value.const_like(0))
    return guarded.reduce(Ops.ADD, *inner.src[1:], *node.src[1:])


pm_reduce_collapse = PatternMatcher(
    [
        (
            UPat(Ops.REDUCE, src=(UPat(Ops.WHERE),), any_len=True, name="node"),
            guarded_reduce,
        ),
        (UPat(Ops.REDUCE, name="node"), unused_ranges),
        (UPat(Ops.REDUCE, name="node"), collapse_sum),
        (UPat(Ops.REDUCE, name="node"), split_sum_of_terms),
    ]
)
