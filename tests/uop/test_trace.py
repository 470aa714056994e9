"""Traced rewriting: what is recorded, and that it changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.schedule import graphs
from tests.uop.golden_graphs import kernel
from tgcore.helpers import Context
from tgcore.schedule import clear_schedule_cache
from tgcore.uop import Ops, UOp, trace
from tgcore.uop.pattern import PatternMatcher, UPat
from tgcore.uop.rewrite import graph_rewrite

I, J = UOp.variable("i", 0, 7), UOp.variable("j", 0, 7)


def drop_zero(x: UOp) -> UOp:
    return x


def halve(x: UOp) -> UOp:
    return graph_rewrite(x, ZEROS, name="inner") // 2


ZEROS = PatternMatcher([(UPat.var("x") + 0, drop_zero)])
SHIFTS = PatternMatcher([(UPat(Ops.SHR, src=(UPat.var("x"), UPat.const(1))), halve)])
GRAPH = (I + 0) * (J + 0) + 3


@pytest.fixture(autouse=True)
def nothing_traced() -> Iterator[None]:
    trace.clear()
    yield
    trace.clear()


def place(function: object) -> str:
    code = function.__code__  # type: ignore[attr-defined]
    return f"{code.co_filename}:{code.co_firstlineno}"


def test_nothing_is_kept_unless_asked_for() -> None:
    with Context(TRACE_REWRITES=0):
        graph_rewrite(GRAPH, ZEROS, name="zeros")
    assert trace.rewrites() == []


def test_a_rewrite_records_its_graphs_and_matches() -> None:
    with Context(TRACE_REWRITES=1):
        result = graph_rewrite(GRAPH, ZEROS, name="zeros")
    (record,) = trace.rewrites()
    assert result is I * J + 3
    assert (record.name, record.depth) == ("zeros", 0)
    assert record.before is GRAPH and record.after is result
    assert [(m.rule, m.before, m.after) for m in record.matches] == [
        (place(drop_zero), I + 0, I),
        (place(drop_zero), J + 0, J),
    ]


def test_totals_count_tries_and_matches() -> None:
    with Context(TRACE_REWRITES=2):
        graph_rewrite(GRAPH, ZEROS, name="zeros")
    (record,) = trace.rewrites()
    totals = record.rules[place(drop_zero)]
    # both sums with 0; the outer sum has a constant, but not 0
    assert (totals.tries, totals.matches) == (3, 2)
    assert record.before is None and record.matches == []


def test_rewrites_that_rules_start_are_inside_and_their_time_is_not_the_rules() -> None:
    with Context(TRACE_REWRITES=1):
        graph_rewrite((I + 0) >> 1, SHIFTS, name="outer")
    outer, inner = trace.rewrites()
    assert (outer.name, outer.depth, inner.name, inner.depth) == ("outer", 0, "inner", 1)
    assert outer.seconds >= inner.seconds + outer.own_seconds - 1e-9
    assert sum(t.seconds for t in outer.rules.values()) <= outer.own_seconds


@pytest.mark.parametrize("bottom_up", [False, True])
def test_tracing_changes_no_result(bottom_up: bool) -> None:
    plain = graph_rewrite(GRAPH, ZEROS, bottom_up=bottom_up)
    with Context(TRACE_REWRITES=1):
        assert graph_rewrite(GRAPH, ZEROS, bottom_up=bottom_up) is plain


def test_a_rule_that_fails_ends_its_record() -> None:
    def fail(x: UOp) -> UOp:
        raise ZeroDivisionError

    matcher = PatternMatcher([(UPat.var("x") + 3, fail)])
    with Context(TRACE_REWRITES=1):
        with pytest.raises(ZeroDivisionError):
            graph_rewrite(GRAPH, matcher, name="fails")
        graph_rewrite(GRAPH, ZEROS, name="next")
    assert [(r.name, r.depth) for r in trace.rewrites()] == [("fails", 0), ("next", 0)]
    assert trace.at_work() is None


def test_every_pass_of_the_compiler_has_a_name() -> None:
    clear_schedule_cache()
    with Context(TRACE_REWRITES=1):
        kernel(graphs.softmax(graphs.buffer(4, 8)))
    assert trace.rewrites() and all(r.name for r in trace.rewrites())
