"""Which nodes are legal at each level, as patterns.

A level is a list of families of rules. A node is legal if some rule holds for it and no veto of the
level does: a rule's function says True or False. `spec_full` allows what any level allows, and what
the passes of code generation make on the way from one to the next.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tgcore.dtype import AddrSpace, DType, Invalid, PtrDType, dtypes
from tgcore.uop.node import BufferizeInfo, UOp
from tgcore.uop.ops import AxisType, GroupOp, Ops
from tgcore.uop.pattern import PatternMatcher, UPat


@dataclass(frozen=True)
class Family:
    """Rules about one subject; `demand` says in words what they ask for."""

    name: str
    demand: str
    rules: Sequence[tuple[UPat, Callable[..., bool]]]


class Spec:
    """What a level allows: families of rules, and vetoes, which no rule can overrule."""

    def __init__(
        self, level: str, families: Sequence[Family], vetoes: Sequence[Family] = ()
    ) -> None:
        self.level, self.families, self.vetoes = level, tuple(families), tuple(vetoes)
        self._allow = _matcher(self.families)
        self._veto = _matcher(self.vetoes)

    def allows(self, node: UOp) -> bool:
        """Whether the node is legal."""
        if self.vetoes and _holds(self._veto, node):
            return False
        return _holds(self._allow, node)

    def broken(self, node: UOp) -> list[Family]:
        """The families that an illegal node violates: vetoes, or those that know its op."""
        if found := [f for f in self.vetoes if _holds(_matcher([f]), node)]:
            return found
        return [f for f in self.families if any(_is_about(p, node) for p, _ in f.rules)]


def _matcher(families: Iterable[Family]) -> PatternMatcher:
    return PatternMatcher([rule for family in families for rule in family.rules])


def _holds(matcher: PatternMatcher, node: UOp) -> bool:
    for rule in matcher.candidates(node):
        verdict: object = rule.run(node, None)
        if verdict is True:
            return True
    return False


def _is_about(pattern: UPat, node: UOp) -> bool:
    return pattern.op is not None and node.op in pattern.op


def _yes() -> bool:
    return True


# *** all levels ***

_ARITY = {
    **dict.fromkeys(GroupOp.Unary, 1),
    **dict.fromkeys(GroupOp.Binary, 2),
    **dict.fromkeys(GroupOp.Ternary, 3),
}
_FLOAT_ONLY = frozenset(
    {Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.SQRT, Ops.RECIPROCAL, Ops.FDIV, Ops.TRUNC}
)
_INT_ONLY = frozenset({Ops.IDIV, Ops.MOD})
_INT_OR_BOOL = frozenset({Ops.AND, Ops.OR, Ops.XOR})
_REDUCES = frozenset({Ops.ADD, Ops.MUL, Ops.MAX})


def _is_value(dtype: DType) -> bool:
    return dtype is not dtypes.void and not isinstance(dtype, PtrDType)


def _same_types(node: UOp, sources: Iterable[UOp]) -> bool:
    return all(s.dtype is node.dtype for s in sources)


def legal_arithmetic(node: UOp) -> bool:
    """Sources of one type, which is the result's; floats for float ops, integers for theirs."""
    if len(node.src) != _ARITY[node.op] or not _is_value(node.dtype) or node.arg is not None:
        return False
    if node.op in _FLOAT_ONLY and not dtypes.is_float(node.dtype):
        return False
    if node.op in _INT_ONLY and not dtypes.is_int(node.dtype):
        return False
    if node.op in _INT_OR_BOOL and dtypes.is_float(node.dtype):
        return False
    return _same_types(node, node.src)


def legal_comparison(node: UOp) -> bool:
    """Two values of one type; the result is a bool for each lane."""
    if len(node.src) != 2 or node.arg is not None:
        return False
    a, b = node.src
    return a.dtype is b.dtype and _is_value(a.dtype) and node.dtype is _bools(a.dtype.count)


def _bools(count: int) -> DType:
    return dtypes.bool.vec(count)


def legal_where(node: UOp) -> bool:
    """A bool for each lane, and two values of the result's type."""
    if len(node.src) != 3 or node.arg is not None or not _is_value(node.dtype):
        return False
    return node.src[0].dtype is _bools(node.dtype.count) and _same_types(node, node.src[1:])


