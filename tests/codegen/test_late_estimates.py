"""Estimates against what the reference interpreter counts while it runs the program."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tests.codegen.running import given, kernel_of, normal, program
from tests.schedule.graphs import matmul, softmax
from tests.testing.interpreting import (
    Lowering,
    as_written,
    for_device,
    for_vectors,
    run_schedule,
)
from tgcore import Tensor
from tgcore.codegen import Opt, OptOps
from tgcore.codegen.late.estimates import estimate
from tgcore.dtype import AddrSpace, dtypes
from tgcore.schedule import create_schedule
from tgcore.testing.interpreter import Counts, run_program
from tgcore.uop.node import UOp, infer
from tgcore.uop.ops import AxisType, GroupOp, Ops

LOWERINGS = pytest.mark.parametrize(
    "lowering", [for_device, for_vectors, as_written], ids=["device", "vectors", "plain"]
)


def check(linear: Sequence[UOp], counts: Counts, variables: dict[str, int], loaded: bool) -> None:
    """Exact; an upper bound where there are gates, or places that were loaded."""
    found = estimate(linear)
    ops, mem, lds = (infer(n, variables) for n in (found.ops, found.mem, found.lds))
    assert ops == counts.ops
    if any(n.op is Ops.IF or (n.op is Ops.INDEX and len(n.src) > 2) for n in linear) or loaded:
        assert counts.moved <= lds <= 2.3 * counts.moved
        assert counts.touched <= mem <= 2 * counts.touched
    else:
        assert lds == counts.moved
        assert mem == counts.touched


def tensor(*shape: int) -> Tensor:
    return Tensor(normal(*shape))


def rows(*numbers: int) -> Tensor:
    return Tensor(np.array(numbers, np.int32))


def the_first(count: int, limit: int) -> UOp:
    return UOp.variable("n", 1, limit).bind(count)


GRAPHS: dict[str, Callable[[], UOp]] = {
    "elementwise": lambda: given(normal(8, 16)) * given(normal(8, 16)) + 1.0,
    "odd size": lambda: given(normal(5, 61)) + 1,
    "transpose": lambda: given(normal(8, 16)).permute((1, 0)) + given(normal(16, 8)),
    "outer": lambda: given(normal(8, 16)).reshape((8, 16, 1)).expand((8, 16, 4)) * 2.0,
    "bytes": lambda: given(np.arange(64, dtype=np.uint8), dtypes.uint8).cast(dtypes.float32) * 2,
    "bfloat16": lambda: given(np.arange(64, dtype=np.uint16), dtypes.bfloat16) * 2,
    "rows": lambda: given(normal(8, 16)).reduce_axis(Ops.ADD, (1,)),
    "columns": lambda: given(normal(40, 50)).reduce_axis(Ops.MAX, (0,)),
    "all": lambda: given(normal(8, 16)).reduce_axis(Ops.ADD, (0, 1)),
    "softmax": lambda: softmax(given(normal(8, 16))),
    "matmul": lambda: matmul(given(normal(8, 16)), given(normal(16, 12))),
    "odd matmul": lambda: matmul(given(normal(17, 13)), given(normal(13, 11))),
    "box of a large matrix": lambda: given(normal(40, 40)).shrink((3, 4), (5, 6)) + 1,
    "windows in a long row": lambda: tensor(400)[7:60].unfold(0, 5, 2).sum(1).uop,
    "convolution": lambda: tensor(1, 2, 9, 9).conv2d(tensor(3, 2, 3, 3)).uop,
    "pooling": lambda: tensor(1, 2, 9, 9).max_pool2d(3, stride=1).uop,
    "joined": lambda: tensor(8, 16).cat(tensor(8, 5), dim=1).uop,
    "padded": lambda: tensor(8, 16).pad(((1, 2), (0, 3))).uop,
    "running sum": lambda: tensor(8, 16).cumsum(1).uop,
    "some rows": lambda: given(normal(8, 16)).shrink((0, 0), (the_first(5, 8), 16)) * 2,
    "sum of some rows": lambda: (
        given(normal(8, 16)).shrink((0, 0), (the_first(5, 8), 16)).reduce_axis(Ops.ADD, (0,))
    ),
    "a row of every row": lambda: tensor(30, 4)[rows(3, 0, 29, 7)].uop,
}


@LOWERINGS
@pytest.mark.parametrize("name", GRAPHS)
def test_estimates_are_what_a_run_counts(name: str, lowering: Lowering) -> None:
    made = create_schedule(UOp.sink(GRAPHS[name]().contiguous()), "CPU")
    for linear, counts in run_schedule(made.items, {}, lowering, made.variables):
        check(linear, counts, made.variables, loaded=name == "a row of every row")


MOVES = [
    [Opt(OptOps.THREAD, 0, 2)],
    [Opt(OptOps.THREAD, 1, 2)],
    [Opt(OptOps.UPCAST, 1, 4), Opt(OptOps.THREAD, 0, 2)],
    [Opt(OptOps.UNROLL, 2, 4)],
    [Opt(OptOps.SWAP, 0, 1), Opt(OptOps.UPCAST, 0, 6)],
    [Opt(OptOps.PADTO, 0, 5), Opt(OptOps.UPCAST, 0, 5)],
    [Opt(OptOps.PADTO, 2, 3), Opt(OptOps.UNROLL, 2, 3)],
]


@pytest.mark.parametrize("opts", MOVES, ids=lambda m: " ".join(o.op.name for o in m))
def test_estimates_of_moved_kernels(opts: list[Opt]) -> None:
    a, b = normal(8, 16), normal(16, 12)
    linear = program(kernel_of(matmul(given(a), given(b))), opts)
    memory = {0: np.zeros(96, np.float32), 1: a.copy(), 2: b.copy()}
    check(linear, run_program(linear, memory), {}, loaded=False)


# *** programs written by hand ***


def address(memory: UOp, index: UOp) -> UOp:
    return UOp(Ops.INDEX, memory.dtype, (memory, index))


def constant(value: int) -> UOp:
    return UOp.const(dtypes.int32, value)


def loop(number: int, size: UOp) -> UOp:
    return UOp(Ops.RANGE, dtypes.int32, (size,), (number, AxisType.LOOP))


def parameter(number: int, size: int) -> UOp:
    return UOp(Ops.DEFINE_GLOBAL, dtypes.int32.ptr(size), (), number)


def test_what_all_threads_read_is_touched_once() -> None:
    thread = UOp(Ops.SPECIAL, dtypes.int32, (constant(4),), "t0")
    out, source = parameter(0, 4), parameter(1, 1000)
    value = address(source, constant(500)).load()
    linear = list(address(out, thread).store(value).toposort())
    counts = run_program(linear, {0: np.zeros(4, np.int32), 1: np.zeros(1000, np.int32)})
    assert counts.touched == 4 * 4 + 4
    check(linear, counts, {}, loaded=False)


def test_an_address_from_registers_may_change_with_every_loop() -> None:
    """out[i] = source[acc], acc = i: nothing in the address's sources names the loop."""
    out, source = parameter(0, 6), parameter(1, 100)
    register = UOp(Ops.DEFINE_REG, dtypes.int32.ptr(1, AddrSpace.REG), (), "acc")
    i, cell = loop(0, constant(6)), address(register, constant(0))
    written, place = cell.store(i), cell.load()
    value = address(source, place).load()
    effect = address(out, i).store(value)
    linear = [out, source, register, *cell.src[1].toposort(), *i.toposort(), cell, written, place]
    linear += [value.src[0], value, effect.src[0], effect, effect.end(i)]
    counts = run_program(linear, {0: np.zeros(6, np.int32), 1: np.zeros(100, np.int32)})
    assert counts.touched == 4 * 6 * 2
    check(linear, counts, {}, loaded=False)


