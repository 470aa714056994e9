"""Random programs of random ops against numpy: lists of steps that both sides run."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tgcore import Context, Tensor, TinyJit

EXAMPLES = int(os.environ.get("PROGRAMS", "900"))
Array = np.ndarray[Any, Any]


@dataclass
class Machine:
    """The same values on both sides, and how to choose among them."""

    data: st.DataObject
    ours: list[Tensor] = field(default_factory=list)
    theirs: list[Array] = field(default_factory=list)

    def add(self, ours: Tensor, theirs: Array) -> None:
        if theirs.dtype.kind == "f":
            theirs = theirs.astype(np.float32)
        assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
        assert ours.dtype.name == theirs.dtype.name, (ours.dtype, theirs.dtype)
        # floats that grow without bound tell nothing
        if theirs.dtype.kind != "f" or theirs.size == 0 or np.abs(theirs).max() < 1e4:
            self.ours.append(ours)
            self.theirs.append(theirs)

    def draw(self, strategy: Any) -> Any:
        return self.data.draw(strategy)

    def one(self, low: int = 0, high: int = 4, kinds: str = "fiub") -> int | None:
        """A value with so many axes, of numpy's kinds of types."""
        fitting = [
            n for n, t in enumerate(self.theirs) if low <= t.ndim <= high and t.dtype.kind in kinds
        ]
        return self.draw(st.sampled_from(fitting)) if fitting else None


def new(m: Machine) -> None:
    shape = tuple(m.draw(st.lists(st.integers(1, 5), max_size=3)))
    seed = m.draw(st.integers(0, 100))
    kind = m.draw(st.sampled_from(["float32", "float32", "int32", "int8", "uint8", "bool"]))
    values = np.random.default_rng(seed).integers(-8, 9, shape)
    values = values.astype(np.float32) / 4 if kind == "float32" else values.astype(kind)
    m.add(Tensor(values), values)


UNARY: list[tuple[Callable[[Any], Any], Callable[[Any], Any]]] = [
    (lambda x: -x, lambda x: -x),
    (lambda x: x.abs(), np.abs),
    (lambda x: x * 0.5 + 1, lambda x: x * 0.5 + 1),
    (lambda x: x.relu(), lambda x: np.maximum(x, 0)),
    (lambda x: x.floor(), np.floor),
    (lambda x: (x > 0.25).float(), lambda x: (x > 0.25).astype(np.float32)),
    (lambda x: (x < 0).where(x * 2, 3), lambda x: np.where(x < 0, x * 2, np.float32(3))),
    (lambda x: x.minimum(0.5), lambda x: np.minimum(x, 0.5)),
    (lambda x: x.cast("int32").float(), np.trunc),
    (lambda x: x.abs().sqrt(), lambda x: np.sqrt(np.abs(x))),
]


def unary(m: Machine) -> None:
    n = m.one(kinds="f")
    if n is not None:
        ours, theirs = m.draw(st.sampled_from(UNARY))
        m.add(ours(m.ours[n]), theirs(m.theirs[n]))


BINARY: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: a + b * 2,
]


INTEGER: list[Callable[[Any, Any], Any]] = [
    *BINARY[:3],
    lambda a, b: a & b,
    lambda a, b: a | b,
    lambda a, b: a ^ b,
]


def binary(m: Machine) -> None:
    a = m.one()
    if a is None:
        return
    # types that mix are the subject of other tests
    kind = m.theirs[a].dtype
    others = [n for n, t in enumerate(m.theirs) if t.dtype == kind]
    b = m.draw(st.sampled_from(others))
    try:
        np.broadcast_shapes(m.theirs[a].shape, m.theirs[b].shape)
    except ValueError:
        return
    if kind == np.bool_:
        op = m.draw(st.sampled_from(INTEGER[3:]))
    else:
        op = m.draw(st.sampled_from(BINARY if kind.kind == "f" else INTEGER))
    with np.errstate(all="ignore"):
        m.add(op(m.ours[a], m.ours[b]), np.asarray(op(m.theirs[a], m.theirs[b])))


