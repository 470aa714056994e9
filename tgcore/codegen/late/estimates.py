"""What one run of a linear program does: arithmetic, memory touched, bytes moved."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tgcore.codegen.program import Estimates
from tgcore.dtype import AddrSpace, dtypes
from tgcore.uop.node import UOp, sint
from tgcore.uop.ops import GroupOp, Ops

_COUNTED = GroupOp.ALU | {Ops.WMMA}


def estimate(program: Sequence[UOp]) -> Estimates:
    """Counts a linear program; loops and launch sizes multiply, and may be symbolic.

    Arithmetic that only makes addresses, gates and loop sizes is not counted, casts neither; a
    multiply-add counts two. A parameter counts at most its size in `mem`, once for being read and
    once for being written.
    """
    uncounted = _address_arithmetic(program)
    ops: sint = 0
    moved: sint = 0
    touched: dict[tuple[UOp, Ops], sint] = {}
    times: sint = _launched(program)
    launched = times
    stack: list[sint] = []
    loops: list[UOp] = []
    for node in program:
        if node.op is Ops.RANGE:
            stack.append(times)
            times = _times(times, _size(node))
            loops.append(node)
        elif node.op is Ops.END:
            times = stack.pop()
            loops.pop()
        elif node.op in (Ops.LOAD, Ops.STORE):
            memory, nbytes = _access(node)
            if memory.dtype.addrspace is AddrSpace.REG:
                continue
            moved = _plus(moved, _times(times, nbytes))
            if memory.dtype.addrspace is AddrSpace.GLOBAL:
                seen = touched.get((memory, node.op), 0)
                distinct = _times(_times(launched, nbytes), _trips(node, loops))
                touched[memory, node.op] = _plus(seen, distinct)
        elif node.op in _COUNTED and node not in uncounted:
            ops = _plus(ops, _times(times, _work(node)))
    mem: sint = 0
    for (memory, _), total in touched.items():
        mem = _plus(mem, _at_most(total, max(memory.dtype.size, 0) * memory.dtype.base.itemsize))
    return Estimates(ops, mem, moved)


def _address_arithmetic(program: Sequence[UOp]) -> set[UOp]:
    """The nodes that only serve addresses and control: not reached from stored values."""
    values: set[UOp] = set()
    stack: list[UOp] = []
    for node in program:
        if node.op is Ops.STORE:
            stack.extend(node.src[1:])
        elif node.op is Ops.CUSTOM:
            stack.extend(node.src)
    while stack:
        node = stack.pop()
        if node in values:
            continue
        values.add(node)
        if node.op is Ops.LOAD:
            stack.extend(node.src[1:])  # the alternative, not the address
        elif node.op not in (Ops.INDEX, Ops.RANGE, Ops.SPECIAL):
            stack.extend(node.src)
    return {n for n in program if n not in values}


def _work(node: UOp) -> int:
    if node.op is Ops.WMMA:
        return int(2 * _product(node.arg[1])) if isinstance(node.arg, tuple) else 0
    return node.dtype.count * (2 if node.op is Ops.MULACC else 1)  # type: ignore[no-any-return]


def _access(node: UOp) -> tuple[UOp, int]:
    """The memory that a load or store touches, and how many bytes of it."""
    value = node if node.op is Ops.LOAD else node.src[1]
    memory = node.src[0]
    while memory.op not in GroupOp.Define:
        memory = memory.src[0]
    return memory, value.dtype.itemsize


def _trips(node: UOp, loops: Iterable[UOp]) -> sint:
    """How many addresses the loops give: those that the address depends on."""
    used = node.src[0].ranges
    return _product(_size(loop) for loop in loops if loop in used)


def _launched(program: Sequence[UOp]) -> sint:
    return _product(_size(n) for n in program if n.op is Ops.SPECIAL)


def _size(node: UOp) -> sint:
    size = node.src[0]
    # as an index it cannot wrap around, however large the product gets
    return int(size.arg) if size.op is Ops.CONST else size.cast(dtypes.index)


def _product(values: Iterable[sint]) -> sint:
    result: sint = 1
    for value in values:
        result = _times(result, value)
    return result


def _times(a: sint, b: sint) -> sint:
    if isinstance(a, int):
        a, b = b, a
    if isinstance(b, int) and b in (0, 1):
        return a if b else 0
    return a * b


def _plus(a: sint, b: sint) -> sint:
    if isinstance(a, int):
        a, b = b, a
    return a if isinstance(b, int) and b == 0 else a + b


def _at_most(value: sint, limit: int) -> sint:
    if isinstance(value, int):
        return min(value, limit)
    return value if value.vmax <= limit else value.minimum(limit)
