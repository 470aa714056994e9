"""Makes distributions with broken and with good plugins, and runs Python with them installed."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

GOOD = """
from tgcore.plugin import BackendDescription, Probe
from tgcore.plugin.hookspecs import hookimpl
from tgcore.runtime.compiled import CompiledDevice

TGCORE_CONTRACT = (1, 0)

def open_device(name, index):
    device = CompiledDevice(name, None)
    device.index = index
    return device

@hookimpl
def tgcore_describe_backend():
    return BackendDescription("{name}", priority={priority}, open=open_device)

@hookimpl
def tgcore_probe():
    return Probe(("first", "second", "third"))
"""


class Site:
    """A folder of made-up distributions, put on the path of a new Python process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, distribution: str, name: str, source: str, version: str = "1.0") -> None:
        """A distribution whose plugin for device `name` has that source."""
        module = distribution.replace("-", "_")
        (self.folder / f"{module}.py").write_text(textwrap.dedent(source))
        info = self.folder / f"{module}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
        )
        (info / "entry_points.txt").write_text(f"[tgcore.backends]\n{name} = {module}\n")

    def good(self, distribution: str, name: str, priority: int = 1) -> None:
        """A working plugin."""
        self.add(
            distribution, name, GOOD.replace("{name}", name).replace("{priority}", str(priority))
        )

    def run(self, code: str, **environment: str) -> str:
        """What a new process prints, errors included."""
        variables = {k: v for k, v in os.environ.items() if k not in ("DEV", "CPU", "NULL")}
        variables |= {"PYTHONPATH": str(self.folder), "NO_COLOR": "1", "COLUMNS": "400"}
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            env=variables | environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.stdout + done.stderr

    def ask(self, name: str, **environment: str) -> str:
        """What who asks for a device is told."""
        return self.run(ASK.replace("{name}", name), **environment)


ASK = """
from tgcore.runtime.device import Device
device = Device["{name}"]
print("opened", device.name, getattr(device, "index", None))
"""


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """An empty folder of distributions."""
    return Site(tmp_path)
