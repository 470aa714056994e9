"""Graphs as Python text: it reads well, and gives the same objects back."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.schedule import graphs
from tests.uop.golden_graphs import FOLDER, GRAPHS, SCALAR, kernel, program
from tgcore import Tensor
from tgcore.dtype import AddrSpace, Invalid, dtypes
from tgcore.schedule import create_schedule
from tgcore.uop import AxisType, Ops, UOp, render
from tgcore.uop.node import BufferizeInfo, unobserved
from tgcore.uop.render import node_survives, pyeval, pyrender, survives

I = UOp.range(8, 0)
X = UOp.buffer("TEST", 12, dtypes.float32, 0).reshape((3, 4))


@pytest.mark.parametrize("name", GRAPHS)
def test_the_text_of_a_graph_is_as_it_was(name: str) -> None:
    assert pyrender(GRAPHS[name]()) + "\n" == (FOLDER / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", GRAPHS)
def test_the_text_of_a_graph_gives_it_back(name: str) -> None:
    assert survives(GRAPHS[name]())


@pytest.mark.parametrize("name", GRAPHS)
def test_each_node_of_a_graph_comes_back_on_top_of_its_sources(name: str) -> None:
    found = GRAPHS[name]()
    nodes = found.toposort() if isinstance(found, UOp) else found
    assert all(node_survives(node) for node in nodes)


def test_a_node_with_another_text_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    one_less = {**render._FORMS, Ops.ADD: lambda n: render._Form(n, ("0",), 9)}
    monkeypatch.setattr(render, "_FORMS", one_less)
    assert not node_survives(I + 1)
    assert not survives((I + 1) * 2)


@pytest.mark.parametrize("op", sorted(render._OPERATORS))
def test_a_number_may_stand_on_either_side_of_an_operator(op: Ops) -> None:
    x = UOp.define(Ops.DEFINE_GLOBAL, dtypes.int32, 4, 0).index(I.const_like(0)).load()
    assert survives(x.alu(op, x.const_like(3)))
    assert survives(x.const_like(3).alu(op, x))


def test_every_kept_text_has_its_graph() -> None:
    assert {file.stem for file in FOLDER.glob("*.txt")} == set(GRAPHS)


@pytest.mark.parametrize(
    ("graph", "text"),
    [
        (I + 1, "r0 + 1"),
        (1 + I, "1 + r0"),
        ((I + 1) * 2, "(r0 + 1) * 2"),
        (I * 2 + 1, "r0 * 2 + 1"),
        (I - (I + 1), "r0 + (r0 + 1) * -1"),
        (I // (I % 3), "r0 // (r0 % 3)"),
        ((I < 3) & (I < 5), "(r0 < 3) & (r0 < 5)"),
        ((I < 3).ne(I < 5), "(r0 < 3).ne(r0 < 5)"),
        ((I < 3).logical_not(), "(r0 < 3).logical_not()"),
        (I.maximum(3), "r0.maximum(3)"),
        (I.cast(dtypes.float32), "r0.cast(dtypes.float32)"),
        (I.cast(dtypes.float32) * math.inf, "r0.cast(dtypes.float32) * inf"),
        (I.cast(dtypes.float32) * -0.0, "r0.cast(dtypes.float32) * -0.0"),
        ((I < 3).where(I, Invalid), "(r0 < 3).where(r0, Invalid)"),
        ((I < 3).where(2, I), "(r0 < 3).where(2, r0)"),
        (I.const_like(1) + I.const_like(2), "UOp.const(dtypes.index, 1) + 2"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_expression_reads_as_one_would_write_it(graph: UOp, text: str) -> None:
    assert pyrender(graph).split("\n")[-1] == f"result = {text}"


def test_a_node_that_is_used_twice_has_a_name() -> None:
    twice = I + 3
    assert pyrender(twice * twice) == (
        "r0 = UOp.range(8, 0, AxisType.LOOP)\nx0 = r0 + 3\nresult = x0 * x0"
    )


def test_constants_and_devices_have_no_name_however_often_they_are_used() -> None:
    five = UOp.const(dtypes.float32, 5.0)
    text = pyrender(UOp.sink((X + five).copy_to("A"), (X * five).copy_to("A")))
    assert "UOp.const" not in text and "DEVICE" not in text


def test_stored_values_and_sources_of_reduces_and_sinks_have_names() -> None:
    memory = UOp.define(Ops.DEFINE_GLOBAL, dtypes.float32, 8, 0)
    inner = UOp.range(4, 1, AxisType.REDUCE)
    value = (I * 4 + inner).cast(dtypes.float32).reduce(Ops.ADD, inner) + 1.0
    lines = pyrender(UOp.sink(memory.index(I).store(value).end(I))).split("\n")
    assert "x0 = (r0 * 4 + r1).cast(dtypes.float32)" in lines
    assert "x1 = x0.reduce(Ops.ADD, r1) + 1.0" in lines
    assert "end0 = data0.index(r0).store(x1).end(r0)" in lines
    assert lines[-1] == "result = UOp.sink(end0)"


def test_variables_keep_their_names_unless_python_has_them() -> None:
    n, keyword = UOp.variable("n", 1, 9), UOp.variable("for", 1, 9)
    taken, nonsense = UOp.variable("dtypes", 1, 9), UOp.variable("a b", 1, 9)
    graph = UOp.sink(*(v * v for v in (n, keyword, taken, nonsense)))
    given_names = {line.split(" = ")[0]: line for line in pyrender(graph).split("\n")}
    assert given_names["n"] == "n = UOp.variable('n', 1, 9)"
    assert "for" not in given_names and "dtypes" not in given_names
    assert survives(graph)


def test_tags_are_kept() -> None:
    tagged = (I + 1).rtag(("a", 2))
    assert pyrender(tagged).endswith("result = (r0 + 1).rtag(('a', 2))")
    assert survives(tagged * tagged)


def test_kernels_inside_kernels_are_functions_inside_functions() -> None:
    inner = UOp.sink(UOp(Ops.NOOP, tag="inner"))
    outer = UOp.sink(UOp(Ops.KERNEL, dtypes.void, (), inner))
    graph = UOp.sink(UOp(Ops.KERNEL, dtypes.void, (), outer))
    text = pyrender(graph)
    assert "\n    def kernel0():\n        x0 = UOp(" in text and pyeval(text) is graph


def test_a_kernel_that_is_called_twice_is_one_function() -> None:
    body = UOp.sink(UOp(Ops.NOOP))
    memory = [UOp.buffer("TEST", 4, dtypes.float32, n) for n in range(2)]
    calls = [UOp(Ops.KERNEL, dtypes.void, (m,), body) for m in memory]
    assert pyrender(UOp.sink(*calls)).count("def ") == 1
    assert survives(UOp.sink(*calls))


def test_arguments_without_text_are_given_as_objects() -> None:
    def rule() -> None: ...

    graph = X.with_gradient(rule, X)
    objects: dict[str, object] = {}
    text = pyrender(graph, objects)
    assert objects == {"object0": rule} and pyeval(text, objects) is graph


def test_most_lines_shows_the_end() -> None:
    text = pyrender(kernel(graphs.softmax(graphs.buffer(4, 8))), most_lines=3)
    assert text.startswith("# ") and text.split("\n")[0].endswith(" more lines")
    assert len(text.split("\n")) == 4 and "result = " in text


ARGUMENTS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False).filter(lambda x: x != 0)
    | st.text()
    | st.binary()
    | st.sampled_from(
        [Ops.ADD, AxisType.LOOP, AddrSpace.REG, Invalid, dtypes.int8.vec(4), dtypes.half.ptr(3)]
    )
    | st.just(BufferizeInfo("A", AddrSpace.LOCAL, True, 7)),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
)


@given(ARGUMENTS, ARGUMENTS)
def test_any_argument_and_tag_survive(arg: object, tag: object) -> None:
    with unobserved():  # most of them are illegal
        assert survives(UOp(Ops.CUSTOM, dtypes.float32.vec(2), (I,), arg, tag))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-45, 16777217.0])
@pytest.mark.parametrize("dtype", [*dtypes.floats, dtypes.float32.vec(4)], ids=str)
def test_float_constants_survive(value: float, dtype: object) -> None:
    assert survives(UOp.const(dtype, value))  # type: ignore[arg-type]


def test_lanes_that_differ_in_the_sign_of_zero_survive() -> None:
    assert survives(UOp.const(dtypes.float32.vec(2), (0.0, -0.0)))


def test_an_illegal_node_is_shown_as_it_is() -> None:
    with unobserved():
        broken = UOp(Ops.REDUCE_AXIS, dtypes.float32, (X,), "nonsense")
    assert "UOp(Ops.REDUCE_AXIS, dtypes.float32, (" in pyrender(broken)
    assert survives(broken)


def test_a_chain_of_nodes_used_once_does_not_nest_without_end() -> None:
    node = I
    with unobserved():
        for n in range(5000):
            node = (node + n).maximum(n)
    assert survives(node)
    assert max(map(len, pyrender(node).split("\n"))) < 250


def test_a_wide_sink_is_one_line_and_survives() -> None:
    assert survives(UOp.sink(*(I + n for n in range(3000))))


def seconds_to_render(count: int) -> float:
    node = X
    with unobserved():
        for n in range(count // 4):
            node = (node * 0.5 + n).sqrt()
    best = math.inf
    for _ in range(3):
        start = time.perf_counter()
        pyrender(node)
        best = min(best, time.perf_counter() - start)
    return best


def test_time_grows_with_the_number_of_nodes_and_not_with_its_square() -> None:
    assert seconds_to_render(20_000) < 40 * seconds_to_render(2_000)


def test_models_and_their_kernels_and_programs_survive() -> None:
    x = Tensor(np.ones((2, 3, 8, 8), np.float32))
    weight = Tensor(np.ones((4, 3, 3, 3), np.float32), requires_grad=True)
    loss = x.conv2d(weight, padding=1).relu().max_pool2d().softmax(1).square().mean()
    loss.backward()
    assert weight.grad is not None
    sink = UOp.sink(loss.uop, weight.grad.uop)
    assert survives(sink)
    for item in create_schedule(sink, "TEST").items:
        assert survives(item.ast)
        if item.ast.op is Ops.SINK:
            assert survives(program(item.ast, (), SCALAR))
