"""Kernels know the Tensor methods that they came from, while DEBUG shows a line a kernel."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.tensor.test_kernel_counts import PROGRAMS
from tgcore import Context, Tensor, TinyJit, nn
from tgcore.schedule import Schedule, clear_schedule_cache, create_schedule, schedule_cache_info
from tgcore.uop import UOp


@pytest.fixture(autouse=True)
def _a_line_a_kernel() -> Iterator[None]:
    with Context(DEBUG=2, PCONTIG=0):
        yield


def schedule(*tensors: Tensor) -> Schedule:
    return create_schedule(UOp.sink(*[t.uop for t in tensors]), "CPU")


def names(*tensors: Tensor) -> list[str]:
    """What the lines of the kernels that make the tensors end in."""
    return [" ".join(item.metadata) for item in schedule(*tensors).items]


def ready(*shape: int) -> Tensor:
    return Tensor.empty(*shape, requires_grad=True)


def test_a_fused_kernel_has_the_names_of_all_its_methods_in_their_order() -> None:
    assert names((ready(8, 16) @ ready(16, 4)).relu()) == ["__matmul__ relu"]


def test_methods_that_a_method_calls_are_not_named() -> None:
    assert names(ready(8, 16).softmax()) == ["softmax", "softmax", "softmax"]


def test_a_name_stands_in_a_line_once() -> None:
    assert names(ready(4).exp().sin().exp()) == ["exp sin"]


def test_a_kernel_has_no_names_of_what_other_kernels_computed() -> None:
    total = ready(8, 16).exp().sum(1, keepdim=True)
    assert names(ready(8, 16) * total) == ["exp sum", "__mul__"]


def test_functions_of_the_users_own_are_not_named() -> None:
    def swish(x: Tensor) -> Tensor:
        return x * x.sigmoid()

    assert names(swish(ready(4))) == ["sigmoid __mul__"]


def test_methods_of_the_users_own_are_not_named() -> None:
    class Mine(Tensor):
        def twice(self) -> Tensor:
            return self.exp() * 2

    assert names(Mine(ready(4)).twice()) == ["exp __mul__"]


def test_layers_are_not_named_but_the_methods_they_call() -> None:
    layer = nn.Linear(16, 4)
    Tensor.realize(layer.weight, layer.bias)
    assert names(ready(8, 16).sequential([layer, Tensor.relu])) == ["linear relu"]


def test_views_and_constants_count_for_nothing_beside_what_is_computed() -> None:
    assert names(ready(4, 5).transpose().exp() + Tensor.ones(5, 4)) == ["exp __add__"]


def test_a_kernel_that_computes_nothing_has_the_names_of_its_views() -> None:
    assert names(ready(4, 5).flip(0).contiguous()) == ["flip contiguous"]


def test_both_steps_of_a_large_sum_have_its_name() -> None:
    assert names(ready(1 << 19).exp().sum()) == ["exp sum", "sum"]


def test_a_copy_has_the_name_of_what_asked_for_it() -> None:
    assert names((Tensor.empty(4, device="CPU") + 1).to("NULL")) == ["__add__", "to"]


# *** gradients ***


def gradient_names(tensor: Tensor, loss: Tensor) -> list[str]:
    loss.backward()
    assert tensor.grad is not None
    return names(tensor.grad)


def test_what_is_made_in_backward_is_named_after_what_it_is_the_gradient_of() -> None:
    x = ready(4)
    assert gradient_names(x, x.square().sum()) == ["square bw"]


def test_a_gradient_that_is_fused_with_the_forward_shows_both() -> None:
    x = ready(4, 4)
    assert gradient_names(x, x.exp().sin().sum()) == ["exp sin bw exp bw"]


def test_the_gradient_of_a_convolution() -> None:
    x, w = ready(1, 3, 8, 8), ready(4, 3, 3, 3)
    assert gradient_names(w, x.conv2d(w).square().sum()) == ["conv2d square bw", "conv2d bw"]


def test_gradients_of_gradients_are_named_once() -> None:
    x = ready(4)
    first = x.exp().sum().gradient(x)[0]
    second = first.sin().sum().gradient(x)[0]
    assert not any("bw bw" in line for line in names(second))


def test_what_follows_a_gradient_is_not_in_backward() -> None:
    x = ready(4)
    x.exp().sum().backward()
    assert names(ready(4).sin()) == ["sin"]


def test_a_users_rule_in_backward_is_in_backward() -> None:
    x = ready(4)
    y = x.round().custom_gradient(lambda gradient, y, x: gradient * x.sin(), x)
    assert gradient_names(x, y.sum()) == ["custom_gradient bw"]


# *** caches ***


def test_a_schedule_from_the_cache_has_the_names_of_this_graph() -> None:
    assert names(ready(6, 7).square()) == ["square"]
    x = ready(6, 7)
    hits = schedule_cache_info()[0]
    assert names(x * x) == ["__mul__"]
    assert schedule_cache_info()[0] == hits + 1


def test_a_schedule_that_was_cached_without_names_shows_them_later() -> None:
    graph = ready(6, 9).exp()
    with Context(DEBUG=0):
        schedule(graph)
    assert names(graph) == ["exp"]


def test_what_is_left_after_some_of_it_ran_keeps_its_names() -> None:
    x = Tensor([1.0, 2.0]).exp()
    y = x.sin().sum()
    x.realize()
    assert names(y) == ["sin sum"]


def test_the_gradient_through_what_ran_keeps_its_names() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = x.exp().realize()
    assert gradient_names(x, y.sin().sum()) == ["sin bw exp exp bw"]


# *** when ***


def test_no_names_with_debug_0() -> None:
    with Context(DEBUG=0):
        before = ready(4).exp()
    named = ready(4).exp()
    with Context(DEBUG=0):
        assert names(named) == [""]
    assert names(before) == [""]


def test_names_and_verified_nodes_at_once() -> None:
    with Context(SPEC=2):
        assert names(ready(8, 16).softmax()) == ["softmax", "softmax", "softmax"]
    assert names(ready(4).exp()) == ["exp"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_names_change_no_kernel(name: str) -> None:
    tensor = PROGRAMS[name][0]()
    clear_schedule_cache()
    named = schedule(tensor)
    with Context(DEBUG=0):
        plain = schedule(tensor)
    assert [item.ast for item in named.items] == [item.ast for item in plain.items]
    assert all(item.metadata for item in named.items)


# *** lines ***


def lines(output: str) -> list[str]:
    """What the lines of kernels say after the rates."""
    return [line.partition("GB/s)")[2].strip() for line in output.splitlines() if "***" in line]


def test_the_line_of_a_kernel_ends_in_the_names(capsys: pytest.CaptureFixture[str]) -> None:
    x = Tensor([1.0, 2.0])
    (x.exp() + 1).realize()
    assert lines(capsys.readouterr().out) == ["exp __add__"]


def test_the_lines_of_a_captured_function_have_them_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    @TinyJit
    def function(x: Tensor) -> Tensor:
        return (x.square() + 1).realize()

    x = Tensor([1.0, 2.0])
    with Context(JIT=2):
        for _ in range(3):
            function(x)
    assert lines(capsys.readouterr().out) == ["square __add__"] * 3
