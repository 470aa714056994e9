"""Decompositions other than transcendental functions: run, and compared with numpy."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from tests.renderer.kernels import LLVM_TARGET, NUMPY, elementwise
from tgcore.codegen.late.decompositions import decompositions
from tgcore.dtype import dtypes
from tgcore.uop.node import UOp
from tgcore.uop.ops import Ops
from tgcore.uop.rewrite import graph_rewrite

F32, F64, I32 = dtypes.float32, dtypes.float64, dtypes.int32
U32, U64 = dtypes.uint32, dtypes.uint64
SMALL = {
    dtypes.float16: np.float16,
    dtypes.bfloat16: ml_dtypes.bfloat16,
    dtypes.fp8e4m3: ml_dtypes.float8_e4m3fn,
    dtypes.fp8e5m2: ml_dtypes.float8_e5m2,
}
BARE = replace(
    LLVM_TARGET,
    dtypes=LLVM_TARGET.dtypes - {dtypes.float16},
    ops=LLVM_TARGET.ops
    - {Ops.MAX, Ops.TRUNC, Ops.CMPEQ, Ops.SUB, Ops.NEG, Ops.RECIPROCAL, Ops.MULACC, Ops.MOD},
)


def rewritten(node, target=LLVM_TARGET):
    return graph_rewrite(node, decompositions(target))


def var(dtype, name="x", low=None, high=None):
    if dtypes.is_float(dtype):
        memory = UOp.define(Ops.DEFINE_GLOBAL, dtype, 1, ord(name))
        return memory.index(UOp.const(dtypes.int32, 0), dtype=memory.dtype).load()
    if low is None:
        low, high = dtypes.min(dtype), dtypes.max(dtype)
    return UOp(Ops.DEFINE_VAR, dtype, (), (name, low, high))


@pytest.mark.parametrize(
    ("counter", "key", "wanted"),
    [  # from the known answers that Random123 ships (kat_vectors, threefry2x32, 20 rounds)
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry(counter, key, wanted):
    def word(pair):
        return pair[0] | pair[1] << 32

    x = np.full(8, word(counter), np.uint64)
    k = np.full(8, word(key), np.uint64)
    for lanes in (1, 8):
        got = elementwise(lambda x, k: x.alu(Ops.THREEFRY, k), [x, k], [U64, U64], U64, lanes)
        assert (got == word(wanted)).all()


def all_bits(dtype):
    return np.arange(1 << (8 * dtype.itemsize), dtype=np.uint32).astype(f"u{dtype.itemsize}")


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", SMALL, ids=lambda d: d.name)
def test_small_float_to_float32(dtype, lanes):
    x = all_bits(dtype)
    wanted = x.view(SMALL[dtype]).astype(np.float32)
    got = elementwise(lambda x: x.cast(F32.vec(lanes)), [x], [dtype], F32, lanes, BARE)
    np.testing.assert_array_equal(got, wanted)
    assert (np.signbit(got) == np.signbit(wanted))[~np.isnan(wanted)].all()


def to_small(values, dtype):
    """Rounded once, to nearest even (ml_dtypes rounds float64 twice)."""
    bits = all_bits(dtype)
    with np.errstate(all="ignore"):
        numbers = bits.view(SMALL[dtype]).astype(np.float64)
    positive = np.flatnonzero(~np.signbit(numbers) & np.isfinite(numbers))
    exact, codes = numbers[positive], bits[positive]
    size = np.abs(values.astype(np.float64))
    above = np.clip(np.searchsorted(exact, size), 1, len(exact) - 1)
    middle = (exact[above] + exact[above - 1]) / 2
    up = (size > middle) | ((size == middle) & (codes[above] % 2 == 0))
    result = np.where(up, exact[above], exact[above - 1])
    beyond = exact[-1] + (exact[-1] - exact[-2]) / 2
    too_large = (size > beyond) | ((size == beyond) & (codes[-1] % 2 == 1))
    result[too_large] = np.nan if dtype is dtypes.fp8e4m3 else np.inf
    result[np.isnan(size)] = np.nan
    with np.errstate(all="ignore"):
        return np.copysign(result, values).astype(SMALL[dtype])


@pytest.mark.parametrize("target", [BARE, LLVM_TARGET], ids=["emulated", "native"])
@pytest.mark.parametrize("source", [F32, F64, I32], ids=lambda d: d.name)
@pytest.mark.parametrize("dtype", SMALL, ids=lambda d: d.name)
def test_rounding_to_small_float(dtype, source, target):
    rng = np.random.default_rng(0)
    if source is I32:
        x = rng.integers(-(1 << 31), 1 << 31, 1 << 16) >> rng.integers(0, 31, 1 << 16)
        x = x.astype(np.int32)
    else:
        exact = all_bits(dtype).view(SMALL[dtype]).astype(np.float64)
        exact = np.sort(exact[np.isfinite(exact)])
        middle = (exact[1:] + exact[:-1]) / 2  # ties
        near = np.concatenate(
            [middle, exact, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf)]
        )
        far = rng.normal(size=1 << 12) * 2.0 ** rng.integers(-40, 40, 1 << 12)
        special = [np.nan, np.inf, -np.inf, 448, 464, 465, 480, 65504, 65519.99, 65520, 1e30, -1e30]
        x = np.concatenate([near, far, special]).astype(source.fmt)
    wanted = to_small(x, dtype)
    stored = np.uint16 if dtype.itemsize == 2 else np.uint8
    got = elementwise(lambda x: x.cast(dtype.vec(8)), [x], [source], dtype, 8, target)
    got = got.view(stored).view(SMALL[dtype])
    same = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
    assert same.all(), (x[~same][:5], got[~same][:5], wanted[~same][:5])


@pytest.mark.parametrize("dtype", [dtypes.bfloat16, dtypes.float16], ids=lambda d: d.name)
def test_small_float_arithmetic(dtype):
    rng = np.random.default_rng(1)
    x, y = (rng.normal(size=1000).astype(SMALL[dtype]) for _ in range(2))
    bits = [a.view(np.uint16) for a in (x, y)]

    def function(a, b):
        return (a < b).where(a * b, a + b.const_like(1.5))

    got = elementwise(function, bits, [dtype, dtype], dtype, 8, BARE).view(SMALL[dtype])
    wide = x.astype("f"), y.astype("f")
    wanted = np.where(x < y, wide[0] * wide[1], wide[0] + 1.5).astype(SMALL[dtype])
    np.testing.assert_array_equal(got, wanted)


def test_small_float_bits():
    x = all_bits(dtypes.bfloat16)
    x = x[(x & 0x7F80 != 0x7F80) | (x & 0x7F == 0)]  # nan may change its bits
    got = elementwise(
        lambda x: x.bitcast(dtypes.uint16.vec(8)), [x], [dtypes.bfloat16], dtypes.uint16, 8, BARE
    )
    assert (got == x).all()


@pytest.mark.parametrize("target", [BARE, LLVM_TARGET], ids=["bare", "full"])
def test_float_ops(target):
    rng = np.random.default_rng(2)
    x = np.concatenate([rng.normal(size=500) * 100, [0, -0.0, np.nan, np.inf, -np.inf, 0.4, -0.4]])
    x = x.astype("f")
    y = x[::-1].copy()
    cases = [
        (lambda a, b: a.alu(Ops.MAX, b), np.maximum),
        (lambda a, b: a.alu(Ops.TRUNC), lambda a, b: np.trunc(a)),
        (lambda a, b: a - b, np.subtract),
        (lambda a, b: a.alu(Ops.NEG), lambda a, b: -a),
        (lambda a, b: b.reciprocal(), lambda a, b: np.float32(1) / b),
        (lambda a, b: a / b, np.divide),
        (lambda a, b: a.alu(Ops.CMPEQ, b).where(a, b), lambda a, b: np.where(a == b, a, b)),
    ]
    for function, wanted in cases:
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(
                elementwise(function, [x, y], [F32, F32], F32, 8, target), wanted(x, y)
            )


def test_division_by_constants_without_division():
    target = replace(LLVM_TARGET, ops=LLVM_TARGET.ops - {Ops.IDIV, Ops.MOD})
    for greatest in (100, 65535, (1 << 31) - 1):
        for divisor in (1, 3, 7, 10, 641, 1000, 65537):
            x = var(I32, "x", 0, greatest)
            quotient = rewritten(x // divisor, target)
            remainder = rewritten(x % divisor, target)
            assert all(n.op not in (Ops.IDIV, Ops.MOD) for n in quotient.toposort())
            for value in {0, 1, divisor - 1, divisor, greatest - 1, greatest, greatest // 2}:
                if 0 <= value <= greatest:
                    table = {x: UOp.const(I32, value)}
                    assert int(quotient.substitute(table).vmin) == value // divisor
                    assert int(remainder.substitute(table).vmin) == value % divisor


def test_powers_of_two_become_shifts():
    x = var(I32, "x", 0, 1000)
    assert rewritten(x // 8).op is Ops.SHR
    assert rewritten(x % 8).op is Ops.AND
    assert rewritten(x * 8).op is Ops.SHL
    signed = var(I32, "y", -10, 1000)
    assert rewritten(signed // 8).op is Ops.IDIV
    assert rewritten(signed % 8).op is Ops.MOD


def test_fusion():
    a, b, c = (var(F32, n) for n in "abc")
    assert rewritten(a * b + c).op is Ops.MULACC
    assert rewritten(a - b).op is Ops.SUB
    assert rewritten(-a).op is Ops.NEG
    assert rewritten(a / b).op is Ops.FDIV
    assert rewritten(a.alu(Ops.CMPNE, b).logical_not()).op is Ops.CMPEQ
    i, j, k = (var(I32, n) for n in "ijk")
    assert rewritten(i * j + k).op is Ops.ADD


def test_reciprocal_outside_a_loop_stays_there():
    loop = UOp.range(8, 0)
    x = loop.cast(F32)
    divisor = var(F32, "d")
    product = rewritten(x * divisor.reciprocal())
    assert product.op is Ops.MUL


def test_numpy_types_cover_all():
    assert set(NUMPY) == set(dtypes.all)
