"""Ranges for every node, from the outputs back to the inputs; then the graph rewritten over them.

In: a cleaned tensor graph and the nodes that must be stored. Out: a graph of scalar expressions:
movement ops are gone (they became arithmetic on ranges), REDUCE_AXIS became REDUCE over ranges, and
every stored node is `BUFFERIZE(expression, *ranges)`, read by INDEX. Which nodes are stored beyond
those that must be follows from where the ranges of several consumers differ, and from where an
EXPAND would compute something over and over.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tgcore.dtype import AddrSpace, dtypes
from tgcore.helpers import DEBUG, PCONTIG, colored
from tgcore.schedule.movement import (
    ZERO,
    Ranges,
    flat_index,
    input_ranges,
    join_valid,
    pad_condition,
)
from tgcore.schedule.realize import STORED, is_plain_view
from tgcore.uop.node import BufferizeInfo, UOp, sint
from tgcore.uop.ops import AxisType, GroupOp, Ops
from tgcore.uop.symbolic import simplify, split_valid

# nodes that have no element of their own: nothing indexes into them
_NOT_INDEXED = frozenset(
    {Ops.DEVICE, Ops.UNIQUE, Ops.CONST, Ops.VCONST, Ops.DEFINE_VAR, Ops.BIND, Ops.SINK, Ops.RANGE}
)


@dataclass
class IndexingContext:
    """What is known of each node: stored on which axes, its ranges seen from either side."""

    realized: dict[UOp, tuple[int, ...] | None]
    inputs: dict[UOp, Ranges] = field(default_factory=dict)
    outputs: dict[UOp, Ranges] = field(default_factory=dict)
    ending: dict[UOp, dict[UOp, None]] = field(default_factory=dict)
    repeats: dict[UOp, int] = field(default_factory=dict)
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def new_range(self, size: sint, axis: AxisType = AxisType.LOOP) -> UOp:
        """A range that nothing has yet; 0 for a size of 1."""
        if isinstance(size, int) and size == 1:
            return ZERO
        return UOp.range(size, next(self.numbers), axis)

    def new_ranges(self, shape: Sequence[sint]) -> Ranges:
        """A new range for each axis."""
        return tuple(self.new_range(size) for size in shape)


def _is_indexed(node: UOp) -> bool:
    return node.op not in _NOT_INDEXED and node.dtype.scalar() is not dtypes.index


def assign_ranges(sink: UOp, realized: dict[UOp, tuple[int, ...] | None]) -> IndexingContext:
    """Input and output ranges of every node, and the nodes that have to be stored."""
    context = IndexingContext(dict(realized))
    consumers = sink.consumers()
    for node in reversed(list(consumers)):
        if not _is_indexed(node) or node.shape is None:
            continue
        _assign_ranges_of(context, node, consumers[node])
    if DEBUG >= 5:
        print(describe_ranges(context, consumers))
    return context


def _assign_ranges_of(context: IndexingContext, node: UOp, users: list[UOp]) -> None:
    inherited: dict[UOp, None] = {}
    for user in users:
        inherited.update(context.ending.get(user, {}))
    wanted = [_wanted_ranges(context, user, node) for user in users]
    ranges_wanted = [w for w in wanted if w is not None]
    if node in context.realized:
        outputs = context.new_ranges(node.known_shape)
        context.realized[node] = tuple(range(len(outputs)))
        inherited = {}
    elif node.op in STORED or not ranges_wanted:
        return
    else:
        outputs = _merge_wanted(context, node, ranges_wanted)
    if inherited and node.op in GroupOp.Elementwise | {Ops.REDUCE_AXIS}:
        outputs = _realize_where_ranges_end(context, node, outputs, inherited)
        inherited = {}
    inputs = outputs
    if node.op in GroupOp.Movement:
        inputs = input_ranges(node, outputs)
    if node.op is Ops.EXPAND:
        for before, after in zip(inputs, outputs):
            if before is not after:
                inherited = {**inherited, **after.ranges}
    if node.op is Ops.REDUCE_AXIS:
        inputs = tuple(
            context.new_range(size, AxisType.REDUCE) if axis in node.arg[1] else outputs[axis]
            for axis, size in enumerate(node.src[0].known_shape)
        )
    context.inputs[node], context.outputs[node] = inputs, outputs
    context.ending[node] = inherited


def _wanted_ranges(context: IndexingContext, user: UOp, node: UOp) -> Ranges | None:
    """The indices by which a consumer reads the node; None if it reads it as a whole."""
    if user.op is Ops.COPY or user not in context.inputs:
        return None
    return context.inputs[user] if node.shape != () else ()


def _merge_wanted(context: IndexingContext, node: UOp, wanted: list[Ranges]) -> Ranges:
    """Shared ranges where the consumers agree; new ones, and storage, where they do not."""
    if len(wanted) == 1:
        return wanted[0]
    known = [{r for index in ranges for r in index.ranges} for ranges in wanted]
    shared = functools.reduce(lambda a, b: a & b, known)
    merged = [
        _merge_indices(indices, size, shared)
        for indices, size in zip(zip(*wanted), node.known_shape)
    ]
    outputs: list[UOp] = []
    differing: list[int] = []
    for axis, index in enumerate(merged):
        if index is not None and (None not in merged or PCONTIG >= 1):
            outputs.append(index)
        else:
            outputs.append(context.new_range(node.known_shape[axis]))
            differing.append(axis)
    if differing:
        context.realized[node] = tuple(differing)
    return tuple(outputs)


def _merge_indices(indices: Sequence[UOp], size: sint, shared: set[UOp]) -> UOp | None:
    """The index that stands for those of all consumers, valid where one of them is; None if there
    is none. A condition on a range that only one of them has means nothing to the others."""
    valids, plain = zip(*[split_valid(index) for index in indices])
    if any(index is not plain[0] for index in plain):
        return None
    condition = None if None in valids else simplify(_any_of(valids))
    if condition is not None and not shared.issuperset(condition.ranges):
        inside = isinstance(size, int) and plain[0].vmin >= 0 and plain[0].vmax < size
        return plain[0] if inside else None
    return join_valid([condition], plain[0])


def _any_of(valids: Sequence[UOp | None]) -> UOp:
    present = [v for v in dict.fromkeys(valids) if v is not None]
    return functools.reduce(lambda a, b: a | b, present)


def _realize_where_ranges_end(
    context: IndexingContext, node: UOp, outputs: Ranges, ending: dict[UOp, None]
) -> Ranges:
    """Storage for what an EXPAND above would compute for each repetition."""
    known = context.realized.get(node) or ()
    axes = [
        axis
        for axis, r in enumerate(outputs)
        if axis in known or PCONTIG <= 1 or _opened_after(r, ending)
    ]
    if not axes and outputs:
        return outputs
    context.realized[node] = tuple(axes)
    context.repeats[node] = functools.reduce(lambda a, r: a * (r.vmax + 1), ending, 1)
    return tuple(
        context.new_range(node.known_shape[axis]) if axis in axes and axis not in known else r
        for axis, r in enumerate(outputs)
    )


def _opened_after(index: UOp, ending: dict[UOp, None]) -> bool:
    """Whether a range of the index was opened after one of the ending ranges."""
    return any(r.arg[0] > e.arg[0] for e in ending for r in index.ranges)


# *** the graph over ranges ***


def apply_ranges(sink: UOp, context: IndexingContext) -> UOp:
    """The graph of scalar expressions; the sink holds a BUFFERIZE, or memory, for each output."""
    values: dict[UOp, UOp] = {}

    def source_value(user: UOp, source: UOp) -> UOp:
        value = values.get(source, source)
        if not _is_indexed(source):
            return value
        if source.op in STORED:
            return _read(value, source, context.inputs.get(user, ()))
        if source in context.realized:
            axes = context.realized[source]
            assert axes is not None
            if source.op is Ops.COPY:
                return _read(value, source, context.inputs[user])
            if source.op is Ops.ASSIGN:
                return _read_assigned(value, source, context.inputs[user])
            ranges = context.inputs[user] if source.shape != () else ()
            return value.index(*[ranges[axis] for axis in axes])
        return value

    for node in sink.toposort():
        if node.op is Ops.SINK:
            values[node] = UOp.sink(*[values.get(s, s) for s in node.src], arg=node.arg)
        elif node.op is Ops.COPY:
            values[node] = node.replace(src=(_whole(values, node.src[0]), node.src[1]))
        elif not _is_indexed(node) or node.op in STORED:
            src = tuple(values.get(s, s) for s in node.src)
            values[node] = node if src == node.src else node.replace(src=src)
        elif node in context.outputs:
            values[node] = _store(context, node, _expression(context, node, source_value))
    return values[sink]


def _whole(values: dict[UOp, UOp], source: UOp) -> UOp:
    """The memory that a COPY reads."""
    while source not in values or (source.op is Ops.RESHAPE and is_plain_view(source)):
        source = source.src[0]
    return values[source]


def _read(value: UOp, source: UOp, ranges: Ranges) -> UOp:
    """An element of memory that has the source's shape."""
    return value.index(flat_index(source.known_shape, ranges), dtype=source.dtype)


