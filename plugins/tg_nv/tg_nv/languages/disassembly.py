"""Machine code as text, by the tools of a CUDA toolkit, for DEBUG=7."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path


def disassemble(binary: bytes) -> str:
    """The cubin's instructions; a sentence if there is no tool for it."""
    tool = shutil.which("nvdisasm") or shutil.which("/usr/local/cuda/bin/nvdisasm")
    if tool is None:
        return "(nvdisasm of a CUDA toolkit would show the machine code)"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(binary)
        done = subprocess.run([tool, "-c", path], capture_output=True, text=True, check=False)
    return done.stdout or done.stderr
