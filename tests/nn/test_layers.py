"""Layers against torch's, with the same weights: values and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tgcore import Tensor, dtypes, nn
from tgcore.errors import DTypeError, ShapeError


def give_weights(layer: Any, reference: torch.nn.Module) -> None:
    """The reference gets the layer's weights."""
    own = nn.state.get_state_dict(layer)
    # what torch calls a buffer and did not keep (counters) stays
    theirs = reference.state_dict()
    reference.load_state_dict(
        {k: torch.from_numpy(own[k].numpy()) if k in own else v for k, v in theirs.items()}
    )
    if isinstance(reference, torch.nn.Module):
        reference.train()


def compare(layer: Any, reference: torch.nn.Module, *shape: int, tolerance: float = 2e-5) -> None:
    """Forward, and backward to the input and all weights."""
    give_weights(layer, reference)
    data = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
    x = Tensor(data, requires_grad=True)
    tx = torch.from_numpy(data).requires_grad_()
    with Tensor.train():
        y = layer(x)
        ty = reference(tx)
        np.testing.assert_allclose(y.numpy(), ty.detach().numpy(), atol=tolerance, rtol=tolerance)
        weights = np.random.default_rng(2).standard_normal(ty.shape, dtype=np.float32)
        (y * Tensor(weights)).sum().backward()
        (ty * torch.from_numpy(weights)).sum().backward()
    wanted = {"input": (x, tx)}
    named = nn.state.get_state_dict(layer)
    for name, parameter in reference.named_parameters():
        wanted[name] = (named[name], parameter)
    for name, (ours, theirs) in wanted.items():
        assert ours.grad is not None, name
        np.testing.assert_allclose(
            ours.grad.numpy(), theirs.grad.numpy(), atol=10 * tolerance, rtol=10 * tolerance,
            err_msg=name,
        )  # fmt: skip


Make = Callable[[], tuple[Any, torch.nn.Module]]

CASES: dict[str, tuple[Make, tuple[int, ...]]] = {
    "linear": (lambda: (nn.Linear(5, 3), torch.nn.Linear(5, 3)), (4, 5)),
    "linear without bias": (
        lambda: (nn.Linear(5, 3, bias=False), torch.nn.Linear(5, 3, bias=False)),
        (2, 4, 5),
    ),
    "conv1d": (lambda: (nn.Conv1d(3, 4, 3), torch.nn.Conv1d(3, 4, 3)), (2, 3, 8)),
    "conv2d": (lambda: (nn.Conv2d(3, 4, 3), torch.nn.Conv2d(3, 4, 3)), (2, 3, 6, 7)),
    "conv2d strided, padded": (
        lambda: (
            nn.Conv2d(3, 4, (3, 2), stride=2, padding=1),
            torch.nn.Conv2d(3, 4, (3, 2), stride=2, padding=1),
        ),
        (2, 3, 7, 8),
    ),
    "conv2d in groups, dilated": (
        lambda: (
            nn.Conv2d(4, 6, 3, dilation=2, groups=2, bias=False),
            torch.nn.Conv2d(4, 6, 3, dilation=2, groups=2, bias=False),
        ),
        (1, 4, 8, 8),
    ),
    "conv2d same": (
        lambda: (
            nn.Conv2d(2, 3, (4, 3), padding="same"),
            torch.nn.Conv2d(2, 3, (4, 3), padding="same"),
        ),
        (1, 2, 5, 6),
    ),
    "conv transposed": (
        lambda: (
            nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1),
            torch.nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1),
        ),
        (2, 3, 4, 5),
    ),
    "conv transposed over one axis": (
        lambda: (nn.ConvTranspose1d(3, 4, 3), torch.nn.ConvTranspose1d(3, 4, 3)),
        (2, 3, 5),
    ),
    "batch norm": (lambda: (nn.BatchNorm(3), torch.nn.BatchNorm2d(3)), (4, 3, 5, 5)),
    "batch norm without weights": (
        lambda: (nn.BatchNorm(3, affine=False), torch.nn.BatchNorm1d(3, affine=False)),
        (6, 3),
    ),
    "layer norm": (lambda: (nn.LayerNorm(6), torch.nn.LayerNorm(6)), (3, 4, 6)),
    "layer norm over two axes": (
        lambda: (nn.LayerNorm((4, 6), bias=False), torch.nn.LayerNorm((4, 6), bias=False)),
        (3, 4, 6),
    ),
    "group norm": (lambda: (nn.GroupNorm(2, 6), torch.nn.GroupNorm(2, 6)), (2, 6, 4, 4)),
    "instance norm": (
        lambda: (nn.InstanceNorm(3), torch.nn.InstanceNorm2d(3, affine=True)),
        (2, 3, 4, 4),
    ),
    "rms norm": (lambda: (nn.RMSNorm(6), torch.nn.RMSNorm(6, eps=1e-6)), (3, 6)),
}


@pytest.mark.parametrize("name", CASES)
def test_layer(name: str) -> None:
    make, shape = CASES[name]
    compare(*make(), *shape)


def test_layer_norm_2d() -> None:
    x = Tensor.rand(2, 3, 4, 5)
    expected = torch.nn.functional.layer_norm(
        torch.from_numpy(x.numpy()).permute(0, 2, 3, 1), (3,)
    ).permute(0, 3, 1, 2)
    np.testing.assert_allclose(nn.LayerNorm2d(3)(x).numpy(), expected.numpy(), atol=1e-5)


