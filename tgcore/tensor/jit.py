"""TinyJit: a function of tensors that is recorded once and then replayed.

The first call runs the function as it is, the second records what runs, and from the third on
that is replayed with the new arguments: none of the function's Python code runs any more. What the
function reads that is no argument (weights, counters) is the same memory at each replay.

A replay gives what running the function would give, or is refused:

- While it is recorded, the function gets stand-ins for its arguments, in memory of their own. So
  what it reads as an argument is told from the same memory read as its state.
- Before a replay, what was left to be computed and reads memory that the function overwrites is
  computed, and so are assigns that wait; results of the last call that are still in use move.
- An argument that is also the function's state, and overwritten as one of both, is refused; so is
  state that the function replaces by other tensors instead of overwriting it (as far as can be
  seen: not while somebody else holds on to the old one).
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, TypeVar

from tgcore.helpers import JIT
from tgcore.runtime import execute
from tgcore.runtime.buffer import Buffer
from tgcore.runtime.device import Device
from tgcore.runtime.jit import CapturedJit, JitError, Recording, base_of, is_recording, recording
from tgcore.tensor import randomness, realize
from tgcore.tensor.core import TensorCore, is_memory, live_tensors, memory_behind
from tgcore.tensor.jit_arguments import (
    Arguments,
    SameObject,
    difference,
    rebound,
    rebuild,
    take_apart,
    walk,
)
from tgcore.uop.node import UOp
from tgcore.uop.ops import Ops

P = ParamSpec("P")
R = TypeVar("R")

# a call that computes what was left to be computed outside is not kept; the next one is tried
_MOST_ATTEMPTS = 3


def _base(tensor: TensorCore) -> UOp:
    """The BUFFER that a realised tensor is."""
    node = tensor.uop
    while node.op is Ops.RESHAPE:
        node = node.src[0]
    return node


def _buffer(tensor: TensorCore) -> Buffer:
    return execute.buffer_of(_base(tensor))


# *** stand-ins ***


class _StandIns:
    """Tensors that the function gets for its arguments while it is recorded."""

    def __init__(self, arguments: Arguments) -> None:
        self.originals = arguments.tensors
        self.tensors = {name: self._made(t) for name, t in arguments.tensors.items()}
        self.nodes = {_base(self.tensors[n]): _base(t) for n, t in self.originals.items()}
        self.first = live_tensors.count

    def _made(self, tensor: TensorCore) -> TensorCore:
        base, buffer = _base(tensor), _buffer(tensor)
        if not Device[buffer.device].runs_programs:  # a file: nothing writes it
            return tensor
        memory = UOp.new_buffer(buffer.device, buffer.size, buffer.dtype)
        copy = Buffer(buffer.device, buffer.size, buffer.dtype)
        execute.buffers[memory] = copy.copy_from(buffer)
        return type(tensor)._from_uop(tensor.uop.substitute({base: memory}), tensor._requires_grad)

    def call(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """The function's result for the stand-ins."""

        def stand_in(name: str, value: Any) -> Any:
            return self.tensors.get(name, value)

        new_args = [rebuild(str(n), a, stand_in) for n, a in enumerate(args)]
        return function(*new_args, **{k: rebuild(k, v, stand_in) for k, v in kwargs.items()})

    def dismiss(self, written: Iterable[str]) -> None:
        """Back to the arguments themselves; those that were written get the new values."""
        for name, tensor in self.tensors.items():
            original = self.originals[name]
            if name in written:
                original._rebind(original.uop.assign(tensor.uop))
            elif not is_memory(tensor.uop) or _base(tensor) not in self.nodes:
                original._rebind(tensor.uop.substitute(self.nodes))
        realize.realize([self.originals[name] for name in written])
        stand_ins = {id(t) for t in self.tensors.values()}
        for tensor in live_tensors.since(self.first):
            if id(tensor) not in stand_ins:
                tensor.uop = tensor.uop.substitute(self.nodes)
        realize.replace_origins(self.nodes)


# *** results ***


class _Output:
    """Memory that results lie in. Each call gives out a node of its own for it; if the last one is
    still in use when the memory is about to be overwritten, its users get a copy."""

    def __init__(self, base: UOp) -> None:
        self.buffer = execute.buffer_of(base)
        self.buffer.is_lent = True
        self.lent: weakref.ref[UOp] | None = None

    def reclaim(self) -> None:
        """Before a replay: whoever still has the last result keeps it, in memory of its own."""
        node = self.lent() if self.lent is not None else None
        if node is not None:
            copy = Buffer(self.buffer.device, self.buffer.size, self.buffer.dtype)
            execute.buffers[node] = copy.copy_from(self.buffer)

    def lend(self) -> UOp:
        """A node for the memory's new values."""
        base = UOp.new_buffer(self.buffer.device, self.buffer.size, self.buffer.dtype)
        execute.buffers[base] = self.buffer
        self.lent = weakref.ref(base)
        return base


