"""Values in a queue that are only known when it is submitted."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(slots=True, unsafe_hash=True)  # never changed; frozen ones take long to make
class Symbol:
    """(((value of `name`) + add) >> shift & mask) << left | bits

    A queue that is submitted again patches the words that hold symbols and nothing else. Shift and
    mask split an address over several words: `(s & 0xffffffff)`, `(s >> 32)`; `place` puts it
    among other bits of a word.
    """

    name: Hashable
    add: int = 0
    shift: int = 0
    mask: int = -1
    left: int = 0
    bits: int = 0

    def resolve(self, value: int) -> int:
        """The number that the symbol stands for."""
        return (((value + self.add) >> self.shift) & self.mask) << self.left | self.bits

    def place(self, low: int, width: int, bits: int = 0) -> Symbol:
        """The lowest `width` bits of the symbol, from bit `low` of a word that has other `bits`."""
        mask = self.mask & ((1 << width) - 1)
        return Symbol(self.name, self.add, self.shift, mask, low, bits)

    def __add__(self, amount: int) -> Symbol:
        if self.shift or self.mask != -1:
            raise ValueError("add to a symbol before it is split into parts")
        return Symbol(self.name, self.add + amount)

    def __rshift__(self, amount: int) -> Symbol:
        if self.mask != -1:
            raise ValueError("shift a symbol before it is masked")
        return Symbol(self.name, self.add, self.shift + amount)

    def __and__(self, mask: int) -> Symbol:
        return Symbol(self.name, self.add, self.shift, self.mask & mask, self.left, self.bits)


Value = int | Symbol
