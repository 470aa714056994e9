"""Reduces that need no loop, against sums written out."""

from __future__ import annotations

import pytest

from tests.uop.brute_force import assignments, value_of
from tgcore.dtype import Invalid, dtypes
from tgcore.uop import AxisType, Ops, UOp
from tgcore.uop.collapse import pm_reduce_collapse
from tgcore.uop.rewrite import graph_rewrite
from tgcore.uop.symbolic import simplify, symbolic

R = UOp.range(6, 0, AxisType.REDUCE)
N = UOp.variable("n", -3, 9)


def number(value: int) -> UOp:
    return UOp.const(dtypes.int32, value)


def collapsed(value: UOp) -> UOp:
    return graph_rewrite(value.reduce(Ops.ADD, R), symbolic + pm_reduce_collapse)


CONDITIONS = {
    "below": R < N,
    "not below": (R < N).logical_not(),
    "scaled": R * 2 < N,
    "reversed": (R * -1) < N,
    "between": (R < N + 3) & (R < N).logical_not(),
    "equal": R.alu(Ops.CMPEQ, N),
    "shifted": R + 2 < N,
    "with another": (R < N) & (N < 5),
}


@pytest.mark.parametrize("condition", CONDITIONS.values(), ids=CONDITIONS)
def test_a_count_of_limits_is_arithmetic(condition: UOp) -> None:
    result = collapsed(condition.where(number(3), number(0)))
    assert all(node.op is not Ops.REDUCE for node in result.toposort())
    for chosen in assignments([N]):
        steps = [condition.substitute({R: R.const_like(k)}) for k in range(6)]
        expected = sum(3 * value_of(step, chosen) for step in steps)
        assert value_of(result, chosen) == expected


def test_a_one_hot_sum_picks_one_value() -> None:
    table = UOp.define(Ops.DEFINE_GLOBAL, dtypes.float32, 6, 1)
    picked = collapsed(R.alu(Ops.CMPEQ, N).where(table.index(R), UOp.const(dtypes.float32, 0.0)))
    (access,) = [n for n in picked.toposort() if n.op is Ops.INDEX]
    assert access.src[1].op is Ops.WHERE and access.src[1].src[1] is N
    for chosen in assignments([N]):
        assert value_of(access.src[1].src[0], chosen) == (0 <= chosen["n"] < 6)


def test_a_sum_that_does_not_use_its_range_is_a_product() -> None:
    assert simplify(collapsed(number(7))) is number(42)


def test_a_maximum_that_does_not_use_its_range_is_the_value() -> None:
    value = N.cast(dtypes.int32)
    assert graph_rewrite(value.reduce(Ops.MAX, R), symbolic + pm_reduce_collapse) is value


def test_a_sum_over_loaded_values_keeps_its_loop() -> None:
    table = UOp.define(Ops.DEFINE_GLOBAL, dtypes.float32, 6, 1)
    assert collapsed(table.index(R)).op is Ops.REDUCE


def test_a_sum_of_guarded_sums_is_one_sum() -> None:
    table = UOp.define(Ops.DEFINE_GLOBAL, dtypes.float32, 24, 1)
    inner = UOp.range(4, 1, AxisType.REDUCE)
    sums = table.index(R * 4 + inner).reduce(Ops.ADD, inner)
    result = collapsed((R < N).where(sums, sums.const_like(0.0)))
    assert sum(node.op is Ops.REDUCE for node in result.toposort()) == 1


def test_a_sum_of_a_solvable_and_another_term_keeps_a_loop_for_that_only() -> None:
    table = UOp.define(Ops.DEFINE_GLOBAL, dtypes.int32, 6, 1)
    counted = (R < N).where(number(1), number(0))
    result = collapsed(counted + table.index(R))
    loops = [node for node in result.toposort() if node.op is Ops.REDUCE]
    assert len(loops) == 1 and loops[0].src[0] is table.index(R)


# *** memory is read inside its bounds only ***


def reads_of(graph: UOp, memory: UOp) -> list[UOp]:
    return [n for n in graph.toposort() if n.op is Ops.INDEX and n.src[0] is memory]


def test_a_condition_that_reads_memory_reads_it_only_inside() -> None:
    flags = UOp.define(Ops.DEFINE_GLOBAL, dtypes.int32, 6, 1)
    values = UOp.define(Ops.DEFINE_GLOBAL, dtypes.int32, 6, 2)
    condition = R.alu(Ops.CMPEQ, N) & (flags.index(R) < 3)
    picked = collapsed(condition.where(values.index(R), number(0)))
    for memory in (flags, values):
        (access,) = reads_of(picked, memory)
        valid, index, otherwise = access.src[1].src
        assert index is N and otherwise.arg is Invalid
        assert all(
            0 <= chosen["n"] < 6
            for chosen in assignments([N])
            if memory is flags and value_of(valid, chosen)
        )


def test_a_position_that_is_a_choice_is_gated_too() -> None:
    table = UOp.define(Ops.DEFINE_GLOBAL, dtypes.int32, 4, 1)
    chosen = (R < 2).where(R, R + -2)
    picked = collapsed(R.alu(Ops.CMPEQ, N).where(table.index(chosen), number(0)))
    (access,) = reads_of(picked, table)
    assert access.src[1].op is Ops.WHERE and access.src[1].src[2].arg is Invalid


def test_a_gather_of_a_gather_reads_no_position_that_is_outside() -> None:
    first = UOp.define(Ops.DEFINE_GLOBAL, dtypes.int32, 6, 1)
    second = UOp.define(Ops.DEFINE_GLOBAL, dtypes.int32, 4, 2)
    place = first.index(R).cast(dtypes.index)
    inner = ((place < 0).logical_not() & (place < 4)).where(place, Invalid)
    picked = collapsed(R.alu(Ops.CMPEQ, N).where(second.index(inner), number(0)))
    for access in reads_of(picked, first) + reads_of(picked, second):
        assert access.src[1].op is Ops.WHERE and access.src[1].src[2].arg is Invalid
