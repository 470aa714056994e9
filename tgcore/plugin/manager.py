"""The one pluggy manager, which knows the plugins loaded so far."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pluggy

from tgcore.plugin import hookspecs, observers


@functools.cache
def manager() -> pluggy.PluginManager:
    """The manager of all plugins that were loaded; `manager.cache_clear` starts afresh."""
    new = pluggy.PluginManager("tgcore")
    new.add_hookspecs(hookspecs)
    return new


def register(plugin: object, name: str) -> None:
    """Adds a plugin: checks its hooks' arguments and connects its observers."""
    known = manager()
    if known.has_plugin(name):
        known.unregister(name=name)
    if known.is_registered(plugin):
        return  # one module may supply several devices
    known.register(plugin, name)
    known.check_pending()
    connect()


def unregister(name: str) -> None:
    """Forgets a plugin."""
    if manager().has_plugin(name):
        manager().unregister(name=name)
    connect()


def connect() -> None:
    """Lets events call the hooks that some plugin implements, and no others."""
    hooks = manager().hook
    for event in observers.EVENTS:
        caller = getattr(hooks, f"tgcore_{event.name}")
        event.listeners = [f for f in event.listeners if not isinstance(f, pluggy.HookCaller)]
        if caller.get_hookimpls():
            event.listeners.append(caller)
    observers.compile_wrappers.clear()
    if hooks.tgcore_compile.get_hookimpls():
        observers.compile_wrappers.append(_compile)


class _CoreCompile:
    """The innermost implementation of the compile hook: calls the compiler."""

    @hookspecs.hookimpl(trylast=True)
    def tgcore_compile(
        self, device: str, source: str, compile: Callable[[str], bytes]
    ) -> bytes | None:
        return compile(source)


def _compile(device: str, source: str, compile: Callable[[str], bytes]) -> bytes:
    known = manager()
    if not known.has_plugin("tgcore-core"):
        known.register(_CoreCompile(), "tgcore-core")
    result: Any = known.hook.tgcore_compile(device=device, source=source, compile=compile)
    assert isinstance(result, bytes)
    return result
