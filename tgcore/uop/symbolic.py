"""Symbolic algebra: folding of constants, identities, and simplification of index expressions.

In: any graph. Out: a graph with the same value (floats: to the last bit, but for the sign of zero).
After it no op has only constant sources, constants stand on the right of what commutes, sums of
indices are flat, sorted and free of like terms, and an index known to be Invalid has its condition
on top: `where(valid, index, Invalid)`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from tgcore.dtype import DType, Invalid, can_lossless_cast, dtypes
from tgcore.uop.divmod import fold_div, fold_mod, join_sum, recombine, split_sum, sum_bounds
from tgcore.uop.evaluate import evaluate, evaluate_bitcast, evaluate_cast
from tgcore.uop.node import UOp, sint, to_sint
from tgcore.uop.ops import GroupOp, Ops
from tgcore.uop.pattern import PatternMatcher, UPat
from tgcore.uop.rewrite import graph_rewrite

_EXACT = (dtypes.bool, *dtypes.ints, dtypes.index)
_INTS = (*dtypes.ints, dtypes.index)
_INDEX = (dtypes.index,)
_BOOL = (dtypes.bool,)

# *** constants ***


def fold_alu(node: UOp) -> UOp | None:
    """An op on constants, evaluated (lane by lane)."""
    if any(s.op not in GroupOp.Constant for s in node.src) or node.op is Ops.THREEFRY:
        return _fold_threefry(node) if node.op is Ops.THREEFRY else None
    if all(s.op is Ops.CONST for s in node.src):
        return UOp.const(node.dtype, evaluate(node.op, node.dtype, [s.arg for s in node.src]))
    count = node.dtype.count
    if any(s.op is Ops.VCONST and len(s.arg) != count for s in node.src):
        return None  # the gates of a vector's lanes around its one address
    lanes = [[s.arg[i] if s.op is Ops.VCONST else s.arg for s in node.src] for i in range(count)]
    return UOp.const(node.dtype, tuple(evaluate(node.op, node.dtype, lane) for lane in lanes))


def _fold_threefry(node: UOp) -> UOp | None:
    if any(s.op is not Ops.CONST for s in node.src):
        return None
    return UOp.const(node.dtype, evaluate(node.op, node.dtype, [s.arg for s in node.src]))


def fold_cast(node: UOp, c: UOp) -> UOp | None:
    """A cast of a constant."""
    if isinstance(c.arg, tuple):
        scalar = node.dtype.scalar()
        return UOp.const(node.dtype, tuple(evaluate_cast(v, scalar) for v in c.arg))
    if c.arg is Invalid:
        return None
    return UOp.const(node.dtype, evaluate_cast(c.arg, node.dtype.scalar()))


def fold_bitcast(node: UOp, c: UOp) -> UOp | None:
    """A bitcast of a constant."""
    value = evaluate_bitcast(c.arg, c.dtype.scalar(), node.dtype.scalar())
    return None if value is None else UOp.const(node.dtype, value)


def fold_cast_cast(x: UOp, inner: UOp, outer: UOp) -> UOp | None:
    """Two casts, where the inner one loses nothing."""
    if can_lossless_cast(x.dtype.scalar(), inner.dtype.scalar()):
        return x.cast(outer.dtype)
    ints = all(d in _INTS for d in map(_scalar, (x, inner, outer)))
    if ints and outer.dtype.itemsize <= inner.dtype.itemsize <= x.dtype.itemsize:
        return x.cast(outer.dtype)
    if x.dtype.scalar() is outer.dtype.scalar() and _fits(x, inner.dtype):
        return x
    return None


def _scalar(node: UOp) -> DType:
    return node.dtype.scalar()  # type: ignore[no-any-return]


def _fits(node: UOp, dtype: DType) -> bool:
    if node.dtype.scalar() not in _INTS or dtype.scalar() not in dtypes.ints:
        return False
    return bool(dtypes.min(dtype) <= node.vmin and node.vmax <= dtypes.max(dtype))


def fold_by_bounds(x: UOp) -> UOp | None:
    """An integer that can have one value only."""
    if x.op is Ops.WHERE and x.src[2].arg is Invalid:
        return None  # its condition counts, whatever the value
    if x.vmin == x.vmax and x.arg is not Invalid:
        return UOp.const(x.dtype, x.vmin)
    return None


def without_constant_ranges(node: UOp) -> UOp | None:
    """A loop that runs once is none."""
    kept = [s for s in node.src[1:] if s.op is not Ops.CONST]
    if len(kept) == len(node.src) - 1:
        return None
    return node.replace(src=(node.src[0], *kept)) if kept else node.src[0]


def _same_type(x: UOp, c: UOp) -> UOp | None:
    return x if x.dtype is c.dtype else None


pm_constants = PatternMatcher(
    [
        (UPat(GroupOp.ALU, name="node"), fold_alu),
        (UPat(Ops.CAST, src=(UPat(GroupOp.Constant, name="c"),), name="node"), fold_cast),
        (UPat(Ops.BITCAST, src=(UPat(Ops.CONST, name="c"),), name="node"), fold_bitcast),
        (
            UPat((*GroupOp.ALU, Ops.CAST, Ops.RANGE, Ops.SPECIAL), dtype=_EXACT, name="x"),
            fold_by_bounds,
        ),
        (UPat(Ops.DEFINE_VAR, name="x"), fold_by_bounds),
        (UPat((Ops.END, Ops.REDUCE), name="node"), without_constant_ranges),
        (UPat(Ops.CAST, src=(UPat.var("x"),), name="c"), _same_type),
        (UPat(Ops.BITCAST, src=(UPat.var("x"),), name="c"), _same_type),
        (
            UPat(Ops.CAST, src=(UPat(Ops.CAST, src=(UPat.var("x"),), name="inner"),), name="outer"),
            fold_cast_cast,
        ),
        (
            UPat(Ops.BITCAST, src=(UPat(Ops.BITCAST, src=(UPat.var("x"),)),), name="c"),
            lambda x, c: x.bitcast(c.dtype),
        ),
    ]
)


# *** identities of all types ***

_x, _y = UPat.var("x"), UPat.var("y")
_exact, _bool = UPat.var("x", _EXACT), UPat.var("x", _BOOL)
_a, _b = UPat.var("a"), UPat.var("b")
_c, _c1, _c2 = UPat.cvar("c"), UPat.cvar("c1"), UPat.cvar("c2")


def constant_to_the_right(node: UOp, a: UOp, b: UOp) -> UOp | None:
    """c + x as x + c."""
    if a.op in GroupOp.Constant and b.op not in GroupOp.Constant:
        return node.replace(src=(b, a))
    return None


def merge_same_condition(node: UOp, c: UOp, a: UOp, b: UOp) -> UOp | None:
    """A choice inside a choice on the same condition."""
    yes = a.src[1] if a.op is Ops.WHERE and a.src[0] is c else a
    no = b.src[2] if b.op is Ops.WHERE and b.src[0] is c else b
    return c.where(yes, no) if yes is not a or no is not b else None


def _fold2(op: Ops, a: UOp, b: UOp) -> UOp:
    return UOp.const(a.dtype, evaluate(op, a.dtype, (a.arg, b.arg)))


def _fold_max(x: UOp, y: UOp) -> UOp | None:
    if x.vmin >= y.vmax:
        return x
    return y if y.vmin >= x.vmax else None


def _never(x: UOp) -> UOp:
    return UOp.const(dtypes.bool.vec(x.dtype.count), False)


pm_identities = PatternMatcher(
    [
        (
            UPat(GroupOp.Commutative, src=(UPat.var("a"), UPat.var("b")), name="node"),
            constant_to_the_right,
        ),
        (_x + 0, lambda x: x),
        (_x * 1, lambda x: x),
        (_exact * 0, lambda x: x.const_like(0)),
        (_exact // 1, lambda x: x),
        (_exact % 1, lambda x: x.const_like(0)),
        (_exact // _exact, lambda x: x.const_like(1) if x.vmin > 0 else None),
        (UPat.var("x", _EXACT) & _x, lambda x: x),
        (UPat.var("x", _EXACT) | _x, lambda x: x),
        (UPat.var("x", _EXACT) ^ _x, lambda x: x.const_like(0)),
        (_exact ^ 0, lambda x: x),
        (_exact | 0, lambda x: x),
        (_exact & 0, lambda x: x.const_like(0)),
        (_exact << 0, lambda x: x),
        (_exact >> 0, lambda x: x),
        (_x.maximum(_x), lambda x: x),
        (
            UPat(Ops.CMPLT, src=(_exact, _exact)),
            lambda x: UOp.const(dtypes.bool.vec(x.dtype.count), False),
        ),
        (_exact.ne(_exact), _never),
        (_exact.eq(_exact), lambda x: UOp.const(dtypes.bool.vec(x.dtype.count), True)),
        (_x + _x, lambda x: x * 2 if not dtypes.is_bool(x.dtype) else x),
        ((_x * -1) * -1, lambda x: x),
        ((_x * -1 + _y) * -1, lambda x, y: x + y * -1 if x.dtype.scalar() in _INTS else None),
        (UPat(Ops.RECIPROCAL, src=(UPat(Ops.RECIPROCAL, src=(_x,)),)), lambda x: None),
        (UPat(Ops.NEG, src=(UPat(Ops.NEG, src=(_x,)),)), lambda x: x),
        # bools
        (_bool * _y, lambda x, y: x & y),
        (_bool + _y, lambda x, y: x | y),
        (_bool.maximum(_y), lambda x, y: x | y),
        (_bool & True, lambda x: x),
        (_bool & False, lambda x: x.const_like(False)),
        (_bool | True, lambda x: x.const_like(True)),
        (_bool | False, lambda x: x),
        (_bool.ne(False), lambda x: x),
        (_bool.eq(True), lambda x: x),
        (_bool.eq(False), lambda x: x.logical_not()),
        (_bool.logical_not().logical_not(), lambda x: x),
        (_bool & _bool.logical_not(), lambda x: x.const_like(False)),
        (_bool | _bool.logical_not(), lambda x: x.const_like(True)),
        ((_x & _y) & _y, lambda x, y: x & y),
        ((_x | _y) | _y, lambda x, y: x | y),
        (_bool.cast(name="c").ne(0), lambda x, c: x if x.dtype.count == c.dtype.count else None),
        # choices
        (UPat.var().where(_x, _x), lambda x: x),
        (UPat.cvar("c").where(_x, _y), lambda c, x, y: x if c.arg else y),
        (_bool.where(UPat.const(True, _BOOL), UPat.const(False, _BOOL)), lambda x: x),
        (
            _bool.where(UPat.const(False, _BOOL), UPat.const(True, _BOOL)),
            lambda x: x.logical_not(),
        ),
        (
            _bool.logical_not().where(_a, _b),
            lambda x, a, b: x.where(b, a) if b.arg is not Invalid else None,
        ),
        (UPat.var("c").where(_a, _b).named("node"), merge_same_condition),
        (
            UPat.var("c").where(UPat.var("d").where(_a, _b), _b),
            lambda c, d, a, b: (c & d).where(a, b),
        ),
        # associative constants of integers
        ((UPat.var("x", _INTS) + _c1) + _c2, lambda x, c1, c2: x + _fold2(Ops.ADD, c1, c2)),
        ((UPat.var("x", _INTS) * _c1) * _c2, lambda x, c1, c2: x * _fold2(Ops.MUL, c1, c2)),
        ((_exact & _c1) & _c2, lambda x, c1, c2: x & _fold2(Ops.AND, c1, c2)),
        ((_exact | _c1) | _c2, lambda x, c1, c2: x | _fold2(Ops.OR, c1, c2)),
        ((_exact ^ _c1) ^ _c2, lambda x, c1, c2: x ^ _fold2(Ops.XOR, c1, c2)),
        (_exact.maximum(_c1).maximum(_c2), lambda x, c1, c2: x.maximum(_fold2(Ops.MAX, c1, c2))),
        (UPat.var("x", _INTS).maximum(_y), _fold_max),
    ]
)


# *** index expressions ***


@functools.cache
def _rank(op: Ops) -> int:
    return {Ops.DEFINE_VAR: 0, Ops.SPECIAL: 1, Ops.RANGE: 2}.get(op, 3 + int(op))


def _order(node: UOp) -> tuple[Any, ...]:
    """A sorting key by content: variables, then launch positions, ranges by number, the rest. It
    keeps its order when ranges are renumbered monotonically, so equal kernels stay equal."""
    found = _order_cache.get(node)
    if found is not None:
        return found
    if len(_order_cache) > 100_000:
        _order_cache.clear()
    for inner in node.toposort(lambda n: n not in _order_cache and n.op not in _MEMORY):
        sources = [_order_cache.get(s) or _memory_order(s) for s in inner.src]
        _order_cache[inner] = (_rank(inner.op), _arg_order(inner), *sources)
    return _order_cache.get(node) or _memory_order(node)


_order_cache: dict[UOp, tuple[Any, ...]] = {}
# what is behind memory is another kernel's
_MEMORY = frozenset({Ops.BUFFER, Ops.BUFFER_VIEW, Ops.BUFFERIZE, Ops.COPY, Ops.ASSIGN})


def _memory_order(node: UOp) -> tuple[Any, ...]:
    return (_rank(node.op), node.key)


def _arg_order(node: UOp) -> Any:
    if node.op is Ops.RANGE:
        return tuple(node.arg[:-1])
    return node.arg if node.op in (Ops.CONST, Ops.DEFINE_VAR) else repr(node.arg)


def canonical_sum(node: UOp) -> UOp | None:
    """A sum of indices: like terms joined, sorted, the constant last."""
    terms, constant = split_sum(node)
    joined = join_sum(sorted(terms.items(), key=lambda item: _order(item[0])), constant)
    return joined if joined is not node else None


def distribute(x: UOp, y: UOp, c: UOp) -> UOp:
    """(x + y) * c as x*c + y*c, so that equal sums become equal nodes."""
    return x * c + y * c


def fold_less(x: UOp, c: UOp) -> UOp | None:
    """x < c: constants go to the right, common factors and floors away."""
    terms, constant = split_sum(x)
    limit: int = c.arg - constant
    if constant:
        return join_sum(terms.items(), 0) < limit
    if len(terms) == 1:
        ((term, factor),) = terms.items()
        if factor > 1:
            return term < int(-(-limit // factor))
        if factor < -1:
            return term * -1 < int(-(-limit // -factor))
        if term.op is Ops.IDIV and factor == 1 and _positive_constant(term.src[1]):
            return term.src[0] < int(limit * term.src[1].arg)
        if term.op is Ops.MOD and factor == 1 and _positive_constant(term.src[1]):
            return _less_without_wrap(term.src[0], term.src[1].arg, limit)
        return None
    factors = sorted({abs(f) for f in terms.values() if abs(f) > 1}, reverse=True)
    for factor in factors:
        big = {t: f // factor for t, f in terms.items() if f % factor == 0}
        rest = {t: f for t, f in terms.items() if f % factor}
        low, high = sum_bounds(rest, 0)
        # g*a + b < k with 0 <= b < g is a < ceil(k / g), if k mod g is 0 or above every b
        if big and low >= 0 and high < factor and (limit % factor == 0 or limit % factor > high):
            return join_sum(big.items(), 0) < -(-limit // factor)
    return None


def _less_without_wrap(x: UOp, divisor: int, limit: int) -> UOp | None:
    """x % divisor < limit as 0 <= t < limit, where x = t up to multiples of the divisor and no
    negative t could wrap around to below the limit. (Windows cut out of a repeated row.)"""
    terms, constant = split_sum(x)
    residues = {t: _centred(f, divisor) for t, f in terms.items()}
    low, high = sum_bounds(residues, 0)
    shift = _centred(constant, divisor)
    if not (low + shift >= limit - divisor and high + shift < divisor and low + shift < 0):
        return None
    short = join_sum(((t, f) for t, f in residues.items() if f), shift)
    return (short < 0).logical_not() & (short < limit)


def _centred(factor: int, divisor: int) -> int:
    residue = factor % divisor
    return residue - divisor if residue * 2 > divisor else residue


def _positive_constant(node: UOp) -> bool:
    return node.op is Ops.CONST and isinstance(node.arg, int) and node.arg > 0


def fold_div_node(x: UOp, c: UOp) -> UOp | None:
    """x // c for a positive constant c."""
    return fold_div(x, c.arg) if c.arg is not Invalid and c.arg > 0 else None


