"""TinyJit: a function of tensors that is recorded once and then replayed.

The first call runs the function as it is, the second records what runs, and from the third on
that is replayed with the new arguments: none of the function's Python code runs any more. What the
function reads that is no argument (weights, counters) is the same memory at each replay.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

from tgcore.helpers import JIT
from tgcore.runtime import execute
from tgcore.runtime.buffer import Buffer
from tgcore.runtime.jit import CapturedJit, JitError, is_recording, recording
from tgcore.tensor import randomness, realize
from tgcore.tensor.core import TensorCore, is_memory, live_tensors
from tgcore.uop.node import UOp
from tgcore.uop.ops import Ops

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class _Arguments:
    """A call's arguments taken apart: tensors and variables by name, and all else."""

    tensors: dict[str, TensorCore]
    variables: dict[str, int]
    signature: dict[str, Any]


def _walk(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """All leaves of nested lists, tuples and dictionaries, with names like `x[0]['a']`."""
    if isinstance(value, (list, tuple)):
        yield f"len({name})", (type(value), len(value))
        for number, item in enumerate(value):
            yield from _walk(f"{name}[{number}]", item)
    elif isinstance(value, dict):
        yield f"keys of {name}", tuple(value)
        for key, item in value.items():
            yield from _walk(f"{name}[{key!r}]", item)
    else:
        yield name, value


class _SameObject:
    """An argument that is compared by identity, and does not keep it alive if it can help it."""

    def __init__(self, value: Any) -> None:
        self.number = id(value)
        try:
            self.ref: Any = weakref.ref(value)
        except TypeError:
            self.ref = lambda: value

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _SameObject) and self.ref() is not None and self.ref() is other.ref()
        )

    def __hash__(self) -> int:
        return self.number

    def __repr__(self) -> str:
        return f"the object {self.ref()!r:.60}"


