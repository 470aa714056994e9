"""Random kernels with random moves give the same numbers in each language; and a test of that."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.codegen import kernel_fuzzer
from tests.codegen.grid import GRID
from tests.codegen.kernel_fuzzer import (
    Failure,
    check,
    check_on_grid,
    difference,
    draw,
    random_moves,
    shrink,
    shrink_on_grid,
)
from tests.codegen.matrix_instructions import NVIDIA, TINY
from tests.codegen.running import given, kernel_of, normal
from tests.schedule.graphs import matmul
from tgcore.codegen import Kernel, Opt, OptOps, expand, group, lower, optimize
from tgcore.codegen.opt import grid
from tgcore.codegen.opt import kernel as moves
from tgcore.helpers import Context
from tgcore.uop import AxisType, Ops, UOp

CHUNKS, PAIRS = 24, 125  # 3000 pairs in all
GRID_CHUNKS, GRID_PAIRS = 10, 50
CHIP = replace(GRID, tensor_cores=(*TINY, *NVIDIA), local_items=128, local_bytes=1 << 13)


@pytest.mark.once
@pytest.mark.timeout(300)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_moves_change_no_result(chunk: int) -> None:
    # most without the compilers' own optimisations, which cost more than all else
    level = 3 if chunk % 8 == 7 else 0
    pairs = draw(seed=1000 + chunk, count=PAIRS)
    assert len(pairs) == PAIRS
    failures = check(pairs, level)
    assert not failures, "\n\n".join(str(shrink(f, level)) for f in failures[:3])


@pytest.mark.once
@pytest.mark.timeout(300)
@pytest.mark.parametrize("chunk", range(GRID_CHUNKS))
def test_grid_moves_change_no_result(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With default moves as for large kernels in half of the chunks."""
    monkeypatch.setattr(grid, "_ENOUGH_ITEMS", 64 if chunk % 2 else 1 << 14)
    pairs = draw(seed=2000 + chunk, count=GRID_PAIRS, target=CHIP)
    failures = check_on_grid(pairs, CHIP)
    assert not failures, "\n\n".join(str(shrink_on_grid(f, CHIP)) for f in failures[:3])


@pytest.mark.once
def test_grid_moves_are_of_all_kinds() -> None:
    pairs = draw(seed=6, count=400, target=CHIP)
    made = Counter(o.op for p in pairs for o in p.opts or ())
    for move in (OptOps.UPCAST, OptOps.UNROLL, OptOps.LOCAL, OptOps.GROUP, OptOps.GROUPTOP):
        assert made[move] > 20, move
    for move in (OptOps.TC, OptOps.SWAP, OptOps.PADTO):
        assert made[move] > 10, move


def grid_failures_of(seeds: range) -> list[Failure]:
    for seed in seeds:
        if found := check_on_grid(draw(seed, 20, target=CHIP), CHIP):
            return found
    return []


def without_barriers(effects: tuple[UOp, ...]) -> UOp:
    return UOp.group(*effects)


def test_a_missing_barrier_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "barrier", without_barriers)
    found = grid_failures_of(range(8))
    assert found and all("DataRaceError" in f.message for f in found)
    assert {OptOps.GROUP, OptOps.GROUPTOP} & {
        o.op for o in shrink_on_grid(found[0], CHIP).shortest or ()
    }


def test_a_store_by_all_items_of_a_group_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "_stored_once", lambda ast, positions: ast)
    found = grid_failures_of(range(8))
    assert found and all("writes what another one writes" in f.message for f in found)


@pytest.mark.once
def test_kernels_and_moves_are_of_all_kinds() -> None:
    pairs = draw(seed=5, count=400)
    ops = Counter(n.op for p in pairs[::5] for n in p.kernel.ast.toposort())
    for op in (Ops.REDUCE, Ops.CAST, Ops.WHERE, Ops.DEFINE_VAR, Ops.BUFFERIZE, Ops.IDIV, Ops.SHR):
        assert ops[op], op
    made = Counter(o.op for p in pairs for o in p.opts or ())
    for move in (OptOps.UPCAST, OptOps.UNROLL, OptOps.THREAD, OptOps.SWAP, OptOps.PADTO):
        assert made[move] > 20, move
    assert sum(p.opts is None for p in pairs) > 20
    assert sum(len(p.kernel.outputs) > 1 for p in pairs) > 10
    exact = sum(max(p.kernel.outputs.values()) == 0 for p in pairs)
    assert len(pairs) / 2 < exact < len(pairs)