def test_places_that_are_visited_again_are_touched_once() -> None:
    """out[i] = source[50 + i // 3] + source[51 + i // 3], from a source with much more in it."""
    out, source = parameter(0, 12), parameter(1, 1000)
    i = loop(0, constant(12))
    place = i.alu(Ops.IDIV, constant(3))
    value = address(source, place + 50).load() + address(source, place + 51).load()
    linear = list(address(out, i).store(value).end(i).toposort())
    counts = run_program(linear, {0: np.zeros(12, np.int32), 1: np.zeros(1000, np.int32)})
    assert counts.touched == 4 * (12 + 5)
    check(linear, counts, {}, loaded=False)


def test_symbolic_counts() -> None:
    n = UOp(Ops.DEFINE_VAR, dtypes.int32, (), ("n", 1, 1 << 30))
    out = UOp(Ops.DEFINE_GLOBAL, dtypes.float32.ptr(1 << 30), (), 0)
    place = address(out, loop(0, n))
    double = place.load() * 2.0 + 1.0
    effect = place.store(double)
    counts = estimate([out, n, *double.toposort(), effect, effect.end(loop(0, n))])
    for value in (1, 1000, 1 << 30):
        assert infer(counts.ops, {"n": value}) == 2 * value
        assert infer(counts.lds, {"n": value}) == 8 * value
        assert infer(counts.mem, {"n": value}) == 8 * value


def test_arithmetic_of_a_matmul() -> None:
    ast = kernel_of(matmul(given(normal(8, 16)), given(normal(16, 4))))
    for lowering in (for_device, as_written):
        # the first product of a sum need not be added
        assert 0.9 * 2 * 8 * 4 * 16 <= estimate(lowering(ast)).ops <= 1.2 * 2 * 8 * 4 * 16


def test_address_arithmetic_is_not_counted() -> None:
    linear = as_written(kernel_of(given(normal(8, 16)).permute((1, 0)) + 1.0))
    assert estimate(linear).ops == 128
    assert any(n.op in GroupOp.ALU and dtypes.is_int(n.dtype) for n in linear)
