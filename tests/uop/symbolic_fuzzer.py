"""Random expressions, simplified and compared with all their values.

`python -m tests.uop.symbolic_fuzzer --minutes 60 --seed 1` looks for flaws for an hour and prints
each one, made as small as it gets, as Python that shows it again.
"""

from __future__ import annotations

import argparse
import itertools
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from tests.uop.brute_tables import LEAVES, Table, Undefined, leaves_of
from tgcore.dtype import DType, Invalid, dtypes
from tgcore.errors import TgcoreError
from tgcore.uop import Ops, UOp
from tgcore.uop.collapse import pm_reduce_collapse
from tgcore.uop.render import pyrender
from tgcore.uop.rewrite import graph_rewrite
from tgcore.uop.symbolic import simplify, simplify_given, symbolic, symbolic_with_valid

MACHINE = (dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.int32, dtypes.uint32)


@dataclass(frozen=True)
class Case:
    """An expression, perhaps a condition that guards it, and which assignment is put into it."""

    expression: UOp
    condition: UOp | None = None
    position: int = -1


@dataclass(frozen=True)
class Flaw:
    """What is wrong with a case."""

    check: str
    case: Case
    detail: str = field(compare=False)

    def __str__(self) -> str:
        case = self.case
        parts = [f"# {self.check}: {self.detail}", pyrender(case.expression)]
        if case.condition is not None:
            parts.append(f"# given\n{pyrender(case.condition)}")
        if case.position >= 0:
            parts.append(f"# assignment {case.position}")
        return "\n".join(parts)


# *** checks ***


def find_flaw(case: Case) -> Flaw | None:
    """What is wrong with how the case is simplified; None if nothing is. Raises Undefined."""
    expression = case.expression
    roots = [expression] if case.condition is None else [expression, case.condition]
    table = Table(leaves_of(roots))
    table.fill(expression)
    try:
        return _check(case, table)
    except Undefined as error:
        return Flaw("undefined", case, f"what it became has no value: {error}")
    except (TgcoreError, ArithmeticError, ValueError, AttributeError, KeyError) as error:
        return Flaw("crash", case, f"{type(error).__name__}: {error}")


def _check(case: Case, table: Table) -> Flaw | None:
    simplified = simplify(case.expression)
    if (detail := _differs(table, case.expression, simplified)) is not None:
        return Flaw("value", case, detail)
    if (detail := _outside_bounds(table)) is not None:
        return Flaw("bounds", case, detail)
    again = simplify(simplified)
    if again is not simplified:
        return Flaw("idempotence", case, f"{_text(simplified)} became {_text(again)}")
    if case.expression in table.valid:
        gated = graph_rewrite(case.expression, symbolic_with_valid)
        if (detail := _differs(table, case.expression, gated)) is not None:
            return Flaw("valid", case, detail)
    if case.expression.op is Ops.REDUCE:
        collapsed = graph_rewrite(case.expression, symbolic + pm_reduce_collapse)
        if (detail := _differs(table, case.expression, collapsed)) is not None:
            return Flaw("collapse", case, detail)
    flaw = None if case.condition is None else _check_given(case, table, simplified)
    if flaw is None and case.position >= 0:
        flaw = _check_constants(case, table)
    return flaw


def _differs(table: Table, before: UOp, after: UOp, where: Any = None) -> str | None:
    """Says for which assignment two expressions differ."""
    if before is after:
        return None
    if before.dtype is not after.dtype:
        return f"the type became {after.dtype}"
    wrong = table.fill(before) != table.fill(after)
    if table.valid:
        usable = table.where_valid(before)
        wrong = (wrong & usable) | (usable != table.where_valid(after))
    if where is not None:
        wrong = wrong & where
    if not wrong.any():
        return None
    position = int(wrong.argmax())
    values = [
        table.values[n][position] if table.where_valid(n)[position] else Invalid
        for n in (before, after)
    ]
    return f"{values[0]} became {values[1]} = {_text(after)} where {_shown(table, position)}"


def _outside_bounds(table: Table) -> str | None:
    """Says which node has a value outside its bounds."""
    for node, least, greatest in zip(*table.extremes()):
        low, high = node.bounds
        if least < low or greatest > high:
            return f"{_text(node)} has values {least}..{greatest}, bounds {low}..{high}"
    for node, valid in table.valid.items():
        values = table.values[node][valid]
        if len(values) and not node.vmin <= values.min() <= values.max() <= node.vmax:
            return f"{_text(node)} has values outside its bounds {node.bounds}"
    return None


