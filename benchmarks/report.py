"""The results as a table, with what they were measured with."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from benchmarks.measure import Result
from tgcore import Device

_CONTENDERS = ("tgcore", "numpy", "torch")
_HEAD = ("what", "threads", *_CONTENDERS, "/ numpy", "/ torch", "tgcore reaches")


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def table(results: Sequence[Result]) -> str:
    """A table that reads well as plain text and as Markdown."""
    rows: list[tuple[str, ...]] = [_HEAD]
    for r in results:
        times = [_time(r.seconds.get(name)) for name in _CONTENDERS]
        threads = str(r.threads) if r.threads else ""
        rows.append(
            (r.name, threads, *times, _ratio(r.ratio("numpy")), _ratio(r.ratio("torch")), r.remark)
        )
    widths = [max(len(row[n]) for row in rows) for n in range(len(_HEAD))]
    lines = ["| " + " | ".join(t.ljust(w) for t, w in zip(row, widths)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines)


def _vectors() -> str:
    """The widest vector instructions that the processor names."""
    try:
        flags = Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return ""
    for flag, name in (("avx512f", "AVX-512"), ("avx2", "AVX2"), ("sve", "SVE"), ("asimd", "NEON")):
        if flag in flags:
            return f", {name}"
    return ""


def surroundings(bandwidth: Mapping[int, float]) -> str:
    """When, on what, with which versions."""
    copying = ", ".join(
        f"{speed / 1e9:.1f} GB/s on {n} thread{'s' if n > 1 else ''}"
        for n, speed in bandwidth.items()
    )
    return "\n".join(
        [
            f"- {datetime.date.today()}, device {Device.DEFAULT}",
            f"- Python {platform.python_version()}, numpy {np.__version__}, "
            f"torch {torch.__version__}",
            f"- processor: {platform.machine()}{_vectors()}, {os.cpu_count()} cores",
            f"- copying memory (read and written): {copying}",
            "- medians; the contenders take turns; ratios are tgcore's time over the other's: "
            "below 1, tgcore is faster",
        ]
    )
