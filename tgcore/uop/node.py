"""UOp: the one node type, from the tensor graph to the final program.

Nodes are immutable and hash-consed: two equal nodes are one object, so identity is equality.
The table of nodes holds them weakly: a node dies with its last user.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, TypeAlias

from tgcore.dtype import AddrSpace, DType, Invalid, PtrDType, dtypes
from tgcore.uop import facts
from tgcore.uop.arithmetic import Arithmetic
from tgcore.uop.ops import AxisType, GroupOp, Ops


class _Ref(weakref.ref["UOp"]):
    __slots__ = ("identity",)
    identity: tuple[Any, ...]


# the table of living nodes, by (op, dtype, src, arg, tag)
_nodes: dict[tuple[Any, ...], _Ref] = {}


def _forget(ref: Any) -> None:
    identity = ref.identity
    if _nodes.get(identity) is ref:
        del _nodes[identity]


def live_nodes() -> int:
    """How many nodes are alive."""
    return len(_nodes)


_unique_numbers = itertools.count()

# *** who is told of new nodes ***

Observer: TypeAlias = "Callable[[UOp], None]"
_observers: tuple[Observer, ...] = ()


def observe_new_nodes(observer: Observer, wanted: bool) -> None:
    """From now on the function is called with every node that is made; if it raises, there is no
    such node. Not `wanted` ends that."""
    global _observers
    others = tuple([o for o in _observers if o is not observer])
    _observers = (*others, observer) if wanted else others


@contextlib.contextmanager
def unobserved() -> Iterator[None]:
    """Nodes that are made in the block are nobody's business."""
    global _observers
    saved, _observers = _observers, ()
    try:
        yield
    finally:
        _observers = saved


def _observe(node: UOp) -> None:
    try:
        for observer in _observers:
            observer(node)
    except BaseException:
        # the next one who makes it must be told again
        _nodes.pop((node.op, node.dtype, node.src, node.arg, node.tag), None)
        raise


