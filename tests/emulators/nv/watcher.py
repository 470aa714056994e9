"""Notices when the CPU writes what a parked channel waits for: plain stores tell nobody."""

from __future__ import annotations

import threading
import time
import weakref
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.emulators.nv.system import FakeSystem

_PAUSE: Final = 0.0005  # seconds between two looks


class Watcher:
    """A thread that lives as long as a channel is parked."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    def watch(self, system: FakeSystem) -> None:
        """Start to look, if a channel waits and nobody looks yet. Under the system's lock."""
        if self._thread is None and system.parked():
            arguments = (weakref.ref(system), self)
            self._thread = threading.Thread(target=_look, args=arguments, daemon=True)
            self._thread.start()

    def done(self) -> None:
        """The thread ends."""
        self._thread = None


def _look(reference: weakref.ref[FakeSystem], watcher: Watcher) -> None:
    while True:
        time.sleep(_PAUSE)
        system = reference()
        if system is None:
            return
        with system.lock:
            if not system.parked():
                watcher.done()
                return
            system.poll()
        del system
