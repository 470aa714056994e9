"""Errors name the stage of the compiler that they come from, and show its graph."""

from __future__ import annotations

import numpy as np
import pytest

from tgcore import Tensor
from tgcore.errors import CodegenError, KernelOptError, ScheduleError, TgcoreError
from tgcore.runtime import compile as programs
from tgcore.runtime.device import Device
from tgcore.schedule import create_schedule, schedule
from tgcore.uop import UOp
from tgcore.uop.render import pyeval, pyrender
from tgcore.uop.stage import stage

GRAPH = UOp.variable("i", 0, 7) * 3 + 1


def kernel() -> UOp:
    x = Tensor(np.arange(24, dtype=np.float32)).realize()
    return create_schedule(UOp.sink((x * 3.25).uop), "CPU").items[-1].ast


def test_errors_of_tgcore_stay_what_they_are_with_a_note() -> None:
    first = KernelOptError("5 does not divide 16")
    with pytest.raises(KernelOptError) as caught, stage("splitting", GRAPH, CodegenError):
        raise first
    assert caught.value is first
    assert caught.value.__notes__ == [f"while splitting:\n{pyrender(GRAPH)}"]


def test_other_exceptions_become_faults_of_the_stage() -> None:
    first = KeyError("lost")
    with pytest.raises(CodegenError) as caught, stage("splitting", GRAPH, CodegenError):
        raise first
    assert "an unexpected KeyError while splitting: 'lost'" in str(caught.value)
    assert caught.value.__cause__ is first
    text = str(caught.value).split("\n", 1)[1].rsplit("\n", 1)[0]
    assert pyeval(text) is GRAPH


def test_interrupts_pass() -> None:
    with pytest.raises(KeyboardInterrupt), stage("splitting", GRAPH, CodegenError):
        raise KeyboardInterrupt


def test_of_large_graphs_only_the_end_is_shown() -> None:
    graph = GRAPH
    for n in range(500):
        graph = (graph + n) * graph
    with pytest.raises(CodegenError) as caught, stage("splitting", graph, CodegenError):
        raise IndexError
    assert len(str(caught.value).split("\n")) < 70
    assert "more lines" in str(caught.value)


def test_a_renderer_that_fails_is_named_with_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    renderer = Device["CPU"].renderer
    ast = kernel()

    def broken(program: list[UOp], name: str) -> str:
        raise AttributeError("no such form")

    monkeypatch.setattr(renderer, "render", broken)
    with pytest.raises(CodegenError, match="AttributeError while making a kernel for CPU") as found:
        programs.make_program(ast, renderer)
    assert "def " in str(found.value) or "result" in str(found.value)


def test_a_scheduler_that_fails_shows_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no ranges")

    monkeypatch.setattr(schedule, "assign_ranges", broken)
    x = Tensor(np.arange(23, dtype=np.float32)).realize()
    with pytest.raises(ScheduleError, match="RuntimeError while cutting a graph into kernels"):
        (x * 7.125 + 0.5).realize()


def test_a_variable_with_two_values_is_an_error_of_the_schedule() -> None:
    n = UOp.variable("n", 1, 8)
    x = Tensor(np.arange(8, dtype=np.float32)).realize()
    with pytest.raises(ScheduleError, match="'n' is bound to both 3 and 4") as caught:
        (x[: n.bind(3)].sum() + x[: n.bind(4)].sum()).realize()
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, TgcoreError)
