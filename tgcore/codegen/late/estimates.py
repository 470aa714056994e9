"""What one run of a linear program does: arithmetic, memory touched, bytes moved."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tgcore.codegen.program import Estimates
from tgcore.dtype import AddrSpace, DType, dtypes
from tgcore.uop.node import UOp, sint
from tgcore.uop.ops import GroupOp, Ops

_COUNTED = GroupOp.ALU | {Ops.WMMA}


def estimate(program: Sequence[UOp]) -> Estimates:
    """Counts a linear program; loops and launch sizes multiply, and may be symbolic.

    Arithmetic that only makes addresses, gates and loop sizes is not counted, casts neither; a
    multiply-add counts two. A parameter counts at most the part of it in which its accesses lie in
    `mem`, once for being read and once for being written.

    `ops` is exact, and so are `lds` and mostly `mem` where no access has a gate. An access with a
    gate counts as if all its lanes were on, and one at places that were loaded as if these all
    differed: there the counts of memory are upper bounds.
    """
    uncounted = _address_arithmetic(program)
    varies = _dependences(program)
    ops: sint = 0
    moved: sint = 0
    touched: dict[tuple[UOp, Ops], _Touched] = {}
    times: sint = _product(_size(n) for n in program if n.op is Ops.SPECIAL)
    stack: list[sint] = []
    for node in program:
        if node.op is Ops.RANGE:
            stack.append(times)
            times = _times(times, _size(node))
        elif node.op is Ops.END:
            times = stack.pop()
        elif node.op in (Ops.LOAD, Ops.STORE):
            memory, value = _access(node)
            if memory.dtype.addrspace is AddrSpace.REG:
                continue
            moved = _plus(moved, _times(times, value.itemsize))
            if memory.dtype.addrspace is AddrSpace.GLOBAL:
                places = _product(_size(n) for n in varies[node.src[0]])
                part = touched.setdefault((memory, node.op), _Touched(memory))
                part.add(node.src[0].src[1], value, places)
        elif node.op in _COUNTED and node not in uncounted:
            ops = _plus(ops, _times(times, _work(node)))
    mem: sint = 0
    for part in touched.values():
        mem = _plus(mem, part.nbytes())
    return Estimates(ops, mem, moved)


class _Touched:
    """The part of a parameter that accesses of one kind touch."""

    def __init__(self, memory: UOp) -> None:
        self.memory = memory
        self.itemsize: int = memory.dtype.base.scalar().itemsize
        self.total: sint = 0
        self.spans: list[tuple[int, int]] = []  # elements from and to which an access may go

    def add(self, index: UOp, value: DType, places: sint) -> None:
        """An access to so many places."""
        lanes = self.memory.dtype.base.count
        size = self.memory.dtype.size * lanes
        begin, end = index.vmin * lanes, index.vmax * lanes + value.count
        # a gate keeps an index inside whose bounds say otherwise
        span = (max(begin, 0), min(end, size) if size >= 0 else end)
        self.spans.append(span)
        distinct = _at_most(_times(places, value.count), max(span[1] - span[0], 0))
        self.total = _plus(self.total, distinct)

    def nbytes(self) -> sint:
        """Bytes in all: those of the accesses, at most those between their ends."""
        covered = reached = 0
        for begin, end in sorted(self.spans):
            covered += max(end - max(begin, reached), 0)
            reached = max(reached, end)
        return _times(_at_most(self.total, covered), self.itemsize)


def _dependences(program: Sequence[UOp]) -> dict[UOp, frozenset[UOp]]:
    """For each node the loops and launch positions that its value changes with."""
    found: dict[UOp, frozenset[UOp]] = {}
    loops: list[UOp] = []
    launch = [n for n in program if n.op is Ops.SPECIAL]
    for node in program:
        if node.op is Ops.RANGE:
            loops.append(node)
        elif node.op is Ops.END:
            loops.pop()
        if node.op in (Ops.RANGE, Ops.SPECIAL):
            found[node] = frozenset({node})
        elif node.op is Ops.LOAD and _access(node)[0].dtype.addrspace is not AddrSpace.GLOBAL:
            found[node] = frozenset((*loops, *launch))  # who knows when that was written
        else:
            found[node] = _union([found.get(s, _NONE) for s in node.src])
    return found


_NONE: Final[frozenset[UOp]] = frozenset()


def _union(sets: list[frozenset[UOp]]) -> frozenset[UOp]:
    result = _NONE
    for other in sets:
        if not other <= result:
            result = other | result if result else other  # mostly one set is all there is
    return result


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
        return int(node.arg.operations // node.arg.threads)
    return node.dtype.count * (2 if node.op is Ops.MULACC else 1)  # type: ignore[no-any-return]


def _access(node: UOp) -> tuple[UOp, DType]:
    """The memory that a load or store touches, and the type of the value there."""
    value = node if node.op is Ops.LOAD else node.src[1]
    memory = node.src[0]
    while memory.op not in GroupOp.Define:
        memory = memory.src[0]
    return memory, value.dtype


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