def _read_assigned(value: UOp, source: UOp, ranges: Ranges) -> UOp:
    """An element of an assign's target, once it is written."""
    node, indices = source.src[0], ranges
    while node.op in GroupOp.Movement:
        indices = input_ranges(node, indices)
        node = node.src[0]
    if node.op is Ops.ASSIGN:
        return _read_assigned(value, node, indices)
    return value.index(flat_index(node.known_shape, indices), dtype=source.dtype)


def _expression(context: IndexingContext, node: UOp, get: Callable[[UOp, UOp], UOp]) -> UOp:
    """The scalar expression of a node, at its ranges; `get` gives what it reads of a source."""
    if node.op in GroupOp.Movement:
        value = get(node, node.src[0])
        if node.op is Ops.PAD:
            condition = pad_condition(node, context.outputs[node])
            return condition.where(value, value.const_like(0))
        return value
    if node.op is Ops.REDUCE_AXIS:
        value = get(node, node.src[0])
        ranges = [context.inputs[node][axis] for axis in node.arg[1]]
        return value.reduce(node.arg[0], *[r for r in ranges if r.op is Ops.RANGE])
    if node.op in (Ops.CONTIGUOUS, Ops.MULTI, Ops.MSELECT, Ops.NOOP):
        return get(node, node.src[0])
    if node.op is Ops.ASSIGN:
        target = get(node, node.src[0])
        return node.replace(src=(target, get(node, node.src[1])))
    return node.replace(src=tuple(get(node, s) for s in node.src))