@dataclass(frozen=True)
class _Result:
    """A tensor of the result, as an expression of an output's or an argument's memory."""

    kind: type[TensorCore]
    node: UOp
    base: UOp
    number: int  # equal for the same tensor

    def moved(self, table: Mapping[UOp, UOp]) -> _Result:
        """The same over other nodes."""
        return _Result(self.kind, self.node.substitute(table), table[self.base], self.number)

    def over(self, base: UOp, variables: Mapping[str, int]) -> TensorCore:
        """The tensor in other memory."""
        if self.node is self.base:
            return self.kind._from_uop(base, False)
        bound = rebound(self.node, variables) if variables else {}
        return self.kind._from_uop(self.node.substitute({self.base: base, **bound}), False)


@dataclass
class _Capture:
    """What was recorded: the kernels, the arguments they expect, the results they fill."""

    replay: CapturedJit
    signature: dict[str, Any]
    names: tuple[str, ...]
    result: Any = None
    given: dict[str, str] = field(default_factory=dict)  # results that are arguments
    state: dict[str, TensorCore] = field(default_factory=dict)  # results that are the state
    made: dict[str, _Result] = field(default_factory=dict)
    outputs: dict[UOp, _Output] = field(default_factory=dict)
    arguments: dict[UOp, str] = field(default_factory=dict)  # names of the stand-ins' memory
    overwritten: weakref.WeakSet[UOp] = field(default_factory=weakref.WeakSet)
    seen: int = 0  # the count of live tensors when the last call ended

    @property
    def written_names(self) -> list[str]:
        """The arguments that the function overwrites."""
        return [self.names[n] for n in sorted(self.replay.written_inputs)]

    def sort_results(self, result: Any, stand_ins: _StandIns, memory: set[UOp]) -> None:
        """Notes for each tensor of the result what it is; `memory` are the nodes that were there
        before."""
        names = {id(t): name for name, t in stand_ins.tensors.items()}
        self.arguments = {_base(t): name for name, t in stand_ins.tensors.items()}
        for path, value in walk("result", result):
            if not isinstance(value, TensorCore):
                continue
            base = _base(value)
            if id(value) in names:
                self.given[path] = names[id(value)]
            elif base in memory and base not in self.arguments:
                self.state[path] = value
            else:
                self.made[path] = _Result(type(value), value.uop, base, id(value))
                if base not in self.arguments:
                    self.outputs.setdefault(base, _Output(base))

        def without_tensors(path: str, value: Any) -> Any:
            return None if isinstance(value, TensorCore) else value

        self.result = rebuild("result", result, without_tensors)

    def portable(self) -> dict[str, Any]:
        """What a pickle keeps: nodes with the buffers that they stand for beside them."""
        if other := [k for k, v in self.signature.items() if isinstance(v, SameObject)]:
            raise JitError(
                f"the argument {other[0]} is known by its identity only, which a pickle does not "
                "keep: pass tensors, numbers, texts and containers of these"
            )
        state = {path: _Result(type(t), t.uop, _base(t), id(t)) for path, t in self.state.items()}
        known = {r.base: execute.buffer_of(r.base) for r in state.values()}
        known.update({base: output.buffer for base, output in self.outputs.items()})
        return {
            "replay": self.replay,
            "signature": self.signature,
            "names": self.names,
            "result": self.result,
            "given": self.given,
            "state": state,
            "made": self.made,
            "memory": known,
            "outputs": list(self.outputs),
            "arguments": self.arguments,
        }

    @staticmethod
    def restored(parts: dict[str, Any]) -> _Capture:
        """A capture from what `portable` gave, in memory of its own."""
        fresh: dict[UOp, UOp] = {}
        for base in [*parts["memory"], *parts["arguments"]]:
            fresh[base] = UOp.new_buffer(base.src[1].arg, base.arg, base.dtype)
        for base, buffer in parts["memory"].items():
            execute.buffers[fresh[base]] = buffer
        capture = _Capture(parts["replay"], parts["signature"], parts["names"], parts["result"])
        capture.given = parts["given"]
        capture.made = {path: r.moved(fresh) for path, r in parts["made"].items()}
        tensors: dict[int, TensorCore] = {}
        for path, r in parts["state"].items():
            node = r.node.substitute(fresh)
            capture.state[path] = tensors.setdefault(r.number, r.kind._from_uop(node, False))
        capture.outputs = {fresh[base]: _Output(fresh[base]) for base in parts["outputs"]}
        capture.arguments = {fresh[base]: name for base, name in parts["arguments"].items()}
        written = capture.replay.written_bases
        for tensor in tensors.values():
            if id(base_of(_buffer(tensor))) in written:
                capture.overwritten.add(_base(tensor))
        capture.seen = live_tensors.count
        return capture

    def result_for(self, arguments: Arguments) -> Any:
        """The function's result, after its kernels have run."""
        table = {base: output.lend() for base, output in self.outputs.items()}
        tensors: dict[int, TensorCore] = {}

        def tensor(path: str, value: Any) -> Any:
            if path in self.state:
                return self.state[path]
            if path in self.given:
                return arguments.tensors[self.given[path]]
            if path not in self.made:
                return value
            made = self.made[path]
            if made.number not in tensors:
                if made.base not in table:
                    table[made.base] = _base(arguments.tensors[self.arguments[made.base]])
                tensors[made.number] = made.over(table[made.base], arguments.variables)
            return tensors[made.number]

        return rebuild("result", self.result, tensor)