def legal_shift(node: UOp) -> bool:
    """An integer, shifted by integers."""
    if len(node.src) != 2 or node.arg is not None or not dtypes.is_int(node.dtype):
        return False
    value, amount = node.src
    fits = dtypes.is_int(amount.dtype) and amount.dtype.count == node.dtype.count
    return value.dtype is node.dtype and fits


def legal_constant(node: UOp) -> bool:
    """A value of the type, as Python has it."""
    return _is_constant(node.arg, node.dtype)


def _is_constant(value: object, dtype: DType) -> bool:
    if not _is_value(dtype):
        return False
    scalar = dtype.scalar()
    if value is Invalid:
        return scalar is dtypes.index
    if dtypes.is_float(scalar):
        return isinstance(value, float) and (value != value or _is_rounded(value, scalar))  # noqa: PLR0124 - nan
    if scalar is dtypes.bool:
        return type(value) is bool
    if type(value) is not int:
        return False
    return scalar is dtypes.index or dtypes.min(scalar) <= value <= dtypes.max(scalar)


def _is_rounded(value: float, scalar: DType) -> bool:
    return bool(dtypes.as_const(value, scalar) == value)


def legal_vconst(node: UOp) -> bool:
    """A value for each lane, or the sizes that a movement op has as its source: any number."""
    if not isinstance(node.arg, tuple):
        return False
    if len(node.arg) != node.dtype.count and not (node.dtype is dtypes.index and len(node.arg) < 2):
        return False
    return all(_is_constant(value, node.dtype) for value in node.arg)


def legal_variable(node: UOp) -> bool:
    """(name, least, greatest) of an integer type."""
    match node.arg:
        case (str(name), int(low), int(high)):
            return bool(name) and low <= high and dtypes.is_int(node.dtype)
    return False


def legal_range(node: UOp) -> bool:
    """A size of the range's own integer type; (number, ..., axis type)."""
    if not isinstance(node.arg, tuple) or len(node.arg) < 2:
        return False
    *numbers, axis = node.arg
    if not isinstance(axis, AxisType) or not all(type(n) is int for n in numbers):
        return False
    return node.dtype is node.src[0].dtype and dtypes.is_int(node.dtype) and node.dtype.count == 1


def legal_cast(node: UOp) -> bool:
    """Another type of as many lanes; no pointers."""
    source = node.src[0].dtype
    return _is_value(node.dtype) and _is_value(source) and node.dtype.count == source.count


def legal_bitcast(node: UOp) -> bool:
    """Types of one size; no pointers."""
    source = node.src[0].dtype
    values = _is_value(node.dtype) and _is_value(source)
    return values and node.dtype.itemsize == source.itemsize


def legal_vectorize(node: UOp) -> bool:
    """Scalars of one type, one a lane (or sizes of a movement op)."""
    if node.dtype is dtypes.index and len(node.src) == 1:
        return node.src[0].dtype is dtypes.index
    scalar = node.dtype.scalar()
    return len(node.src) == node.dtype.count > 1 and all(s.dtype is scalar for s in node.src)


_shared = (
    Family(
        "constants",
        "a constant has no sources, and its arg is a Python value of its type",
        [
            (UPat(Ops.CONST, src=(), name="node"), legal_constant),
            (UPat(Ops.VCONST, src=(), name="node"), legal_vconst),
        ],
    ),
    Family(
        "variables",
        "a variable is an integer without sources; arg is (name, least, greatest)",
        [(UPat(Ops.DEFINE_VAR, src=(), name="node"), legal_variable)],
    ),
    Family(
        "ranges",
        "a range has a size of its own integer type; arg is (number, ..., AxisType)",
        [(UPat(Ops.RANGE, src=(UPat(),), name="node"), legal_range)],
    ),
    Family(
        "arithmetic",
        "as many sources as the op takes, all of the result's type; floats for float ops, integers "
        "for integer ops",
        [
            (
                UPat(
                    GroupOp.ALU - GroupOp.Comparison - {Ops.WHERE, Ops.SHL, Ops.SHR, Ops.THREEFRY},
                    name="node",
                ),
                legal_arithmetic,
            ),
            (UPat((Ops.SHL, Ops.SHR), name="node"), legal_shift),
            (
                UPat(Ops.THREEFRY, dtypes.uint64, (UPat(), UPat()), name="node"),
                lambda node: _same_types(node, node.src),
            ),
        ],
    ),
    Family(
        "comparisons",
        "two values of one type are compared; the result is bool, lane by lane",
        [(UPat(GroupOp.Comparison, name="node"), legal_comparison)],
    ),
    Family(
        "choices",
        "WHERE takes a bool for each lane and two values of the result's type",
        [(UPat(Ops.WHERE, name="node"), legal_where)],
    ),
    Family(
        "casts",
        "a cast keeps the number of lanes, a bitcast the number of bytes; pointers are not cast",
        [
            (UPat(Ops.CAST, src=(UPat(),), name="node"), legal_cast),
            (UPat(Ops.BITCAST, src=(UPat(),), name="node"), legal_bitcast),
        ],
    ),
    Family(
        "vectors",
        "VECTORIZE takes a scalar of the vector's type for each lane",
        [(UPat(Ops.VECTORIZE, name="node"), legal_vectorize)],
    ),
)

