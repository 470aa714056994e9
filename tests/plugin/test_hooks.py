"""Observers and the wrapper around compiling."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import pytest

from tgcore.plugin import manager, observers
from tgcore.plugin.hookspecs import hookimpl


class Watcher:
    """A plugin that listens and wraps."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    @hookimpl
    def tgcore_buffer_freed(self, nbytes: int) -> None:
        self.seen.append(("freed", nbytes))

    @hookimpl(wrapper=True)
    def tgcore_compile(self, source: str) -> Generator[None, bytes, bytes]:
        self.seen.append(("compile", source))
        binary = yield
        return binary + b"!"


@pytest.fixture
def watcher() -> Iterator[Watcher]:
    plugin = Watcher()
    manager.register(plugin, "watcher")
    yield plugin
    manager.unregister("watcher")


def test_events_cost_nothing_without_listener() -> None:
    assert not observers.buffer_freed or observers.buffer_freed.listeners


def test_hooks_hear_events(watcher: Watcher) -> None:
    assert observers.buffer_freed and not observers.kernel_launched
    observers.buffer_freed(device="X", nbytes=7, number=1)
    assert watcher.seen == [("freed", 7)]


def test_compile_wrapper(watcher: Watcher) -> None:
    assert observers.compile_with_wrappers("X", "text", str.encode) == b"text!"
    assert watcher.seen == [("compile", "text")]
    manager.unregister("watcher")
    assert observers.compile_with_wrappers("X", "text", str.encode) == b"text"
    manager.register(watcher, "watcher")


def test_listen() -> None:
    heard: list[dict[str, Any]] = []
    with observers.listen(observers.kernel_launched, lambda **facts: heard.append(facts)):
        observers.kernel_launched(name="k", device="X", buffers=())
    observers.kernel_launched(name="k", device="X", buffers=())
    assert heard == [{"name": "k", "device": "X", "buffers": ()}]
