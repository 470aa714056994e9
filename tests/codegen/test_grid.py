"""Moves for devices with a launch grid: local axes, shared reduces, limits of the launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.codegen.grid import GRID, SMALL, close, grid_program, launch_of, run_on_grid
from tests.codegen.running import given, kernel_of, normal
from tests.schedule.graphs import matmul
from tgcore import Tensor
from tgcore.codegen import Kernel, Opt, OptOps
from tgcore.codegen.launch import folded, launch_positions
from tgcore.codegen.simplify import simplify_kernel
from tgcore.dtype import dtypes
from tgcore.errors import CodegenError, KernelOptError
from tgcore.helpers import Context
from tgcore.testing.lanes import numpy_type
from tgcore.uop import AxisType, Ops, UOp
from tgcore.uop.node import infer

UPCAST, UNROLL, LOCAL = OptOps.UPCAST, OptOps.UNROLL, OptOps.LOCAL
GROUP, GROUPTOP, PADTO, SWAP = OptOps.GROUP, OptOps.GROUPTOP, OptOps.PADTO, OptOps.SWAP
A, B = normal(16, 24), normal(24, 8)


def product() -> UOp:
    return matmul(given(A), given(B))


def names(opts: Sequence[Opt]) -> str:
    return " ".join(f"{o.op.name}{o.axis}:{o.arg}" for o in opts) or "none"


MOVES = [
    [],
    [Opt(LOCAL, 0, 4)],
    [Opt(LOCAL, 1, 8)],
    [Opt(LOCAL, 0, 0), Opt(LOCAL, 0, 0)],
    [Opt(LOCAL, 0, 4), Opt(LOCAL, 1, 4), Opt(UPCAST, 0, 2), Opt(UPCAST, 1, 2)],
    [Opt(UPCAST, 1, 4), Opt(LOCAL, 1, 2), Opt(UNROLL, 3, 4)],
    [Opt(LOCAL, 0, 8), Opt(UPCAST, 2, 4)],
    [Opt(PADTO, 0, 5), Opt(LOCAL, 0, 5)],
    [Opt(SWAP, 0, 1), Opt(LOCAL, 0, 4)],
    [Opt(GROUP, 2, 4)],
    [Opt(GROUP, 2, 0)],
    [Opt(GROUPTOP, 2, 8)],
    [Opt(GROUP, 2, 3), Opt(LOCAL, 1, 4)],
    [Opt(LOCAL, 1, 8), Opt(GROUPTOP, 2, 4), Opt(UPCAST, 0, 4)],
    [Opt(UPCAST, 0, 2), Opt(UPCAST, 1, 2), Opt(GROUP, 4, 6), Opt(UNROLL, 5, 2)],
    [Opt(GROUP, 2, 2), Opt(GROUPTOP, 3, 3)],
    [Opt(PADTO, 2, 16), Opt(GROUP, 2, 16), Opt(UPCAST, 1, 8)],
]


@pytest.mark.parametrize("opts", MOVES, ids=names)
def test_a_move_changes_no_result(opts: list[Opt]) -> None:
    (found,) = run_on_grid(product(), opts=opts)
    close(found, A @ B)


@pytest.mark.parametrize(
    ("opts", "message"),
    [
        ([Opt(LOCAL, 0, 5)], "5 does not divide the axis of size 16"),
        ([Opt(LOCAL, 2, 4)], "only loops over results can be local"),
        ([Opt(LOCAL, 0, 4), Opt(LOCAL, 2, 2)], "only loops over results can be local"),
        ([Opt(LOCAL, 0, 8), Opt(LOCAL, 1, 8)], "64 items is more than the 32"),
        ([Opt(LOCAL, 0, 16)], r"\[16\] items do not fit the limits \(8, 8, 4\)"),
        ([Opt(GROUP, 0, 4)], "only reduces can be shared by a group"),
        ([Opt(GROUP, 2, 5)], "5 does not divide the axis of size 24"),
        ([Opt(GROUP, 2, 8), Opt(LOCAL, 0, 8)], "64 items is more than the 32"),
        (
            [Opt(GROUP, 2, 8), Opt(UPCAST, 0, 8), Opt(UPCAST, 1, 8)],
            "2048 bytes of shared memory are more than the 1024",
        ),
        ([Opt(OptOps.NOLOCALS), Opt(LOCAL, 0, 4)], "no work groups of several items"),
        ([Opt(OptOps.NOLOCALS), Opt(GROUP, 2, 4)], "no work groups that share memory"),
        ([Opt(LOCAL, 0, 4), Opt(OptOps.NOLOCALS)], "has local axes already"),
        ([Opt(OptOps.THREAD, 0, 4)], "has no threads"),
        ([Opt(GROUP, 2, 4), Opt(PADTO, 2, 3)], "cannot be padded"),
    ],
)
def test_an_illegal_move_says_why_and_changes_nothing(opts: list[Opt], message: str) -> None:
    kernel = Kernel(simplify_kernel(kernel_of(product())), SMALL)
    for opt in opts[:-1]:
        kernel.apply(opt)
    before = kernel.ast
    with pytest.raises(KernelOptError, match=message):
        kernel.apply(opts[-1])
    assert kernel.ast is before and kernel.applied == opts[:-1]
    assert list(before.toposort()) == kernel.nodes


def test_grid_moves_are_for_devices_with_a_grid() -> None:
    kernel = Kernel(simplify_kernel(kernel_of(product())), replace(GRID, global_max=()))
    for op in (LOCAL, GROUP, GROUPTOP, OptOps.NOLOCALS, OptOps.TC):
        with pytest.raises(KernelOptError, match="does not apply on GRID"):
            kernel.apply(Opt(op, 0, 2))


# *** shared reduces ***

NUMBERS = {
    dtypes.float32: normal(6, 48),
    dtypes.float64: normal(6, 48).astype(np.float64),
    dtypes.float16: normal(6, 48).astype(np.float16),
    dtypes.bfloat16: normal(6, 48).astype(numpy_type(dtypes.bfloat16)),
    dtypes.int32: np.arange(288, dtype=np.int32).reshape(6, 48) - 90,
    dtypes.uint8: np.arange(288, dtype=np.int32).reshape(6, 48).astype(np.uint8),
    dtypes.int64: np.arange(288, dtype=np.int64).reshape(6, 48) * (1 << 33),
}


@pytest.mark.parametrize("op", [Ops.ADD, Ops.MUL, Ops.MAX], ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", NUMBERS, ids=lambda d: d.name)
def test_shared_reduces_of_all_types(dtype: Any, op: Ops) -> None:
    values = NUMBERS[dtype]
    bits = values.view(np.uint16) if dtype is dtypes.bfloat16 else values
    (plain,) = run_on_grid(given(bits, dtype).reduce_axis(op, (1,)), opts=[])
    for opts in ([Opt(GROUP, 1, 12)], [Opt(UPCAST, 0, 3), Opt(GROUPTOP, 2, 16)]):
        (found,) = run_on_grid(given(bits, dtype).reduce_axis(op, (1,)), opts=opts)
        if dtypes.is_int(dtype) or op is Ops.MAX:
            np.testing.assert_array_equal(found, plain)
        else:
            close(found, plain, 0.1 if dtype.itemsize == 2 else 1e-4)


def test_one_item_stores_what_a_group_reduced() -> None:
    program = grid_program(
        kernel_of(given(normal(64)).reduce_axis(Ops.ADD, (0,))), [Opt(GROUP, 0, 16)]
    )
    assert launch_of(program) == {"l0": 16}
    assert sum(n.op is Ops.BARRIER for n in program) == 1
    (branch,) = [n for n in program if n.op is Ops.IF]
    assert branch.src[0].op is Ops.CMPLT and branch.src[0].src[0].arg == "l0"


def test_parts_are_read_as_vectors() -> None:
    program = grid_program(
        kernel_of(given(normal(4, 64)).reduce_axis(Ops.ADD, (1,))), [Opt(GROUP, 1, 16)]
    )
    local = [n for n in program if n.op is Ops.LOAD and n.src[0].src[0].op is Ops.DEFINE_LOCAL]
    assert [n.dtype.count for n in local] == [4]


def test_reduces_one_after_another_share_positions() -> None:
    x = normal(6, 16)
    rows = Tensor(x)
    total = (rows - rows.max(1, keepdim=True)).exp().sum(1)
    expected = np.exp(x - x.max(1, keepdims=True)).sum(1)
    with Context(PCONTIG=2):
        ast = kernel_of(total.uop.contiguous())
        assert sum(n.op is Ops.REDUCE for n in ast.toposort()) == 2
        for amount in (4, 16):
            opts = [Opt(GROUP, 1, amount)]
            kernel = Kernel(simplify_kernel(ast), GRID)
            kernel.apply(opts[0])
            second = kernel.axes(AxisType.REDUCE)[-1]
            opts.append(Opt(GROUP, second, amount))
            program = grid_program(ast, opts)
            assert launch_of(program) == {"g0": 6, "l0": amount}
            assert sum(n.op is Ops.BARRIER for n in program) == 2
            (found,) = run_on_grid(total, opts=opts)
            close(found, expected)
            wrong = Opt(GROUP, second, 2)
            with pytest.raises(KernelOptError, match="same sizes"):
                kernel.apply(wrong)


# *** the launch ***


def test_neighbouring_items_access_neighbours() -> None:
    """Whatever the order of the moves, l0 walks along rows."""
    for opts in ([Opt(LOCAL, 0, 4), Opt(LOCAL, 1, 8)], [Opt(LOCAL, 1, 8), Opt(LOCAL, 0, 4)]):
        program = grid_program(kernel_of(product()), opts)
        launch = launch_of(program)
        assert (launch["l0"], launch["l1"]) == (8, 4)
        assert launch == {"g0": 4, "l0": 8, "l1": 4}


def test_many_loops_share_axes() -> None:
    x = normal(2, 3, 4, 5, 4)
    wanted = x.transpose(4, 2, 0, 3, 1) + 1
    for target in (GRID, SMALL):
        (found,) = run_on_grid(given(x).permute((4, 2, 0, 3, 1)) + 1, opts=[], target=target)
        np.testing.assert_array_equal(found, wanted)
    program = grid_program(kernel_of(given(x).permute((4, 2, 0, 3, 1)) + 1), [])
    assert np.prod([*launch_of(program).values()]) == 480


@pytest.mark.parametrize("size", [1, 2, 9, 10, 11, 63, 64, 67, 72, 97, 127, 504])
def test_large_loops_are_split(size: int) -> None:
    x = normal(size)
    (found,) = run_on_grid(given(x) + 1, opts=[], target=SMALL)
    np.testing.assert_array_equal(found, x + 1)
    launch = launch_of(grid_program(kernel_of(given(x) + 1), [], SMALL))
    assert all(launch.get(f"g{n}", 1) <= most for n, most in enumerate(SMALL.global_max))
    assert size <= np.prod([*launch.values(), 1]) <= size * 1.15


def test_what_fits_no_launch_is_an_error() -> None:
    with pytest.raises(CodegenError, match="505 positions does not fit"):
        grid_program(kernel_of(given(normal(505)) + 1), [], SMALL)


@pytest.mark.parametrize("length", [1, 5, 9])
@pytest.mark.parametrize("opts", [[], [Opt(LOCAL, 1, 4)], [Opt(UPCAST, 1, 2)]], ids=names)
def test_symbolic_loops_are_launched(opts: list[Opt], length: int) -> None:
    x = normal(9, 8)
    n = UOp.variable("n", 1, 9).bind(length)
    graph = given(x).shrink((0, 0), (n, 8)) + 1
    ast = kernel_of(graph)
    sizes = launch_of(grid_program(ast, opts))
    assert {infer(s, {"n": length}) for k, s in sizes.items() if k[0] == "g"} >= {length}
    (found,) = run_on_grid(graph, opts=opts)
    np.testing.assert_array_equal(found.reshape(-1)[: length * 8], (x[:length] + 1).reshape(-1))


def test_symbolic_loops_share_axes() -> None:
    x = normal(6, 2, 3, 4, 5)
    n = UOp.variable("n", 1, 6).bind(3)
    graph = given(x).shrink((0, 0, 0, 0, 0), (n, 2, 3, 4, 5)).permute((2, 0, 4, 1, 3)) + 1
    (found,) = run_on_grid(graph, opts=[])
    wanted = x[:3].transpose(2, 0, 4, 1, 3) + 1
    np.testing.assert_array_equal(found.reshape(-1)[: wanted.size], wanted.reshape(-1))


def test_folding() -> None:
    assert folded([4, 5, 6], (9, 9, 9)) == [[0], [1], [2]]
    assert folded([2, 3, 4, 5], (9, 9, 9)) == [[0, 1], [2], [3]]
    assert folded([5, 2, 3, 4], (9, 9, 9)) == [[0], [1, 2], [3]]
    assert folded([10], (9, 9, 9)) is None
    assert folded([], (9,)) == []
    r = UOp.range(4, 0, AxisType.GLOBAL)
    positions, inside = launch_positions("g", [r], (9, 9, 9))
    assert positions == [UOp.special("g0", 4)] and inside is None


# *** vectors in memory ***


def widths(program: Sequence[UOp], op: Ops) -> list[int]:
    return [
        (n if op is Ops.LOAD else n.src[1]).dtype.count
        for n in program
        if n.op is op and n.src[0].dtype.addrspace.name != "REG"
    ]


def test_neighbours_are_one_access() -> None:
    program = grid_program(kernel_of(given(normal(8, 64)) + 1), [Opt(UPCAST, 0, 4)])
    assert widths(program, Ops.LOAD) == widths(program, Ops.STORE) == [4]
    program = grid_program(kernel_of(given(normal(8, 64)) + 1), [Opt(UPCAST, 0, 8)])
    assert widths(program, Ops.LOAD) == widths(program, Ops.STORE) == [4, 4]
    bytes_ = given(np.arange(64, dtype=np.uint8), dtypes.uint8) + 1
    program = grid_program(kernel_of(bytes_), [Opt(UPCAST, 0, 16)])
    assert widths(program, Ops.LOAD) == widths(program, Ops.STORE) == [16]


def test_accesses_that_are_not_aligned_stay_apart() -> None:
    x = normal(8, 7)
    graph = given(x).shrink((0, 1), (8, 4)).contiguous() + given(x).shrink((0, 2), (8, 4))
    (found,) = run_on_grid(graph, opts=[])
    np.testing.assert_array_equal(found, x[:, 1:5] + x[:, 2:6])
    one = given(x).shrink((0, 1), (8, 4)) + 1
    program = grid_program(kernel_of(one), [Opt(UPCAST, 1, 4)])
    assert widths(program, Ops.LOAD) == [1, 1, 1, 1] and widths(program, Ops.STORE) == [4]


def test_a_copy_moves_whole_vectors() -> None:
    program = grid_program(kernel_of(given(normal(8, 64)).permute((1, 0)).contiguous()), [])
    assert widths(program, Ops.LOAD) == [1]
    program = grid_program(
        kernel_of(given(normal(64)).shrink((32,), (16,)).contiguous()), [Opt(UPCAST, 0, 4)]
    )
    (store,) = [n for n in program if n.op is Ops.STORE]
    assert store.src[1].op is Ops.LOAD
