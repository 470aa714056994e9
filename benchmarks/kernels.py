"""Cases that measure kernels: the same work by tgcore, numpy and torch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from benchmarks.measure import Case
from tgcore import Context, Device, Tensor, TinyJit

Array = np.ndarray[Any, np.dtype[np.float32]]


@contextlib.contextmanager
def limited(threads: int) -> Iterator[None]:
    """Everyone may use so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with threadpool_limits(threads), Context(THREADS=threads):
            yield
    finally:
        torch.set_num_threads(before)


def replayed(function: Callable[..., Tensor], *arrays: Array) -> Callable[[], None]:
    """A captured function of realised tensors, waited for."""
    inputs = [Tensor(a).realize() for a in arrays]
    device = Device[inputs[0].device]
    captured = TinyJit(lambda *tensors: function(*tensors).realize())

    def run() -> None:
        captured(*inputs)
        device.synchronize()

    return run


def _random(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def matmul(size: int, threads: int) -> Case:
    """The product of two square matrices."""
    a, b, out = _random(size, size), _random(size, size), np.empty((size, size), np.float32)
    ta, tb, tout = torch.from_numpy(a), torch.from_numpy(b), torch.empty(size, size)
    return Case(
        f"matmul {size}",
        {
            "tgcore": replayed(lambda x, y: x @ y, a, b),
            "numpy": lambda: np.matmul(a, b, out=out),
            "torch": lambda: torch.mm(ta, tb, out=tout),
        },
        threads,
        flops=2.0 * size**3,
    )


def elementwise(threads: int, size: int = 1 << 24) -> Case:
    """A chain of operations on 16M elements, which one pass over the memory can do."""
    a, b, out = _random(size), _random(size), np.empty(size, np.float32)
    ta, tb, tout = torch.from_numpy(a), torch.from_numpy(b), torch.empty(size)

    def by_numpy() -> None:
        np.multiply(a, 2, out=out)
        np.add(out, b, out=out)
        np.maximum(out, 0, out=out)
        np.subtract(out, 1, out=out)

    def by_torch() -> None:
        torch.mul(ta, 2, out=tout)
        tout.add_(tb).clamp_(min=0).sub_(1)

    return Case(
        "relu(2a + b) - 1, 16M",
        {
            "tgcore": replayed(lambda x, y: (x * 2 + y).relu() - 1, a, b),
            "numpy": by_numpy,
            "torch": by_torch,
        },
        threads,
        nbytes=12.0 * size,
    )


def total(threads: int, size: int = 1 << 24) -> Case:
    """The sum of 16M elements."""
    a = _random(size)
    ta = torch.from_numpy(a)
    return Case(
        "sum, 16M",
        {"tgcore": replayed(lambda x: x.sum(), a), "numpy": a.sum, "torch": ta.sum},
        threads,
        nbytes=4.0 * size,
    )


def softmax(threads: int, rows: int = 4096, columns: int = 1024) -> Case:
    """Softmax over rows."""
    a = _random(rows, columns)
    ta = torch.from_numpy(a)

    def by_numpy() -> Array:
        e: Array = np.exp(a - a.max(axis=1, keepdims=True))
        e /= e.sum(axis=1, keepdims=True)
        return e

    return Case(
        f"softmax {rows}x{columns}",
        {
            "tgcore": replayed(lambda x: x.softmax(), a),
            "numpy": by_numpy,
            "torch": lambda: torch.softmax(ta, 1),
        },
        threads,
        nbytes=8.0 * a.size,
    )


def layer_norm(threads: int, rows: int = 4096, columns: int = 1024) -> Case:
    """Layer norm over rows."""
    a = _random(rows, columns)
    ta = torch.from_numpy(a)

    def by_numpy() -> Array:
        centered: Array = a - a.mean(axis=1, keepdims=True)
        centered /= np.sqrt(np.square(centered).mean(axis=1, keepdims=True) + np.float32(1e-5))
        return centered

    return Case(
        f"layer norm {rows}x{columns}",
        {
            "tgcore": replayed(lambda x: x.layernorm(), a),
            "numpy": by_numpy,
            "torch": lambda: torch.nn.functional.layer_norm(ta, (columns,)),
        },
        threads,
        nbytes=8.0 * a.size,
    )


def convolution(threads: int) -> Case:
    """A convolution by 3x3 from 32 to 32 channels; numpy has none."""
    a, w = _random(16, 32, 32, 32), _random(32, 32, 3, 3)
    ta, tw = torch.from_numpy(a), torch.from_numpy(w)
    return Case(
        "conv2d 16x32x32x32, 3x3",
        {
            "tgcore": replayed(lambda x, y: x.conv2d(y, padding=1), a, w),
            "torch": lambda: torch.nn.functional.conv2d(ta, tw, padding=1),
        },
        threads,
        flops=2.0 * a.size * 32 * 9,
    )


def launches(threads: int, count: int = 100) -> Case:
    """A chain of tiny kernels: what is measured is the launching."""
    a = _random(16)
    ta = torch.from_numpy(a)

    def chain(x: Tensor) -> Tensor:
        for _ in range(count):
            x = (x + 1).contiguous()
        return x

    def eagerly(x: Any) -> Any:
        for _ in range(count):
            x = x + 1
        return x

    return Case(
        f"one of {count} tiny kernels",
        {"tgcore": replayed(chain, a), "numpy": lambda: eagerly(a), "torch": lambda: eagerly(ta)},
        threads,
        divide=count,
    )


CASES: tuple[Callable[[int], Case], ...] = (
    lambda threads: matmul(512, threads),
    lambda threads: matmul(1024, threads),
    elementwise,
    total,
    softmax,
    layer_norm,
    convolution,
)
"""What makes each case for a number of threads, so that only one at a time holds memory."""
