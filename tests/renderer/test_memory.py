"""Loads, stores, vectors, registers and control flow, in both languages."""

import numpy as np
import pytest

from tests.renderer.kernels import HAS_GCC, LANGUAGES, LLVM_TARGET, launch
from tgcore.codegen.late.linearize import linearize
from tgcore.dtype import AddrSpace, dtypes
from tgcore.errors import CompileError
from tgcore.uop.node import UOp
from tgcore.uop.ops import AxisType, Ops

F, I, B = dtypes.float32, dtypes.int32, dtypes.bool
NEEDS_GCC = pytest.mark.skipif(not HAS_GCC, reason="there is no gcc")
pytestmark = pytest.mark.parametrize("language", ["llvm", pytest.param("c", marks=NEEDS_GCC)])


def const(value, dtype=I):
    return UOp.const(dtype, value)


def param(slot, size, dtype=F):
    return UOp(Ops.DEFINE_GLOBAL, dtype.ptr(size), (), slot)


def at(memory, index, gate=None):
    index = const(index) if isinstance(index, int) else index
    return UOp(Ops.INDEX, memory.dtype, (memory, index) + (() if gate is None else (gate,)))


def load(address, *other, lanes=1):
    return UOp(Ops.LOAD, address.dtype.base.scalar().vec(lanes), (address, *other))


def loop(size, number=0):
    size = size if isinstance(size, UOp) else const(size)
    return UOp(Ops.RANGE, I, (size,), (number, AxisType.LOOP))


def run(language, sink, arrays, values=(), threads=1):
    renderer, kernel = LANGUAGES[language]
    source = renderer(LLVM_TARGET).render(linearize(sink, LLVM_TARGET), "kernel")
    launch(kernel(source, "kernel", 2), arrays, values, threads)
    return source


@pytest.mark.parametrize("lanes", [2, 3, 4, 6, 16])
def test_unaligned_vectors(language, lanes):
    out, a = param(0, 32), param(1, 32)
    sink = UOp.sink(at(out, 1).store(load(at(a, 3), lanes=lanes)))
    x, y = np.arange(32, dtype="f"), np.zeros(32, "f")
    run(language, sink, [y, x])
    assert y.tolist() == [0, *x[3 : 3 + lanes], *[0] * (31 - lanes)]


def test_lanes(language):
    out, a = param(0, 16), param(1, 8)
    v = load(at(a, 0), lanes=4)
    reverse = UOp(Ops.GEP, F.vec(4), (v,), (3, 2, 1, 0))
    one = UOp(Ops.GEP, F, (v,), (2,))
    splat = UOp(Ops.VECTORIZE, F.vec(2), (one, one))
    mixed = UOp(Ops.VECTORIZE, F.vec(2), (one, one + 1.0))
    joined = UOp(Ops.CAT, F.vec(8), (reverse, splat, mixed))
    odd = UOp(Ops.CAT, F.vec(5), (mixed, UOp(Ops.GEP, F.vec(3), (v,), (0, 0, 1))))
    plain = const((1.0, 2.0, 3.0), F.vec(3))
    sink = UOp.sink(at(out, 0).store(joined), at(out, 8).store(odd), at(out, 13).store(plain))
    x, y = np.arange(8, dtype="f"), np.zeros(16, "f")
    run(language, sink, [y, x])
    assert y.tolist() == [3, 2, 1, 0, 2, 2, 2, 3, 2, 3, 0, 0, 1, 1, 2, 3]


def test_masked_access(language):
    out, a = param(0, 8), param(1, 8)
    gate = load(at(a, 0), lanes=8) < const(4.0, F.vec(8))
    address = at(a, 0, gate)
    value = load(address, const(-1.0, F.vec(8)), lanes=8)
    other = const((1, 0, 1, 0, 1, 0, 1, 0), B.vec(8))
    sink = UOp.sink(at(out, 0, other).store(value))
    x, y = np.arange(8, dtype="f"), np.full(8, 9, "f")
    run(language, sink, [y, x])
    assert y.tolist() == [0, 9, 2, 9, -1, 9, -1, 9]


