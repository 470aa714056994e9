"""Hardware queues: lists of commands, built once, then submitted as often as needed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Hashable, Mapping, MutableSequence, Sequence
from typing import TYPE_CHECKING, ClassVar, Generic, Self, TypeVar

from tgcore.hcq.signal import Signal
from tgcore.hcq.symbol import Symbol, Value

if TYPE_CHECKING:
    from tgcore.hcq.device import HCQDevice
    from tgcore.hcq.program import HCQProgram

DeviceType = TypeVar("DeviceType", bound="HCQDevice")

NO_VALUES: Mapping[Hashable, int] = {}


class Words:
    """An array of words, some of which are symbols whose values are written in later."""

    word_type: ClassVar[str] = "q"  # typecode of array: "q" 64 bits, "I" 32 bits

    def __init__(self) -> None:
        self.words: array[int] = array(self.word_type)
        self._patches: dict[Hashable, list[tuple[int, Symbol]]] = {}
        self._last: dict[Hashable, int] = {}

    def push(self, *values: Value) -> Self:
        """Append words; called by a back end's commands."""
        for value in values:
            if isinstance(value, Symbol):
                self._patches.setdefault(value.name, []).append((len(self.words), value))
                self.words.append(0)
            else:
                self.words.append(value)
        return self

    def put(self, position: int, value: Value) -> None:
        """Replace a word."""
        if isinstance(value, Symbol):
            self._patches.setdefault(value.name, []).append((position, value))
        else:
            self.words[position] = value

    @property
    def symbols(self) -> set[Hashable]:
        """The names whose values a submission must give."""
        return set(self._patches)

    def patch(self, values: Mapping[Hashable, int]) -> None:
        """Write the values into the words that hold symbols, where they changed."""
        self.patch_into(self.words, self._last, values)

    def patch_into(
        self,
        words: MutableSequence[int] | memoryview,
        last: dict[Hashable, int],
        values: Mapping[Hashable, int],
    ) -> None:
        """Do so in a copy of the words, that has the values of `last` now."""
        for name, places in self._patches.items():
            value = values[name]
            if last.get(name) != value:
                last[name] = value
                for position, symbol in places:
                    words[position] = symbol.resolve(value)


class HWQueue(Words, ABC, Generic[DeviceType]):
    """A list of commands in the device's own encoding: an array of words.

    A back end writes words with `push` in each command, and implements `_submit`. Words may be
    symbols; their values are given at submission, and only those that changed are written.
    `bind` tells that the queue will be submitted more than once: a back end may then move the
    words to memory that the device reads by itself.
    """

    def __init__(self) -> None:
        super().__init__()
        self.starts: list[int] = []  # where each command begins
        self.bound: DeviceType | None = None

    # *** commands ***

    @abstractmethod
    def exec(
        self,
        program: HCQProgram,
        args: Sequence[Value],
        global_size: Sequence[Value] = (1, 1, 1),
        local_size: Sequence[Value] = (1, 1, 1),
    ) -> Self:
        """Run a program: `args` are the addresses of its buffers, then its variables."""

    @abstractmethod
    def copy(self, dest: Value, source: Value, nbytes: Value) -> Self:
        """Copy memory from address to address."""

    @abstractmethod
    def signal(self, signal: Signal, value: Value) -> Self:
        """Set the signal once all earlier commands are done."""

    @abstractmethod
    def wait(self, signal: Signal, value: Value) -> Self:
        """Hold all later commands until the signal reaches the value."""

    @abstractmethod
    def timestamp(self, signal: Signal) -> Self:
        """Write the device's time to the signal's timestamp once earlier commands are done."""

    @abstractmethod
    def memory_barrier(self) -> Self:
        """Make what earlier commands wrote visible to later ones and to other devices."""

    @abstractmethod
    def _submit(self, device: DeviceType) -> None:
        """Give the words to the device."""

    def begin(self) -> None:
        """Mark the start of a command; called by a back end's commands."""
        self.starts.append(len(self.words))

    # *** submission ***

    def bind(self, device: DeviceType) -> Self:
        """Prepare to be submitted many times, to this device."""
        self.bound = device
        return self

    def submit(self, device: DeviceType, values: Mapping[Hashable, int] = NO_VALUES) -> Self:
        """Hand the commands to the device, with these values for the symbols."""
        if self.bound is not None and self.bound is not device:
            raise ValueError(f"the queue is bound to {self.bound.name}, not {device.name}")
        if self._patches:
            self.patch(values)
        if self.words:
            self._submit(device)
        return self