# *** the function ***


class TinyJit(Generic[P, R]):
    """Records a function of tensors at its second call and replays it from the third on.

    Arguments may be tensors, variables bound to values, nested lists and dictionaries of these, and
    other values, which must not change. With `prune`, kernels that depend on nothing which changes
    from call to call run once only. JIT=0 turns it off.

    What was captured can be pickled: its kernels, with the memory that they use (weights, say), but
    not the function itself.

    >>> @TinyJit
    ... def double(x):
    ...     return (x * 2).realize()
    >>> [double(Tensor([n]).realize()).item() for n in range(4)]
    [0, 2, 4, 6]
    """

    def __init__(self, fxn: Callable[P, R], prune: bool = False) -> None:
        self.fxn, self.prune = fxn, prune
        functools.update_wrapper(self, fxn)
        self.reset()

    def reset(self) -> None:
        """Forget what was recorded; the next call is a first one."""
        self.calls = self.attempts = 0
        self.overwritten: weakref.WeakSet[UOp] = weakref.WeakSet()
        self.capture: _Capture | None = None

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        found = instance.__dict__.get(self.fxn.__name__)
        if not isinstance(found, TinyJit):
            found = TinyJit(functools.partial(self.fxn, instance), self.prune)
            instance.__dict__[self.fxn.__name__] = found
        return found

    @property
    def captured(self) -> CapturedJit | None:
        """What is replayed, once there is something."""
        return None if self.capture is None else self.capture.replay

    def __reduce__(self) -> tuple[Any, ...]:
        if self.capture is None:
            raise JitError(
                f"{_name(self.fxn)} was not captured yet: call it twice before it is pickled"
            )
        return (_unpickled, (_name(self.fxn), self.capture.portable()))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if not JIT or is_recording():
            return self.fxn(*args, **kwargs)
        if self.calls == 0:
            result = self.fxn(*args, **kwargs)
            _settle(result)
            self.calls = 1
            return result
        arguments = take_apart(args, kwargs)
        waiting = [t for t in arguments.tensors.values() if not is_memory(t.uop) or t._stale]
        if waiting:
            realize.realize(waiting)
        try:
            if self.capture is None:
                return self._record(arguments, args, kwargs)  # type: ignore[no-any-return]
            return self._replay(self.capture, arguments)  # type: ignore[no-any-return]
        except JitError as error:
            raise JitError(f"{_name(self.fxn)}: {error}") from None

    # *** recording ***

    def _record(self, arguments: Arguments, args: Any, kwargs: Any) -> Any:
        self.attempts += 1
        _check_distinct(arguments)
        randomness.streams.settle()
        # what waits since before is no part of the function
        _settle(None)
        realize.settle(realize.unsettled(live_tensors), set(self.overwritten))
        stand_ins = _StandIns(arguments)
        before = [(t, t.uop) for t in live_tensors if not t._stale]
        memory = {n for _, uop in before for n in uop.toposort() if n.op is Ops.BUFFER}
        written: list[str] = []
        try:
            with recording() as record, _watching(before) as computed:
                result = stand_ins.call(self.fxn, args, kwargs)
                _settle(result)
            capture = self._finish(record, arguments, stand_ins)
            written = capture.written_names
            self.overwritten = capture.overwritten
            realize.realize(computed)
            moved = next(iter(computed), _moved(before))
            if moved is None:
                capture.sort_results(result, stand_ins, memory)
        finally:
            stand_ins.dismiss(written)
        if moved is None:
            known = {id(base_of(execute.buffers[n])) for n in memory if n in execute.buffers}
            del before, memory
            _check_kept(record, known)
            self.capture = capture
            found = capture.result_for(arguments)
            capture.seen = live_tensors.count
            return found
        if self.attempts == _MOST_ATTEMPTS:
            raise JitError(
                f"at each call a tensor of shape {moved.shape} and {moved.dtype} that was made "
                "outside of the function is computed, or gets other memory, inside of it: realize "
                "it before, pass it as an argument, or overwrite it with assign"
            )
        names = {id(t): name for name, t in stand_ins.tensors.items()}
        return rebuild(
            "result",
            result,
            lambda _, v: arguments.tensors[names[id(v)]] if id(v) in names else v,
        )

    def _finish(self, record: Recording, arguments: Arguments, stand_ins: _StandIns) -> _Capture:
        for name, tensor in stand_ins.tensors.items():
            if tensor.grad is not None:
                raise JitError(
                    f"the argument {name} is given a gradient, which no replay would do: return "
                    "the gradient, or let the function keep the tensor as its state"
                )
        inputs = [(name, _buffer(t)) for name, t in stand_ins.tensors.items()]
        replay = record.finish(inputs, self.prune)
        for number, tensor in enumerate(arguments.tensors.values()):
            replay.check_state(number, _buffer(tensor))
        capture = _Capture(replay, arguments.signature, tuple(arguments.tensors))
        for key in replay.written_bases:
            ref = record.nodes.get(key)
            if ref is not None and (node := ref()) is not None:
                capture.overwritten.add(node)
        return capture

    # *** replaying ***

    def _replay(self, capture: _Capture, arguments: Arguments) -> Any:
        if arguments.signature != capture.signature:
            raise JitError(difference(capture.signature, arguments.signature))
        randomness.streams.settle()
        if waiting := realize.unsettled(live_tensors.since(capture.seen)):
            written = {_base(arguments.tensors[name]) for name in capture.written_names}
            realize.settle(waiting, written.union(capture.overwritten))
        for output in capture.outputs.values():
            output.reclaim()
        inputs = [_buffer(arguments.tensors[name]) for name in capture.names]
        capture.replay(inputs, arguments.variables)
        result = capture.result_for(arguments)
        capture.seen = live_tensors.count
        return result


