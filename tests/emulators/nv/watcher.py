"""A thread that lets GPUs work later, or when the CPU writes what a parked channel waits for.

Plain stores of the CPU tell nobody, so somebody has to look.
"""

from __future__ import annotations

import threading
import time
import weakref
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.emulators.nv.system import FakeSystem

_PAUSE: Final = 0.0005  # seconds between two looks


class Watcher:
    """A thread that lives as long as there is something to do, or to wait for."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    def watch(self, system: FakeSystem) -> None:
        """Start to look, if a channel waits and nobody looks yet. Under the system's lock."""
        if self._thread is None and system.pending():
            arguments = (weakref.ref(system), self, system.delay or _PAUSE)
            self._thread = threading.Thread(target=_look, args=arguments, daemon=True)
            self._thread.start()

    def done(self) -> None:
        """The thread ends."""
        self._thread = None


def _look(reference: weakref.ref[FakeSystem], watcher: Watcher, pause: float) -> None:
    while True:
        time.sleep(pause)
        system = reference()
        if system is None:
            return
        with system.lock:
            if not system.pending():
                watcher.done()
                return
            try:
                system.poll()
            except Exception as error:
                system.complain(f"the fake itself failed: {error!r}")
                watcher.done()
                raise
        del system