spec_shared = Spec("any graph", _shared)


# *** tensor graphs ***


def legal_buffer(node: UOp) -> bool:
    """A number of elements of a value type."""
    return type(node.arg) is int and node.arg >= 0 and _is_value(node.dtype)


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
    return fits and sorted(node.arg) == list(range(len(inner or ()))) and _keeps_type(node)


def legal_flip(node: UOp) -> bool:
    """Axes that there are, in ascending order."""
    return _are_axes(node.arg, node.src[0]) and _keeps_type(node)


def _keeps_type(node: UOp) -> bool:
    return node.dtype is node.src[0].dtype


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
            return op in _REDUCES and _are_axes(axes, node.src[0]) and _keeps_type(node)
    return False


def legal_assign(node: UOp, target: UOp, value: UOp) -> bool:
    """A value of the target's type and shape (or a constant)."""
    return target.dtype is value.dtype is node.dtype and value.shape in (target.shape, ())


def legal_custom_gradient(node: UOp, x: UOp) -> bool:
    """A value, and what it has gradients for by the rule in arg."""
    return x.dtype is node.dtype and len(node.src) > 1 and node.arg is not None


_SIZES = UPat((Ops.VCONST, Ops.VECTORIZE))
_tensor = (
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
                lambda node: _keeps_type(node) and node.arg is None,
            ),
            (
                UPat(Ops.CUSTOM_GRADIENT, src=(UPat(name="x"),), any_len=True, name="node"),
                legal_custom_gradient,
            ),
            (
                UPat(Ops.COPY, src=(UPat(), UPat(Ops.DEVICE)), name="node"),
                _keeps_type,
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
                lambda node: all(_is_value(s.dtype) or s.op is Ops.KERNEL for s in node.src),
            )
        ],
    ),
)

spec_tensor = Spec("tensor graph", (*_tensor, *_shared))


# *** kernels ***

_SPACES = {
    Ops.DEFINE_GLOBAL: AddrSpace.GLOBAL,
    Ops.DEFINE_LOCAL: AddrSpace.LOCAL,
    Ops.DEFINE_REG: AddrSpace.REG,
}


def legal_memory(node: UOp) -> bool:
    """A pointer into the op's own address space; parameters are numbered."""
    if not isinstance(node.dtype, PtrDType) or node.dtype.addrspace is not _SPACES[node.op]:
        return False
    if node.op is Ops.DEFINE_GLOBAL:
        return type(node.arg) is int and node.arg >= 0
    return node.arg is not None and node.dtype.size >= 0


def memory_of(node: UOp) -> UOp:
    """The memory under the AFTERs that order it."""
    while node.op is Ops.AFTER:
        node = node.src[0]
    return node


def legal_index(node: UOp) -> bool:
    """Memory and positions of the index type, of which some can lie inside."""
    first, *indices = node.src
    memory = memory_of(first)
    if memory.op is Ops.BUFFERIZE:
        inside = memory.arg.addrspace is not AddrSpace.GLOBAL
        return inside and node.dtype is memory.dtype and _all_indices(indices)
    if memory.op not in GroupOp.Define or not isinstance(memory.dtype, PtrDType):
        return False
    fits = node.dtype in (memory.dtype.base, memory.dtype)
    return fits and _all_indices(indices) and not _surely_outside(memory, indices)


def _all_indices(indices: list[UOp]) -> bool:
    return len(indices) > 0 and all(i.dtype is dtypes.index for i in indices)


