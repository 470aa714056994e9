"""The whole command stream of one matmul, as text.

`python -m tests.plugins.nv.test_stream` writes the expected text anew, for a change that is meant.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.emulators.nv import decode
from tests.emulators.nv.install import installed
from tests.emulators.nv.profiles import PROFILES
from tests.plugins.nv import kernels
from tests.plugins.nv.kernels import Memory, device, load

GOLDEN = Path(__file__).parent / "golden"
CHIPS = ("GA102", "GH100", "GB202")


def stream(chip: str) -> str:
    """What is submitted for one matmul of 32 x 32, and its result is right."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((32, 32)).astype(np.float32) for _ in range(2))
    with installed(PROFILES[chip]) as system:
        gpu = device()
        x, y, z = (Memory(gpu, m.view(np.int32)) for m in (a, b, np.zeros_like(a)))
        program = load(gpu, kernels.MATMUL)
        gpu.synchronize()
        system.gpus[0].segments.clear()
        args = [z.address, x.address, y.address, 32]
        gpu.enqueue("matmul", lambda q: q.exec(program, args, (2, 4, 1), (16, 8, 1)))
        gpu.synchronize()
        found = list(system.gpus[0].segments)
        np.testing.assert_allclose(z.values.view(np.float32), a @ b, rtol=1e-4, atol=1e-5)
        text = "\n".join(line for segment in found for line in decode.lines(segment))
    # what depends on the version of the compiler
    return re.sub(r"registers = \w+", "registers = ...", text) + "\n"


@pytest.mark.parametrize("chip", CHIPS)
def test_the_stream_of_a_matmul_is_as_it_was(chip: str) -> None:
    assert stream(chip) == (GOLDEN / f"matmul_{chip}.txt").read_text()


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for name in CHIPS:
        (GOLDEN / f"matmul_{name}.txt").write_text(stream(name))
