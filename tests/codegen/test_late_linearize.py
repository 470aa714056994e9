"""Linear programs: nesting of loops, accumulators, branches, order."""

import time

import numpy as np
import pytest

from tests.renderer.kernels import LLVM_TARGET, LLVMKernel, launch
from tgcore.codegen.late.linearize import linearize
from tgcore.dtype import AddrSpace, dtypes
from tgcore.errors import SpecError
from tgcore.renderer.llvm import LLVMRenderer
from tgcore.uop.node import UOp
from tgcore.uop.ops import AxisType, Ops

F, I = dtypes.float32, dtypes.int32


def const(value, dtype=I):
    return UOp.const(dtype, value)


def param(slot, size, dtype=F):
    return UOp(Ops.DEFINE_GLOBAL, dtype.ptr(size), (), slot)


def loop(size, number, axis=AxisType.LOOP):
    size = size if isinstance(size, UOp) else const(size)
    return UOp(Ops.RANGE, I, (size,), (number, axis))


def at(memory, index, gate=None):
    index = const(index) if isinstance(index, int) else index
    return UOp(Ops.INDEX, memory.dtype, (memory, index) + (() if gate is None else (gate,)))


def load(address, *other):
    return UOp(Ops.LOAD, address.dtype.base, (address, *other))


def register(number, dtype=F, size=1):
    return UOp(Ops.DEFINE_REG, dtype.ptr(size, AddrSpace.REG), (), number)


def accumulate(number, value, ranges, outer=(), start=0.0):
    """sum of value over the ranges, as reduce-to-accumulator makes it."""
    acc = register(number, value.dtype)
    init = at(acc.after(*outer), 0).store(const(start, value.dtype))
    inside = load(at(acc.after(init, *ranges), 0))
    effect = at(acc, 0).store(inside + value)
    for r in reversed(ranges):
        effect = effect.end(r)
    return load(at(acc.after(effect), 0))


def run(sink, arrays, values=()):
    program = linearize(sink, LLVM_TARGET)
    check(program)
    kernel = LLVMKernel(LLVMRenderer(LLVM_TARGET).render(program, "kernel"), "kernel", opt=1)
    launch(kernel, arrays, values)
    return program


def check(program):
    """Every node follows its sources, inside open loops only; loops are nested."""
    done, scopes = set(), [set()]
    open_loops = []
    for node in program:
        assert node.op not in (Ops.AFTER, Ops.GROUP, Ops.NOOP, Ops.SINK)
        visible = set().union(*scopes)
        for source in node.src:
            ended = node.op in (Ops.END, Ops.AFTER) and source is node.src[0]
            assert source in visible or (ended and source in done), (node, source)
        if node.op is Ops.END:
            assert open_loops.pop() is node.src[1]
            scopes.pop()
        done.add(node)
        if node.op is Ops.RANGE:
            open_loops.append(node)
            scopes.append(set())
        scopes[-1].add(node)
    assert not open_loops


def ops_of(program, *wanted):
    return [n.op for n in program if n.op in wanted]


def test_nested_store():
    out, a = param(0, 12), param(1, 12)
    i, j = loop(3, 0), loop(4, 1)
    index = i * 4 + j
    sink = UOp.sink(at(out, index).store(load(at(a, index)) * 2.0).end(j).end(i))
    x, y = np.arange(12, dtype="f"), np.zeros(12, "f")
    program = run(sink, [y, x])
    assert (y == x * 2).all()
    order = [n.arg if n.op is Ops.RANGE else n.op for n in program]
    assert order.index(i.arg) < order.index(j.arg)
    # what only depends on the outer loop is not in the inner one
    product = i * 4
    assert program.index(product) < program.index(j)


def test_matmul_accumulator_is_reset_for_each_element():
    n, m, k = 3, 4, 5
    out, a, b = param(0, n * m), param(1, n * k), param(2, k * m)
    i, j, r = loop(n, 0), loop(m, 1), loop(k, 2, AxisType.REDUCE)
    value = load(at(a, i * k + r)) * load(at(b, r * m + j))
    total = accumulate(0, value, [r], [i, j])
    sink = UOp.sink(at(out, i * m + j).store(total).end(j).end(i))
    x, y = np.random.rand(n, k).astype("f"), np.random.rand(k, m).astype("f")
    z = np.zeros((n, m), "f")
    program = run(sink, [z, x, y])
    np.testing.assert_allclose(z, x @ y, rtol=1e-5)
    assert ops_of(program, Ops.RANGE, Ops.END) == [Ops.RANGE] * 3 + [Ops.END] * 3


def test_reduce_without_outer_ranges_is_hoisted():
    out, a = param(0, 8), param(1, 8)
    r, i = loop(8, 0, AxisType.REDUCE), loop(8, 1)
    total = accumulate(0, load(at(a, r)), [r])
    sink = UOp.sink(at(out, i).store(load(at(a, i)) / total).end(i))
    x, y = np.random.rand(8).astype("f"), np.zeros(8, "f")
    program = run(sink, [y, x])
    np.testing.assert_allclose(y, x / x.sum(), rtol=1e-5)
    assert [n.arg for n in program if n.op is Ops.RANGE] == [r.arg, i.arg]
    assert ops_of(program, Ops.RANGE, Ops.END) == [Ops.RANGE, Ops.END] * 2


