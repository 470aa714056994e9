"""Division and remainder of index expressions: floor semantics, divisor a positive constant.

With floors the identities hold for negative numbers too:
    (a*c + b) // c = a + b // c         (a*c + b) % c = b % c
    (f*a + b) // (f*c) = a // c         (f*a + b) % (f*c) = f*(a % c) + b      for 0 <= b < f
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from tgcore.dtype import Invalid, dtypes
from tgcore.uop.node import UOp
from tgcore.uop.ops import Ops

Terms = dict[UOp, int]


def split_sum(node: UOp) -> tuple[Terms, int]:
    """A sum as ({term: factor}, constant)."""
    terms: Terms = {}
    constant = 0
    for part in node.split(Ops.ADD):
        if part.op is Ops.CONST and part.arg is not Invalid:
            constant += part.arg
            continue
        if part.op is Ops.MUL and part.src[1].op is Ops.CONST:
            term, factor = part.src[0], part.src[1].arg
        else:
            term, factor = part, 1
        terms[term] = terms.get(term, 0) + factor
    return {t: f for t, f in terms.items() if f}, constant


def join_sum(terms: Iterable[tuple[UOp, int]], constant: int) -> UOp:
    """The sum of the terms times their factors, and the constant."""
    total: UOp | None = None
    for term, factor in terms:
        part = term if factor == 1 else term * factor
        total = part if total is None else total + part
    if total is None:
        return UOp.const(dtypes.index, constant)
    return total + constant if constant else total


def sum_bounds(terms: Terms, constant: int) -> tuple[int, int]:
    """(least, greatest) value of the sum."""
    low = high = constant
    for term, factor in terms.items():
        ends = (term.vmin * factor, term.vmax * factor)
        low, high = low + min(ends), high + max(ends)
    return low, high


def _split_by_factor(terms: Terms, constant: int, factor: int) -> tuple[Terms, int, Terms, int]:
    """The sum as factor*(terms, constant) + (terms, constant); the rest takes what is left."""
    whole: Terms = {}
    rest: Terms = {}
    for term, f in terms.items():
        if f % factor == 0:
            whole[term] = f // factor
        else:
            rest[term] = f
    return whole, constant // factor, rest, constant % factor


def _common_factors(terms: Terms, divisor: int) -> list[int]:
    """Numbers above 1 that divide the divisor and the factor of some term, the greatest first."""
    found = {math.gcd(f, divisor) for f in terms.values()}
    found |= {math.gcd(a, b) for a in found for b in found}
    return sorted((f for f in found if f > 1), reverse=True)


def fold_div(numerator: UOp, divisor: int) -> UOp | None:
    """numerator // divisor, simpler, or None."""
    terms, constant = split_sum(numerator)
    low, high = sum_bounds(terms, constant)
    if low // divisor == high // divisor:
        return UOp.const(dtypes.index, low // divisor)
    # whole multiples leave the division
    whole = {
        t: f // divisor for t, f in terms.items() if f // divisor and _worth_moving(f, divisor)
    }
    rest = {t: f - whole.get(t, 0) * divisor for t, f in terms.items()}
    rest = {t: f for t, f in rest.items() if f}
    whole_constant, rest_constant = divmod(constant, divisor)
    if whole or whole_constant:
        inner = join_sum(rest.items(), rest_constant)
        return join_sum([*whole.items(), (inner // divisor, 1)], whole_constant)
    for factor in _common_factors(terms, divisor):
        big, big_constant, small, small_constant = _split_by_factor(terms, constant, factor)
        low, high = sum_bounds(small, small_constant)
        if low >= 0 and high < factor:
            inner = join_sum(big.items(), big_constant)
            return inner // (divisor // factor) if divisor != factor else inner
    return _fold_nested(numerator, divisor)


def _worth_moving(factor: int, divisor: int) -> bool:
    return factor % divisor == 0 or abs(factor) > divisor


def _fold_nested(numerator: UOp, divisor: int) -> UOp | None:
    """(x // a + terms) // b where x // a can take the terms in."""
    terms, constant = split_sum(numerator)
    for term, factor in terms.items():
        if factor != 1 or term.op is not Ops.IDIV or term.src[1].op is not Ops.CONST:
            continue
        inner = term.src[1].arg
        if inner <= 0:
            continue
        others = [(t, f * inner) for t, f in terms.items() if t is not term]
        if others and not all(f % divisor == 0 for _, f in others):
            continue
        joined = join_sum([(term.src[0], 1), *others], constant * inner)
        return joined // int(inner * divisor)
    return None


def fold_mod(numerator: UOp, divisor: int) -> UOp | None:
    """numerator % divisor, simpler, or None."""
    terms, constant = split_sum(numerator)
    low, high = sum_bounds(terms, constant)
    if low // divisor == high // divisor:
        return numerator + -(low // divisor * divisor)
    reduced = {t: _near_zero(t, f, divisor) for t, f in terms.items()}
    reduced = {t: f for t, f in reduced.items() if f}
    if reduced != terms or not 0 <= constant < divisor:
        candidate = join_sum(reduced.items(), constant % divisor)
        if candidate is not numerator:
            return candidate % divisor
    for factor in _common_factors(terms, divisor):
        big, big_constant, small, small_constant = _split_by_factor(terms, constant, factor)
        low, high = sum_bounds(small, small_constant)
        if low >= 0 and high < factor:
            rest = join_sum(small.items(), small_constant)
            if divisor == factor:
                return rest
            inner = join_sum(big.items(), big_constant)
            return inner % (divisor // factor) * factor + rest
    return _fold_inner_mods(terms, constant, divisor)


def _near_zero(term: UOp, factor: int, divisor: int) -> int:
    """The factor modulo the divisor, kept as it is if that is small already."""
    return factor if -divisor < factor < divisor else factor % divisor


def _fold_inner_mods(terms: Terms, constant: int, divisor: int) -> UOp | None:
    """(x % (k*c) + ...) % c = (x + ...) % c."""
    changed: list[tuple[UOp, int]] = []
    for term, factor in terms.items():
        if (
            term.op is Ops.MOD
            and term.src[1].op is Ops.CONST
            and term.src[1].arg > 0
            and factor * term.src[1].arg % divisor == 0
        ):
            changed.append((term.src[0], factor))
        else:
            changed.append((term, factor))
    if [t for t, _ in changed] == list(terms):
        return None
    return join_sum(changed, constant) % divisor


def recombine(node: UOp) -> UOp | None:
    """A sum in which quotient and remainder of one number meet, joined again:
    x//c * (c*k) + x%c * k = x*k, and (x//c)%d * (c*k) + x%c * k = x%(c*d) * k."""
    terms, constant = split_sum(node)
    remainders = [t for t in terms if t.op is Ops.MOD and t.src[1].op is Ops.CONST]
    for remainder in remainders:
        number, divisor, scale = remainder.src[0], remainder.src[1].arg, terms[remainder]
        if divisor <= 0:
            continue
        for term, factor in terms.items():
            if factor != scale * divisor:
                continue
            joined = _rejoin(term, number, divisor)
            if joined is not None:
                rest = [(t, f) for t, f in terms.items() if t is not remainder and t is not term]
                return join_sum([(joined, scale), *rest], constant)
    return None


def _rejoin(term: UOp, number: UOp, divisor: int) -> UOp | None:
    if _is_quotient(term, number, divisor):
        return number
    if (
        term.op is Ops.MOD
        and term.src[1].op is Ops.CONST
        and term.src[1].arg > 0
        and _is_quotient(term.src[0], number, divisor)
    ):
        return number % int(divisor * term.src[1].arg)
    return None


def _is_quotient(term: UOp, number: UOp, divisor: int) -> bool:
    if term is number // divisor:
        return True
    # number may be a quotient itself: (y // a) // c was folded to y // (a*c)
    return (
        number.op is Ops.IDIV
        and number.src[1].op is Ops.CONST
        and term is number.src[0] // (number.src[1].arg * divisor)
    )
