"""The notation of `rearrange`, as einops has it: `"b (h w) c -> b c h w"`.

A formula becomes three steps: split axes, permute them, merge axes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tgcore.errors import ShapeError
from tgcore.helpers import prod
from tgcore.uop.node import sint

_TOKEN = re.compile(r"\s*(\.\.\.|[A-Za-z_]\w*|1|[()])")
_REST = "..."
# an ellipsis outside of parentheses, as a group: each axis that it stands for stays one
_EACH = [_REST, "*"]


@dataclass(frozen=True)
class Steps:
    """What a formula does to a shape."""

    split: tuple[sint, ...]
    order: tuple[int, ...]
    merged: tuple[sint, ...]


def _groups(text: str, formula: str) -> list[list[str]]:
    """The axes of one side, each a list of the names that it is made of (none for a 1)."""
    groups: list[list[str]] = []
    inside, position = False, 0
    text = text.strip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ShapeError(f"rearrange: {text[position:]!r} in {formula!r} is no axis")
        position, token = match.end(), match.group(1)
        if token in "()":
            if (token == "(") is inside:
                raise ShapeError(f"rearrange: the parentheses of {formula!r} do not match")
            inside = token == "("
            if inside:
                groups.append([])
        elif inside and token != "1":
            groups[-1].append(token)
        elif not inside:
            groups.append({"1": [], _REST: list(_EACH)}.get(token, [token]))
    if inside:
        raise ShapeError(f"rearrange: the parentheses of {formula!r} do not match")
    return groups


def _check_names(left: list[list[str]], right: list[list[str]], formula: str) -> None:
    names = [[n for g in side for n in (g if g != _EACH else [_REST])] for side in (left, right)]
    for side in names:
        if twice := sorted({n for n in side if side.count(n) > 1}):
            raise ShapeError(f"rearrange: {', '.join(twice)} stands twice on a side of {formula!r}")
    if odd := sorted(set(names[0]) ^ set(names[1])):
        raise ShapeError(
            f"rearrange: {', '.join(odd)} stands on one side of {formula!r} only; axes do not "
            "come or go (use a reduce, or repeat)"
        )


def _with_rest(groups: list[list[str]], rest: Sequence[str]) -> list[list[str]]:
    """An ellipsis as the axes that it stands for; inside of parentheses all in one group."""
    result: list[list[str]] = []
    for group in groups:
        if group == _EACH:
            result += [[name] for name in rest]
        else:
            result.append([n for name in group for n in (rest if name == _REST else [name])])
    return result


def parse(formula: str, shape: Sequence[sint], sizes: Mapping[str, int]) -> Steps:
    """The steps for a shape; `sizes` gives sizes of axes that cannot be worked out."""
    left_text, arrow, right_text = formula.partition("->")
    if not arrow:
        raise ShapeError(f"rearrange: {formula!r} has no '->'")
    left, right = _groups(left_text, formula), _groups(right_text, formula)
    if any(_REST in g and g != _EACH for g in left):
        raise ShapeError(f"rearrange: the left side of {formula!r} has an ellipsis in parentheses")
    _check_names(left, right, formula)
    count = len(shape) - len(left) + (_EACH in left)
    if count < 0 or (count and _EACH not in left):
        raise ShapeError(f"rearrange: {formula!r} names {len(left)} axes, the shape is {shape}")
    rest = [f"{_REST}{n}" for n in range(count)]
    left, right = _with_rest(left, rest), _with_rest(right, rest)
    known = dict[str, sint](sizes)
    if unused := sorted(known.keys() - {n for g in left for n in g}):
        raise ShapeError(
            f"rearrange: {', '.join(unused)} is given a size but is not in {formula!r}"
        )
    for group, size in zip(left, shape, strict=True):
        _solve(group, size, known, formula, shape)
    names = [n for g in left for n in g]
    return Steps(
        tuple(known[n] for n in names),
        tuple(names.index(n) for g in right for n in g),
        tuple(prod(known[n] for n in g) for g in right),
    )


def _solve(
    group: list[str], size: sint, known: dict[str, sint], formula: str, shape: Sequence[sint]
) -> None:
    """Note the size of the one name of a group that has none yet."""
    open_names = [n for n in group if n not in known]
    if len(open_names) > 1:
        raise ShapeError(
            f"rearrange: the sizes of {', '.join(open_names)} in {formula!r} are open; give all "
            f"but one, as in rearrange(..., {open_names[0]}=2)"
        )
    rest = prod(known[n] for n in group if n in known)
    if open_names:
        fits = not isinstance(size, int) or not isinstance(rest, int) or (rest and size % rest == 0)
        if fits:
            known[open_names[0]] = size // rest if rest != 1 else size
    else:
        fits = rest == size
    if not fits:
        raise ShapeError(
            f"rearrange: ({' '.join(group)}) of {formula!r} does not fit an axis of size {size} of "
            f"{tuple(shape)}"
        )