def test_embedding() -> None:
    layer, reference = nn.Embedding(10, 4), torch.nn.Embedding(10, 4)
    give_weights(layer, reference)
    numbers = np.array([[1, 9, 1], [0, 3, 1]])
    out, expected = layer(Tensor(numbers)), reference(torch.from_numpy(numbers))
    np.testing.assert_allclose(out.numpy(), expected.detach().numpy())
    out.square().sum().backward()
    expected.square().sum().backward()
    assert layer.weight.grad is not None
    np.testing.assert_allclose(layer.weight.grad.numpy(), reference.weight.grad.numpy(), rtol=1e-5)


def test_running_averages_follow_torch() -> None:
    layer, reference = nn.BatchNorm(3, momentum=0.3), torch.nn.BatchNorm2d(3, momentum=0.3)
    rng = np.random.default_rng(0)
    for _ in range(4):
        data = 2 * rng.standard_normal((4, 3, 5, 5), dtype=np.float32) + 1
        with Tensor.train():
            layer(Tensor(data)).realize()
        reference(torch.from_numpy(data))
    assert layer.num_batches_tracked.item() == 4
    np.testing.assert_allclose(
        layer.running_mean.numpy(), reference.running_mean.numpy(), rtol=1e-5
    )
    np.testing.assert_allclose(layer.running_var.numpy(), reference.running_var.numpy(), rtol=1e-5)
    reference.eval()
    data = rng.standard_normal((2, 3, 4, 4), dtype=np.float32)
    np.testing.assert_allclose(
        layer(Tensor(data)).numpy(), reference(torch.from_numpy(data)).detach().numpy(), atol=1e-5
    )
    assert layer.num_batches_tracked.item() == 4


def test_averages_of_equal_layers_are_apart() -> None:
    one, other = nn.BatchNorm(2), nn.BatchNorm(2)
    with Tensor.train():
        Tensor.realize(one(Tensor.ones(4, 2)), one.running_mean, other.running_mean)
    np.testing.assert_allclose(one.running_mean.numpy(), 0.1, rtol=1e-6)
    assert other.running_mean.tolist() == [0.0, 0.0]


def test_dropout() -> None:
    x = Tensor.ones(1000)
    layer = nn.Dropout(0.25)
    assert layer(x).tolist() == x.tolist()
    with Tensor.train():
        dropped = layer(x).numpy()
    zeros = (dropped == 0).mean()
    assert 0.2 < zeros < 0.3
    np.testing.assert_allclose(dropped[dropped != 0], 4 / 3, rtol=1e-6)


@pytest.mark.parametrize(
    ("layer", "bound", "shape"),
    [
        (lambda: nn.Linear(16, 64), 0.25, (64, 16)),
        (lambda: nn.Conv2d(4, 64, 2), 0.25, (64, 4, 2, 2)),
    ],
)
def test_initial_weights_are_uniform(layer: Any, bound: float, shape: tuple[int, ...]) -> None:
    made = layer()
    values = made.weight.numpy()
    assert values.shape == shape
    assert abs(values).max() <= bound
    assert abs(values).max() > 0.95 * bound
    assert abs(values.mean()) < 0.05 * bound * 2
    assert abs(made.bias.numpy()).max() <= bound


def test_narrow_rms_norm_is_computed_in_float32() -> None:
    x = Tensor([[300.0, 400.0]], dtype=dtypes.float16)  # squares overflow float16
    np.testing.assert_allclose(nn.RMSNorm(2)(x).numpy(), [[0.8485, 1.1314]], atol=1e-3)


def test_wrong_use_is_said() -> None:
    with pytest.raises(ShapeError, match="2 groups do not divide 3"):
        nn.Conv2d(3, 4, 3, groups=2)
    with pytest.raises(ShapeError, match="GroupNorm"):
        nn.GroupNorm(2, 5)
    with pytest.raises(ShapeError, match="LayerNorm"):
        nn.LayerNorm(4)(Tensor.zeros(2, 3))
    with pytest.raises(ShapeError, match="GroupNorm"):
        nn.GroupNorm(2, 4)(Tensor.zeros(2, 6))
    with pytest.raises(ValueError, match="stride of 1"):
        nn.Conv2d(1, 1, 3, stride=2, padding="same")
    with pytest.raises(ValueError, match="not 'much'"):
        nn.Conv2d(1, 1, 3, padding="much")
    with pytest.raises(DTypeError, match="Embedding"):
        nn.Embedding(3, 2)(Tensor([0.5]))
    with pytest.raises(ValueError, match="probability"):
        nn.Dropout(1.5)


@pytest.mark.parametrize("bias", [True, False])
def test_lstm_cell_over_three_steps(bias: bool) -> None:
    theirs, ours = torch.nn.LSTMCell(3, 4, bias), nn.LSTMCell(3, 4, bias)
    for name, value in theirs.named_parameters():
        setattr(ours, name, Tensor(value.detach().numpy(), requires_grad=True))
    x = np.random.default_rng(0).standard_normal((3, 2, 3)).astype(np.float32)
    h, c = theirs(torch.tensor(x[0]))
    mine = ours(Tensor(x[0]))
    for step in (1, 2):
        h, c = theirs(torch.tensor(x[step]), (h, c))
        mine = ours(Tensor(x[step]), mine)
    np.testing.assert_allclose(mine[0].numpy(), h.detach().numpy(), atol=1e-6)
    np.testing.assert_allclose(mine[1].numpy(), c.detach().numpy(), atol=1e-6)
    (h.sum() + c.sum()).backward()
    (mine[0].sum() + mine[1].sum()).backward()
    for name, value in theirs.named_parameters():
        gradient = getattr(ours, name).grad
        assert gradient is not None and value.grad is not None
        np.testing.assert_allclose(gradient.numpy(), value.grad.numpy(), atol=1e-5, err_msg=name)
