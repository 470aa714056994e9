"""Graphs of 50 000 nodes: no recursion, and work that grows with their size, not its square."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tgcore import Tensor
from tgcore.schedule import clear_schedule_cache, create_schedule
from tgcore.uop import UOp

pytestmark = pytest.mark.once


def recurrence(steps: int) -> tuple[Tensor, Tensor]:
    """(the start, what became of it): two nodes a step."""
    x, factor = Tensor([1.0] * 8).realize(), Tensor([0.5] * 8).realize()
    y = x
    for _ in range(steps):
        y = y * factor + x
    return x, y


def reduces(steps: int) -> tuple[Tensor, Tensor]:
    """The same with a reduce in each step, so that every step is a kernel or two."""
    x = Tensor([1.0] * 8).realize()
    y = x
    for _ in range(steps):
        y = y + y.sum(keepdim=True) * 0.1
    return x, y


def through(make: Callable[[int], tuple[Tensor, Tensor]], steps: int) -> tuple[int, float]:
    """(nodes of the gradient, seconds) to build, differentiate and schedule."""
    clear_schedule_cache()
    start = time.process_time()
    x, y = make(steps)
    (gradient,) = y.sum().gradient(x)
    create_schedule(UOp.sink(y.uop, gradient.uop), "CPU")
    seconds = time.process_time() - start
    return len(UOp.sink(y.uop, gradient.uop).toposort()), seconds


@pytest.mark.parametrize(("make", "steps"), [(recurrence, 12800), (reduces, 6400)])
def test_the_time_grows_with_the_size(
    make: Callable[[int], tuple[Tensor, Tensor]], steps: int
) -> None:
    few, short = through(make, steps // 8)
    many, long = through(make, steps)
    assert many > 7 * few and many > 40_000
    # eight times the nodes: with the square of the size it would be 64 times the work
    assert long < 24 * short


def test_a_long_recurrence_has_the_right_value() -> None:
    x, y = recurrence(3000)
    (gradient,) = y.sum().gradient(x)
    assert y.tolist() == [2.0] * 8
    assert gradient.numpy().round(4).tolist() == [2.0] * 8
