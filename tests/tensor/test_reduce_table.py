"""Every reduce of the table in `test_ops_reduce`, and the larger ops, against torch: on views, in
all types, with edge values, and to the second order."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.tensor.helpers import compare
from tests.tensor.test_op_table import VIEWS
from tests.tensor.test_ops_reduce import REDUCES
from tgcore import Tensor

Array = np.ndarray[Any, Any]


def values(shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(-2, 2, shape).astype(np.float32)


@pytest.mark.parametrize("view", ["transposed", "flipped", "part", "expanded", "reshaped"])
@pytest.mark.parametrize("name", REDUCES)
def test_views(name: str, view: str) -> None:
    theirs, ours = REDUCES[name]
    look = VIEWS[view]
    compare(
        lambda x: theirs(look(x), 1, False),
        lambda x: ours(look(x), 1, False),
        arrays=[values((4, 6))],
        atol=3e-6,
    )


@pytest.mark.parametrize("kind", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", REDUCES)
def test_float_types(name: str, kind: str) -> None:
    theirs, ours = REDUCES[name]
    x = torch.tensor(values((5, 7))).to(getattr(torch, kind))
    exact = theirs(x.double(), 1, False).numpy()
    found = ours(Tensor(x.double().numpy()).cast(kind), 1, False)
    assert found.dtype.name == kind
    bits = {"float64": 40, "float16": 8, "bfloat16": 5}[kind]
    np.testing.assert_allclose(found.double().numpy(), exact, rtol=2.0**-bits, atol=4 * 2.0**-bits)


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "int32", "int64", "bool"])
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min"])
def test_integer_types(name: str, kind: str) -> None:
    x = np.random.default_rng(0).integers(0, 5, (4, 6)).astype(kind)
    found = getattr(Tensor(x), name)(1).numpy()
    if name in ("sum", "prod"):
        wide = {"uint8": np.uint32, "int64": np.int64}.get(kind, np.int32)
        expected = getattr(np, name)(x, axis=1, dtype=wide)
    else:
        expected = getattr(x, name)(axis=1)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


EDGES = np.array(
    [
        [0, -0.0, 1, -1],
        [math.inf, 1, 2, 3],
        [-math.inf, 1, 2, 3],
        [math.inf, -math.inf, 0, 1],
        [math.nan, 1, 2, 3],
        [-math.inf, -math.inf, -math.inf, -math.inf],
        [1e-45, -1e-45, 0, 0],
        [2e38, 1e38, -1, 3e38],
    ],
    np.float32,
)


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "logsumexp", "norm"])
def test_edge_values(name: str) -> None:
    theirs, ours = REDUCES[name]
    compare(
        lambda x: theirs(x, 1, False),
        lambda x: ours(x, 1, False),
        arrays=[EDGES],
        forward_only=True,
        rtol=1e-5,
        atol=0,
    )


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_the_place_of_an_edge_value(name: str) -> None:
    compare(
        lambda x: getattr(x, name)(1),
        None,
        arrays=[EDGES],
        forward_only=True,
        dtype=False,
    )


LARGER: dict[str, tuple[Callable[..., Any], Callable[..., Any], list[tuple[int, ...]]]] = {
    "matmul": (torch.matmul, Tensor.matmul, [(2, 3, 4), (2, 4, 3)]),
    "softmax": (lambda x: x.softmax(1), lambda x: x.softmax(1), [(3, 4)]),
    "log_softmax": (lambda x: x.log_softmax(0), lambda x: x.log_softmax(0), [(3, 4)]),
    "logsumexp": (lambda x: x.logsumexp(1), lambda x: x.logsumexp(1), [(3, 4)]),
    "var": (lambda x: x.var(1), lambda x: x.var(1), [(3, 4)]),
    "std": (lambda x: x.std(1), lambda x: x.std(1), [(3, 4)]),
    "prod": (lambda x: x.prod(1), lambda x: x.prod(1), [(3, 4)]),
    "norm": (lambda x: x.norm(dim=1), lambda x: x.norm(axis=1), [(3, 4)]),
    "cumprod": (lambda x: x.cumprod(1), lambda x: x.cumprod(1), [(3, 4)]),
    "conv2d": (F.conv2d, Tensor.conv2d, [(1, 2, 5, 5), (3, 2, 2, 2)]),
    "conv3d": (F.conv3d, Tensor.conv2d, [(1, 2, 3, 4, 4), (2, 2, 2, 2, 2)]),
    "conv_transpose2d": (F.conv_transpose2d, Tensor.conv_transpose2d, [(1, 2, 3, 3), (2, 2, 2, 2)]),
    "layernorm": (lambda x: F.layer_norm(x, x.shape[-1:]), Tensor.layernorm, [(3, 4)]),
    "attention": (
        F.scaled_dot_product_attention,
        Tensor.scaled_dot_product_attention,
        [(2, 3, 4), (2, 5, 4), (2, 5, 4)],
    ),
    "binary cross entropy": (
        lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()),
        lambda x, y: x.binary_crossentropy_logits(y.sigmoid()),
        [(3, 4), (3, 4)],
    ),
    "cross entropy": (
        lambda x: F.cross_entropy(x, torch.tensor([1, 0, 3])),
        lambda x: x.cross_entropy(Tensor([1, 0, 3])),
        [(3, 4)],
    ),
    "inverse": (torch.linalg.inv, Tensor.inverse, [(3, 3)]),
    "einsum": (
        lambda a, b: torch.einsum("ij,kj->ik", a, b),
        lambda a, b: Tensor.einsum("ij,kj->ik", a, b),
        [(2, 3), (4, 3)],
    ),
}


@pytest.mark.parametrize("name", LARGER)
def test_second_order(name: str) -> None:
    theirs, ours, shapes = LARGER[name]
    arrays = [
        values(s, n) + (2 * np.eye(3) if name == "inverse" else 0) for n, s in enumerate(shapes)
    ]
    arrays = [a.astype(np.float32) for a in arrays]
    a = [torch.tensor(v, requires_grad=True) for v in arrays]
    b = [Tensor(v, requires_grad=True) for v in arrays]
    shape = tuple(theirs(*a).shape)
    outer, inner = values(shape, 7), [values(s, 8 + n) for n, s in enumerate(shapes)]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        first = torch.autograd.grad((theirs(*a) * torch.tensor(outer)).sum(), a, create_graph=True)
        total = sum((g * torch.tensor(w)).sum() for g, w in zip(first, inner))
        second = torch.autograd.grad(total, a)
    our_first = (ours(*b) * Tensor(outer)).sum().gradient(*b)
    parts = [(g * Tensor(w)).sum() for g, w in zip(our_first, inner)]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole + part
    for found, expected in zip(whole.gradient(*b), second):
        scale = max(1.0, float(expected.abs().max()))
        np.testing.assert_allclose(found.numpy() / scale, expected.numpy() / scale, atol=1e-4)
