"""Symbolic sizes: one kernel for every length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tgcore import Tensor, Variable
from tgcore.schedule import clear_schedule_cache, schedule_cache_info

DATA = np.random.default_rng(0).random((8, 5)).astype(np.float32)
SQUARE = np.random.default_rng(1).random((8, 8)).astype(np.float32)

FUNCTIONS: dict[str, tuple[Any, Any]] = {
    "sum": (lambda x: x.sum(), lambda x: x.sum()),
    "sum of columns": (lambda x: x.sum(0), lambda x: x.sum(0)),
    "max": (lambda x: x.max(0), lambda x: x.max(0)),
    "mean": (lambda x: x.mean(0), lambda x: x.mean(0)),
    "elementwise": (lambda x: x * 2 + 1, lambda x: x * 2 + 1),
    "permute": (lambda x: x.permute(1, 0) + 1, lambda x: x.T + 1),
    "matmul": (lambda x: x.permute(1, 0) @ x, lambda x: x.T @ x),
    "outer": (lambda x: x @ x.permute(1, 0), lambda x: x @ x.T),
    "softmax": (
        lambda x: x.permute(1, 0).softmax(-1),
        lambda x: np.exp(x.T) / np.exp(x.T).sum(1, keepdims=True),
    ),
    "pad": (lambda x: x.pad(((1, 2), (0, 3))), lambda x: np.pad(x, ((1, 2), (0, 3)))),
    "flip": (lambda x: x.flip((0, 1)), lambda x: x[::-1, ::-1]),
    "cat along it": (lambda x: x.cat(x * 2, dim=0), lambda x: np.concatenate([x, x * 2], 0)),
    "cat beside it": (lambda x: x.cat(x * 2, dim=1), lambda x: np.concatenate([x, x * 2], 1)),
    "stack": (lambda x: x.stack(x), lambda x: np.stack([x, x])),
    "flatten": (lambda x: x.flatten(), lambda x: x.reshape(-1)),
    "repeat": (lambda x: x.repeat(2, 1), lambda x: np.tile(x, (2, 1))),
    "expand": (
        lambda x: x.unsqueeze(1).expand(-1, 2, -1),
        lambda x: np.broadcast_to(x[:, None], (len(x), 2, 5)),
    ),
    "prod": (lambda x: x.prod(0), lambda x: x.prod(0)),
    "min": (lambda x: x.min(0), lambda x: x.min(0)),
    "var": (lambda x: x.var(0, correction=0), lambda x: x.var(0)),
    "layernorm": (
        lambda x: x.layernorm(),
        lambda x: (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5),
    ),
    "argmax along it": (lambda x: x.argmax(0), lambda x: x.argmax(0)),
    "argmin beside it": (lambda x: x.argmin(1), lambda x: x.argmin(1)),
    "cumsum": (lambda x: x.cumsum(0), lambda x: x.cumsum(0)),
    "cumprod": (lambda x: x.cumprod(0), lambda x: x.cumprod(0)),
    "first and last row": (lambda x: x[Tensor([0, -1])], lambda x: x[[0, -1]]),
    "a column": (lambda x: x[:, 1:3], lambda x: x[:, 1:3]),
    "einsum": (lambda x: Tensor.einsum("ij,kj->ik", x, x), lambda x: x @ x.T),
    "log_softmax": (lambda x: x.log_softmax(0), lambda x: x - np.log(np.exp(x).sum(0))),
    "where": (lambda x: (x > 0.5).where(x, -x), lambda x: np.where(x > 0.5, x, -x)),
    "any": (lambda x: (x > 0.9).any(0), lambda x: (x > 0.9).any(0)),
    "gradient": (
        lambda x: (x * x * x).sum().gradient(x)[0],
        lambda x: 3 * x * x,
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    ours, theirs = FUNCTIONS[name]
    data = Tensor(DATA).realize()
    n = Variable("n", 1, 8)
    for value in (1, 3, 8):
        found = ours(data[: n.bind(value)]).numpy()
        np.testing.assert_allclose(found, theirs(DATA[:value]), rtol=1e-5, atol=1e-6)


def test_attention_over_a_growing_cache() -> None:
    keys, values = Tensor(SQUARE).realize(), Tensor(SQUARE[::-1].copy()).realize()
    query = Tensor(SQUARE[:1]).realize()
    n = Variable("n", 1, 8)
    for count in (1, 4, 8):
        length = n.bind(count)
        found = query.scaled_dot_product_attention(keys[:length], values[:length]).numpy()
        weights = np.exp(SQUARE[:1] @ SQUARE[:count].T / np.sqrt(8))
        expected = weights / weights.sum() @ SQUARE[::-1][:count]
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_an_offset() -> None:
    data = Tensor(DATA).realize()
    n = Variable("n", 0, 6)
    for value in (0, 2, 6):
        bound = n.bind(value)
        assert np.allclose(data[bound : bound + 2].numpy(), DATA[value : value + 2])
        assert np.allclose(data[bound].numpy(), DATA[value])


def test_all_lengths_share_a_schedule() -> None:
    data, n = Tensor(DATA).realize(), Variable("n", 1, 8)
    clear_schedule_cache()
    for value in (2, 5, 7):
        (data[: n.bind(value)] * 3).sum().realize()
    assert schedule_cache_info() == (2, 1)


def test_shapes_are_shown_and_compared_by_symbol() -> None:
    n = Variable("n", 1, 8).bind(3)
    x = Tensor(DATA)[:n]
    assert x.shape[0] is n and x.ndim == 2
    assert (x + x).shape == x.shape and x.reshape(n * 5).ndim == 1


def test_causal_attention_over_a_symbolic_length() -> None:
    x, n = Tensor(SQUARE).realize(), Variable("n", 1, 8)
    for count in (1, 4, 8):
        part = x[: n.bind(count)]
        found = part.scaled_dot_product_attention(part, part, is_causal=True).numpy()
        rows = torch.tensor(SQUARE[:count])
        expected = F.scaled_dot_product_attention(rows, rows, rows, is_causal=True)
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5)
