"""Which nodes must be buffers, and the clean-up of the tensor graph before that is decided.

In: a tensor graph as the front end made it. Out: the same graph without nodes that compute nothing
(DETACH, views of constants, ...), every output, copy source and assign in a form that can be
stored, and the set of nodes that must be stored whatever the ranges say.
"""

from __future__ import annotations

from tgcore.errors import ScheduleError
from tgcore.uop.evaluate import identity_of
from tgcore.uop.node import UOp
from tgcore.uop.ops import GroupOp, Ops
from tgcore.uop.pattern import PatternMatcher, UPat
from tgcore.uop.rewrite import graph_rewrite

# nodes whose value lies in memory already
STORED = frozenset({Ops.BUFFER, Ops.BUFFER_VIEW})
# nodes that must be stored
ALWAYS_STORED = frozenset({Ops.CONTIGUOUS, Ops.COPY, Ops.ASSIGN})

# a sum of more elements than this to few results is done in two steps, so that both can be parallel
_SPLIT_REDUCE_ABOVE = 1 << 17
_SPLIT_REDUCE_OUTPUTS = 16
_SPLIT_REDUCE_PARTS = 64


def storage_of(node: UOp) -> UOp:
    """The BUFFER that a view or an assign to a view writes to."""
    while node.op in GroupOp.Movement or node.op in (Ops.ASSIGN, Ops.AFTER, Ops.BITCAST):
        node = node.src[0]
    return node


def _reshape_of_reshape(node: UOp, x: UOp) -> UOp:
    return x if x.shape == node.shape else x.reshape(node.known_shape)


def _copy_of_constant(x: UOp) -> UOp | None:
    return x if x.base.op is Ops.CONST else None


def _contiguous_of_stored(x: UOp) -> UOp | None:
    return x if is_plain_view(x) else None


def _zero_size_reduce(node: UOp, x: UOp) -> UOp | None:
    if 0 not in x.known_shape:
        return None
    return _filled(node, node.const_like(identity_of(node.arg[0], node.dtype)))


def _filled(node: UOp, value: UOp) -> UOp:
    shape = node.known_shape
    return value.reshape((1,) * len(shape)).expand(shape) if shape else value


def _same_device_copy(node: UOp, x: UOp) -> UOp | None:
    return x if x.device is None or x.device == node.device else None


def _split_large_reduce(node: UOp, x: UOp) -> UOp | None:
    """A reduce of very many elements to few, as a reduce of parts and one of their results."""
    op, axes = node.arg
    shape, outputs = x.known_shape, node.size
    if not all(isinstance(s, int) for s in shape) or outputs > _SPLIT_REDUCE_OUTPUTS:
        return None
    if x.size < _SPLIT_REDUCE_ABOVE * max(1, outputs):
        return None
    for axis in axes:
        parts = _parts(shape[axis])
        if parts is not None:
            split = x.reshape((*shape[:axis], parts, shape[axis] // parts, *shape[axis + 1 :]))
            inner_axes = [a + (a > axis) for a in axes if a != axis]
            first = split.reduce_axis(op, [axis + 1, *inner_axes]).contiguous()
            return first.reduce_axis(op, [axis]).reshape(node.known_shape)
    return None


def _parts(size: int) -> int | None:
    for parts in range(_SPLIT_REDUCE_PARTS, 1, -1):
        if size % parts == 0 and size // parts >= 256:
            return parts
    return None


def _assign_through_views(target: UOp, value: UOp) -> UOp | None:
    """An assign whose value reads its target in another order needs the value stored first."""
    storage = storage_of(target)
    if storage.op not in STORED:
        raise ScheduleError(
            f"assign needs a target that is stored, not the result of {storage.op}; "
            "realize it first, or assign to the tensor that it was computed from"
        )
    if value.op is Ops.CONTIGUOUS or not _reads_otherwise(value, target, storage):
        return None
    return target.assign(value.contiguous())


def _reads_otherwise(value: UOp, target: UOp, storage: UOp) -> bool:
    def enter(node: UOp) -> bool:
        return node is not target and node.op not in ALWAYS_STORED

    stack, seen = [value], set()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node is storage and storage is not target:
            return True
        if not enter(node):
            if node.op in (Ops.CONTIGUOUS, Ops.COPY):
                continue
            if node.op is Ops.ASSIGN and storage_of(node) is storage and node is not target:
                return True
            continue
        if node.op not in GroupOp.Elementwise and storage in node.toposort():
            return True
        stack.extend(node.src)
    return False


pm_tensor_cleanup = PatternMatcher(
    [
        (UPat((Ops.DETACH, Ops.CONTIGUOUS_BACKWARD), src=(UPat.var("x"),)), lambda x: x),
        (
            UPat(
                Ops.RESHAPE,
                src=(UPat(Ops.RESHAPE, src=(UPat.var("x"), UPat())), UPat()),
                name="node",
            ),
            _reshape_of_reshape,
        ),
        # a constant fits any device
        (UPat(Ops.CONST, src=(UPat(Ops.DEVICE),), name="c"), lambda c: c.replace(src=())),
        (UPat(Ops.COPY, src=(UPat.var("x"), UPat())), _copy_of_constant),
        (UPat(Ops.COPY, src=(UPat.var("x"), UPat()), name="node"), _same_device_copy),
        (UPat(Ops.CONTIGUOUS, src=(UPat(Ops.CONTIGUOUS, name="x"),)), lambda x: x),
        (UPat(Ops.CONTIGUOUS, src=(UPat((Ops.COPY, Ops.ASSIGN), name="x"),)), lambda x: x),
        (UPat(Ops.CONTIGUOUS, src=(UPat.var("x"),)), _contiguous_of_stored),
        (UPat(Ops.REDUCE_AXIS, src=(UPat.var("x"),), name="node"), _zero_size_reduce),
        (UPat(Ops.REDUCE_AXIS, src=(UPat.var("x"),), name="node"), _split_large_reduce),
        (UPat(Ops.ASSIGN, src=(UPat.var("target"), UPat.var("value"))), _assign_through_views),
    ]
)


def clean_tensor_graph(sink: UOp) -> UOp:
    """The graph without nodes that compute nothing."""
    return graph_rewrite(sink, pm_tensor_cleanup, name="tensor clean-up")


def is_plain_view(node: UOp) -> bool:
    """Whether the node is stored memory in another shape, all of it, in order."""
    while node.op is Ops.RESHAPE:
        node = node.src[0]
    return node.op in STORED


def realize_map(sink: UOp) -> dict[UOp, tuple[int, ...] | None]:
    """The nodes that must be stored; None says on all of their axes."""
    found: dict[UOp, tuple[int, ...] | None] = {}
    for source in sink.src:
        if not is_plain_view(source):
            found[source] = None
    for node in sink.toposort():
        if node.op in ALWAYS_STORED:
            found[node] = None
        if node.op is Ops.COPY and not is_plain_view(node.src[0]):
            found[node.src[0]] = None
    return found
