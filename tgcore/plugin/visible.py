"""HCQ_VISIBLE_DEVICES: which of a back end's devices are seen, and in which order."""

from __future__ import annotations

import os

from tgcore.errors import DeviceError

VARIABLE = "HCQ_VISIBLE_DEVICES"


def visible_indices() -> list[int] | None:
    """The indices that the variable lists, in its order; None (all) if it is empty or unset."""
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise _bad(text, "it must be indices from 0, separated by commas")
    indices = [int(part) for part in parts]
    if len(set(indices)) != len(indices):
        raise _bad(text, "an index is in it twice")
    return indices


def physical_index(name: str, index: int) -> int:
    """The index on the machine of the back end's device number `index` as the user counts."""
    visible = visible_indices()
    if visible is None:
        return index
    if index >= len(visible):
        raise DeviceError(
            f"no device {name}:{index}",
            "",
            f"{VARIABLE}={os.environ[VARIABLE]} leaves {len(visible)} visible",
            f"use a lower index, or change {VARIABLE}",
        )
    return visible[index]


def only_visible(devices: tuple[str, ...]) -> tuple[str, ...]:
    """The visible ones of a probe's devices, in the order asked for."""
    visible = visible_indices()
    if visible is None:
        return devices
    return tuple(devices[i] for i in visible if i < len(devices))


def _bad(text: str, why: str) -> DeviceError:
    return DeviceError(
        f"{VARIABLE}={text!r} is not a list of devices",
        "",
        why,
        f"e.g. {VARIABLE}=2,0, or unset it",
    )
