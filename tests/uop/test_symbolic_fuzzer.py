"""Random expressions in each run, and proof that the fuzzer sees what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.uop import symbolic_fuzzer
from tests.uop.brute_tables import Table, Undefined, leaves_of
from tests.uop.symbolic_fuzzer import Case, Flaw, Generator, find_flaw, run, shrink
from tgcore.dtype import Invalid, dtypes
from tgcore.uop import Ops, UOp, facts, symbolic
from tgcore.uop.pattern import PatternMatcher, UPat

CHUNKS, CHUNK = 20, 5000


@pytest.mark.once
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_expressions_keep_their_values_when_simplified(chunk: int) -> None:
    flaws = run(CHUNK, seed=chunk)
    assert not flaws, "\n\n".join(str(shrink(flaw)) for flaw in flaws[:3])


def test_one_seed_gives_the_same_cases_each_time() -> None:
    first, second = Generator(5).cases(), Generator(5).cases()
    assert all(next(first) == next(second) for _ in range(200))


def test_the_cases_are_of_all_kinds() -> None:
    cases = Generator(0).cases()
    seen: Counter[Any] = Counter()
    for _ in range(3000):
        case = next(cases)
        nodes = case.expression.toposort()
        seen.update({n.op for n in nodes} | {n.dtype for n in nodes})
        seen.update({"given": case.condition is not None, "constants": case.position >= 0})
        seen["invalid"] += any(n.arg is Invalid for n in nodes)
        seen["symbolic size"] += any(
            n.op is Ops.RANGE and n.src[0].op is Ops.DEFINE_VAR for n in nodes
        )
        seen["nested division"] += any(
            n.op in (Ops.IDIV, Ops.MOD) and n.src[0].op in (Ops.IDIV, Ops.MOD) for n in nodes
        )
    wanted = (
        *(Ops.ADD, Ops.MUL, Ops.IDIV, Ops.MOD, Ops.MAX, Ops.WHERE, Ops.CAST, Ops.CMPLT, Ops.CMPNE),
        *(Ops.CMPEQ, Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR, Ops.NEG, Ops.SUB, Ops.REDUCE),
        *(dtypes.index, dtypes.bool, *symbolic_fuzzer.MACHINE),
        *("given", "constants", "invalid", "symbolic size", "nested division"),
    )
    assert {name: seen[name] for name in wanted if seen[name] < 20} == {}


# *** the brute force is right ***


def values_of(expression: UOp) -> list[int]:
    table = Table(leaves_of([expression]))
    return [int(v) for v in table.fill(expression)]


A = UOp.variable("a", -3, 3)
SMALL = UOp(Ops.DEFINE_VAR, dtypes.int8, (), ("s", -3, 3))
R = UOp.range(3, 0)


def test_indices_are_divided_with_floors() -> None:
    assert values_of(A // 2) == [-2, -1, -1, 0, 0, 1, 1]
    assert values_of(A % 2) == [1, 0, 1, 0, 1, 0, 1]
    assert values_of(A % -2) == [-1, 0, -1, 0, -1, 0, -1]


def test_machine_integers_are_divided_towards_zero() -> None:
    assert values_of(SMALL // 2) == [-1, -1, 0, 0, 0, 1, 1]
    assert values_of(SMALL % 2) == [-1, 0, -1, 0, 1, 0, 1]
    assert values_of(SMALL // -2) == [1, 1, 0, 0, 0, -1, -1]


def test_machine_integers_wrap_around() -> None:
    assert values_of(SMALL + 126) == [123, 124, 125, 126, 127, -128, -127]
    assert values_of(SMALL.cast(dtypes.uint8)) == [253, 254, 255, 0, 1, 2, 3]
    assert values_of(SMALL.const_like(-128) // -1) == [-128]


def test_a_range_lies_below_the_variable_that_is_its_size() -> None:
    n = UOp.variable("n", 1, 3)
    assert values_of(UOp.range(n, 0) * 10 + n) == [1, 2, 12, 3, 13, 23]


def test_what_may_be_invalid_is_known_to_be() -> None:
    gated = (R < 2).where(R, Invalid) * 2
    table = Table(leaves_of([gated]))
    table.fill(gated)
    assert table.where_valid(gated).tolist() == [True, True, False]


def test_a_sum_over_a_range_stands_beside_each_of_its_values() -> None:
    other = UOp.range(2, 1)
    total = (R * 2 + other).reduce(Ops.ADD, R)
    assert np.array(values_of(total)).reshape(3, 2).tolist() == [[6, 9]] * 3


def test_a_division_by_zero_has_no_value() -> None:
    with pytest.raises(Undefined):
        values_of(R // A)


# *** the fuzzer can fail ***

_X, _C = UPat.var("x", dtypes.index), UPat.cvar("c")


def first_flaw(check: str, most: int = 20_000) -> Flaw:
    """The first flaw of the kind among random cases."""
    cases = Generator(3).cases()
    for _ in range(most):
        try:
            flaw = find_flaw(next(cases))
        except Undefined:
            continue
        if flaw is not None and flaw.check == check:
            return flaw
    raise AssertionError(f"no flaw {check} was found")


WRONG_RULES: dict[str, tuple[UPat, Callable[..., UOp | None]]] = {
    "a remainder that is hardly ever one": (
        _X % _C,
        lambda x, c: x if c.arg > 0 and x.vmin >= 0 and x.vmax <= c.arg else None,
    ),
    "a division that forgets negative numbers": (
        (_X // _C) * UPat.cvar("d"),
        lambda x, c, d: x if c.arg == d.arg and x.vmin < -c.arg else None,
    ),
    "a comparison that is off by one": (
        _X < _C,
        lambda x, c: UOp.const(dtypes.bool, True) if x.vmax == c.arg == 5 else None,
    ),
    "a greater one that is the first one": (
        _X.maximum(UPat.var("y")),
        lambda x, y: x if x.vmin >= y.vmin and x.vmax > y.vmax and x.op is Ops.MOD else None,
    ),
    "a sum of machine integers that does not wrap around": (
        UPat.var("x", symbolic_fuzzer.MACHINE).cast(dtypes.index, name="c"),
        lambda x, c: x.src[0].cast(c.dtype) + x.src[1].cast(c.dtype) if x.op is Ops.ADD else None,
    ),
}


@pytest.mark.parametrize("name", WRONG_RULES)
def test_a_wrong_rule_is_caught_and_shown_in_a_small_case(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = PatternMatcher([WRONG_RULES[name]]) + symbolic.symbolic
    monkeypatch.setattr(symbolic, "symbolic", wrong)
    small = shrink(first_flaw("value"))
    assert small.check == "value"
    assert len(small.case.expression.toposort()) <= 11, str(small)
    monkeypatch.undo()
    assert find_flaw(small.case) is None


def test_wrong_bounds_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = facts._BOUND_RULES[Ops.MAX]
    monkeypatch.setitem(
        facts._BOUND_RULES, Ops.MAX, lambda n: (right(n)[0], max(right(n)[1] - 1, right(n)[0]))
    )
    # nodes that are alive have the right bounds already: these have not been made before
    x = UOp.variable("wrong_bounds", 11, 17)
    flaw = find_flaw(Case(x.maximum(13)))
    assert flaw is not None and flaw.check == "bounds"


def test_a_form_that_is_not_final_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = {"n": 0}

    def alternate(node: UOp, x: UOp, y: UOp) -> UOp | None:
        calls["n"] += 1
        return node.replace(src=(y, x)) if calls["n"] % 7 == 1 and x is not y else None

    swap = (UPat(Ops.OR, src=(UPat.var("x"), UPat.var("y")), name="node"), alternate)
    monkeypatch.setattr(symbolic, "symbolic", PatternMatcher([swap]) + symbolic.symbolic)
    assert first_flaw("idempotence").check == "idempotence"


def test_a_wrong_limit_from_a_condition_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = symbolic.parse_limit

    def off_by_one(clause: UOp) -> tuple[UOp, bool, int] | None:
        found = right(clause)
        return None if found is None else (found[0], found[1], found[2] - found[1])

    monkeypatch.setattr(symbolic, "parse_limit", off_by_one)
    small = shrink(first_flaw("given"))
    assert small.case.condition is not None and small.case.position < 0
    assert len(small.case.condition.toposort()) <= 6, str(small)


def test_a_rule_that_raises_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = (_X % _C, lambda x, c: x // (c.arg - 4) % 4 if 1 // (c.arg - 4) else None)
    monkeypatch.setattr(symbolic, "symbolic", PatternMatcher([broken]) + symbolic.symbolic)
    flaw = find_flaw(Case(R % 4))
    assert flaw is not None and flaw.check == "crash" and "ZeroDivisionError" in str(flaw)


def test_a_flaw_is_shown_as_python_that_makes_it_again() -> None:
    case = Case((R * 2 + 1) % 3, condition=R < 2, position=1)
    text = str(Flaw("value", case, "1 became 2"))
    assert text.startswith("# value: 1 became 2\n") and "result = " in text and "# given" in text
