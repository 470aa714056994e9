"""The demo's training step, by tgcore and by torch."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from torch.nn import functional

from benchmarks.measure import Case
from tgcore import Device, Tensor


def load_example(name: str) -> ModuleType:
    """An example as a module."""
    path = Path(__file__).parent.parent / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def training_step(threads: int) -> Case:
    """A step of the demo's training: forward, backward, Adam."""
    digits = load_example("digits")
    data = digits.load_data()
    images, labels = Tensor(data.train_images).realize(), Tensor(data.train_labels).realize()
    step = digits.make_step(digits.Net(), images, labels, digits.BATCH)
    device = Device[images.device]

    def ours() -> None:
        with Tensor.train():
            step()
        device.synchronize()

    by_torch = _torch_step(data.train_images, data.train_labels, digits.BATCH)
    return Case("the demo's training step", {"tgcore": ours, "torch": by_torch}, threads)


def _torch_step(images: np.ndarray, labels: np.ndarray, batch: int) -> Callable[[], None]:
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3, padding=1),
        torch.nn.BatchNorm2d(16),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 32, 3, padding=1),
        torch.nn.BatchNorm2d(32),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(512, 10),
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=0.003)
    x, y = torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64))

    def step() -> None:
        chosen = torch.randint(0, len(x), (batch,))
        optimizer.zero_grad()
        loss = functional.cross_entropy(net(x[chosen]), y[chosen], label_smoothing=0.1)
        loss.backward()
        optimizer.step()

    return step