def _surely_outside(memory: UOp, indices: list[UOp]) -> bool:
    size, index = memory.dtype.size, indices[0]
    if len(indices) != 1 or size < 0 or index.arg is Invalid:
        return False
    if index.op is Ops.WHERE:  # its condition may keep it from being used
        return False
    return bool(index.vmin >= size or index.vmax < 0) and size > 0


def legal_reduce(node: UOp) -> bool:
    """An op that can reduce, over ranges."""
    ranges = node.src[1:]
    ranged = len(ranges) > 0 and all(s.op is Ops.RANGE for s in ranges)
    return node.arg in _REDUCES and ranged and _keeps_type(node) and _is_value(node.dtype)


def legal_store(node: UOp, address: UOp, value: UOp) -> bool:
    """An element of memory gets a value of its type."""
    return address.dtype.base is value.dtype and node.arg is None


def legal_end(node: UOp) -> bool:
    """An effect, and ranges that it depends on or not, each once."""
    effect, *ranges = node.src
    if effect.dtype is not dtypes.void or not ranges or len(set(ranges)) != len(ranges):
        return False
    return all(r.op is Ops.RANGE for r in ranges)


def legal_after(node: UOp) -> bool:
    """A value and effects that it waits for (or ranges, in which it is made anew)."""
    return len(node.src) > 1 and _keeps_type(node)


def legal_local_bufferize(node: UOp) -> bool:
    """A value stored in the kernel, an element for each position of the ranges."""
    info = node.arg
    if not isinstance(info, BufferizeInfo) or info.addrspace is AddrSpace.GLOBAL:
        return False
    return len(node.src) > 1 and _keeps_type(node)


_memory = Family(
    "memory",
    "a parameter, local memory or registers: a pointer into the address space of the op, without "
    "sources; parameters have their number as arg",
    [(UPat(GroupOp.Define, src=(), name="node"), legal_memory)],
)
_order = Family(
    "order",
    "a GROUP is void and takes effects; an AFTER has the type of its first source and at least one "
    "more; a NOOP is void",
    [
        (UPat(Ops.GROUP, dtypes.void, src=UPat(dtype=dtypes.void)), _yes),
        (UPat(Ops.AFTER, name="node"), legal_after),
        (UPat(Ops.NOOP, dtypes.void), _yes),
    ],
)
_kernel = (
    _memory,
    Family(
        "kernel sinks",
        "the sink of a kernel is void, takes effects, and leaves no range open",
        [
            (
                UPat(Ops.SINK, dtypes.void, src=UPat(dtype=dtypes.void), name="node"),
                lambda node: not node.ranges,
            )
        ],
    ),
    Family(
        "accesses",
        "an INDEX takes memory and positions of the index type that can lie inside it, and has the "
        "type of the element",
        [(UPat(Ops.INDEX, name="node"), legal_index)],
    ),
    Family(
        "stores",
        "a STORE is void and takes an INDEX and a value of the element's type",
        [
            (
                UPat(
                    Ops.STORE,
                    dtypes.void,
                    src=(UPat(Ops.INDEX, name="address"), UPat(name="value")),
                    name="node",
                ),
                legal_store,
            )
        ],
    ),
    Family(
        "closed ranges",
        "an END is void and takes an effect and ranges, each once",
        [(UPat(Ops.END, dtypes.void, src=(UPat(),), any_len=True, name="node"), legal_end)],
    ),
    Family(
        "reduces",
        "a REDUCE has ADD, MUL or MAX as arg and takes a value of its type and ranges",
        [(UPat(Ops.REDUCE, src=(UPat(),), any_len=True, name="node"), legal_reduce)],
    ),
    Family(
        "storage in kernels",
        "a BUFFERIZE in a kernel is not global, and takes a value of its type and ranges",
        [(UPat(Ops.BUFFERIZE, name="node"), legal_local_bufferize)],
    ),
    _order,
)

spec_kernel = Spec("kernel", (*_kernel, *_shared))


# *** linear programs ***


def legal_address(node: UOp) -> bool:
    """A pointer, a machine integer, and perhaps a gate; what is surely outside is illegal."""
    if len(node.src) not in (2, 3):
        return False
    pointer, index, *gate = node.src
    if not isinstance(pointer.dtype, PtrDType) or node.dtype is not pointer.dtype:
        return False
    if index.dtype not in (dtypes.int32, dtypes.int64):
        return False
    if gate:
        return gate[0].dtype.scalar() is dtypes.bool
    return pointer.op not in GroupOp.Define or not _surely_outside(pointer, [index])


