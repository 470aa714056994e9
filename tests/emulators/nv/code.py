"""Which machine code stands for which PTX text: the fake runs the text instead of the code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.emulators.nv.ptx import Kernel, parse


@dataclass(frozen=True)
class BankWord:
    """An address that stands in a constant bank."""

    bank: int
    offset: int


@dataclass(frozen=True)
class BankAddress:
    """The address of a place in a constant bank."""

    bank: int
    offset: int


_INSTRUCTION = 16  # bytes

Place = int | BankWord | BankAddress


@dataclass(frozen=True)
class Code:
    """A kernel: its machine code's length, and the PTX that says what it does."""

    nbytes: int
    ptx: str
    entry: str
    stack: int = 0  # bytes of local memory of a thread that the machine code needs
    registers: int = 0  # of a thread; 0: not known
    symbols: Mapping[str, Place] = field(default_factory=dict)  # of module variables

    def kernel(self) -> Kernel:
        """The kernel of the text."""
        return parse(self.ptx).kernels[self.entry]


def _most_threads(code: Code) -> int:
    limit = code.kernel().max_threads
    return 1 << 30 if limit is None else limit


def _without(code: bytes, offsets: tuple[int, ...]) -> bytes:
    """Code without the instructions at these offsets."""
    if not offsets:
        return code
    result = bytearray(code)
    for at in offsets:
        result[at : at + _INSTRUCTION] = bytes(_INSTRUCTION)
    return bytes(result)


class CodeRegistry:
    """Kernels by their machine code."""

    def __init__(self) -> None:
        self._known: dict[bytes, Code] = {}
        self._patched: dict[int, set[tuple[int, ...]]] = {}  # of code of that length

    def add(self, code: bytes, kernel: Code, patched: tuple[int, ...] = ()) -> None:
        """Say what code does. `patched` are the offsets of instructions that get addresses.

        Kernels that differ in their launch bounds alone may have the same code, which then runs
        in the blocks of any of them.
        """
        code = _without(code, patched)
        self._patched.setdefault(len(code), set()).add(patched)
        old = self._known.get(code)
        if old is None or _most_threads(old) <= _most_threads(kernel):
            self._known[code] = kernel

    @property
    def lengths(self) -> list[int]:
        """The lengths of code to look for, longest first."""
        return sorted({len(code) for code in self._known}, reverse=True)

    def find(self, code: bytes) -> Code | None:
        """The kernel whose code this is."""
        for patched in self._patched.get(len(code), ()):
            if (kernel := self._known.get(_without(code, patched))) is not None:
                return kernel
        return None

    def codes(self, entry: str) -> list[bytes]:
        """The code of a kernel, for each chip that it was compiled for."""
        return [code for code, kernel in self._known.items() if kernel.entry == entry]
