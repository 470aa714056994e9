"""HCQ devices: a timeline that orders all work, submission, waiting, and profiles."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tgcore.errors import DeviceError
from tgcore.hcq.graph import HCQGraph
from tgcore.hcq.memory import HCQAllocator
from tgcore.hcq.queue import HWQueue
from tgcore.hcq.signal import HCQ_TIMEOUT, Signal
from tgcore.helpers import PROFILE
from tgcore.runtime.compiled import CompiledDevice, Graph

if TYPE_CHECKING:
    from tgcore.renderer.base import Compiler, Renderer

Queue = HWQueue[Any]


@dataclass(frozen=True)
class ProfileEvent:
    """One program or copy on a device: start and end in nanoseconds of the device's clock."""

    device: str
    queue: str
    name: str
    start: int
    end: int

    @property
    def seconds(self) -> float:
        """How long it took."""
        return (self.end - self.start) / 1e9


class HCQDevice(CompiledDevice):
    """A device that is driven by queues of commands.

    Every submission waits for the timeline's last value and signals the next one; so all work on
    the device is ordered as it was submitted, over all its queues. A back end gives the classes
    of its queues and implements `new_signal`; it overrides `state_report` to say what the
    device says of itself when it hangs.
    """

    compute_queue: Callable[[], Queue]
    copy_queue: Callable[[], Queue] | None = None

    def __init__(
        self,
        name: str,
        allocator: HCQAllocator,
        renderer: Renderer | None,
        compiler: Compiler | None,
        graph: type[Graph] | None = HCQGraph,
    ) -> None:
        super().__init__(name, allocator, renderer, compiler, graph)
        self.lock = threading.RLock()
        self.timeline = self.new_signal()
        self.submitted = 0  # the timeline's value once all that was submitted is done
        self.last_names: deque[tuple[int, str]] = deque(maxlen=64)  # timeline value, what it ran
        self.profile: list[ProfileEvent] = []
        self._pending_profile: list[tuple[str, str, Signal, Signal]] = []
        self._free_signals: list[Signal] = []

    def new_signal(self) -> Signal:
        """A signal with value 0."""
        raise NotImplementedError

    def reaches(self, other: CompiledDevice) -> bool:
        """Whether this device's queues may copy from the other's memory and wait on its signals."""
        return type(other) is type(self)

    def progress(self) -> int:
        """A number that changes while the device gets on with its work."""
        return self.timeline.value

    def state_report(self) -> str:
        """What the device says of itself; asked for when it did not finish in time."""
        return ""

    # *** submission ***

    def enqueue(self, name: str, build: Callable[[Queue], object], *, on: str = "compute") -> int:
        """Submit the commands that `build` puts in a queue; returns the timeline's value after."""
        make = self.copy_queue if on == "copy" and self.copy_queue is not None else None
        with self.lock:
            queue = (make or self.compute_queue)()
            queue.wait(self.timeline, self.submitted).memory_barrier()
            self._build(queue, name, build, on)
            queue.signal(self.timeline, self.submitted + 1).submit(self)
            return self.advance(name)

    def advance(self, name: str) -> int:
        """Count a submission that signals the timeline's next value. The caller holds the lock."""
        self.submitted += 1
        self.last_names.append((self.submitted, name))
        return self.submitted

    def enqueue_copy(self, dest: int, source: int, nbytes: int) -> int:
        """Submit a copy between addresses that the device sees."""
        return self.enqueue("copy", lambda queue: queue.copy(dest, source, nbytes), on="copy")

    def enqueue_transfer(self, dest: int, source: int, nbytes: int, owner: HCQDevice) -> None:
        """Copy from another device's memory: its queue copies, this one's then waits for it."""
        if owner is self:
            self.enqueue_copy(dest, source, nbytes)
            return
        with ExitStack() as stack:
            for device in sorted((self, owner), key=lambda d: d.name):
                stack.enter_context(device.lock)
            mine = self.submitted

            def copy(queue: Queue) -> None:
                queue.wait(self.timeline, mine).copy(dest, source, nbytes)

            done = owner.enqueue(f"copy to {self.name}", copy, on="copy")
            self.enqueue(f"copy from {owner.name}", lambda q: q.wait(owner.timeline, done))

    def _build(self, queue: Queue, name: str, build: Callable[[Queue], object], on: str) -> None:
        if not PROFILE:
            build(queue)
            return
        start, end = self.take_signal(), self.take_signal()
        queue.timestamp(start)
        build(queue)
        queue.timestamp(end)
        self._pending_profile.append((on, name, start, end))

    # *** waiting ***

    def wait_for(self, value: int) -> None:
        """Block until the timeline reaches the value. Errors as of `wait_signal`."""
        self.wait_signal(self.timeline, value)

    def wait_signal(self, signal: Signal, value: int) -> None:
        """Block until a signal that the device sets reaches the value.

        DeviceError if the device made no progress for the time of HCQ_TIMEOUT, or has failed.
        """
        while signal.value < value:
            before = self.progress()
            if not signal.wait(value, check=self.check_health) and self.progress() == before:
                raise self._timed_out(signal.value, value)

    def check_health(self) -> None:
        """Raise DeviceError if the device has failed; asked again and again while waiting."""

    def synchronize(self) -> None:
        self.wait_for(self.submitted)
        if self._pending_profile:
            self._collect_profile()

    def running(self) -> str:
        """What the device runs, or has failed in: the first submission that is not done."""
        reached = self.timeline.value
        waiting = [name for number, name in self.last_names if reached < number]
        return waiting[0] if waiting else "unknown work"

    def _timed_out(self, reached: int, value: int) -> DeviceError:
        report = self.state_report()
        return DeviceError(
            f"{self.name} did not finish {self.running()} within {HCQ_TIMEOUT.value} ms",
            self.provider,
            "; ".join(filter(None, (f"it has come to {reached}, not to {value}", report))),
            "if the kernel just takes long, raise HCQ_TIMEOUT (milliseconds)",
        )

    # *** profiles ***

    def take_signal(self) -> Signal:
        """A signal for a while; `return_signal` gives it back."""
        return self._free_signals.pop() if self._free_signals else self.new_signal()

    def return_signal(self, signal: Signal) -> None:
        """Let the signal be used again."""
        self._free_signals.append(signal)

    def _collect_profile(self) -> None:
        with self.lock:
            pending, self._pending_profile = self._pending_profile, []
        for queue, name, start, end in pending:
            self.add_profile(queue, name, start, end)
            self._free_signals += (start, end)

    def add_profile(self, queue: str, name: str, start: Signal, end: Signal) -> None:
        """Note what the timestamps of two passed signals say."""
        event = ProfileEvent(self.name, queue, name, start.timestamp, end.timestamp)
        self.profile.append(event)
