"""Loads and stores of neighbours become one access, where lanes are no vectors yet.

In: a lowered kernel of scalars (indices not yet machine integers). Out: the same, in which
neighbouring elements that are loaded in the same place, or stored there, are one vector in memory,
as wide as `Target.memory_widths` and `memory_bytes` allow. The first of them lies at a multiple of
the width: the device may ask for that.
"""

from __future__ import annotations

from collections.abc import Iterable

from tgcore.codegen.target import Target
from tgcore.dtype import AddrSpace, dtypes
from tgcore.uop.divmod import split_sum
from tgcore.uop.node import UOp
from tgcore.uop.ops import Ops

# accesses that differ only in how far behind this place they lie: offset -> access
_Row = dict[int, UOp]
_EFFECTS = (Ops.GROUP, Ops.BARRIER, Ops.SINK)


def widen_accesses(ast: UOp, target: Target) -> UOp:
    """The kernel with vectors in memory."""
    if not target.memory_widths or target.vector_bytes:
        return ast
    while (wider := _widen_loads(ast, target)) is not ast:
        ast = wider  # and then the loads inside of those that were replaced
    return _widen_stores(ast, target)


def _widen_loads(ast: UOp, target: Target) -> UOp:
    table: dict[UOp, UOp] = {}
    for row, factors in _rows([n for n in ast.toposort() if n.op is Ops.LOAD], {}):
        for first, width in _vectors(row, factors, target):
            load = row[first]
            vector = load.replace(
                dtype=load.dtype.vec(width),
                src=(load.src[0], *(s.broadcast(width) for s in load.src[1:])),
            )
            table.update({row[first + k]: vector.gep(k) for k in range(width)})
    return ast.substitute(table) if table else ast


def _widen_stores(ast: UOp, target: Target) -> UOp:
    users = ast.consumers()
    parts: dict[UOp, list[UOp]] = {}
    for row, factors in _rows([n for n in users if n.op is Ops.STORE], users):
        for first, width in _vectors(row, factors, target):
            stores = [row[first + k] for k in range(width)]
            parts.update(dict.fromkeys(stores, stores))
    if not parts:
        return ast
    done: dict[UOp, UOp] = {}

    def rebuilt(node: UOp) -> UOp:
        if node not in parts:
            return done.get(node, node)
        first, *_ = stores = [done.get(s, s) for s in parts[node]]
        return first.src[0].store(_joined([s.src[1] for s in stores]))

    for node in ast.toposort():
        src = tuple([rebuilt(s) for s in node.src])
        if src != node.src:
            src = tuple(dict.fromkeys(src)) if node.op in _EFFECTS else src
            alone = node.op is Ops.GROUP and len(src) == 1
            done[node] = src[0] if alone else node.replace(src=src)
    return done.get(ast, ast)


def _joined(values: list[UOp]) -> UOp:
    """A vector of the values; one that is there already, if they are its lanes in order."""
    whole = values[0].src[0] if values[0].op is Ops.GEP else None
    if whole is not None and values == [whole.gep(k) for k in range(whole.dtype.count)]:
        return whole
    return UOp.vectorize(*values)


def _rows(
    accesses: Iterable[UOp], users: dict[UOp, list[UOp]]
) -> list[tuple[_Row, tuple[int, ...]]]:
    """Accesses to the same memory under the same condition, and the factors in their index."""
    rows: dict[object, tuple[_Row, tuple[int, ...]]] = {}
    for node in accesses:
        address = node.src[0]
        value = node if node.op is Ops.LOAD else node.src[1]
        if value.dtype.count > 1 or address.dtype.addrspace is AddrSpace.REG:
            continue
        terms, offset = split_sum(address.src[1])
        others = (node.src[1:] if node.op is Ops.LOAD else (), tuple(users.get(node, ())))
        key = (address.src[0], address.src[2:], frozenset(terms.items()), others)
        row, _ = rows.setdefault(key, ({}, tuple(terms.values())))
        row[offset] = node
    return [entry for entry in rows.values() if len(entry[0]) > 1]


def _vectors(row: _Row, factors: tuple[int, ...], target: Target) -> list[tuple[int, int]]:
    """The (first offset, width) of vectors that accesses of the row make up, each once."""
    node = next(iter(row.values()))
    itemsize = node.src[0].dtype.base.itemsize
    found: list[tuple[int, int]] = []
    taken: set[int] = set()
    if node.src[0].dtype.base.scalar() is dtypes.bool:
        return found
    for width in sorted(target.memory_widths, reverse=True):
        if width * itemsize > target.memory_bytes or any(f % width for f in factors):
            continue
        for first in sorted(row):
            lanes = range(first, first + width)
            if first % width == 0 and all(k in row and k not in taken for k in lanes):
                taken.update(lanes)
                found.append((first, width))
    return found
