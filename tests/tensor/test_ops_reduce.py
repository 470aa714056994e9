"""Reduces against torch and numpy: values, gradients, types, empty axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.tensor.helpers import compare
from tgcore import Tensor, dtypes
from tgcore.errors import ShapeError

REDUCES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "sum": (lambda x, a, k: x.sum(a, keepdim=k), lambda x, a, k: x.sum(a, keepdim=k)),
    "prod": (lambda x, a, k: x.prod(a, keepdim=k), lambda x, a, k: x.prod(a, keepdim=k)),
    "max": (lambda x, a, k: x.amax(a, keepdim=k), lambda x, a, k: x.max(a, keepdim=k)),
    "min": (lambda x, a, k: x.amin(a, keepdim=k), lambda x, a, k: x.min(a, keepdim=k)),
    "mean": (lambda x, a, k: x.mean(a, keepdim=k), lambda x, a, k: x.mean(a, keepdim=k)),
    "var": (lambda x, a, k: x.var(a, keepdim=k), lambda x, a, k: x.var(a, keepdim=k)),
    "std": (lambda x, a, k: x.std(a, keepdim=k), lambda x, a, k: x.std(a, keepdim=k)),
    "logsumexp": (
        lambda x, a, k: x.logsumexp(a, keepdim=k),
        lambda x, a, k: x.logsumexp(a, keepdim=k),
    ),
    "norm": (
        lambda x, a, k: torch.linalg.vector_norm(x, 2, a, keepdim=k),
        lambda x, a, k: x.norm(2, a, keepdim=k),
    ),
}


@pytest.mark.parametrize("axis", [0, -1, (0, 2)])
@pytest.mark.parametrize("name", REDUCES)
def test_reduce(name: str, axis: Any) -> None:
    if name == "prod" and isinstance(axis, tuple):
        pytest.skip("torch multiplies along one axis only")
    theirs, ours = REDUCES[name]
    keep = axis == -1
    compare(lambda x: theirs(x, axis, keep), lambda x: ours(x, axis, keep), [(3, 4, 5)], atol=3e-6)


@pytest.mark.parametrize("name", ["std", "norm"])
def test_the_root_of_no_squares_has_no_slope(name: str) -> None:
    theirs, ours = REDUCES[name]
    values = np.array([[2, 2, 2], [0, 0, 0], [1, 2, 3]], np.float32)
    compare(lambda x: theirs(x, 1, False), lambda x: ours(x, 1, False), arrays=[values])


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "var", "std"])
def test_reduce_of_all_axes(name: str) -> None:
    compare(lambda x: getattr(x, name)(), None, [(3, 4)], atol=3e-6)


@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_gradient_of_a_product_with_zeros(zeros: int) -> None:
    x = np.array([1.5, -2.0, 3.0, 0.5], np.float32)
    x[:zeros] = 0
    compare(lambda x: x.prod(), None, arrays=[x])


def test_equal_maxima_share_the_gradient() -> None:
    x = np.array([[1, 3, 3], [2, 2, 2]], np.float32)
    compare(lambda x: x.amax(1), lambda x: x.max(1), arrays=[x])


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("axis", [0, -1])
def test_softmax(name: str, axis: int) -> None:
    compare(lambda x: getattr(x, name)(axis), None, [(4, 6)])


def test_softmax_of_large_and_infinite_values() -> None:
    x = np.array([[1000.0, 1001.0, -math.inf], [-1e30, -1e30, 0.0]], np.float32)
    for name in ("softmax", "log_softmax"):
        compare(lambda x, n=name: getattr(x, n)(-1), None, arrays=[x], forward_only=True)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions_of_extremes(name: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 5, size=(4, 7)).astype(np.float32)
    for axis in (0, 1):
        expected = getattr(np, name)(x, axis)
        assert np.array_equal(getattr(Tensor(x), name)(axis).numpy(), expected)
    assert getattr(Tensor(x), name)().item() == getattr(np, name)(x)
    kept = getattr(Tensor(x), name)(1, keepdim=True)
    assert kept.shape == (4, 1) and kept.dtype is dtypes.int32


def test_positions_of_extreme_integers() -> None:
    x = np.array([-(2**31), 0, 2**31 - 1], np.int32)
    assert Tensor(x).argmin().item() == 0 and Tensor(x).argmax().item() == 2


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp"])
@pytest.mark.parametrize("axis", [0, 1])
def test_running(name: str, axis: int) -> None:
    smooth = name != "cumprod"
    compare(lambda x: getattr(x, name)(axis), None, [(5, 6)], atol=3e-6, forward_only=not smooth)


def test_a_long_running_sum() -> None:
    x = np.arange(2000, dtype=np.int32) % 7
    assert np.array_equal(Tensor(x).cumsum().numpy(), x.cumsum())


def test_any_and_all() -> None:
    x = np.array([[0, 1], [0, 0], [2, 3]], np.int32)
    for name in ("any", "all"):
        for axis in (None, 0, 1):
            assert np.array_equal(
                getattr(Tensor(x), name)(axis).numpy(), getattr(np, name)(x, axis=axis)
            )


@pytest.mark.parametrize("kind", ["bool", "int8", "uint8", "int16", "int32", "int64", "float16"])
def test_sums_are_made_in_wider_types(kind: str) -> None:
    x = np.full(300, 1).astype(kind)
    total = Tensor(x).sum()
    assert total.item() == 300
    assert total.dtype.name == {"uint8": "uint32", "int64": "int64", "float16": "float16"}.get(
        kind, "int32"
    )


def test_a_sum_of_half_floats_does_not_stall() -> None:
    assert Tensor(np.ones(4096, np.float16)).sum().item() == 4096


# *** nothing, and no axes ***


def test_reduces_of_nothing() -> None:
    x = Tensor.zeros(0, 3)
    assert x.sum(0).tolist() == [0, 0, 0] and x.prod(0).tolist() == [1, 1, 1]
    assert x.sum().item() == 0 and math.isnan(x.mean().item())
    assert x.any().item() is False and x.all().item() is True
    assert x.sum(1).shape == (0,) and x.max(1).shape == (0,)
    for wrong in (x.max, x.min):
        with pytest.raises(ShapeError, match=r"no elements on axes \(0, 1\)"):
            wrong()


def test_empty_tensors_run_no_kernel() -> None:
    from tgcore import GlobalCounters

    GlobalCounters.reset()
    x = Tensor.zeros(0, 3)
    results = [x + 1, x @ Tensor.ones(3, 4), x.cat(x), x.softmax(), x.permute(1, 0), x[:, 1:]]
    shapes = [(0, 3), (0, 4), (0, 3), (0, 3), (3, 0), (0, 2)]
    assert [r.numpy().shape for r in results] == shapes
    assert GlobalCounters.kernel_count == 0


def test_a_product_over_an_empty_axis_is_zero() -> None:
    assert (Tensor.zeros(2, 0) @ Tensor.zeros(0, 3)).tolist() == [[0, 0, 0], [0, 0, 0]]


def test_a_tensor_without_axes() -> None:
    x = Tensor(np.float32(2.5), requires_grad=True)
    for op in (lambda t: t.sum(), lambda t: t.max(), lambda t: t.mean(), lambda t: t * 1):
        assert op(x).item() == 2.5 and op(x).shape == ()
    (x * x).backward()
    assert x.grad is not None and x.grad.item() == 5


@pytest.mark.parametrize("axis", [2, -3, (0, 0), (0, -2)])
def test_a_wrong_axis_is_a_clear_error(axis: Any) -> None:
    with pytest.raises(ShapeError, match="axis"):
        Tensor.zeros(2, 3).sum(axis)