def test_masked_bools(language):
    out, a, g = param(0, 8, B), param(1, 8, B), param(2, 8, B)
    gate = load(at(g, 0), lanes=8)
    value = load(at(a, 0, gate), const(True, B.vec(8)), lanes=8)
    sink = UOp.sink(at(out, 0).store(value))
    x = np.array([0, 1, 0, 1, 0, 1, 0, 1], bool)
    gates = np.array([1, 1, 1, 1, 0, 0, 0, 0], bool)
    y = np.zeros(8, bool)
    run(language, sink, [y, x, gates])
    assert (y == np.where(gates, x, True)).all()


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("dtype", [F, dtypes.float64, dtypes.uint8, B], ids=lambda d: d.name)
def test_scalar_gate_never_touches_memory(language, lanes, dtype):
    """The address behind a closed gate may be anywhere."""
    out, a = param(0, 2 * lanes, dtype), param(1, lanes, dtype)
    wanted = UOp(Ops.DEFINE_VAR, I, (), ("open", 0, 1))
    gate = wanted.alu(Ops.CMPNE, const(0))
    far = (const(1) - wanted) * const(1 << 28)
    address = at(a, far, gate)
    zero = load(address, const(0, dtype.vec(lanes)), lanes=lanes)
    one = load(address, const(1, dtype.vec(lanes)), lanes=lanes)
    sink = UOp.sink(at(out, 0).store(zero), at(out, lanes).store(one))
    x = np.full(lanes, 1, dtype.fmt)
    for is_open in (0, 1):
        y = np.zeros(2 * lanes, dtype.fmt)
        run(language, sink, [y, x], [is_open])
        assert y.tolist() == [is_open] * lanes + [1] * lanes


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", [F, B, dtypes.float16], ids=lambda d: d.name)
def test_registers(language, lanes, dtype):
    """Several elements, scalar or vector, kept over a loop."""
    out, a = param(0, 4 * lanes, dtype), param(1, 4 * lanes, dtype)
    base = dtype.vec(lanes)
    memory = UOp(Ops.DEFINE_REG, base.ptr(4, AddrSpace.REG), (), 0)
    i, j = loop(4, 0), loop(4, 1)
    fill = at(memory, i).store(load(at(a, i * lanes), lanes=lanes)).end(i)
    value = UOp(Ops.LOAD, base, (at(memory.after(fill), j),))
    sink = UOp.sink(at(out, (const(3) - j) * lanes).store(value).end(j))
    x = np.random.default_rng(0).integers(0, 2, 4 * lanes).astype(dtype.fmt)
    y = np.zeros(4 * lanes, dtype.fmt)
    run(language, sink, [y, x])
    assert (y.reshape(4, lanes) == x.reshape(4, lanes)[::-1]).all()


def test_threads_and_variables(language):
    out = param(0, 4, dtypes.int64)
    n = UOp(Ops.DEFINE_VAR, dtypes.int64, (), ("n", 0, 1 << 40))
    m = UOp(Ops.DEFINE_VAR, I, (), ("m", 0, 100))
    thread = UOp(Ops.SPECIAL, I, (const(4),), "t0")
    value = n + m.cast(dtypes.int64) * thread.cast(dtypes.int64)
    sink = UOp.sink(at(out, thread).store(value))
    y = np.zeros(4, np.int64)
    run(language, sink, [y], [7, 1 << 33], threads=4)  # in order of the names
    assert y.tolist() == [(1 << 33) + 7 * t for t in range(4)]


def test_custom_text(language):
    out = param(0, 2)
    text = {"llvm": "fadd float {0}, 0x3FF8000000000000", "c": "{0} + 1.5f"}[language]
    value = UOp(Ops.CUSTOMI, F, (const(1.0, F),), text)
    sink = UOp.sink(at(out, 0).store(value))
    y = np.zeros(2, "f")
    run(language, sink, [y])
    assert y[0] == 2.5


def test_branches(language):
    out = param(0, 8)
    i = loop(8)
    sink = UOp.sink(at(out, i, i < const(3)).store(const(5.0, F)).end(i))
    y = np.zeros(8, "f")
    run(language, sink, [y])
    assert y.tolist() == [5] * 3 + [0] * 5


def test_what_cannot_be_written_is_an_error(language):
    out = param(0, 1)
    sink = UOp.sink(at(out, 0).store(const(1.0, F).alu(Ops.SIN)))
    with pytest.raises(CompileError):
        run(language, sink, [np.zeros(1, "f")])


def test_same_program_same_source(language):
    out = param(0, 8)
    i = loop(8)
    sink = UOp.sink(at(out, i).store(i.cast(F) * 2.0).end(i))
    sources = {run(language, sink, [np.zeros(8, "f")]) for _ in range(2)}
    assert len(sources) == 1