def _store(context: IndexingContext, node: UOp, value: UOp) -> UOp:
    """The expression, or its storage if the node is to be stored."""
    axes = context.realized.get(node)
    if axes is None:
        return value
    everywhere = len(axes) == len(context.outputs[node])
    space = AddrSpace.GLOBAL if everywhere else AddrSpace.LOCAL
    ranges = [context.outputs[node][axis] for axis in axes]
    fixed = node.op in (Ops.CONTIGUOUS, Ops.ASSIGN)
    info = BufferizeInfo(node.device, space, fixed, context.repeats.get(node, 1))
    return UOp(Ops.BUFFERIZE, node.dtype, (value, *ranges), info)


# *** the debug view ***


def describe_ranges(context: IndexingContext, consumers: dict[UOp, list[UOp]]) -> str:
    """A line a node, outputs first: stored or not, consumers, op, shape, ranges in -> out."""
    lines = []
    for node in reversed(list(consumers)):
        if node not in context.outputs:
            continue
        axes = context.realized.get(node) or ()
        stored = "***" if node in context.realized else "   "
        before = ", ".join(_show(r) for r in context.inputs[node])
        after = ", ".join(
            colored(_show(r), "yellow") if axis in axes else _show(r)
            for axis, r in enumerate(context.outputs[node])
        )
        uses = len(consumers[node])
        lines.append(
            f"{stored} {uses:3d} {node.op.name:16s} {node.shape!s:24s} {before} -> {after}"
        )
    return "\n".join(lines)


def _show(index: UOp) -> str:
    symbols = {Ops.ADD: "+", Ops.MUL: "*", Ops.IDIV: "//", Ops.MOD: "%", Ops.CMPLT: "<"}
    texts: dict[UOp, str] = {}
    for node in index.toposort():
        parts = [texts[s] for s in node.src]
        if node.op is Ops.RANGE:
            texts[node] = f"r{node.arg[0]}"
        elif node.op in symbols:
            texts[node] = f"({parts[0]}{symbols[node.op]}{parts[1]})"
        elif node.op in (Ops.CONST, Ops.DEFINE_VAR):
            texts[node] = str(node.arg[0] if node.op is Ops.DEFINE_VAR else node.arg)
        else:
            texts[node] = f"{node.op.name.lower()}({', '.join(parts)})"
    return texts[index]
