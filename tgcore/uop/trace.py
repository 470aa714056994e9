"""What rewriting does, as data: for each pass its graphs, its rules' matches, and the time.

With TRACE_REWRITES=1 every named rewrite is kept in `rewrites()`. While SPEC is set, only the pass
and the rule that are at work are known, so that a node can say what made it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tgcore.helpers import SPEC, TRACE_REWRITES
from tgcore.uop.node import UOp

if TYPE_CHECKING:
    from tgcore.uop.pattern import PatternMatcher, Rule


@dataclass(frozen=True, slots=True)
class Match:
    """One node that a rule replaced. `seconds` are those of the rule's function."""

    rule: str  # file and line of the rule's function
    before: UOp
    after: UOp
    seconds: float


@dataclass(slots=True)
class RuleTotals:
    """How often a rule was tried, how often it matched, and the seconds it took in all (without
    those of rewrites that it started)."""

    tries: int = 0
    matches: int = 0
    seconds: float = 0.0


@dataclass
class Rewrite:
    """One run of a pass over a graph.

    `seconds` is the whole time, `own_seconds` is without rewrites that its rules started;
    `depth` counts the rewrites around it. `matches` is empty if only totals were asked for.
    """

    name: str
    depth: int
    before: UOp | None
    after: UOp | None = None
    seconds: float = 0.0
    own_seconds: float = 0.0
    matches: list[Match] = field(default_factory=list)
    rules: dict[str, RuleTotals] = field(default_factory=dict)


_rewrites: Final[list[Rewrite]] = []
_active: Final[list[_Recorder]] = []


def rewrites() -> list[Rewrite]:
    """All rewrites since tracing was last cleared, in the order in which they began."""
    return list(_rewrites)


def clear() -> None:
    """Forget what was traced."""
    _rewrites.clear()


def wanted() -> bool:
    """Whether somebody wants to know what rewriting does."""
    return bool(SPEC.value or TRACE_REWRITES.value)


def at_work() -> str | None:
    """The pass, and the rule of it, that is being applied now."""
    return _active[-1].at_work() if _active else None


# what to do with nodes that got new sources from a pass, once it is known that they stay
_rebuilt: Final[dict[UOp, Callable[[UOp], None]]] = {}


def when_settled(node: UOp, action: Callable[[UOp], None]) -> bool:
    """Whether a pass is putting new sources into this node; then the action is called with it if no
    rule replaces it: until then its type need not fit those of its sources."""
    if not _active or _active[-1].rule is not None:
        return False
    _rebuilt[node] = action
    return True


def _settle(node: UOp) -> None:
    if (action := _rebuilt.pop(node, None)) is not None:
        action(node)


class _Recorder:
    """Matches nodes for one rewrite and writes down what happens."""

    def __init__(self, name: str, root: UOp) -> None:
        self.level = int(TRACE_REWRITES.value)
        self.record = Rewrite(name, len(_active), root if self.level == 1 else None)
        self.rule: Rule | None = None
        self.nested = 0.0  # seconds spent in rewrites that rules of this one started

    def at_work(self) -> str:
        name = self.record.name or "unnamed"
        if self.rule is None:
            return f"pass {name!r}, which put new sources in"
        return f"pass {name!r}, rule {self.rule.location}"

    def matcher(self, matcher: PatternMatcher) -> Callable[[UOp, Any], UOp | None]:
        """`matcher.rewrite`, watched."""
        return self._timed(matcher) if self.level else self._named(matcher)

    def _named(self, matcher: PatternMatcher) -> Callable[[UOp, Any], UOp | None]:
        def match(node: UOp, ctx: Any) -> UOp | None:
            for rule in matcher.candidates(node):
                self.rule = rule
                result = rule.run(node, ctx)
                self.rule = None
                if result is not None and result is not node:
                    _rebuilt.pop(node, None)
                    return result
            _settle(node)
            return None

        return match

    def _timed(self, matcher: PatternMatcher) -> Callable[[UOp, Any], UOp | None]:
        clock, keep = time.perf_counter, self.level == 1

        def match(node: UOp, ctx: Any) -> UOp | None:
            for rule in matcher.candidates(node):
                rule.prepare()
                self.rule, nested, start = rule, self.nested, clock()
                result = rule.run(node, ctx)
                seconds = clock() - start - (self.nested - nested)
                totals = self.record.rules.setdefault(rule.location, RuleTotals())
                totals.tries += 1
                totals.seconds += seconds
                self.rule = None
                if result is not None and result is not node:
                    totals.matches += 1
                    if keep:
                        self.record.matches.append(Match(rule.location, node, result, seconds))
                    _rebuilt.pop(node, None)
                    return result
            _settle(node)
            return None

        return match


@contextlib.contextmanager
def recording(name: str, root: UOp) -> Iterator[_Recorder]:
    """Records one rewrite; the block sets `record.after`."""
    recorder = _Recorder(name, root)
    if recorder.level:
        _rewrites.append(recorder.record)
    _active.append(recorder)
    start = time.perf_counter()
    try:
        yield recorder
    finally:
        _active.pop()
        if not _active:
            _rebuilt.clear()
        record = recorder.record
        record.seconds = time.perf_counter() - start
        record.own_seconds = record.seconds - recorder.nested
        if _active:
            _active[-1].nested += record.seconds
