"""The back-end contract: its version, and what a plugin says about itself."""

from __future__ import annotations

from collections import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tgcore.runtime.compiled import CompiledDevice

CONTRACT_VERSION: Final = (1, 0)
"""(major, minor) of the contract that this core implements.

A plugin states the version it was written for in its module's `TGCORE_CONTRACT`. The major
numbers must agree and the plugin's minor number must not be newer than the core's.
"""

CONTRACT_ATTRIBUTE: Final = "TGCORE_CONTRACT"


@dataclass(frozen=True)
class Probe:
    """What a quick look at the machine found: the devices there are, or why there is none.

    `devices` has one short line a device, in order of index. With none, `reason` says why and
    `fix` what the user can do about it.
    """

    devices: tuple[str, ...] = ()
    reason: str = ""
    fix: str = ""


@dataclass(frozen=True)
class BackendDescription:
    """What a back end tells the core about itself.

    - `name`: the device's name, the same as the entry point's.
    - `priority`: the available back end with the highest one is the default device.
    - `open`: (canonical name, index) -> the opened device; raises DeviceError if it cannot.
    - `hcq`: whether its devices are numbered hardware that HCQ_VISIBLE_DEVICES filters.
    - `by_default`: whether it may be the default device without having been asked for.
    - `executes`: whether kernels compute values; the conformance kit leaves value checks out
      for those that only compile.
    """

    name: str
    priority: int
    open: Callable[[str, int], CompiledDevice]
    hcq: bool = True
    by_default: bool = True
    executes: bool = True


_FIELDS: Final[tuple[tuple[str, Any, str], ...]] = (
    ("name", str, "a string, the device's name"),
    ("priority", int, "an integer"),
    ("open", abc.Callable, "a function (name, index) -> device"),
    ("hcq", bool, "a bool"),
    ("by_default", bool, "a bool"),
    ("executes", bool, "a bool"),
)


def flaws_of(description: object, name: str) -> list[str]:
    """All that is missing or wrong in what a plugin returned as its description."""
    if description is None:
        return ["tgcore_describe_backend is not implemented, or returned None"]
    flaws = []
    for field, kind, meaning in _FIELDS:
        if not hasattr(description, field):
            flaws.append(f"{field} is missing ({meaning})")
        elif not isinstance(getattr(description, field), kind):
            got = type(getattr(description, field)).__name__
            flaws.append(f"{field} must be {meaning}, not {got}")
    stated = getattr(description, "name", name)
    if isinstance(stated, str) and stated != name:
        flaws.append(f"name is {stated!r}, but the entry point is called {name!r}")
    return flaws


def contract_mismatch(stated: object, distribution: str) -> tuple[str, str] | None:
    """(why, fix) if a plugin written for contract version `stated` cannot work with this core."""
    core = ".".join(map(str, CONTRACT_VERSION))
    match stated:
        case (int(major), int(minor)):
            pass
        case None:
            why = f"the plugin does not state the contract version ({CONTRACT_ATTRIBUTE})"
            return f"{why}; tgcore has {core}", f"pip install --upgrade {distribution}"
        case _:
            why = f"{CONTRACT_ATTRIBUTE} must be (major, minor), not {stated!r}"
            return f"{why}; tgcore has {core}", f"pip install --upgrade {distribution}"
    if major == CONTRACT_VERSION[0] and minor <= CONTRACT_VERSION[1]:
        return None
    why = f"the plugin is written for contract version {major}.{minor}, tgcore has {core}"
    behind = distribution if (major, minor) < CONTRACT_VERSION else "tgcore"
    return why, f"pip install --upgrade {behind}"
