"""A tensor compiler whose devices are plugins.

The names below are loaded when they are first used, so that importing the package costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tgcore.dtype import dtypes
    from tgcore.helpers import Context
    from tgcore.runtime.counters import GlobalCounters
    from tgcore.runtime.device import Device
    from tgcore.tensor import Tensor, TinyJit, Variable, enable_grad, no_grad
    from tgcore.uop.node import UOp

__all__ = [
    "Context",
    "Device",
    "GlobalCounters",
    "Tensor",
    "TinyJit",
    "UOp",
    "Variable",
    "dtypes",
    "enable_grad",
    "no_grad",
]

_HOMES = {
    "Context": "tgcore.helpers",
    "Device": "tgcore.runtime.device",
    "GlobalCounters": "tgcore.runtime.counters",
    "Tensor": "tgcore.tensor",
    "TinyJit": "tgcore.tensor",
    "UOp": "tgcore.uop.node",
    "Variable": "tgcore.tensor",
    "dtypes": "tgcore.dtype",
    "enable_grad": "tgcore.tensor",
    "no_grad": "tgcore.tensor",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'tgcore' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
