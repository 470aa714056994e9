"""What a fresh process pays: importing, and getting to a first result."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping

from benchmarks.measure import Result

_FIRST = {
    "tgcore": "from tgcore import Tensor; x = Tensor([[1.0, 2.0], [3.0, 4.0]]);"
    "print((x @ x).relu().sum().item())",
    "numpy": "import numpy as np; x = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32);"
    "print(np.maximum(x @ x, 0).sum())",
    "torch": "import torch; x = torch.tensor([[1.0, 2.0], [3.0, 4.0]]);"
    "print((x @ x).relu().sum().item())",
}
_CLOCK = "import time; t = time.perf_counter(); {}; print(time.perf_counter() - t)"
_IMPORT = {
    "tgcore": "from tgcore import Tensor",  # the package itself loads nothing before it is used
    "numpy": "import numpy",
    "torch": "import torch",
}


def _process(code: str, environment: Mapping[str, str]) -> tuple[float, str]:
    """(seconds, what it printed) of a fresh interpreter."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment
    )
    return time.perf_counter() - start, done.stdout


def startup(rounds: int) -> list[Result]:
    """Import time, time to the first result with a cold and with a warm cache of kernels."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TGCORE_CACHE_DIR": folder}
        importing: dict[str, list[float]] = {name: [] for name in _FIRST}
        warm: dict[str, list[float]] = {name: [] for name in _FIRST}
        cold: list[float] = []
        for name, code in _FIRST.items():  # write .pyc files, fill the cache
            _process(code, environment)
            _process(_CLOCK.format(_IMPORT[name]), environment)
        for _ in range(rounds):
            for name, code in _FIRST.items():
                importing[name].append(
                    float(_process(_CLOCK.format(_IMPORT[name]), environment)[1])
                )
                warm[name].append(_process(code, environment)[0])
            with tempfile.TemporaryDirectory() as empty:
                fresh = {**environment, "TGCORE_CACHE_DIR": empty}
                cold.append(_process(_FIRST["tgcore"], fresh)[0])
    medians = {name: statistics.median(t) for name, t in warm.items()}
    imports = {name: statistics.median(t) for name, t in importing.items()}
    return [
        Result("import", imports),
        Result("process to first result, cold", {**medians, "tgcore": statistics.median(cold)}),
        Result("process to first result, warm", medians),
    ]
