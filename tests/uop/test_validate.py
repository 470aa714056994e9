"""Programs that stay inside their memory are proved; programs that do not are caught, with values
for which they do not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.codegen.running import VECTORS
from tgcore import Tensor, Variable
from tgcore.codegen import Opt, OptOps, lower_kernel, optimize
from tgcore.codegen.late.decompositions import decompositions
from tgcore.codegen.late.linearize import linearize
from tgcore.codegen.target import Target
from tgcore.dtype import AddrSpace, DType, dtypes
from tgcore.errors import MissingPackageError, OutOfBoundsError, SpecError, UndecidedBoundsError
from tgcore.helpers import Context
from tgcore.runtime import compile as programs
from tgcore.schedule import create_schedule
from tgcore.uop import AxisType, Ops, UOp, smt, validate
from tgcore.uop.rewrite import graph_rewrite
from tgcore.uop.validate import accesses

I, L, F, B = dtypes.int32, dtypes.int64, dtypes.float32, dtypes.bool

QUOTIENT = frozenset({Ops.FDIV})
SCALAR = Target("S", ops=QUOTIENT)
NARROW = Target("N", ops=QUOTIENT, vector_bytes=16, memory_widths=(2, 4))
GRID = Target(
    "G", ops=QUOTIENT, global_max=(64, 64, 64), local_max=(8, 8, 8), local=True, local_bytes=1 << 15
)
TARGETS = {
    "vectors": replace(VECTORS, ops=QUOTIENT),
    "scalar": SCALAR,
    "narrow": NARROW,
    "grid": GRID,
}


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing counts as proved."""
    validate._proved.clear()
    yield
    validate._proved.clear()


# *** programs written by hand ***


def const(value: Any, dtype: DType = I) -> UOp:
    return UOp.const(dtype, value)


def param(slot: int, size: int, dtype: DType = F) -> UOp:
    return UOp(Ops.DEFINE_GLOBAL, dtype.ptr(size), (), slot)


def loop(size: int | UOp, number: int) -> UOp:
    end = const(size) if isinstance(size, int) else size
    return UOp(Ops.RANGE, end.dtype, (end,), (number, AxisType.LOOP))


def variable(name: str, low: int, high: int, dtype: DType = I) -> UOp:
    return UOp(Ops.DEFINE_VAR, dtype, (), (name, low, high))


def place(name: str, size: int) -> UOp:
    return UOp(Ops.SPECIAL, I, (const(size),), name)


def at(memory: UOp, index: UOp | int, gate: UOp | None = None) -> UOp:
    index = const(index) if isinstance(index, int) else index
    return UOp(Ops.INDEX, memory.dtype, (memory, index, *(() if gate is None else (gate,))))


def loaded(memory: UOp, index: UOp | int, gate: UOp | None = None, lanes: int = 1) -> UOp:
    dtype = memory.dtype.base.vec(lanes)
    other = () if gate is None else (UOp.const(dtype, 0),)
    return UOp(Ops.LOAD, dtype, (at(memory, index, gate), *other))


def number(lanes: int = 1) -> UOp:
    return UOp.const(F.vec(lanes), 1.0)


def store(index: UOp | int, size: int, gate: UOp | None = None, lanes: int = 1) -> UOp:
    return at(param(0, size), index, gate).store(number(lanes))


def linear(effect: UOp) -> list[UOp]:
    """The loops that are open are closed around the effect."""
    for r in sorted(effect.ranges, key=lambda r: r.arg[:-1], reverse=True):
        effect = effect.end(r)
    return linearize(UOp.sink(effect), VECTORS)


def check(effect: UOp) -> None:
    validate.validate(linear(effect), "kernel")


def truncated(a: UOp, b: int) -> UOp:
    return a.alu(Ops.IDIV, a.const_like(b))


R, S = loop(3, 0), loop(4, 1)
LONG = loop(12, 2)
FLAT = R * 4 + S
N = variable("n", 1, 4)
G = place("g0", 4)
IDS = param(1, 3, I)
ID = loaded(IDS, R)
BYTE = loaded(param(1, 3, dtypes.uint8), R)
WIDE = loaded(param(1, 3, L), R)


def inside(x: UOp, size: int) -> UOp:
    return (x < 0).logical_not() & (x < size)


def lanes_below(first: UOp, limit: UOp | int, count: int) -> UOp:
    return UOp.vectorize(*(first + k < limit for k in range(count)))


