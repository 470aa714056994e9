"""What this machine can do: processors, vector width, memory."""

from __future__ import annotations

import functools
import itertools
import os
import platform
from pathlib import Path

from tgcore.errors import DeviceError


def allowed_processors() -> int:
    """How many processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def thread_count() -> int:
    """Threads to compute with: the processors this process may use, at most CPU_COUNT."""
    text = os.environ.get("CPU_COUNT", "")
    if not text:
        return allowed_processors()
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise DeviceError(
            f"CPU_COUNT={text!r} is no number of threads",
            "",
            "",
            "e.g. CPU_COUNT=2, or unset it",
        )
    return min(int(text), allowed_processors())


@functools.cache
def processor_flags() -> frozenset[str]:
    """The instruction set extensions that the system lists; empty where it lists none."""
    return frozenset(_cpuinfo("flags", "Features").split())


@functools.cache
def processor_name() -> str:
    """The processor's name for people."""
    return _cpuinfo("model name", "Model") or platform.processor() or platform.machine()


def _cpuinfo(*keys: str) -> str:
    """What the system says of the first processor; empty where it says nothing."""
    try:
        with open("/proc/cpuinfo") as file:
            for line in itertools.takewhile(str.strip, file):
                name, _, value = line.partition(":")
                if name.strip() in keys:
                    return value.strip()
    except OSError:
        pass
    return ""


def vector_bytes() -> int:
    """The width of a vector register."""
    flags = processor_flags()
    if "avx512f" in flags and "avx512dq" in flags and "avx512vl" in flags:
        return 64
    return 32 if "avx2" in flags else 16


def has_half() -> bool:
    """Whether float16 is converted by the processor itself."""
    return "f16c" in processor_flags() or platform.machine() in ("aarch64", "arm64")


def host_key() -> str:
    """Names the machine as far as compiled code depends on it."""
    flags = ",".join(sorted(processor_flags()))
    return f"{platform.machine()} {platform.system()} {processor_name()} {flags}"


def available_memory() -> int | None:
    """Bytes that can be used without swapping, also by the limits of a container."""
    found = [free for free in (_system_free(), _cgroup_free()) if free is not None]
    return min(found, default=None)


@functools.cache
def total_memory() -> int | None:
    """The machine's memory in bytes."""
    return _meminfo("MemTotal:")


def _system_free() -> int | None:
    return _meminfo("MemAvailable:")


def _meminfo(key: str) -> int | None:
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    return None


def _cgroup_free() -> int | None:
    for folder, limit, used in (
        ("/sys/fs/cgroup", "memory.max", "memory.current"),
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        try:
            return int(Path(folder, limit).read_text()) - int(Path(folder, used).read_text())
        except (OSError, ValueError):  # no such file, or no limit ("max")
            continue
    return None
