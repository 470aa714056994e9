"""Data types: identity, promotion, constants rounded as ml_dtypes and numpy round them."""

from __future__ import annotations

import math
import pickle

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tgcore.dtype import (
    DType,
    can_lossless_cast,
    dtypes,
    least_upper_dtype,
    sum_acc_dtype,
    truncate_float,
)
from tgcore.errors import DTypeError

D = dtypes
NUMPY = {
    D.float16: np.float16,
    D.bfloat16: ml_dtypes.bfloat16,
    D.float32: np.float32,
    D.fp8e5m2: ml_dtypes.float8_e5m2,
    D.fp8e4m3: ml_dtypes.float8_e4m3fn,
}


def test_equal_types_are_one_object() -> None:
    assert D.float32.vec(4) is D.float32.vec(4)
    assert D.float32.ptr(16) is D.float32.ptr(16)
    assert pickle.loads(pickle.dumps(D.float32.vec(4))) is D.float32.vec(4)


@pytest.mark.parametrize(
    ("types", "result"),
    [
        ((D.int8, D.uint8), D.int16),
        ((D.int32, D.uint32), D.int64),
        ((D.int64, D.float16), D.float16),
        ((D.float16, D.bfloat16), D.float32),
        ((D.bool, D.int8), D.int8),
        ((D.uint64, D.int64), D.uint64),
        ((D.fp8e4m3, D.fp8e5m2), D.float16),
        ((D.float32, D.float64, D.int8), D.float64),
    ],
)
def test_promotion_follows_the_lattice_of_jax(types: tuple[DType, ...], result: DType) -> None:
    assert least_upper_dtype(*types) is result


@pytest.mark.parametrize(
    ("dtype", "accumulator"),
    [(D.bool, D.int32), (D.uint8, D.uint32), (D.int16, D.int32), (D.float16, D.float32)],
)
def test_sums_are_accumulated_in_32_bits(dtype: DType, accumulator: DType) -> None:
    assert sum_acc_dtype(dtype) is accumulator


@pytest.mark.parametrize("dtype", NUMPY, ids=lambda d: d.name)
@given(value=st.floats(width=32))
def test_constants_round_to_nearest_even(dtype: DType, value: float) -> None:
    with np.errstate(over="ignore"):
        expected = float(np.float32(value).astype(NUMPY[dtype]))
    found = truncate_float(value, dtype)
    assert found == expected or (math.isnan(found) and math.isnan(expected))


@given(value=st.integers(-(2**70), 2**70))
def test_integers_wrap(value: int) -> None:
    assert dtypes.as_const(value, D.int8) == (value + 128) % 256 - 128
    assert dtypes.as_const(value, D.uint16) == value % 65536


@pytest.mark.parametrize(
    ("source", "target", "lossless"),
    [
        (D.int16, D.float32, True),
        (D.int32, D.float32, False),
        (D.uint8, D.int16, True),
        (D.int8, D.uint64, False),
        (D.float16, D.float32, True),
        (D.float32, D.bfloat16, False),
    ],
)
def test_lossless_casts(source: DType, target: DType, lossless: bool) -> None:
    assert can_lossless_cast(source, target) is lossless


def test_an_unknown_name_is_an_error_that_lists_the_names() -> None:
    with pytest.raises(DTypeError, match=r"no data type 'float17'; there are: .*float16"):
        dtypes.from_name("float17")
