"""Nodes of linear programs."""

from __future__ import annotations

import re

from tgcore.dtype import DType, PtrDType, dtypes
from tgcore.uop.node import UOp
from tgcore.uop.ops import GroupOp, Ops
from tgcore.uop.pattern import UPat
from tgcore.uop.spec.base import Family, Spec
from tgcore.uop.spec.kernel import MEMORY, surely_outside
from tgcore.uop.spec.shared import SHARED, is_value, same_types, yes
from tgcore.uop.tensor_core import TensorCore


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
    return pointer.op not in GroupOp.Define or not surely_outside(pointer, [index])


def legal_load(node: UOp) -> bool:
    """One element or several neighbours; a gated load has an alternative."""
    address, *alternative = node.src
    gated = len(address.src) == 3
    fits = _is_element(node.dtype, address.dtype)
    return fits and len(alternative) == gated and same_types(node, alternative)


def _is_element(dtype: DType, pointer: DType) -> bool:
    base = pointer.base
    return dtype is base or (base.count == 1 and dtype.scalar() is base)


def legal_program_store(node: UOp, address: UOp, value: UOp) -> bool:
    """One element or several neighbours get their values."""
    return _is_element(value.dtype, address.dtype) and node.arg is None


def legal_gep(node: UOp) -> bool:
    """Lanes that the vector has."""
    vector, lanes = node.src[0].dtype, node.arg
    if not isinstance(lanes, tuple) or not lanes or not is_value(vector):
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


def legal_matrix_instruction(node: UOp) -> bool:
    """What a lane holds of three matrices, in the types and as many elements as the arg says."""
    core = node.arg
    if not isinstance(core, TensorCore) or len(node.src) != 3:
        return False
    held = zip(core.dtypes, (core.a, core.b, core.c))
    kinds = [dtype.vec(fragment.elements) for dtype, fragment in held]
    return [s.dtype for s in node.src] == kinds and node.dtype is kinds[2]


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
    "CUSTOM and CUSTOMI have their text as arg",
    [(UPat((Ops.CUSTOM, Ops.CUSTOMI), name="node"), legal_text)],
)
MATRIX = Family(
    "matrix instructions",
    "a WMMA has a TensorCore as arg, and takes what a lane holds of its three matrices",
    [(UPat(Ops.WMMA, name="node"), legal_matrix_instruction)],
)
_barriers = Family(
    "barriers", "a BARRIER is void and takes effects", [(UPat(Ops.BARRIER, dtypes.void), yes)]
)
PROGRAM = (
    MEMORY,
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
            (UPat(Ops.END, dtypes.void, src=(UPat(), UPat(Ops.RANGE))), yes),
            (UPat(Ops.IF, dtypes.void, src=(UPat(dtype=(dtypes.bool,)),)), yes),
            (UPat(Ops.ENDIF, dtypes.void, src=(UPat(Ops.IF),)), yes),
        ],
    ),
    _lanes,
    _barriers,
    _custom,
    MATRIX,
)
_no_index_type = Family(
    "machine integers",
    "no node of a program has the index type: it became int32 or int64",
    [(UPat(dtype=dtypes.index), yes)],
)

spec_program = Spec("program", (*PROGRAM, *SHARED), vetoes=(_no_index_type,))
