"""Every elementwise op of the tables in `test_ops_elementwise`, against torch: in all float types,
on views of all kinds, of nothing and of one number, with edge values, and to the second order."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.tensor.helpers import compare
from tests.tensor.test_ops_elementwise import BINARY, UNARY
from tgcore import Tensor

OPS = {**UNARY, **BINARY}
FLAT = {"sign", "trunc", "floor", "ceil", "round", "floordiv", "mod", "fmod", "copysign"}
# torch has no second derivative, or one that is the same for all arguments
NO_SECOND = FLAT | {
    *("neg", "abs", "frac", "hardsigmoid", "clamp", "x / 3", "1 - x", "add", "sub", "lerp"),
    *("maximum", "minimum", "where", "masked_fill", "relu", "relu6", "hardtanh", "leaky_relu"),
}


def function(name: str) -> tuple[Callable[..., Any], Callable[..., Any], int]:
    """(torch's, ours, number of arguments)."""
    theirs, ours, _ = OPS[name]
    return theirs, ours or theirs, 1 if name in UNARY else 2


def arguments(name: str, shape: tuple[int, ...], seed: int = 0) -> list[np.ndarray[Any, Any]]:
    low, high = OPS[name][2]
    rng = np.random.default_rng(seed)
    return [rng.uniform(low, high, shape) for _ in range(function(name)[2])]


@pytest.mark.parametrize("name", sorted(OPS.keys() - NO_SECOND))
def test_second_order(name: str) -> None:
    theirs, ours, count = function(name)
    values = [v.astype(np.float32) for v in arguments(name, (3, 4))]
    weights = np.random.default_rng(1).uniform(-1, 1, (3, 4)).astype(np.float32)
    a = [torch.tensor(v, requires_grad=True) for v in values]
    w = torch.tensor(weights)
    first = torch.autograd.grad((theirs(*a) * w).sum(), a, create_graph=True)
    second = torch.autograd.grad(sum((g * w).sum() for g in first), a)
    b = [Tensor(v, requires_grad=True) for v in values]
    our_first = (ours(*b) * Tensor(weights)).sum().gradient(*b)
    total = our_first[0] if count == 1 else our_first[0] + our_first[1]
    for found, expected in zip((total * Tensor(weights)).sum().gradient(*b), second):
        np.testing.assert_allclose(found.numpy(), expected.numpy(), atol=2e-4, rtol=2e-3)


VIEWS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda x: x.transpose(0, 1),
    "flipped": lambda x: x.flip((0, 1)),
    "part": lambda x: x[1:3, ::2],
    "expanded": lambda x: x[:1].expand(4, 6),
    "one row": lambda x: x[2],
    "one number": lambda x: x[2, 3],
    "nothing": lambda x: x[:0],
    "reshaped": lambda x: x.transpose(0, 1).reshape(3, 8),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", OPS)
def test_views(name: str, view: str) -> None:
    theirs, ours, _ = function(name)
    look = VIEWS[view]
    compare(
        lambda *xs: theirs(*[look(x) for x in xs]),
        lambda *xs: ours(*[look(x) for x in xs]),
        arrays=[v.astype(np.float32) for v in arguments(name, (4, 6))],
        atol=3e-6,
        forward_only=name in FLAT,
    )


# ops whose result jumps: the narrow types' rounding of arguments may put it on the other side
JUMPS = {"floordiv", "mod", "fmod", "round", "floor", "ceil", "trunc", "frac"}


@pytest.mark.parametrize("kind", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", sorted(OPS.keys() - JUMPS))
def test_types(name: str, kind: str) -> None:
    theirs, ours, _ = function(name)
    values = arguments(name, (5, 7))
    a = [torch.tensor(v).to(getattr(torch, kind)) for v in values]
    # torch computes narrow floats in float32, or step by step: the exact value is that of float64
    exact = theirs(*[x.double() for x in a]).numpy()
    b = [Tensor(x.double().numpy()).cast(kind) for x in a]
    found = ours(*b)
    assert found.dtype.name == kind or name == "isclose"
    bits = {"float64": 40, "float16": 8, "bfloat16": 5}[kind]
    size = max(1.0, float(np.abs(exact).max()))
    np.testing.assert_allclose(
        found.double().numpy(), exact, rtol=2.0**-bits, atol=size * 2.0**-bits
    )


SPECIAL = [0.0, 1.0, 0.5, 2.5, 1e-45, 1e-38, 3e38, math.inf]
EDGES = np.array([*SPECIAL, *(-v for v in SPECIAL), math.nan], np.float32)


@pytest.mark.parametrize(
    "name",
    ["add", "sub", "mul", "div", "maximum", "minimum", "pow", "atan2", "copysign", "fmod", "where"],
)
def test_edge_values_of_two(name: str) -> None:
    theirs, ours, _ = function(name)
    a, b = np.repeat(EDGES, len(EDGES)), np.tile(EDGES, len(EDGES))
    with np.errstate(all="ignore"):
        if name == "fmod":  # torch has no result for quotients of more bits than a float's
            usable = ~(np.abs(a / b) > 2**24) | (b == 0) | np.isinf(a)
            a, b = a[usable], b[usable]
        compare(theirs, ours, arrays=[a, b], forward_only=True, rtol=1e-6, atol=0)


INTEGERS = [np.int8, np.uint8, np.int16, np.int32, np.int64]


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "maximum", "minimum", "floordiv", "mod"])
def test_extreme_integers_wrap_around(name: str, kind: Any) -> None:
    info = np.iinfo(kind)
    values = np.unique(np.array([info.min, info.min + 1, 0, 1, 2, 7, info.max - 1, info.max], kind))
    a, b = np.repeat(values, len(values)), np.tile(values, len(values))
    if name in ("floordiv", "mod"):
        # what 0 divides is undefined, and so is the one quotient that has no room
        usable = (b != 0) & ~((a == info.min) & (b.astype(np.int64) == -1))
        a, b = a[usable], b[usable]
    numpy_names = {
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "maximum": np.maximum,
        "minimum": np.minimum, "floordiv": np.floor_divide, "mod": np.mod,
    }  # fmt: skip
    with np.errstate(all="ignore"):
        expected = numpy_names[name](a, b)
    ours = {"sub": lambda x, y: x - y, "mod": lambda x, y: x % y}.get(name, function(name)[1])
    np.testing.assert_array_equal(ours(Tensor(a), Tensor(b)).numpy(), expected)
