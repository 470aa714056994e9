"""Values in a queue that are only known when it is submitted."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Symbol:
    """((value of `name`) + add) >> shift & mask

    A queue that is submitted again patches the words that hold symbols and nothing else. Shift and
    mask split an address over several words: `(s & 0xffffffff)`, `(s >> 32)`.
    """

    name: Hashable
    add: int = 0
    shift: int = 0
    mask: int = -1

    def resolve(self, value: int) -> int:
        """The number that the symbol stands for."""
        return ((value + self.add) >> self.shift) & self.mask

    def __add__(self, amount: int) -> Symbol:
        if self.shift or self.mask != -1:
            raise ValueError("add to a symbol before it is split into parts")
        return replace(self, add=self.add + amount)

    def __rshift__(self, amount: int) -> Symbol:
        if self.mask != -1:
            raise ValueError("shift a symbol before it is masked")
        return replace(self, shift=self.shift + amount)

    def __and__(self, mask: int) -> Symbol:
        return replace(self, mask=self.mask & mask)


Value = int | Symbol
