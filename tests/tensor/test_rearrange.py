"""rearrange: values against numpy, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tgcore import Tensor
from tgcore.errors import ShapeError

X = np.arange(2 * 12 * 5).reshape(2, 12, 5)

CASES: list[tuple[str, dict[str, int], Callable[[Any], Any]]] = [
    ("a b c -> c a b", {}, lambda x: x.transpose(2, 0, 1)),
    ("a b c -> (a b) c", {}, lambda x: x.reshape(24, 5)),
    ("a b c -> a (c b)", {}, lambda x: x.transpose(0, 2, 1).reshape(2, 60)),
    ("b (h w) c -> b c h w", {"h": 3}, lambda x: x.reshape(2, 3, 4, 5).transpose(0, 3, 1, 2)),
    ("b (h w) c -> b (w h) c", {"w": 2},
     lambda x: x.reshape(2, 6, 2, 5).transpose(0, 2, 1, 3).reshape(2, 12, 5)),
    ("a b c -> a 1 b (c 1) 1", {}, lambda x: x.reshape(2, 1, 12, 5, 1)),
    ("a ... -> ... a", {}, lambda x: x.transpose(1, 2, 0)),
    ("... c -> (...) c", {}, lambda x: x.reshape(24, 5)),
    ("... -> ...", {}, lambda x: x),
    ("a_1 b2 c->c b2 a_1", {}, lambda x: x.transpose(2, 1, 0)),
    ("a b c -> (c a b)", {}, lambda x: x.transpose(2, 0, 1).reshape(-1)),
]  # fmt: skip


@pytest.mark.parametrize(("formula", "sizes", "expected"), CASES)
def test_values(formula: str, sizes: dict[str, int], expected: Callable[[Any], Any]) -> None:
    np.testing.assert_array_equal(Tensor(X).rearrange(formula, **sizes).numpy(), expected(X))


def test_axes_of_size_one_come_and_go() -> None:
    assert Tensor.zeros(1, 3, 1).rearrange("1 a 1 -> a").shape == (3,)
    assert Tensor.zeros(()).rearrange(" -> 1 1").shape == (1, 1)


@pytest.mark.parametrize(
    ("formula", "sizes", "message"),
    [
        ("a b c", {}, "no '->'"),
        ("a b -> b a", {}, r"names 2 axes.*\(2, 12, 5\)"),
        ("a b c -> a b", {}, "c stands on one side"),
        ("a a c -> a c", {}, "a stands twice"),
        ("(a b c -> a b c", {}, "parentheses"),
        ("(x y) b c -> x y b c", {}, "x, y .* are open"),
        ("a (h w) c -> a h w c", {"h": 5}, "does not fit an axis of size 12"),
        ("a (h w) c -> a h w c", {"h": 3, "w": 3}, "does not fit an axis of size 12"),
        ("a b c -> a b c", {"d": 3}, "d is given a size"),
        ("1 b c -> b c", {}, "does not fit an axis of size 2"),
        ("a b ? -> a b", {}, "is no axis"),
    ],
)
def test_other_formulas_are_refused(formula: str, sizes: dict[str, int], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        Tensor(X).rearrange(formula, **sizes)
