"""Simplification: chosen forms, and random expressions against brute force."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.uop.brute_force import assignments, value_of
from tgcore.dtype import Invalid, dtypes
from tgcore.uop import Ops, UOp
from tgcore.uop.symbolic import simplify, simplify_given


def var(name: str, low: int, high: int) -> UOp:
    return UOp.variable(name, low, high)


I, J = var("i", 0, 7), var("j", 0, 3)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (I + 0, I),
        (I * 1, I),
        (I * 0, I.const_like(0)),
        (I + I, I * 2),
        (I * 2 + I * 3, I * 5),
        ((I + 1) + 2, I + 3),
        ((I + J) * 4, I * 4 + J * 4),
        (I // 8, I.const_like(0)),
        (I % 8, I),
        ((I * 4 + J) // 4, I),
        ((I * 4 + J) % 4, J),
        ((I * 8 + J) // 2, I * 4 + J // 2),
        ((I * 4 + J) // 4 * 4 + (I * 4 + J) % 4, I * 4 + J),
        ((I // 2) // 2, I // 4),
        ((I + 8) // 8, I.const_like(1)),
        ((I * -1 + 7) // 8, I.const_like(0)),
        (I * 3 < 7, I < 3),
        (I + 2 < 5, I < 3),
        ((I * 4 + J) < 8, I < 2),
        ((I < 5) & (I < 3), I < 3),
        (I.maximum(9), I.const_like(9)),
    ],
)
def test_simplify_to(before: UOp, after: UOp) -> None:
    assert simplify(before) is simplify(after)


def test_sums_of_equal_terms_are_one_node_in_any_order() -> None:
    assert simplify(J + I * 3 + 1) is simplify(1 + I * 3 + J)


def test_double_negation_vanishes() -> None:
    condition = I < 3
    assert simplify(condition.logical_not().logical_not()) is condition


def test_where_of_equal_branches_vanishes() -> None:
    assert simplify((I < 3).where(J, J)) is J


def test_float_times_zero_stays() -> None:
    x = UOp(Ops.DEFINE_GLOBAL, dtypes.float32.ptr(4), (), 0).index(I)
    assert simplify(x * 0.0) is x * 0.0


def test_a_condition_simplifies_the_index_it_guards() -> None:
    assert simplify_given((I % 4), I < 4) is I


def test_invalid_moves_to_the_top() -> None:
    valid = I < 4
    moved = simplify(valid.where(I, Invalid) * 2 + 1)
    assert moved.op is Ops.WHERE and moved.src[2].arg is Invalid and moved.src[0] is valid


@pytest.mark.parametrize("size", [var("n", 1, 16)])
def test_symbolic_sizes_divide_out(size: UOp) -> None:
    r = UOp.range(size, 0)
    assert simplify((r + size * I) // size) is I
    assert simplify((r + size * I) % size) is r


# *** random expressions ***


@st.composite
def variables(draw: st.DrawFn) -> list[UOp]:
    lows = [draw(st.sampled_from([0, 0, 0, -3, 1])) for _ in "abc"]
    return [var(name, low, low + draw(st.integers(1, 6))) for name, low in zip("abc", lows)]


DIVISORS = st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16])


@st.composite
def expressions(draw: st.DrawFn) -> tuple[list[UOp], UOp]:
    free = draw(variables())
    leaf = st.one_of(
        st.sampled_from(free), st.integers(-10, 20).map(lambda c: UOp.const(dtypes.index, c))
    )

    def extend(inner: st.SearchStrategy[UOp]) -> st.SearchStrategy[UOp]:
        return st.one_of(
            st.tuples(inner, inner).map(lambda p: p[0] + p[1]),
            st.tuples(inner, st.integers(-4, 12)).map(lambda p: p[0] * p[1]),
            st.tuples(inner, DIVISORS).map(lambda p: p[0] // p[1]),
            st.tuples(inner, DIVISORS).map(lambda p: p[0] % p[1]),
            st.tuples(inner, inner).map(lambda p: p[0].maximum(p[1])),
            st.tuples(inner, st.integers(-5, 20), inner, inner).map(
                lambda p: (p[0] < p[1]).where(p[2], p[3])
            ),
        )

    return free, draw(st.recursive(leaf, extend, max_leaves=10))


@settings(max_examples=300, deadline=None)
@given(expressions())
def test_simplified_expressions_have_the_same_values(case: tuple[list[UOp], UOp]) -> None:
    free, expression = case
    simplified = simplify(expression)
    for chosen in assignments(free):
        expected = value_of(expression, chosen)
        assert value_of(simplified, chosen) == expected, (chosen, expression, simplified)


@settings(max_examples=200, deadline=None)
@given(expressions())
def test_values_lie_within_the_bounds(case: tuple[list[UOp], UOp]) -> None:
    free, expression = case
    for chosen in assignments(free):
        assert expression.vmin <= value_of(expression, chosen) <= expression.vmax


@settings(max_examples=200, deadline=None)
@given(expressions())
def test_simplification_is_idempotent(case: tuple[list[UOp], UOp]) -> None:
    simplified = simplify(case[1])
    assert simplify(simplified) is simplified


@settings(max_examples=200, deadline=None)
@given(expressions(), st.integers(-5, 30))
def test_an_expression_simplified_under_a_condition_is_right_where_it_holds(
    case: tuple[list[UOp], UOp], limit: int
) -> None:
    free, expression = case
    condition = simplify(free[0] + free[1] < limit)
    simplified = simplify_given(simplify(expression), condition)
    for chosen in assignments(free):
        if value_of(condition, chosen):
            assert value_of(simplified, chosen) == value_of(expression, chosen)


# *** windows ***

ROW, WINDOW = var("i", 0, 7), var("j", 0, 3)
INSIDE = (ROW + WINDOW * 10 + 1) % 11 < 8


def test_a_position_in_a_repeated_row_is_compared_without_wrapping_around() -> None:
    simplified = simplify(INSIDE)
    assert all(node.op is not Ops.MOD for node in simplified.toposort())
    for chosen in assignments([ROW, WINDOW]):
        assert value_of(simplified, chosen) == value_of(INSIDE, chosen)


def test_inside_its_window_a_position_needs_no_division() -> None:
    row = UOp.range(8, 0)
    window = UOp.range(4, 1)
    flat = row + window * 10 + 1
    inside = simplify(flat % 11 < 8)
    assert simplify_given(simplify(flat // 11), inside) is window
    assert simplify_given(simplify(flat % 11), inside) is simplify(row + window * -1 + 1)


def test_gates_of_lanes_are_no_constant_of_the_address() -> None:
    lanes = UOp.const(dtypes.bool.vec(2), (False, True))
    address = UOp(Ops.WHERE, dtypes.index, (lanes, UOp.const(dtypes.index, 0), UOp.invalid()))
    assert simplify(address) is address


# *** conditions are never lost ***


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x * 2,
        lambda x: x * 0,
        lambda x: x % 1,
        lambda x: x // 5,
        lambda x: x.maximum(9),
        lambda x: x + 1,
    ],
    ids=["doubled", "times 0", "modulo 1", "divided", "at least 9", "plus 1"],
)
def test_an_index_whose_value_is_known_keeps_its_condition(use: Callable[[UOp], UOp]) -> None:
    valid = I < 3
    for index in (UOp.const(dtypes.index, 4), J):
        simplified = simplify(use(valid.where(index, Invalid)))
        assert simplified.op is Ops.WHERE and simplified.src[0] is valid
        assert simplified.src[2].arg is Invalid


def test_what_an_index_reads_keeps_its_own_gate() -> None:
    table = UOp.define(Ops.DEFINE_GLOBAL, dtypes.int32, 4, 1)
    inside = (I < 4).where(I, Invalid)
    position = table.index(inside).cast(dtypes.index) + I % 4
    # the read happens whether or not the condition on the address holds
    found = simplify_given(position, I < 4)
    assert table.index(inside) in found.toposort()
    assert all(node.op is not Ops.MOD for node in found.toposort())


def test_a_condition_on_a_machine_integer_keeps_its_type() -> None:
    x = UOp(Ops.DEFINE_VAR, dtypes.uint8, (), ("x", 20, 22))
    assert simplify_given(x.cast(dtypes.index), x < 22) is x.cast(dtypes.index)
    assert simplify_given(x.maximum(21).cast(dtypes.index), x < 22) is I.const_like(21)


def test_no_divisor_becomes_zero_where_the_condition_does_not_hold() -> None:
    divisor = I.maximum(1)
    assert simplify_given(J * 7 // divisor, (I < 1).logical_not()) is simplify(J * 7 // divisor)
