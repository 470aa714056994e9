"""The moves: each computes the same, an illegal one says why and changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given as examples
from hypothesis import settings
from hypothesis import strategies as st

from tests.codegen.running import VECTORS, given, kernel_of, normal, program
from tests.schedule.graphs import matmul
from tgcore.codegen import Kernel, Opt, OptOps, optimize
from tgcore.codegen.simplify import simplify_kernel
from tgcore.errors import KernelOptError
from tgcore.helpers import ansistrip
from tgcore.runtime.buffer import Buffer
from tgcore.runtime.compile import make_program
from tgcore.runtime.device import Device
from tgcore.uop import AxisType, Ops, UOp

A, B = normal(32, 48), normal(48, 16)
PRODUCT = A.astype(np.float64) @ B


def product_kernel() -> UOp:
    return kernel_of(matmul(given(A), given(B)))


def run_with(ast: UOp, opts: Sequence[Opt], inputs: list[np.ndarray], size: int) -> np.ndarray:
    """The kernel with just these moves, on the CPU."""
    device = Device["CPU"]
    optimized = optimize(ast, device.renderer.target, opts)
    spec = make_program(ast, device.renderer, optimized)
    binary = device.compiler.compile(spec.source)
    program = device.load(spec.function_name, binary, spec)
    memory = [Buffer("CPU", size, ast.src[0].src[0].src[0].dtype.base)]
    memory += [
        Buffer("CPU", a.size, memory[0].dtype).copyin(memoryview(a.copy()).cast("B"))
        for a in inputs
    ]
    for buffer in memory:
        buffer.ensure_allocated()
    program([memory[n] for n in spec.globals], [], global_size=(1, 1, 1), local_size=(1, 1, 1))
    device.synchronize()
    return memory[0].numpy().copy()


MOVES = [
    [],
    [Opt(OptOps.UPCAST, 0, 4)],
    [Opt(OptOps.UPCAST, 1, 16)],
    [Opt(OptOps.UPCAST, 0, 8), Opt(OptOps.UPCAST, 1, 4)],
    [Opt(OptOps.UNROLL, 2, 4)],
    [Opt(OptOps.UNROLL, 2, 0)],
    [Opt(OptOps.UPCAST, 1, 8), Opt(OptOps.UNROLL, 3, 6)],
    [Opt(OptOps.SWAP, 0, 1)],
    [Opt(OptOps.SWAP, 0, 1), Opt(OptOps.UPCAST, 0, 4)],
    [Opt(OptOps.PADTO, 0, 5)],
    [Opt(OptOps.PADTO, 2, 7), Opt(OptOps.UNROLL, 2, 7)],
    [Opt(OptOps.PADTO, 1, 12), Opt(OptOps.UPCAST, 1, 12)],
    [Opt(OptOps.THREAD, 0, 2)],
    [Opt(OptOps.UPCAST, 0, 2), Opt(OptOps.THREAD, 1, 2)],
]


@pytest.mark.parametrize(
    "opts", MOVES, ids=lambda m: " ".join(f"{o.op.name}{o.axis}:{o.arg}" for o in m)
)
def test_a_move_changes_no_result(opts: list[Opt]) -> None:
    found = run_with(product_kernel(), opts, [A, B], PRODUCT.size)
    np.testing.assert_allclose(found.reshape(PRODUCT.shape), PRODUCT, atol=1e-3)


@pytest.mark.parametrize(
    ("opt", "message"),
    [
        (Opt(OptOps.UPCAST, 0, 5), "5 does not divide the axis of size 32"),
        (Opt(OptOps.UPCAST, 2, 4), "only loops over results"),
        (Opt(OptOps.UNROLL, 0, 4), "only reduces"),
        (Opt(OptOps.UPCAST, 7, 4), "there is no axis 7"),
        (Opt(OptOps.THREAD, 2, 2), "only loops over results"),
        (Opt(OptOps.THREAD, 0, 16), "there are 2 threads"),
        (Opt(OptOps.SWAP, 0, 2), "two axes of one type"),
        (Opt(OptOps.PADTO, 0, 8), "needs no padding"),
        (Opt(OptOps.TC, 0, 0), "does not apply"),
        (Opt(OptOps.LOCAL, 0, 4), "does not apply"),
    ],
)
def test_an_illegal_move_says_why_and_changes_nothing(opt: Opt, message: str) -> None:
    kernel = Kernel(simplify_kernel(product_kernel()), VECTORS)
    before = kernel.ast
    with pytest.raises(KernelOptError, match=message):
        kernel.apply(opt)
    assert kernel.ast is before and kernel.applied == []


def test_a_symbolic_axis_cannot_be_split() -> None:
    n = UOp.variable("n", 1, 10).bind(5)
    ast = kernel_of(given(normal(10, 4)).shrink((0, 0), (n, 4)) + 1)
    kernel = Kernel(simplify_kernel(ast), VECTORS)
    with pytest.raises(KernelOptError, match="symbolic"):
        kernel.apply(Opt(OptOps.UPCAST, 0, 2))


def test_the_name_tells_kind_and_sizes() -> None:
    found = optimize(product_kernel(), VECTORS, [Opt(OptOps.UPCAST, 1, 16)])
    assert ansistrip(found.name) == "r_32_16_48"


def test_axes_stand_in_the_order_of_their_types() -> None:
    kernel = Kernel(simplify_kernel(product_kernel()), VECTORS)
    kernel.apply(Opt(OptOps.UNROLL, 2, 4))
    kernel.apply(Opt(OptOps.UPCAST, 0, 4))
    kernel.apply(Opt(OptOps.THREAD, 0, 2))
    assert [r.axis_type for r in kernel.ranges] == [
        AxisType.LOOP,
        AxisType.LOOP,
        AxisType.THREAD,
        AxisType.UPCAST,
        AxisType.REDUCE,
        AxisType.UNROLL,
    ]


# *** what the default moves make of kernels ***


def loads(uops: list[UOp]) -> list[UOp]:
    return [u for u in uops if u.op is Ops.LOAD and u.src[0].src[0].op is Ops.DEFINE_GLOBAL]


def test_an_elementwise_kernel_loads_whole_vectors() -> None:
    uops = program(kernel_of(given(normal(64, 64)) + 1))
    assert {u.dtype.count for u in loads(uops)} == {16}


def test_an_elementwise_kernel_of_odd_size_loads_masked_vectors() -> None:
    uops = program(kernel_of(given(normal(5, 61)) + 1))
    assert {u.dtype.count for u in loads(uops)} == {16}
    assert all(len(u.src) == 2 for u in loads(uops))


def test_a_matmul_keeps_a_tile_of_vectors_in_registers() -> None:
    uops = program(kernel_of(matmul(given(normal(64, 64)), given(normal(64, 64)))))
    accumulators = [u for u in uops if u.op is Ops.DEFINE_REG]
    assert len(accumulators) == 16
    assert {u.dtype.base.count for u in accumulators} == {16}


def test_a_sum_along_rows_keeps_a_vector_of_partial_sums() -> None:
    uops = program(kernel_of(given(normal(8, 1024)).reduce_axis(Ops.ADD, (1,))))
    accumulators = [u for u in uops if u.op is Ops.DEFINE_REG]
    assert {u.dtype.base.count for u in accumulators} == {16} and len(accumulators) > 1


def test_small_kernels_are_not_shared_by_threads() -> None:
    assert optimize(kernel_of(given(normal(8, 8)) + 1), VECTORS).threads == 1


def test_large_kernels_are_shared_by_threads() -> None:
    assert optimize(kernel_of(given(normal(512, 512)) + 1), VECTORS).threads == 2


def test_a_concatenation_becomes_loops_without_comparisons() -> None:
    joined = given(normal(64)).pad((0,), (192,)) + given(normal(128)).pad((64,), (192,))
    uops = program(kernel_of(joined))
    assert sum(u.op is Ops.RANGE for u in uops) == 2
    assert not any(u.op in (Ops.CMPLT, Ops.WHERE, Ops.CMPNE) for u in uops)


# *** random moves ***


@settings(max_examples=25, deadline=None)
@examples(st.data())
def test_random_legal_moves_change_no_result(data: st.DataObject) -> None:
    kernel = Kernel(simplify_kernel(product_kernel()), VECTORS)
    for _ in range(data.draw(st.integers(1, 4))):
        opt = Opt(
            data.draw(st.sampled_from([OptOps.UPCAST, OptOps.UNROLL, OptOps.SWAP, OptOps.PADTO])),
            data.draw(st.integers(0, len(kernel.ranges) - 1)),
            data.draw(st.sampled_from([1, 2, 3, 4, 6, 8])),
        )
        copies = np.prod(
            [r.vmax + 1 for r in kernel.ranges if r.axis_type in (AxisType.UPCAST, AxisType.UNROLL)]
        )
        if copies > 32:
            break
        try:
            kernel.apply(opt)
        except KernelOptError:
            continue
    found = run_with(product_kernel(), kernel.applied, [A, B], PRODUCT.size)
    np.testing.assert_allclose(found.reshape(PRODUCT.shape), PRODUCT, atol=1e-3)
