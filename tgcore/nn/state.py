"""A model's tensors by name: finding them, giving them new values, keeping them in files."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tgcore.helpers import prod
from tgcore.nn.errors import StateError
from tgcore.tensor import Tensor

if TYPE_CHECKING:
    from tgcore.nn.gguf import gguf_load
    from tgcore.nn.safetensors import safe_load, safe_load_metadata, safe_save
    from tgcore.nn.torch_files import torch_load

__all__ = [
    "StateError",
    "get_parameters",
    "get_state_dict",
    "gguf_load",
    "load_state_dict",
    "safe_load",
    "safe_load_metadata",
    "safe_save",
    "torch_load",
]

# some need packages that not everyone has, so their modules are imported on first use
_IN_FILES: Final = {
    "safe_save": "safetensors",
    "safe_load": "safetensors",
    "safe_load_metadata": "safetensors",
    "gguf_load": "gguf",
    "torch_load": "torch_files",
}


def __getattr__(name: str) -> Any:
    if name in _IN_FILES:
        return getattr(importlib.import_module(f"tgcore.nn.{_IN_FILES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def get_state_dict(obj: Any, prefix: str = "", tensor_type: type[Any] = Tensor) -> dict[str, Any]:
    """All tensors that an object holds, by path: attributes, elements of lists and of dicts.

    A tensor that is held twice has two names. Objects that hold themselves are followed once.

    >>> sorted(get_state_dict({"a": Tensor([1]), "b": [Tensor([2]), Tensor([3])]}))
    ['a', 'b.0', 'b.1']
    """
    found: dict[str, Any] = {}
    stack: list[tuple[str, Any, frozenset[int]]] = [(prefix.strip("."), obj, frozenset())]
    while stack:
        path, value, above = stack.pop()
        if isinstance(value, tensor_type):
            found[path] = value
            continue
        if id(value) in above:
            continue
        inside = above | {id(value)}
        children = [(f"{path}.{k}".strip("."), v, inside) for k, v in _members(value)]
        stack += reversed(children)
    return found


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a container or object, by name."""
    if isinstance(value, Mapping):
        yield from ((str(k), v) for k, v in value.items())
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        yield from zip(value._fields, value)
    elif isinstance(value, (list, tuple)):
        yield from ((str(n), v) for n, v in enumerate(value))
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        yield from value.__dict__.items()


def get_parameters(obj: Any) -> list[Tensor]:
    """All tensors that an object holds.

    >>> len(get_parameters([Tensor([1]), {"w": Tensor([2])}]))
    2
    """
    return list(get_state_dict(obj).values())


def load_state_dict(
    model: Any,
    state_dict: Mapping[str, Tensor],
    strict: bool = True,
    verbose: bool = False,
    consume: bool = False,
    realize: bool = True,
) -> list[Tensor]:
    """Give the model's tensors the values of the same name; returns the tensors that got some.

    All names and shapes are checked before anything is changed. With `strict` both sides must have
    the same names. Values move to the model's devices and keep their own data types. `consume`
    takes them out of `state_dict`, so that it does not hold on to memory; `verbose` prints names.
    """
    targets = get_state_dict(model)
    _check_names(targets, state_dict, strict)
    shared = {name: (t, state_dict[name]) for name, t in targets.items() if name in state_dict}
    _check_shapes(shared)
    # whatever can fail is done for all of them before the first is changed
    fitted = {n: v.to(t.device).reshape(t.shape) for n, (t, v) in shared.items()}
    for name, (target, _) in shared.items():
        if verbose:
            print(f"{name}: {target.shape} {fitted[name].dtype}")
        target.replace(fitted.pop(name))
        if consume and isinstance(state_dict, dict):
            del state_dict[name]
    loaded = [target for target, _ in shared.values()]
    if realize and loaded:
        Tensor.realize(*loaded)
    return loaded


def _check_names(targets: Mapping[str, Any], given: Mapping[str, Any], strict: bool) -> None:
    missing = [name for name in targets if name not in given]
    unexpected = [name for name in given if name not in targets]
    if strict and (missing or unexpected):
        raise StateError(
            "the names do not fit the model: "
            + "; ".join(
                f"{what} {_some(names)}"
                for what, names in (("missing", missing), ("unexpected", unexpected))
                if names
            )
            + ". With strict=False only the names that both have are loaded"
        )


def _check_shapes(shared: Mapping[str, tuple[Tensor, Tensor]]) -> None:
    wrong = []
    for name, (target, value) in shared.items():
        if not isinstance(value, Tensor):
            raise StateError(f"{name}: a {type(value).__name__} is no Tensor")
        # a single number may be kept with an axis or without
        single = prod(target.shape) == prod(value.shape) == 1 and max(target.ndim, value.ndim) <= 1
        if target.shape != value.shape and not single:
            wrong.append(f"{name} is {value.shape}, the model needs {target.shape}")
    if wrong:
        raise StateError(f"shapes do not fit, nothing was loaded: {_some(wrong, '; ')}")


def _some(names: Sequence[str], separator: str = ", ", limit: int = 8) -> str:
    more = f"{separator}and {len(names) - limit} more" if len(names) > limit else ""
    return separator.join(names[:limit]) + more
