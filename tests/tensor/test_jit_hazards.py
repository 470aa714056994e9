"""Random step functions, captured and not: a replay is what running the function is, or refused.

A step function reads and overwrites its state and its arguments, in part or whole, and returns
values, state, arguments and views of these. Its arguments are new tensors, earlier results, the
state itself, views, one tensor twice. What it is made of is drawn first; two worlds then run it,
one with TinyJit, and must agree on all that anybody can still see.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tgcore import Tensor, TinyJit
from tgcore.helpers import JIT
from tgcore.runtime.jit import JitError

EXAMPLES = int(os.environ.get("PROGRAMS", "1000"))
CALLS = 5
SIZE = 4
STATES = 2
ARGUMENTS = 2

# an instruction of a step: what it does, and numbers that choose what it does it to
Instruction = tuple[str, int, int]
INSTRUCTIONS = ["add", "mul", "flip", "sum", "realize", "assign", "iadd", "setitem", "part"]
# where the arguments of a call come from
SOURCES = ["new", "lazy", "result", "state", "same", "view"]

instructions = st.lists(
    st.tuples(st.sampled_from(INSTRUCTIONS), st.integers(0, 9), st.integers(0, 9)),
    min_size=1,
    max_size=6,
)
outputs = st.lists(st.integers(0, 9), min_size=1, max_size=3)
calls = st.lists(
    st.lists(
        st.tuples(st.sampled_from(SOURCES), st.integers(0, 9)),
        min_size=ARGUMENTS,
        max_size=ARGUMENTS,
    ),
    min_size=CALLS,
    max_size=CALLS,
)


def step_function(
    program: list[Instruction], returned: list[int], state: list[Tensor]
) -> Callable[..., Any]:
    def step(*arguments: Tensor) -> list[Tensor]:
        values = [*state, *arguments]
        for name, first, second in program:
            a, b = values[first % len(values)], values[second % len(values)]
            target = values[first % (STATES + ARGUMENTS)]
            if name == "add":
                values.append(a + b * 0.5)
            elif name == "mul":
                values.append(a * b * 0.25)
            elif name == "flip":
                values.append(a.flip(0) + 1)
            elif name == "sum":
                values.append(b - a.sum() * 0.125)
            elif name == "realize":
                a.realize()
            elif name == "assign":
                target.assign(b * 0.5 + 1)
            elif name == "iadd":
                target += b
            elif name == "setitem":
                target[1:3] = b[2:4] * 0.5
            elif name == "part":
                values.append(a[1:3].cat(b[0:2]))
        return [values[n % len(values)] for n in returned]

    return step


@dataclass
class World:
    """State, a step function over it, and all results so far."""

    state: list[Tensor]
    step: Callable[..., Any]
    results: list[Tensor] = field(default_factory=list)

    def argument(self, source: str, number: int, call: int, others: list[Tensor]) -> Tensor:
        values = np.arange(SIZE, dtype=np.float32) * 0.25 + number - call
        if source == "result" and self.results:
            return self.results[-1 - number % len(self.results)]
        if source == "state":
            return self.state[number % STATES]
        if source == "same" and others:
            return others[-1]
        if source == "view":
            return Tensor(np.repeat(values, 2)).realize()[2 : 2 + SIZE]
        return Tensor(values) * 1.0 if source == "lazy" else Tensor(values).realize()

    def call(self, number: int, sources: list[tuple[str, int]]) -> None:
        arguments: list[Tensor] = []
        for source, choice in sources:
            arguments.append(self.argument(source, choice, number, arguments))
        self.results += self.step(*arguments)

    def seen(self) -> list[Any]:
        return [t.numpy() for t in (*self.state, *self.results)]


def world(program: list[Instruction], returned: list[int], jit: bool) -> World:
    state = [Tensor(np.arange(SIZE, dtype=np.float32) + n).realize() for n in range(STATES)]
    step = step_function(program, returned, state)
    return World(state, TinyJit(step) if jit else step)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)
@given(instructions, outputs, calls, st.booleans())
def test_a_replay_is_never_silently_wrong(
    program: list[Instruction],
    returned: list[int],
    arguments: list[list[tuple[str, int]]],
    look_each_time: bool,
) -> None:
    eager, captured = world(program, returned, False), world(program, returned, True)
    for number, sources in enumerate(arguments):
        eager.call(number, sources)
        try:
            captured.call(number, sources)
        except JitError:
            return
        if look_each_time:
            np.testing.assert_allclose(captured.seen(), eager.seen(), rtol=1e-5)
    np.testing.assert_allclose(captured.seen(), eager.seen(), rtol=1e-5)


@pytest.mark.skipif(not JIT, reason="nothing is captured with JIT=0")
def test_most_step_functions_are_not_refused() -> None:
    program: list[Instruction] = [("add", 0, 2), ("assign", 0, 4), ("setitem", 1, 3)]
    captured = world(program, [0, 4], True)
    for number in range(CALLS):
        captured.call(number, [("new", number), ("result", 0)])
    with pytest.raises(JitError, match="argument"):
        captured.step(Tensor([1.0]), Tensor([1.0]))
