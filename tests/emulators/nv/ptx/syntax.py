"""PTX as data: operands, statements, variables, functions.

Vector, Pair and Address hold operands as they are written, and later what their names stand for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .types import Type


@dataclass(frozen=True)
class Name:
    """A register, special register, variable or label; `negated` for `!%p`."""

    text: str
    negated: bool = False


@dataclass(frozen=True)
class Int:
    value: int


@dataclass(frozen=True)
class Float:
    """A literal as a double; `bits32` where it was written as the bits of a float32."""

    value: float
    bits32: int | None = None
    bits64: int | None = None


@dataclass(frozen=True)
class Vector:
    items: tuple[Any, ...]


@dataclass(frozen=True)
class Pair:
    """`%r1|%p1`: a result and its predicate."""

    first: Any
    second: Any


@dataclass(frozen=True)
class Address:
    base: Any
    offset: int = 0


@dataclass(frozen=True)
class Group:
    """The operands in parentheses of a call."""

    items: tuple[Operand, ...]


Operand = Name | Int | Float | Vector | Pair | Address | Group


@dataclass(frozen=True)
class Guard:
    name: str
    negated: bool


@dataclass(frozen=True)
class Instruction:
    line: int
    op: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Guard | None = None

    def __str__(self) -> str:
        return ".".join((self.op, *self.modifiers))


@dataclass(frozen=True)
class Label:
    line: int
    name: str


@dataclass(frozen=True)
class Targets:
    """`name: .branchtargets a, b;`"""

    line: int
    name: str
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Scope:
    line: int
    opens: bool


@dataclass(frozen=True)
class Registers:
    """`.reg .b32 %r<5>, %x;`: names, or a prefix and a count."""

    line: int
    type: Type
    names: tuple[tuple[str, int | None], ...]


@dataclass(frozen=True)
class Relocation:
    """The address of a variable in the bytes of another one."""

    offset: int
    size: int
    symbol: str
    addend: int
    generic: bool = False


@dataclass(frozen=True)
class Variable:
    """A variable in memory; `data` are its first bytes, the rest is zero."""

    line: int
    space: str
    name: str
    align: int
    size: int
    type: Type
    extern: bool = False
    data: bytes = b""
    relocations: tuple[Relocation, ...] = ()


Statement = Instruction | Label | Targets | Scope | Registers | Variable


@dataclass
class Function:
    """A kernel (`entry`) or a device function; a prototype has no body."""

    line: int
    name: str
    entry: bool
    parameters: list[Variable] = field(default_factory=list)
    results: list[Variable] = field(default_factory=list)
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)
    body: list[Statement] | None = None
