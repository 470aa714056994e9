"""Atomic operations: each active thread in turn, lowest first, done as few array operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import numbers
from .memory import Space, Threads, chosen_of, narrowed
from .types import DTYPES

Values = Any
Combine = Callable[[Values, Values, Values], Values]  # old, b, c -> new

UFUNCS: dict[str, np.ufunc] = {
    "add": np.add, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "min": np.minimum, "max": np.maximum,
}  # fmt: skip


def _increment(old: Values, b: Values, _: Values) -> Values:
    return np.where(old >= b, old.dtype.type(0), old + old.dtype.type(1))


def _decrement(old: Values, b: Values, _: Values) -> Values:
    return np.where((old == 0) | (old > b), b, old - old.dtype.type(1))


def _swap_equal(old: Values, b: Values, c: Values) -> Values:
    return np.where(old == b, c, old)


def _float_min(old: Values, b: Values, _: Values) -> Values:
    return np.fmin(old, b)


def _float_max(old: Values, b: Values, _: Values) -> Values:
    return np.fmax(old, b)


def _on_bf16(operation: Callable[[Values, Values], Values]) -> Combine:
    def combine(old: Values, b: Values, _: Values) -> Values:
        result = operation(numbers.widen_bf16(old), numbers.widen_bf16(b))
        return numbers.to_bf16(result)

    return combine


def _on_halves(inner: Combine, code: str) -> Combine:
    def combine(old: Values, b: Values, c: Values) -> Values:
        (ol, oh), (bl, bh) = numbers.halves(old, code), numbers.halves(b, code)
        return numbers.join(np.asarray(inner(ol, bl, c)), np.asarray(inner(oh, bh, c)))

    return combine


def _plain(ufunc: np.ufunc) -> Combine:
    return lambda old, b, _: ufunc(old, b)


FLOATS: dict[str, Combine] = {"add": _plain(np.add), "min": _float_min, "max": _float_max}
BF16S = {"add": _on_bf16(np.add), "min": _on_bf16(np.fmin), "max": _on_bf16(np.fmax)}


def combiner(name: str, type_name: str) -> Combine:
    """The function that makes the new value; KeyError where PTX has no such operation."""
    if name == "exch":
        return lambda old, b, _: b
    if name == "cas":
        return _swap_equal
    if type_name == "bf16x2":
        return _on_halves(BF16S[name], "u2")
    if type_name == "f16x2":
        return _on_halves(FLOATS[name], "f2")
    if type_name == "bf16":
        return BF16S[name]
    if type_name[0] == "f":
        return FLOATS[name]
    if name in ("inc", "dec"):
        return _increment if name == "inc" else _decrement
    return _plain(UFUNCS[name])


def atomic(
    space: Space,
    name: str,
    type_name: str,
    code: str,
    want: bool,
    p: Values,
    a: Values,
    b: Values,
    c: Values,
    old: Values,
    t: Threads,
    n: int,
    line: int,
) -> Values:
    """One atomic of all n active threads; the values that they found in memory, if wanted."""
    chosen = None if p is None else chosen_of(p)
    if chosen is not None:
        if not chosen.size:
            return old
        a, t = narrowed(a, chosen, t)
        b, c = (x[chosen] if x.ndim else x for x in (b, c))
        n = chosen.size
    size = DTYPES[code].itemsize
    if size > 1:
        space.check_alignment(a, size, True, t, line)
    combine = combiner(name, type_name)
    plain = UFUNCS.get(name) if _simple(name, type_name) else None
    found = np.empty(n, DTYPES[code])
    for region, offset, part in space.parts(a, size, True, t, line):
        index = np.broadcast_to(offset // size, n if part is None else part.shape)
        bs, cs = (_part(x, part, index.shape) for x in (b, c))
        result = apply(region.view(code), index, bs, cs, combine, plain, want)
        if part is None:
            found = result
        else:
            found[part] = result
    if chosen is None:
        return found
    merged = np.broadcast_to(old, p.shape).copy()
    merged[chosen] = found
    return merged


def _simple(name: str, type_name: str) -> bool:
    """Does numpy's own function do it? (Its minimum keeps NaN, a GPU's drops it.)"""
    if type_name[0] == "f":
        return name == "add" and "x" not in type_name
    return not type_name.startswith("bf")


def _part(x: Values, part: Values, shape: tuple[int, ...]) -> Values:
    return np.broadcast_to(x, shape) if x.ndim == 0 or part is None else x[part]


def apply(
    view: Values,
    index: Values,
    b: Values,
    c: Values,
    combine: Combine,
    plain: np.ufunc | None,
    want: bool,
) -> Values:
    if plain is not None and not want:
        plain.at(view, index, b)
        return b
    first = index[0]
    if plain is not None and (index == first).all():
        steps = plain.accumulate(np.concatenate([view[first : first + 1], b]), dtype=view.dtype)
        view[first] = steps[-1]
        return steps[:-1]
    found = np.empty(index.shape, view.dtype)
    for turn in turns(index):
        at = index[turn]
        old = view[at]
        found[turn] = old
        view[at] = combine(old, b[turn], c[turn])
    return found


def turns(index: Values) -> list[Values]:
    """Threads in groups without two of the same place, each place's threads in order."""
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    fresh = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    starts = np.flatnonzero(fresh)
    rank = np.arange(index.size) - np.repeat(starts, np.diff([*starts, index.size]))
    by_rank = order[np.argsort(rank, kind="stable")]
    return np.split(by_rank, np.cumsum(np.bincount(rank))[:-1])
