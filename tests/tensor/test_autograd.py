"""backward and gradient: what they reach, what they leave alone, what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tgcore import Tensor, dtypes
from tgcore.errors import DTypeError, ShapeError, TgcoreError


def test_gradients_add_up_over_calls_of_backward() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    for _ in range(2):
        (x * x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [4, 8]


def test_a_tensor_used_twice_gets_both_gradients() -> None:
    x = Tensor([3.0], requires_grad=True)
    (x * x + x.exp() * 0 + x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [7]


def test_equal_constants_have_gradients_of_their_own() -> None:
    a, b = Tensor.ones(3, requires_grad=True), Tensor.ones(3, requires_grad=True)
    (a * 2 + b * 5).sum().backward()
    assert a.grad is not None and b.grad is not None
    assert a.grad.tolist() == [2, 2, 2] and b.grad.tolist() == [5, 5, 5]


def test_detach_and_no_grad_stop_gradients() -> None:
    x = Tensor([2.0], requires_grad=True)
    with Tensor.no_grad():
        frozen = x * 10
        with Tensor.enable_grad():
            free = x * 3
    (frozen * x + x.detach() * x + free).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [20 + 2 + 3]
    assert frozen.requires_grad is False


def test_gradients_flow_through_what_was_realised_before() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    middle = (x * x).realize()
    loss = (middle * 3).sum()
    assert loss.item() == 15
    loss.backward()
    assert x.grad is not None and x.grad.tolist() == [6, 12]


def test_gradients_do_not_flow_back_to_values_that_were_overwritten() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    loss = (x * x).sum()
    loss.realize()
    x.assign(x.detach() + 1).realize()
    with pytest.raises(TgcoreError):
        loss.backward()


def test_gradient_of_targets() -> None:
    x, y = Tensor([2.0]), Tensor([3.0])
    dx, dy = (x * x * y).sum().gradient(x, y)
    assert (dx.item(), dy.item()) == (12, 4)
    assert x.grad is None


def test_gradient_of_what_has_no_part_in_it() -> None:
    x, y = Tensor([2.0]), Tensor([[3.0]])
    with pytest.raises(TgcoreError, match="does not depend on target 1"):
        x.sum().gradient(x, y)
    assert x.sum().gradient(x, y, materialize_grads=True)[1].tolist() == [[0]]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x**3).sum(),
        lambda x: x.exp().sum() + x.sin().sum(),
        lambda x: (x / (1 + x * x)).sum(),
        lambda x: (x.sigmoid() * x).sum(),
        lambda x: x.softmax(-1)[..., 0].sum(),
        lambda x: (x @ x.permute(1, 0)).square().sum(),
        lambda x: x.prod(1).sum(),
        lambda x: x.tanh().sum(),
    ],
)
def test_second_order(function: Any) -> None:
    values = np.array([[0.3, -0.7], [1.2, 0.5]], np.float32)
    a = torch.tensor(values, requires_grad=True)
    (first,) = torch.autograd.grad(function(a), a, create_graph=True)
    (second,) = torch.autograd.grad((first * torch.tensor(values)).sum(), a)
    b = Tensor(values, requires_grad=True)
    (ours,) = function(b).gradient(b)
    (again,) = (ours * Tensor(values)).sum().gradient(b)
    np.testing.assert_allclose(ours.numpy(), first.detach().numpy(), atol=1e-5, rtol=1e-4)
    np.testing.assert_allclose(again.numpy(), second.numpy(), atol=1e-4, rtol=1e-3)


def test_gradients_have_the_type_of_their_tensor() -> None:
    x = Tensor([1.0, 2.0], dtype=dtypes.float16, requires_grad=True)
    (x.float() * 2).sum().backward()
    assert x.grad is not None and x.grad.dtype is dtypes.float16


def test_a_given_gradient_is_the_start() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    (x * 3).backward(Tensor([1.0, 10.0]))
    assert x.grad is not None and x.grad.tolist() == [3, 30]


def test_misuse_is_a_clear_error() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(ShapeError, match="reduce it to a scalar"):
        (x * 2).backward()
    with pytest.raises(ShapeError, match=r"\(3,\)"):
        (x * 2).backward(Tensor([1.0, 2.0, 3.0]))
    with pytest.raises(DTypeError, match="only floats have gradients"):
        Tensor([1], requires_grad=True)
    with pytest.raises(TgcoreError, match="requires a gradient"):
        Tensor([1.0]).sum().backward()
    with pytest.raises(DTypeError, match="in place"):
        x += x * 2


def test_a_gradient_that_was_not_realised_before_the_step_says_so() -> None:
    w = Tensor([2.0], requires_grad=True)
    (w * w).sum().backward()
    assert w.grad is not None
    w.assign(w.detach() - 0.1 * w.grad).realize()
    assert abs(w.item() - 1.6) < 1e-6
    with pytest.raises(TgcoreError, match="overwritten"):
        w.grad.numpy()


def test_a_loss_that_is_read_after_the_step_is_that_before_it() -> None:
    w = Tensor([2.0], requires_grad=True)
    loss = (w * w).sum()
    loss.backward()
    assert w.grad is not None
    w.assign(w.detach() - 0.1 * w.grad).realize()
    assert loss.item() == 4


def test_a_long_recurrence_is_differentiated_without_recursion() -> None:
    x = Tensor([1.0], requires_grad=True)
    y = x
    for _ in range(5000):
        y = y * 1.0001
    (dx,) = y.sum().gradient(x)
    assert len(dx.uop.toposort()) > 5000


def test_contiguous_backward_changes_no_value() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    (x.contiguous_backward() * 2).contiguous().sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2, 2]


def test_a_custom_gradient_and_its_own_gradient() -> None:
    x = Tensor([0.5, 2.0], requires_grad=True)
    y = (x * x).custom_gradient(lambda gradient, result, x: gradient * x * x * x, x)
    (first,) = y.sum().gradient(x)
    (second,) = first.sum().gradient(x)
    assert y.tolist() == [0.25, 4]
    assert first.tolist() == [0.125, 8] and second.tolist() == [0.75, 12]


def test_a_custom_gradient_of_several_inputs() -> None:
    a, b = Tensor([1.0, 2.0], requires_grad=True), Tensor([3.0, 4.0], requires_grad=True)
    y = (a + b).custom_gradient(lambda gradient, result, a, b: (gradient * b, None), a, b)
    y.sum().backward()
    assert a.grad is not None and a.grad.tolist() == [3, 4]
    assert b.grad is not None and b.grad.tolist() == [0, 0]


def test_a_custom_gradient_of_another_shape_or_number_is_refused() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(ShapeError, match=r"\(3,\) for an input of shape \(2,\)"):
        x.exp().custom_gradient(lambda g, y, x: Tensor.ones(3), x).sum().backward()
    with pytest.raises(TgcoreError, match="2 gradients for 1"):
        x.exp().custom_gradient(lambda g, y, x: (g, g), x).sum().backward()
