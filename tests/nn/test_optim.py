"""Optimisers against torch.optim, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tgcore import GlobalCounters, Tensor, TinyJit, dtypes, nn
from tgcore.errors import TgcoreError

Make = Callable[[Any], Any]
SETTINGS: dict[str, tuple[Make, Make]] = {
    "sgd": (lambda p: nn.optim.SGD(p, lr=0.1), lambda p: torch.optim.SGD(p, lr=0.1)),
    "sgd, momentum": (
        lambda p: nn.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    ),
    "sgd, nesterov, decay": (
        lambda p: nn.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    ),
    "adam": (lambda p: nn.optim.Adam(p, lr=0.1), lambda p: torch.optim.Adam(p, lr=0.1)),
    "adam, other averages": (
        lambda p: nn.optim.Adam(p, lr=0.1, b1=0.7, b2=0.9, eps=1e-3),
        lambda p: torch.optim.Adam(p, lr=0.1, betas=(0.7, 0.9), eps=1e-3),
    ),
    "adamw": (lambda p: nn.optim.AdamW(p, lr=0.1), lambda p: torch.optim.AdamW(p, lr=0.1)),
    "adamw, decay": (
        lambda p: nn.optim.AdamW(p, lr=0.1, weight_decay=0.5),
        lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.5),
    ),
}


def start(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]


def loss_of(x: Any, weights: Any) -> Any:
    a, b = weights
    return (((x @ a) + b) ** 2).sum()


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("jitted", [False, True])
def test_steps_are_torchs(name: str, jitted: bool) -> None:
    values, (batch,) = start((3, 4), (4,)), start((5, 3))
    ours = [Tensor(v) for v in values]
    theirs = [torch.from_numpy(v.copy()).requires_grad_() for v in values]
    make, make_reference = SETTINGS[name]
    optimizer, reference = make(ours), make_reference(theirs)
    x, tx = Tensor(batch), torch.from_numpy(batch)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = loss_of(x, ours).backward()
        optimizer.step()
        return loss.realize() if jitted else loss

    run = TinyJit(step) if jitted else step
    for _ in range(6):
        with Tensor.train():
            run()
        reference.zero_grad()
        loss_of(tx, theirs).backward()
        reference.step()
        for mine, other in zip(ours, theirs):
            np.testing.assert_allclose(mine.numpy(), other.detach().numpy(), atol=2e-4, rtol=2e-4)


def test_learning_rate_may_be_assigned_under_jit() -> None:
    w = Tensor([0.0])
    optimizer = nn.optim.SGD([w], lr=1.0)

    @TinyJit
    def step() -> None:
        optimizer.zero_grad()
        w.sum().backward()
        optimizer.step()

    seen = []
    with Tensor.train():
        for number in range(5):
            optimizer.lr.assign(Tensor([10.0**number])).realize()
            step()
            seen.append(w.item())
    assert seen == [-1, -11, -111, -1111, -11111]


def test_state_of_narrow_parameters_is_float32() -> None:
    w = Tensor([1.0, 2.0], dtype=dtypes.float16)
    optimizer = nn.optim.AdamW([w], lr=1e-3)
    assert optimizer.m[0].dtype is dtypes.float32
    with Tensor.train():
        (w * 3e-5).sum().backward()  # its square is 0 in float16
        optimizer.step()
    assert w.dtype is dtypes.float16
    assert optimizer.v[0].dtype is dtypes.float32
    np.testing.assert_allclose(w.numpy(), [0.999, 1.999], atol=2e-3)
    assert optimizer.v[0].numpy().min() > 0


def test_buffers_are_realised_with_the_step() -> None:
    norm = nn.BatchNorm(2)
    optimizer = nn.optim.SGD(nn.state.get_parameters(norm), lr=0.1)
    assert len(optimizer.params) == 2
    assert len(optimizer.buffers) == 3
    with Tensor.train():
        norm(Tensor.ones(4, 2)).sum().backward()
        optimizer.step()
    GlobalCounters.reset()
    np.testing.assert_allclose(norm.running_mean.numpy(), 0.1, rtol=1e-6)
    assert GlobalCounters.kernel_count == 0


def test_a_group_steps_together() -> None:
    a, b = Tensor([1.0]), Tensor([1.0])
    group = nn.optim.OptimizerGroup(nn.optim.SGD([a], lr=0.5), nn.optim.Adam([b], lr=0.25))
    with Tensor.train():
        (a + b).sum().backward()
        group.step()
    np.testing.assert_allclose([a.item(), b.item()], [0.5, 0.75], rtol=1e-5)
    group.zero_grad()
    assert a.grad is None
    assert b.grad is None


@pytest.mark.parametrize("norm_type", [1.0, 2.0, float("inf")])
@pytest.mark.parametrize("most", [0.5, 1e6])
def test_gradient_clipping_is_torchs(norm_type: float, most: float) -> None:
    values = start((3, 4), (5,))
    ours = [Tensor(v, requires_grad=True) for v in values]
    theirs = [torch.from_numpy(v.copy()).requires_grad_() for v in values]
    unused = Tensor([1.0], requires_grad=True)
    (ours[0].square().sum() + ours[1].square().sum()).backward()
    (theirs[0].square().sum() + theirs[1].square().sum()).backward()
    total = nn.optim.clip_grad_norm_([*ours, unused], most, norm_type)
    expected = torch.nn.utils.clip_grad_norm_(theirs, most, norm_type)
    np.testing.assert_allclose(total.item(), expected.item(), rtol=1e-5)
    assert unused.grad is None
    for mine, other in zip(ours, theirs):
        assert mine.grad is not None
        np.testing.assert_allclose(mine.grad.numpy(), other.grad.numpy(), rtol=1e-5)


def test_wrong_use_is_said() -> None:
    w, unused = Tensor([1.0]), Tensor([[1.0]])
    optimizer = nn.optim.SGD([w, unused], lr=0.1)
    w.sum().backward()
    with pytest.raises(RuntimeError, match=r"Tensor\.train"):
        optimizer.step()
    with Tensor.train(), pytest.raises(TgcoreError, match=r"1 of 2 .*\(number 1 of shape \(1, 1\)"):
        optimizer.step()
    with pytest.raises(ValueError, match="at least one"):
        nn.optim.SGD([Tensor([1])])
    with pytest.raises(ValueError, match="momentum"):
        nn.optim.SGD([w], nesterov=True)
    with pytest.raises(ValueError, match="negative"):
        nn.optim.SGD([w], lr=-1)
