"""Values of expressions for all assignments at once, as numpy arrays.

This shares nothing with tgcore but the names of the ops and types: what an op means is said here a
second time. Values are int64 arrays, of bools too (0 and 1).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tgcore.dtype import DType, Invalid, dtypes
from tgcore.uop import Ops, UOp

Column = NDArray[Any]

LEAVES = (Ops.DEFINE_VAR, Ops.RANGE)
_NUMPY = {d: np.dtype(d.name) for d in dtypes.ints}
MOST_ASSIGNMENTS = 5000


class Undefined(Exception):
    """The expression has no value for some assignment: a division by 0, a number too large."""


# *** leaves ***


def leaves_of(roots: Iterable[UOp]) -> tuple[UOp, ...]:
    """The variables and ranges of the expressions, in a fixed order."""
    found: dict[UOp, None] = {}
    for root in roots:
        found.update(dict.fromkeys(n for n in root.toposort() if n.op in LEAVES))
    return tuple(sorted(found, key=lambda n: (n.op, repr(n.arg), n.bounds)))


@functools.lru_cache(maxsize=64)
def grid(leaves: tuple[UOp, ...]) -> tuple[int, dict[UOp, Column]]:
    """All assignments: how many there are, and a column of values for each leaf."""
    spans = [_span(leaf) for leaf in leaves]
    total = int(np.prod([len(s) for s in spans], dtype=np.int64))
    if total > MOST_ASSIGNMENTS:
        raise Undefined("too many assignments")
    axes = np.meshgrid(*spans, indexing="ij") if spans else []
    columns = {leaf: np.ravel(axis) for leaf, axis in zip(leaves, axes)}
    for leaf in leaves:  # a range whose size is a variable
        if leaf.op is Ops.RANGE and leaf.src[0].op is not Ops.CONST:
            kept = columns[leaf] < columns[leaf.src[0]]
            columns = {name: column[kept] for name, column in columns.items()}
            total = int(kept.sum())
    return max(total, 1), columns


def _span(leaf: UOp) -> Column:
    if leaf.op is Ops.DEFINE_VAR:
        return np.arange(leaf.arg[1], leaf.arg[2] + 1, dtype=np.int64)
    size = leaf.src[0]
    return np.arange(size.arg if size.op is Ops.CONST else size.arg[2], dtype=np.int64)


# *** ops ***


def _floor_div(a: Column, b: Column) -> Column:
    if not b.all():
        raise Undefined("division by zero")
    return np.floor_divide(a, b)


def _floor_mod(a: Column, b: Column) -> Column:
    if not b.all():
        raise Undefined("division by zero")
    return np.mod(a, b)


def _truncated_div(a: Column, b: Column) -> Column:
    floor = _floor_div(a, b)
    return floor + ((floor < 0) & (floor * b != a))


def _truncated_mod(a: Column, b: Column) -> Column:
    return a - _truncated_div(a, b) * b


_MEANING: dict[Ops, Callable[..., Any]] = {
    Ops.ADD: np.add,
    Ops.SUB: np.subtract,
    Ops.MUL: np.multiply,
    Ops.NEG: np.negative,
    Ops.MAX: np.maximum,
    Ops.AND: np.bitwise_and,
    Ops.OR: np.bitwise_or,
    Ops.XOR: np.bitwise_xor,
    Ops.SHL: np.left_shift,
    Ops.SHR: np.right_shift,
    Ops.CMPLT: np.less,
    Ops.CMPNE: np.not_equal,
    Ops.CMPEQ: np.equal,
}


def _apply(node: UOp, operands: list[Column]) -> Column:
    op, dtype = node.op, node.dtype
    if op is Ops.WHERE:
        return np.where(operands[0] != 0, operands[1], operands[2])
    if op is Ops.CAST:
        if dtype is dtypes.bool:
            return (operands[0] != 0).astype(np.int64)
        return _wrapped(operands[0], dtype)
    if dtype is dtypes.bool:
        if op is Ops.ADD:
            op = Ops.OR
        return _MEANING[op](*operands).astype(np.int64)
    if op in (Ops.IDIV, Ops.MOD):
        if dtype is dtypes.index:
            return (_floor_div if op is Ops.IDIV else _floor_mod)(*operands)
        divide = _truncated_div if op is Ops.IDIV else _truncated_mod
        return _wrapped(divide(*operands), dtype)
    return _wrapped(_MEANING[op](*operands), dtype)


def _wrapped(values: Column, dtype: DType) -> Column:
    if dtype is dtypes.index or dtype is dtypes.int64:
        return values
    return values.astype(_NUMPY[dtype]).astype(np.int64)


# *** tables ***


class Table:
    """The values of all nodes of some expressions, for all assignments of the leaves."""

    def __init__(self, leaves: tuple[UOp, ...]) -> None:
        self.leaves = leaves
        self.count, columns = grid(leaves)
        self.values: dict[UOp, Column] = dict(columns)
        # where a node is not Invalid; nodes that never are do not stand here
        self.valid: dict[UOp, Column] = {}

    def fill(self, root: UOp) -> Column:
        """The values of the expression; those of all nodes below it are kept."""
        values = self.values
        for node in root.toposort(lambda n: n not in values):
            if node.op is Ops.CONST:
                values[node] = self._constant(node)
                continue
            if node.op in LEAVES:
                values[node] = self._same_leaf(node)
                continue
            if node.op is Ops.REDUCE:
                values[node] = self._sum(node)
                continue
            values[node] = _apply(node, [values[s] for s in node.src])
            if self.valid and any(s in self.valid for s in node.src):
                self.valid[node] = self._validity(node)
        return values[root]

    def _sum(self, node: UOp) -> Column:
        """A sum over ranges that are leaves: for each assignment that of all that differ from it
        in these ranges only."""
        ended = [self.leaves.index(r) for r in node.src[1:]]
        shape = [len(_span(leaf)) for leaf in self.leaves]
        if node.arg is not Ops.ADD or int(np.prod(shape)) != self.count:
            raise Undefined("no sum, or a range whose size is no constant")
        cube = self.values[node.src[0]].reshape(shape)
        totals = cube.sum(axis=tuple(ended), keepdims=True)
        return _wrapped(np.broadcast_to(totals, shape).reshape(-1), node.dtype)

    def _same_leaf(self, node: UOp) -> Column:
        """The values of a range whose size was rewritten: it is the same range still."""
        for leaf in self.leaves:
            if leaf.op is node.op is Ops.RANGE and leaf.arg == node.arg:
                return self.values[leaf]
        raise KeyError(f"there is a new leaf: {node}")

    def _constant(self, node: UOp) -> Column:
        if node.arg is not Invalid:
            return np.full(self.count, node.arg, np.int64)
        self.valid[node] = np.zeros(self.count, np.bool_)
        return np.zeros(self.count, np.int64)

    def _validity(self, node: UOp) -> Column:
        known = [self.valid.get(s, True) for s in node.src]
        if node.op is Ops.WHERE:
            return known[0] & np.where(self.values[node.src[0]] != 0, known[1], known[2])
        return functools.reduce(np.logical_and, known, np.ones(self.count, np.bool_))

    def where_valid(self, node: UOp) -> Column:
        """For which assignments the node is not Invalid."""
        found = self.valid.get(node)
        return np.ones(self.count, np.bool_) if found is None else found

    def extremes(self) -> tuple[list[UOp], list[int], list[int]]:
        """The nodes that never are Invalid, their least and their greatest values."""
        nodes = [n for n in self.values if n not in self.valid]
        if not nodes:
            return [], [], []
        stacked = np.array([self.values[n] for n in nodes])
        return nodes, stacked.min(axis=1).tolist(), stacked.max(axis=1).tolist()

    def assignment(self, position: int) -> dict[UOp, int]:
        """The values of the leaves in one of the assignments."""
        return {leaf: int(self.values[leaf][position]) for leaf in self.leaves}
