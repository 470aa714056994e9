"""The digits example, in short: it learns, its step is the same everywhere, its picture is one."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from benchmarks.training import load_example
from tgcore import Tensor

digits = load_example("digits")
ROOT = Path(__file__).parent.parent.parent
# how many kernels a training step is: a change of this number is a change of the scheduler
KERNELS = 77


def test_training_data_and_test_data_are_apart() -> None:
    data = digits.load_data()
    assert len(data.test_labels) == 1797 // 5
    assert len(data.train_labels) + len(data.test_labels) == 1797
    assert data.train_images.shape[1:] == (1, 8, 8)
    again = digits.load_data()
    assert (again.test_images == data.test_images).all()
    assert set(data.test_labels) == set(range(10))


@pytest.fixture(scope="module")
def slice_of_data() -> digits.Digits:
    data = digits.load_data()
    return digits.Digits(
        data.train_images[:160], data.train_labels[:160], data.test_images[:40],
        data.test_labels[:40],
    )  # fmt: skip


def test_it_learns_in_a_few_steps(slice_of_data: digits.Digits) -> None:
    Tensor.manual_seed(1)
    net = digits.Net()
    training = digits.train(net, slice_of_data, steps=25, batch=32)
    assert training.losses[-1] < 0.6 * training.losses[0]
    assert training.kernels == KERNELS
    read = digits.predict(net, slice_of_data.test_images)
    assert np.mean(np.array(read) == slice_of_data.test_labels) > 0.5


COUNT = """
import sys
sys.path.insert(0, sys.argv[1])
from benchmarks.training import load_example
digits = load_example("digits")
print("kernels:", digits.train(digits.Net(), digits.load_data(), 4, 32).kernels)
"""


def test_a_step_has_as_many_kernels_on_a_device_that_runs_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COUNT, str(ROOT)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "DEV": "NULL"},
    )
    assert f"kernels: {KERNELS}\n" in done.stdout


def read_png(content: bytes) -> np.ndarray:
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, place = {}, 8
    while place < len(content):
        (length,) = struct.unpack_from(">I", content, place)
        kind, body = content[place + 4 : place + 8], content[place + 8 : place + 8 + length]
        (checksum,) = struct.unpack_from(">I", content, place + 8 + length)
        assert checksum == zlib.crc32(kind + body)
        chunks[kind] = body
        place += 12 + length
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    width, height, depth, color = struct.unpack_from(">IIBB", chunks[b"IHDR"])
    assert (depth, color) == (8, 0)
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, width + 1)
    assert (lines[:, 0] == 0).all()
    return lines[:, 1:]


def test_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = digits.load_data()
    read = data.test_labels.copy()
    read[[3, 5]] = (read[[3, 5]] + 1) % 10
    path = tmp_path / "wrong.png"
    digits.show_mistakes(data, read, path)
    truth = data.test_labels[3]
    assert f"{truth} read as {(truth + 1) % 10}, " in capsys.readouterr().out
    pixels = read_png(path.read_bytes())
    scale = 12
    seen = pixels[4 : 4 + 8 * scale : scale, 4 : 4 + 8 * scale : scale]
    np.testing.assert_allclose(seen / 255, data.test_images[3, 0], atol=1 / 255)


def test_nothing_to_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = digits.load_data()
    digits.show_mistakes(data, data.test_labels, tmp_path / "wrong.png")
    assert "no digit was misread" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
