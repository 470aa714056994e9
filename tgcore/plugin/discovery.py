"""Finds back ends in the metadata of installed distributions and loads one when it is asked for.

Only names and versions are read until then. A plugin that fails to load is an error only for
who asks for its device.
"""

from __future__ import annotations

import copy
import functools
import importlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from types import ModuleType
from typing import Final

from tgcore.errors import DeviceError
from tgcore.plugin.contract import (
    CONTRACT_ATTRIBUTE,
    BackendDescription,
    Probe,
    contract_mismatch,
    flaws_of,
)

GROUP: Final = "tgcore.backends"


@dataclass(frozen=True)
class Entry:
    """One distribution's claim to a device name, as its metadata states it."""

    name: str
    distribution: str
    version: str
    module: str

    @property
    def key(self) -> str:
        """Names the claim among all plugins."""
        return f"{self.distribution}:{self.name}"

    @property
    def provider(self) -> str:
        """The wheel and its version, for messages."""
        return f"{self.distribution} {self.version}".strip()


@dataclass(frozen=True)
class Backend:
    """A back end whose plugin was loaded, checked and described."""

    entry: Entry
    description: BackendDescription
    plugin: ModuleType


_loaded: dict[Entry, Backend] = {}


@functools.cache
def _all_entries() -> tuple[Entry, ...]:
    found: dict[Entry, None] = {}  # ordered; one distribution may be seen twice on sys.path
    for point in metadata.entry_points(group=GROUP):
        dist = point.dist
        name, version = (dist.name, dist.version) if dist is not None else ("unknown", "")
        found[Entry(point.name.upper(), name, version, point.value)] = None
    return tuple(found)


def reset() -> None:
    """Forgets what was found and loaded, so that the next use looks again."""
    _all_entries.cache_clear()
    _entries.cache_clear()
    _loaded.clear()


def entries() -> dict[str, list[Entry]]:
    """Device name -> the claims to it, after TGCORE_PLUGINS and TGCORE_DISABLE."""
    return _entries(os.environ.get("TGCORE_PLUGINS", ""), os.environ.get("TGCORE_DISABLE", ""))


@functools.lru_cache(maxsize=16)
def _entries(plugins: str, disable: str) -> dict[str, list[Entry]]:
    allowed = {_normalized(name) for name in _parts(plugins)}
    disabled = {name.upper() for name in _parts(disable)}
    result: dict[str, list[Entry]] = {}
    for entry in _all_entries():
        if allowed and _normalized(entry.distribution) not in allowed:
            continue
        if entry.name not in disabled:
            result.setdefault(entry.name, []).append(entry)
    return result


def load(name: str) -> Backend:
    """The back end of that device name, its plugin imported on first use; else DeviceError."""
    claims = entries().get(name, [])
    if not claims:
        raise _unknown(name)
    if len(claims) > 1:
        providers = " and ".join(claim.provider for claim in claims)
        raise DeviceError(
            f"device {name} is claimed by several distributions",
            providers,
            "two plugins may not supply a device of one name",
            f"pip uninstall one of them, or allow one: TGCORE_PLUGINS={claims[0].distribution}",
        )
    entry = claims[0]
    if entry not in _loaded:
        _loaded[entry] = _load_entry(entry)
    return _loaded[entry]


def probe(backend: Backend) -> Probe:
    """Which devices a back end has, or why none. Never raises: a failure is the reason."""
    hook = getattr(backend.plugin, "tgcore_probe", None)
    if hook is None:
        return Probe(("device",))
    try:
        result = hook()
    except Exception as error:
        return Probe(reason=f"its probe failed: {_one_line(error)}", fix=_reinstall(backend.entry))
    if not isinstance(result, Probe):
        got = type(result).__name__
        return Probe(reason=f"its probe returned {got}, not Probe", fix=_upgrade(backend.entry))
    return result


def extras() -> list[str]:
    """The extras of the core's distribution that install a back end, as its metadata says."""
    try:
        requirements = metadata.requires("tgcore") or []
    except metadata.PackageNotFoundError:
        return []
    found = []
    for text in requirements:
        requirement, _, marker = text.partition(";")
        if requirement.strip().startswith("tg-") and "extra" in marker:
            found.append(marker.split("==")[-1].strip().strip("'\""))
    return found


