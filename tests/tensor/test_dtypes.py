"""Promotion, casts and what they do out of range, ops in all types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tgcore import Tensor, dtypes
from tgcore.errors import DTypeError, ShapeError

NUMPY_TYPES = [d for d in dtypes.all if d.fmt is not None]


@pytest.mark.parametrize(
    ("a", "b", "result"),
    [
        ("int8", "uint8", "int16"),
        ("bool", "int8", "int8"),
        ("int32", "int64", "int64"),
        ("uint32", "int32", "int64"),
        ("int64", "uint64", "uint64"),
        ("int64", "float16", "float16"),
        ("float16", "bfloat16", "float32"),
        ("bfloat16", "float32", "float32"),
        ("float32", "float64", "float64"),
        ("fp8e4m3", "fp8e5m2", "float16"),
    ],
)
def test_promotion(a: str, b: str, result: str) -> None:
    x, y = Tensor.ones(2, dtype=a), Tensor.ones(2, dtype=b)
    for t in (x + y, y + x, (x > 0).where(x, y), x.maximum(y)):
        assert t.dtype.name == result


@pytest.mark.parametrize(
    ("kind", "value", "result"),
    [
        ("int8", 1, "int8"),
        ("int8", True, "int8"),
        ("int8", 1.5, "float32"),
        ("float16", 1, "float16"),
        ("float16", 1.5, "float16"),
        ("bool", True, "bool"),
        ("bool", 1, "int32"),
        ("bool", 1.5, "float32"),
    ],
)
def test_python_numbers_are_weak(kind: str, value: Any, result: str) -> None:
    x = Tensor.ones(2, dtype=kind)
    assert (x + value).dtype.name == result
    assert (value + x).dtype.name == result


def test_functions_of_integers_give_floats() -> None:
    x = Tensor([1, 4])
    for t in (x.exp(), x.sqrt(), x / 2, x.mean(), x.sigmoid(), x.softmax()):
        assert t.dtype is dtypes.float32
    assert (x // 2).dtype is dtypes.int32 and (x * 2).dtype is dtypes.int32
    assert x.half().exp().dtype is dtypes.float16


@pytest.mark.parametrize("source", NUMPY_TYPES)
@pytest.mark.parametrize("target", NUMPY_TYPES)
def test_casts(source: Any, target: Any) -> None:
    values = np.array([0, 1, 2, 100], np.dtype(source.fmt))
    found = Tensor(values).cast(target).numpy()
    assert np.array_equal(found, values.astype(np.dtype(target.fmt)))


CHAINED = ["bool", "int8", "uint8", "int32", "uint64", "float16", "float32"]


@pytest.mark.parametrize("first", CHAINED)
def test_casts_in_a_row_do_what_they_do_one_by_one(first: str) -> None:
    values = np.array([0, 1, 2, 6, 100, 127]).astype(first)
    x = Tensor(values).realize()
    for second in CHAINED:
        for third in CHAINED:
            expected = values.astype(second).astype(third)
            found = x.cast(second).cast(third).numpy()
            np.testing.assert_array_equal(found, expected, f"{first}, {second}, {third}")


@pytest.mark.parametrize("kind", ["bfloat16", "fp8e4m3", "fp8e5m2", "float16"])
def test_rounding_to_narrow_floats(kind: str) -> None:
    theirs = {"fp8e4m3": torch.float8_e4m3fn, "fp8e5m2": torch.float8_e5m2}.get(
        kind, getattr(torch, kind, None)
    )
    assert theirs is not None
    rng = np.random.default_rng(0)
    values = np.concatenate(
        [rng.uniform(-400, 400, 200), rng.uniform(-1, 1, 200) * 1e-2, [0, 1, 448]]
    ).astype(np.float32)
    expected = torch.tensor(values).to(theirs).float().numpy()
    assert np.array_equal(Tensor(values).cast(kind).float().numpy(), expected)


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "int32", "int64", "uint64"])
def test_casts_of_floats_out_of_range(kind: str) -> None:
    values = [3e2, -3e2, 7e4, -1.9, 2.9, float("nan")]
    if kind == "uint64":
        values = [abs(v) for v in values]
    expected = [0 if v != v else int(v) for v in values]  # noqa: PLR0124
    bits = np.dtype(kind).itemsize * 8
    low = 0 if kind[0] == "u" else -(1 << bits - 1)
    wrapped = [(v - low) % (1 << bits) + low for v in expected]
    for t in (Tensor(values, dtype="float32").realize(), Tensor.full((6,), 0.0) + Tensor(values)):
        assert t.cast(kind).tolist() == wrapped


@pytest.mark.parametrize("kind", dtypes.all)
def test_arithmetic_in_all_types(kind: Any) -> None:
    a = Tensor([1, 2, 3], dtype="int32").cast(kind)
    b = Tensor([2, 2, 1], dtype="int32").cast(kind)
    work = np.bool_ if kind is dtypes.bool else np.float64
    x, y = np.array([1, 2, 3]).astype(work), np.array([2, 2, 1]).astype(work)
    assert np.array_equal((a + b).cast("float32").numpy(), (x + y).astype(np.float32))
    assert np.array_equal((a * b).cast("float32").numpy(), (x * y).astype(np.float32))
    assert np.array_equal((a < b).numpy(), x < y)
    assert np.array_equal(a.maximum(b).cast("float32").numpy(), np.maximum(x, y))
    assert (a == b).tolist() == [bool(v) for v in x == y]
    assert (a > b).where(a, b).dtype is kind
    assert a.max().cast("float32").item() == x.max()
    if kind is not dtypes.bool:
        assert a.sum().cast("float32").item() == 6
        assert (a @ b).cast("float32").item() == (8 if kind is dtypes.fp8e5m2 else 9)  # 2 bits
        assert a.cat(b).cast("float32").tolist() == [1, 2, 3, 2, 2, 1]


def test_bitcast() -> None:
    values = np.array([1.0, -2.5], np.float32)
    assert np.array_equal(Tensor(values).bitcast("int32").numpy(), values.view(np.int32))
    assert np.array_equal(Tensor(values.view(np.uint32)).bitcast("float32").numpy(), values)
    with pytest.raises(ShapeError, match=r"last axis of \(3,\)"):
        Tensor(np.zeros(3, np.uint8)).bitcast("int16")


@pytest.mark.parametrize("wide", ["uint16", "int32", "float32", "float16", "uint64", "float64"])
def test_bitcast_to_wider_and_narrower_types(wide: str) -> None:
    values = np.random.default_rng(0).integers(0, 256, (3, 16)).astype(np.uint8)
    for start in (values, values.view(np.int16), values.view(np.uint32)):
        found = Tensor(start).bitcast(wide).numpy()
        assert np.array_equal(found.view(np.uint8), start.view(wide).view(np.uint8))
        back = Tensor(start.view(wide)).bitcast(start.dtype.name).numpy()
        assert np.array_equal(back, start)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: x & 1,
        lambda x: ~x,
        lambda x: x << 1,
        lambda x: x.cast("float31"),
        lambda x: (x > 0) - (x > 1),
        lambda x: x.one_hot(3),
        lambda x: x.gather(0, x),
        lambda x: x.int() ** -1,
        lambda x: x.assign(x.int()),
    ],
)
def test_wrong_types_are_clear_errors(wrong: Any) -> None:
    with pytest.raises(DTypeError):
        wrong(Tensor([1.0, 2.0]))


def test_numbers_of_numpy_are_numbers() -> None:
    x = Tensor([1.0, 2.0])
    assert (x + np.float64(2)).dtype is dtypes.float32
    assert (np.float32(2) * x).tolist() == [2, 4] and (x - np.int64(1)).tolist() == [0, 1]
    assert (x > np.float32(1)).tolist() == [False, True]
