"""Which machine code stands for which PTX text."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True)
class Code:
    """A kernel: its machine code's length, and the PTX that says what it does."""

    nbytes: int
    ptx: str
    entry: str


class CodeRegistry:
    """Kernels by their machine code."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, bytes], Code] = {}

    def add(self, code: bytes, ptx: str, entry: str) -> None:
        """Say what code does."""
        digest = hashlib.sha256(code).digest()
        self._known[len(code), digest] = Code(len(code), ptx, entry)

    @property
    def lengths(self) -> list[int]:
        """The lengths of code to look for, longest first."""
        return sorted({nbytes for nbytes, _ in self._known}, reverse=True)

    def find(self, code: bytes) -> Code | None:
        """The kernel whose code this is."""
        return self._known.get((len(code), hashlib.sha256(code).digest()))
