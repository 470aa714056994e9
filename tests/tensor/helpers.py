"""Comparing a function of tensors with the same in torch, and what tests need of the device."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from tgcore import Device, Tensor, dtypes
from tgcore.runtime.buffer import Buffer

Shape = tuple[int, ...]


def random_arrays(
    shapes: Sequence[Shape], low: float = -2, high: float = 2, seed: int = 0
) -> list[np.ndarray[Any, Any]]:
    """Arrays of float32, the same ones for the same seed."""
    rng = np.random.default_rng(seed)
    return [rng.uniform(low, high, size=s).astype(np.float32) for s in shapes]


def assert_same(
    found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], atol: float, rtol: float, what: str
) -> None:
    """Equal shapes, types of one kind, and values that are close."""
    assert found.shape == expected.shape, f"{what}: {found.shape} is not {expected.shape}"
    assert found.dtype == expected.dtype, f"{what}: {found.dtype} is not {expected.dtype}"
    np.testing.assert_allclose(found, expected, atol=atol, rtol=rtol, err_msg=what)


def compare(
    torch_fn: Callable[..., Any],
    tg_fn: Callable[..., Any] | None = None,
    shapes: Sequence[Shape] = (),
    *,
    arrays: Sequence[np.ndarray[Any, Any]] | None = None,
    low: float = -2,
    high: float = 2,
    atol: float = 1e-6,
    rtol: float = 1e-5,
    grad_atol: float = 1e-5,
    grad_rtol: float = 1e-4,
    forward_only: bool = False,
    dtype: bool = True,
) -> None:
    """The function gives the same in torch and in tgcore, and so do its gradients."""
    values = list(arrays) if arrays is not None else random_arrays(shapes, low, high)
    smooth = not forward_only
    theirs = [torch.tensor(v, requires_grad=smooth and v.dtype.kind == "f") for v in values]
    ours = [Tensor(v, requires_grad=(smooth and v.dtype.kind == "f") or None) for v in values]
    expected, found = torch_fn(*theirs), (tg_fn or torch_fn)(*ours)
    wanted = expected.detach().numpy()
    got = found.numpy()
    assert_same(got, wanted if dtype else wanted.astype(got.dtype), atol, rtol, "forward")
    if forward_only:
        return
    weights = np.random.default_rng(1).uniform(-1, 1, size=wanted.shape).astype(wanted.dtype)
    (expected * torch.tensor(weights)).sum().backward()
    (found * Tensor(weights)).sum().backward()
    for number, (a, b) in enumerate(zip(theirs, ours)):
        unreached = a.grad is None or not a.numel() or not wanted.size
        if a.requires_grad and not (b.grad is None and unreached):
            grad = torch.zeros_like(a) if a.grad is None else a.grad
            assert b.grad is not None, f"argument {number} has no gradient"
            assert_same(b.grad.numpy(), grad.numpy(), grad_atol, grad_rtol, f"gradient {number}")


def needs_memory_that_the_host_sees() -> None:
    """Skip the test on a device whose memory other libraries cannot read."""
    buffer = Buffer(Device.DEFAULT, 1, dtypes.uint8).ensure_allocated()
    if buffer.as_memoryview() is None:
        pytest.skip(f"the host does not see the memory of {Device.DEFAULT}")


def needs_the_device_in_other_processes() -> None:
    """Skip the test if the device is only there in this process, as one in an emulator is."""
    program = f"from tgcore import Device; Device[{Device.DEFAULT!r}]"
    if subprocess.run(
        [sys.executable, "-c", program], check=False, timeout=60, capture_output=True
    ).returncode:
        pytest.skip(f"other processes have no {Device.DEFAULT}")
