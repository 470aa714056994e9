"""Making tensors from nothing, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tgcore import Tensor, dtypes
from tgcore.errors import DTypeError, ShapeError


def same(found: Tensor, expected: Any) -> None:
    values = found.numpy()
    expected = np.asarray(expected)
    assert values.shape == expected.shape
    np.testing.assert_allclose(values, expected, rtol=1e-6)


@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 3), (2, 3)])
def test_constants(shape: tuple[int, ...]) -> None:
    same(Tensor.zeros(*shape), np.zeros(shape))
    same(Tensor.ones(shape), np.ones(shape))
    same(Tensor.full(shape, 7), np.full(shape, 7))
    assert Tensor.full(shape, True).dtype is dtypes.bool
    assert Tensor.empty(*shape).shape == shape


@pytest.mark.parametrize("kind", dtypes.all)
def test_ones_of_all_types(kind: Any) -> None:
    t = Tensor.ones(3, dtype=kind)
    assert t.dtype is kind and t.float().tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "bounds", [(5,), (2, 9), (2, 9, 3), (9, 2, -2), (0, 0), (5, 2), (0.0, 1.0, 0.25), (1, 2, 0.5)]
)
def test_arange(bounds: Any) -> None:
    same(Tensor.arange(*bounds), np.arange(*bounds))


def test_arange_of_other_types() -> None:
    assert Tensor.arange(3, dtype="float32").tolist() == [0, 1, 2]
    assert Tensor.arange(3, dtype="uint8").dtype is dtypes.uint8
    assert Tensor.arange(2**40, 2**40 + 3, dtype="int64").tolist() == [2**40 + n for n in range(3)]
    with pytest.raises(DTypeError, match="do not fit"):
        Tensor.arange(2**40, 2**40 + 3)
    with pytest.raises(ValueError, match="step"):
        Tensor.arange(0, 3, 0)


def test_linspace_and_eye() -> None:
    same(Tensor.linspace(-1, 2, 7), np.linspace(-1, 2, 7))
    same(Tensor.linspace(5, 9, 1), [5])
    same(Tensor.linspace(5, 9, 0), np.zeros(0))
    same(Tensor.eye(3), np.eye(3))
    same(Tensor.eye(2, 4), np.eye(2, 4))


@pytest.mark.parametrize("diagonal", [-2, 0, 1, 9])
def test_triangles(diagonal: int) -> None:
    same(Tensor.tri(3, 4, diagonal), np.tri(3, 4, diagonal))
    x = np.arange(12).reshape(3, 4)
    same(Tensor(x).tril(diagonal), np.tril(x, diagonal))
    same(Tensor(x).triu(diagonal), np.triu(x, diagonal))


def test_diagonals() -> None:
    x = np.arange(12).reshape(3, 4)
    for offset in (-2, -1, 0, 1, 3):
        same(Tensor(x).diagonal(offset), np.diagonal(x, offset))
    assert Tensor(x).diagonal(4).shape == (0,)
    same(Tensor([1, 2]).diag(), np.diag([1, 2]))


def test_tensors_like_others() -> None:
    x = Tensor.zeros(2, 3, dtype="int16")
    for t in (x.ones_like(), x.zeros_like(), x.full_like(3), x.empty_like()):
        assert t.shape == (2, 3) and t.dtype is dtypes.int16 and t.device == x.device
    assert x.ones_like(dtype="float32").dtype is dtypes.float32
    assert x.float().rand_like().shape == x.float().randn_like().shape == (2, 3)


@pytest.mark.parametrize("wrong", [(-1,), (2.5,), ("a",), (True,)])
def test_wrong_shapes_are_clear_errors(wrong: Any) -> None:
    with pytest.raises(ShapeError, match="no shape"):
        Tensor.zeros(*wrong)