def test_two_reduces_one_after_another_in_a_loop():
    rows, cols = 4, 6
    out, a = param(0, rows * cols), param(1, rows * cols)
    i, j = loop(rows, 0), loop(cols, 3)
    r1, r2 = loop(cols, 1, AxisType.REDUCE), loop(cols, 2, AxisType.REDUCE)
    mean = accumulate(0, load(at(a, i * cols + r1)), [r1], [i]) * (1 / cols)
    delta = load(at(a, i * cols + r2)) - mean
    variance = accumulate(1, delta * delta, [r2], [i])
    value = (load(at(a, i * cols + j)) - mean) / variance
    sink = UOp.sink(at(out, i * cols + j).store(value).end(j).end(i))
    x, y = np.random.rand(rows, cols).astype("f"), np.zeros((rows, cols), "f")
    program = run(sink, [y, x])
    centred = x - x.mean(1, keepdims=True)
    np.testing.assert_allclose(y, centred / (centred**2).sum(1, keepdims=True), rtol=1e-4)
    assert [n.arg[0] for n in program if n.op is Ops.RANGE] == [0, 1, 2, 3]


def test_reduce_over_two_ranges_and_a_symbolic_size():
    length = UOp(Ops.DEFINE_VAR, I, (), ("n", 0, 5))
    out, a = param(0, 1), param(1, 20)
    r1, r2 = loop(length, 0, AxisType.REDUCE), loop(4, 1, AxisType.REDUCE)
    total = accumulate(0, load(at(a, r1 * 4 + r2)), [r1, r2])
    sink = UOp.sink(at(out, 0).store(total))
    x, y = np.random.rand(20).astype("f"), np.zeros(1, "f")
    for n in (0, 1, 5):
        run(sink, [y, x], [n])
        np.testing.assert_allclose(y[0], x[: n * 4].sum(), rtol=1e-5)


def test_value_loaded_before_a_loop_and_used_after_it():
    out, a = param(0, 2), param(1, 4)
    acc = register(0)
    init = at(acc, 0).store(load(at(a, 0)))
    before = load(at(acc.after(init), 0))
    r = loop(3, 0, AxisType.REDUCE)
    step = at(acc, 0).store(load(at(acc.after(init, r), 0)) * 2.0).end(r)
    after = load(at(acc.after(step, before), 0))
    sink = UOp.sink(at(out, 0).store(before), at(out, 1).store(after))
    x, y = np.array([3, 0, 0, 0], "f"), np.zeros(2, "f")
    run(sink, [y, x])
    assert y.tolist() == [3, 24]


def test_gated_stores_share_a_branch():
    out, a = param(0, 16), param(1, 16)
    i = loop(8, 0)
    gate, other = i < const(5), i < const(3)
    stores = [
        at(out, i, gate).store(load(at(a, i))),
        at(out, i + 8, other).store(load(at(a, i)) * 3.0),
        at(out, i + 8, gate).store(load(at(a, i + 8)) * 2.0),
    ]
    sink = UOp.sink(UOp.group(stores[0], stores[2], stores[1]).end(i))
    x, y = np.arange(16, dtype="f"), np.zeros(16, "f")
    program = run(sink, [y, x])
    assert y.tolist() == [0, 1, 2, 3, 4, 0, 0, 0, 0, 3, 6, 22, 24, 0, 0, 0]
    assert ops_of(program, Ops.IF, Ops.ENDIF) == [Ops.IF, Ops.ENDIF] * 2
    assert all(len(n.src[0].src) == 2 for n in program if n.op is Ops.STORE)


def test_gated_load_keeps_its_gate():
    out, a = param(0, 8), param(1, 4)
    i = loop(8, 0)
    value = load(at(a, i, i < const(4)), const(-1.0, F))
    sink = UOp.sink(at(out, i).store(value).end(i))
    x, y = np.arange(4, dtype="f"), np.zeros(8, "f")
    program = run(sink, [y, x])
    assert y.tolist() == [0, 1, 2, 3, -1, -1, -1, -1]
    assert not ops_of(program, Ops.IF)


def test_several_ends_of_a_range_are_one_loop():
    out, a = param(0, 8), param(1, 8)
    i = loop(4, 0)
    sink = UOp.sink(
        at(out, i).store(load(at(a, i))).end(i), at(out, i + 4).store(load(at(a, i)) * 2.0).end(i)
    )
    x, y = np.arange(8, dtype="f"), np.zeros(8, "f")
    program = run(sink, [y, x])
    assert y.tolist() == [0, 1, 2, 3, 0, 2, 4, 6]
    assert ops_of(program, Ops.RANGE, Ops.END) == [Ops.RANGE, Ops.END]


def test_open_range_is_an_error():
    i = loop(4, 0)
    with pytest.raises(SpecError):
        linearize(UOp.sink(at(param(0, 4), i).store(const(1.0, F))), LLVM_TARGET)


def test_large_kernels_are_quick():
    out, a = param(0, 4096), param(1, 4096)
    i = loop(4, 0)
    base = i * 1024
    stores = []
    for n in range(1024):
        value = load(at(a, base + n))
        for k in range(3):
            value = value * float(n + k) + 1.0
        stores.append(at(out, base + n).store(value))
    sink = UOp.sink(UOp.group(*stores).end(i))
    count = len(sink.toposort())
    assert count > 9000
    start = time.perf_counter()
    program = linearize(sink, LLVM_TARGET)
    assert time.perf_counter() - start < 1.0
    check(program)


def test_same_graph_gives_same_program():
    out, a = param(0, 12), param(1, 12)
    i = loop(12, 0)
    sink = UOp.sink(at(out, i).store(load(at(a, i)) + 1.0).end(i))
    assert linearize(sink, LLVM_TARGET) == linearize(sink, LLVM_TARGET)
