"""What a spec is: families of rules, each about one subject."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tgcore.uop.node import UOp
from tgcore.uop.pattern import PatternMatcher, UPat


@dataclass(frozen=True)
class Family:
    """Rules about one subject; `demand` says in words what they ask for."""

    name: str
    demand: str
    rules: Sequence[tuple[UPat, Callable[..., bool]]]


class Spec:
    """What a level allows: families of rules, and vetoes, which no rule can overrule."""

    def __init__(
        self, level: str, families: Sequence[Family], vetoes: Sequence[Family] = ()
    ) -> None:
        self.level, self.families, self.vetoes = level, tuple(families), tuple(vetoes)
        self._allow = _matcher(self.families)
        self._veto = _matcher(self.vetoes)

    def allows(self, node: UOp) -> bool:
        """Whether the node is legal."""
        if self.vetoes and _holds(self._veto, node):
            return False
        return _holds(self._allow, node)

    def broken(self, node: UOp) -> list[Family]:
        """The families that an illegal node violates: vetoes, or those that know its op."""
        if found := [f for f in self.vetoes if _holds(_matcher([f]), node)]:
            return found
        return [f for f in self.families if any(_is_about(p, node) for p, _ in f.rules)]


def _matcher(families: Iterable[Family]) -> PatternMatcher:
    return PatternMatcher([rule for family in families for rule in family.rules])


def _holds(matcher: PatternMatcher, node: UOp) -> bool:
    for rule in matcher.candidates(node):
        verdict: object = rule.run(node, None)
        if verdict is True:
            return True
    return False


def _is_about(pattern: UPat, node: UOp) -> bool:
    return pattern.op is not None and node.op in pattern.op
