"""Which nodes are legal at each level, as patterns.

A rule returns True for a legal node and False for an illegal one; the first rule that matches
decides, and a node that none matches is illegal. With SPEC=1 the graphs between the stages are
verified: tensor graphs, kernels, linear programs.
"""

from __future__ import annotations

from collections.abc import Iterable

from tgcore.dtype import AddrSpace, DType, Invalid, PtrDType, dtypes
from tgcore.errors import SpecError
from tgcore.uop.node import BufferizeInfo, UOp
from tgcore.uop.ops import AxisType, GroupOp, Ops
from tgcore.uop.pattern import PatternMatcher, UPat
from tgcore.uop.render import render_graph

_COMPARISONS = tuple(GroupOp.Comparison)
_SHIFTS = (Ops.SHL, Ops.SHR)
_FLOAT_ONLY = (Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.SQRT, Ops.RECIPROCAL, Ops.FDIV, Ops.TRUNC, Ops.POW)
_INT_ONLY = (Ops.IDIV, Ops.MOD, Ops.AND, Ops.OR, Ops.XOR)
_ARITY = {
    **dict.fromkeys(GroupOp.Unary, 1),
    **dict.fromkeys(GroupOp.Binary, 2),
    **dict.fromkeys(GroupOp.Ternary, 3),
}


def _same_types(node: UOp, sources: Iterable[UOp]) -> bool:
    return all(s.dtype is node.dtype for s in sources)


def legal_arithmetic(node: UOp) -> bool:
    """Sources of one type, which is the result's; a condition is bool; floats for float ops."""
    if len(node.src) != _ARITY[node.op]:
        return False
    if node.op in _COMPARISONS:
        a, b = node.src
        return a.dtype is b.dtype and node.dtype is dtypes.bool.vec(a.dtype.count)
    if node.op is Ops.WHERE:
        condition = node.src[0].dtype
        fits = condition is dtypes.bool.vec(node.dtype.count)
        return fits and _same_types(node, node.src[1:])
    if node.op in _SHIFTS:
        return node.src[0].dtype is node.dtype and dtypes.is_int(node.dtype)
    if node.op in _FLOAT_ONLY and not dtypes.is_float(node.dtype):
        return False
    if node.op in _INT_ONLY and dtypes.is_float(node.dtype):
        return False
    return _same_types(node, node.src)


def legal_constant(node: UOp) -> bool:
    """A value of the type."""
    if node.arg is Invalid:
        return node.dtype.scalar() is dtypes.index
    kind = float if dtypes.is_float(node.dtype) else bool if dtypes.is_bool(node.dtype) else int
    return type(node.arg) is kind or (kind is float and isinstance(node.arg, float))


def legal_vconst(node: UOp) -> bool:
    """A value for each lane."""
    if not isinstance(node.arg, tuple):
        return False
    # the sizes of a movement op are a tuple of any length, 0 and 1 too
    return len(node.arg) == node.dtype.count or (node.dtype is dtypes.index and len(node.arg) <= 1)


def legal_range(node: UOp) -> bool:
    """A size of the range's own type; (number, ..., axis type)."""
    if not isinstance(node.arg, tuple) or not isinstance(node.arg[-1], AxisType):
        return False
    return node.dtype is node.src[0].dtype and all(isinstance(n, int) for n in node.arg[:-1])


def legal_gep(node: UOp) -> bool:
    """Lanes that the vector has."""
    vector = node.src[0].dtype
    lanes = node.arg
    fits = isinstance(lanes, tuple) and all(0 <= lane < vector.count for lane in lanes)
    return fits and node.dtype is vector.scalar().vec(len(lanes))


def legal_vectorize(node: UOp) -> bool:
    """Scalars of one type, one a lane."""
    if node.dtype is dtypes.index and len(node.src) == 1:
        return node.src[0].dtype is dtypes.index
    scalar = node.dtype.scalar()
    return len(node.src) == node.dtype.count and all(s.dtype is scalar for s in node.src)


def legal_bitcast(node: UOp) -> bool:
    """Types of one size."""
    return bool(node.dtype.itemsize == node.src[0].dtype.itemsize)