class UOp(Arithmetic):
    """A node: an op, the type of its value, its sources, and what else the op needs to know.

    The facts `shape`, `device`, `ranges`, `bounds` and `key` are computed when first read.
    `made_by` says where it was made, if somebody wanted that to be kept (see `tgcore.uop.spec`).
    """

    __slots__ = (
        *("op", "dtype", "src", "arg", "tag"),
        *("shape", "device", "ranges", "bounds", "key", "made_by", "__weakref__"),
    )

    op: Ops
    dtype: Any
    src: tuple[UOp, ...]
    arg: Any
    tag: Any
    shape: tuple[Any, ...] | None
    device: str | None
    ranges: dict[UOp, None]
    bounds: tuple[Any, Any]
    key: bytes
    made_by: str

    def __new__(
        cls,
        op: Ops,
        dtype: DType = dtypes.void,
        src: tuple[UOp, ...] = (),
        arg: Any = None,
        tag: Any = None,
    ) -> UOp:
        identity = (op, dtype, src, arg, tag)
        ref = _nodes.get(identity)
        if ref is not None:
            known = ref()
            if known is not None:
                return known
        node = object.__new__(cls)
        node.op, node.dtype, node.src, node.arg, node.tag = identity
        new_ref = _Ref(node, _forget)
        new_ref.identity = identity
        _nodes[identity] = new_ref
        if _observers:
            _observe(node)
        return node

    def __getattr__(self, name: str) -> Any:
        rule = _FACTS.get(name)
        if rule is None:
            raise AttributeError(f"UOp has no attribute {name!r}")
        return _compute_fact(self, name, rule)

    def __reduce__(self) -> tuple[Any, ...]:
        return (UOp, (self.op, self.dtype, self.src, self.arg, self.tag))

    def __repr__(self) -> str:
        count = len(self.toposort())
        inner = ", ".join(str(s.op) for s in self.src)
        tag = "" if self.tag is None else f", tag={self.tag!r}"
        return f"<UOp {self.op} {self.dtype} ({inner}) arg={self.arg!r}{tag}, {count} nodes>"

    def __bool__(self) -> bool:
        """Whether the value is sure to be true; unknown values are an error."""
        if self.vmin == self.vmax:
            return bool(self.vmin)
        raise ValueError(
            f"a symbolic value has no truth value: it lies in [{self.vmin}, {self.vmax}]"
        )

    def __int__(self) -> int:
        return int(self._sure(int))

    def __index__(self) -> int:
        return int(self._sure(int))

    def __float__(self) -> float:
        return float(self._sure(float))

    def _sure(self, kind: type) -> Any:
        if self.vmin != self.vmax:
            raise ValueError(
                f"a symbolic value is no {kind.__name__}: it lies in [{self.vmin}, {self.vmax}]"
            )
        return kind(self.vmin)

    # *** facts ***

    @property
    def vmin(self) -> Any:
        """The least value that the node can have."""
        return self.bounds[0]

    @property
    def vmax(self) -> Any:
        """The greatest value that the node can have."""
        return self.bounds[1]

    @property
    def marg(self) -> tuple[Any, ...]:
        """What a movement op does: shape, permutation, flipped axes; (before, after) pairs of a pad
        and (begin, end) pairs of a shrink."""
        if self.op in (Ops.PERMUTE, Ops.FLIP):
            return self.arg  # type: ignore[no-any-return]
        if self.op in (Ops.RESHAPE, Ops.EXPAND):
            return facts.movement_arg(self)
        first, sizes = facts.movement_arg(self, 1), facts.movement_arg(self, 2)
        if self.op is Ops.SHRINK:
            return tuple((b, b + size) for b, size in zip(first, sizes))
        inner = self.src[0].known_shape
        return tuple((b, total - b - s) for b, total, s in zip(first, sizes, inner))

    @property
    def known_shape(self) -> tuple[Any, ...]:
        """The shape, of a node that has one."""
        if self.shape is None:
            raise ValueError(f"{self.op} has no shape")
        return self.shape

    @property
    def size(self) -> Any:
        """The number of elements of the shape."""
        result: Any = 1
        for dim in self.known_shape:
            result = dim * result
        return result

    @property
    def base(self) -> UOp:
        """The node under all movement ops on top."""
        node = self
        while node.op in GroupOp.Movement:
            node = node.src[0]
        return node

    def toposort(self, gate: Callable[[UOp], bool] | None = None) -> dict[UOp, None]:
        """All nodes below and this one, sources first; where the gate says no it goes no deeper
        (and leaves the node out)."""
        order: dict[UOp, None] = {}
        stack: list[tuple[UOp, bool]] = [(self, False)]
        while stack:
            node, sources_done = stack.pop()
            if node in order:
                continue
            if sources_done:
                order[node] = None
            elif gate is None or gate(node):
                stack.append((node, True))
                stack.extend((s, False) for s in reversed(node.src) if s not in order)
        return order

    def consumers(self) -> dict[UOp, list[UOp]]:
        """For every node of the graph the nodes that use it, each once."""
        users: dict[UOp, list[UOp]] = {}
        for node in self.toposort():
            users.setdefault(node, [])
            for source in dict.fromkeys(node.src):
                users[source].append(node)
        return users

    def variables(self) -> list[UOp]:
        """The variables in the graph, bound or not, by name."""
        found = {n for n in self.toposort() if n.op is Ops.DEFINE_VAR}
        return sorted(found, key=lambda v: v.arg)

    # *** making nodes from this one ***

    def replace(self, **changes: Any) -> UOp:
        """The same node but for some fields."""
        return UOp(
            changes.get("op", self.op),
            changes.get("dtype", self.dtype),
            changes.get("src", self.src),
            changes.get("arg", self.arg),
            changes.get("tag", self.tag),
        )

    def rtag(self, tag: Any = True) -> UOp:
        """The same node with another tag."""
        return UOp(self.op, self.dtype, self.src, self.arg, tag)

    def substitute(self, table: Mapping[UOp, UOp]) -> UOp:
        """The graph with every node in the table replaced (what replaces is not looked into)."""
        if not table:
            return self
        done: dict[UOp, UOp] = dict(table)
        if self in done:
            return done[self]
        for node in self.toposort(lambda n: n not in table):
            src = tuple([done.get(s, s) for s in node.src])
            if src != node.src:
                done[node] = UOp(node.op, node.dtype, src, node.arg, node.tag)
        return done.get(self, self)

    def substitute_ranges(self, table: Mapping[UOp, UOp]) -> UOp:
        """`substitute` for a table of ranges: only what depends on one of them is looked at."""
        done: dict[UOp, UOp] = dict(table)
        for node in self.toposort(lambda n: n not in table and any(r in n.ranges for r in table)):
            src = tuple([done.get(s, s) for s in node.src])
            if src != node.src:
                done[node] = UOp(node.op, node.dtype, src, node.arg, node.tag)
        return done.get(self, self)

    def alu(self, op: Ops, *others: UOp) -> UOp:
        src = (self, *others)
        dtype = src[-1].dtype
        if op in GroupOp.Comparison:
            dtype = dtypes.bool.vec(dtype.count)
        elif op is Ops.MULACC:
            dtype = self.dtype
        return UOp(op, dtype, src)

    def const_like(self, value: Any) -> UOp:
        return UOp.const(self.dtype, value)

    def cast(self, dtype: DType) -> UOp:
        """The value in another type (of as many lanes)."""
        if self.dtype.count > 1 and dtype.count == 1:
            dtype = dtype.vec(self.dtype.count)
        return self if self.dtype is dtype else UOp(Ops.CAST, dtype, (self,))

    def bitcast(self, dtype: DType) -> UOp:
        """The bits as another type of the same size."""
        return self if self.dtype is dtype else UOp(Ops.BITCAST, dtype, (self,))

    def gep(self, lanes: int | tuple[int, ...]) -> UOp:
        """One lane, or several, of a vector."""
        if isinstance(lanes, int):
            lanes = (lanes,)
        if lanes == tuple(range(self.dtype.count)):
            return self
        if self.op is Ops.VECTORIZE:
            chosen = tuple(self.src[lane] for lane in lanes)
            return chosen[0] if len(lanes) == 1 else UOp.vectorize(*chosen)
        if self.op is Ops.VCONST:
            return UOp.const(self.dtype.scalar().vec(len(lanes)), tuple(self.arg[i] for i in lanes))
        if self.op is Ops.CONST:
            return UOp.const(self.dtype.scalar().vec(len(lanes)), self.arg)
        return UOp(Ops.GEP, self.dtype.scalar().vec(len(lanes)), (self,), lanes)

    def broadcast(self, count: int) -> UOp:
        """A vector of so many copies of a scalar."""
        if count == 1:
            return self
        if self.op is Ops.CONST:
            return UOp.const(self.dtype.vec(count), self.arg)
        return UOp(Ops.VECTORIZE, self.dtype.vec(count), (self,) * count)

    def index(self, *indices: UOp | int, gate: UOp | None = None, dtype: Any = None) -> UOp:
        """The element at the indices (a pointer to it if dtype is a pointer)."""
        nodes = [UOp.const(dtypes.index, i) if isinstance(i, int) else i for i in indices]
        src = (self, *nodes) if gate is None else (self, *nodes, gate)
        return UOp(Ops.INDEX, self.dtype.base if dtype is None else dtype, src)

    def load(self, *src: UOp, dtype: DType | None = None) -> UOp:
        """What memory holds at this address."""
        return UOp(Ops.LOAD, self.dtype.base if dtype is None else dtype, (self, *src))

    def store(self, value: UOp) -> UOp:
        """The effect of writing the value to this address."""
        return UOp(Ops.STORE, dtypes.void, (self, value))

    def end(self, *ranges: UOp) -> UOp:
        """The effect, in the loops of the ranges."""
        return UOp(Ops.END, dtypes.void, (self, *ranges)) if ranges else self

    def after(self, *effects: UOp) -> UOp:
        """The value, ordered after the effects."""
        return UOp(Ops.AFTER, self.dtype, (self, *effects)) if effects else self

    def reduce(self, op: Ops, *ranges: UOp) -> UOp:
        """The value reduced over the ranges."""
        return UOp(Ops.REDUCE, self.dtype, (self, *ranges), op) if ranges else self

    # *** tensor level ***

    def reshape(self, shape: Sequence[Any]) -> UOp:
        """The elements in another shape with as many elements."""
        shape = tuple(shape)
        if self.shape == shape:
            return self
        node = self
        # memory in its shape stays a node of its own: gradients are asked for by it
        if self.op is Ops.RESHAPE and self.src[0].op is not Ops.BUFFER:
            node = self.src[0]
        if node.shape == shape:
            return node
        return UOp(Ops.RESHAPE, self.dtype, (node, shape_node(shape)))

    def expand(self, shape: Sequence[Any]) -> UOp:
        """Axes of size 1 repeated to the shape's size."""
        shape = tuple(shape)
        if self.shape == shape:
            return self
        return UOp(Ops.EXPAND, self.dtype, (self, shape_node(shape)))

    def permute(self, order: Sequence[int]) -> UOp:
        """The axes in another order."""
        order = tuple(order)
        if order == tuple(range(len(order))):
            return self
        return UOp(Ops.PERMUTE, self.dtype, (self,), order)

    def flip(self, axes: Sequence[int]) -> UOp:
        """The axes reversed."""
        axes = tuple(sorted(set(axes)))
        return UOp(Ops.FLIP, self.dtype, (self,), axes) if axes else self

    def pad(self, before: Sequence[Any], shape: Sequence[Any]) -> UOp:
        """Zeros around it: `before` of them in front of each axis, to the shape in all."""
        if tuple(shape) == self.shape:
            return self
        return UOp(Ops.PAD, self.dtype, (self, shape_node(before), shape_node(shape)))

    def shrink(self, begin: Sequence[Any], shape: Sequence[Any]) -> UOp:
        """The box of that shape which begins there."""
        if tuple(shape) == self.shape:
            return self
        return UOp(Ops.SHRINK, self.dtype, (self, shape_node(begin), shape_node(shape)))

    def reduce_axis(self, op: Ops, axes: Sequence[int]) -> UOp:
        """The axes reduced to size 1."""
        axes = tuple(sorted(set(axes)))
        return UOp(Ops.REDUCE_AXIS, self.dtype, (self,), (op, axes)) if axes else self

    def contiguous(self) -> UOp:
        """Itself, stored."""
        return UOp(Ops.CONTIGUOUS, self.dtype, (self,))

    def copy_to(self, device: str) -> UOp:
        """Itself on another device."""
        return UOp(Ops.COPY, self.dtype, (self, UOp(Ops.DEVICE, arg=device)))

    def assign(self, value: UOp) -> UOp:
        """Itself after it was overwritten with the value."""
        return UOp(Ops.ASSIGN, self.dtype, (self, value))

    def detach(self) -> UOp:
        """Itself, without a gradient."""
        return UOp(Ops.DETACH, self.dtype, (self,))

    def with_gradient(self, rule: Any, *inputs: UOp) -> UOp:
        """Itself, with gradients of the inputs by a rule (a function, or the name of one), not by
        how it is made."""
        return UOp(Ops.CUSTOM_GRADIENT, self.dtype, (self, *inputs), rule)

    def bind(self, value: int) -> UOp:
        """The variable with a value for now."""
        _, low, high = self.arg
        if not low <= value <= high:
            raise ValueError(f"{value} is not in the range [{low}, {high}] of {self.arg[0]}")
        return UOp(Ops.BIND, self.dtype, (self, self.const_like(value)))

    def unbind(self) -> tuple[UOp, int]:
        """The variable and its value."""
        assert self.op is Ops.BIND, self.op
        return self.src[0], self.src[1].arg

    # *** making nodes from nothing ***

    @staticmethod
    def const(dtype: DType, value: Any) -> UOp:
        """A constant; a tuple gives each lane its own value."""
        if isinstance(value, UOp):
            return value
        if isinstance(value, tuple):
            if len(set(map(repr, value))) > 1:
                return UOp(Ops.VCONST, dtype, (), dtypes.as_const(value, dtype))
            value = value[0]
        return UOp(Ops.CONST, dtype, (), dtypes.as_const(value, dtype))

    @staticmethod
    def invalid() -> UOp:
        """The index that may not be used."""
        return UOp(Ops.CONST, dtypes.index, (), Invalid)

    @staticmethod
    def vectorize(*lanes: UOp) -> UOp:
        """A vector of the scalars."""
        if len(lanes) == 1:
            return lanes[0]
        dtype = lanes[0].dtype.vec(len(lanes))
        if all(lane.op is Ops.CONST for lane in lanes):
            return UOp.const(dtype, tuple(lane.arg for lane in lanes))
        return UOp(Ops.VECTORIZE, dtype, lanes)

    @staticmethod
    def range(size: Any, number: int | tuple[int, ...], axis: AxisType = AxisType.LOOP) -> UOp:
        """A loop variable from 0 to size - 1, of the size's type."""
        arg = (number, axis) if isinstance(number, int) else (*number, axis)
        end = to_index(size)
        return UOp(Ops.RANGE, end.dtype, (end,), arg)

    @staticmethod
    def variable(name: str, low: int, high: int) -> UOp:
        """An integer that is known when the kernel runs."""
        if low > high:
            raise ValueError(f"variable {name!r}: least value {low} is above greatest {high}")
        return UOp(Ops.DEFINE_VAR, dtypes.index, (), (name, low, high))

    @staticmethod
    def special(name: str, size: Any) -> UOp:
        """The position in the launch."""
        return UOp(Ops.SPECIAL, dtypes.index, (to_index(size),), name)

    @staticmethod
    def buffer(device: str, size: int, dtype: DType, unique: Any) -> UOp:
        """The memory of so many elements that `unique` tells from others."""
        src = (UOp(Ops.UNIQUE, arg=unique), UOp(Ops.DEVICE, arg=device))
        return UOp(Ops.BUFFER, dtype, src, size)

    @staticmethod
    def new_buffer(device: str, size: int, dtype: DType) -> UOp:
        """New memory of so many elements."""
        return UOp.buffer(device, size, dtype, next(_unique_numbers))

    @staticmethod
    def sink(*effects: UOp, arg: Any = None) -> UOp:
        """What must be computed."""
        return UOp(Ops.SINK, dtypes.void, effects, arg)

    @staticmethod
    def group(*effects: UOp) -> UOp:
        """Several effects as one."""
        return effects[0] if len(effects) == 1 else UOp(Ops.GROUP, dtypes.void, effects)

    @staticmethod
    def define(op: Ops, dtype: DType, size: int, number: Any) -> UOp:
        """Memory of a kernel: a parameter, memory of the work group, or registers."""
        space = {Ops.DEFINE_LOCAL: AddrSpace.LOCAL, Ops.DEFINE_REG: AddrSpace.REG}
        pointer = dtype.ptr(size, space.get(op, AddrSpace.GLOBAL))
        return UOp(op, pointer, (), number)

    @property
    def axis_type(self) -> AxisType:
        """What a range becomes."""
        return self.arg[-1]  # type: ignore[no-any-return]

    @property
    def is_pointer(self) -> bool:
        """Whether the value is an address."""
        return isinstance(self.dtype, PtrDType)

    def split(self, op: Ops) -> Iterable[UOp]:
        """The terms of a sum, the factors of a product, ...: from left to right."""
        stack = [self]
        while stack:
            node = stack.pop()
            if node.op is op:
                stack.extend(reversed(node.src))
            else:
                yield node


