"""Patterns, matchers, and rewriting to a fixed point."""

from __future__ import annotations

import pytest

from tgcore.dtype import dtypes
from tgcore.errors import RewriteLoopError
from tgcore.uop import Ops, UOp
from tgcore.uop.pattern import PatternMatcher, UPat
from tgcore.uop.rewrite import graph_rewrite

I, J = UOp.variable("i", 0, 7), UOp.variable("j", 0, 7)


def test_commutative_sources_match_in_any_order() -> None:
    pm = PatternMatcher([(UPat.var("x") + UPat.cvar("c"), lambda x, c: x)])
    assert pm.rewrite(UOp(Ops.ADD, dtypes.index, (I.const_like(3), I))) is I


def test_fixed_sources_match_in_their_order_only() -> None:
    pm = PatternMatcher([(UPat.var("x") // UPat.cvar("c"), lambda x, c: x)])
    assert pm.rewrite(I // 3) is I
    assert pm.rewrite(UOp(Ops.IDIV, dtypes.index, (I.const_like(3), I))) is None


def test_one_name_must_be_one_node() -> None:
    pm = PatternMatcher([(UPat.var("x") + UPat.var("x"), lambda x: x * 2)])
    assert pm.rewrite(I + I) is I * 2
    assert pm.rewrite(I + J) is None


def test_types_match_by_lane() -> None:
    pm = PatternMatcher([(UPat(Ops.CONST, dtypes.float32, name="c"), lambda c: c.const_like(0))])
    vector = UOp.const(dtypes.float32.vec(4), 1.0)
    assert pm.rewrite(vector) is UOp.const(dtypes.float32.vec(4), 0.0)
    assert pm.rewrite(UOp.const(dtypes.float64, 1.0)) is None


def test_any_tries_its_patterns_in_order() -> None:
    either = UPat.any(UPat.var("x") + 1, UPat.var("x") * 2)
    pm = PatternMatcher([(UPat(Ops.IDIV, src=(either, UPat())), lambda x: x)])
    assert pm.rewrite((I + 1) // J) is I
    assert pm.rewrite((I * 2) // J) is I


def test_any_len_matches_the_first_sources() -> None:
    pm = PatternMatcher([(UPat(Ops.SINK, src=(UPat.var("x"),), any_len=True), lambda x: x)])
    assert pm.rewrite(UOp.sink(I, J)) is I


def test_a_repeated_pattern_holds_for_every_source() -> None:
    pm = PatternMatcher([(UPat(Ops.SINK, src=UPat(Ops.DEFINE_VAR), name="s"), lambda s: s.src[0])])
    assert pm.rewrite(UOp.sink(I, J)) is I
    assert pm.rewrite(UOp.sink(I, I + 1)) is None


def test_the_first_rule_that_matches_wins() -> None:
    first = PatternMatcher([(UPat.var("x") + 0, lambda x: x)])
    second = PatternMatcher([(UPat.var("x") + UPat.var("y"), lambda x, y: y)])
    node = UOp(Ops.ADD, dtypes.index, (I, I.const_like(0)))
    assert (first + second).rewrite(node) is I
    assert (second + first).rewrite(node) is I.const_like(0)


def test_a_rule_may_ask_for_the_context() -> None:
    pm = PatternMatcher([(UPat(Ops.DEFINE_VAR, name="v"), lambda ctx, v: ctx[v])])
    assert graph_rewrite(I + J, pm, {I: I.const_like(1), J: J.const_like(2)}).src[0].arg == 1


def test_a_rule_that_wants_a_name_its_pattern_lacks_is_an_error_that_says_where() -> None:
    pm = PatternMatcher([(UPat.var("x") + 1, lambda y: y)])
    with pytest.raises(TypeError, match=r"test_pattern\.py:\d+ wants \['y'\]"):
        pm.rewrite(I + 1)


def test_rewriting_goes_on_until_nothing_matches() -> None:
    pm = PatternMatcher(
        [
            (
                (UPat.var("x") + UPat.cvar("a")) + UPat.cvar("b"),
                lambda x, a, b: x + (a.arg + b.arg),
            )
        ]
    )
    node = I
    for step in range(500):
        node = node.alu(Ops.ADD, I.const_like(step))
    assert graph_rewrite(node, pm) is I + sum(range(500))


def test_bottom_up_enters_what_a_rule_returns() -> None:
    pm = PatternMatcher([(UPat(Ops.MUL, src=(UPat.var("x"), UPat.cvar("c"))), lambda x, c: x + x)])
    assert graph_rewrite((I * 3) * 5, pm, bottom_up=True) is (I + I) + (I + I)


def test_rules_that_undo_each_other_are_an_error_that_names_the_pass() -> None:
    pm = PatternMatcher(
        [
            (UPat.var("x") + 1, lambda x: x + 2),
            (UPat.var("x") + 2, lambda x: x + 1),
        ]
    )
    with pytest.raises(RewriteLoopError, match="endless pass"):
        graph_rewrite(I + 1, pm, name="endless pass")


def test_a_deep_graph_is_rewritten_without_recursion() -> None:
    pm = PatternMatcher([(UPat(Ops.DEFINE_VAR, name="v"), lambda v: v.const_like(1))])
    node = I
    for _ in range(50_000):
        node = node.alu(Ops.MAX, J)
    rewritten = graph_rewrite(node, pm)
    assert len(rewritten.toposort()) == 50_001
