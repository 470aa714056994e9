"""What can go wrong: text that is not understood, and faults of a running kernel."""

from __future__ import annotations

from dataclasses import dataclass, field

Index3 = tuple[int, int, int]


class PtxError(ValueError):
    """The text is not PTX that this interpreter knows; names the line, as `ptxas` does."""

    def __init__(self, message: str, line: int) -> None:
        self.line = line
        super().__init__(f"line {line}: {message}")


@dataclass(eq=False)
class Fault(Exception):
    """A running kernel did what a GPU answers with an exception."""

    message: str
    line: int = 0
    kernel: str = ""
    block: Index3 | None = None
    thread: Index3 | None = None

    def __str__(self) -> str:
        where = "" if self.block is None else f", block {self.block}, thread {self.thread}"
        return f"{self.message} (kernel {self.kernel}, line {self.line}{where})"


@dataclass(eq=False)
class MemoryFault(Fault):
    """An address that nothing is mapped at, or that the space does not have."""

    address: int = 0
    write: bool = False


@dataclass(eq=False)
class MisalignedAddress(MemoryFault):
    """An address that is no multiple of the size of the access."""


@dataclass(eq=False)
class IllegalInstruction(Fault):
    """`trap`, `brkpt`, or a branch to nowhere."""


@dataclass(eq=False)
class SyncFault(Fault):
    """Threads wait for others that never come: a divergent barrier, or a lane that is missing."""

    waiting: list[str] = field(default_factory=list)


@dataclass(eq=False)
class Hang(Fault):
    """The instruction budget is used up; a real GPU would run into its time-out."""