spec_shared = PatternMatcher(
    [
        (UPat(Ops.CONST, src=(), name="node"), legal_constant),
        (UPat(Ops.VCONST, src=(), name="node"), legal_vconst),
        (
            UPat(Ops.DEFINE_VAR, src=(), name="node"),
            lambda node: isinstance(node.arg, tuple) and node.arg[1] <= node.arg[2],
        ),
        (UPat(Ops.RANGE, src=(UPat(),), name="node"), legal_range),
        (UPat(GroupOp.ALU, name="node"), legal_arithmetic),
        (
            UPat(Ops.CAST, src=(UPat(name="x"),), name="node"),
            lambda node, x: node.dtype.count == x.dtype.count and not node.is_pointer,
        ),
        (UPat(Ops.BITCAST, src=(UPat(),), name="node"), legal_bitcast),
        (UPat(Ops.VECTORIZE, name="node"), legal_vectorize),
        (UPat(Ops.SINK, dtypes.void), lambda: True),
    ]
)


# *** tensor graphs ***


def legal_movement(node: UOp) -> bool:
    """A shape for the source's elements."""
    inner, outer = node.src[0].shape, node.shape
    if inner is None or outer is None:
        return False
    if node.op is Ops.RESHAPE:
        return _count(inner) == _count(outer)
    if len(inner) != len(outer) or node.dtype is not node.src[0].dtype:
        return False
    if node.op is Ops.EXPAND:
        return all(a is b or a in (b, 1) for a, b in zip(inner, outer))
    if node.op is Ops.PERMUTE:
        return sorted(node.arg) == list(range(len(inner)))
    if node.op is Ops.FLIP:
        return all(0 <= axis < len(inner) for axis in node.arg)
    return all(_not_negative(p) for pair in node.marg for p in pair)


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
    op, axes = node.arg
    inner = node.src[0].shape
    fits = inner is not None and all(0 <= a < len(inner) for a in axes)
    return op in (Ops.ADD, Ops.MUL, Ops.MAX) and fits and node.dtype is node.src[0].dtype


def legal_assign(node: UOp) -> bool:
    """A value of the target's type and shape (or a constant)."""
    target, value = node.src
    return target.dtype is value.dtype and value.shape in (target.shape, ())


spec_tensor = (
    PatternMatcher(
        [
            (UPat(Ops.CONST, src=(UPat(Ops.DEVICE),)), lambda: True),
            (UPat(Ops.UNIQUE, dtypes.void, src=()), lambda: True),
            (UPat(Ops.DEVICE, dtypes.void, src=(), name="d"), lambda d: isinstance(d.arg, str)),
            (
                UPat(Ops.BUFFER, src=(UPat(Ops.UNIQUE), UPat(Ops.DEVICE)), name="b"),
                lambda b: isinstance(b.arg, int) and b.arg >= 0,
            ),
            (UPat(Ops.BUFFER_VIEW, src=(UPat(Ops.BUFFER),)), lambda: True),
            (UPat(Ops.BIND, src=(UPat(Ops.DEFINE_VAR), UPat(Ops.CONST))), lambda: True),
            (
                UPat(
                    (Ops.CONTIGUOUS, Ops.CONTIGUOUS_BACKWARD, Ops.DETACH, Ops.NOOP),
                    src=(UPat(name="x"),),
                    name="node",
                ),
                lambda x, node: x.dtype is node.dtype,
            ),
            (
                UPat(Ops.CUSTOM_GRADIENT, src=(UPat(name="x"),), any_len=True, name="node"),
                lambda x, node: (
                    x.dtype is node.dtype and len(node.src) > 1 and node.arg is not None
                ),
            ),
            (
                UPat(Ops.COPY, src=(UPat(name="x"), UPat(Ops.DEVICE)), name="node"),
                lambda x, node: x.dtype is node.dtype,
            ),
            (UPat(Ops.ASSIGN, src=(UPat(), UPat()), name="node"), legal_assign),
            (UPat(GroupOp.Movement, name="node"), legal_movement),
            (UPat(Ops.REDUCE_AXIS, src=(UPat(),), name="node"), legal_reduce_axis),
        ]
    )
    + spec_shared
)


# *** kernels ***


def legal_index(node: UOp) -> bool:
    """Memory and positions of the index type."""
    memory, *indices = node.src
    while memory.op is Ops.AFTER:
        memory = memory.src[0]
    if memory.op not in (*GroupOp.Define, Ops.BUFFERIZE):
        return False
    return all(i.dtype is dtypes.index for i in indices)


def legal_reduce(node: UOp) -> bool:
    """An op that can reduce, over ranges."""
    ranged = all(s.op is Ops.RANGE for s in node.src[1:])
    return node.arg in (Ops.ADD, Ops.MUL, Ops.MAX) and ranged and node.src[0].dtype is node.dtype


