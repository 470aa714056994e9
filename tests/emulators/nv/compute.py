"""The compute class (to be filled in)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.emulators.nv.host import ChannelRun


class ComputeEngine:
    """The state of a compute object."""

    def __init__(self, run: ChannelRun) -> None:
        self._run = run

    def method(self, address: int, data: int) -> None:
        """One method."""
        raise NotImplementedError

    def idle(self) -> None:
        """Finish all work."""
