"""Elementwise ops against torch: values and gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.tensor.helpers import compare
from tgcore import Tensor

# name -> (torch's function, tgcore's function, range of the inputs)
UNARY: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[float, float]]] = {
    "neg": (lambda x: -x, lambda x: -x, (-2, 2)),
    "abs": (torch.abs, Tensor.abs, (-2, 2)),
    "sign": (torch.sign, Tensor.sign, (-2, 2)),
    "square": (torch.square, Tensor.square, (-2, 2)),
    "reciprocal": (torch.reciprocal, Tensor.reciprocal, (0.5, 3)),
    "sqrt": (torch.sqrt, Tensor.sqrt, (0.1, 4)),
    "rsqrt": (torch.rsqrt, Tensor.rsqrt, (0.1, 4)),
    "exp": (torch.exp, Tensor.exp, (-4, 4)),
    "exp2": (torch.exp2, Tensor.exp2, (-4, 4)),
    "expm1": (torch.expm1, Tensor.expm1, (-1, 1)),
    "log": (torch.log, Tensor.log, (0.1, 5)),
    "log2": (torch.log2, Tensor.log2, (0.1, 5)),
    "log10": (torch.log10, Tensor.log10, (0.1, 5)),
    "log1p": (torch.log1p, Tensor.log1p, (-0.5, 3)),
    "sin": (torch.sin, Tensor.sin, (-5, 5)),
    "cos": (torch.cos, Tensor.cos, (-5, 5)),
    "tan": (torch.tan, Tensor.tan, (-1.2, 1.2)),
    "asin": (torch.asin, Tensor.asin, (-0.95, 0.95)),
    "acos": (torch.acos, Tensor.acos, (-0.95, 0.95)),
    "atan": (torch.atan, Tensor.atan, (-5, 5)),
    "sinh": (torch.sinh, Tensor.sinh, (-3, 3)),
    "cosh": (torch.cosh, Tensor.cosh, (-3, 3)),
    "tanh": (torch.tanh, Tensor.tanh, (-3, 3)),
    "asinh": (torch.asinh, Tensor.asinh, (-3, 3)),
    "acosh": (torch.acosh, Tensor.acosh, (1.1, 4)),
    "atanh": (torch.atanh, Tensor.atanh, (-0.9, 0.9)),
    "erf": (torch.erf, Tensor.erf, (-3, 3)),
    "trunc": (torch.trunc, Tensor.trunc, (-4, 4)),
    "floor": (torch.floor, Tensor.floor, (-4, 4)),
    "ceil": (torch.ceil, Tensor.ceil, (-4, 4)),
    "round": (torch.round, Tensor.round, (-4, 4)),
    "frac": (torch.frac, Tensor.frac, (-4, 4)),
    "relu": (torch.relu, Tensor.relu, (-2, 2)),
    "relu6": (torch.nn.functional.relu6, Tensor.relu6, (-2, 8)),
    "sigmoid": (torch.sigmoid, Tensor.sigmoid, (-4, 4)),
    "logsigmoid": (torch.nn.functional.logsigmoid, Tensor.logsigmoid, (-4, 4)),
    "hardsigmoid": (torch.nn.functional.hardsigmoid, Tensor.hardsigmoid, (-4, 4)),
    "hardtanh": (torch.nn.functional.hardtanh, Tensor.hardtanh, (-2, 2)),
    "hardswish": (torch.nn.functional.hardswish, Tensor.hardswish, (-4, 4)),
    "leaky_relu": (torch.nn.functional.leaky_relu, Tensor.leaky_relu, (-2, 2)),
    "elu": (torch.nn.functional.elu, Tensor.elu, (-2, 2)),
    "celu": (lambda x: torch.nn.functional.celu(x, 1.5), lambda x: x.celu(1.5), (-2, 2)),
    "selu": (torch.nn.functional.selu, Tensor.selu, (-2, 2)),
    "silu": (torch.nn.functional.silu, Tensor.silu, (-4, 4)),
    "gelu": (lambda x: torch.nn.functional.gelu(x, approximate="tanh"), Tensor.gelu, (-3, 3)),
    "gelu exact": (torch.nn.functional.gelu, lambda x: x.gelu("none"), (-3, 3)),
    "softplus": (torch.nn.functional.softplus, Tensor.softplus, (-4, 4)),
    "mish": (torch.nn.functional.mish, Tensor.mish, (-4, 4)),
    "softsign": (torch.nn.functional.softsign, Tensor.softsign, (-4, 4)),
    "clamp": (lambda x: x.clamp(-1, 1), lambda x: x.clamp(-1, 1), (-2, 2)),
    "pow 2": (lambda x: x**2, lambda x: x**2, (-2, 2)),
    "pow 3": (lambda x: x**3, lambda x: x**3, (-2, 2)),
    "pow 0.5": (lambda x: x**0.5, lambda x: x**0.5, (0.1, 3)),
    "pow -1.5": (lambda x: x**-1.5, lambda x: x**-1.5, (0.5, 3)),
    "2 ** x": (lambda x: 2**x, lambda x: 2**x, (-2, 2)),
    "1 / x": (lambda x: 1 / x, lambda x: 1 / x, (0.5, 3)),
    "x / 3": (lambda x: x / 3, lambda x: x / 3, (-3, 3)),
    "1 - x": (lambda x: 1 - x, lambda x: 1 - x, (-3, 3)),
}


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    theirs, ours, (low, high) = UNARY[name]
    compare(theirs, ours, [(5, 7)], low=low, high=high, atol=2e-6)


BINARY: dict[str, tuple[Callable[..., Any], Callable[..., Any] | None, tuple[float, float]]] = {
    "add": (lambda a, b: a + b, None, (-2, 2)),
    "sub": (lambda a, b: a - b, None, (-2, 2)),
    "mul": (lambda a, b: a * b, None, (-2, 2)),
    "div": (lambda a, b: a / b, None, (0.5, 2)),
    "floordiv": (lambda a, b: torch.floor(a / b), lambda a, b: a // b, (0.5, 9)),
    "mod": (lambda a, b: a % b, None, (0.5, 9)),
    "pow": (lambda a, b: a**b, None, (0.3, 2)),
    "maximum": (torch.maximum, Tensor.maximum, (-2, 2)),
    "minimum": (torch.minimum, Tensor.minimum, (-2, 2)),
    "atan2": (torch.atan2, Tensor.atan2, (-2, 2)),
    "copysign": (torch.copysign, Tensor.copysign, (-2, 2)),
    "logaddexp": (torch.logaddexp, Tensor.logaddexp, (-2, 2)),
    "fmod": (torch.fmod, Tensor.fmod, (0.5, 9)),
    "lerp": (lambda a, b: torch.lerp(a, b, 0.3), lambda a, b: a.lerp(b, 0.3), (-2, 2)),
    "where": (
        lambda a, b: torch.where(a > b, a, b * 2),
        lambda a, b: (a > b).where(a, b * 2),
        (-2, 2),
    ),
    "masked_fill": (
        lambda a, b: a.masked_fill(b > 0, 3.0),
        lambda a, b: a.masked_fill(b > 0, 3.0),
        (-2, 2),
    ),
}


@pytest.mark.parametrize("shapes", [((3, 4), (3, 4)), ((3, 4), (4,)), ((3, 1), (1, 4)), ((), (3,))])
@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str, shapes: Any) -> None:
    theirs, ours, (low, high) = BINARY[name]
    flat = name in ("floordiv", "copysign", "mod", "fmod")
    if name == "masked_fill" and shapes == ((), (3,)):
        pytest.skip("torch refuses a mask larger than the tensor")
    compare(theirs, ours, shapes, low=low, high=high, atol=3e-6, forward_only=flat)


@pytest.mark.parametrize(
    "compared",
    [
        lambda a, b: a < b,
        lambda a, b: a > b,
        lambda a, b: a <= b,
        lambda a, b: a >= b,
        lambda a, b: a == b,
        lambda a, b: a != b,
    ],
)
def test_comparisons_with_nan_and_infinity(compared: Callable[..., Any]) -> None:
    values = np.array([0.0, -0.0, 1.5, -1.5, math.nan, math.inf, -math.inf], np.float32)
    a, b = np.repeat(values, 7), np.tile(values, 7)
    compare(compared, None, arrays=[a, b], forward_only=True)
    compare(lambda x: compared(x, 1.5), None, arrays=[values], forward_only=True)


SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, 1e-40, 1e38, -1e38, math.nan, math.inf, -math.inf],
    np.float32,
)


@pytest.mark.parametrize(
    "name",
    [
        *("neg", "abs", "sign", "reciprocal", "sqrt", "exp", "exp2", "expm1", "log", "log2"),
        *("log1p", "tanh", "atan", "sinh", "cosh", "asinh", "sigmoid", "relu"),
        *("floor", "ceil", "trunc", "round", "erf", "softplus", "silu"),
    ],
)
def test_special_values(name: str) -> None:
    theirs, ours, _ = UNARY[name]
    compare(theirs, ours, arrays=[SPECIAL], forward_only=True, atol=1e-6)


# where pieces of formulas meet, where functions have corners, and where parts overflow
TURNING_POINTS = np.array([0, -0.5, 0.5, 1, -1, 3, -3, 6, 30, -30, 1e3, -1e3], np.float32)


@pytest.mark.parametrize(
    "name",
    [
        *("abs", "tanh", "atan", "asinh", "sigmoid", "logsigmoid", "softplus", "mish", "erf"),
        *("relu", "relu6", "hardsigmoid", "hardtanh", "hardswish", "leaky_relu", "elu", "celu"),
        *("selu", "silu", "gelu exact", "softsign", "expm1", "log1p", "exp", "clamp", "pow 2"),
    ],
)
def test_gradients_at_turning_points(name: str) -> None:
    theirs, ours, _ = UNARY[name]
    points = TURNING_POINTS[TURNING_POINTS > -0.9] if name == "log1p" else TURNING_POINTS
    compare(theirs, ours, arrays=[points], atol=1e-6, grad_atol=1e-6)


@pytest.mark.parametrize("name", ["asin", "acos", "atanh", "sinh", "cosh", "tan"])
def test_gradients_near_zero(name: str) -> None:
    theirs, ours, _ = UNARY[name]
    compare(theirs, ours, arrays=[np.array([0.0, 1e-6, -1e-6, 0.5, -0.5], np.float32)])


def test_the_gradient_of_atan2_on_the_axes() -> None:
    y, x = np.array([0, 0, 1, -1, 0], np.float32), np.array([1, -1, 0, 0, 0], np.float32)
    compare(torch.atan2, Tensor.atan2, arrays=[y, x])


@pytest.mark.parametrize("name", ["isnan", "isinf", "isfinite"])
def test_classification(name: str) -> None:
    compare(getattr(torch, name), getattr(Tensor, name), arrays=[SPECIAL], forward_only=True)


def test_powers_of_all_signs() -> None:
    base = np.array([-2, -1, -0.5, 0, 0.5, 1, 2, math.inf, -math.inf, math.nan], np.float32)
    power = np.array([-3, -2, -1, -0.5, 0, 0.5, 1, 2, 3, math.inf, -math.inf, math.nan], np.float32)
    a, b = np.repeat(base, len(power)), np.tile(power, len(base))
    compare(lambda x, y: x**y, None, arrays=[a, b], forward_only=True)


def test_atan2_in_all_quadrants_and_on_the_axes() -> None:
    values = np.array([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf], np.float32)
    a, b = np.repeat(values, 6), np.tile(values, 6)
    compare(torch.atan2, Tensor.atan2, arrays=[a, b], forward_only=True)


def test_minimum_of_extreme_integers() -> None:
    values = np.array([-(2**31), 2**31 - 1, 0], np.int32)
    compare(torch.minimum, Tensor.minimum, arrays=[values, values[::-1].copy()], forward_only=True)


INTEGER_OPS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "true division": lambda a, b: a / b,
}


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "int32", "int64"])
@pytest.mark.parametrize("name", INTEGER_OPS)
def test_integers(name: str, kind: str) -> None:
    rng = np.random.default_rng(0)
    low = 0 if kind.startswith("u") else -100
    a = rng.integers(low, 100, size=40).astype(kind)
    b = rng.integers(low, 100, size=40).astype(kind)
    b[b == 0] = 3
    compare(INTEGER_OPS[name], None, arrays=[a, b], forward_only=True)


def test_rounding_modes_of_division() -> None:
    a, b = np.array([7, -7, 7, -7], np.int32), np.array([2, 2, -2, -2], np.int32)
    for mode in ("trunc", "floor"):
        compare(
            lambda x, y, mode=mode: torch.div(x, y, rounding_mode=mode),
            lambda x, y, mode=mode: x.div(y, rounding_mode=mode),
            arrays=[a, b],
            forward_only=True,
        )


@pytest.mark.parametrize("amount", [0, 1, 5])
def test_shifts(amount: int) -> None:
    values = np.array([-8, -1, 0, 1, 77], np.int32)
    compare(lambda x: x << amount, None, arrays=[values], forward_only=True)
    compare(lambda x: x >> amount, None, arrays=[values], forward_only=True)


def test_logic() -> None:
    a, b = np.array([0, 1, 2, 0], np.int32), np.array([0, 0, 5, 3], np.int32)
    for name in ("logical_and", "logical_or", "logical_xor"):
        compare(getattr(torch, name), getattr(Tensor, name), arrays=[a, b], forward_only=True)
    compare(torch.logical_not, Tensor.logical_not, arrays=[a], forward_only=True)
    compare(torch.bitwise_not, Tensor.bitwise_not, arrays=[a], forward_only=True)
    compare(lambda x: ~x, None, arrays=[a > 0], forward_only=True)


def test_isclose() -> None:
    a = np.array([1.0, 1.0, math.inf, math.nan, math.inf], np.float32)
    b = np.array([1.0 + 1e-6, 1.1, math.inf, math.nan, -math.inf], np.float32)
    compare(torch.isclose, Tensor.isclose, arrays=[a, b], forward_only=True)
    assert Tensor(a).isclose(Tensor(b), equal_nan=True).tolist() == [True, False, True, True, False]


def test_equal_elements_share_the_gradient_of_a_maximum() -> None:
    x = np.array([1.0, 2.0, 3.0], np.float32)
    compare(torch.maximum, Tensor.maximum, arrays=[x, x.copy()])
