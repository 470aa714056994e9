"""Makes kernels in other processes, each kernel within limits of time and memory.

A kernel in a strange file may be one that takes for ever, or all memory. Its process is then ended
and a new one takes the next kernel. Messages are text, not pickles.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections import deque
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

from tgcore.runtime.replay import Made, Row, made_from_text, made_to_text, make
from tgcore.uop.encode import from_text, to_text

_MEMORY_BYTES: Final = 4 << 30  # more than what a process has when it starts
_SECONDS_TO_END: Final = 5.0


def make_all(rows: Sequence[Row], given_opts: bool, jobs: int, seconds: float) -> list[Made]:
    """Make all kernels, in so many processes; with no jobs in this one, without limits."""
    if jobs == 0:
        return [make(row.kernel, row.opts, given_opts) for row in rows]
    pool = _Pool(rows, given_opts, seconds)
    return pool.run(min(jobs, len(rows)))


class _Worker:
    """A process and the kernel that it makes."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")  # devices have threads: no fork
        self.connection, other = context.Pipe()
        self.process: BaseProcess = context.Process(target=_serve, args=(other,), daemon=True)
        self.process.start()
        other.close()
        self.number: int | None = None
        self.deadline = 0.0

    def give(self, number: int, message: bytes, seconds: float) -> None:
        """Let it make a kernel."""
        self.number, self.deadline = number, time.monotonic() + seconds
        with contextlib.suppress(OSError):  # it has died: seen when its answer is read
            self.connection.send_bytes(message)

    def end(self) -> None:
        """End the process."""
        self.connection.close()
        self.process.kill()
        self.process.join(_SECONDS_TO_END)


class _Pool:
    def __init__(self, rows: Sequence[Row], given_opts: bool, seconds: float) -> None:
        self.rows, self.given_opts, self.seconds = rows, given_opts, seconds
        self.waiting = deque(range(len(rows)))
        self.results: dict[int, Made] = {}
        self.workers: dict[Connection, _Worker] = {}

    def run(self, jobs: int) -> list[Made]:
        """The results in the order of the rows."""
        try:
            for _ in range(jobs):
                self._start()
            while self.workers:
                self._step()
        finally:
            for worker in self.workers.values():
                worker.end()
        return [self.results[number] for number in range(len(self.rows))]

    def _start(self) -> None:
        worker = _Worker()
        self.workers[worker.connection] = worker
        self._give(worker)

    def _give(self, worker: _Worker) -> None:
        if not self.waiting:
            self._end(worker)
            return
        number = self.waiting.popleft()
        row = self.rows[number]
        message = to_text([row.kernel, row.opts, self.given_opts]).encode()
        worker.give(number, message, self.seconds)

    def _end(self, worker: _Worker) -> None:
        del self.workers[worker.connection]
        worker.end()

    def _step(self) -> None:
        first = min(worker.deadline for worker in self.workers.values())
        ready = wait(list(self.workers), max(0.0, first - time.monotonic()))
        for worker in [self.workers[c] for c in ready if isinstance(c, Connection)]:
            try:
                answer = worker.connection.recv_bytes()
            except (EOFError, OSError):
                self._lost(worker, "its process died")
            else:
                assert worker.number is not None
                self.results[worker.number] = made_from_text(answer)
                self._give(worker)
        now = time.monotonic()
        for worker in [w for w in self.workers.values() if w.deadline <= now]:
            self._lost(worker, f"it took longer than {self.seconds:g} s")

    def _lost(self, worker: _Worker, why: str) -> None:
        assert worker.number is not None
        self.results[worker.number] = Made("failed", why)
        self._end(worker)
        if self.waiting:
            self._start()


# *** in the other process ***


def _serve(connection: Connection) -> None:
    _limit_memory()
    with contextlib.suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            kernel, opts, given_opts = from_text(connection.recv_bytes())
            connection.send_bytes(made_to_text(make(kernel, opts, given_opts)).encode())


def _limit_memory() -> None:
    try:
        import resource  # not everywhere
    except ImportError:
        return
    with contextlib.suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + _MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