def legal_load(node: UOp) -> bool:
    """One element or several neighbours; a gated load has an alternative."""
    address, *alternative = node.src
    gated = len(address.src) == 3
    fits = _is_element(node.dtype, address.dtype)
    return fits and len(alternative) == gated and _same_types(node, alternative)


def _is_element(dtype: DType, pointer: DType) -> bool:
    base = pointer.base
    return dtype is base or (base.count == 1 and dtype.scalar() is base)


def legal_program_store(node: UOp, address: UOp, value: UOp) -> bool:
    """One element or several neighbours get their values."""
    return _is_element(value.dtype, address.dtype) and node.arg is None


def legal_gep(node: UOp) -> bool:
    """Lanes that the vector has."""
    vector, lanes = node.src[0].dtype, node.arg
    if not isinstance(lanes, tuple) or not lanes or not _is_value(vector):
        return False
    fits = all(type(lane) is int and 0 <= lane < vector.count for lane in lanes)
    return fits and node.dtype is vector.scalar().vec(len(lanes))


def legal_cat(node: UOp) -> bool:
    """Vectors (or scalars) of one type, whose lanes together are the result's."""
    scalar = node.dtype.scalar()
    fits = sum(s.dtype.count for s in node.src) == node.dtype.count
    return fits and all(s.dtype.scalar() is scalar for s in node.src)


def legal_special(node: UOp) -> bool:
    """g0, g1, .., l0, .., t0: the position in the grid, in the group, among the threads."""
    return isinstance(node.arg, str) and re.fullmatch(r"[gl][012]|t0", node.arg) is not None


def legal_text(node: UOp) -> bool:
    """Text for the device's language."""
    return isinstance(node.arg, str)


_lanes = Family(
    "lanes",
    "GEP takes lanes that its vector has, CAT vectors whose lanes together are the result's",
    [
        (UPat(Ops.GEP, src=(UPat(),), name="node"), legal_gep),
        (UPat(Ops.CAT, name="node"), legal_cat),
    ],
)
_custom = Family(
    "custom text",
    "CUSTOM and CUSTOMI have their text as arg; a WMMA takes three values",
    [
        (UPat((Ops.CUSTOM, Ops.CUSTOMI), name="node"), legal_text),
        (UPat(Ops.WMMA, src=(UPat(), UPat(), UPat())), _yes),
    ],
)
_barriers = Family(
    "barriers", "a BARRIER is void and takes effects", [(UPat(Ops.BARRIER, dtypes.void), _yes)]
)
_program = (
    _memory,
    Family(
        "launch positions",
        "a SPECIAL is an int32, takes its size, and is named g0.., l0.. or t0",
        [(UPat(Ops.SPECIAL, dtypes.int32, src=(UPat(),), name="node"), legal_special)],
    ),
    Family(
        "addresses",
        "an INDEX takes a pointer, an int32 or int64 that can lie inside it and perhaps a bool as "
        "gate, and has the pointer's type",
        [(UPat(Ops.INDEX, name="node"), legal_address)],
    ),
    Family(
        "loads",
        "a LOAD takes an INDEX, gives one element or several neighbours, and has an alternative "
        "of its type if and only if the INDEX has a gate",
        [(UPat(Ops.LOAD, src=(UPat(Ops.INDEX),), any_len=True, name="node"), legal_load)],
    ),
    Family(
        "program stores",
        "a STORE is void and takes an INDEX and one element or several neighbours",
        [
            (
                UPat(
                    Ops.STORE,
                    dtypes.void,
                    src=(UPat(Ops.INDEX, name="address"), UPat(name="value")),
                    name="node",
                ),
                legal_program_store,
            )
        ],
    ),
    Family(
        "loops and branches",
        "an END closes one RANGE, an IF takes a bool, an ENDIF its IF",
        [
            (UPat(Ops.END, dtypes.void, src=(UPat(), UPat(Ops.RANGE))), _yes),
            (UPat(Ops.IF, dtypes.void, src=(UPat(dtype=(dtypes.bool,)),)), _yes),
            (UPat(Ops.ENDIF, dtypes.void, src=(UPat(Ops.IF),)), _yes),
        ],
    ),
    _lanes,
    _barriers,
    _custom,
)
_no_index_type = Family(
    "machine integers",
    "no node of a program has the index type: it became int32 or int64",
    [(UPat(dtype=dtypes.index), _yes)],
)

