"""The registry of devices: `Device["NAME:1"]` opens one, `Device.DEFAULT` is the one to use."""

from __future__ import annotations

import atexit
import functools
import os
import threading
from contextlib import ExitStack
from typing import Final

from tgcore.errors import DeviceError
from tgcore.helpers import DEBUG, DEV
from tgcore.plugin import discovery
from tgcore.plugin.discovery import Backend
from tgcore.plugin.visible import VARIABLE, only_visible, physical_index
from tgcore.runtime import disk
from tgcore.runtime.compiled import CompiledDevice

_HOST_DEVICES: Final = {description.name: description for description in (disk.DESCRIPTION,)}


@functools.cache
def canonicalize(name: str) -> str:
    """The one spelling of a device name: upper case, no `:0`; what follows a path stays.

    >>> canonicalize("xyz:0"), canonicalize("xyz:1"), canonicalize("disk:/tmp/File")
    ('XYZ', 'XYZ:1', 'DISK:/tmp/File')
    """
    kind, colon, rest = name.partition(":")
    if not kind:
        raise DeviceError(f"{name!r} is not a device name", "", "", "e.g. NAME or NAME:1")
    if rest.isascii() and rest.isdigit():
        rest = str(int(rest))
    return kind.upper() + (f":{rest}" if colon and rest not in ("", "0") else "")


class DeviceRegistry:
    """All devices: opened on first use, one object each, from any thread."""

    def __init__(self) -> None:
        self._opened: dict[str, CompiledDevice] = {}
        self._lock = threading.RLock()
        self._chosen: str | None = None  # set by assigning DEFAULT
        self._default: tuple[tuple[str, ...], str] | None = None  # settings it was found for, name

    def __getitem__(self, name: str) -> CompiledDevice:
        """The opened device of that name; DeviceError if it cannot be opened."""
        device = self._opened.get(name)
        return device if device is not None else self._open(canonicalize(name))

    def canonicalize(self, name: str | None) -> str:
        """The one spelling of a device name; None stands for the default device."""
        return self.DEFAULT if name is None else canonicalize(name)

    @property
    def DEFAULT(self) -> str:
        """The device to use when none is named.

        DEV=NAME, or NAME=1 for an installed back end; else the available one of highest priority.
        """
        if self._chosen is not None:
            return self._chosen
        names = tuple(discovery.entries())
        settings = (str(DEV), *(name for name in names if _is_on(name)), "", *names)
        if self._default is None or self._default[0] != settings:
            self._default = (settings, self._choose(str(DEV), names))
        return self._default[1]

    @DEFAULT.setter
    def DEFAULT(self, name: str | None) -> None:
        self._chosen = None if name is None else canonicalize(name)

    def backend(self, name: str) -> Backend:
        """The loaded back end that supplies the device (none for the core's own host devices)."""
        return discovery.load(canonicalize(name).partition(":")[0])

    @property
    def opened(self) -> list[CompiledDevice]:
        """The devices that were opened so far."""
        return list(self._opened.values())

    def reset(self) -> None:
        """Close all devices and forget all that was found (for tests)."""
        with self._lock:
            self.close()
            self._chosen = self._default = None
            discovery.reset()

    def forget(self, device: CompiledDevice) -> None:
        """Close a device that has failed; the next use of its name opens it anew."""
        with self._lock:
            if self._opened.get(device.name) is device:
                del self._opened[device.name]
            device.close()

    def close(self) -> None:
        """Close all devices."""
        with self._lock, ExitStack() as rest:  # all of them, even if one fails to
            for device in self._opened.values():
                rest.callback(device.close)
            self._opened.clear()

    def _open(self, name: str) -> CompiledDevice:
        with self._lock:
            if name not in self._opened:
                self._opened[name] = self._open_new(name)
                if DEBUG >= 1:
                    print(f"opened device {name}")
            return self._opened[name]

    def _open_new(self, name: str) -> CompiledDevice:
        kind, _, rest = name.partition(":")
        if kind in _HOST_DEVICES:
            return _HOST_DEVICES[kind].open(name, 0)
        backend = discovery.load(kind)
        if rest and not rest.isdigit():
            raise DeviceError(f"no device {name}", "", f"{rest!r} is no index", f"e.g. {kind}:1")
        index = int(rest or 0)
        if backend.description.hcq:
            index = physical_index(kind, index)
        what = f"device {name} does not open"
        try:
            device = backend.description.open(name, index)
        except Exception as error:
            wrapped = discovery.device_error(what, backend.entry, error)
            raise wrapped from discovery.cause(error)
        if not isinstance(device, CompiledDevice):
            why = f"its plugin opened a {type(device).__name__}, not a CompiledDevice"
            fix = f"pip install --upgrade {backend.entry.distribution}"
            raise DeviceError(what, backend.entry.provider, why, fix)
        device.provider = backend.entry.provider
        return device

    def _choose(self, dev: str, names: tuple[str, ...]) -> str:
        if dev:
            return canonicalize(dev)
        switched_on = [name for name in names if _is_on(name)]
        if len(switched_on) > 1:
            both = " and ".join(f"{name}=1" for name in switched_on)
            raise DeviceError("which device is meant?", "", f"the environment has {both}", "DEV=")
        return switched_on[0] if switched_on else self._best_available(names)

    def _best_available(self, names: tuple[str, ...]) -> str:
        found: list[tuple[int, str]] = []
        reasons: list[str] = []
        for name in names:
            try:
                backend = discovery.load(name)
            except DeviceError as error:
                reasons.append(f"{name}: {error.why} ({error.fix})")
                continue
            if not backend.description.by_default:
                reasons.append(f"{name}: only used when asked for (DEV={name})")
                continue
            result = discovery.probe(backend)
            if only_visible(result.devices) or (result.devices and not backend.description.hcq):
                found.append((backend.description.priority, name))
            elif result.devices:
                reasons.append(f"{name}: {VARIABLE} hides all devices (unset it)")
            else:
                reasons.append(f"{name}: {result.reason} ({result.fix})")
        if found:
            return max(found)[1]
        if not names:
            why, fix = "no back end is installed", discovery.install_hint()
        else:
            why, fix = "; ".join(reasons), "see `tgcore devices`"
        raise DeviceError("there is no device to compute on", "", why, fix)


def _is_on(name: str) -> bool:
    return os.environ.get(name, "") not in ("", "0")


Device = DeviceRegistry()
atexit.register(Device.close)