def test_the_same_seed_draws_the_same_pairs() -> None:
    first, second = draw(seed=3, count=20), draw(seed=3, count=20)
    assert [(p.kernel.ast, p.opts) for p in first] == [(p.kernel.ast, p.opts) for p in second]


def test_random_moves_are_legal() -> None:
    ast = kernel_of(matmul(given(normal(8, 12)), given(normal(12, 6))))
    for seed in range(30):
        optimize(ast, kernel_fuzzer._TARGET, random_moves(random.Random(seed), ast))


def test_only_what_rounding_explains_is_allowed() -> None:
    a = np.array([1.0, np.nan, np.inf, 2.0])
    assert difference(a, a.copy(), 0.0) is None
    b = a + np.array([1e-6, 0, 0, 0])
    assert difference(b, a, 1e-6) is None
    assert "[0] is 1.000001, without moves 1.0" in str(difference(b, a, 1e-7))
    assert "1 of 4 elements differ" in str(difference(np.array([1.0, 0, np.inf, 2]), a, 1e9))


# *** the fuzzer can fail ***


def broken_swap(kernel: Kernel, opt: Opt) -> None:
    """The indices of only one of the two axes change places."""
    a, b = kernel.range_at(opt.axis), kernel.range_at(opt.arg)
    if a.axis_type is not b.axis_type or a is b or a.vmax != b.vmax:
        raise moves.KernelOptError("not this one")
    accesses = {n: n.substitute({a: b}) for n in kernel.nodes if n.op is Ops.INDEX}
    kernel.substitute(accesses)


def broken_padding(kernel: Kernel, opt: Opt) -> None:
    """The steps of a reduce beyond its end are not left out."""
    r = kernel.range_at(opt.axis)
    if r.axis_type is not AxisType.REDUCE or not opt.arg or r.vmax < 2:
        raise moves.KernelOptError("not this one")
    kernel.substitute({r: r.replace(src=(r.src[0].const_like(r.vmax),))})


def broken_lanes(vector_op: Ops, vector: UOp) -> UOp:
    """The lanes of a vector are not combined: the first is taken."""
    return vector.gep(0)


def broken_stride(index: UOp, r: UOp) -> int | None:
    """Any stride counts as that of neighbours."""
    found = stride_along(index, r)
    return 1 if found == 2 else found


def broken_gate(index: UOp) -> Any:
    """Accesses are never gated."""
    return (None, split_valid(index)[1])


stride_along, split_valid = expand.stride_along, lower.split_valid


def failures_of(seeds: range) -> list[Failure]:
    found: list[Failure] = []
    for seed in seeds:
        found += check(draw(seed, 60, interpreted=10))
        if found:
            break
    return found


BREAK: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], set[OptOps]]] = {
    "swap": (
        lambda patch: patch.setitem(moves._MOVES, OptOps.SWAP, broken_swap),
        {OptOps.SWAP},
    ),
    "padding": (
        lambda patch: patch.setitem(moves._MOVES, OptOps.PADTO, broken_padding),
        {OptOps.PADTO},
    ),
    "lanes": (
        lambda patch: patch.setattr(expand, "horizontal", broken_lanes),
        {OptOps.UNROLL},
    ),
    "stride": (
        lambda patch: patch.setattr(expand, "stride_along", broken_stride),
        {OptOps.UPCAST, OptOps.UNROLL},
    ),
}


@pytest.mark.parametrize("what", BREAK)
def test_a_broken_move_is_found(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    break_it, kinds = BREAK[what]
    break_it(monkeypatch)
    found = failures_of(range(8))
    assert found
    shortest = [shrink(f).shortest or [] for f in found[:4] if f.pair.opts is not None]
    assert shortest and all(kinds & {o.op for o in opts} for opts in shortest)
    text = str(shrink(found[0]))
    assert "batch seed" in text and "shortest that fail: [Opt(" in text and "UOp" in text


def test_a_store_that_leaves_its_memory_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without gates, padded axes write beyond the ends of buffers."""
    monkeypatch.setattr(lower, "split_valid", broken_gate)
    with Context(SPEC=0):  # the specs would not even let such a program be made
        found = failures_of(range(8))
    messages = " ".join(f.message for f in found)
    assert "writes beyond the ends" in messages or "does not exist" in messages
