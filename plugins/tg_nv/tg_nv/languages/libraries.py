"""Where NVIDIA's compilers, which are libraries, may be installed: wheels, or a CUDA toolkit."""

from __future__ import annotations

import glob
import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path


def candidates(
    name: str, folders: Sequence[str], versions: Sequence[str] = ("13", "12")
) -> list[str]:
    """Files that may be the library, the best first.

    `folders` are those of wheels, in the namespace package `nvidia`.
    """
    found = []
    spec = importlib.util.find_spec("nvidia")
    for root in spec.submodule_search_locations or () if spec else ():
        for folder in folders:
            found += sorted(glob.glob(f"{root}/{folder}/lib{name}.so.*"), reverse=True)
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    found += sorted(glob.glob(str(Path(home) / "lib64" / f"lib{name}.so*")), reverse=True)
    return [*found, *(f"lib{name}.so.{version}" for version in versions), f"lib{name}.so"]
