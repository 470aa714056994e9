"""Learns to read handwritten digits: train, save, load in a fresh process, look at the mistakes.

    python examples/digits.py

The data are the 1797 scans of 8 by 8 grey pixels that scikit-learn ships. A fifth of them is held
out and never seen in training.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from tqdm import tqdm

from tgcore import GlobalCounters, Tensor, TinyJit, nn

STEPS = 500
BATCH = 64
SEED = 7


# *** data ***


@dataclass
class Digits:
    """The scans as floats from 0 to 1, and which digit each one is."""

    train_images: NDArray[np.float32]
    train_labels: NDArray[np.int32]
    test_images: NDArray[np.float32]
    test_labels: NDArray[np.int32]


def load_data() -> Digits:
    """All scans, a fifth of them held out; the same ones in every process."""
    pixels, labels = load_digits(return_X_y=True)
    images = (pixels / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    labels = labels.astype(np.int32)
    order = np.random.default_rng(SEED).permutation(len(labels))
    test, train = np.split(order, [len(labels) // 5])
    return Digits(images[train], labels[train], images[test], labels[test])


# *** model ***


class Net:
    """Two convolutions, one linear layer."""

    def __init__(self) -> None:
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.norm1 = nn.BatchNorm(16)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.norm2 = nn.BatchNorm(32)
        self.head = nn.Linear(32 * 4 * 4, 10)

    def __call__(self, x: Tensor) -> Tensor:
        x = self.norm1(self.conv1(x)).relu()
        x = self.norm2(self.conv2(x)).relu().max_pool2d(2)
        return self.head(x.flatten(1))


def make_step(net: Net, images: Tensor, labels: Tensor, batch: int) -> Callable[[], Tensor]:
    """One step of training on randomly chosen scans; returns the loss."""
    optimizer = nn.optim.Adam(nn.state.get_parameters(net), lr=0.003)

    @TinyJit
    def step() -> Tensor:
        chosen = Tensor.randint(batch, high=int(images.shape[0]))
        optimizer.zero_grad()
        logits = net(images[chosen])
        loss = logits.sparse_categorical_crossentropy(labels[chosen], label_smoothing=0.1)
        loss.backward()
        # smaller and smaller steps
        optimizer.lr.assign(optimizer.lr * 0.995)
        Tensor.realize(loss, optimizer.lr, *optimizer.schedule_step())
        return loss

    return step


@dataclass
class Training:
    """How a training went."""

    losses: list[float]
    kernels: int  # in one step
    milliseconds: float  # that a step takes


def train(net: Net, data: Digits, steps: int = STEPS, batch: int = BATCH) -> Training:
    """Train on the training part of the data."""
    step = make_step(net, Tensor(data.train_images), Tensor(data.train_labels), batch)
    losses: list[float] = []
    warm_up = min(10, steps // 2)  # the first steps compile and capture
    start, kernels = 0.0, 0
    with Tensor.train(), tqdm(total=steps, unit="step", disable=None) as progress:
        for number in range(steps):
            if number == warm_up:
                start = time.perf_counter()
            GlobalCounters.reset()
            loss = step()
            kernels = GlobalCounters.kernel_count
            if number % 20 == 0 or number == steps - 1:
                losses.append(loss.item())
                progress.set_postfix_str(f"loss {losses[-1]:.3f}")
            progress.update()
    seconds = time.perf_counter() - start
    return Training(losses, kernels, 1000 * seconds / (steps - warm_up))


def predict(net: Net, images: NDArray[np.float32]) -> list[int]:
    """The digit that the network reads in each scan."""
    with Tensor.train(False):
        return [int(digit) for digit in net(Tensor(images)).argmax(axis=1).numpy()]


# *** the picture of the mistakes ***


def picture(images: NDArray[np.float32], columns: int = 8, scale: int = 12) -> NDArray[np.uint8]:
    """Scans side by side, enlarged, as grey pixels."""
    rows = -(-len(images) // columns)
    size = images.shape[-1]
    cell = size * scale + 4
    canvas = np.full((rows * cell + 4, columns * cell + 4), 96, np.uint8)
    for number, image in enumerate(images):
        top, left = (4 + cell * n for n in divmod(number, columns))
        grey = (255 * image.reshape(size, size)).astype(np.uint8)
        large = grey.repeat(scale, axis=0).repeat(scale, axis=1)
        canvas[top : top + size * scale, left : left + size * scale] = large
    return canvas


def write_png(path: Path, pixels: NDArray[np.uint8]) -> None:
    """Write grey pixels as a PNG file."""
    height, width = pixels.shape

    def chunk(kind: bytes, body: bytes) -> bytes:
        content = kind + body
        return struct.pack(">I", len(body)) + content + struct.pack(">I", zlib.crc32(content))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)  # each line begins with its filter
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(lines, 9))
        + chunk(b"IEND", b"")
    )


def show_mistakes(data: Digits, read: NDArray[np.int32], path: Path, most: int = 16) -> None:
    """Write the first misread scans to a picture, and say what they are."""
    wrong = np.flatnonzero(read != data.test_labels)[:most]
    if not len(wrong):
        print("no digit was misread")
        return
    write_png(path, picture(data.test_images[wrong]))
    pairs = ", ".join(f"{data.test_labels[n]} read as {read[n]}" for n in wrong)
    print(f"misread, from left to right in {path}: {pairs}")


# *** the program ***


def in_fresh_process(model: Path) -> list[int]:
    """What a process that knows only the file reads in the test scans."""
    command = [sys.executable, os.path.abspath(__file__), "--predict", str(model)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: list[int] = json.loads(done.stdout)
    return result


def main() -> None:
    """Train and tell; or, with --predict, load a model and print what it reads."""
    parser = argparse.ArgumentParser(description="Learns to read handwritten digits.")
    parser.add_argument("--out", type=Path, default=Path("demo-out"), help="where files go")
    parser.add_argument("--predict", type=Path, metavar="FILE", help="only read, with this model")
    arguments = parser.parse_args()
    data = load_data()
    net = Net()
    if arguments.predict:
        nn.state.load_state_dict(net, nn.state.safe_load(arguments.predict))
        print(json.dumps(predict(net, data.test_images)))
        return

    Tensor.manual_seed(SEED)
    begin = time.perf_counter()
    training = train(net, data)
    print(f"trained in {time.perf_counter() - begin:.1f} s, compiling included")
    read = predict(net, data.test_images)
    arguments.out.mkdir(parents=True, exist_ok=True)
    model = arguments.out / "digits.safetensors"
    nn.state.safe_save(nn.state.get_state_dict(net), model)
    if in_fresh_process(model) != read:
        raise SystemExit("the model that was saved and loaded does not read the same")
    print(f"saved as {model}; a fresh process that loads it reads the same")

    show_mistakes(data, np.array(read, np.int32), arguments.out / "misread.png")
    print(f"a step is {training.kernels} kernels and takes {training.milliseconds:.2f} ms")
    accuracy = 100 * np.mean(np.array(read) == data.test_labels)
    print(f"test accuracy: {accuracy:.1f} %")


if __name__ == "__main__":
    main()