spec_program = Spec("program", (*_program, *_shared), vetoes=(_no_index_type,))


# *** everything that is ever made ***


_STORED = frozenset({Ops.BUFFER, Ops.BUFFER_VIEW, Ops.BUFFERIZE, Ops.COPY, Ops.ASSIGN})


def legal_wide_index(node: UOp) -> bool:
    """An address on its way: a pointer, positions of any integer type, perhaps a gate."""
    memory, *others = node.src
    pointer = memory_of(memory).dtype
    if not isinstance(pointer, PtrDType):
        stored = memory_of(memory).op in _STORED
        return stored and node.dtype is pointer and all(o.dtype is dtypes.index for o in others)
    if isinstance(node.dtype, PtrDType):  # a type that is emulated is stored as another one
        fits = node.dtype.base.itemsize == pointer.base.itemsize
    else:
        fits = node.dtype.scalar() is pointer.base.scalar()
    plain = all(dtypes.is_int(o.dtype) or o.dtype.scalar() is dtypes.bool for o in others)
    return fits and plain and len(others) > 0


def same_width(address: UOp, value: UOp) -> bool:
    """A value whose lanes have as many bytes as the elements of memory."""
    element = address.dtype.base.scalar()
    return _is_value(value.dtype) and value.dtype.scalar().itemsize == element.itemsize


def legal_masked_index(gate: UOp, index: UOp) -> bool:
    """The index of the first lane, where each lane has a gate."""
    return gate.dtype.scalar() is dtypes.bool and index.dtype is dtypes.index


_between = (
    Family(
        "masked indices",
        "WHERE takes a bool for each lane, the index of the first lane, and Invalid",
        [
            (
                UPat(
                    Ops.WHERE,
                    dtypes.index,
                    (UPat(name="gate"), UPat(name="index"), UPat(Ops.CONST, arg=Invalid)),
                ),
                legal_masked_index,
            )
        ],
    ),
    Family(
        "loops of one step",
        "an END takes an effect, and ranges or the constants that ranges of size 1 became",
        [
            (
                UPat(Ops.END, dtypes.void, name="node"),
                lambda node: all(s.op in (Ops.RANGE, Ops.CONST) for s in node.src[1:]),
            )
        ],
    ),
    Family(
        "addresses on their way",
        "an INDEX takes memory, positions of integer types and perhaps a gate",
        [(UPat(Ops.INDEX, src=(UPat(),), any_len=True, name="node"), legal_wide_index)],
    ),
    Family(
        "accesses on their way",
        "a LOAD takes an INDEX; a STORE takes what was or will be an address; values are as wide as "
        "the elements",
        [
            (
                UPat(Ops.LOAD, src=(UPat(Ops.INDEX, name="address"),), any_len=True, name="value"),
                same_width,
            ),
            (
                UPat(
                    Ops.STORE,
                    dtypes.void,
                    src=(UPat((Ops.INDEX, Ops.LOAD), name="address"), UPat(name="value")),
                ),
                same_width,
            ),
        ],
    ),
    Family(
        "values side by side",
        "a GROUP of values of its type waits for its accumulator",
        [(UPat(Ops.GROUP, name="node"), lambda node: _same_types(node, node.src))],
    ),
    Family(
        "launch positions on their way",
        "a SPECIAL takes its size and is named g0.., l0.. or t0",
        [(UPat(Ops.SPECIAL, dtypes.index, src=(UPat(),), name="node"), legal_special)],
    ),
    Family(
        "storage",
        "a BUFFERIZE has a BufferizeInfo as arg and takes a value of its type and ranges",
        [
            (
                UPat(Ops.BUFFERIZE, src=(UPat(),), any_len=True, name="node"),
                lambda node: isinstance(node.arg, BufferizeInfo) and _keeps_type(node),
            )
        ],
    ),
    Family(
        "items of a schedule",
        "a COPY without sources copies as many elements as its arg says; a BUFFER_VIEW is "
        "(elements, offset in bytes)",
        [
            (UPat(Ops.COPY, src=(), name="node"), lambda node: type(node.arg) is int),
            (UPat(Ops.BUFFER_VIEW, src=(), name="node"), lambda node: len(node.arg) == 2),
        ],
    ),
    Family("sinks", "a SINK is void", [(UPat(Ops.SINK, dtypes.void), _yes)]),
)

spec_full = Spec("graph", (*_tensor, *_kernel, *_program, *_between, *_shared))
