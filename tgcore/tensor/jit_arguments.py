"""The arguments and results of a captured function, taken apart and put together again.

Tensors may stand in nested lists, tuples, named tuples and dictionaries; each has a path like
`x[0]['a']`. All else of a call is its signature: what must be the same at each call.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tgcore.runtime.jit import JitError
from tgcore.tensor.core import TensorCore
from tgcore.uop.node import UOp
from tgcore.uop.ops import Ops

_PLAIN = (bool, int, float, str, bytes, type(None), tuple)


@dataclass(frozen=True)
class Arguments:
    """A call's arguments taken apart: tensors and variables by name, and all else."""

    tensors: dict[str, TensorCore]
    variables: dict[str, int]
    signature: dict[str, Any]


def walk(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """All leaves, with their paths; of a container also what its own shape is."""
    if isinstance(value, (list, tuple)):
        yield f"len({name})", (type(value), len(value))
        for number, item in enumerate(value):
            yield from walk(f"{name}[{number}]", item)
    elif isinstance(value, dict):
        yield f"keys of {name}", tuple(value)
        for key, item in value.items():
            yield from walk(f"{name}[{key!r}]", item)
    else:
        yield name, value


def rebuild(name: str, value: Any, new: Callable[[str, Any], Any]) -> Any:
    """The same containers around new leaves: `new` gets the path and the leaf."""
    if isinstance(value, (list, tuple)):
        items = [rebuild(f"{name}[{n}]", item, new) for n, item in enumerate(value)]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {k: rebuild(f"{name}[{k!r}]", item, new) for k, item in value.items()}
    return new(name, value)


class SameObject:
    """An argument that is compared by identity, and does not keep it alive if it can help it."""

    def __init__(self, value: Any) -> None:
        self.number = id(value)
        try:
            self.ref: Any = weakref.ref(value)
        except TypeError:
            self.ref = lambda: value

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, SameObject) and self.ref() is not None and self.ref() is other.ref()
        )

    def __hash__(self) -> int:
        return self.number

    def __repr__(self) -> str:
        return f"the object {self.ref()!r:.60}"


def take_apart(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Arguments:
    """The arguments of a call; positional ones are named by their numbers."""
    tensors: dict[str, TensorCore] = {}
    variables: dict[str, int] = {}
    signature: dict[str, Any] = {}
    for name, argument in [*((str(n), a) for n, a in enumerate(args)), *sorted(kwargs.items())]:
        for path, value in walk(name, argument):
            if isinstance(value, TensorCore):
                tensors[path] = value
                signature[path] = (_unbound_shape(value, variables), value.dtype, value.device)
            elif isinstance(value, UOp):
                signature[path] = _unbound(value, variables)
            else:
                plain = isinstance(value, _PLAIN)
                signature[path] = (type(value), value) if plain else SameObject(value)
    return Arguments(tensors, variables, signature)


def _unbound_shape(tensor: TensorCore, variables: dict[str, int]) -> tuple[Any, ...]:
    return tuple(s if isinstance(s, int) else _unbound(s, variables) for s in tensor.shape)


def _unbound(node: UOp, variables: dict[str, int]) -> UOp:
    """The node without the values of its variables, which are noted."""
    table = {}
    for part in node.toposort():
        if part.op is Ops.BIND:
            variable, value = part.unbind()
            name = variable.arg[0]
            if variables.setdefault(name, value) != value:
                raise JitError(
                    f"the variable {name!r} has two values in one call: {variables[name]} and "
                    f"{value}"
                )
            table[part] = variable
    return node.substitute(table)


def rebound(node: UOp, variables: Mapping[str, int]) -> dict[UOp, UOp]:
    """What replaces the bound variables of a node: the same with these values."""
    bound = [n for n in node.toposort() if n.op is Ops.BIND]
    return {n: n.src[0].bind(variables[n.src[0].arg[0]]) for n in bound}


def difference(recorded: dict[str, Any], given: dict[str, Any]) -> str:
    """What differs between the recorded call and this one."""
    for path in [*recorded, *(p for p in given if p not in recorded)]:
        before, now = recorded.get(path, "missing"), given.get(path, "missing")
        if before != now:
            return (
                f"the argument {path} was captured as {_shown(before)} and is now {_shown(now)}; "
                "make another TinyJit for it, or a Tensor or Variable of what changes"
            )
    raise AssertionError("the signatures are equal")


def _shown(value: Any) -> str:
    if isinstance(value, tuple) and len(value) == 3:
        return f"a tensor of shape {value[0]}, {value[1]}, on {value[2]}"
    return str(value[1] if isinstance(value, tuple) and len(value) == 2 else value)