def fold_mod_node(x: UOp, c: UOp) -> UOp | None:
    """x % c for a positive constant c."""
    return fold_mod(x, c.arg) if c.arg is not Invalid and c.arg > 0 else None


def fold_symbolic_div(x: UOp, d: UOp, node: UOp) -> UOp | None:
    """x // d and x % d where d is no constant: whole multiples of d leave, and what is left may be
    a range whose size is d."""
    if d.op is Ops.CONST or d.vmin <= 0:
        return None
    whole: list[UOp] = []
    rest: list[UOp] = []
    for part in x.split(Ops.ADD):
        factors = list(part.split(Ops.MUL))
        if d in factors:
            factors.remove(d)
            whole.append(functools.reduce(lambda a, b: a * b, factors, x.const_like(1)))
        else:
            rest.append(part)
    below = len(rest) == 1 and rest[0].op is Ops.RANGE and rest[0].src[0] is d
    left = functools.reduce(lambda a, b: a + b, rest, x.const_like(0))
    below = below or (left.vmin >= 0 and left.vmax < d.vmin)
    if not whole and not below:
        return None
    if node.op is Ops.MOD:
        return left if below else left % d
    total = functools.reduce(lambda a, b: a + b, whole, x.const_like(0))
    return total if below else total + left // d


