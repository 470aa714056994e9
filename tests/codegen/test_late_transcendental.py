"""EXP2, LOG2, SIN and POW against numpy in a wider type, over all exponents."""

from dataclasses import replace

import numpy as np
import pytest

from tests.renderer.kernels import LLVM_TARGET, elementwise, ulp_error
from tgcore.dtype import dtypes
from tgcore.uop.ops import Ops

F16, F32, F64 = dtypes.float16, dtypes.float32, dtypes.float64
SPECIAL = [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 2, -2, 0.5, 3, -3, 128, -126, -149, -150, 1e30]
KINDS = {
    # type: (numpy type, exact type, bits)
    F16: (np.float16, np.float64, np.uint16),
    F32: (np.float32, np.float64, np.uint32),
    F64: (np.float64, np.longdouble, np.uint64),
}
FUNCTIONS = {
    "exp2": (lambda x: x.exp2(), np.exp2, (-160, 130)),
    "log2": (lambda x: x.log2(), np.log2, (0.5, 2)),
    "sin": (lambda x: x.sin(), np.sin, (-200, 200)),
}


def samples(dtype, low, high, count=1 << 17):
    kind, _, bits = KINDS[dtype]
    rng = np.random.default_rng(1)
    info = np.iinfo(bits)
    everywhere = rng.integers(info.min, info.max, count, dtype=bits, endpoint=True).view(kind)
    tiny = np.arange(0, 200, dtype=bits).view(kind)
    with np.errstate(all="ignore"):
        near = rng.uniform(low, high, count).astype(kind)
        multiples = (np.arange(1, 2000) * (np.pi / 2)).astype(kind)
        special = np.array(SPECIAL).astype(kind)
    return np.concatenate([special, tiny, -tiny, multiples, near, everywhere])


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", [F16, F32, F64], ids=lambda d: d.name)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_error_is_at_most_two_ulp(name, dtype, lanes):
    function, exact, (low, high) = FUNCTIONS[name]
    x = samples(dtype, low, high)
    with np.errstate(all="ignore"):
        wanted = exact(x.astype(KINDS[dtype][1]))
        got = elementwise(function, [x], [dtype], dtype, lanes)
        assert ulp_error(got, wanted) <= 2
        finite = np.isfinite(wanted.astype(got.dtype))
        assert (np.isfinite(got) == finite).all()


def test_signs_of_zero():
    x = np.array([0.0, -0.0, 1e-45, -1e-45], np.float32)
    got = elementwise(lambda x: x.sin(), [x], [F32], F32, 1)
    assert (got == x).all() and (np.signbit(got) == np.signbit(x)).all()


def power(x, y):
    return x.alu(Ops.POW, y)


GRID = np.array(
    [0, -0.0, 1, -1, 2, -2, 3, -3, 0.5, -0.5, 1.5, -1.5, 2.5, 1e-40, -1e-40, 1e30, -1e30,
     16777216.0, 16777217.0, -16777215.0, np.inf, -np.inf, np.nan]
)  # fmt: skip


@pytest.mark.parametrize("dtype", [F16, F32, F64], ids=lambda d: d.name)
def test_power_of_special_values(dtype):
    kind = KINDS[dtype][0]
    with np.errstate(all="ignore"):
        x, y = (a.ravel().astype(kind) for a in np.meshgrid(GRID, GRID))
        wanted = np.power(x, y)
        got = elementwise(power, [x, y], [dtype, dtype], dtype, 4)
    wrong = ~((got == wanted) | (np.isnan(got) & np.isnan(wanted)))
    wrong |= (wanted == 0) & (np.signbit(got) != np.signbit(wanted))
    with np.errstate(all="ignore"):
        close = np.isclose(got, wanted, rtol=2e-6 if dtype is F32 else 1e-12) & (wanted != 0)
    where = wrong & ~close
    bad = list(zip(x[where], y[where], got[where], wanted[where]))
    assert not bad, bad[:10]


def test_power_through_the_wider_type():
    rng = np.random.default_rng(2)
    x = np.exp2(rng.uniform(-126, 127, 1 << 17)).astype("f")
    y = (rng.uniform(-126, 127, 1 << 17) / np.log2(x.astype("d"))).astype("f")
    with np.errstate(all="ignore"):
        wanted = np.power(x.astype("d"), y.astype("d"))
        assert ulp_error(elementwise(power, [x, y], [F32, F32], F32), wanted) <= 1


def test_power_of_float64():
    rng = np.random.default_rng(3)
    x = rng.uniform(0.01, 50, 1 << 16)
    y = rng.uniform(-8, 8, 1 << 16)
    wanted = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
    assert ulp_error(elementwise(power, [x, y], [F64, F64], F64), wanted) <= 2
    y = rng.uniform(-1000, 1000, 1 << 16) / np.log2(x)
    wanted = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
    assert ulp_error(elementwise(power, [x, y], [F64, F64], F64), wanted) <= 256


def test_power_without_a_wider_type():
    target = _without(F64)
    rng = np.random.default_rng(4)
    x = rng.uniform(0.01, 50, 1 << 16).astype("f")
    y = rng.uniform(-8, 8, 1 << 16).astype("f")
    wanted = np.power(x.astype("d"), y.astype("d"))
    got = elementwise(power, [x, y], [F32, F32], F32, target=target)
    assert ulp_error(got, wanted) <= 3


@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.uint8, dtypes.int64], ids=lambda d: d.name)
def test_power_of_integers(dtype):
    kind = np.dtype(dtype.fmt)
    rng = np.random.default_rng(5)
    x = rng.integers(-9 if dtype.fmt in "iq" else 0, 10, 1000).astype(kind)
    y = rng.integers(0, 12, 1000).astype(kind)
    assert (elementwise(power, [x, y], [dtype, dtype], dtype) == np.power(x, y)).all()


def _without(*types):
    return replace(LLVM_TARGET, dtypes=LLVM_TARGET.dtypes - set(types))
