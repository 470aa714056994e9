"""Small things that every layer needs: context variables, colours, the cache folder."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar, TypeVar

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


def prod(values: Iterable[Any]) -> Any:
    """The product of all values (ints or symbolic ints); 1 for none."""
    result: Any = 1
    for value in values:
        result = value * result if isinstance(result, int) and result == 1 else result * value
    return result


def dedup(values: Iterable[T]) -> list[T]:
    """The values in order, each one once."""
    return list(dict.fromkeys(values))


def flatten(values: Iterable[Iterable[T]]) -> list[T]:
    """One level of nesting removed."""
    return list(itertools.chain.from_iterable(values))


def argsort(values: Iterable[Any]) -> tuple[int, ...]:
    """The positions that put the values in ascending order."""
    items = list(values)
    return tuple(sorted(range(len(items)), key=items.__getitem__))


def partition(values: Iterable[T], test: Any) -> tuple[list[T], list[T]]:
    """Those for which the test holds, and the others."""
    yes: list[T] = []
    no: list[T] = []
    for value in values:
        (yes if test(value) else no).append(value)
    return yes, no


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple that is not below the value."""
    return -(-value // multiple) * multiple


def is_power_of_two(value: int) -> bool:
    """Whether value is 1, 2, 4, 8, ..."""
    return value > 0 and value & (value - 1) == 0


# *** context variables ***


class ContextVar:
    """A setting that the environment gives and `Context` overrides.

    >>> FOO = ContextVar("FOO_EXAMPLE", 0, "an example")
    >>> with Context(FOO_EXAMPLE=2):
    ...     FOO >= 1
    True
    """

    registry: ClassVar[dict[str, ContextVar]] = {}

    def __init__(self, name: str, default: int | str, doc: str = "") -> None:
        if name in ContextVar.registry:
            raise RuntimeError(f"context variable {name} is defined twice")
        self.name, self.doc = name, doc
        self.value: Any = getenv(name, default)
        self.listeners: list[Callable[[Any], None]] = []
        ContextVar.registry[name] = self

    def set(self, value: Any) -> None:
        """Another value, from now on."""
        self.value = value
        for listener in self.listeners:
            listener(value)

    def on_change(self, listener: Callable[[Any], None]) -> None:
        """Calls the listener with the value now and whenever it changes."""
        self.listeners.append(listener)
        listener(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __str__(self) -> str:
        return str(self.value)

    def __eq__(self, other: object) -> bool:
        return bool(self.value == other)

    def __hash__(self) -> int:
        return hash(self.name)

    def __ge__(self, other: int) -> bool:
        return bool(self.value >= other)

    def __gt__(self, other: int) -> bool:
        return bool(self.value > other)

    def __le__(self, other: int) -> bool:
        return bool(self.value <= other)

    def __lt__(self, other: int) -> bool:
        return bool(self.value < other)

    def __repr__(self) -> str:
        return f"{self.name}={self.value!r}"


class Context(contextlib.ContextDecorator):
    """Sets context variables for a `with` block (or a decorated function)."""

    def __init__(self, **settings: int | str) -> None:
        for name in settings:
            if name not in ContextVar.registry:
                known = ", ".join(sorted(ContextVar.registry))
                raise KeyError(f"no context variable {name}; there are: {known}")
        self.settings = settings
        self.saved: list[dict[str, Any]] = []

    def __enter__(self) -> Context:
        self.saved.append({name: ContextVar.registry[name].value for name in self.settings})
        for name, value in self.settings.items():
            ContextVar.registry[name].set(value)
        return self

    def __exit__(self, *exc: object) -> None:
        for name, value in self.saved.pop().items():
            ContextVar.registry[name].set(value)


def getenv(name: str, default: int | str) -> Any:
    """The environment's value for name, of the same type as the default."""
    text = os.environ.get(name)
    if text is None:
        return default
    if isinstance(default, str):
        return text
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"environment variable {name} must be an integer, not {text!r}") from None


DEBUG = ContextVar(
    "DEBUG", 0, "1 devices, 2 kernels, 3 optimisations, 4 source, 5 UOps, 6 linear, 7 asm"
)
SPEC = ContextVar(
    "SPEC",
    0,
    "1 verifies graphs at stage borders, 2 every node made (and verified graphs as text), "
    "3 also every node made as text",
)
IGNORE_OOB = ContextVar("IGNORE_OOB", 1, "0 proves with z3 that no program leaves its buffers")
TRACE_REWRITES = ContextVar("TRACE_REWRITES", 0, "1 records every rewrite: graphs, matches, times")
PROCESS_REPLAY = ContextVar("PROCESS_REPLAY", "", "record: keep every kernel for `tgcore replay`")
NOOPT = ContextVar("NOOPT", 0, "1 turns the optimiser off")
JIT = ContextVar("JIT", 1, "0 makes TinyJit call its function each time, 2 replays without graphs")
PCONTIG = ContextVar(
    "PCONTIG", 0, "1 realises partly where ranges differ, 2 also keeps reduces fused"
)
PROFILE = ContextVar("PROFILE", 0, "1 collects timestamps of kernels and copies")
THREADS = ContextVar("THREADS", 0, "most threads a kernel may use; 0: all that the device has")
TC = ContextVar("TC", 1, "0 keeps the optimiser from using matrix instructions")
ALLOW_TF32 = ContextVar("ALLOW_TF32", 0, "1 lets matrix instructions round float32 to TF32")
CACHELEVEL = ContextVar("CACHELEVEL", 1, "0 turns the disk cache off")
DEV = ContextVar("DEV", "", "the default device")


# *** colours ***

COLORS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def colored(text: str, color: str | None) -> str:
    """The text in an ANSI colour; an upper-case name is the bright one. NO_COLOR turns it off."""
    if color is None or os.environ.get("NO_COLOR"):
        return text
    code = COLORS.index(color.lower()) + (90 if color.isupper() else 30)
    return f"\x1b[{code}m{text}\x1b[0m"


def ansistrip(text: str) -> str:
    """The text without colour codes."""
    return _ANSI.sub("", text)


def ansilen(text: str) -> int:
    """The number of columns that the text takes, colour codes not counted."""
    return len(ansistrip(text))


# *** the cache folder ***


@functools.cache
def cache_dir() -> Path:
    """The folder for caches, private to the user: TGCORE_CACHE_DIR or the platform's own place."""
    if (given := os.environ.get("TGCORE_CACHE_DIR")) is not None:
        path = Path(given)
    else:
        import platformdirs  # only needed when a cache is used

        path = Path(platformdirs.user_cache_dir("tgcore"))
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def pluralize(count: int, noun: str) -> str:
    """`1 kernel`, `2 kernels`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
