"""Schedules: order, assigns, copies, memory, cache, the debug view."""

from __future__ import annotations

import itertools

import pytest

from tests.schedule.graphs import DEVICE, arange, buffer, kernels, matmul, schedule, softmax
from tgcore.dtype import dtypes
from tgcore.errors import ScheduleError, SpecError
from tgcore.helpers import Context
from tgcore.schedule import clear_schedule_cache, create_schedule, schedule_cache_info
from tgcore.schedule.indexing import assign_ranges, describe_ranges
from tgcore.schedule.realize import realize_map
from tgcore.uop import Ops, UOp


def test_stored_memory_needs_nothing() -> None:
    x = buffer(4, 5)
    result = schedule(x)
    assert result.items == () and result.outputs[x] is x


def test_an_output_is_a_buffer_in_the_shape_that_was_asked_for() -> None:
    total = buffer(4, 5) + 1
    output = schedule(total).outputs[total]
    assert output.base.op is Ops.BUFFER and output.shape == (4, 5)


def test_one_node_asked_for_twice_is_computed_once() -> None:
    total = buffer(4, 5) + 1
    assert len(schedule(total, total).items) == 1


def test_a_constant_can_be_stored() -> None:
    ones = UOp.const(dtypes.float32, 1).reshape((1, 1)).expand((3, 4))
    result = schedule(ones)
    assert len(result.items) == 1 and result.outputs[ones].shape == (3, 4)


def test_the_first_buffer_of_a_kernel_is_what_it_writes() -> None:
    total = buffer(4, 5) + 1
    result = schedule(total)
    assert result.items[0].buffers[0] is result.outputs[total].base


def test_a_symbolic_size_stays_in_the_kernel_and_its_value_beside_it() -> None:
    n = UOp.variable("n", 1, 10)
    x = buffer(10).shrink((0,), (n.bind(3),))
    result = schedule(x.reduce_axis(Ops.ADD, (0,)))
    assert result.variables == {"n": 3}
    assert result.items[0].ast.variables() == [n]


def test_two_values_of_one_variable_in_one_graph_are_an_error() -> None:
    n = UOp.variable("n", 1, 10)
    first, second = (buffer(10).shrink((0,), (n.bind(v),)) for v in (3, 4))
    with pytest.raises(ValueError, match="'n' is bound to both 3 and 4"):
        schedule(first.reduce_axis(Ops.ADD, (0,)), second.reduce_axis(Ops.ADD, (0,)))


# *** assign ***


def test_an_assign_writes_its_target() -> None:
    target = buffer(4, 5)
    assigned = target.assign(target + 1)
    result = schedule(assigned)
    assert len(result.items) == 1
    assert result.items[0].buffers == (target.base,)
    assert result.outputs[assigned] is target


def test_an_assign_that_reads_its_target_in_another_order_stores_the_value_first() -> None:
    target = buffer(4, 5)
    assert len(schedule(target.assign(target.flip((0,)))).items) == 2


def test_an_assign_to_a_view_writes_only_there() -> None:
    target = buffer(4, 5)
    view = target.shrink((1, 0), (2, 5))
    (item,) = schedule(view.assign(buffer(2, 5))).items
    store = next(n for n in item.ast.toposort() if n.op is Ops.STORE)
    assert store.src[0].src[1].bounds == (5, 14)


def test_a_read_of_the_old_value_comes_before_the_assign() -> None:
    target = buffer(4, 5)
    doubled = target * 2
    result = schedule(target.assign(buffer(4, 5)), doubled)
    assert [item.buffers[0] is target.base for item in result.items] == [False, True]


def test_what_reads_an_assign_comes_after_it() -> None:
    target = buffer(4, 5)
    result = schedule(target.assign(buffer(4, 5)) * 2)
    assert [item.buffers[0] is target.base for item in result.items] == [True, False]


def test_assigns_in_a_row_keep_their_order() -> None:
    target = buffer(4, 5)
    second = target.assign(target + 1).assign(buffer(4, 5))
    result = schedule(second)
    assert [len(item.buffers) for item in result.items] == [1, 2]
    assert result.outputs[second] is target


def test_old_and_new_value_in_one_kernel_are_a_clear_error() -> None:
    target = buffer(4, 5)
    with pytest.raises(ScheduleError, match="old value"):
        schedule(target.assign(buffer(4, 5)) + target)


