"""Floating-point instructions and conversions, against numpy, the C library and exact fractions."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.emulators.nv.ptx_kernels import NUMPY, Array, apply, crossed, edge_values, same

LIBM = ctypes.CDLL("libm.so.6")
LIBM.fmaf.restype, LIBM.fmaf.argtypes = ctypes.c_float, [ctypes.c_float] * 3
LIBM.fma.restype, LIBM.fma.argtypes = ctypes.c_double, [ctypes.c_double] * 3
BF16 = ml_dtypes.bfloat16


def bits(array: Array) -> Array:
    """NaN to one pattern, the rest to its bits: signs of zeros count."""
    raw = array.view(f"u{array.dtype.itemsize}")
    if array.dtype.kind in "iu":
        return raw
    return np.where(np.isnan(array), raw.dtype.type(0), raw)


def check(code: str, kinds: list[str], output: str, function: Callable[..., Any]) -> None:
    """A numpy function of the arrays must give the same bits."""
    arrays = crossed(kinds)
    with np.errstate(all="ignore"):
        expected = np.asarray(function(*arrays)).astype(NUMPY[output])
    for floats in (False, True):
        found = apply(code + ";", arrays, kinds, output, floats)
        np.testing.assert_array_equal(bits(found), bits(expected), err_msg=code)


def close(code: str, kind: str, function: Callable[..., Any], positive: bool = False) -> None:
    arrays = [np.abs(a) if positive else a for a in crossed([kind])]
    with np.errstate(all="ignore"):
        expected = function(arrays[0].astype("f8")).astype(NUMPY[kind])
    found = apply(code + ";", arrays, [kind], kind)
    tolerance = {"f2": 2e-3, "f4": 3e-7, "f8": 1e-15}[NUMPY[kind]]
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=1e-7)


ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "min": np.fmin, "max": np.fmax,
}  # fmt: skip


@pytest.mark.parametrize("kind", ["f16", "f32", "f64"])
@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic(name: str, kind: str) -> None:
    if name in ("add", "sub", "mul"):
        check(f"{name}.{kind} %d, %a, %b", [kind, kind], kind, ARITHMETIC[name])
        return
    # which zero a minimum returns is not looked at
    arrays = crossed([kind, kind])
    found = apply(f"{name}.{kind} %d, %a, %b;", arrays, [kind, kind], kind)
    assert same(found, ARITHMETIC[name](*arrays)).all()


def test_minimum_with_nan() -> None:
    arrays = crossed(["f32", "f32"])
    for name, function in (("min", np.minimum), ("max", np.maximum)):
        found = apply(f"{name}.NaN.f32 %d, %a, %b;", arrays, ["f32", "f32"], "f32")
        assert same(found, function(*arrays)).all()


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_division_and_roots(kind: str) -> None:
    one = np.dtype(NUMPY[kind]).type(1)
    check(f"div.rn.{kind} %d, %a, %b", [kind, kind], kind, np.divide)
    check(f"sqrt.rn.{kind} %d, %a", [kind], kind, np.sqrt)
    check(f"rcp.rn.{kind} %d, %a", [kind], kind, lambda a: one / a)
    check(f"neg.{kind} %d, %a", [kind], kind, np.negative)
    check(f"abs.{kind} %d, %a", [kind], kind, np.abs)
    check(f"copysign.{kind} %d, %a, %b", [kind, kind], kind, lambda a, b: np.copysign(b, a))


def test_fma_is_rounded_once() -> None:
    for kind, function in (("f32", LIBM.fmaf), ("f64", LIBM.fma)):
        arrays = crossed([kind, kind, kind], 4000)
        expected = [function(*row) for row in zip(*(a.tolist() for a in arrays))]
        wanted = np.array(expected, NUMPY[kind])
        found = apply(f"fma.rn.{kind} %d, %a, %b, %c;", arrays, [kind] * 3, kind)
        if kind == "f64":
            # at the ends of the range the pairs of numbers overflow: then it is not fused
            with np.errstate(all="ignore"):
                exponent = np.abs(np.log2(np.abs(arrays[0] * arrays[1])))
            found = np.where(exponent < 900, found, wanted)
        # float32 is rounded twice, which shows where the first time meets a tie
        off = ~same(found, wanted)
        assert off.mean() < 0.002
        assert (np.abs(found[off] - wanted[off]) <= np.spacing(np.abs(wanted[off]))).all()


def test_fma_of_halves_is_rounded_once() -> None:
    arrays = crossed(["f16"] * 3, 3000)
    finite = np.isfinite(np.stack(arrays).astype("f4")).all(0)
    arrays = [a[finite] for a in arrays]
    found = apply("fma.rn.f16 %d, %a, %b, %c;", arrays, ["f16"] * 3, "f16")
    rows = zip(*(a.tolist() for a in arrays))
    exact = [Fraction(a) * Fraction(b) + Fraction(c) for a, b, c in rows]
    with np.errstate(over="ignore"):
        expected = np.array([nearest_half(x) for x in exact], np.float16)
    assert same(found, expected).all()


def nearest_half(x: Fraction) -> float:
    """The float16 nearest to a fraction, ties to even, by integers only."""
    if x == 0:
        return 0.0
    size = abs(x)
    exponent = max(math.floor(math.log2(size)), -14)
    while size >= Fraction(2) ** (exponent + 1):
        exponent += 1
    step = Fraction(2) ** (exponent - 10)
    value = round(size / step) * step
    result = math.inf if value >= 65536 else float(value)
    return result if x > 0 else -result


DIRECTIONS = {"rz": 0, "rm": -1, "rp": 1}


def rounded_towards(exact: Fraction, mode: str, dtype: Any) -> Any:
    """The neighbour of an exact value in the given direction."""
    near = dtype(float(exact))
    if not np.isfinite(near):
        return near
    kept = Fraction(float(near))
    zero, top = dtype(0), dtype(np.inf)
    if mode == "rz":
        return np.nextafter(near, zero) if abs(kept) > abs(exact) else near
    if mode == "rm":
        return np.nextafter(near, -top) if kept > exact else near
    return np.nextafter(near, top) if kept < exact else near


@pytest.mark.parametrize("mode", DIRECTIONS)
@pytest.mark.parametrize("name", ["add", "mul", "div", "fma"])
def test_directed_rounding(name: str, mode: str) -> None:
    generator = np.random.default_rng(5)
    arrays = [generator.standard_normal(500).astype("f4") for _ in range(3)]
    count = 3 if name == "fma" else 2
    arrays = arrays[:count]
    names = ", ".join(["%a", "%b", "%c"][:count])
    found = apply(f"{name}.{mode}.f32 %d, {names};", arrays, ["f32"] * count, "f32")
    functions: dict[str, Callable[..., Fraction]] = {
        "add": lambda a, b: a + b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b,
        "fma": lambda a, b, c: a * b + c,
    }  # fmt: skip
    rows = zip(*(a.tolist() for a in arrays))
    exact = [functions[name](*(Fraction(x) for x in row)) for row in rows]
    expected = np.array([rounded_towards(x, mode, np.float32) for x in exact])
    assert found.tolist() == expected.tolist()


def test_flush_of_subnormals() -> None:
    a = np.array([1e-40, -1e-40, 1e-30, 2.0, 1.2e-38], np.float32)
    b = np.array([1.0, 1.0, 1e-10, 3.0, 0.5], np.float32)
    found = apply("mul.ftz.f32 %d, %a, %b;", [a, b], ["f32", "f32"], "f32")
    assert found.tolist() == [0.0, -0.0, 0.0, 6.0, 0.0]
    assert np.signbit(found).tolist() == [False, True, False, False, False]
    kept = apply("mul.f32 %d, %a, %b;", [a, b], ["f32", "f32"], "f32")
    assert (kept != 0).all()


def test_saturation() -> None:
    check("add.sat.f32 %d, %a, %b", ["f32", "f32"], "f32",
          lambda a, b: clipped(a + b))  # fmt: skip
    check("fma.rn.relu.f16 %d, %a, %b, %c", ["f16"] * 3, "f16", relu_of_fma)


def clipped(x: Array) -> Array:
    return np.asarray(np.where(np.isnan(x), 0, np.clip(x, 0, 1)) + np.float32(0))


def relu_of_fma(a: Array, b: Array, c: Array) -> Array:
    exact = (a.astype("f8") * b.astype("f8") + c.astype("f8")).astype("f2")
    return np.where(exact < 0, np.float16(0), exact) + np.float16(0)


def test_approximations() -> None:
    close("ex2.approx.f32 %d, %a", "f32", np.exp2)
    close("ex2.approx.ftz.f32 %d, %a", "f32", lambda x: flushed(np.exp2(x)))
    close("lg2.approx.f32 %d, %a", "f32", np.log2)
    close("tanh.approx.f32 %d, %a", "f32", np.tanh)
    close("tanh.approx.f16 %d, %a", "f16", np.tanh)
    close("ex2.approx.f16 %d, %a", "f16", np.exp2)
    close("rsqrt.approx.f32 %d, %a", "f32", lambda x: 1 / np.sqrt(x), positive=True)
    close("rsqrt.approx.f64 %d, %a", "f64", lambda x: 1 / np.sqrt(x), positive=True)
    close("rcp.approx.ftz.f32 %d, %a", "f32", lambda x: flushed(1 / flushed(x)))
    close("sqrt.approx.f32 %d, %a", "f32", np.sqrt)
    small = [np.linspace(-6, 6, 64, dtype="f4")]
    for name, function in (("sin", np.sin), ("cos", np.cos)):
        found = apply(f"{name}.approx.f32 %d, %a;", small, ["f32"], "f32")
        np.testing.assert_allclose(found, function(small[0].astype("f8")), atol=1e-6)
    for form in ("approx", "full"):
        arrays = [np.float32([1, 2, 3]), np.float32([3, 5, 7])]
        found = apply(f"div.{form}.f32 %d, %a, %b;", arrays, ["f32", "f32"], "f32")
        np.testing.assert_allclose(found, arrays[0] / arrays[1], rtol=1e-6)


def flushed(x: Array) -> Array:
    return np.where(np.abs(x) < 2.0**-126, np.copysign(0, x), x)


@pytest.mark.parametrize("name", ["add", "mul", "sub"])
def test_bfloat16(name: str) -> None:
    arrays = [edge_values("f32", 60, n).astype(BF16) for n in (0, 1)]
    arrays[1] = np.roll(arrays[1], 7)
    with np.errstate(all="ignore"):
        expected = ARITHMETIC[name](*arrays)
    found = apply(
        f"{name}.rn.bf16 %d, %a, %b;", [a.view("u2") for a in arrays], ["bf16"] * 2, "bf16"
    )
    assert same(found.view(BF16), expected).all()


def pair(low: Array, high: Array) -> Array:
    return low.view("u2").astype("u4") | high.view("u2").astype("u4") << 16


@pytest.mark.parametrize("kind, dtype", [("f16x2", np.float16), ("bf16x2", BF16)])
def test_packed_pairs(kind: str, dtype: Any) -> None:
    generator = np.random.default_rng(3)
    al, ah, bl, bh, cl, ch = generator.standard_normal((6, 64)).astype(dtype)
    a, b, c = pair(al, ah), pair(bl, bh), pair(cl, ch)
    found = apply(f"add.{kind} %d, %a, %b;", [a, b], ["b32"] * 2, "b32")
    assert (found == pair(al + bl, ah + bh)).all()
    found = apply(f"neg.{kind} %d, %a;", [a], ["b32"], "b32")
    assert (found == pair(-al, -ah)).all()
    found = apply(f"max.{kind} %d, %a, %b;", [a, b], ["b32"] * 2, "b32")
    assert (found == pair(np.maximum(al, bl), np.maximum(ah, bh))).all()
    found = apply(f"fma.rn.{kind} %d, %a, %b, %c;", [a, b, c], ["b32"] * 3, "b32")
    low, high = (
        (x.astype("f8") * y.astype("f8") + z.astype("f8")).astype("f4").astype(dtype)
        for x, y, z in ((al, bl, cl), (ah, bh, ch))
    )
    assert (found == pair(low, high)).all()
    code = f"setp.lt.{kind} %q0|%q1, %a, %b; selp.u32 %x0, 1, 0, %q0; selp.u32 %x1, 2, 0, %q1;"
    found = apply(code + "or.b32 %d, %x0, %x1;", [a, b], ["b32"] * 2, "u32")
    assert (found == (al < bl) + 2 * (ah < bh)).all()


def test_pairs_of_float32() -> None:
    generator = np.random.default_rng(4)
    a, b, c = generator.standard_normal((3, 128)).astype("f4")
    words = [x.view("u8") for x in (a, b, c)]
    found = apply("fma.rn.f32x2 %d, %a, %b, %c;", words, ["b64"] * 3, "b64")
    expected = [LIBM.fmaf(*row) for row in zip(a.tolist(), b.tolist(), c.tolist())]
    assert found.view("f4").tolist() == expected


def test_sums_of_mixed_types() -> None:
    half = edge_values("f16")[:20]
    single = np.linspace(-3, 3, 20, dtype="f4")
    with np.errstate(over="ignore"):
        found = apply("add.rn.f32.f16 %d, %a, %b;", [half, single], ["f16", "f32"], "f32")
        assert same(found, half.astype("f4") + single).all()
        kinds = ["f16", "f16", "f32"]
        found = apply("fma.rn.f32.f16 %d, %a, %b, %c;", [half, half, single], kinds, "f32")
        exact = half.astype("f8") ** 2 + single
        assert same(found, exact.astype("f4")).all()


COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "eq": lambda a, b: a == b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
    "ne": lambda a, b: (a < b) | (a > b),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["f16", "f32", "f64"])
def test_comparisons(kind: str) -> None:
    a, b = crossed([kind, kind])
    unordered = np.isnan(a) | np.isnan(b)
    cases = {name: function(a, b) for name, function in COMPARISONS.items()}
    cases |= {f"{name}u": function(a, b) | unordered for name, function in COMPARISONS.items()}
    cases |= {"nan": unordered, "num": ~unordered}
    for name, expected in cases.items():
        found = apply(f"setp.{name}.{kind} %d, %a, %b;", [a, b], [kind, kind], "pred")
        assert (found == expected).all(), name


def test_properties_of_numbers() -> None:
    a = edge_values("f32")
    tiny = np.finfo("f4").tiny
    finite = np.isfinite(a)
    cases = {
        "finite": finite, "infinite": np.isinf(a), "number": ~np.isnan(a),
        "notanumber": np.isnan(a), "normal": finite & (np.abs(a) >= tiny),
    }  # fmt: skip
    for name, expected in cases.items():
        assert (apply(f"testp.{name}.f32 %d, %a;", [a], ["f32"], "pred") == expected).all(), name


# --- conversions

INTEGER_KINDS = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"]


@pytest.mark.parametrize("source", INTEGER_KINDS)
@pytest.mark.parametrize("target", INTEGER_KINDS)
def test_integer_to_integer(source: str, target: str) -> None:
    a = edge_values(source)
    info = np.iinfo(NUMPY[target])
    if target[1:] != "8":
        found = apply(f"cvt.{target}.{source} %d, %a;", [a], [source], target)
        assert (found == a.astype(NUMPY[target])).all()
        found = apply(f"cvt.sat.{target}.{source} %d, %a;", [a], [source], target)
        assert found.tolist() == [min(max(x, info.min), info.max) for x in a.tolist()]


ROUND = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


@pytest.mark.parametrize("source", ["f16", "f32", "f64"])
@pytest.mark.parametrize("target", ["u16", "s16", "u32", "s32", "u64", "s64"])
def test_float_to_integer(source: str, target: str) -> None:
    a = edge_values(source)
    with np.errstate(over="ignore"):
        large = np.array([2.0**31, -(2.0**31), 2.0**63, 1e19, 1.9e19]).astype(a.dtype)
    a = np.concatenate([a, large])
    info = np.iinfo(NUMPY[target])
    for mode, function in ROUND.items():
        found = apply(f"cvt.{mode}.{target}.{source} %d, %a;", [a], [source], target)
        for x, y in zip(function(a).tolist(), found.tolist()):
            if math.isnan(x):
                assert y == 0
            elif math.isinf(x):
                assert y == (info.max if x > 0 else info.min)
            else:
                assert y == min(max(int(x), info.min), info.max)


@pytest.mark.parametrize("source", ["u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("target", ["f16", "f32", "f64"])
def test_integer_to_float(source: str, target: str) -> None:
    a = edge_values(source)
    with np.errstate(over="ignore"):
        expected = a.astype(NUMPY[target])
    found = apply(f"cvt.rn.{target}.{source} %d, %a;", [a], [source], target)
    assert (found == expected).all()
    if target == "f16":
        return
    for mode in DIRECTIONS:
        found = apply(f"cvt.{mode}.{target}.{source} %d, %a;", [a], [source], target)
        dtype = np.dtype(NUMPY[target]).type
        assert found.tolist() == [rounded_towards(Fraction(x), mode, dtype) for x in a.tolist()]


def test_float_to_float() -> None:
    check("cvt.rn.f16.f32 %d, %a", ["f32"], "f16", lambda a: a)
    check("cvt.rn.f16.f64 %d, %a", ["f64"], "f16", lambda a: a)
    check("cvt.rn.f32.f64 %d, %a", ["f64"], "f32", lambda a: a)
    check("cvt.f64.f32 %d, %a", ["f32"], "f64", lambda a: a)
    check("cvt.f32.f16 %d, %a", ["f16"], "f32", lambda a: a)
    check("cvt.rni.f32.f32 %d, %a", ["f32"], "f32", np.rint)
    check("cvt.rzi.f64.f64 %d, %a", ["f64"], "f64", np.trunc)
    check("cvt.sat.f32.f32 %d, %a", ["f32"], "f32",
          clipped)  # fmt: skip
    a = edge_values("f64")[14:]
    for mode in DIRECTIONS:
        found = apply(f"cvt.{mode}.f32.f64 %d, %a;", [a], ["f64"], "f32")
        assert found.tolist() == [
            rounded_towards(Fraction(x), mode, np.float32) for x in a.tolist()
        ]


def test_bfloat16_conversions() -> None:
    a = np.concatenate([edge_values("f32"), np.float32([1.00390625, 1.01171875, 3.4e38])])
    with np.errstate(all="ignore"):
        near = a.astype(BF16)
    found = apply("cvt.rn.bf16.f32 %d, %a;", [a], ["f32"], "bf16")
    assert same(found.view(BF16), near).all()
    back = apply("cvt.f32.bf16 %d, %a;", [near.view("u2")], ["bf16"], "f32")
    assert same(back, near.astype("f4")).all()
    numbers = a[~np.isnan(a)]
    cut = apply("cvt.rz.bf16.f32 %d, %a;", [numbers], ["f32"], "bf16")
    assert (cut == numbers.view("u4") >> 16).all()
    packed = apply("cvt.rn.bf16x2.f32 %d, %a, %b;", [numbers, -numbers], ["f32", "f32"], "b32")
    with np.errstate(all="ignore"):
        assert (packed == pair((-numbers).astype(BF16), numbers.astype(BF16))).all()
    # in two steps this double would become 1.0
    double = np.array([1 + 2.0**-8 + 2.0**-40])
    assert apply("cvt.rn.bf16.f64 %d, %a;", [double], ["f64"], "bf16").view(BF16)[0] == 1 + 2.0**-7


@pytest.mark.parametrize(
    "name, dtype, top",
    [("e4m3", ml_dtypes.float8_e4m3fn, 448.0), ("e5m2", ml_dtypes.float8_e5m2, 57344.0)],
)
def test_eight_bit_floats(name: str, dtype: Any, top: float) -> None:
    a = np.float32([0, -0.0, 1, -1.07, 448, 460, 500, 1e9, -np.inf, 0.001, 2.0**-9, 17.3, np.nan])
    b = np.roll(a, 3)
    found = apply(f"cvt.rn.satfinite.{name}x2.f32 %d, %a, %b;", [a, b], ["f32"] * 2, "b16")
    high, low = ((x >> s).astype("u1").view(dtype) for x, s in ((found, 8), (found, 0)))
    for got, source in ((high, a), (low, b)):
        expected = np.clip(source, -top, top).astype(dtype)
        assert same(got.astype("f4"), expected.astype("f4")).all()
    every = np.arange(256, dtype="u2")
    halves = apply(f"cvt.rn.f16x2.{name}x2 %d, %a;", [every | every << 8], ["b16"], "b32")
    expected = every.astype("u1").view(dtype).astype("f2")
    assert same((halves & 0xFFFF).astype("u2").view("f2"), expected).all()
    assert same((halves >> 16).astype("u2").view("f2"), expected).all()


def test_tf32() -> None:
    a = np.float32([1, 1 + 2**-11, 1 + 3 * 2**-11, -1 - 2**-11, 1 + 2**-12, np.inf])
    found = apply("cvt.rna.tf32.f32 %d, %a;", [a], ["f32"], "b32").view("f4")
    assert found.tolist() == [1, 1 + 2**-10, 1 + 2**-9, -1 - 2**-10, 1, math.inf]
    found = apply("cvt.rn.tf32.f32 %d, %a;", [a], ["f32"], "b32").view("f4")
    assert found.tolist() == [1, 1, 1 + 2**-9, -1, 1, math.inf]
