"""Every node that is ever made: those of all levels, and those on the way between them."""

from __future__ import annotations

from tgcore.dtype import Invalid, PtrDType, dtypes
from tgcore.uop.node import BufferizeInfo, UOp
from tgcore.uop.ops import Ops
from tgcore.uop.pattern import UPat
from tgcore.uop.spec.base import Family, Spec
from tgcore.uop.spec.kernel import KERNEL, memory_of
from tgcore.uop.spec.program import PROGRAM, legal_special
from tgcore.uop.spec.shared import SHARED, is_value, keeps_type, same_types, yes
from tgcore.uop.spec.tensor import TENSOR

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
    return is_value(value.dtype) and value.dtype.scalar().itemsize == element.itemsize


def legal_masked_index(gate: UOp, index: UOp) -> bool:
    """The index of the first lane, where each lane has a gate."""
    return gate.dtype.scalar() is dtypes.bool and index.dtype is dtypes.index


def legal_contract(node: UOp, value: UOp, r: UOp) -> bool:
    """A scalar, and a range that has a step for each lane."""
    return value.dtype.count == 1 and node.dtype is value.dtype.vec(r.vmax + 1)


def legal_unroll(node: UOp, vector: UOp, r: UOp) -> bool:
    """A vector, and a range that has a step for each lane."""
    return node.dtype is vector.dtype.scalar() and vector.dtype.count == r.vmax + 1


BETWEEN = (
    Family(
        "lanes as ranges",
        "a CONTRACT takes a scalar and a range of as many steps as its vector has lanes, an UNROLL "
        "such a vector and a range",
        [
            (
                UPat(
                    Ops.CONTRACT, src=(UPat(name="value"), UPat(Ops.RANGE, name="r")), name="node"
                ),
                legal_contract,
            ),
            (
                UPat(Ops.UNROLL, src=(UPat(name="vector"), UPat(Ops.RANGE, name="r")), name="node"),
                legal_unroll,
            ),
        ],
    ),
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
        "a LOAD takes an INDEX, a STORE what was or will be an address; values are as wide as the "
        "elements",
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
        [(UPat(Ops.GROUP, name="node"), lambda node: same_types(node, node.src))],
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
                lambda node: isinstance(node.arg, BufferizeInfo) and keeps_type(node),
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
    Family("sinks", "a SINK is void", [(UPat(Ops.SINK, dtypes.void), yes)]),
)

spec_full = Spec("graph", (*TENSOR, *KERNEL, *PROGRAM, *BETWEEN, *SHARED))
