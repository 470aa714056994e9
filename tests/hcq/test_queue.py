"""Queues and symbols, without a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import pytest

from tgcore.hcq.program import HCQProgram
from tgcore.hcq.queue import HWQueue
from tgcore.hcq.signal import MemorySignal, Signal
from tgcore.hcq.symbol import Symbol, Value


class Recorder(HWQueue[Any]):
    """A queue of 32-bit words that remembers what was submitted."""

    word_type = "I"

    def __init__(self) -> None:
        super().__init__()
        self.submitted: list[list[int]] = []

    def exec(
        self,
        program: HCQProgram,
        args: Sequence[Value],
        global_size: Sequence[Value] = (1, 1, 1),
        local_size: Sequence[Value] = (1, 1, 1),
    ) -> Self:
        return self.push(1, *args, *global_size, *local_size)

    def copy(self, dest: Value, source: Value, nbytes: Value) -> Self:
        for address in (dest, source):
            self.push(address & 0xFFFFFFFF, address >> 32)
        return self.push(nbytes)

    def signal(self, signal: Signal, value: Value) -> Self:
        return self.push(3, value)

    def wait(self, signal: Signal, value: Value) -> Self:
        return self.push(4, value)

    def timestamp(self, signal: Signal) -> Self:
        return self.push(5)

    def memory_barrier(self) -> Self:
        return self.push(6)

    def _submit(self, device: Any) -> None:
        self.submitted.append(self.words.tolist())


def test_symbols() -> None:
    address = Symbol("a") + 16
    assert address.resolve(0x1_0000_0000) == 0x1_0000_0010
    assert (address & 0xFFFFFFFF).resolve(0x1_0000_0000) == 0x10
    assert (address >> 32).resolve(0x1_0000_0000) == 1
    assert ((address >> 4) & 0xF).resolve(0x20) == 3
    assert Symbol("a") + 1 == Symbol("a") + 1
    with pytest.raises(ValueError):
        (Symbol("a") >> 1) + 1
    with pytest.raises(ValueError):
        (Symbol("a") & 1) >> 1


def test_a_bound_queue_is_patched_not_rebuilt() -> None:
    queue = Recorder().copy(Symbol("to"), 0x2_0000_0003, Symbol("size")).bind("device")
    words = queue.words
    queue.submit("device", {"to": 0x5_0000_0001, "size": 64})
    queue.submit("device", {"to": 0x5_0000_0001, "size": 65})
    assert queue.words is words and queue.symbols == {"to", "size"}
    assert queue.submitted == [[1, 5, 3, 2, 64], [1, 5, 3, 2, 65]]
    with pytest.raises(ValueError, match="bound"):
        Recorder().push(1).bind(_Named("A")).submit(_Named("B"))
    with pytest.raises(KeyError):
        queue.submit("device", {"to": 1})


class _Named:
    def __init__(self, name: str) -> None:
        self.name = name


def test_memory_signal() -> None:
    memory = bytearray(16)
    signal = MemorySignal(memoryview(memory), 4096)
    assert not signal.wait(1, timeout=0.01)
    signal.value = 5
    assert signal.wait(5, timeout=0) and signal.timestamp == 0
    assert signal.timestamp_address == 4104 and memory[0] == 5