def test_an_assign_to_something_computed_is_a_clear_error() -> None:
    with pytest.raises(ScheduleError, match="needs a target that is stored"):
        schedule((buffer(4, 5) + 1).assign(buffer(4, 5)))


# *** copies ***


def test_a_copy_to_another_device_is_a_step_of_its_own() -> None:
    result = schedule((buffer(4, 5) + 1).copy_to("OTHER") * 2)
    assert [item.ast.op for item in result.items] == [Ops.SINK, Ops.COPY, Ops.SINK]
    assert result.items[1].buffers[0].device == "OTHER"


def test_a_copy_to_the_same_device_is_nothing() -> None:
    assert len(schedule(buffer(4, 5).copy_to(DEVICE) + 1).items) == 1


def test_a_constant_needs_no_copy() -> None:
    ones = UOp.const(dtypes.float32, 1).reshape((1,)).expand((5,))
    assert all(i.ast.op is Ops.SINK for i in schedule(ones.copy_to("OTHER") + buffer(5)).items)


# *** memory ***


def long_chain(length: int) -> UOp:
    x = buffer(16, 16)
    for _ in range(length):
        x = matmul(x, buffer(16, 16))
    return x


def test_temporaries_whose_lives_do_not_overlap_share_memory() -> None:
    result = schedule(long_chain(8))
    arenas = {b.src[0] for item in result.items for b in item.buffers if b.op is Ops.BUFFER_VIEW}
    assert [arena.arg for arena in arenas] == [2 * 16 * 16 * 4]


def test_buffers_of_one_kernel_never_overlap() -> None:
    for item in schedule(softmax(long_chain(3))).items:
        spans = sorted(
            (b.arg[1], b.arg[1] + b.arg[0] * b.dtype.itemsize)
            for b in item.buffers
            if b.op is Ops.BUFFER_VIEW
        )
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))


# *** cache ***


def test_the_same_structure_over_other_buffers_is_a_cache_hit() -> None:
    clear_schedule_cache()
    first, second = softmax(buffer(8, 16)), softmax(buffer(8, 16))
    a, b = schedule(first), schedule(second)
    assert schedule_cache_info() == (1, 1)
    assert [i.ast for i in a.items] == [i.ast for i in b.items]
    assert not {x for i in a.items for x in i.buffers} & {x for i in b.items for x in i.buffers}


def test_another_value_of_a_variable_is_a_cache_hit() -> None:
    clear_schedule_cache()
    n = UOp.variable("n", 1, 10)
    for value in (3, 7):
        x = buffer(10).shrink((0,), (n.bind(value),)).reduce_axis(Ops.ADD, (0,))
        assert schedule(x).variables == {"n": value}
    assert schedule_cache_info() == (1, 1)


def test_the_pcontig_setting_is_part_of_the_key() -> None:
    clear_schedule_cache()
    schedule(softmax(buffer(8, 16)))
    with Context(PCONTIG=2):
        schedule(softmax(buffer(8, 16)))
    assert schedule_cache_info() == (0, 2)


# *** the debug view ***


def test_the_debug_view_shows_each_node_with_its_ranges() -> None:
    root = UOp.sink(buffer(4, 5).permute((1, 0)) + 1)
    context = assign_ranges(root, realize_map(root))
    text = describe_ranges(context, root.consumers())
    first = text.split("\n")[0]
    assert first.startswith("***") and "ADD" in first and "(5, 4)" in first
    assert "r0, r1 -> r0, r1" in " ".join(
        first.replace("\x1b[33m", "").replace("\x1b[0m", "").split()
    )
    assert any("PERMUTE" in line and "r1, r0" in line for line in text.split("\n"))


def test_a_wrong_graph_is_refused_with_its_node_when_verified() -> None:
    with Context(SPEC=1), pytest.raises(SpecError, match=r"an illegal Ops\.ADD"):
        bad = UOp(Ops.ADD, dtypes.float32, (buffer(4), buffer(4, dtype=dtypes.int32)))
        create_schedule(UOp.sink(bad), DEVICE)


def test_verified_kernels_pass() -> None:
    clear_schedule_cache()
    with Context(SPEC=1):
        assert (
            len(
                kernels(
                    softmax(buffer(8, 16))
                    + arange(16).cast(dtypes.float32).reshape((1, 16)).expand((8, 16))
                )
            )
            == 3
        )
