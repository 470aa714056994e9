"""Every op on every type, as scalars and as vectors, in both languages, against numpy."""

import numpy as np
import pytest

from tests.renderer.kernels import HAS_GCC, NUMPY, elementwise, elementwise_all
from tgcore.dtype import dtypes
from tgcore.uop.ops import Ops

NEEDS_GCC = pytest.mark.skipif(not HAS_GCC, reason="there is no gcc")
LANGUAGES = ["llvm", pytest.param("c", marks=NEEDS_GCC)]
INTS = dtypes.ints
FLOATS = (dtypes.float16, dtypes.float32, dtypes.float64)
RNG = np.random.default_rng(0)
COUNT = 64

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def ids(dtype):
    return dtype.name


def sample(dtype, seed=0):
    rng = np.random.default_rng(seed)
    kind = NUMPY[dtype]
    if dtype is dtypes.bool:
        return rng.integers(0, 2, COUNT).astype(bool)
    if dtypes.is_float(dtype):
        special = [0, -0.0, 1, -1, np.nan, np.inf, -np.inf, 0.5]
        values = np.concatenate([special, rng.normal(size=COUNT - 8) * 10]).astype(kind)
        return rng.permutation(values)
    info = np.iinfo(kind)
    edges = [0, 1, 2, 3, info.min, info.max, info.min + 1, info.max - 1]
    if info.min < 0:
        edges += [-1, -2]
    wide = rng.integers(info.min, info.max, COUNT - 16, dtype=kind, endpoint=True)
    values = np.concatenate([np.array(edges, dtype=kind), wide,
                             rng.integers(0, 9, COUNT, dtype=kind)])[:COUNT]  # fmt: skip
    return rng.permutation(values)


def check(cases, types, language, lanes=(1, 8)):
    """Compares (function of nodes, function of arrays, result's type) cases."""
    arrays = [sample(t, seed) for seed, t in enumerate(types)]
    functions = [(function, out) for function, _, out in cases]
    for count in lanes:
        results = elementwise_all(functions, arrays, types, lanes=count, language=language)
        for number, (got, (function, wanted, out)) in enumerate(zip(results, cases)):
            arguments = arrays[: function.__code__.co_argcount]
            with np.errstate(all="ignore"):
                expected = wanted(*arguments).astype(NUMPY[out])
            np.testing.assert_array_equal(got, expected, f"case {number}, {count} lanes")


def unary(op):
    return lambda a: a.alu(op)


def binary(op):
    return lambda a, b: a.alu(op, b)


def truncated_div(a, b):
    with np.errstate(all="ignore"):
        wide = [int(v) for v in a], [int(v) for v in b]
    quotients = [abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) if y else 0
                 for x, y in zip(*wide)]  # fmt: skip
    return np.array([q & ((1 << 64) - 1) for q in quotients], np.uint64).astype(a.dtype)


def c_remainder(a, b):
    pairs = [(int(x), int(y)) for x, y in zip(a, b)]
    rests = [abs(x) % abs(y) * (-1 if x < 0 else 1) if y else 0 for x, y in pairs]
    return np.array([r & ((1 << 64) - 1) for r in rests], np.uint64).astype(a.dtype)


BINARY = {
    Ops.ADD: np.add, Ops.SUB: np.subtract, Ops.MUL: np.multiply, Ops.MAX: np.maximum,
    Ops.CMPLT: np.less, Ops.CMPNE: np.not_equal, Ops.CMPEQ: np.equal,
}  # fmt: skip
COMPARISONS = (Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ)
BITS = {Ops.AND: np.bitwise_and, Ops.OR: np.bitwise_or, Ops.XOR: np.bitwise_xor}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("dtype", [*INTS, *FLOATS], ids=ids)
def test_binary(dtype, language):
    cases = [
        (binary(op), wanted, dtypes.bool if op in COMPARISONS else dtype)
        for op, wanted in BINARY.items()
    ]
    check(cases, [dtype, dtype], language)