sint: TypeAlias = int | UOp
Variable = UOp

_FACTS: Final[dict[str, Callable[[UOp], Any]]] = {
    "shape": facts.shape,
    "device": facts.device,
    "ranges": facts.ranges,
    "bounds": facts.bounds,
    "key": facts.key,
}
_SLOTS: Final = {name: UOp.__dict__[name] for name in _FACTS}


def _compute_fact(root: UOp, name: str, rule: Callable[[UOp], Any]) -> Any:
    slot = _SLOTS[name]
    stack = [root]
    while stack:
        node = stack[-1]
        pending = [s for s in node.src if not _has(slot, s)]
        if pending:
            stack.extend(pending)
        else:
            stack.pop()
            if not _has(slot, node):
                slot.__set__(node, rule(node))
    return slot.__get__(root)


def _has(slot: Any, node: UOp) -> bool:
    # a slot read by `type(slot).__get__` raises where the fact is missing, and calls no __getattr__
    try:
        slot.__get__(node)
    except AttributeError:
        return False
    return True


def to_index(value: sint) -> UOp:
    """An int or a node as a node of the index type."""
    return UOp.const(dtypes.index, value) if isinstance(value, int) else value


def to_sint(node: UOp) -> sint:
    """A constant node as an int, another node as it is."""
    return int(node.arg) if node.op is Ops.CONST else node


