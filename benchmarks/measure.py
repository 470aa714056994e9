"""Timing: the contenders of a case take turns, so that a slow moment of the machine hits all."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

Run = Callable[[], object]

# seconds after which the threads of the contender before have stopped to spin for more work
_SETTLE: Final = 0.03
# seconds of unmeasured runs, in which its own threads wake and find a core each
_WARM_UP: Final = 0.02


@dataclass
class Case:
    """One line of the table: what each contender does, and how much work that is."""

    name: str
    runs: Mapping[str, Run]
    threads: int = 1
    flops: float = 0.0
    nbytes: float = 0.0  # that must go through memory at least
    divide: int = 1  # the time of one of so many parts is reported


@dataclass
class Result:
    """The median seconds of each contender, and a remark about tgcore's."""

    name: str
    seconds: dict[str, float]
    remark: str = ""
    threads: int = 0
    spread: dict[str, float] = field(default_factory=dict)

    def ratio(self, other: str) -> float | None:
        """tgcore's time over another's: below 1, tgcore is the faster one."""
        if other not in self.seconds or "tgcore" not in self.seconds:
            return None
        return self.seconds["tgcore"] / self.seconds[other]


def take_turns(runs: Mapping[str, Run], budget: float, fewest: int = 7) -> dict[str, list[float]]:
    """The seconds of each run, measured in turns for about `budget` seconds altogether."""
    for run in runs.values():  # compile, capture, fault pages in
        for _ in range(4):
            run()
    times: dict[str, list[float]] = {name: [] for name in runs}
    end = time.perf_counter() + budget
    while time.perf_counter() < end or len(next(iter(times.values()))) < fewest:
        for name, run in runs.items():
            time.sleep(_SETTLE)
            warm = time.perf_counter() + _WARM_UP
            while time.perf_counter() < warm:
                run()
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return times


def measure(case: Case, budget: float, bandwidth: Mapping[int, float]) -> Result:
    """Measure one case; `bandwidth` is the machine's bytes a second by number of threads."""
    times = take_turns(case.runs, budget)
    medians = {name: statistics.median(t) / case.divide for name, t in times.items()}
    spread = {name: min(t) / case.divide for name, t in times.items()}
    ours = medians["tgcore"]
    remarks = []
    if case.flops:
        remarks.append(f"{case.flops / ours / 1e9:.0f} GFLOPS")
    if case.nbytes:
        speed = case.nbytes / ours
        share = 100 * speed / bandwidth[case.threads]
        remarks.append(f"{speed / 1e9:.1f} GB/s, {share:.0f} % of copying")
    return Result(case.name, medians, ", ".join(remarks), case.threads, spread)


_COPIED: Final = 1 << 26


def copy_bandwidth(threads: int, rounds: int = 15) -> float:
    """Bytes read and written a second when threads copy memory that no cache holds."""
    source = np.ones(_COPIED, np.uint8)
    target = np.zeros(_COPIED, np.uint8)
    parts = list(zip(np.array_split(target, threads), np.array_split(source, threads)))

    def copy_all() -> None:
        if threads == 1:
            np.copyto(target, source)
            return
        workers = [threading.Thread(target=np.copyto, args=part) for part in parts]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    times = take_turns({"copy": copy_all}, 0.0, rounds)["copy"]
    return 2 * _COPIED / statistics.median(times)
