"""Nodes of tensor graphs."""

from __future__ import annotations

from tgcore.dtype import dtypes
from tgcore.uop.node import UOp
from tgcore.uop.ops import Ops
from tgcore.uop.pattern import UPat
from tgcore.uop.spec.base import Family, Spec
from tgcore.uop.spec.shared import REDUCES, SHARED, is_value, keeps_type, legal_constant


def legal_buffer(node: UOp) -> bool:
    """A number of elements of a value type."""
    return type(node.arg) is int and node.arg >= 0 and is_value(node.dtype)


def legal_view(node: UOp) -> bool:
    """(size, offset in bytes) inside the buffer."""
    match node.arg:
        case (int(size), int(offset)):
            available = _bytes_of(node.src[0])
            return size >= 0 and offset >= 0 and offset + size * node.dtype.itemsize <= available
    return False


def _bytes_of(memory: UOp) -> int:
    size = memory.arg if memory.op is Ops.BUFFER else memory.arg[0]
    return int(size * memory.dtype.itemsize)


def legal_bind(node: UOp, variable: UOp, value: UOp) -> bool:
    """A value that the variable can have."""
    _, low, high = variable.arg
    return node.dtype is variable.dtype is value.dtype and bool(low <= value.arg <= high)


def legal_movement(node: UOp) -> bool:
    """A shape for the source's elements."""
    inner, outer = node.src[0].shape, node.shape
    if inner is None or outer is None or node.dtype is not node.src[0].dtype:
        return False
    if node.op is Ops.RESHAPE:
        return _count(inner) == _count(outer) or None in (_count(inner), _count(outer))
    if len(inner) != len(outer):
        return False
    if node.op is Ops.EXPAND:
        return all(a is b or a in (b, 1) for a, b in zip(inner, outer))
    return all(_not_negative(p) for pair in node.marg for p in pair)


def legal_box(node: UOp) -> bool:
    """A part of the source, inside it where sizes are numbers."""
    inner = node.src[0].shape
    if not legal_movement(node) or inner is None:
        return False
    return all(
        end <= size
        for (_, end), size in zip(node.marg, inner)
        if isinstance(end, int) and isinstance(size, int)
    )


def legal_permutation(node: UOp) -> bool:
    """All axes, each once."""
    inner = node.src[0].shape
    fits = inner is not None and isinstance(node.arg, tuple)
    return fits and sorted(node.arg) == list(range(len(inner or ()))) and keeps_type(node)


def legal_flip(node: UOp) -> bool:
    """Axes that there are, in ascending order."""
    return _are_axes(node.arg, node.src[0]) and keeps_type(node)


def _are_axes(axes: object, source: UOp) -> bool:
    if not isinstance(axes, tuple) or source.shape is None or list(axes) != sorted(set(axes)):
        return False
    return all(type(a) is int and 0 <= a < len(source.shape) for a in axes)


def _count(shape: tuple[object, ...]) -> object:
    total: object = 1
    for size in shape:
        if not isinstance(size, int):
            return None  # symbolic sizes are compared by nobody
        total = total * size  # type: ignore[operator]
    return total


def _not_negative(value: object) -> bool:
    return not isinstance(value, int) or value >= 0


def legal_reduce_axis(node: UOp) -> bool:
    """An op that can reduce, over axes that there are."""
    match node.arg:
        case (Ops() as op, tuple() as axes):
            return op in REDUCES and _are_axes(axes, node.src[0]) and keeps_type(node)
    return False


def legal_assign(node: UOp, target: UOp, value: UOp) -> bool:
    """A value of the target's type and shape (or a constant)."""
    return target.dtype is value.dtype is node.dtype and value.shape in (target.shape, ())


def legal_custom_gradient(node: UOp, x: UOp) -> bool:
    """A value, and what it has gradients for by the rule in arg."""
    return x.dtype is node.dtype and len(node.src) > 1 and node.arg is not None


