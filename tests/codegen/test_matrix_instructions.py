"""Matmuls by matrix instructions, which the interpreter carries out as warps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.codegen.grid import GRID, close, grid_program, launch_of, run_on_grid
from tests.codegen.matrix_instructions import (
    HALF_FLOAT,
    HALF_SMALL,
    INT8,
    MFMA,
    NVIDIA,
    RDNA3,
    TF32,
    TINY,
)
from tests.codegen.running import kernel_of, normal
from tgcore import Tensor
from tgcore.codegen import Fragment, Kernel, Opt, OptOps, Target, TensorCore
from tgcore.codegen.late.estimates import estimate
from tgcore.codegen.simplify import simplify_kernel
from tgcore.dtype import DType, dtypes
from tgcore.errors import KernelOptError
from tgcore.helpers import Context
from tgcore.runtime.encode import decode_target, encode_target
from tgcore.testing.interpreter import BarrierError, run_program
from tgcore.testing.lanes import numpy_type
from tgcore.uop import Ops, UOp
from tgcore.uop.encode import decode_graph, encode_graph, from_text, to_text
from tgcore.uop.render import pyeval, pyrender

TC, UPCAST, UNROLL, LOCAL = OptOps.TC, OptOps.UPCAST, OptOps.UNROLL, OptOps.LOCAL
PADTO, SWAP, GROUP = OptOps.PADTO, OptOps.SWAP, OptOps.GROUP
Array = NDArray[Any]


def only(*cores: TensorCore) -> Target:
    return replace(GRID, tensor_cores=cores)


def numbers(dtype: DType, *shape: int) -> tuple[Tensor, Array]:
    """A tensor, and what it holds as float64."""
    if dtypes.is_int(dtype):
        values = np.random.default_rng(4).integers(-128, 128, shape).astype(numpy_type(dtype))
    else:
        values = normal(*shape).astype(numpy_type(dtype))
    return Tensor(values), values.astype(np.float64)


def product(a: Tensor, b: Tensor, dtype: DType) -> Tensor:
    return a.matmul(b, dtype=dtype)


def matrix_instructions(program: Sequence[UOp]) -> list[UOp]:
    return [n for n in program if n.op is Ops.WMMA]


# *** tables ***


def test_fragments_are_those_of_the_manual() -> None:
    """The formulas of "Matrix fragments for mma.m16n8k16" and its neighbours."""
    for lane in range(32):
        group, thread = lane >> 2, lane % 4
        for i in range(8):
            row = group if i in (0, 1, 4, 5) else group + 8
            column = thread * 2 + (i & 1) + (8 if i >= 4 else 0)
            assert HALF_FLOAT.a.place(lane, i) == (row, column)
        for i in range(4):
            assert HALF_FLOAT.b.place(lane, i) == (
                thread * 2 + (i & 1) + (8 if i >= 2 else 0),
                group,
            )
            c = (group + (8 if i >= 2 else 0), thread * 2 + (i & 1))
            assert HALF_FLOAT.c.place(lane, i) == HALF_SMALL.a.place(lane, i) == c
            row, column = group + (8 if i in (1, 3) else 0), thread + (4 if i >= 2 else 0)
            assert TF32.a.place(lane, i) == (row, column)
        for i in range(2):
            assert TF32.b.place(lane, i) == (thread + 4 * i, group)
            assert HALF_SMALL.b.place(lane, i) == (thread * 2 + i, group)
        for i in range(16):
            row = group if i < 4 or 8 <= i < 12 else group + 8
            assert INT8.a.place(lane, i) == (row, thread * 4 + (i & 3) + (16 if i >= 8 else 0))
        for i in range(8):
            assert INT8.b.place(lane, i) == (thread * 4 + (i & 3) + (16 if i >= 4 else 0), group)


@pytest.mark.parametrize("core", [*NVIDIA, *TINY, RDNA3, MFMA], ids=str)
def test_lanes_hold_every_element(core: TensorCore) -> None:
    for fragment in (core.a, core.b, core.c):
        places = [
            fragment.place(lane, element)
            for lane in range(core.threads)
            for element in range(fragment.elements)
        ]
        rows, columns = fragment.shape
        assert set(places) == {(r, c) for r in range(rows) for c in range(columns)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dims": (8, 16, 8)}, "the fragment a of .* must describe 16 x 8 elements"),
        ({"a": Fragment("l2 l3 l4 e1", "e0 l0 l1 e3")}, "leaves one of an element out"),
        ({"a": Fragment("l2 l3 l4 e1", "e0 l0 l1 l1")}, "uses a bit twice"),
        ({"threads": 16}, "bits that the number of 16 lanes lacks"),
        ({"threads": 64}, "each element of c must be held by one lane"),
        ({"a": Fragment("l2 l3 l4 x1", "e0 l0 l1 e2")}, "'x1' is no bit"),
    ],
)
def test_a_table_that_cannot_be_is_an_error(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(HALF_FLOAT, **change)


# *** numbers ***


@pytest.mark.parametrize(
    "core",
    [c for c in (*NVIDIA, RDNA3, MFMA) if c is not INT8],
    ids=lambda c: f"{c.dtype_in.name} {c.dtype_out.name} {c.dims}",
)
def test_matmuls_of_all_types(core: TensorCore) -> None:
    n, m, k = core.dims
    kinds = core.dtypes
    (a, x), (b, y) = numbers(kinds[0], 2 * m, 3 * k), numbers(kinds[1], 3 * k, 2 * n)
    wide = core.dtype_out
    if kinds[0] is kinds[1]:
        graph = product(a, b, wide)
    else:
        graph = (a.cast(wide).unsqueeze(1) * b.cast(wide).transpose(0, 1).unsqueeze(0)).sum(2)
    with Context(ALLOW_TF32=1):
        (found,) = run_on_grid(graph, opts=[Opt(TC)], target=only(core))
        program = grid_program(kernel_of(graph.uop.contiguous()), [Opt(TC)], only(core))
    assert len(matrix_instructions(program)) == 1
    digits = core.mantissa_bits or dtypes.finfo(core.dtype_out)[1]
    close(found, x @ y, 2.0 ** (2 - digits))


def test_matmuls_of_integers() -> None:
    (a, x), (b, y) = numbers(dtypes.int8, 32, 64), numbers(dtypes.int8, 64, 16)
    (found,) = run_on_grid(
        product(a.cast(dtypes.int32), b.cast(dtypes.int32), dtypes.int32),
        opts=[Opt(TC)],
        target=only(INT8),
    )
    np.testing.assert_array_equal(found, (x @ y).astype(np.int32))


def test_products_that_wrap_around_are_left_alone() -> None:
    """int8 times int8 is int8: a matrix instruction would give something else."""
    (a, _), (b, _) = numbers(dtypes.int8, 32, 64), numbers(dtypes.int8, 64, 16)
    with pytest.raises(KernelOptError, match="no matmul of types"):
        run_on_grid(a @ b, opts=[Opt(TC)], target=only(INT8))


MOVES: list[list[Opt]] = [
    [Opt(TC)],
    [Opt(TC, 0, 0)],
    [Opt(TC), Opt(UPCAST, 0, 2), Opt(UPCAST, 1, 3)],
    [Opt(UPCAST, 1, 3), Opt(UPCAST, 0, 2), Opt(TC)],
    [Opt(TC), Opt(LOCAL, 0, 2), Opt(LOCAL, 1, 3)],
    [Opt(TC), Opt(UNROLL, 6, 2)],
    [Opt(TC), Opt(UNROLL, 6, 0)],
    [Opt(UPCAST, 1, 3), Opt(TC), Opt(UNROLL, 7, 2), Opt(LOCAL, 0, 2)],
    [Opt(SWAP, 0, 1), Opt(TC), Opt(UPCAST, 0, 3)],
]


@pytest.mark.parametrize("opts", MOVES, ids=str)
def test_tiles_on_top(opts: list[Opt]) -> None:
    (a, x), (b, y) = numbers(dtypes.float16, 64, 64), numbers(dtypes.float16, 64, 48)
    kernel = Kernel(simplify_kernel(kernel_of((a @ b).uop.contiguous())), only(HALF_FLOAT))
    opts = [_named(kernel, opt) for opt in opts]
    (found,) = run_on_grid(a @ b, opts=opts, target=only(HALF_FLOAT))
    close(found, x @ y, 2e-3)


def _named(kernel: Kernel, opt: Opt) -> Opt:
    """An UNROLL of the loop over k, wherever that is."""
    if opt.op is UNROLL:
        opt = replace(opt, axis=kernel.axes(kernel.reduces[0].src[1].axis_type)[-1])
    kernel.apply(opt)
    return opt


def test_tiles_reuse_what_they_loaded() -> None:
    (a, _), (b, _) = numbers(dtypes.float16, 64, 64), numbers(dtypes.float16, 64, 64)
    opts = [Opt(UPCAST, 1, 4), Opt(TC), Opt(UPCAST, 0, 2)]
    program = grid_program(kernel_of((a @ b).uop.contiguous()), opts, only(HALF_FLOAT))
    assert len(matrix_instructions(program)) == 8
    loads = [n for n in program if n.op is Ops.LOAD and n.src[0].src[0].op is Ops.DEFINE_GLOBAL]
    # a: four halves of two rows, twice; b: four neighbours of each of four rows
    assert [n.dtype.count for n in loads] == [4] * 8
    assert sum(n.op is Ops.DEFINE_REG for n in program) == 8
    (loop,) = [n for n in program if n.op is Ops.RANGE]
    assert loop.src[0].arg == 4


def test_operands_in_any_order() -> None:
    (a, x), (b, y) = numbers(dtypes.float16, 32, 48), numbers(dtypes.float16, 48, 32)
    transposed = a.transpose(0, 1).contiguous(), b.transpose(0, 1).contiguous()
    c, d = (t.realize() for t in transposed)
    for graph in (a @ b, c.transpose(0, 1) @ b, a @ d.transpose(0, 1), (c.T @ d.T)):
        (found,) = run_on_grid(graph, opts=[Opt(TC)], target=only(HALF_FLOAT))
        close(found, x @ y, 2e-3)
    graph = (b.transpose(0, 1) @ a.transpose(0, 1)).contiguous()
    (found,) = run_on_grid(graph, opts=[Opt(TC)], target=only(HALF_FLOAT))
    close(found, (x @ y).T, 2e-3)


@pytest.mark.parametrize("shape", [(17, 48, 8), (32, 33, 8), (16, 16, 9), (15, 17, 7), (1, 5, 3)])
def test_odd_sizes_are_padded(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    (a, x), (b, y) = numbers(dtypes.float16, m, k), numbers(dtypes.float16, k, n)
    ast = kernel_of((a @ b).uop.contiguous())
    kernel = Kernel(simplify_kernel(ast), only(HALF_FLOAT))
    if m == 1:
        with pytest.raises(KernelOptError, match="no matmul"):
            kernel.apply(Opt(TC))
        return
    with pytest.raises(KernelOptError, match="pad it first"):
        kernel.apply(Opt(TC))
    for axis, (size, tile) in enumerate(((m, 16), (n, 8), (k, 16))):
        if size % tile:
            kernel.apply(Opt(PADTO, axis, tile))
    kernel.apply(Opt(TC))
    (found,) = run_on_grid(a @ b, opts=kernel.applied, target=only(HALF_FLOAT))
    close(found, x @ y, 2e-3)


def test_padding_of_k_keeps_nan_out() -> None:
    """A factor that is not zero beyond the end of k may not make nan of the zeros there."""
    (a, x), (b, y) = numbers(dtypes.float16, 16, 17), numbers(dtypes.float16, 17, 8)
    graph = product(1 / a, b, dtypes.float32)
    opts = [Opt(PADTO, 2, 16), Opt(TC)]
    (found,) = run_on_grid(graph, opts=opts, target=only(HALF_FLOAT))
    close(found, (1 / x.astype(np.float16)).astype(np.float64) @ y, 2e-3)


def test_batches() -> None:
    (a, x), (b, y) = numbers(dtypes.float16, 3, 32, 32), numbers(dtypes.float16, 3, 32, 16)
    for opts in ([Opt(TC)], [Opt(TC), Opt(UPCAST, 0, 3), Opt(UPCAST, 0, 2)]):
        (found,) = run_on_grid(a @ b, opts=opts, target=only(HALF_FLOAT))
        close(found, x @ y, 2e-3)


def test_convolutions() -> None:
    (a, _), (w, _) = numbers(dtypes.float16, 2, 16, 6, 8), numbers(dtypes.float16, 8, 16, 3, 3)
    graph = a.conv2d(w, padding=1)
    (plain,) = run_on_grid(graph, opts=[])
    ast = kernel_of(graph.uop.contiguous())
    found_ways = 0
    for way in range(20):
        kernel = Kernel(simplify_kernel(ast), only(HALF_FLOAT, HALF_SMALL))
        for axis in range(len(kernel.ranges)):
            size = kernel.ranges[axis].vmax + 1
            if 3 < size < 16 and size != 8:
                kernel.apply(Opt(PADTO, axis, 16 if axis else 8))
        try:
            kernel.apply(Opt(TC, way))
        except KernelOptError:
            break
        (found,) = run_on_grid(graph, opts=kernel.applied, target=kernel.target)
        close(found, plain.astype(np.float64), 4e-3)
        found_ways += 1
    assert found_ways >= 1


def test_what_surrounds_a_matmul_is_kept() -> None:
    (a, x), (b, y) = numbers(dtypes.float16, 32, 32), numbers(dtypes.float16, 32, 16)
    bias = normal(16)
    graph = (product(a.relu(), b * 2, dtypes.float32) + Tensor(bias)).relu() - 1
    (found,) = run_on_grid(graph, opts=[Opt(TC), Opt(UPCAST, 0, 2)], target=only(HALF_FLOAT))
    close(found, np.maximum(np.maximum(x, 0) @ (y * 2) + bias, 0) - 1, 2e-3)


def test_two_reduces_of_which_one_is_a_matmul() -> None:
    (a, x), (b, y) = numbers(dtypes.float16, 32, 32), numbers(dtypes.float16, 32, 16)
    with Context(PCONTIG=2):
        graph = product(a, b, dtypes.float32) / a.cast(dtypes.float32).sum(1, keepdim=True).exp2()
        (found,) = run_on_grid(graph, opts=[Opt(TC)], target=only(HALF_FLOAT))
    close(found, x @ y / np.exp2(x.sum(1, keepdims=True)), 2e-3)


# *** what is not legal ***


def test_tf32_must_be_allowed() -> None:
    (a, _), (b, _) = numbers(dtypes.float32, 32, 32), numbers(dtypes.float32, 32, 16)
    with pytest.raises(KernelOptError, match="no matmul of types"):
        run_on_grid(a @ b, opts=[Opt(TC)], target=only(TF32))


@pytest.mark.parametrize(
    ("opts", "message"),
    [
        ([Opt(TC, 0, 7)], "there is no matrix instruction 7: there are 1"),
        ([Opt(TC, 5)], "there are 2 ways"),
        ([Opt(TC), Opt(TC)], "uses matrix instructions already"),
        ([Opt(OptOps.NOLOCALS), Opt(TC)], "no work groups of several items"),
        ([Opt(TC), Opt(PADTO, 2, 3)], "cannot be padded any more"),
        ([Opt(TC), Opt(UPCAST, 2, 4)], "only loops over results can be upcast"),
        ([Opt(TC), Opt(LOCAL, 0, 64)], "64 does not divide"),
    ],
    ids=str,
)
def test_an_illegal_move_says_why_and_changes_nothing(opts: list[Opt], message: str) -> None:
    (a, _), (b, _) = numbers(dtypes.float16, 32, 48), numbers(dtypes.float16, 48, 16)
    kernel = Kernel(simplify_kernel(kernel_of((a @ b).uop.contiguous())), only(HALF_FLOAT))
    for opt in opts[:-1]:
        kernel.apply(opt)
    before = kernel.ast
    with pytest.raises(KernelOptError, match=message):
        kernel.apply(opts[-1])
    assert kernel.ast is before and kernel.applied == opts[:-1]


@pytest.mark.parametrize("move", [Opt(GROUP, 6, 3), Opt(PADTO, 6, 2)], ids=str)
def test_steps_of_matrix_instructions_stay_together(move: Opt) -> None:
    (a, _), (b, _) = numbers(dtypes.float16, 32, 48), numbers(dtypes.float16, 48, 16)
    kernel = Kernel(simplify_kernel(kernel_of((a @ b).uop.contiguous())), only(HALF_FLOAT))
    kernel.apply(Opt(TC))
    axis = kernel.axes(kernel.reduces[0].src[1].axis_type)[-1]
    with pytest.raises(KernelOptError, match="matrix instructions"):
        kernel.apply(replace(move, axis=axis))


def test_types_that_a_device_emulates_are_no_operands() -> None:
    (a, _), (b, _) = numbers(dtypes.float16, 32, 48), numbers(dtypes.float16, 48, 16)
    target = replace(only(HALF_FLOAT), dtypes=GRID.dtypes - {dtypes.float16})
    with pytest.raises(KernelOptError, match="does not know the type float16"):
        run_on_grid(a @ b, opts=[Opt(TC)], target=target)


def test_sums_of_something_else_are_no_matmuls() -> None:
    (a, _), (b, _) = numbers(dtypes.float16, 16, 16), numbers(dtypes.float16, 16, 16)
    graphs: list[Callable[[], Tensor]] = [
        lambda: a.sum(1),
        lambda: (a * b).sum(1),
        lambda: (a.unsqueeze(1) + b.unsqueeze(0)).sum(2),
        lambda: (a.unsqueeze(1) * b.unsqueeze(0)).max(2),
    ]
    for graph in graphs:
        with pytest.raises(KernelOptError, match="no matmul"):
            run_on_grid(graph(), opts=[Opt(TC)], target=only(HALF_FLOAT))


# *** the program ***


def linear(opts: Sequence[Opt] = (Opt(TC),)) -> Sequence[UOp]:
    (a, _), (b, _) = numbers(dtypes.float16, 32, 48), numbers(dtypes.float16, 48, 16)
    return grid_program(kernel_of((a @ b).uop.contiguous()), opts, only(HALF_FLOAT))


def test_a_warp_is_the_fastest_axis_of_a_group() -> None:
    program = linear([Opt(TC), Opt(LOCAL, 0, 2), Opt(LOCAL, 0, 2)])
    launch = launch_of(program)
    assert launch["l0"] == 32 and launch["l1"] * launch["l2"] == 4


def test_operations_are_counted() -> None:
    program = linear()
    memory = {
        0: np.zeros(512, np.float16), 1: np.ones(1536, np.float16), 2: np.ones(768, np.float16)
    }  # fmt: skip
    counts = run_program(program, memory)
    found = estimate(program)
    assert found.ops == counts.ops == 2 * 32 * 48 * 16
    assert found.lds == counts.moved and found.mem == counts.touched == 2 * (512 + 1536 + 768)


def test_lanes_that_are_missing_are_found() -> None:
    program = linear()
    fewer = UOp(Ops.SPECIAL, dtypes.int32, (UOp.const(dtypes.int32, 31),), "l0")
    (lane,) = [n for n in program if n.op is Ops.SPECIAL and n.arg == "l0"]
    table: dict[UOp, UOp] = {lane: fewer}
    for node in program:
        if node not in table:
            src = tuple(table.get(s, s) for s in node.src)
            table[node] = node.replace(src=src)
    memory = {n: np.zeros(1536, np.float16) for n in range(3)}
    with pytest.raises(BarrierError, match="31 items are no warps of 32 lanes"):
        run_program([fewer.src[0], *(table[n] for n in program)], memory)


def test_tables_come_back_from_data_and_text() -> None:
    target = only(*NVIDIA, RDNA3, MFMA)
    assert decode_target(from_text(to_text(encode_target(target)))) == target
    (node,) = matrix_instructions(linear())
    assert decode_graph(from_text(to_text(encode_graph(node)))) is node
    assert pyeval(pyrender(node)) is node
