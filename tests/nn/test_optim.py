"""Optimisers against torch.optim, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tgcore import GlobalCounters, Tensor, TinyJit, dtypes, nn
from tgcore.errors import ShapeError, TgcoreError

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


# *** optimisers that torch has not, or computes in bfloat16: numpy follows the papers ***


def _norm(x: Any) -> Any:
    return np.sqrt((x * x).sum())


def _trust(w: Any, g: Any, factor: float = 1.0, decay: float = 0.0) -> Any:
    return factor * _norm(w) / (_norm(g) + decay * _norm(w)) if _norm(w) and _norm(g) else 1.0


def lars(w: Any, g: Any, state: dict[str, Any]) -> Any:
    step = 0.1 * _trust(w, g, 0.01, 0.1) * (g + 0.1 * w)
    state["b"] = 0.9 * state.get("b", 0) + step
    return w - state["b"]


def lamb(w: Any, g: Any, state: dict[str, Any]) -> Any:
    state["t"] = t = state.get("t", 0) + 1
    state["m"] = 0.9 * state.get("m", 0) + 0.1 * g
    state["v"] = 0.999 * state.get("v", 0) + 0.001 * g * g
    update = state["m"] / (1 - 0.9**t) / (np.sqrt(state["v"] / (1 - 0.999**t)) + 1e-6) + 0.1 * w
    return w - 0.1 * _trust(w, update) * update


def muon(w: Any, g: Any, state: dict[str, Any]) -> Any:
    state["b"] = 0.95 * state.get("b", 0) + g
    x = (g + 0.95 * state["b"]).reshape(len(w), -1)
    wide = x.shape[0] < x.shape[1]
    x = (x if wide else x.T) / (_norm(x) + 1e-7)
    for _ in range(5):
        s = x @ x.T
        x = 3.4445 * x - 4.775 * s @ x + 2.0315 * s @ s @ x
    return w * (1 - 0.1 * 0.1) - 0.1 * (x if wide else x.T).reshape(w.shape)


FROM_PAPERS: dict[str, tuple[Make, Callable[..., Any]]] = {
    "lars": (lambda p: nn.optim.LARS(p, lr=0.1, weight_decay=0.1, tcoef=0.01), lars),
    "lamb": (lambda p: nn.optim.LAMB(p, lr=0.1, weight_decay=0.1), lamb),
    "muon": (lambda p: nn.optim.Muon(p, lr=0.1), muon),
}


@pytest.mark.parametrize("name", FROM_PAPERS)
@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (2, 3, 2)])
def test_steps_are_those_of_the_papers(name: str, shape: tuple[int, ...]) -> None:
    make, follow = FROM_PAPERS[name]
    (value,), state = start(shape), {}
    w, expected = Tensor(value), value.astype(np.float64)
    optimizer = make([w])
    for number in range(4):
        (gradient,) = start(shape)
        gradient = np.roll(gradient, number)
        with Tensor.train():
            optimizer.zero_grad()
            (w * Tensor(gradient)).sum().backward()
            optimizer.step()
        expected = follow(expected, gradient.astype(np.float64), state)
        np.testing.assert_allclose(w.numpy(), expected, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("make", [nn.optim.LARS, nn.optim.LAMB])
def test_parameters_of_norm_zero_have_the_plain_rate(make: Any) -> None:
    w = Tensor([0.0, 0.0])
    optimizer = make([w], lr=0.5)
    with Tensor.train():
        (w * Tensor([1.0, -1.0])).sum().backward()
        optimizer.step()
    np.testing.assert_allclose(w.numpy(), [-0.5, 0.5], rtol=1e-5)


def test_classic_momentum_collects_steps() -> None:
    plain, classic = Tensor([1.0]), Tensor([1.0])
    one = nn.optim.SGD([plain], lr=0.5, momentum=0.5)
    other = nn.optim.SGD([classic], lr=0.5, momentum=0.5, classic=True)
    with Tensor.train():
        for rate in (0.5, 0.25):
            for w, optimizer in ((plain, one), (classic, other)):
                optimizer.lr.assign(Tensor([rate])).realize()
                optimizer.zero_grad()
                w.sum().backward()
                optimizer.step()
    # the old gradient counts with the new rate, or with that of its own step
    assert plain.item() == 1 - 0.5 - 0.25 * 1.5
    assert classic.item() == 1 - 0.5 - (0.25 + 0.5 * 0.5)


def test_muon_refuses_vectors() -> None:
    with pytest.raises(ShapeError, match=r"\(4,\).*OptimizerGroup"):
        nn.optim.Muon([Tensor.ones(2, 2), Tensor.ones(4)])


def test_clipping_by_value_is_torchs() -> None:
    (values,) = start((3, 4))
    ours = Tensor(values, requires_grad=True)
    theirs = torch.from_numpy(values.copy()).requires_grad_()
    ours.square().sum().backward()
    theirs.square().sum().backward()
    nn.optim.clip_grad_value_([ours], 0.5)
    torch.nn.utils.clip_grad_value_([theirs], 0.5)
    assert ours.grad is not None and theirs.grad is not None
    np.testing.assert_array_equal(ours.grad.numpy(), theirs.grad.numpy())


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
