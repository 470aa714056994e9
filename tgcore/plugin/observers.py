"""Events that plugins and tools may listen to; with no listener an event costs one test.

    if observers.buffer_freed:
        observers.buffer_freed(device=..., nbytes=..., number=...)

`listen` adds a function for tests and tools; plugins implement the hook of the same name (see
`tgcore.plugin.hookspecs`), which `tgcore.plugin.manager` connects here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


class Event:
    """Something that happens, and the functions that want to hear of it."""

    __slots__ = ("listeners", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.listeners: list[Callable[..., Any]] = []

    def __bool__(self) -> bool:
        return bool(self.listeners)

    def __call__(self, **facts: Any) -> None:
        for listener in self.listeners:
            listener(**facts)


kernel_scheduled = Event("kernel_scheduled")  # name, device, kernel
program_compiled = Event("program_compiled")  # name, device, source, binary
kernel_launched = Event("kernel_launched")  # name, device, buffers
buffer_allocated = Event("buffer_allocated")  # device, nbytes, dtype, number
buffer_freed = Event("buffer_freed")  # device, nbytes, number

EVENTS = (kernel_scheduled, program_compiled, kernel_launched, buffer_allocated, buffer_freed)

CompileFunction = Callable[[str], bytes]
compile_wrappers: list[Callable[[str, str, CompileFunction], bytes]] = []


def compile_with_wrappers(device: str, source: str, compile: CompileFunction) -> bytes:
    """`compile(source)`, through the wrappers that plugins have put around compiling."""
    if not compile_wrappers:
        return compile(source)
    return compile_wrappers[-1](device, source, compile)


@contextlib.contextmanager
def listen(event: Event, listener: Callable[..., Any]) -> Iterator[None]:
    """Calls the listener at each occurrence of the event while the block runs."""
    event.listeners.append(listener)
    try:
        yield
    finally:
        event.listeners.remove(listener)
