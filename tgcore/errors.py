"""The kinds of errors that tgcore raises. Each says what went wrong and what to do about it."""

from __future__ import annotations

from typing import Any


class TgcoreError(Exception):
    """The base of all errors that are tgcore's own."""


class ShapeError(TgcoreError, ValueError):
    """Shapes do not fit the op that was asked for."""


class DTypeError(TgcoreError, TypeError):
    """A data type does not fit the op that was asked for."""


class RewriteLoopError(TgcoreError):
    """The rules of a pass undo each other, so that it would never end."""


class SpecError(TgcoreError):
    """A graph holds a node that its level does not allow.

    `node` is the node, `level` says where it was found, `family` names the rules that should have
    allowed it, and `made_by` the code that made it ("" where these are not known).
    """

    def __init__(
        self, message: str, node: Any = None, level: str = "", family: str = "", made_by: str = ""
    ) -> None:
        self.node, self.level, self.family, self.made_by = node, level, family, made_by
        super().__init__(message)


class OutOfBoundsError(SpecError):
    """A program may read or write outside its memory.

    `kernel`, `memory` and `size` name the place; `index` and `gate` are readable text (no gate:
    ""); `values` are those of loop variables, variables and loaded numbers for which the element
    `position` is accessed.
    """

    def __init__(
        self,
        message: str,
        *,
        kernel: str,
        memory: str,
        size: int,
        index: str,
        gate: str,
        values: dict[str, int],
        position: int,
    ) -> None:
        self.kernel, self.memory, self.size = kernel, memory, size
        self.index, self.gate, self.values, self.position = index, gate, values, position
        super().__init__(message, level="program")


class UndecidedBoundsError(SpecError):
    """Whether a program stays inside its memory could not be decided in the time allowed."""


class MissingPackageError(TgcoreError, ImportError):
    """A package that is only needed for this is not installed."""


class KernelOptError(TgcoreError):
    """An optimisation move does not apply to this kernel."""


class ScheduleError(TgcoreError, ValueError):
    """A tensor graph cannot be cut into kernels, e.g. because an assign aliases what it reads."""


class CodegenError(TgcoreError, RuntimeError):
    """A kernel could not be turned into a program, by a fault of the compiler or of a renderer."""


class CompileError(TgcoreError):
    """A compiler rejected the source of a kernel.

    `source` is the text that was compiled, `output` is what the compiler said of it.
    """

    def __init__(self, message: str, source: str = "", output: str = "") -> None:
        self.source, self.output = source, output
        parts = [message]
        if output:
            parts.append(output.rstrip())
        if source:
            parts.append("\n".join(f"{n:5d} | {t}" for n, t in enumerate(source.split("\n"), 1)))
        super().__init__("\n".join(parts))


class DeviceError(TgcoreError, RuntimeError):
    """A device cannot be used, or failed.

    `what` happened, `provider` is the wheel and version that supplies the device, `why` it
    happened, and `fix` is what the user can do.
    """

    def __init__(self, what: str, provider: str = "", why: str = "", fix: str = "") -> None:
        self.what, self.provider, self.why, self.fix = what, provider, why, fix
        super().__init__(what)

    def __str__(self) -> str:
        parts = [self.what]
        parts += [f"  from: {self.provider}"] if self.provider else []
        parts += [f"  why:  {self.why}"] if self.why else []
        parts += [f"  fix:  {self.fix}"] if self.fix else []
        return "\n".join(parts)


class OutOfMemoryError(DeviceError, MemoryError):
    """A device has not enough memory for an allocation."""