def less_and_less(x: UOp, c1: UOp, c2: UOp) -> UOp:
    """x < c1 and x < c2."""
    return x.alu(Ops.CMPLT, min(c1, c2, key=lambda c: c.arg))


def apply_to_valid(node: UOp) -> UOp | None:
    """An op on an index that may be Invalid: the condition moves to the top."""
    if node.op is Ops.WHERE:
        return None
    conditions: list[UOp] = []
    src: list[UOp] = []
    for source in node.src:
        if source.op is Ops.WHERE and source.src[2].arg is Invalid:
            conditions.append(source.src[0])
            src.append(source.src[1])
        else:
            src.append(source)
    if not conditions:
        return None
    plain = node.replace(src=tuple(src))
    # a comparison is only used where its operands are valid
    if node.op in GroupOp.Comparison:
        return plain
    return functools.reduce(lambda a, b: a & b, conditions).where(plain, Invalid)


def _nested_div(x: UOp, c1: UOp, c2: UOp) -> UOp | None:
    return x // (c1.arg * c2.arg) if c1.arg > 0 and c2.arg > 0 else None


def less_of_sums(a: UOp, b: UOp) -> UOp | None:
    """a < b with everything but the constant on the left."""
    if a.op is Ops.CONST or b.op is Ops.CONST:
        return None
    terms, constant = split_sum(a)
    for term, factor in (subtracted := split_sum(b))[0].items():
        terms[term] = terms.get(term, 0) - factor
    constant -= subtracted[1]
    low, high = sum_bounds(terms, 0)
    if high < -constant:
        return UOp.const(dtypes.bool, True)
    if low >= -constant:
        return UOp.const(dtypes.bool, False)
    return None


