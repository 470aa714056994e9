"""`python -m benchmarks`: measures, and prints a table; `--write` also keeps it in RESULTS.md."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks import kernels, report, startup, training
from benchmarks.measure import Case, Result, copy_bandwidth, measure

# settings that some machines carry and that make numpy's BLAS slow
_SLOWS_BLAS = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")


def start_again_without_slow_blas() -> None:
    """BLAS reads its settings when it is loaded, so a new process without them takes over."""
    if any(name in os.environ for name in _SLOWS_BLAS):
        clean = {k: v for k, v in os.environ.items() if k not in _SLOWS_BLAS}
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks", *sys.argv[1:]], clean)


def main() -> None:
    """Measure everything that was asked for."""
    start_again_without_slow_blas()
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--write", action="store_true", help="also write benchmarks/RESULTS.md")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: rough figures")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name holds TEXT")
    arguments = parser.parse_args()
    budget = 0.5 if arguments.quick else 4.0
    counts = [n for n in (1, 2) if n <= (os.cpu_count() or 1)]
    bandwidth = {n: copy_bandwidth(n) for n in counts}
    results: list[Result] = []
    makers: list[tuple[int, Callable[[int], Case]]]
    makers = [(n, make) for n in counts for make in kernels.CASES]
    makers += [(n, training.training_step) for n in counts]
    makers += [(1, kernels.launches)]
    for threads, make in makers:
        with kernels.limited(threads):
            case = make(threads)
            if arguments.only in case.name:
                print(f"{case.name}, {threads} ...", file=sys.stderr, flush=True)
                results.append(measure(case, budget, bandwidth))
    if not arguments.only:
        results += startup.startup(3 if arguments.quick else 9)
    text = f"{report.surroundings(bandwidth)}\n\n{report.table(results)}\n"
    print(text)
    if arguments.write:
        path = Path(__file__).parent / "RESULTS.md"
        path.write_text(f"# Results\n\nMade by `python -m benchmarks --write`.\n\n{text}")
        print(f"written to {path}")


if __name__ == "__main__":
    main()