def shape_node(sizes: Sequence[sint]) -> UOp:
    """The sizes as one node: constant where all are ints."""
    dtype = dtypes.index.vec(len(sizes)) if len(sizes) > 1 else dtypes.index
    if all(isinstance(size, int) for size in sizes):
        return UOp(Ops.VCONST, dtype, (), tuple(map(operator.index, sizes)))
    return UOp(Ops.VECTORIZE, dtype, tuple(to_index(size) for size in sizes))


def smax(*values: sint) -> int:
    """The greatest value that any of these can have."""
    return max(v if isinstance(v, int) else v.vmax for v in values)


def resolve(condition: bool | UOp, default: bool = True) -> bool:
    """The truth of a condition on symbolic values; the default where it is not known."""
    if isinstance(condition, bool):
        return condition
    low, high = condition.bounds
    return bool(low) if low == high else default


def infer(value: sint, variables: Mapping[str, int]) -> int:
    """The value of a symbolic int where the variables have these values."""
    if isinstance(value, int):
        return value
    table = {
        v: v.const_like(variables[v.arg[0]]) for v in value.variables() if v.arg[0] in variables
    }
    # rebuilding with constants and reading the bounds evaluates the expression exactly
    return int(value.substitute(table))


@dataclass(frozen=True)
class BufferizeInfo:
    """Where a BUFFERIZE stores: the device, the address space in a kernel, whether it was asked for
    by name, so that it may not be removed, and how often its readers would compute an element."""

    device: str | None
    addrspace: AddrSpace = AddrSpace.GLOBAL
    fixed: bool = False
    repeats: int = 1

    def __repr__(self) -> str:
        values = [(f.name, getattr(self, f.name), f.default) for f in fields(self)]
        shown = [f"{name}={value!r}" for name, value, usual in values if value != usual]
        return f"BufferizeInfo({', '.join(shown)})"