def legal_store(node: UOp) -> bool:
    """An element of memory gets a value of its type."""
    address, value = node.src
    return address.op is Ops.INDEX and address.dtype.base is value.dtype


spec_kernel = (
    PatternMatcher(
        [
            (UPat(Ops.SINK, dtypes.void, name="node"), lambda node: not node.ranges),
            (
                UPat((Ops.DEFINE_GLOBAL, Ops.DEFINE_REG, Ops.DEFINE_LOCAL), src=(), name="node"),
                lambda node: isinstance(node.dtype, PtrDType),
            ),
            (UPat(Ops.INDEX, name="node"), legal_index),
            (UPat(Ops.STORE, dtypes.void, src=(UPat(), UPat()), name="node"), legal_store),
            (
                UPat(Ops.END, dtypes.void, name="node"),
                lambda node: len(node.src) > 1 and all(s.op is Ops.RANGE for s in node.src[1:]),
            ),
            (UPat(Ops.REDUCE, name="node"), legal_reduce),
            (
                UPat(Ops.BUFFERIZE, name="node"),
                lambda node: (
                    isinstance(node.arg, BufferizeInfo)
                    and node.arg.addrspace is not AddrSpace.GLOBAL
                ),
            ),
            (UPat((Ops.GROUP, Ops.AFTER, Ops.NOOP)), lambda: True),
        ]
    )
    + spec_shared
)


# *** linear programs ***


def legal_address(node: UOp) -> bool:
    """A pointer, a machine integer, and perhaps a gate."""
    pointer, index, *gate = node.src
    fits = isinstance(pointer.dtype, PtrDType) and node.dtype is pointer.dtype
    return fits and _machine_int(index.dtype) and all(dtypes.is_bool(g.dtype) for g in gate)


def _machine_int(dtype: DType) -> bool:
    return dtype in (dtypes.int32, dtypes.int64)


def legal_load(node: UOp) -> bool:
    """One element or several neighbours; a gated load has an alternative."""
    address, *alternative = node.src
    base = address.dtype.base
    kind = node.dtype is base or (base.count == 1 and node.dtype.scalar() is base)
    gated = len(address.src) == 3
    return kind and len(alternative) == gated and _same_types(node, alternative)


def legal_program_store(node: UOp) -> bool:
    """One element or several neighbours get their values."""
    address, value = node.src
    base = address.dtype.base
    return value.dtype is base or (base.count == 1 and value.dtype.scalar() is base)


spec_program = (
    PatternMatcher(
        [
            (UPat(dtype=dtypes.index), lambda: False),
            (
                UPat(GroupOp.Define, src=(), name="node"),
                lambda node: isinstance(node.dtype, PtrDType),
            ),
            (UPat(Ops.SPECIAL, dtypes.int32, src=(UPat(),)), lambda: True),
            (UPat(Ops.INDEX, name="node"), legal_address),
            (UPat(Ops.LOAD, src=(UPat(Ops.INDEX),), any_len=True, name="node"), legal_load),
            (
                UPat(Ops.STORE, dtypes.void, src=(UPat(Ops.INDEX), UPat()), name="node"),
                legal_program_store,
            ),
            (UPat(Ops.END, dtypes.void, src=(UPat(), UPat(Ops.RANGE))), lambda: True),
            (UPat(Ops.IF, dtypes.void, src=(UPat(dtype=dtypes.bool),)), lambda: True),
            (UPat(Ops.ENDIF, dtypes.void, src=(UPat(Ops.IF),)), lambda: True),
            (UPat(Ops.GEP, src=(UPat(),), name="node"), legal_gep),
            (
                UPat(Ops.CAT, name="node"),
                lambda node: sum(s.dtype.count for s in node.src) == node.dtype.count,
            ),
            (UPat((Ops.BARRIER, Ops.CUSTOM, Ops.CUSTOMI, Ops.WMMA)), lambda: True),
        ]
    )
    + spec_shared
)


def verify(nodes: Iterable[UOp], spec: PatternMatcher, level: str) -> None:
    """Raises SpecError for the first node that the level does not allow."""
    for node in nodes:
        verdict: object = spec.rewrite(node)
        if verdict is not True:
            sources = "\n".join(f"  source {n}: {s}" for n, s in enumerate(node.src))
            raise SpecError(
                f"a {level} may not hold {node}\n{sources}\nthe graph below it:\n"
                f"{render_graph(node, 40)}"
            )
