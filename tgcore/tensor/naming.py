"""Nodes named after the Tensor method that made them, while DEBUG shows a line a kernel.

The method is found on Python's stack: of the methods of Tensor that called each other, the first
one. What is not part of Tensor (a user's function, a layer) ends the search, and so does whatever
runs tensors, of which the nodes are nobody's.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Final

from tgcore.helpers import DEBUG
from tgcore.schedule import metadata
from tgcore.uop.node import UOp, observe_new_nodes

# who makes a node may have been called through these modules (a compiled rule is in none)
_ON_THE_WAY: Final = ("tgcore.tensor.", "tgcore.uop.", "tgcore.helpers")
_ENDS: Final = frozenset({"tgcore.tensor.realize", "tgcore.tensor.jit"})
# these only call others
_UNNAMED: Final = frozenset({"__init__", "sequential"})


class Backward:
    """What is being differentiated."""

    node: UOp | None = None


_backward: Final = Backward()


@contextlib.contextmanager
def backward() -> Iterator[Backward]:
    """In the block, new nodes belong to the gradient of `node`, which the block sets."""
    outer = _backward.node
    try:
        yield _backward
    finally:
        _backward.node = outer


def _name_new_node(node: UOp) -> None:
    name = None if _backward.node is None else metadata.names.get(_backward.node)
    if name is None:
        name = _method_at_work()
    elif not name.endswith(" bw"):
        name += " bw"
    if name:
        metadata.names[node] = name


def _method_at_work() -> str:
    found = ""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module in _ENDS or (module and not module.startswith(_ON_THE_WAY)):
            break
        if module.startswith("tgcore.tensor."):
            found = _method(frame.f_code.co_qualname) or found
        frame = frame.f_back
    return found


@functools.cache
def _method(function: str) -> str:
    """The method that a function of the front end is; "" for a helper."""
    owner, _, name = function.rpartition(".")
    is_public = not name.startswith("_") or name.endswith("__")
    is_method = owner != "" and not owner.startswith("_") and "<" not in function
    return name if is_public and is_method and name not in _UNNAMED else ""


DEBUG.on_change(lambda _: observe_new_nodes(_name_new_node, metadata.wanted()))
