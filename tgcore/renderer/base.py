"""What writes a kernel's source, and what compiles it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tgcore.codegen.target import Target
from tgcore.uop.node import UOp
from tgcore.uop.ops import Ops


class Renderer(ABC):
    """Turns a linear program into source text, and says through `target` what may be in it.

    - `code_for_op`: how each arithmetic op is written. An op that is not in it is not in
      `supported_ops()` either: leave it out of `Target.ops` and it is decomposed.
    - `extra_matcher`: rewrite rules of this language, applied after the decompositions.
    """

    code_for_op: ClassVar[Mapping[Ops, Any]] = {}
    extra_matcher: Any = None  # a PatternMatcher, or None

    def __init__(self, target: Target) -> None:
        self.target = target

    @classmethod
    def supported_ops(cls) -> frozenset[Ops]:
        """The arithmetic ops that this language can write."""
        return frozenset(cls.code_for_op)

    @property
    def cache_key(self) -> str:
        """Names everything but the program that the source depends on."""
        kind = type(self)
        return f"{kind.__module__}.{kind.__qualname__}"

    @abstractmethod
    def render(self, uops: Sequence[UOp], function_name: str) -> str:
        """The source of a kernel whose entry has that name."""


class Compiler(ABC):
    """Turns source into a binary.

    `cache_key` names the compiler, its version and its options: equal keys promise equal
    binaries for equal sources. `compile` may be called from any thread; `threads` is how many
    calls are worth running at once.
    """

    cache_key: str
    threads: int = 1

    @abstractmethod
    def compile(self, source: str) -> bytes:
        """The binary; CompileError if the source is rejected."""

    def disassemble(self, lib: bytes) -> str:
        """The binary as assembly, for DEBUG=7."""
        return "(this compiler shows no assembly)"

    def available(self) -> str | None:
        """None if it can be used here, else the reason why not in one line."""
        return None


class NoCompiler(Compiler):
    """For devices that take source as it is: the binary is the source's bytes."""

    cache_key = "none"

    def compile(self, source: str) -> bytes:
        return source.encode()
