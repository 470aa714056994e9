"""Nodes of kernels, as the scheduler makes them."""

from __future__ import annotations

from tgcore.dtype import AddrSpace, Invalid, PtrDType, dtypes
from tgcore.uop.node import BufferizeInfo, UOp
from tgcore.uop.ops import GroupOp, Ops
from tgcore.uop.pattern import UPat
from tgcore.uop.spec.base import Family, Spec
from tgcore.uop.spec.shared import REDUCES, SHARED, is_value, keeps_type, yes

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
        return inside and node.dtype is memory.dtype and all_indices(indices)
    if memory.op not in GroupOp.Define or not isinstance(memory.dtype, PtrDType):
        return False
    fits = node.dtype in (memory.dtype.base, memory.dtype)
    return fits and all_indices(indices) and not surely_outside(memory, indices)


def all_indices(indices: list[UOp]) -> bool:
    return len(indices) > 0 and all(i.dtype is dtypes.index for i in indices)


def surely_outside(memory: UOp, indices: list[UOp]) -> bool:
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
    return node.arg in REDUCES and ranged and keeps_type(node) and is_value(node.dtype)


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
    return len(node.src) > 1 and keeps_type(node)


def legal_local_bufferize(node: UOp) -> bool:
    """A value stored in the kernel, an element for each position of the ranges."""
    info = node.arg
    if not isinstance(info, BufferizeInfo) or info.addrspace is AddrSpace.GLOBAL:
        return False
    return len(node.src) > 1 and keeps_type(node)


MEMORY = Family(
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
        (UPat(Ops.GROUP, dtypes.void, src=UPat(dtype=dtypes.void)), yes),
        (UPat(Ops.AFTER, name="node"), legal_after),
        (UPat(Ops.NOOP, dtypes.void), yes),
    ],
)
KERNEL = (
    MEMORY,
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

spec_kernel = Spec("kernel", (*KERNEL, *SHARED))