def divide(m: Machine) -> None:
    """Quotient and rest of integers by numbers other than 0."""
    n = m.one(kinds="iu")
    if n is not None:
        by = m.draw(st.sampled_from([1, 2, 3, 7, -2, -5]))
        x = m.theirs[n]
        by = abs(by) if x.dtype.kind == "u" else by
        m.add(m.ours[n] // by, np.floor_divide(x, x.dtype.type(by)))
        m.add(m.ours[n] % by, np.mod(x, x.dtype.type(by)))


def cast(m: Machine) -> None:
    n = m.one()
    if n is None:
        return
    kind = m.draw(st.sampled_from(["float32", "int32", "int8", "uint8", "int64", "bool"]))
    x = m.theirs[n]
    if x.dtype.kind == "f" and kind != "float32":
        x = np.trunc(x).astype(np.int64) if kind != "bool" else x
    m.add(m.ours[n].cast(kind), x.astype(kind))


def compare(m: Machine) -> None:
    n = m.one()
    if n is not None:
        op = m.draw(st.sampled_from([lambda x: x < 2, lambda x: x == 1, lambda x: x != 0]))
        m.add(op(m.ours[n]), np.asarray(op(m.theirs[n])))


def choose(m: Machine) -> None:
    """Elements of a value or of its mirror image, by whether a bool value of the shape holds."""
    n = m.one(1)
    if n is not None:
        x, ours = m.theirs[n], m.ours[n]
        condition = (ours.cast("int32") % 2).bool()
        even = (np.trunc(x).astype(np.int64) if x.dtype.kind == "f" else x.astype(np.int64)) % 2
        m.add(condition.where(ours, ours.flip(0)), np.where(even != 0, x, np.flip(x, 0)))


def order(m: Machine) -> None:
    n = m.one(1)
    if n is not None:
        axis = m.draw(st.integers(0, m.theirs[n].ndim - 1))
        x = m.theirs[n]
        m.add(m.ours[n].sort(axis)[0], np.sort(x, axis))
        places = np.argsort(x, axis, kind="stable").astype(np.int32)
        m.add(m.ours[n].argsort(axis), places)


def _summed(kind: Any) -> Any:
    """The type of a sum: narrow integers are summed in 32 bits."""
    if kind.kind in "iu" and kind.itemsize < 4:
        return np.dtype("uint32" if kind.kind == "u" else "int32")
    return kind


def reduce(m: Machine) -> None:
    n = m.one(1, kinds="fiu")
    if n is None:
        return
    axis = m.draw(st.integers(0, m.theirs[n].ndim - 1))
    keep = m.draw(st.booleans())
    x = m.theirs[n]
    names = ["sum", "max", "min", "prod"] + (["mean"] if x.dtype.kind == "f" else [])
    name = m.draw(st.sampled_from(names))
    if x.shape[axis] == 0:
        return
    if name in ("sum", "prod"):
        x = x.astype(_summed(x.dtype))
        found = getattr(np, name)(x, axis=axis, keepdims=keep, dtype=x.dtype)
    else:
        found = getattr(np, name)(x, axis=axis, keepdims=keep)
    m.add(getattr(m.ours[n], name)(axis, keepdim=keep), np.asarray(found))


def permute(m: Machine) -> None:
    n = m.one(1)
    if n is not None:
        order = m.draw(st.permutations(range(m.theirs[n].ndim)))
        m.add(m.ours[n].permute(*order), m.theirs[n].transpose(order))


def flip(m: Machine) -> None:
    n = m.one(1)
    if n is not None:
        axis = m.draw(st.integers(0, m.theirs[n].ndim - 1))
        m.add(m.ours[n].flip(axis), np.flip(m.theirs[n], axis))


def reshape(m: Machine) -> None:
    n = m.one()
    if n is None:
        return
    size = m.theirs[n].size
    divisors = [d for d in range(1, size + 1) if size % d == 0]
    if not divisors:
        return
    first = m.draw(st.sampled_from(divisors))
    shape = m.draw(st.sampled_from([(size,), (first, size // first), (1, first, size // first)]))
    m.add(m.ours[n].reshape(shape), m.theirs[n].reshape(shape))


def expand(m: Machine) -> None:
    n = m.one(0, 3)
    if n is None or m.theirs[n].size > 300:
        return
    shape = (m.draw(st.integers(1, 3)), *m.theirs[n].shape)
    m.add(m.ours[n].expand(shape), np.broadcast_to(m.theirs[n], shape))


def pad(m: Machine) -> None:
    n = m.one(1)
    if n is not None:
        pairs = [m.draw(st.tuples(st.integers(0, 2), st.integers(0, 2))) for _ in m.theirs[n].shape]
        value = m.draw(st.sampled_from([0.0, 1.5] if m.theirs[n].dtype.kind == "f" else [0, 1]))
        m.add(m.ours[n].pad(pairs, value=value), np.pad(m.theirs[n], pairs, constant_values=value))


def index(m: Machine) -> None:
    n = m.one(1)
    if n is None:
        return
    chosen: list[Any] = []
    for size in m.theirs[n].shape:
        kind = m.draw(st.sampled_from(["all", "int", "slice", "none"]))
        if kind == "none":
            chosen.append(None)
            kind = "all"
        if kind == "int" and size:
            chosen.append(m.draw(st.integers(-size, size - 1)))
        elif kind == "slice":
            chosen.append(m.draw(st.slices(size)))
        else:
            chosen.append(slice(None))
    found = m.theirs[n][tuple(chosen)]
    if np.ndim(found) <= 4:
        m.add(m.ours[n][tuple(chosen)], np.asarray(found))


def gather(m: Machine) -> None:
    n = m.one(1)
    if n is None or m.theirs[n].shape[0] == 0:
        return
    size = m.theirs[n].shape[0]
    rows = m.draw(st.lists(st.integers(-size, size - 1), min_size=1, max_size=4))
    m.add(m.ours[n][Tensor(rows)], m.theirs[n][rows])


def cat(m: Machine) -> None:
    a, b = m.one(1), m.one(1)
    if a is None or b is None:
        return
    x, y = m.theirs[a], m.theirs[b]
    if x.dtype == y.dtype and x.ndim == y.ndim and x.shape[1:] == y.shape[1:]:
        m.add(m.ours[a].cat(m.ours[b]), np.concatenate([x, y]))


def matmul(m: Machine) -> None:
    n = m.one(2, 3, "f")
    if n is not None:
        x = m.theirs[n]
        m.add(m.ours[n] @ m.ours[n].transpose(-1, -2), x @ x.swapaxes(-1, -2))


def running(m: Machine) -> None:
    n = m.one(1, kinds="fiu")
    if n is not None:
        axis = m.draw(st.integers(0, m.theirs[n].ndim - 1))
        x = m.theirs[n]
        m.add(m.ours[n].cumsum(axis), x.cumsum(axis, dtype=_summed(x.dtype)))


def pool(m: Machine) -> None:
    n = m.one(3, 3, "f")
    if n is not None and min(m.theirs[n].shape[1:]) >= 2:
        x = m.theirs[n]
        rows, columns = (s // 2 for s in x.shape[1:])
        cut = x[:, : rows * 2, : columns * 2].reshape(len(x), rows, 2, columns, 2)
        m.add(m.ours[n].max_pool2d(2), cut.max((2, 4)))


def realize(m: Machine) -> None:
    n = m.one()
    if n is not None:
        m.ours[n].realize()


def assign(m: Machine) -> None:
    """Overwrite a value in memory; all that was computed from it before must stay."""
    n = m.one(kinds="fi")
    if n is None or 0 in m.theirs[n].shape:
        return
    fresh = m.ours[n].contiguous().clone().realize()
    old = m.theirs[n].copy()
    doubled = fresh * 2
    fresh.assign(fresh + 1)
    m.add(doubled, old * 2)
    m.add(fresh, old + 1)


def setitem(m: Machine) -> None:
    n = m.one(1)
    if n is None or 0 in m.theirs[n].shape:
        return
    fresh, values = m.ours[n].clone().realize(), m.theirs[n].copy()
    place = m.draw(st.slices(values.shape[0]))
    written = -1.5 if values.dtype.kind == "f" else 1
    fresh[place] = written
    values[place] = written
    m.add(fresh, values)


STEPS = [
    *[
        new,
        unary,
        unary,
        binary,
        binary,
        reduce,
        permute,
        flip,
        reshape,
        expand,
        pad,
        index,
        gather,
    ],
    *[divide, cast, cast, compare, choose, order],
    *[cat, matmul, running, pool, realize, assign, setitem],
]
fast = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def build(data: st.DataObject) -> Machine:
    machine = Machine(data)
    new(machine)
    for _ in range(data.draw(st.integers(1, 12))):
        data.draw(st.sampled_from(STEPS))(machine)
    return machine


@fast
@given(st.data())
def test_programs(data: st.DataObject) -> None:
    machine = build(data)
    Tensor.realize(*machine.ours)
    for ours, theirs in zip(machine.ours, machine.theirs):
        check(ours.numpy(), theirs)


def check(found: Array, expected: Array) -> None:
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@fast
@given(st.data())
def test_the_last_value_alone(data: st.DataObject) -> None:
    machine = build(data)
    check(machine.ours[-1].numpy(), machine.theirs[-1])


@pytest.mark.parametrize("level", [1, 2])
@settings(fast, max_examples=max(EXAMPLES // 18, 5))
@given(st.data())
def test_partial_storage(level: int, data: st.DataObject) -> None:
    machine = build(data)
    with Context(PCONTIG=level):
        found = machine.ours[-1].numpy()
    check(found, machine.theirs[-1])


@settings(fast, max_examples=max(EXAMPLES // 9, 5))
@given(st.data())
def test_captured_programs(data: st.DataObject) -> None:
    """Elementwise and movement steps as a captured function of one argument."""
    steps = data.draw(st.lists(st.sampled_from(UNARY), min_size=1, max_size=4))
    axis = data.draw(st.integers(0, 1))

    def ours(x: Tensor) -> Tensor:
        for step, _ in steps:
            x = step(x)
        return x.sum(axis) + x.max(axis)

    def theirs(x: Array) -> Array:
        for _, step in steps:
            x = step(x)
        result: Array = x.sum(axis) + x.max(axis)
        return result

    captured = TinyJit(ours)
    for seed in range(4):
        values = np.random.default_rng(seed).integers(-8, 9, (3, 4)).astype(np.float32) / 4
        np.testing.assert_allclose(captured(Tensor(values)).numpy(), theirs(values), rtol=1e-4)