_SIZES = UPat((Ops.VCONST, Ops.VECTORIZE))
TENSOR = (
    Family(
        "constants on devices",
        "a constant may have a DEVICE as its source",
        [(UPat(Ops.CONST, src=(UPat(Ops.DEVICE),), name="node"), legal_constant)],
    ),
    Family(
        "devices",
        "a DEVICE is a name, a UNIQUE a number; both are void and have no sources",
        [
            (
                UPat(Ops.UNIQUE, dtypes.void, src=(), name="node"),
                lambda node: node.arg is not None,
            ),
            (
                UPat(Ops.DEVICE, dtypes.void, src=(), name="node"),
                lambda node: isinstance(node.arg, str) and bool(node.arg),
            ),
        ],
    ),
    Family(
        "buffers",
        "a BUFFER has a UNIQUE and a DEVICE as sources and its number of elements as arg; a "
        "BUFFER_VIEW lies inside its buffer: arg is (elements, offset in bytes)",
        [
            (UPat(Ops.BUFFER, src=(UPat(Ops.UNIQUE), UPat(Ops.DEVICE)), name="node"), legal_buffer),
            (
                UPat(Ops.BUFFER_VIEW, src=(UPat((Ops.BUFFER, Ops.BUFFER_VIEW)),), name="node"),
                legal_view,
            ),
        ],
    ),
    Family(
        "bound variables",
        "a BIND takes a variable and a constant between its least and greatest value",
        [
            (
                UPat(
                    Ops.BIND,
                    src=(
                        UPat(Ops.DEFINE_VAR, name="variable"),
                        UPat(Ops.CONST, name="value"),
                    ),
                    name="node",
                ),
                legal_bind,
            )
        ],
    ),
    Family(
        "stored values",
        "CONTIGUOUS, DETACH, COPY, ... keep the type of their source; ASSIGN takes a target and a "
        "value of one type and shape",
        [
            (
                UPat(
                    (Ops.CONTIGUOUS, Ops.CONTIGUOUS_BACKWARD, Ops.DETACH, Ops.NOOP),
                    src=(UPat(),),
                    name="node",
                ),
                lambda node: keeps_type(node) and node.arg is None,
            ),
            (
                UPat(Ops.CUSTOM_GRADIENT, src=(UPat(name="x"),), any_len=True, name="node"),
                legal_custom_gradient,
            ),
            (
                UPat(Ops.COPY, src=(UPat(), UPat(Ops.DEVICE)), name="node"),
                keeps_type,
            ),
            (
                UPat(Ops.ASSIGN, src=(UPat(name="target"), UPat(name="value")), name="node"),
                legal_assign,
            ),
        ],
    ),
    Family(
        "movement",
        "a movement op gives the elements of a source that has a shape another one: as many "
        "elements (RESHAPE), axes of size 1 repeated (EXPAND), no negative sizes (PAD), inside the "
        "source (SHRINK), each axis once (PERMUTE), axes that there are (FLIP)",
        [
            (UPat((Ops.RESHAPE, Ops.EXPAND), src=(UPat(), _SIZES), name="node"), legal_movement),
            (UPat(Ops.PAD, src=(UPat(), _SIZES, _SIZES), name="node"), legal_movement),
            (UPat(Ops.SHRINK, src=(UPat(), _SIZES, _SIZES), name="node"), legal_box),
            (UPat(Ops.PERMUTE, src=(UPat(),), name="node"), legal_permutation),
            (UPat(Ops.FLIP, src=(UPat(),), name="node"), legal_flip),
        ],
    ),
    Family(
        "reduced axes",
        "REDUCE_AXIS has (ADD, MUL or MAX, axes of its source) as arg and keeps the type",
        [(UPat(Ops.REDUCE_AXIS, src=(UPat(),), name="node"), legal_reduce_axis)],
    ),
    Family(
        "calls",
        "a KERNEL has the buffers as sources and the SINK of a kernel as arg",
        [
            (
                UPat(Ops.KERNEL, dtypes.void, src=UPat((Ops.BUFFER, Ops.BUFFER_VIEW)), name="node"),
                lambda node: isinstance(node.arg, UOp) and node.arg.op is Ops.SINK,
            )
        ],
    ),
    Family(
        "tensor sinks",
        "the sink of a tensor graph is void and takes values",
        [
            (
                UPat(Ops.SINK, dtypes.void, name="node"),
                lambda node: all(is_value(s.dtype) or s.op is Ops.KERNEL for s in node.src),
            )
        ],
    ),
)

spec_tensor = Spec("tensor graph", (*TENSOR, *SHARED))