def install_hint() -> str:
    """The pip commands that install a back end."""
    names = extras()
    return ", ".join(f"pip install 'tgcore[{name}]'" for name in names) or (
        "pip install a distribution that supplies a back end"
    )


def traceback_wanted() -> bool:
    """Whether TGCORE_TRACEBACK asks for the plugin's own traceback."""
    return os.environ.get("TGCORE_TRACEBACK", "0") not in ("", "0")


def cause(error: BaseException) -> BaseException | None:
    """What to raise a DeviceError `from`: the plugin's own error only if it was asked for."""
    return error if traceback_wanted() else None


def device_error(what: str, entry: Entry, error: Exception) -> DeviceError:
    """A four-part error for an exception that came out of a plugin."""
    if isinstance(error, DeviceError):
        known = copy.copy(error)
        known.provider = error.provider or entry.provider
        return known
    hint = "" if traceback_wanted() else "; TGCORE_TRACEBACK=1 shows where it happened"
    return DeviceError(what, entry.provider, _one_line(error), _remedy(entry, error) + hint)


# *** loading one entry ***


def _load_entry(entry: Entry) -> Backend:
    from tgcore.plugin import manager  # pluggy is loaded only once a device is asked for

    what = f"device {entry.name} is not usable: its plugin does not load"
    try:
        plugin = _import_plugin(entry)
    except Exception as error:
        raise device_error(what, entry, error) from cause(error)
    stated = getattr(plugin, CONTRACT_ATTRIBUTE, None)
    if (mismatch := contract_mismatch(stated, entry.distribution)) is not None:
        raise DeviceError(what, entry.provider, *mismatch)
    try:
        manager.register(plugin, entry.key)
        hook = getattr(plugin, "tgcore_describe_backend", None)
        description = hook() if hook is not None else None
    except Exception as error:
        manager.unregister(entry.key)
        raise device_error(what, entry, error) from cause(error)
    flaws = flaws_of(description, entry.name)
    if flaws or description is None:
        manager.unregister(entry.key)
        raise DeviceError(what, entry.provider, "; ".join(flaws), _upgrade(entry))
    return Backend(entry, description, plugin)


def _import_plugin(entry: Entry) -> ModuleType:
    module, _, attribute = entry.module.partition(":")
    plugin = importlib.import_module(module.strip())
    for part in attribute.strip().split(".") if attribute else ():
        plugin = getattr(plugin, part)
    return plugin


def _unknown(name: str) -> DeviceError:
    claims = [entry for entry in _all_entries() if entry.name == name]
    if claims:
        blockers = [v for v in ("TGCORE_DISABLE", "TGCORE_PLUGINS") if os.environ.get(v)]
        setting = " and ".join(f"{v}={os.environ[v]}" for v in blockers)
        return DeviceError(
            f"device {name} is switched off",
            claims[0].provider,
            f"the environment has {setting}",
            f"unset {' and '.join(blockers)}, or allow it there",
        )
    known = sorted(entries())
    if not known:
        return DeviceError(f"no device {name}", "", "no back end is installed", install_hint())
    why = f"the installed back ends are: {', '.join(known)}"
    return DeviceError(f"no device {name}", "", why, _hint_for(name))


def _hint_for(name: str) -> str:
    if name.lower() in extras():
        return f"pip install 'tgcore[{name.lower()}]'"
    return "check the name, or install the distribution that supplies it; see `tgcore devices`"


def _remedy(entry: Entry, error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        package = error.name.partition(".")[0]
        return f"pip install --force-reinstall {entry.distribution} (it lacks {package})"
    if isinstance(error, OSError | ImportError):
        return f"install the library it lacks, or {_reinstall(entry)}"
    return _upgrade(entry)


def _reinstall(entry: Entry) -> str:
    return f"pip install --force-reinstall {entry.distribution}"


def _upgrade(entry: Entry) -> str:
    return f"pip install --upgrade {entry.distribution}"


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _parts(text: str) -> Sequence[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _normalized(distribution: str) -> str:
    return distribution.lower().replace("_", "-").replace(".", "-")
