"""How many kernels a graph becomes, and what is left in them."""

from __future__ import annotations

from tests.schedule.graphs import arange, buffer, kernels, matmul, softmax
from tgcore.dtype import dtypes
from tgcore.helpers import Context
from tgcore.uop import Ops, UOp


def ops_in(kernel: UOp) -> set[Ops]:
    return {node.op for node in kernel.toposort()}


def test_elementwise_ops_are_one_kernel() -> None:
    a, b = buffer(4, 5), buffer(4, 5)
    assert len(kernels(((a + b) * 2).maximum(0).sqrt())) == 1


def test_a_matmul_is_one_kernel() -> None:
    assert len(kernels(matmul(buffer(8, 16), buffer(16, 4)))) == 1


def test_what_follows_a_matmul_is_fused_into_it() -> None:
    product = matmul(buffer(8, 16), buffer(16, 4))
    bias = buffer(4).reshape((1, 4)).expand((8, 4))
    assert len(kernels((product + bias).maximum(0))) == 1


def test_two_matmuls_in_a_row_are_two_kernels() -> None:
    hidden = matmul(buffer(8, 16), buffer(16, 4)).maximum(0)
    assert len(kernels(matmul(hidden, buffer(4, 3)))) == 2


def test_a_softmax_is_three_kernels() -> None:
    assert len(kernels(softmax(buffer(8, 16)))) == 3


def test_movement_ops_alone_cost_one_kernel_and_no_arithmetic_on_values() -> None:
    x = buffer(4, 6).permute((1, 0)).flip((0,)).reshape((3, 8)).shrink((1, 2), (2, 4))
    found = kernels(x.contiguous())
    assert len(found) == 1
    assert all(
        node.dtype is dtypes.index
        for node in found[0].toposort()
        if node.op in (Ops.ADD, Ops.MUL, Ops.IDIV, Ops.MOD)
    )


def test_a_padded_read_is_gated_and_zero_outside() -> None:
    (kernel,) = kernels(buffer(4, 6).pad((1, 0), (6, 6)).contiguous())
    choices = [n for n in kernel.toposort() if n.op is Ops.WHERE and n.dtype is dtypes.float32]
    assert len(choices) == 1 and choices[0].src[2].arg == 0.0


def test_arange_is_arithmetic() -> None:
    (kernel,) = kernels(arange(10).contiguous())
    assert Ops.REDUCE not in ops_in(kernel) and Ops.WHERE not in ops_in(kernel)


def test_an_arange_in_an_expression_needs_no_buffer() -> None:
    (kernel,) = kernels(buffer(10) + arange(10).cast(dtypes.float32))
    assert Ops.REDUCE not in ops_in(kernel)


def test_a_gather_by_comparison_becomes_an_index() -> None:
    table, rows = buffer(50, 8), buffer(6, dtype=dtypes.int32)
    position = arange(50).reshape((1, 50)).expand((6, 50))
    chosen = rows.reshape((6, 1)).expand((6, 50)).alu(Ops.CMPEQ, position)
    weights = chosen.cast(dtypes.float32).reshape((6, 50, 1)).expand((6, 50, 8))
    picked = weights * table.reshape((1, 50, 8)).expand((6, 50, 8))
    (kernel,) = kernels(picked.reduce_axis(Ops.ADD, (1,)))
    assert Ops.REDUCE not in ops_in(kernel)


def test_a_sum_over_a_range_that_is_not_used_is_a_product() -> None:
    x = buffer(4).reshape((4, 1)).expand((4, 7))
    (kernel,) = kernels(x.reduce_axis(Ops.ADD, (1,)))
    assert Ops.REDUCE not in ops_in(kernel)


def test_kernels_of_equal_structure_are_one_object() -> None:
    first, second = kernels(buffer(4, 5) + 1, buffer(4, 5) + 1)
    assert first is second


def test_a_value_with_two_consumers_that_index_alike_is_not_stored() -> None:
    x = buffer(4, 5) + 1
    assert len(kernels(x * 2 + x.sqrt())) == 1


def test_a_reduce_with_consumers_that_index_differently_is_stored_once() -> None:
    total = buffer(4, 4, 8).reduce_axis(Ops.ADD, (2,)).reshape((4, 4))
    assert len(kernels(total + total.permute((1, 0)))) == 2


def test_costly_values_are_not_computed_again_for_each_repetition() -> None:
    column = buffer(64).exp2().reshape((64, 1)).expand((64, 64))
    assert len(kernels(column * buffer(64, 64))) == 2


def test_contiguous_is_a_kernel_of_its_own() -> None:
    assert len(kernels((buffer(4, 5) + 1).contiguous() * 2)) == 2


def test_a_large_sum_is_done_in_two_steps() -> None:
    assert len(kernels(buffer(1 << 20).reduce_axis(Ops.ADD, (0,)))) == 2


def test_with_pcontig_2_a_softmax_stays_in_one_kernel() -> None:
    with Context(PCONTIG=2):
        assert len(kernels(softmax(buffer(8, 16)))) == 1


def test_without_pcontig_the_same_graph_is_three_kernels_again() -> None:
    with Context(PCONTIG=2):
        kernels(softmax(buffer(8, 16)))
    assert len(kernels(softmax(buffer(8, 16)))) == 3


def test_every_access_of_a_kernel_has_one_index() -> None:
    total = buffer(4, 6, 8).reduce_axis(Ops.ADD, (2,)).expand((4, 6, 5)) * buffer(4, 6, 5)
    accesses = [n for k in kernels(total) for n in k.toposort() if n.op is Ops.INDEX]
    assert len(accesses) > 3 and all(len(n.src) == 2 for n in accesses)