def _check_given(case: Case, table: Table, simplified: UOp) -> Flaw | None:
    assert case.condition is not None
    condition = simplify(case.condition)
    holds = table.fill(condition) != 0
    given = simplify_given(simplified, condition)
    if (detail := _differs(table, simplified, given, holds)) is not None:
        return Flaw("given", case, detail)
    return None


def _check_constants(case: Case, table: Table) -> Flaw | None:
    """With a constant for each leaf, a constant is left."""
    position = case.position % table.count
    chosen = table.assignment(position)
    constant = simplify(
        case.expression.substitute({leaf: leaf.const_like(v) for leaf, v in chosen.items()})
    )
    expected = table.values[case.expression][position]
    if not table.where_valid(case.expression)[position]:
        expected = Invalid
    if constant.op is not Ops.CONST or constant.arg != expected:
        detail = f"{expected} is expected, not {_text(constant)} where {_shown(table, position)}"
        return Flaw("constants", case, detail)
    return None


def _text(node: UOp) -> str:
    return pyrender(node).replace("\n", "; ")


def _shown(table: Table, position: int) -> str:
    chosen = table.assignment(position)
    return ", ".join(f"{leaf.op.name} {leaf.arg[0]} = {v}" for leaf, v in chosen.items())


# *** expressions ***

_MOST = 1 << 40  # values stay below this, so that int64 holds them