def _take_apart(args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Arguments:
    tensors: dict[str, TensorCore] = {}
    variables: dict[str, int] = {}
    signature: dict[str, Any] = {}
    named = [*((str(n), a) for n, a in enumerate(args)), *sorted(kwargs.items())]
    for name, argument in named:
        for path, value in _walk(name, argument):
            if isinstance(value, TensorCore):
                tensors[path] = value
                signature[path] = (_unbound_shape(value, variables), value.dtype, value.device)
            elif isinstance(value, UOp):
                signature[path] = _unbound(value, variables)
            elif isinstance(value, (bool, int, float, str, bytes, type(None), tuple)):
                signature[path] = (type(value), value)
            else:
                signature[path] = _SameObject(value)
    return _Arguments(tensors, variables, signature)


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
                raise JitError(f"the variable {name!r} has two values in one call: "
                               f"{variables[name]} and {value}")  # fmt: skip
            table[part] = variable
    return node.substitute(table)


def _buffer(tensor: TensorCore) -> Buffer:
    node = tensor.uop
    while node.op is Ops.RESHAPE:
        node = node.src[0]
    return execute.buffer_of(node)


# *** results ***


class _Output:
    """A tensor that the function returns. Each call gives out a node of its own for the memory; if
    the last one is still in use when the memory is about to be overwritten, its users get a copy.
    """

    def __init__(self, tensor: TensorCore) -> None:
        self.kind, self.node = type(tensor), tensor.uop
        base = tensor.uop
        while base.op is Ops.RESHAPE:
            base = base.src[0]
        self.base, self.buffer = base, execute.buffer_of(base)
        self.lent: weakref.ref[UOp] | None = weakref.ref(base)

    def reclaim(self) -> None:
        """Before a replay: whoever still has the last result keeps it, in memory of its own."""
        node = self.lent() if self.lent is not None else None
        if node is None or node is self.base:
            return
        copy = Buffer(self.buffer.device, self.buffer.size, self.buffer.dtype)
        execute.buffers[node] = copy.copy_from(self.buffer)

    def lend(self) -> TensorCore:
        """A tensor for the memory's new values."""
        base = UOp.new_buffer(self.buffer.device, self.buffer.size, self.buffer.dtype)
        execute.buffers[base] = self.buffer
        self.lent = weakref.ref(base)
        return self.kind._from_uop(self.node.substitute({self.base: base}), False)


def _rebuild(value: Any, tensors: dict[str, Callable[[], Any]], name: str) -> Any:
    """The function's result with its tensors made anew."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[_rebuild(v, tensors, f"{name}[{n}]") for n, v in enumerate(value)])
    if isinstance(value, (list, tuple)):
        return type(value)([_rebuild(v, tensors, f"{name}[{n}]") for n, v in enumerate(value)])
    if isinstance(value, dict):
        return {k: _rebuild(v, tensors, f"{name}[{k!r}]") for k, v in value.items()}
    return tensors[name]() if name in tensors else value


@dataclass
class _Capture:
    """What was recorded: the kernels, the arguments they expect, the results they fill."""

    replay: CapturedJit
    signature: dict[str, Any]
    names: tuple[str, ...]
    result: Any
    outputs: dict[str, _Output]
    same: dict[str, TensorCore]  # results that are tensors of the function's state
    arguments: dict[str, str]  # results that are arguments


class TinyJit(Generic[P, R]):
    """Records a function of tensors at its second call and replays it from the third on.

    Arguments may be tensors, variables bound to values, nested lists and dictionaries of these, and
    other values, which must not change. JIT=0 turns it off.

    >>> @TinyJit
    ... def double(x):
    ...     return (x * 2).realize()
    >>> [double(Tensor([n]).realize()).item() for n in range(4)]
    [0, 2, 4, 6]
    """

    def __init__(self, fxn: Callable[P, R]) -> None:
        self.fxn = fxn
        functools.update_wrapper(self, fxn)
        self.reset()

    def reset(self) -> None:
        """Forget what was recorded; the next call is a first one."""
        self.calls = 0
        self.capture: _Capture | None = None

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        found = instance.__dict__.get(self.fxn.__name__)
        if not isinstance(found, TinyJit):
            found = TinyJit(functools.partial(self.fxn, instance))
            instance.__dict__[self.fxn.__name__] = found
        return found

    @property
    def captured(self) -> CapturedJit | None:
        """What is replayed, once there is something."""
        return None if self.capture is None else self.capture.replay

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if not JIT or is_recording():
            return self.fxn(*args, **kwargs)
        if self.calls == 0:
            result = self.fxn(*args, **kwargs)
            _settle(result)
            self.calls = 1
            return result
        arguments = _take_apart(args, kwargs)
        _realize_inputs(arguments)
        if self.capture is None:
            return self._record(arguments, args, kwargs)
        return self._replay(self.capture, arguments)  # type: ignore[no-any-return]

    def _record(self, arguments: _Arguments, args: Any, kwargs: Any) -> R:
        randomness.streams.settle()
        inputs = [(name, _buffer(t)) for name, t in arguments.tensors.items()]
        existing = {id(t): t for t in live_tensors}
        memory = {n for t in existing.values() for n in t.uop.toposort() if n.op is Ops.BUFFER}
        try:
            with recording() as record:
                result = self.fxn(*args, **kwargs)
                _settle(result)
            replay = record.finish(inputs)
        except JitError as error:
            raise JitError(f"{_name(self.fxn)}: {error}") from None
        outputs: dict[str, _Output] = {}
        same: dict[str, TensorCore] = {}
        given: dict[str, str] = {}
        names_of = {id(t): name for name, t in arguments.tensors.items()}
        for path, value in _walk("result", result):
            if not isinstance(value, TensorCore):
                continue
            if id(value) in names_of:
                given[path] = names_of[id(value)]
            elif id(value) in existing or memory.intersection(value.uop.toposort()):
                same[path] = value
            else:
                outputs[path] = _Output(value)
        self.capture = _Capture(
            replay, arguments.signature, tuple(arguments.tensors), result, outputs, same, given
        )
        lent: dict[str, Callable[[], Any]] = {name: o.lend for name, o in outputs.items()}
        self.capture.result = _rebuild(result, {n: (lambda: None) for n in outputs}, "result")
        kept: dict[str, Callable[[], Any]] = {
            n: functools.partial(_identity, t) for n, t in same.items()
        }
        found = {n: functools.partial(_identity, arguments.tensors[g]) for n, g in given.items()}
        return _rebuild(result, {**lent, **kept, **found}, "result")  # type: ignore[no-any-return]

    def _replay(self, capture: _Capture, arguments: _Arguments) -> Any:
        if arguments.signature != capture.signature:
            raise JitError(
                f"{_name(self.fxn)}: {_difference(capture.signature, arguments.signature)}"
            )
        for output in capture.outputs.values():
            output.reclaim()
        inputs = [_buffer(arguments.tensors[name]) for name in capture.names]
        try:
            capture.replay(inputs, arguments.variables)
        except JitError as error:
            raise JitError(f"{_name(self.fxn)}: {error}") from None
        tensors: dict[str, Callable[[], Any]] = {n: o.lend for n, o in capture.outputs.items()}
        for name, tensor in capture.same.items():
            tensors[name] = functools.partial(_identity, tensor)
        for name, argument in capture.arguments.items():
            tensors[name] = functools.partial(_identity, arguments.tensors[argument])
        return _rebuild(capture.result, tensors, "result")


def _identity(value: Any) -> Any:
    return value


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", None) or getattr(function, "func", function))


def _difference(recorded: dict[str, Any], given: dict[str, Any]) -> str:
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


def _realize_inputs(arguments: _Arguments) -> None:
    waiting = [t for t in arguments.tensors.values() if not is_memory(t.uop) or t._stale]
    if waiting:
        realize.realize(waiting)


def _settle(result: Any) -> None:
    """Run what the function left to be run: its results, and assigns that wait."""
    tensors: Sequence[TensorCore] = [t for _, t in _walk("", result) if isinstance(t, TensorCore)]
    assigned = [t for t in live_tensors if t.uop.op is Ops.ASSIGN]
    realize.realize([*tensors, *assigned])
