"""Values stored inside a kernel (PCONTIG): right numbers whatever the kernel's loops become."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.tensor.helpers import compare
from tgcore import Context


def _normalised(x: Any, axis: int) -> Any:
    centred = x - x.mean(axis, keepdim=True)
    return centred / ((centred * centred).mean(axis, keepdim=True) + 0.1).sqrt()


def _joined(a: Any, b: Any, axis: int) -> Any:
    return torch.cat([a, b], axis) if isinstance(a, torch.Tensor) else a.cat(b, dim=axis)


def _joined_product(x: Any) -> Any:
    product = x @ x.transpose(0, 1)
    return _joined(product, product, 0)


def _joined_softmax(x: Any) -> Any:
    part = x.softmax(0)[2:]
    return _joined(part.softmax(1), part, 0)


def _sums_in_two_loops(x: Any) -> Any:
    product = x[:4] * x[4:]
    return (product.softmax(0).cumsum(0) * product).cumsum(1)


def _norms_of_norms(x: Any) -> Any:
    total = _normalised(x, 0).cumsum(1)
    total = total + total.sum(0, keepdim=True)
    total = _normalised(total, 1)
    both = _joined(total, total * 2, 1)
    return both[:4] * both[4:] + both.sum(0, keepdim=True)


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize(
    "function", [_joined_product, _joined_softmax, _sums_in_two_loops, _norms_of_norms]
)
def test_values_and_gradients(function: Callable[[Any], Any], level: int) -> None:
    with Context(PCONTIG=level):
        compare(function, None, [(8, 6)], atol=1e-5, grad_atol=1e-3, grad_rtol=1e-3)