class Generator:
    """Random cases: a few expressions over the same variables, then other variables."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.size_of: dict[UOp, int] = {}

    def cases(self) -> Iterator[Case]:
        """Cases without end."""
        while True:
            if self.random.random() < 0.75:
                source: _Expressions = _Indices(self.random)
            else:
                source = _MachineIntegers(self.random)
            for _ in range(12):
                yield source.case()


class _Expressions:
    """Expressions over some leaves, built one op at a time from a pool."""

    types: tuple[DType, ...]

    def __init__(self, source: random.Random) -> None:
        self.random = source
        self.leaves: list[UOp] = []
        self.magnitude: dict[UOp, int] = {}
        self.pool: list[UOp] = []

    def case(self) -> Case:
        """An expression, sometimes with a condition, sometimes with an assignment."""
        self.pool = list(self.leaves)
        self.magnitude = {leaf: max(abs(leaf.vmin), abs(leaf.vmax)) for leaf in self.leaves}
        for _ in range(self.random.choice((1, 2, 3, 3, 4, 4, 5, 6, 8, 10))):
            self.pool.append(self.step())
        expression, dice = self.pool[-1], self.random.random()
        if dice < 0.15:
            expression = self.condition(expression)
        elif dice < 0.5:
            return Case(expression, self.condition(self.operand()), self.position())
        else:
            expression = self.finish(expression)
            if expression.op is Ops.REDUCE:  # its range has no single value
                return Case(expression)
        return Case(expression, position=self.position())

    def position(self) -> int:
        """Which assignment is put into the expression; none is in half of the cases."""
        return self.random.randrange(1000) if self.chance(0.5) else -1

    def step(self) -> UOp:
        """One more node."""
        raise NotImplementedError

    def finish(self, expression: UOp) -> UOp:
        """What is put on top of an expression."""
        return expression

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def operand(self) -> UOp:
        """A node of the pool, the latest more often than others."""
        return self.pool[-1] if self.random.random() < 0.55 else self.random.choice(self.pool)

    def condition(self, subject: UOp) -> UOp:
        """A condition with the subject in it."""
        dice = self.random.random()
        if dice < 0.25:
            left, right = self.comparison(subject), self.comparison(self.operand())
            return left & right if dice < 0.18 else left | right
        if dice < 0.35:
            return self.comparison(subject).logical_not()
        return self.comparison(subject)

    def comparison(self, subject: UOp) -> UOp:
        """The subject compared with a constant or another node."""
        other = self.constant_for(subject)
        if self.chance(0.25):
            same = [n for n in self.pool if n.dtype is subject.dtype]
            other = self.random.choice(same)
        op = self.random.choice((Ops.CMPLT, Ops.CMPLT, Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ))
        if self.chance(0.2):
            subject, other = other, subject
        return subject.alu(op, other)

    def constant_for(self, subject: UOp) -> UOp:
        """A number that the subject may be compared with: within its bounds, or just outside."""
        low, high = subject.vmin, subject.vmax
        return subject.const_like(self.random.randint(max(low - 1, -_MOST), min(high + 1, _MOST)))


class _Indices(_Expressions):
    """Expressions of the index type, as addressing makes them."""

    def __init__(self, source: random.Random) -> None:
        super().__init__(source)
        room = 300
        for number in range(source.choice((1, 2, 2, 3, 3))):
            size = source.randint(2, max(2, min(9, room)))
            room //= size
            self.leaves.append(self.leaf(number, size))
        self.sizes = [leaf.vmax - leaf.vmin + 1 for leaf in self.leaves]
        if source.random() < 0.12:
            self.leaves.append(self.symbolic_range())
        self.numbers = self.nice_numbers()
        # some ops only, each time others: what is rare among all ops is frequent among a few
        weights = [0 if source.random() < 0.4 else weight for weight in _INDEX_WEIGHTS]
        self.weights = list(itertools.accumulate(weights if any(weights) else _INDEX_WEIGHTS))

    def leaf(self, number: int, size: int) -> UOp:
        if self.chance(0.6):
            return UOp.range(size, number)
        low = self.random.choice((0, 0, 1, 1, -3, -size + 1, 2))
        return UOp.variable("abc"[number], low, low + size - 1)

    def symbolic_range(self) -> UOp:
        """A range whose size is a variable."""
        counts = [leaf for leaf in self.leaves if leaf.op is Ops.DEFINE_VAR and leaf.vmin >= 1]
        if counts:
            return UOp.range(counts[0], 7)
        self.leaves.append(UOp.variable("n", 1, 4))
        return UOp.range(self.leaves[-1], 7)

    def nice_numbers(self) -> list[int]:
        """Divisors and strides: small numbers, sizes of leaves and products of these."""
        products = [a * b for a in self.sizes for b in self.sizes]
        return [2, 2, 3, 4, 4, 6, 8, 12, 16, 1, 5, 7, *self.sizes, *self.sizes, *products]

    def step(self) -> UOp:
        rule = self.random.choices(_INDEX_RULES, cum_weights=self.weights)[0]
        node, magnitude = rule(self)
        if magnitude > _MOST:
            return self.pool[-1]
        known = self.magnitude.get(node, magnitude)
        self.magnitude[node] = min(known, magnitude)
        return node

    def of(self, node: UOp) -> int:
        return abs(node.arg) if node.op is Ops.CONST else self.magnitude[node]

    def finish(self, expression: UOp) -> UOp:
        dice = self.random.random()
        if dice < 0.35:  # an address that may be used only where a condition holds
            gated = self.condition(self.operand()).where(expression, Invalid)
            if dice < 0.1:
                return gated
            gated = gated * self.random.choice(self.numbers) + self.random.choice(self.leaves)
            if dice < 0.25:
                return gated
            return self.condition(self.operand()).where(gated // 2, Invalid)
        if dice < 0.5:
            return self.summed(expression)
        return expression

    def summed(self, expression: UOp) -> UOp:
        """A sum over a range of something that depends on conditions."""
        ranges = [r for r in self.leaves if r.op is Ops.RANGE and r.src[0].op is Ops.CONST]
        if not ranges or any(r.op is Ops.RANGE and r not in ranges for r in self.leaves):
            return expression
        r = self.random.choice(ranges)
        self.pool.append(r)
        dtype = self.random.choice((dtypes.int32, dtypes.index))
        value = expression.cast(dtype)
        if self.chance(0.4):
            value = value.const_like(self.random.randint(1, 5))
        subject = r if self.chance(0.6) else r + self.random.choice(self.leaves)
        condition, dice = self.condition(subject), self.random.random()
        if dice < 0.2:
            value = condition.cast(dtype) * value
        elif dice < 0.3:
            value = condition.where(value.const_like(0), value)
        elif dice < 0.4:
            value = condition.where(value, value + 1)
        else:
            value = condition.where(value, value.const_like(0))
        if self.chance(0.15):
            value = value + self.condition(r).where(value.const_like(1), value.const_like(0))
        return value.reduce(Ops.ADD, r)

    # *** rules: each gives a node and a number that its values do not exceed ***

    def add(self) -> tuple[UOp, int]:
        a, b = self.operand(), self.random.choice(self.pool)
        return a + b, self.of(a) + self.of(b)

    def subtract(self) -> tuple[UOp, int]:
        a, b = self.operand(), self.random.choice(self.pool)
        return a - b, self.of(a) + self.of(b)

    def shift(self) -> tuple[UOp, int]:
        a, c = self.operand(), self.random.randint(-12, 12)
        return a + c, self.of(a) + abs(c)

    def scale(self) -> tuple[UOp, int]:
        a, c = self.operand(), self.random.choice(self.numbers)
        c = -c if self.chance(0.25) else c
        return a * c, self.of(a) * abs(c)

    def multiply(self) -> tuple[UOp, int]:
        a, b = self.operand(), self.random.choice(self.pool)
        return a * b, self.of(a) * self.of(b)

    def divide(self) -> tuple[UOp, int]:
        a = self.operand()
        return a // self.random.choice(self.numbers), self.of(a) + 1

    def remainder(self) -> tuple[UOp, int]:
        a, c = self.operand(), self.random.choice(self.numbers)
        return a % c, c

    def divide_by_negative(self) -> tuple[UOp, int]:
        a, c = self.operand(), -self.random.choice(self.numbers)
        return (a // c, self.of(a) + 1) if self.chance(0.5) else (a % c, -c)

    def divide_by_expression(self) -> tuple[UOp, int]:
        a, d = self.operand(), self.divisor()
        limit = self.of(a)
        if self.chance(0.3):
            other = self.random.choice(self.pool)
            limit = limit * self.of(d) + self.of(other)
            a = a * d + other
        limit = max(limit, self.of(d)) + 1
        return (a // d if self.chance(0.5) else a % d), limit

    def divisor(self) -> UOp:
        """An expression that is never 0."""
        positive = [leaf for leaf in self.leaves if leaf.vmin > 0]
        if positive and self.chance(0.6):
            found = self.random.choice(positive)
            limit = found.vmax
        else:
            inner = self.random.choice(self.pool)
            found, limit = inner * 2 + 1, self.of(inner) * 2 + 1
            if self.chance(0.5):
                found, limit = inner.maximum(1), max(self.of(inner), 1)
        if self.chance(0.3):
            factor = self.random.choice((2, 3, -1, 4))
            found, limit = found * factor, limit * abs(factor)
        self.magnitude[found] = min(self.magnitude.get(found, limit), limit)
        return found

    def greatest(self) -> tuple[UOp, int]:
        a, b = self.operand(), self.random.choice(self.pool)
        if self.chance(0.5):
            b = self.constant_for(a)
        found = a.maximum(b) if self.chance(0.6) else a.minimum(b)
        return found, max(self.of(a), self.of(b))

    def choose(self) -> tuple[UOp, int]:
        a, b = self.operand(), self.random.choice(self.pool)
        if self.chance(0.3):
            b = a.const_like(self.random.randint(-3, 12))
        condition = self.condition(self.random.choice(self.pool))
        return condition.where(a, b), max(self.of(a), self.of(b))

    def count(self) -> tuple[UOp, int]:
        return self.condition(self.operand()).cast(dtypes.index), 1

    def through_int32(self) -> tuple[UOp, int]:
        a = self.operand()
        return a.cast(dtypes.int32).cast(dtypes.index), max(self.of(a), 1 << 31)

    def flat(self) -> tuple[UOp, int]:
        """A position in strided memory."""
        total, magnitude = self.leaves[0].const_like(0), 0
        for leaf in self.leaves:
            stride = self.random.choice((1, *self.numbers)) * (-1 if self.chance(0.15) else 1)
            total, magnitude = total + leaf * stride, magnitude + self.of(leaf) * abs(stride)
        offset = self.random.randint(-4, 20) if self.chance(0.5) else 0
        return total + offset, magnitude + abs(offset)

    def contiguous(self) -> tuple[UOp, int]:
        """The position in memory without gaps, in some order of axes."""
        order = self.random.sample(self.leaves, len(self.leaves))
        total, stride, magnitude = self.leaves[0].const_like(0), 1, 0
        for leaf in order:
            total, magnitude = total + leaf * stride, magnitude + self.of(leaf) * stride
            stride *= leaf.vmax - leaf.vmin + 1
        return total, magnitude

    def unravel(self) -> tuple[UOp, int]:
        """One axis of a position."""
        a, c, d = self.operand(), *self.random.choices(self.numbers, k=2)
        return (a // c) % d, d


_WEIGHTED: tuple[tuple[Callable[[_Indices], tuple[UOp, int]], float], ...] = (
    (_Indices.add, 3),
    (_Indices.subtract, 1),
    (_Indices.shift, 2),
    (_Indices.scale, 3),
    (_Indices.multiply, 0.7),
    (_Indices.divide, 3),
    (_Indices.remainder, 3),
    (_Indices.divide_by_negative, 0.5),
    (_Indices.divide_by_expression, 0.8),
    (_Indices.greatest, 1),
    (_Indices.choose, 1),
    (_Indices.count, 0.6),
    (_Indices.through_int32, 0.25),
    (_Indices.flat, 1.5),
    (_Indices.contiguous, 1.2),
    (_Indices.unravel, 1.5),
)
_INDEX_RULES = [rule for rule, _ in _WEIGHTED]
_INDEX_WEIGHTS = [weight for _, weight in _WEIGHTED]


class _MachineIntegers(_Expressions):
    """Expressions of integers that wrap around, whose division truncates."""

    def __init__(self, source: random.Random) -> None:
        super().__init__(source)
        self.dtype = source.choice(MACHINE)
        for number in range(source.choice((1, 2, 2))):
            self.leaves.append(self.leaf("xyz"[number]))

    def leaf(self, name: str) -> UOp:
        low, high = dtypes.min(self.dtype), dtypes.max(self.dtype)
        width = self.random.randint(1, 15)
        start = self.random.choice(
            (low, low, high - width, high - width, 0, 1, max(low, -width // 2))
        )
        if self.chance(0.2):
            start = self.random.randint(low, high - width)
        return UOp(Ops.DEFINE_VAR, self.dtype, (), (name, start, start + width))

    def of_type(self, dtype: DType) -> UOp:
        """A node of the type, made by a cast if there is none."""
        same = [n for n in self.pool if n.dtype is dtype]
        if same and self.chance(0.9):
            return same[-1] if self.chance(0.5) else self.random.choice(same)
        return self.operand().cast(dtype)

    def constant(self) -> UOp:
        low, high = dtypes.min(self.dtype), dtypes.max(self.dtype)
        choices = (
            *(1, 1, 2, 3, 4, 5, 7, 8, 12, 16, 0, -1, -1, -2, -3, -7),
            *(low, low + 1, low // 2, high, high - 1, high // 2, high // 2 + 1, high // 3),
        )
        value = self.random.choice(choices)
        return UOp.const(self.dtype, value if low <= value <= high else 3)

    def finish(self, expression: UOp) -> UOp:
        if expression.dtype is dtypes.bool or self.chance(0.6):
            return expression
        if self.chance(0.3):
            return expression.cast(self.random.choice(MACHINE))
        position = expression.cast(dtypes.index)  # as a loaded position becomes an index
        size = self.random.randint(2, 12)
        if self.chance(0.5):
            return position + size
        inside = (position < 0).logical_not() & (position < size)
        return inside.where(position * 2 if self.chance(0.5) else position, Invalid)

    def step(self) -> UOp:
        a = self.of_type(self.dtype)
        b = self.constant() if self.chance(0.55) else self.random.choice(self.pool)
        if b.dtype is not self.dtype:
            b = b.cast(self.dtype)
        dice = self.random.random()
        if dice < 0.08:
            return a.cast(self.random.choice((*MACHINE, dtypes.index)))
        if dice < 0.13:
            return self.condition(a).cast(self.dtype)
        if dice < 0.23:
            return self.condition(a).where(b, self.of_type(self.dtype))
        if dice < 0.3:
            shift = UOp.const(self.dtype, self.random.randrange(self.dtype.bitsize))
            return a.alu(self.random.choice((Ops.SHL, Ops.SHR)), shift)
        if dice < 0.32:
            return a.alu(Ops.NEG)
        op = self.random.choice(_MACHINE_OPS)
        if op in (Ops.IDIV, Ops.MOD) and b.vmin <= 0 <= b.vmax:
            b = UOp.const(self.dtype, self.random.choice((1, 2, 3, 5, 8)))
        return a.alu(op, b)


_MACHINE_OPS = (
    *(Ops.ADD, Ops.ADD, Ops.ADD, Ops.MUL, Ops.MUL, Ops.SUB, Ops.IDIV, Ops.IDIV, Ops.MOD, Ops.MOD),
    *(Ops.MAX, Ops.AND, Ops.OR, Ops.XOR),
)


# *** looking for flaws ***


def run(count: int, seed: int) -> list[Flaw]:
    """The flaws among so many random cases, as they were found."""
    flaws: list[Flaw] = []
    generator = Generator(seed).cases()
    for _ in range(count):
        case = next(generator)
        try:
            flaw = find_flaw(case)
        except Undefined:
            continue
        if flaw is not None:
            flaws.append(flaw)
    return flaws


# *** making flaws small ***


def shrink(flaw: Flaw, most_seconds: float = 20.0) -> Flaw:
    """The same kind of flaw in the smallest case that small steps lead to."""
    deadline = time.monotonic() + most_seconds
    found = True
    while found and time.monotonic() < deadline:
        found = False
        for case in _smaller(flaw.case):
            if _weight(case) >= _weight(flaw.case):
                continue
            try:
                again = find_flaw(case)
            except Undefined:
                continue
            if again is not None and again.check == flaw.check:
                flaw, found = again, True
                break
            if time.monotonic() > deadline:
                break
    return flaw


def _weight(case: Case) -> tuple[int, int]:
    roots = [case.expression] if case.condition is None else [case.expression, case.condition]
    nodes = {n for root in roots for n in root.toposort()}
    numbers = 0
    for node in nodes:
        if node.op is Ops.CONST and node.arg is not Invalid:
            numbers += 2 * abs(int(node.arg)) + (node.arg < 0)
        elif node.op is Ops.DEFINE_VAR:
            numbers += 3 * (node.arg[2] - node.arg[1]) + abs(node.arg[1]) + abs(node.arg[2])
    return len(nodes), numbers


def _smaller(case: Case) -> Iterator[Case]:
    """Cases with one node less, or smaller numbers."""
    if case.condition is not None:
        yield replace(case, condition=None)
    if case.position > 0:
        yield from (replace(case, position=p) for p in (-1, 0, case.position // 2))
    roots = [case.expression] if case.condition is None else [case.expression, case.condition]
    nodes = {n: None for root in roots for n in root.toposort()}
    for node in reversed(nodes):
        for other in _replacements(node):
            table = {node: other}
            condition = case.condition
            if condition is not None:
                condition = condition.substitute(table)
            yield replace(case, expression=case.expression.substitute(table), condition=condition)


def _replacements(node: UOp) -> Iterator[UOp]:
    if node.op is Ops.CONST:
        if node.arg is Invalid or node.dtype is dtypes.bool:
            return
        for value in (0, 1, node.arg // 2, node.arg - 1, node.arg + 1, -node.arg):
            if value != node.arg:
                yield node.const_like(value)
        return
    yield from (s for s in node.src if s.dtype is node.dtype)
    yield from (s for inner in node.src for s in inner.src if s.dtype is node.dtype)
    if node.op not in LEAVES:
        yield from (node.const_like(v) for v in (0, 1))
    elif node.op is Ops.DEFINE_VAR:
        name, low, high = node.arg
        middle = (low + high) // 2
        for bounds in ((low, low), (low, middle), (low, high - 1), (low + 1, high), (0, high)):
            if bounds[0] <= bounds[1]:
                yield node.replace(arg=(name, *bounds))
    elif node.src[0].op is not Ops.CONST:
        yield UOp.range(node.src[0].vmax, node.arg[0])


# *** the command ***


def main() -> None:
    """Looks for flaws for some time."""
    parser = argparse.ArgumentParser(description="simplify random expressions and compare values")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=20, help="stop after so many flaws")
    options = parser.parse_args()
    end, seed, total, found = time.monotonic() + options.minutes * 60, options.seed, 0, 0
    while time.monotonic() < end and found < options.most:
        for flaw in run(2000, seed):
            found += 1
            print(f"# seed {seed}\n{shrink(flaw)}\n", flush=True)
            if found >= options.most:
                break
        total += 2000
        seed += 1
    print(f"{total} expressions, {found} flaws")


if __name__ == "__main__":
    main()
