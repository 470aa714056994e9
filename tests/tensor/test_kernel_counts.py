"""How many kernels ordinary programs take, on the default device and on NULL."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tgcore import Context, GlobalCounters, Tensor, nn


def count(program: Callable[[], Tensor | list[Tensor]]) -> int:
    """The kernels that realising the result takes."""
    result = program()
    GlobalCounters.reset()
    Tensor.realize(*(result if isinstance(result, list) else [result]))
    return GlobalCounters.kernel_count


def ready(*shape: int) -> Tensor:
    return Tensor.empty(*shape)


PROGRAMS: dict[str, tuple[Callable[[], Tensor], int]] = {
    "elementwise": (lambda: (ready(4, 5) + 1).exp() * ready(4, 5), 1),
    "matmul": (lambda: ready(8, 16) @ ready(16, 4), 1),
    "matmul with bias and relu": (lambda: ready(8, 16).linear(ready(16, 4), ready(4)).relu(), 1),
    "softmax": (lambda: ready(8, 16).softmax(), 3),
    "layer norm": (lambda: ready(8, 16).layernorm(), 3),
    "mean": (lambda: ready(8, 16).mean(1), 1),
    "conv2d": (lambda: ready(1, 3, 8, 8).conv2d(ready(4, 3, 3, 3), padding=1), 1),
    "max pool": (lambda: ready(1, 3, 8, 8).max_pool2d(2), 1),
    "cat": (lambda: ready(4).cat(ready(5), ready(6)), 1),
    "gather": (lambda: ready(50, 8)[Tensor([3, 4, 5])], 1),
    "arange": (lambda: Tensor.arange(100).contiguous(), 1),
    "one hot": (lambda: Tensor([1, 2]).one_hot(5), 1),
    "attention": (
        lambda: ready(2, 8, 4).scaled_dot_product_attention(ready(2, 8, 4), ready(2, 8, 4)),
        4,
    ),
    "view": (lambda: ready(4, 5).reshape(20), 0),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_counts(name: str) -> None:
    program, kernels = PROGRAMS[name]
    assert count(program) <= kernels
    with Context(DEV="NULL"):
        assert count(program) <= kernels


def perceptron_step() -> list[Tensor]:
    first, second = nn.Linear(16, 32), nn.Linear(32, 4)
    optimizer = nn.optim.SGD([first.weight, first.bias, second.weight, second.bias], lr=0.1)
    Tensor.realize(*optimizer.params)
    x, y = ready(8, 16), Tensor.empty(8, dtype="int32")
    with Tensor.train():
        loss = second(first(x).relu()).sparse_categorical_crossentropy(y)
        loss.backward()
        return [loss, *optimizer.schedule_step()]


def test_a_step_of_a_perceptron() -> None:
    kernels = count(perceptron_step)
    assert kernels <= 16
    with Context(DEV="NULL"):
        assert count(perceptron_step) == kernels
