"""Scalar expressions of machine integers as z3 terms, and what z3 says about them.

A term has the value that the machine computes: sums, products, shifts and casts wrap around where
bounds do not exclude it, division truncates. Whatever has no exact term (a loaded value, an op on
floats, a bit operation on two numbers) is a leaf that can have any value within its bounds: that
can only make a proof fail, never make a wrong one.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tgcore.dtype import dtypes
from tgcore.errors import MissingPackageError
from tgcore.helpers import ContextVar
from tgcore.uop import facts
from tgcore.uop.evaluate import evaluate, evaluate_cast
from tgcore.uop.node import UOp
from tgcore.uop.ops import GroupOp, Ops

OOB_TIMEOUT = ContextVar("OOB_TIMEOUT", 10_000, "most milliseconds that z3 may think of one index")

_INTEGERS: Final = frozenset({dtypes.bool, *dtypes.ints})
_VALUES: Final = frozenset({Ops.LOAD, Ops.RANGE, Ops.SPECIAL, Ops.DEFINE_VAR})


@functools.cache
def load_z3() -> Any:
    """The module z3, loaded when it is first needed."""
    try:
        import z3  # takes a second and is not needed by most
    except ImportError as error:
        raise MissingPackageError(
            "IGNORE_OOB=0 proves with z3 that no program leaves its buffers, and z3 is not "
            "installed: pip install 'tgcore[validate]'"
        ) from error
    return z3


# *** lanes ***


class Lanes:
    """Vectors as tuples of scalars, one a lane."""

    def __init__(self) -> None:
        self.done: dict[UOp, tuple[UOp, ...]] = {}

    def of(self, root: UOp) -> tuple[UOp, ...]:
        """The lanes of a value: scalar expressions without a vector in them."""
        below = root.toposort(lambda n: n not in self.done and n.op not in _VALUES)
        for node in below:
            self.done[node] = self._split(node)
        return self._get(root)

    def _get(self, node: UOp) -> tuple[UOp, ...]:
        found = self.done.get(node)
        return found if found is not None else _plain_lanes(node)

    def _split(self, node: UOp) -> tuple[UOp, ...]:
        sources = [self._get(s) for s in node.src]
        if node.op is Ops.GEP:
            return tuple(sources[0][lane] for lane in node.arg)
        if node.op in (Ops.VECTORIZE, Ops.CAT):
            return tuple(lane for source in sources for lane in source)
        if node.op not in GroupOp.Elementwise or _is_scalar(node):
            return _plain_lanes(node)
        scalar = node.dtype.scalar()
        return tuple(
            UOp(node.op, scalar, tuple(s[lane] if len(s) > 1 else s[0] for s in sources), node.arg)
            for lane in range(node.dtype.count)
        )


def _is_scalar(node: UOp) -> bool:
    return node.dtype.count == 1 and all(
        s.dtype.count == 1 and s.op is not Ops.GEP for s in node.src
    )


def _plain_lanes(node: UOp) -> tuple[UOp, ...]:
    return tuple(node.gep(lane) for lane in range(node.dtype.count))


# *** terms ***


class Counterexample(NamedTuple):
    """Values of the leaves for which a claim fails, and the leaves whose meaning is not known."""

    values: dict[UOp, int]
    assumed: tuple[UOp, ...]


class Query:
    """A question about scalar expressions, in z3's terms."""

    def __init__(self) -> None:
        self.z3 = load_z3()
        self.terms: dict[UOp, Any] = {}
        self.leaves: dict[UOp, Any] = {}
        self.facts: list[Any] = []

    def term(self, root: UOp) -> Any:
        """The expression as a term: a number or, of bools, a truth value."""
        stack = [root]
        while stack:
            node = stack[-1]
            pending = [s for s in _operands(node) if s not in self.terms]
            if node not in self.terms and pending:
                stack.extend(pending)
                continue
            stack.pop()
            if node not in self.terms:
                self.terms[node] = self._make(node)
        return self.terms[root]

    def assume(self, condition: UOp) -> None:
        """The condition holds."""
        self.facts.append(self.term(condition))

    def find(self, claim: Any) -> Counterexample | None:
        """Values for which the claim holds; None if there are none. Raises TimeoutError."""
        solver = self.z3.Solver()
        solver.set("timeout", int(OOB_TIMEOUT))
        solver.add(*self.facts, claim)
        verdict = solver.check()
        if verdict == self.z3.unsat:
            return None
        if verdict != self.z3.sat:
            raise TimeoutError(solver.reason_unknown())
        model = solver.model()
        values = {leaf: self._value(model, term) for leaf, term in self.leaves.items()}
        return Counterexample(values, tuple(n for n in values if n.op not in (*_VALUES, Ops.GEP)))

    def _value(self, model: Any, term: Any) -> int:
        found = model.eval(term, model_completion=True)
        return found.as_long() if self.z3.is_int(found) else int(self.z3.is_true(found))

    # *** the meaning of nodes ***

    def _make(self, node: UOp) -> Any:
        if node.op is Ops.CONST and node.dtype in _INTEGERS:
            return (
                self.z3.BoolVal(node.arg) if node.dtype is dtypes.bool else self.z3.IntVal(node.arg)
            )
        if not _has_meaning(node):
            return self._leaf(node)
        operands = [self.terms[s] for s in node.src]
        if node.dtype is dtypes.bool:
            return self._truth(node, operands)
        return self._wrapped(node, self._number(node, operands))

    def _leaf(self, node: UOp) -> Any:
        name = f"v{len(self.leaves)}"
        if node.dtype is dtypes.bool:
            self.leaves[node] = term = self.z3.Bool(name)
            return term
        self.leaves[node] = term = self.z3.Int(name)
        low, high = node.bounds
        self.facts += [term >= low, term <= high]
        if node.op in (Ops.RANGE, Ops.SPECIAL):
            self.facts.append(term < self.terms[node.src[0]])
        return term

    def _truth(self, node: UOp, operands: list[Any]) -> Any:
        z3, (a, *rest) = self.z3, operands
        if node.op is Ops.CAST:
            return a if node.src[0].dtype is dtypes.bool else a != 0
        if node.op is Ops.WHERE:
            return z3.If(a, *rest)
        b = rest[0]
        if node.op is Ops.CMPLT:
            return z3.And(z3.Not(a), b) if z3.is_bool(a) else a < b
        return {
            **dict.fromkeys((Ops.AND, Ops.MUL), z3.And),
            **dict.fromkeys((Ops.OR, Ops.ADD, Ops.MAX), z3.Or),
            **dict.fromkeys((Ops.XOR, Ops.CMPNE), lambda x, y: x != y),
            Ops.CMPEQ: lambda x, y: x == y,
        }[node.op](a, b)

    def _number(self, node: UOp, operands: list[Any]) -> Any:
        z3, a = self.z3, operands[0]
        if node.op in (Ops.CAST, Ops.BITCAST):
            return z3.If(a, z3.IntVal(1), z3.IntVal(0)) if z3.is_bool(a) else a
        if node.op is Ops.NEG:
            return -a
        if node.op is Ops.MULACC:
            return a * operands[1] + operands[2]
        b = operands[1]
        if node.op is Ops.WHERE:
            return z3.If(a, b, operands[2])
        if node.op is Ops.MAX:
            return z3.If(a < b, b, a)
        if node.op is Ops.IDIV:
            return self._quotient(node, a, b)
        if node.op is Ops.MOD:
            if node.src[0].vmin >= 0 and node.src[1].vmin > 0:
                return a % b
            return a - self._quotient(node, a, b) * b
        if node.op is Ops.AND:  # with 2**k - 1
            return a % (node.src[1].arg + 1)
        if node.op is Ops.SHL:
            return a * (1 << node.src[1].arg)
        if node.op is Ops.SHR:
            return a / (1 << node.src[1].arg)
        return {Ops.ADD: lambda: a + b, Ops.SUB: lambda: a - b, Ops.MUL: lambda: a * b}[node.op]()

    def _quotient(self, node: UOp, a: Any, b: Any) -> Any:
        """a / b towards zero. z3's rounds down for positive divisors."""
        z3, (x, y) = self.z3, node.src
        if x.vmin < 0:
            positive = z3.If(a >= 0, a / b, -(-a / b))
            negative = z3.If(a >= 0, -(a / -b), -a / -b)
        else:
            positive, negative = a / b, -(a / -b)
        if y.vmin > 0:
            return positive
        return negative if y.vmax < 0 else z3.If(b > 0, positive, negative)

    def _wrapped(self, node: UOp, term: Any) -> Any:
        low, high = dtypes.min(node.dtype), dtypes.max(node.dtype)
        exact = facts.exact_bounds(node)
        if exact is not None and low <= exact[0] and exact[1] <= high:
            return term
        span = high - low + 1
        if node.op in (Ops.ADD, Ops.SUB):  # too far by less than one turn
            z3 = self.z3
            return z3.If(term > high, term - span, z3.If(term < low, term + span, term))
        return (term - low) % span + low


