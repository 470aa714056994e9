"""Kernels computed on the CPU against numpy: shapes that fit the vectors and shapes that do not."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.running import given, normal, result
from tests.schedule.graphs import arange, matmul, softmax
from tgcore.dtype import dtypes
from tgcore.helpers import Context
from tgcore.runtime.execute import clear_kernel_cache
from tgcore.schedule import clear_schedule_cache
from tgcore.uop import Ops, UOp


@pytest.fixture(params=[0, 1], ids=["optimised", "plain"], autouse=True)
def noopt(request: pytest.FixtureRequest) -> object:
    with Context(NOOPT=request.param):
        yield


SHAPES = [(1, 1), (3, 5), (16, 16), (17, 33), (64, 100), (5, 256), (256, 3), (130, 70)]


@pytest.mark.parametrize("shape", SHAPES)
def test_elementwise(shape: tuple[int, int]) -> None:
    a, b = normal(*shape), normal(*shape)
    np.testing.assert_allclose(result(given(a) * given(b) + 2), a * b + 2, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("shape", SHAPES)
def test_sum(shape: tuple[int, int], axes: tuple[int, ...]) -> None:
    a = normal(*shape)
    expected = a.astype(np.float64).sum(axes, keepdims=True)
    np.testing.assert_allclose(result(given(a).reduce_axis(Ops.ADD, axes)), expected, atol=1e-3)


@pytest.mark.parametrize("axes", [(0,), (1,)])
@pytest.mark.parametrize("shape", SHAPES)
def test_max_and_product(shape: tuple[int, int], axes: tuple[int, ...]) -> None:
    a = normal(*shape)
    np.testing.assert_array_equal(
        result(given(a).reduce_axis(Ops.MAX, axes)), a.max(axes, keepdims=True)
    )
    near_one = 1 + a * np.float32(0.01)
    np.testing.assert_allclose(
        result(given(near_one).reduce_axis(Ops.MUL, axes)),
        near_one.astype(np.float64).prod(axes, keepdims=True),
        rtol=1e-4,
    )


@pytest.mark.parametrize(
    ("m", "k", "n"),
    [(1, 1, 1), (3, 5, 7), (16, 16, 16), (64, 32, 48), (33, 17, 65), (128, 96, 80), (1, 300, 50)],
)
@pytest.mark.parametrize("transposed", [False, True])
def test_matmul(m: int, k: int, n: int, transposed: bool) -> None:
    a, b = normal(m, k), normal(n, k) if transposed else normal(k, n)
    right = given(b).permute((1, 0)) if transposed else given(b)
    expected = a.astype(np.float64) @ (b.T if transposed else b)
    np.testing.assert_allclose(result(matmul(given(a), right)), expected, atol=1e-3)


@pytest.mark.parametrize("shape", SHAPES)
def test_softmax(shape: tuple[int, int]) -> None:
    a = normal(*shape)
    e = np.exp(a.astype(np.float64) - a.max(1, keepdims=True))
    np.testing.assert_allclose(
        result(softmax(given(a))), e / e.sum(1, keepdims=True), rtol=1e-5, atol=1e-7
    )


@pytest.mark.parametrize("level", [1, 2])
def test_partly_realised_softmax(level: int) -> None:
    a = normal(12, 40)
    e = np.exp(a.astype(np.float64) - a.max(1, keepdims=True))
    with Context(PCONTIG=level):
        clear_schedule_cache()
        clear_kernel_cache()
        found = result(softmax(given(a)))
    np.testing.assert_allclose(found, e / e.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_views(shape: tuple[int, int]) -> None:
    a = normal(*shape)
    rows, columns = shape
    moved = given(a).permute((1, 0)).flip((0,)).pad((1, 2), (columns + 2, rows + 3))
    expected = np.pad(a.T[::-1], ((1, 1), (2, 1))) + 1
    np.testing.assert_array_equal(result(moved + 1), expected)


@pytest.mark.parametrize("n", [1, 7, 16, 40, 100])
def test_concatenation_by_padding(n: int) -> None:
    a, b = normal(n), normal(2 * n)
    joined = given(a).pad((0,), (3 * n,)) + given(b).pad((n,), (3 * n,))
    np.testing.assert_array_equal(result(joined), np.concatenate([a, b]))


def test_transpose() -> None:
    a = normal(70, 130)
    np.testing.assert_array_equal(result(given(a).permute((1, 0)).contiguous()), a.T)


@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_convolution_of_a_row(kernel: int) -> None:
    x, w = normal(50), normal(kernel)
    n = 50 - kernel + 1
    # row k of a repeated row, cut to rows one longer, is the row shifted by k
    rows = given(x).reshape((1, 50)).expand((kernel + 1, 50)).reshape(((kernel + 1) * 50,))
    shifted = rows.shrink((0,), (kernel * 51,)).reshape((kernel, 51)).shrink((0, 0), (kernel, n))
    weights = given(w).reshape((kernel, 1)).expand((kernel, n))
    found = result((shifted * weights).reduce_axis(Ops.ADD, (0,))).reshape(n)
    np.testing.assert_allclose(found, np.correlate(x, w, "valid"), atol=1e-5)


@pytest.mark.parametrize("n", [1, 5, 16, 100])
def test_arange(n: int) -> None:
    np.testing.assert_array_equal(result(arange(n).contiguous()), np.arange(1, n + 1))


@pytest.mark.parametrize("rows", [1, 6, 40])
def test_gather_by_comparison(rows: int) -> None:
    table = normal(50, 8)
    chosen = np.random.default_rng(1).integers(-3, 55, rows).astype(np.int32)
    index = given(chosen, dtypes.int32).reshape((rows, 1)).expand((rows, 50))
    position = (arange(50) + -1).reshape((1, 50)).expand((rows, 50))
    one_hot = index.alu(Ops.CMPEQ, position).cast(dtypes.float32)
    weights = one_hot.reshape((rows, 50, 1)).expand((rows, 50, 8))
    picked = weights * given(table).reshape((1, 50, 8)).expand((rows, 50, 8))
    inside = (chosen >= 0) & (chosen < 50)
    expected = np.where(inside[:, None], table[np.clip(chosen, 0, 49)], 0)
    found = result(picked.reduce_axis(Ops.ADD, (1,)).reshape((rows, 8)))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.int32, dtypes.int64, dtypes.uint8])
def test_integers(dtype: object) -> None:
    a = np.random.default_rng(2).integers(1, 50, 77).astype(dtype.name)
    b = np.random.default_rng(3).integers(1, 9, 77).astype(dtype.name)
    x, y = given(a, dtype), given(b, dtype)
    np.testing.assert_array_equal(result(x.alu(Ops.IDIV, y)), a // b)
    np.testing.assert_array_equal(result(x.alu(Ops.MOD, y) * 3), a % b * 3)


@pytest.mark.parametrize("length", [1, 5, 10])
def test_a_symbolic_size(length: int) -> None:
    a = normal(10, 4)
    n = UOp.variable("n", 1, 10).bind(length)
    part = given(a).shrink((0, 0), (n, 4))
    found = result(part.reduce_axis(Ops.ADD, (0,)))
    np.testing.assert_allclose(found.reshape(4), a[:length].sum(0), rtol=1e-5)


def test_large_sum_in_two_steps() -> None:
    a = normal(1 << 18)
    found = result(given(a).reduce_axis(Ops.ADD, (0,)))
    np.testing.assert_allclose(found[0], a.astype(np.float64).sum(), atol=1e-2)


def test_large_sum_over_two_axes() -> None:
    a = normal(512, 512)
    found = result(given(a).reduce_axis(Ops.ADD, (0, 1)))
    np.testing.assert_allclose(found.reshape(()), a.astype(np.float64).sum(), atol=1e-2)


def test_nan_and_infinity_go_through() -> None:
    a = np.array([np.nan, np.inf, -np.inf, 0.0, 1.0] * 8, np.float32)
    x = given(a)
    np.testing.assert_array_equal(result(x.maximum(0)), np.maximum(a, 0))
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(result(x * 0), a * 0)
    np.testing.assert_array_equal(result(x.reduce_axis(Ops.MAX, (0,))), [np.nan])