def _unpickled(name: str, parts: dict[str, Any]) -> TinyJit[..., Any]:
    def missing(*_: Any, **__: Any) -> Any:
        raise JitError(f"{name} was unpickled: its kernels are there, the function is not")

    missing.__name__ = name
    jit: TinyJit[..., Any] = TinyJit(missing)
    jit.calls, jit.capture = 2, _Capture.restored(parts)
    return jit


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", None) or getattr(function, "func", function))


def _settle(result: Any) -> None:
    """Run what the function left to be run: its results, and assigns that wait."""
    tensors = [t for _, t in walk("", result) if isinstance(t, TensorCore)]
    assigned = [t for t in live_tensors if t.uop.op is Ops.ASSIGN]
    realize.realize([*tensors, *assigned])
    # of what only views are left
    realize.run_nodes({t.uop.base: None for t in live_tensors if t.uop.base.op is Ops.ASSIGN})


def _check_distinct(arguments: Arguments) -> None:
    names: dict[int, str] = {}
    for name, tensor in arguments.tensors.items():
        other = names.setdefault(id(base_of(_buffer(tensor))), name)
        if other is not name:
            raise JitError(
                f"the arguments {other} and {name} share memory while being captured: pass a copy "
                "(.clone()) for one of them"
            )


def _check_kept(record: Recording, known: set[int]) -> None:
    """Refuses a function that let go memory which was there before and which it read."""
    for key in known & record.nodes.keys():
        if record.nodes[key]() is None:
            raise JitError(
                "a tensor that was there before the call was read and then replaced inside of the "
                "function (a gradient that adds up, or an attribute with the last call's value, "
                "say): a replay would go on to read the old one. Keep it in one realised tensor "
                "and overwrite that with assign"
            )


@contextlib.contextmanager
def _watching(before: list[tuple[TensorCore, UOp]]) -> Iterator[list[TensorCore]]:
    """Collects tensors from outside that are computed inside the block, for themselves or as part
    of others: a replay would compute them again, from whatever their sources hold by then."""
    waiting = {uop: t for t, uop in before if memory_behind(uop) is None and not _is_free(uop)}
    found: list[TensorCore] = []

    def watch(nodes: dict[UOp, None]) -> list[UOp]:
        found.extend(waiting.pop(node) for node in waiting.keys() & nodes.keys())
        return []

    realize.before_run.append(watch)
    try:
        yield found
    finally:
        realize.before_run.remove(watch)


def _is_free(uop: UOp) -> bool:
    """Whether the node reads no memory."""
    return all(n.op is not Ops.BUFFER for n in uop.toposort())


def _moved(before: list[tuple[TensorCore, UOp]]) -> TensorCore | None:
    """A tensor from outside that has other memory than before the function."""
    for tensor, uop in before:
        if tensor.uop is uop or _is_free(uop):
            continue
        memory = memory_behind(uop)
        if memory is None or memory_behind(tensor.uop) is not memory:
            return tensor
    return None