_xi = UPat.var("x", _INDEX)

pm_index = PatternMatcher(
    [
        (UPat(Ops.ADD, dtype=_INDEX, name="node"), canonical_sum),
        (UPat(Ops.ADD, dtype=_INDEX, name="node"), recombine),
        ((_xi + UPat.var("y")) * _c, distribute),
        (_xi // _c, fold_div_node),
        (_xi % _c, fold_mod_node),
        (
            UPat((Ops.IDIV, Ops.MOD), dtype=_INDEX, src=(_x, UPat.var("d")), name="node"),
            fold_symbolic_div,
        ),
        ((_xi // _c1) // _c2, _nested_div),
        ((_xi // _c1 % _c2) // UPat.cvar("c3"), lambda x, c1, c2, c3: None),
        (
            UPat(Ops.MUL, dtype=_INDEX, src=(UPat.var("a"), UPat.var("b")), name="node"),
            lambda node, a, b: (
                node.replace(src=(b, a))
                if b.op is not Ops.CONST and _order(b) < _order(a)
                else None
            ),
        ),
        (_xi < _c, fold_less),
        (
            UPat(Ops.CMPLT, src=(UPat.cvar("c"), UPat.var("x", _INDEX))),
            lambda c, x: (x * -1 < -c.arg) if x.op is not Ops.CONST else None,
        ),
        (
            UPat(Ops.CMPLT, src=(UPat.var("a", _INDEX), UPat.var("b", _INDEX))),
            less_of_sums,
        ),
        ((_xi < _c1) & (_x < _c2), less_and_less),
    ]
)


def _may_be_invalid(node: UOp) -> bool:
    return any(s.op is Ops.WHERE and s.dtype.scalar() is dtypes.index for s in node.src)


# before all else: the other rules would lose the condition of an index that they do not need
pm_invalid = PatternMatcher(
    [
        (
            UPat(GroupOp.ALU, name="node", src=None),
            lambda node: apply_to_valid(node) if _may_be_invalid(node) else None,
        ),
    ]
)


# *** conditions that tell something about the index they guard ***


def split_valid(index: UOp) -> tuple[UOp | None, UOp]:
    """An index as (condition or None, index)."""
    if index.op is Ops.WHERE and index.src[2].arg is Invalid:
        return index.src[0], index.src[1]
    return None, index


def split_conditions(valid: UOp) -> list[UOp]:
    """The clauses of a conjunction, each once."""
    return list(dict.fromkeys(valid.split(Ops.AND)))


def parse_limit(clause: UOp) -> tuple[UOp, bool, int] | None:
    """A clause as (expression, is an upper limit, limit): x <= limit or x >= limit."""
    if clause.op is Ops.CMPLT and clause.src[1].op is Ops.CONST:
        if clause.src[0].dtype.scalar() not in _INTS:
            return None
        terms, _ = split_sum(clause.src[0])
        if terms and all(f < 0 for f in terms.values()):
            # -x < c
            return join_sum([(t, -f) for t, f in terms.items()], 0), False, 1 - clause.src[1].arg
        return clause.src[0], True, clause.src[1].arg - 1
    if clause.op is Ops.CMPNE and clause.src[1].arg is True and clause.src[0].op is Ops.CMPLT:
        inner = clause.src[0]
        if inner.src[1].op is Ops.CONST and inner.src[0].dtype.scalar() in _INTS:
            return inner.src[0], False, inner.src[1].arg
    return None


def simplify_given(expression: UOp, valid: UOp) -> UOp:
    """The expression simplified for where the condition holds.

    It will be computed where the condition does not hold, too: so what it reads from memory keeps
    its own gates, and no divisor becomes 0.
    """
    limits: dict[UOp, list[int]] = {}
    for clause in split_conditions(valid):
        parsed = parse_limit(clause)
        if parsed is not None:
            subject, upper, limit = parsed
            found = limits.setdefault(subject, [subject.vmin, subject.vmax])
            found[1 if upper else 0] = min(found[1], limit) if upper else max(found[0], limit)
    below = expression.toposort()
    for number, (subject, (low, high)) in enumerate(limits.items()):
        if low > high or subject.op is Ops.CONST or subject.dtype.count > 1:
            continue
        simpler = None
        if subject in below and subject is not expression:
            narrowed = UOp(Ops.DEFINE_VAR, subject.dtype, (), (f"_given{number}", low, high))
            table = {**_reads(below), subject: narrowed}
            trial = simplify(expression.substitute(table))
            restored = simplify(trial.substitute({narrowed: subject}))
            if restored is not expression and _cost(restored) <= _cost(expression):
                simpler = restored
        else:
            simpler = _narrow_sum(expression, below, subject, low, high)
        if simpler is not None and _divides_as_safely(simpler, expression):
            expression = simpler
            below = expression.toposort()
    return expression


def _reads(nodes: Iterable[UOp]) -> dict[UOp, UOp]:
    """A table that keeps a substitution from looking into what is read from memory."""
    return {n: n for n in nodes if n.op in (Ops.INDEX, Ops.LOAD)}


def _divides_as_safely(simpler: UOp, expression: UOp) -> bool:
    return _divides_safely(simpler) or not _divides_safely(expression)


def _divides_safely(expression: UOp) -> bool:
    return not any(
        n.op in (Ops.IDIV, Ops.MOD) and n.src[1].vmin <= 0 <= n.src[1].vmax
        for n in expression.toposort()
    )


def _narrow_sum(
    expression: UOp, below: dict[UOp, None], subject: UOp, low: int, high: int
) -> UOp | None:
    """Uses a limit on a sum a + b + c: all but one range may be solved for that one."""
    terms, constant = split_sum(subject)
    candidates = [
        (t, f) for t, f in terms.items() if f in (1, -1) and t.op in (Ops.RANGE, Ops.DEFINE_VAR)
    ]
    for term, factor in candidates:
        if term not in below:
            continue
        others = {t: f for t, f in terms.items() if t is not term}
        stand_in = UOp.variable("_sum", low, high)
        # term = (stand_in - others - constant) / factor
        rest = [(t, -f * factor) for t, f in others.items()]
        solved = join_sum([(stand_in, factor), *rest], -constant * factor)
        trial = simplify(expression.substitute({**_reads(below), term: solved}))
        if term in trial.toposort():
            continue
        restored = simplify(trial.substitute({stand_in: subject}))
        if _cost(restored) < _cost(expression):
            return restored
    return None


def _cost(expression: UOp) -> int:
    weight = {Ops.IDIV: 4, Ops.MOD: 4}
    return sum(weight.get(n.op, 1) for n in expression.toposort())


def simplify_valid_index(valid: UOp, x: UOp) -> UOp | None:
    """where(valid, x, Invalid) with x simplified under the condition."""
    if x.arg is Invalid:
        return x
    simpler = simplify_given(x, valid)
    return valid.where(simpler, Invalid) if simpler is not x else None


pm_valid = PatternMatcher(
    [
        (
            UPat.var("valid").where(UPat.var("x", _INDEX), UPat.const(Invalid)),
            simplify_valid_index,
        ),
    ]
)

symbolic_simple = pm_constants + pm_identities
symbolic = pm_invalid + symbolic_simple + pm_index
symbolic_with_valid = symbolic + pm_valid


def simplify(node: UOp) -> UOp:
    """The node's graph, simplified."""
    if node.op in (Ops.CONST, Ops.RANGE, Ops.DEFINE_VAR):
        return node
    return graph_rewrite(node, symbolic, name="simplify")


def ssimplify(value: sint) -> sint:
    """A size, simplified: an int if it is constant."""
    return value if isinstance(value, int) else to_sint(simplify(value))