_TRUTHS: Final = frozenset(
    {
        *(Ops.AND, Ops.OR, Ops.XOR, Ops.ADD, Ops.MUL, Ops.MAX),
        *(Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ, Ops.WHERE, Ops.CAST),
    }
)
_NUMBERS: Final = frozenset(
    {
        *(Ops.ADD, Ops.SUB, Ops.MUL, Ops.MAX, Ops.NEG, Ops.MULACC, Ops.WHERE),
        *(Ops.CAST, Ops.BITCAST),
    }
)


def _has_meaning(node: UOp) -> bool:
    """Whether there is a term for the node, given terms for its sources."""
    if node.dtype not in _INTEGERS or any(s.dtype not in _INTEGERS for s in node.src):
        return False
    if node.dtype is dtypes.bool:
        return node.op in _TRUTHS
    if node.op in (Ops.IDIV, Ops.MOD):
        return bool(node.src[1].vmin > 0 or node.src[1].vmax < 0)
    if node.op in (Ops.SHL, Ops.SHR):
        shift = node.src[1]
        return shift.op is Ops.CONST and 0 <= shift.arg < node.dtype.bitsize
    if node.op is Ops.AND:
        mask = node.src[1]
        return mask.op is Ops.CONST and mask.arg >= 0 and mask.arg & (mask.arg + 1) == 0
    return node.op in _NUMBERS


def _operands(node: UOp) -> tuple[UOp, ...]:
    if node.op in (Ops.RANGE, Ops.SPECIAL):
        return node.src
    return node.src if _has_meaning(node) else ()


# *** values ***


def value_of(root: UOp, leaves: Mapping[UOp, int]) -> int:
    """What the machine computes where the leaves have these values; z3 has no part in it."""
    values: dict[UOp, Any] = dict(leaves)
    for node in root.toposort(lambda n: n not in values):
        if node.op is Ops.CONST:
            values[node] = node.arg
            continue
        operands = [values[s] for s in node.src]
        if node.op in (Ops.CAST, Ops.BITCAST):
            values[node] = evaluate_cast(operands[0], node.dtype)
        else:
            values[node] = evaluate(node.op, node.dtype, operands)
    return int(values[root])
