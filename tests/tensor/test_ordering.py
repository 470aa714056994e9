"""Sorting, running extremes and counting, against torch and numpy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from tests.tensor.helpers import compare
from tgcore import Tensor, dtypes
from tgcore.errors import DTypeError, ShapeError
from tgcore.tensor import ordering


def samples(shape: tuple[int, ...], kind: str) -> np.ndarray[Any, Any]:
    values = np.random.default_rng(0).integers(-9, 10, shape)
    if kind == "bool":
        return values > 0
    if kind == "float32":
        special = np.where(values == 9, math.nan, np.where(values == -9, -math.inf, values))
        return special.astype(np.float32)
    return np.abs(values).astype(kind) if kind.startswith("u") else values.astype(kind)


def check_sort(values: np.ndarray[Any, Any], axis: int, descending: bool) -> None:
    found, places = Tensor(values).sort(axis, descending)
    expected, order = torch.sort(torch.tensor(values), dim=axis, descending=descending, stable=True)
    np.testing.assert_array_equal(found.numpy(), expected.numpy())
    np.testing.assert_array_equal(places.numpy(), order.numpy())
    assert places.dtype is dtypes.int32


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("kind", ["float32", "int32", "uint8", "int8", "bool"])
def test_sort_keeps_the_order_of_equal_ones(kind: str, descending: bool) -> None:
    check_sort(samples((3, 17, 2), kind), 1, descending)


@pytest.mark.once
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("size", [1, 2, 5, 16])
def test_long_axes_are_sorted_by_a_network(
    size: int, descending: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ordering, "_MOST_COMPARISONS", 0)
    check_sort(samples((3, size), "float32"), -1, descending)
    check_sort(np.full((size,), 255, np.uint8), 0, descending)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (1,)])
def test_sort_of_few_or_none(shape: tuple[int, ...]) -> None:
    found, places = Tensor(np.zeros(shape, np.float32)).sort()
    assert found.shape == places.shape == shape


def test_the_gradient_of_sorted_values_goes_back_to_where_they_were() -> None:
    compare(lambda x: x.sort(-1)[0], None, [(4, 5)])
    compare(lambda x: x.topk(2, -1)[0], None, [(4, 5)])
    compare(lambda x: x.median(-1)[0], None, [(4, 5)])


@pytest.mark.parametrize("largest", [True, False])
def test_topk(largest: bool) -> None:
    values = np.random.default_rng(1).permutation(24).reshape(4, 6).astype(np.float32)
    for number in (0, 1):
        compare(
            lambda x, n=number: x.topk(3, 1, largest)[n],
            None,
            arrays=[values],
            forward_only=True,
            dtype=False,
        )


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_running_extremes_and_their_places(name: str, axis: int) -> None:
    values = samples((5, 7), "float32")
    theirs = getattr(torch, name)(torch.tensor(values), axis)
    ours = getattr(Tensor(values), name)(axis)
    np.testing.assert_array_equal(ours[0].numpy(), theirs.values.numpy())
    np.testing.assert_array_equal(ours[1].numpy(), theirs.indices.numpy())
    compare(lambda x: getattr(x, name)(axis)[0], None, [(5, 7)])


@pytest.mark.parametrize("size", [1, 4, 5])
def test_median(size: int) -> None:
    values = np.random.default_rng(2).permutation(3 * size).reshape(3, size).astype(np.float32)
    theirs = torch.tensor(values).median(1)
    ours = Tensor(values).median(1)
    np.testing.assert_array_equal(ours[0].numpy(), theirs.values.numpy())
    np.testing.assert_array_equal(ours[1].numpy(), theirs.indices.numpy())


def test_bincount() -> None:
    numbers = np.array([0, 3, 3, 1, 7], np.int32)
    weights = np.array([0.5, 1, 2, 3, 4], np.float32)
    np.testing.assert_array_equal(Tensor(numbers).bincount().numpy(), np.bincount(numbers))
    np.testing.assert_array_equal(
        Tensor(numbers).bincount(minlength=12).numpy(), np.bincount(numbers, minlength=12)
    )
    np.testing.assert_array_equal(
        Tensor(numbers).bincount(Tensor(weights)).numpy(), np.bincount(numbers, weights)
    )
    assert Tensor(np.zeros(0, np.int32)).bincount(minlength=2).tolist() == [0, 0]


def test_misuse_is_a_clear_error() -> None:
    with pytest.raises(ShapeError, match=r"k=4 .*\(3,\)"):
        Tensor([1, 2, 3]).topk(4)
    with pytest.raises(DTypeError, match="vector of integers"):
        Tensor([0.5]).bincount()
    with pytest.raises(ValueError, match="below 0"):
        Tensor([-1]).bincount()
    with pytest.raises(ShapeError, match="no elements"):
        Tensor(np.zeros((2, 0), np.float32)).median(1)


def test_narrow_indices_name_all_places_of_a_long_axis() -> None:
    values = np.arange(300, dtype=np.int32)
    places = np.array([5, 255], np.uint8)
    x, index = Tensor(values), Tensor(places)
    assert x[index].tolist() == [5, 255]
    assert x.gather(0, index).tolist() == [5, 255]
    assert np.argwhere(index.one_hot(300).numpy()).tolist() == [[0, 5], [1, 255]]
    assert np.argwhere(x.scatter(0, index, -1).numpy() == -1).tolist() == [[5], [255]]
    assert Tensor(np.array([5, -1], np.int8)).one_hot(300).sum().item() == 1
