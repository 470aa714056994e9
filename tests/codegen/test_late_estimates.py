"""Estimates against counting by brute force: the program is walked through, step by step."""

import numpy as np
import pytest

from tests.runtime.graphs import schedule, tensor
from tgcore.codegen.late.estimates import estimate
from tgcore.dtype import AddrSpace, dtypes
from tgcore.helpers import Context
from tgcore.runtime.compile import make_program
from tgcore.runtime.device import Device
from tgcore.uop.node import UOp, infer
from tgcore.uop.ops import AxisType, GroupOp, Ops


def walk(program, threads=1):
    """(bytes moved, {parameter: bytes touched}) of a program, by running its control flow."""
    touched, moved = {}, 0
    for thread in range(threads):
        moved += _walk(program, thread, touched)
    return moved, sum(len(cells) for cells in touched.values())


def _walk(program, thread, touched):
    values, moved, position = {}, 0, 0
    starts = {}
    while position < len(program):
        node = program[position]
        if node.op is Ops.RANGE:
            if position not in starts:
                starts[position] = values[node] = 0
        elif node.op is Ops.END:
            loop = node.src[1]
            begin = next(p for p in starts if program[p] is loop)
            if values[loop] + 1 < loop.src[0].arg:
                values[loop] += 1
                position = begin
            else:
                del starts[begin]
        elif node.op is Ops.SPECIAL:
            values[node] = thread
        elif node.op in (Ops.LOAD, Ops.STORE):
            moved += _access(node, values, touched)
        position += 1
    return moved


def _access(node, values, touched):
    address = node.src[0]
    memory = address.src[0]
    if memory.dtype.addrspace is AddrSpace.REG:
        return 0
    index = address.src[1].substitute({k: k.const_like(v) for k, v in values.items()})
    value = node if node.op is Ops.LOAD else node.src[1]
    first = int(index.vmin) * memory.dtype.base.itemsize
    cells = touched.setdefault((memory, node.op), set())
    cells.update(range(first, first + value.dtype.itemsize))
    return value.dtype.itemsize


def program_of(node, noopt):
    with Context(NOOPT=noopt):
        made, _ = schedule(node)
        return make_program(made.items[-1].ast, Device["CPU"].renderer)


GRAPHS = {
    "elementwise": lambda a, b: a * b + 1.0,
    "reduce": lambda a, b: a.reduce_axis(Ops.ADD, (1,)),
    "transpose": lambda a, b: a.permute((1, 0)) + b.permute((1, 0)),
    "outer": lambda a, b: a.reshape((8, 16, 1)).expand((8, 16, 4)) * 2.0,
}


@pytest.mark.parametrize("noopt", [0, 1])
@pytest.mark.parametrize("name", GRAPHS)
def test_memory_is_what_is_touched(name, noopt):
    a, b = tensor(np.ones((8, 16), "f")), tensor(np.ones((8, 16), "f"))
    spec = program_of(GRAPHS[name](a, b), noopt)
    moved, touched = walk(spec.uops, spec.threads)
    assert spec.estimates.lds == moved
    assert spec.estimates.mem == touched


def test_arithmetic_of_a_matmul():
    a, b = tensor(np.ones((8, 1, 16), "f")), tensor(np.ones((1, 4, 16), "f"))
    node = (a.expand((8, 4, 16)) * b.expand((8, 4, 16))).reduce_axis(Ops.ADD, (2,))
    for noopt in (0, 1):
        ops = program_of(node, noopt).estimates.ops
        # the first product of a sum need not be added
        assert 0.9 * 2 * 8 * 4 * 16 <= ops <= 1.2 * 2 * 8 * 4 * 16


def test_symbolic_counts():
    n = UOp(Ops.DEFINE_VAR, dtypes.int32, (), ("n", 1, 1 << 30))
    out = UOp(Ops.DEFINE_GLOBAL, dtypes.float32.ptr(1 << 30), (), 0)
    loop = UOp(Ops.RANGE, dtypes.int32, (n,), (0, AxisType.LOOP))
    address = UOp(Ops.INDEX, out.dtype, (out, loop))
    value = UOp(Ops.LOAD, dtypes.float32, (address,))
    double = value * 2.0 + 1.0
    effect = address.store(double)
    program = [out, n, *double.toposort(), effect, effect.end(loop)]
    counts = estimate(program)
    for value in (1, 1000, 1 << 30):
        assert infer(counts.ops, {"n": value}) == 2 * value
        assert infer(counts.lds, {"n": value}) == 8 * value
        assert infer(counts.mem, {"n": value}) == 8 * value


def test_address_arithmetic_is_not_counted():
    a = tensor(np.ones((8, 16), "f"))
    spec = program_of(a.permute((1, 0)) + 1.0, 1)
    assert spec.estimates.ops == 128
    assert any(n.op in GroupOp.ALU and dtypes.is_int(n.dtype) for n in spec.uops)