@pytest.mark.parametrize("language", LANGUAGES)
def test_bools(language):
    wanted = {**BITS, Ops.ADD: np.logical_or, Ops.MUL: np.logical_and, Ops.MAX: np.logical_or,
              Ops.CMPNE: np.not_equal, Ops.CMPEQ: np.equal,
              Ops.CMPLT: lambda a, b: ~a & b}  # fmt: skip
    cases = [(binary(op), function, dtypes.bool) for op, function in wanted.items()]
    check(cases, [dtypes.bool] * 2, language, (1, 16))


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("dtype", INTS, ids=ids)
def test_integers(dtype, language):
    width = dtype.itemsize * 8
    signed = not dtypes.is_unsigned(dtype)

    def shifted(shift, beyond):
        return lambda a, b: np.where((b >= 0) & (b < width), shift(a, b % width), beyond(a))

    wanted = {
        **BITS,
        Ops.IDIV: truncated_div,
        Ops.MOD: c_remainder,
        Ops.SHL: shifted(np.left_shift, lambda a: a * 0),
        Ops.SHR: shifted(np.right_shift, lambda a: np.where(a < 0, -1, 0) if signed else a * 0),
    }
    cases = [(binary(op), function, dtype) for op, function in wanted.items()]
    cases += [
        (unary(Ops.NEG), np.negative, dtype),
        (lambda a: a // 3, lambda a: truncated_div(a, np.full_like(a, 3)), dtype),
        (lambda a: a << 2, lambda a: a << 2, dtype),
        (lambda a: a >> 3, lambda a: a >> 3, dtype),
    ]
    check(cases, [dtype, dtype], language)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("dtype", FLOATS, ids=ids)
def test_floats(dtype, language):
    wanted = {
        Ops.SQRT: np.sqrt, Ops.TRUNC: np.trunc, Ops.NEG: np.negative,
        Ops.RECIPROCAL: lambda a: NUMPY[dtype].type(1) / a,
    }  # fmt: skip
    cases = [(unary(op), function, dtype) for op, function in wanted.items()]
    check([*cases, (binary(Ops.FDIV), np.divide, dtype)], [dtype, dtype], language)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=ids)
def test_multiply_add_rounds_once(dtype, language):
    exact = {4: np.float64, 8: np.longdouble}[dtype.itemsize]
    a, b, c = (np.random.default_rng(s).normal(size=COUNT).astype(dtype.fmt) for s in range(3))
    got = elementwise(
        lambda a, b, c: a.alu(Ops.MULACC, b, c),
        [a, b, c],
        [dtype] * 3,
        dtype,
        8,
        language=language,
        opt=2,
    )
    wanted = (a.astype(exact) * b.astype(exact) + c.astype(exact)).astype(dtype.fmt)
    if dtype is dtypes.float32:
        np.testing.assert_array_equal(got, wanted)
    else:
        np.testing.assert_allclose(got, wanted, rtol=3e-16)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("dtype", [dtypes.bool, *INTS, *FLOATS], ids=ids)
def test_where(dtype, language):
    check([(lambda c, a, b: c.where(a, b), np.where, dtype)], [dtypes.bool, dtype, dtype], language)
    by_comparison = (
        lambda x, a, b: (x < 0.5).where(a, b),
        lambda x, a, b: np.where(x < 0.5, a, b),
        dtype,
    )
    check([by_comparison], [dtypes.float64, dtype, dtype], language, (8,))


def cast_to(out):
    return lambda a: a.cast(out.vec(a.dtype.count))


def cast_reference(a, out):
    """numpy's astype; where that is undefined (float to int), what tgcore promises."""
    if a.dtype.kind != "f" or out in (*FLOATS, dtypes.bool):
        return a.astype(NUMPY[out])
    bits = 64 if out in (dtypes.uint32, dtypes.int64, dtypes.uint64) else 32
    results = []
    for value in a.astype(np.float64):
        fits = abs(value) < 2.0 ** (bits - 1) or (out is dtypes.uint64 and 0 < value < 2.0**64)
        number = int(value) if fits else -(1 << (bits - 1))
        results.append(number & ((1 << 64) - 1))
    return np.array(results, np.uint64).astype(NUMPY[out])


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("source", [dtypes.bool, *INTS, *FLOATS], ids=ids)
def test_casts(source, language):
    x = sample(source)
    if source in (dtypes.float32, dtypes.float64):
        far = np.array([1e10, -1e10, 3e9, 1e19, 2.0**63, -(2.0**63), 2.0**64, 1e30, 2147483647.5])
        x[: len(far)] = far
    outs = (dtypes.bool, *INTS, *FLOATS)
    cases = [(cast_to(out), out) for out in outs]
    for lanes in (1, 8):
        results = elementwise_all(cases, [x], [source], lanes=lanes, language=language)
        for out, got in zip(outs, results):
            with np.errstate(all="ignore"):
                np.testing.assert_array_equal(got, cast_reference(x, out), f"{source} to {out}")


@pytest.mark.parametrize("language", LANGUAGES)
def test_bitcasts(language):
    pairs = [(dtypes.float32, dtypes.int32), (dtypes.int64, dtypes.float64),
             (dtypes.uint16, dtypes.float16), (dtypes.float16, dtypes.int16),
             (dtypes.int8, dtypes.uint8)]  # fmt: skip
    for source, out in pairs:
        x = sample(source)
        for lanes in (1, 8):
            got = elementwise(lambda a, o=out: a.bitcast(o.vec(a.dtype.count)), [x], [source], out,
                              lanes, language=language)  # fmt: skip
            np.testing.assert_array_equal(got.view(f"u{out.itemsize}"), x.view(f"u{out.itemsize}"))
    x = np.array([0, 1] * 8, np.uint8)
    got = elementwise(lambda a: a.bitcast(dtypes.bool.vec(8)), [x], [dtypes.uint8], dtypes.bool, 8,
                      language=language)  # fmt: skip
    assert (got == x.astype(bool)).all()
