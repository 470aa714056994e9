"""Programs on HCQ devices: a launch is one submission."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tgcore.runtime.compiled import Dims, Program

if TYPE_CHECKING:
    from tgcore.codegen.program import ProgramSpec
    from tgcore.hcq.device import HCQDevice
    from tgcore.runtime.buffer import Buffer


class HCQProgram(Program):
    """A program in an HCQ device's memory; a back end's subclass knows how to start it."""

    device: HCQDevice

    def __init__(self, device: HCQDevice, function_name: str, spec: ProgramSpec) -> None:
        super().__init__(device, function_name, spec)

    def __call__(
        self,
        buffers: Sequence[Buffer],
        values: Sequence[int] = (),
        *,
        global_size: Dims = (1, 1, 1),
        local_size: Dims = (1, 1, 1),
        wait: bool = False,
    ) -> float | None:
        device = self.device
        args = [buffer.memory.address for buffer in buffers]
        args += values
        if wait:
            return self._timed(args, global_size, local_size)
        device.enqueue(
            self.function_name, lambda queue: queue.exec(self, args, global_size, local_size)
        )
        return None

    def _timed(self, args: list[int], global_size: Dims, local_size: Dims) -> float:
        device = self.device
        start, end = device.take_signal(), device.take_signal()

        def build(queue: Any) -> None:
            queue.timestamp(start).exec(self, args, global_size, local_size).timestamp(end)

        device.wait_for(device.enqueue(self.function_name, build))
        seconds = (end.timestamp - start.timestamp) / 1e9
        device.return_signal(start)
        device.return_signal(end)
        return seconds