RIGHT: dict[str, UOp] = {
    "a loop": store(LONG, 12),
    "two loops": store(FLAT, 12),
    "a flip": store(R * -4 + S * -1 + 11, 12),
    "a transposition": store(S * 3 + R, 12),
    "whole vectors": store(R * 4, 12, lanes=4),
    "a masked tail": store(R * 4, 10, lanes_below(R * 4, 10, 4), lanes=4),
    "lanes that are never on": store(
        R * 3, 9, UOp.const(B.vec(4), (True, True, True, False)), lanes=4
    ),
    "lanes before the memory": store(
        R * 4 - 1, 12, UOp.const(B.vec(4), (False, True, True, True)), lanes=4
    ),
    "a store in a branch": store(LONG, 7, LONG < 7),
    "a gated load": at(param(0, 12), LONG).store(
        loaded(param(1, 4), LONG - 4, inside(LONG - 4, 4))
    ),
    "a gather": at(param(0, 3), R).store(loaded(param(2, 7), ID, inside(ID, 7))),
    "a gather that counts from the end": at(param(0, 3), R).store(
        loaded(
            param(2, 7),
            (ID < 0).where(ID + 7, ID),
            inside((ID < 0).where(ID + 7, ID), 7),
        )
    ),
    "a gather of bytes, which need no gate": at(param(0, 3), R).store(loaded(param(2, 256), BYTE)),
    "a gather of rows of vectors": at(param(0, 12), R * 4).store(
        loaded(param(2, 28), ID.cast(L) * 4, UOp.vectorize(*[inside(ID, 7)] * 4), lanes=4)
    ),
    "a symbolic length": store(loop(N, 0), 4),
    "symbolic rows": store(loop(N, 0) * 4 + S, 16),
    "a symbolic stride": store(R * N + loop(N, 3), 12),
    "a symbolic offset": store(N * 3 + R - 3, 12),
    "positions in the launch": store(G * 3 + R, 12),
    "threads with a tail": store(G * 4 + S, 14, G * 4 + S < 14),
    "division and remainder": store(truncated(LONG, 4) + (LONG % 4) * 3, 12),
    "a division that truncates": store(truncated(LONG - 3, 4), 3),
    "a division by a variable": store(LONG.alu(Ops.MOD, N), 4),
    "a shift": store((LONG << 2) >> 3, 6),
    "a mask": store(ID & 7, 8),
    "a clamp": store(-((-ID.maximum(0)).maximum(const(-6))), 7),
    "a clamp by choices": store((ID < 0).where(const(0), (ID < 7).where(ID, const(6))), 7),
    "int64 beyond int32": store(R.cast(L) * (1 << 31) + S.cast(L), (1 << 32) + 4),
    "a wrapped sum that is gated": store(ID + 5, 4, inside(ID + 5, 4)),
    "registers": at(UOp(Ops.DEFINE_REG, F.ptr(12, AddrSpace.REG), (), 0), FLAT).store(number()),
    "vectors in registers": at(UOp(Ops.DEFINE_REG, F.vec(4).ptr(3, AddrSpace.REG), (), 0), R).store(
        number(4)
    ),
    "a condition on a float of its own index": store(
        LONG, 7, (loaded(param(1, 12), LONG) < 0.5) & (LONG < 7)
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_stays_inside_is_proved(name: str) -> None:
    check(RIGHT[name])


# *** mutations: program, values, element that is accessed ***

WRONG: dict[str, tuple[UOp, dict[str, int], int | None]] = {
    "a loop that is one too long": (store(loop(13, 0), 12), {"r0": 12}, 12),
    "memory that is one too small": (store(LONG, 11), {"r2": 11}, 11),
    "an offset of one": (store(LONG + 1, 12), {"r2": 11}, 12),
    "an offset of minus one": (store(LONG - 1, 12), {"r2": 0}, -1),
    "a stride of one more": (store(R * 5 + S, 13), {"r0": 2, "r1": 3}, 13),
    "strides of the transposed shape": (store(R * 3 + S * 4, 18), {"r0": 2, "r1": 3}, 18),
    "a flip from the size, not from the last": (store(R * -1 + 3, 3), {"r0": 0}, 3),
    "a vector over the end": (store(R * 4, 11, lanes=4), {"r0": 2}, 11),
    "a vector before the start": (store(R * 4 - 1, 12, lanes=4), {"r0": 0}, -1),
    "a lane too many that is on": (
        store(R * 3, 8, UOp.const(B.vec(4), (True, True, True, False)), lanes=4),
        {"r0": 2},
        8,
    ),
    "a mask that begins a lane too early": (
        store(R * 4 - 2, 12, UOp.const(B.vec(4), (False, True, True, True)), lanes=4),
        {"r0": 0},
        -1,
    ),
    "a masked tail that is one too long": (
        store(R * 4, 10, lanes_below(R * 4, 11, 4), lanes=4),
        {"r0": 2},
        10,
    ),
    "a branch that is one too wide": (store(LONG, 7, LONG < 8), {"r2": 7}, 7),
    "a branch on another loop's variable": (store(LONG, 2, R < 2), {}, None),
    "a branch that is the wrong way round": (
        store(LONG, 11, (LONG < 11).logical_not()),
        {"r2": 11},
        11,
    ),
    "a gate that holds where one of two limits does": (
        at(param(0, 12), LONG).store(
            loaded(param(1, 8), LONG - 4, (LONG - 4 < 0).logical_not() | (LONG < 1))
        ),
        {"r2": 0},
        -4,
    ),
    "padding without its lower limit": (
        at(param(0, 12), LONG).store(loaded(param(1, 8), LONG - 1, LONG - 1 < 8)),
        {"r2": 0},
        -1,
    ),
    "padding without its upper limit": (
        at(param(0, 12), LONG).store(loaded(param(1, 10), LONG - 1, (LONG < 1).logical_not())),
        {"r2": 11},
        10,
    ),
    "padding without a gate": (
        at(param(0, 12), LONG).store(loaded(param(1, 11), LONG - 1)),
        {"r2": 0},
        -1,
    ),
    "a gather with the size as a position": (
        at(param(0, 3), R).store(loaded(param(2, 7), ID, inside(ID, 8))),
        {"data1[r0]": 7},
        7,
    ),
    "a gather that lets -1 in": (
        at(param(0, 3), R).store(loaded(param(2, 7), ID, (ID < -1).logical_not() & (ID < 7))),
        {"data1[r0]": -1},
        -1,
    ),
    "a gather gated by another position": (
        at(param(0, 3), R).store(loaded(param(2, 7), ID, inside(loaded(IDS, const(2) - R), 7))),
        {},
        None,
    ),
    "a gather of bytes into 255 elements": (
        at(param(0, 3), R).store(loaded(param(2, 255), BYTE)),
        {"data1[r0]": 255},
        255,
    ),
    "a gather of int64 cut to 32 bits before it is tested": (
        at(param(0, 3), R).store(
            loaded(
                param(2, 2),
                WIDE,
                inside(WIDE.cast(I), 2) & (WIDE < (1 << 32) + 1) & (WIDE < 2).logical_not(),
            )
        ),
        {"data1[r0]": 1 << 32},
        1 << 32,
    ),
    "a length that may be longer than the memory": (
        store(loop(variable("n", 1, 5), 0), 4),
        {"r0": 4, "n": 5},
        4,
    ),
    "a variable that may be 0": (
        store(variable("n", 0, 4) - 1, 4),
        {"n": 0},
        -1,
    ),
    "a symbolic stride that is one too wide": (
        store(loop(2, 0) * N + loop(N, 3) + 1, 8),
        {"r0": 1, "r3": 3, "n": 4},
        8,
    ),
    "a launch that is one too wide": (store(place("g0", 5) * 3 + R, 14), {"g0": 4, "r0": 2}, 14),
    "threads without a gate for the tail": (store(G * 4 + S, 15), {"g0": 3, "r1": 3}, 15),
    "a product that overflows": (
        store(loop(3, 0) * (1 << 30) + (1 << 20), (1 << 30) + (1 << 20) + 1),
        {"r0": 2},
        -(1 << 31) + (1 << 20),
    ),
    "a sum of bytes that wraps": (
        store((BYTE + 56).cast(I) - (BYTE < 200).logical_not().cast(I), 256),
        {"data1[r0]": 200},
        -1,
    ),
    "a remainder of a negative number": (store((R - 1) % 2, 2), {"r0": 0}, -1),
    "a quotient that is less than was thought": (
        store(truncated(R * -3 + 1, 2) + 1, 2),
        {"r0": 2},
        -1,
    ),
    "a shift by one too few": (store(LONG >> 1, 5), {}, 5),
    "a mask that is one bit too wide": (store(ID & 7, 7), {}, 7),
    "a clamp to the size": (
        store((ID < 0).where(const(0), (ID < 7).where(ID, const(7))), 7),
        {},
        7,
    ),
    "a maximum where a minimum is meant": (
        store(LONG.maximum(8), 11),
        {"r2": 11},
        11,
    ),
    "registers that are too few": (
        at(UOp(Ops.DEFINE_REG, F.ptr(11, AddrSpace.REG), (), 0), FLAT).store(number()),
        {"r0": 2, "r1": 3},
        11,
    ),
    "local memory that is too small": (
        at(UOp(Ops.DEFINE_LOCAL, F.ptr(11, AddrSpace.LOCAL), (), 0), FLAT).store(number()),
        {"r0": 2, "r1": 3},
        11,
    ),
    "a vector of registers as if it were elements": (
        at(UOp(Ops.DEFINE_REG, F.vec(4).ptr(2, AddrSpace.REG), (), 0), R).store(number(4)),
        {"r0": 2},
        2,
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_leaves_its_memory_is_caught_with_values(name: str) -> None:
    effect, values, position = WRONG[name]
    with pytest.raises(OutOfBoundsError) as caught:
        check(effect)
    error = caught.value
    assert not 0 <= error.position < error.size
    assert position is None or error.position == position, str(error)
    assert error.values.items() >= values.items(), str(error)
    assert error.kernel == "kernel" and f"element {error.position} is accessed" in str(error)


def test_there_are_mutations_of_many_kinds() -> None:
    assert len(WRONG) >= 25


def test_the_message_says_what_where_and_for_which_values() -> None:
    with pytest.raises(OutOfBoundsError) as caught:
        check(store(FLAT + N, 14, S < 3))
    assert (
        str(caught.value)
        == """\
kernel kernel: a store may lie outside parameter 0 of 14 float32 elements
  index:  r0 * 4 + r1 + n
  gate:   r1 < 3
  values: r1 = 2, r0 = 2, n = 4
  then element 14 is accessed; there are 0..13"""
    )


def test_a_condition_counts_only_in_its_branch() -> None:
    memory = param(0, 7)
    address = at(memory, LONG)
    branch = UOp(Ops.IF, dtypes.void, (LONG < 7,))
    first, second = address.store(number()), address.store(const(2.0, F))
    end = UOp(Ops.ENDIF, dtypes.void, (branch,))
    sources = [n for n in first.toposort() if n not in (first, LONG, address)]
    after_loop = UOp(Ops.END, dtypes.void, (first, LONG))
    body = [*sources, LONG, *(LONG < 7).toposort(), address]
    inside_only = [*dict.fromkeys(body), branch, first, end, after_loop]
    validate.validate(inside_only, "kernel")
    both = [*dict.fromkeys([*body, const(2.0, F)]), branch, first, end, second, after_loop]
    with pytest.raises(OutOfBoundsError, match="gate:   none"):
        validate.validate(both, "kernel")


def test_an_access_inside_a_loop_that_may_not_run_needs_no_more_than_that() -> None:
    # with n = 0 the loop does not run, so that element n - 1 is only read where there is one
    n = variable("n", 0, 4)
    rows = loop(n, 0)
    check(at(param(0, 4), rows).store(loaded(param(1, 4).after(rows), n - 1)))


def test_a_counterexample_rests_on_what_is_not_known_only_if_it_says_so() -> None:
    value = loaded(param(1, 12), LONG)
    with pytest.raises(OutOfBoundsError, match="it is not known") as caught:
        check(store((value * 2.0).cast(I), 4))
    assert "int32(float32#1)" in str(caught.value)


def test_vectors_are_split_into_lanes() -> None:
    lanes = smt.Lanes()
    vector = UOp.vectorize(R, S, R, S) + UOp.const(I.vec(4), (0, 1, 2, 3))
    assert lanes.of(vector)[1] is S + 1
    assert lanes.of(vector.gep((3, 0)))[0] is S + 3
    assert lanes.of(vector.gep(2) * 2) == ((R + 2) * 2,)


def test_truncating_division_of_all_signs_is_the_machines() -> None:
    for a, b in ((x, y) for x in range(-7, 8) for y in (-3, -2, 2, 3)):
        x, y = variable("x", -7, 7), variable("y", *((2, 3) if b > 0 else (-3, -2)))
        for op in (Ops.IDIV, Ops.MOD):
            query = smt.Query()
            query.assume(x.alu(Ops.CMPEQ, const(a)) & y.alu(Ops.CMPEQ, const(b)))
            found = query.find(
                query.term(x.alu(op, y)) != smt.value_of(const(a).alu(op, const(b)), {})
            )
            assert found is None, (a, op, b)


# *** limits ***


def hard() -> UOp:
    """12 where two cubes are a cube: they never are, but z3 does not know Fermat."""
    cubes = [x * x * x for x in (variable(name, 1, 1_000_000, L) for name in "xyz")]
    return store((cubes[0] + cubes[1]).alu(Ops.CMPEQ, cubes[2]).where(const(12), const(0)), 12)


def test_what_is_not_decided_in_time_is_an_error_that_says_so() -> None:
    with Context(OOB_TIMEOUT=100), pytest.raises(UndecidedBoundsError) as caught:
        check(hard())
    message = str(caught.value)
    assert isinstance(caught.value, SpecError) and "z3 could not decide" in message
    assert "parameter 0 of 12 float32 elements" in message and "x * x * x" in message
    assert "OOB_TIMEOUT=1000 gives it more time" in message


def test_without_z3_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    smt.load_z3.cache_clear()
    monkeypatch.setitem(sys.modules, "z3", None)
    check(RIGHT["a loop"])  # bounds are enough
    with pytest.raises(MissingPackageError, match=r"pip install 'tgcore\[validate\]'"):
        check(RIGHT["a gather"])
    assert issubclass(MissingPackageError, ImportError)


def test_what_was_proved_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    find = smt.Query.find
    monkeypatch.setattr(
        smt.Query, "find", lambda self, claim: asked.append(claim) or find(self, claim)
    )
    program = linear(RIGHT["a gather"])
    for _ in range(3):
        validate.validate(program, "kernel")
    assert len(asked) == 1
    check(at(param(0, 3), R).store(loaded(param(2, 8), ID, inside(ID, 8))))
    assert len(asked) == 2


def test_what_was_refuted_is_refuted_again() -> None:
    for _ in range(2):
        with pytest.raises(OutOfBoundsError):
            check(WRONG["padding without a gate"][0])


# *** programs of tensors ***

rng = np.random.default_rng(0)


def data(*shape: int) -> Tensor:
    return Tensor(rng.standard_normal(shape).astype(np.float32)).realize()


def positions(*values: int, dtype: Any = np.int32) -> Tensor:
    return Tensor(np.array(values, dtype)).realize()


LENGTH = Variable("n", 1, 8)
FIRST = Variable("k", 0, 7).bind(2)


def rows() -> Tensor:
    return data(8, 5)[: LENGTH.bind(3)]


TENSORS: dict[str, Callable[[], Tensor]] = {
    "matmul": lambda: data(33, 17) @ data(17, 65),
    "padding": lambda: data(5, 7).pad(((1, 2), (3, 1))).contiguous(),
    "padding that cuts": lambda: data(5, 7).pad(((-1, 2), (3, -2))).contiguous(),
    "cat": lambda: data(5, 3).cat(data(2, 3), data(7, 3)),
    "gather": lambda: data(9, 5)[positions(1, 0, -1)],
    "gather of int64": lambda: data(9, 5)[positions(1, 0, -1, dtype=np.int64)],
    "gather of a gather": lambda: data(9)[positions(1, 0, 2)][positions(1, 1)],
    "gather of bytes": lambda: data(9)[positions(1, 0, 2, dtype=np.uint8)],
    "scatter": lambda: data(3, 4).scatter(0, Tensor([[1, 0, 1, 2]]).realize(), data(1, 4)),
    "flip": lambda: data(6, 7).flip((0, 1)) + 1,
    "arange": lambda: Tensor.arange(100) * 2,
    "cumsum": lambda: data(300).cumsum(0),
    "sort": lambda: data(20).sort()[0],
    "conv": lambda: data(2, 4, 9, 9).conv2d(data(6, 4, 3, 3), padding=1, stride=2),
    "pool": lambda: data(1, 2, 9, 9).max_pool2d((3, 3), padding=1),
    "softmax": lambda: data(10, 33).softmax(-1),
    "symbolic rows": lambda: data(8, 5)[: LENGTH.bind(3)] * 2,
    "symbolic cat": lambda: rows().cat(rows() * 2, dim=0) + 1,
    "symbolic matmul": lambda: rows().permute(1, 0) @ rows(),
    "symbolic offset": lambda: data(8, 5)[FIRST : FIRST + 1] + 1,
    "one hot": lambda: positions(1, 0, 3).one_hot(5),
    "diagonal": lambda: data(5, 5).triu(1),
    "interpolation": lambda: data(1, 2, 4, 4).interpolate((8, 3)),
    "more than int32 holds": lambda: data(1, 1).expand(1 << 17, 1 << 17).sum(0),
}


def asts(tensor: Tensor) -> list[UOp]:
    return [item.ast for item in create_schedule(UOp.sink(tensor.uop), "CPU").items]


def compiled(ast: UOp, target: Target, opts: list[Opt] | None = None) -> list[UOp]:
    lowered = lower_kernel(optimize(ast, target, opts), target)
    return linearize(graph_rewrite(lowered, decompositions(target)), target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", TENSORS)
def test_programs_of_tensors_are_proved_for_all_kinds_of_devices(name: str, target: str) -> None:
    for ast in asts(TENSORS[name]()):
        if ast.op is Ops.SINK:
            validate.validate(compiled(ast, TARGETS[target]), name)


@pytest.mark.parametrize(
    "opts",
    [
        [Opt(OptOps.PADTO, 0, 8), Opt(OptOps.UPCAST, 0, 4)],
        [Opt(OptOps.PADTO, 1, 16), Opt(OptOps.UPCAST, 1, 16)],
        [Opt(OptOps.PADTO, 0, 4), Opt(OptOps.THREAD, 0, 2)],
        [Opt(OptOps.UNROLL, 2, 7)],
    ],
    ids=str,
)
def test_moves_keep_programs_inside(opts: list[Opt]) -> None:
    (ast,) = asts(data(9, 7) @ data(7, 13))
    validate.validate(compiled(ast, VECTORS, opts), "matmul")


def test_memory_that_shrinks_by_one_element_is_noticed_in_every_program() -> None:
    """The bounds that are proved are tight: with less memory they do not hold."""
    for name in ("matmul", "padding", "cat", "flip", "cumsum", "conv"):
        for ast in asts(TENSORS[name]()):
            program = compiled(ast, VECTORS)
            for memory in [n for n in program if n.op is Ops.DEFINE_GLOBAL]:
                smaller = memory.replace(dtype=memory.dtype.base.ptr(memory.dtype.size - 1))
                with pytest.raises(OutOfBoundsError) as caught:
                    validate.validate(rebuilt(program, {memory: smaller}), name)
                assert caught.value.position == memory.dtype.size - 1


def rebuilt(program: list[UOp], table: dict[UOp, UOp]) -> list[UOp]:
    done: dict[UOp, UOp] = {}
    for node in program:
        source = tuple(done[s] for s in node.src)
        done[node] = table.get(node, node.replace(src=source))
    return list(done.values())


def test_every_access_of_a_program_is_looked_at() -> None:
    (ast,) = asts(TENSORS["padding"]())
    program = compiled(ast, VECTORS)
    found = list(accesses(program))
    assert len(found) == sum(n.op in (Ops.LOAD, Ops.STORE) for n in program)
    assert any(a.conditions for a in found) and any(a.elements > 1 for a in found)


# *** in the compiler ***


def test_the_compiler_validates_what_it_finds_on_disk_too(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(programs, "validate", lambda program, name: seen.append(name))
    x = data(11)
    (x * 3.5).realize()
    programs.clear_program_cache()
    with Context(IGNORE_OOB=0):
        (x * 3.5).realize()
    assert len(seen) == 1 and seen[0].startswith("E_")


def test_a_program_that_leaves_its_memory_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def shifted(sink: UOp, target: Target) -> list[UOp]:
        program = linearize(sink, target)
        moved = {
            n: n.replace(src=(n.src[0], n.src[1] + 3, *n.src[2:]))
            for n in program
            if n.op is Ops.INDEX
        }
        nodes = [m for n in program for m in (*moved.get(n, n).toposort(), n)]
        kept = dict.fromkeys(n for n in nodes if n not in moved)
        return (
            rebuilt(list(kept), {})
            if not moved
            else list(dict.fromkeys(m for n in program for m in (*n.substitute(moved).toposort(),)))
        )

    monkeypatch.setattr(programs, "linearize", shifted)
    programs.clear_program_cache()
    with Context(IGNORE_OOB=0, NOOPT=1), pytest.raises(OutOfBoundsError, match="kernel E_"):
        (data(13) * 7.25).realize()
