"""Factorizations and linear equations, against numpy and torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.tensor.helpers import compare
from tgcore import Tensor
from tgcore.errors import ShapeError

pytestmark = pytest.mark.once

SHAPES = [(1, 1), (3, 3), (5, 3), (3, 5), (2, 4, 4)]


def matrices(shape: tuple[int, ...], seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def assert_orthogonal(q: np.ndarray[Any, Any]) -> None:
    product = np.swapaxes(q, -1, -2) @ q
    np.testing.assert_allclose(
        product, np.broadcast_to(np.eye(q.shape[-1]), product.shape), atol=1e-5
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_qr(shape: tuple[int, ...]) -> None:
    a = matrices(shape)
    q, r = (t.numpy() for t in Tensor(a).qr())
    np.testing.assert_allclose(q @ r, a, atol=1e-5)
    assert_orthogonal(q)
    np.testing.assert_array_equal(r, np.triu(r))


@pytest.mark.parametrize("shape", SHAPES)
def test_svd(shape: tuple[int, ...]) -> None:
    a = matrices(shape)
    u, s, vh = (t.numpy() for t in Tensor(a).svd())
    np.testing.assert_allclose(s, np.linalg.svd(a, compute_uv=False), atol=1e-5)
    k = s.shape[-1]
    np.testing.assert_allclose((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], a, atol=1e-5)
    assert_orthogonal(u)
    assert_orthogonal(vh)


def test_svd_of_matrices_without_full_rank() -> None:
    for a in (np.array([[1, 2], [2, 4], [3, 6]], np.float32), np.zeros((3, 2), np.float32)):
        u, s, vh = (t.numpy() for t in Tensor(a).svd())
        assert_orthogonal(u)
        assert_orthogonal(vh)
        np.testing.assert_allclose((u[:, :2] * s) @ vh, a, atol=1e-5)


def test_svd_cut_to_the_smaller_size() -> None:
    u, s, vh = Tensor(matrices((5, 3))).svd(full_matrices=False)
    assert (u.shape, s.shape, vh.shape) == ((5, 3), (3,), (3, 3))


@pytest.mark.parametrize("shapes", [((3, 3), (3, 2)), ((4, 4), (4,)), ((2, 3, 3), (2, 3, 1))])
def test_solve_and_its_gradient(shapes: Any) -> None:
    a = matrices(shapes[0]) + 3 * np.eye(shapes[0][-1], dtype=np.float32)
    compare(torch.linalg.solve, Tensor.solve, arrays=[a, matrices(shapes[1], 1)], atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (2, 3, 3)])
def test_inverse(shape: tuple[int, ...]) -> None:
    a = matrices(shape) + 3 * np.eye(shape[-1], dtype=np.float32)
    compare(torch.linalg.inv, Tensor.inverse, arrays=[a], atol=1e-5)


def test_solve_needs_pivots_of_any_size() -> None:
    a = np.array([[0, 1], [1, 0]], np.float32)
    assert np.allclose(Tensor(a).solve(Tensor([2.0, 3.0])).numpy(), [3, 2], atol=1e-6)


@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (5, 3)])
def test_newton_schulz_brings_singular_values_near_one(shape: tuple[int, ...]) -> None:
    values = np.linalg.svd(Tensor(matrices(shape)).newton_schulz().numpy(), compute_uv=False)
    assert (values > 0.5).all() and (values < 1.3).all()


def test_other_shapes_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"square matrices .*\(2, 3\)"):
        Tensor.zeros(2, 3).inverse()
    with pytest.raises(ShapeError, match="matrices"):
        Tensor.zeros(2).qr()
    with pytest.raises(ShapeError, match="b needs 3 rows"):
        Tensor.eye(3).solve(Tensor.zeros(2, 1))
