"""Signals: a number in memory that host and device both see, by which they wait for each other."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from tgcore.helpers import ContextVar

HCQ_TIMEOUT = ContextVar("HCQ_TIMEOUT", 30_000, "milliseconds to wait for a device before an error")

_SLICE = 0.02  # seconds: how long the host waits at once, so that Ctrl-C is heard soon


class Signal(ABC):
    """A 64-bit value that only grows, and a timestamp in nanoseconds that the device writes."""

    def __init__(self, address: int) -> None:
        self.address = address

    @property
    @abstractmethod
    def value(self) -> int:
        """The value now."""

    @value.setter
    @abstractmethod
    def value(self, value: int) -> None: ...

    @property
    @abstractmethod
    def timestamp(self) -> int:
        """When the device passed the signal's timestamp command, in nanoseconds of its clock."""

    @property
    def timestamp_address(self) -> int:
        """Where the device writes the timestamp."""
        return self.address + 8

    def wait(
        self, value: int, timeout: float | None = None, check: Callable[[], None] | None = None
    ) -> bool:
        """Block until the value is reached; False after `timeout` seconds (HCQ_TIMEOUT if None).

        Waits in slices, so that a KeyboardInterrupt comes through; `check` is called after each
        and may raise.
        """
        if self.value >= value:
            return True
        limit = HCQ_TIMEOUT.value / 1000 if timeout is None else timeout
        end = time.monotonic() + limit
        while not self.wait_slice(value, _SLICE):
            if check is not None:
                check()
            if time.monotonic() >= end:
                return self.value >= value
        return True

    def wait_slice(self, value: int, seconds: float) -> bool:
        """Block until the value is reached or the (short) time is over: looks again and again."""
        end = time.monotonic() + seconds
        spins = 0
        while self.value < value:
            spins += 1
            if spins > 100:
                if time.monotonic() >= end:
                    return False
                time.sleep(0.0001)
        return True


class MemorySignal(Signal):
    """A signal in memory that is mapped on the host: 16 bytes, value and timestamp."""

    def __init__(self, memory: memoryview, address: int) -> None:
        super().__init__(address)
        self._words = memory.cast("B").cast("Q")

    @property
    def value(self) -> int:
        return self._words[0]

    @value.setter
    def value(self, value: int) -> None:
        self._words[0] = value

    @property
    def timestamp(self) -> int:
        return self._words[1]
