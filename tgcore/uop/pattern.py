"""Patterns over nodes, and matchers: lists of (pattern, function), compiled when first needed.

A rule's function gets the named nodes as arguments (and `ctx` if it asks for it) and returns what
replaces the node, or None for "no match". Every rule becomes a small Python function of straight
checks; before it is called at all, the ops of the node's sources are compared with those that the
pattern needs, as bit masks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from tgcore.dtype import DType
from tgcore.uop.node import UOp
from tgcore.uop.ops import GroupOp, Ops

OpSpec: TypeAlias = Ops | Iterable[Ops] | None


class UPat:
    """A pattern that a node may match.

    `src` as a tuple gives the sources in order, as a list in any order, and as one pattern says
    what every source must be. `any_len` lets a tuple match the first sources only.
    """

    __slots__ = ("alternatives", "any_len", "arg", "dtype", "has_arg", "name", "op", "src")

    def __init__(
        self,
        op: OpSpec = None,
        dtype: DType | Iterable[DType] | None = None,
        src: tuple[UPat, ...] | list[UPat] | UPat | None = None,
        name: str | None = None,
        any_len: bool = False,
        **arg: Any,
    ) -> None:
        self.op = (op,) if isinstance(op, Ops) else None if op is None else tuple(op)
        self.dtype = (dtype,) if isinstance(dtype, DType) else dtype and tuple(dtype)
        self.src, self.name, self.any_len = src, name, any_len
        self.has_arg, self.arg = "arg" in arg, arg.get("arg")
        self.alternatives: tuple[UPat, ...] = ()

    # *** the usual patterns ***

    @staticmethod
    def var(name: str | None = None, dtype: DType | Iterable[DType] | None = None) -> UPat:
        """Any node."""
        return UPat(dtype=dtype, name=name)

    @staticmethod
    def cvar(name: str | None = None, dtype: DType | Iterable[DType] | None = None) -> UPat:
        """Any constant that is the same in all lanes."""
        return UPat(Ops.CONST, dtype, name=name)

    @staticmethod
    def const(value: Any, dtype: DType | Iterable[DType] | None = None) -> UPat:
        """This constant."""
        return UPat(Ops.CONST, dtype, arg=value)

    @staticmethod
    def any(*patterns: UPat) -> UPat:
        """What matches one of these, tried in order."""
        pattern = UPat()
        pattern.alternatives = patterns
        return pattern

    def named(self, name: str) -> UPat:
        """The same pattern, with a name."""
        copy = self._copy()
        copy.name = name
        return copy

    def _copy(self) -> UPat:
        copy = UPat(self.op, self.dtype, self.src, self.name, self.any_len)
        copy.has_arg, copy.arg, copy.alternatives = self.has_arg, self.arg, self.alternatives
        return copy

    # *** operators ***

    def alu(self, op: Ops, *others: Any) -> UPat:
        """The op of this and the others, in any order if it commutes."""
        src = [self, *(o if isinstance(o, UPat) else UPat.const(o) for o in others)]
        return UPat(op, src=src if op in GroupOp.Commutative else tuple(src))

    def __add__(self, other: Any) -> UPat:
        return self.alu(Ops.ADD, other)

    def __mul__(self, other: Any) -> UPat:
        return self.alu(Ops.MUL, other)

    def __floordiv__(self, other: Any) -> UPat:
        return self.alu(Ops.IDIV, other)

    def __mod__(self, other: Any) -> UPat:
        return self.alu(Ops.MOD, other)

    def __and__(self, other: Any) -> UPat:
        return self.alu(Ops.AND, other)

    def __or__(self, other: Any) -> UPat:
        return self.alu(Ops.OR, other)

    def __xor__(self, other: Any) -> UPat:
        return self.alu(Ops.XOR, other)

    def __lshift__(self, other: Any) -> UPat:
        return self.alu(Ops.SHL, other)

    def __rshift__(self, other: Any) -> UPat:
        return self.alu(Ops.SHR, other)

    def __lt__(self, other: Any) -> UPat:
        return self.alu(Ops.CMPLT, other)

    def ne(self, other: Any) -> UPat:
        """Elementwise inequality."""
        return self.alu(Ops.CMPNE, other)

    def eq(self, other: Any) -> UPat:
        """Elementwise equality, as the op of its own."""
        return self.alu(Ops.CMPEQ, other)

    def logical_not(self) -> UPat:
        """The negation of a condition."""
        return self.ne(True)

    def maximum(self, other: Any) -> UPat:
        """The greater one."""
        return self.alu(Ops.MAX, other)

    def where(self, yes: Any, no: Any) -> UPat:
        """A choice by this condition."""
        return self.alu(Ops.WHERE, yes, no)

    def cast(self, dtype: DType | Iterable[DType] | None = None, name: str | None = None) -> UPat:
        """This in another type."""
        return UPat(Ops.CAST, dtype, (self,), name)

    def index(self, *indices: UPat, name: str | None = None) -> UPat:
        """The element of this at the indices."""
        return UPat(Ops.INDEX, src=(self, *indices), name=name)

    def load(self, *src: UPat, name: str | None = None) -> UPat:
        """What memory holds at this address."""
        return UPat(Ops.LOAD, src=(self, *src), name=name, any_len=not src)

    def store(self, value: UPat, name: str | None = None) -> UPat:
        """The value written to this address."""
        return UPat(Ops.STORE, src=(self, value), name=name)


def _expand_alternatives(pattern: UPat) -> list[UPat]:
    """The patterns without `any` which together match the same."""
    if pattern.alternatives:
        options = [e for a in pattern.alternatives for e in _expand_alternatives(a)]
        return [o.named(pattern.name) for o in options] if pattern.name else options
    if not isinstance(pattern.src, (tuple, list)):
        return [pattern]
    expanded = []
    for choice in itertools.product(*(_expand_alternatives(s) for s in pattern.src)):
        copy = pattern._copy()
        copy.src = type(pattern.src)(choice)
        expanded.append(copy)
    return expanded


def _source_mask(pattern: UPat) -> int:
    """A bit for every op that must be among the sources."""
    mask = 0
    if isinstance(pattern.src, (tuple, list)):
        for source in pattern.src:
            if source.op is not None and len(source.op) == 1:
                mask |= 1 << source.op[0]
    return mask


class _RuleWriter:
    """Writes a rule as the text of a Python function."""

    def __init__(self) -> None:
        self.lines = ["def rule(n, ctx):"]
        self.depth = 0
        self.counter = itertools.count()
        self.names: dict[str, str] = {}
        self.values: dict[str, Any] = {}

    def emit(self, text: str) -> None:
        self.lines.append("    " * (self.depth + 1) + text)

    def fail_if(self, condition: str) -> None:
        self.emit(f"if {condition}: {'continue' if self.depth else 'return None'}")

    def fresh(self, prefix: str = "v") -> str:
        return f"{prefix}{next(self.counter)}"

    def value(self, value: Any) -> str:
        name = self.fresh("k")
        self.values[name] = value
        return name

    def node(self, pattern: UPat, var: str, check_op: bool = True) -> None:
        """The checks of one node: its own first, then those of its sources."""
        if check_op and pattern.op is not None:
            if len(pattern.op) == 1:
                self.fail_if(f"{var}.op is not {self.value(pattern.op[0])}")
            else:
                self.fail_if(f"{var}.op not in {self.value(frozenset(pattern.op))}")
        if pattern.dtype is not None:
            types = self.value(frozenset(pattern.dtype))
            self.fail_if(f"{var}.dtype not in {types} and {var}.dtype.scalar() not in {types}")
        if pattern.has_arg:
            self.fail_if(f"{var}.arg != {self.value(pattern.arg)}")
        if pattern.name is not None:
            if pattern.name in self.names:
                self.fail_if(f"{var} is not {self.names[pattern.name]}")
            else:
                self.names[pattern.name] = var

    def sources(self, pattern: UPat, var: str) -> None:
        if isinstance(pattern.src, UPat):
            test = self.value(_compile(pattern.src, None))
            self.fail_if(f"any({test}(s, None) is None for s in {var}.src)")
        elif pattern.src is not None:
            self._listed_sources(pattern, var, pattern.src)

    def _listed_sources(self, pattern: UPat, var: str, src: Sequence[UPat]) -> None:
        count, all_sources = len(src), self.fresh("s")
        self.emit(f"{all_sources} = {var}.src")
        self.fail_if(f"len({all_sources}) {'<' if pattern.any_len else '!='} {count}")
        if not count:
            return
        variables = [self.fresh() for _ in src]
        if isinstance(src, list) and count > 1 and not _alike(src):
            orders = ", ".join(
                "(" + ", ".join(f"{all_sources}[{i}]" for i in order) + ")"
                for order in itertools.permutations(range(count))
            )
            self.emit(f"for {', '.join(variables)} in ({orders}):")
            self.depth += 1
        else:
            for position, variable in enumerate(variables):
                self.emit(f"{variable} = {all_sources}[{position}]")
        # all cheap checks of the siblings come before anything deeper
        ordered = sorted(zip(src, variables), key=lambda pair: pair[0].op is None)
        for source, variable in ordered:
            self.node(source, variable)
        for source, variable in ordered:
            self.sources(source, variable)


def _alike(src: Sequence[UPat]) -> bool:
    """Whether swapping the patterns changes nothing."""
    return all(
        s.op is None and s.src is None and s.dtype is None and not s.has_arg and s.name is None
        for s in src
    )


def _compile(pattern: UPat, function: Callable[..., Any] | None) -> Callable[[UOp, Any], Any]:
    writer = _RuleWriter()
    writer.node(pattern, "n", check_op=function is None)
    writer.sources(pattern, "n")
    if function is None:
        writer.emit("return True")
    else:
        code = function.__code__
        wanted = code.co_varnames[: code.co_argcount]
        missing = [w for w in wanted if w != "ctx" and w not in writer.names]
        if missing:
            place = f"{code.co_filename}:{code.co_firstlineno}"
            raise TypeError(f"the rule at {place} wants {missing}, which its pattern does not name")
        given = ", ".join("ctx" if w == "ctx" else writer.names[w] for w in wanted)
        writer.values["function"] = function
        writer.emit(f"r = function({given})")
        writer.emit("if r is not None: return r")
    if writer.depth:
        writer.depth = 0
        writer.emit("return None")
    namespace = dict(writer.values)
    exec(compile("\n".join(writer.lines), "<rule>", "exec"), namespace)
    return namespace["rule"]  # type: ignore[no-any-return]


class Rule:
    """One pattern and its function; compiled on the first call."""

    __slots__ = ("function", "location", "pattern", "run", "source_mask")

    def __init__(self, pattern: UPat, function: Callable[..., Any]) -> None:
        self.pattern, self.function = pattern, function
        code = function.__code__
        self.location = f"{code.co_filename}:{code.co_firstlineno}"
        self.source_mask = _source_mask(pattern)
        self.run: Callable[[UOp, Any], UOp | None] = self._compile_and_run

    def _compile_and_run(self, node: UOp, ctx: Any) -> UOp | None:
        self.prepare()
        return self.run(node, ctx)

    def prepare(self) -> None:
        """Compile the rule, if that was not done yet."""
        if self.run == self._compile_and_run:
            self.run = _compile(self.pattern, self.function)


class PatternMatcher:
    """An ordered list of rules; the first that matches wins. `a + b` tries those of a first."""

    def __init__(self, rules: Iterable[tuple[UPat, Callable[..., Any]]]) -> None:
        self.rules = [Rule(p, f) for pattern, f in rules for p in _expand_alternatives(pattern)]
        self.by_op: dict[Ops, list[Rule]] = {}

    def __add__(self, other: PatternMatcher) -> PatternMatcher:
        combined = PatternMatcher(())
        known = set(self.rules)
        combined.rules = [*self.rules, *(r for r in other.rules if r not in known)]
        return combined

    def _rules_for(self, op: Ops) -> list[Rule]:
        found = [r for r in self.rules if r.pattern.op is None or op in r.pattern.op]
        self.by_op[op] = found
        return found

    def candidates(self, node: UOp) -> list[Rule]:
        """The rules that may match the node, as far as ops tell."""
        rules = self.by_op.get(node.op)
        if rules is None:
            rules = self._rules_for(node.op)
        mask = 0
        for source in node.src:
            mask |= 1 << source.op
        return [rule for rule in rules if not rule.source_mask & ~mask]

    def rewrite(self, node: UOp, ctx: Any = None) -> UOp | None:
        """What replaces the node, or None if no rule matches."""
        rules = self.by_op.get(node.op)
        if rules is None:
            rules = self._rules_for(node.op)
        if not rules:
            return None
        mask = 0
        for source in node.src:
            mask |= 1 << source.op
        for rule in rules:
            if rule.source_mask & ~mask:
                continue
            result = rule.run(node, ctx)
            if result is not None and result is not node:
                return result
        return None
