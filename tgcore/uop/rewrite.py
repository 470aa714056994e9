"""graph_rewrite: rules applied to every node of a graph until none matches any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from tgcore.errors import RewriteLoopError
from tgcore.uop import trace
from tgcore.uop.node import UOp
from tgcore.uop.pattern import PatternMatcher

Match: TypeAlias = Callable[[UOp, Any], "UOp | None"]

# rewrites of one graph before it is held to be endless, a multiple of its nodes
_LIMIT_PER_NODE = 2000


def graph_rewrite(
    root: UOp,
    matcher: PatternMatcher,
    ctx: Any = None,
    name: str = "",
    bottom_up: bool = False,
) -> UOp:
    """The graph after the rules were applied everywhere, to a fixed point.

    Sources are rewritten before the nodes that use them. With `bottom_up` a node is matched before
    its sources are, and what the rule returns is then entered.
    """
    rewrite = _rewrite_before_sources if bottom_up else _rewrite_after_sources
    if not trace.wanted():
        return rewrite(root, matcher.rewrite, ctx, name)
    with trace.recording(name, root) as recorder:
        result = rewrite(root, recorder.matcher(matcher), ctx, name)
        if recorder.record.before is not None:
            recorder.record.after = result
    return result


def _rewrite_after_sources(root: UOp, match: Match, ctx: Any, name: str) -> UOp:
    done: dict[UOp, UOp] = {}
    steps = 0
    # an entry is (node, what it became while waiting for that to be done, or None)
    stack: list[tuple[UOp, UOp | None]] = [(root, None)]
    while stack:
        node, became = stack.pop()
        if node in done:
            continue
        if became is not None:
            done[node] = done[became]
            continue
        src = node.src
        pending = [s for s in src if s not in done]
        if pending:
            stack.append((node, None))
            stack.extend([(s, None) for s in reversed(pending)])
            continue
        new_src = tuple([done[s] for s in src])
        if new_src != src:
            rebuilt = UOp(node.op, node.dtype, new_src, node.arg, node.tag)
            if rebuilt in done:
                done[node] = done[rebuilt]
                continue
        else:
            rebuilt = node
        result = match(rebuilt, ctx)
        if result is None:
            done[node] = done[rebuilt] = rebuilt
            continue
        steps += 1
        if steps > 1000 and steps > _LIMIT_PER_NODE * len(done):
            _raise_loop(name, rebuilt, result)
        stack.append((node, result))
        if result not in done:
            stack.append((result, None))
    return done[root]


def _rewrite_before_sources(root: UOp, match: Match, ctx: Any, name: str) -> UOp:
    done: dict[UOp, UOp] = {}
    matched: dict[UOp, UOp] = {}
    stack: list[tuple[UOp, UOp | None]] = [(root, None)]
    while stack:
        node, became = stack.pop()
        if node in done:
            continue
        if became is not None:
            done[node] = done[became]
            continue
        final = matched.get(node)
        if final is None:
            final, steps = node, 0
            while (result := match(final, ctx)) is not None:
                final = result
                steps += 1
                if steps > _LIMIT_PER_NODE:
                    _raise_loop(name, node, final)
            matched[node] = matched[final] = final
        if final is not node:
            stack.append((node, final))
            stack.append((final, None))
            continue
        pending = [s for s in final.src if s not in done]
        if pending:
            stack.append((node, None))
            stack.extend([(s, None) for s in reversed(pending)])
            continue
        new_src = tuple([done[s] for s in final.src])
        if new_src == final.src:
            done[node] = final
            continue
        rebuilt = UOp(final.op, final.dtype, new_src, final.arg, final.tag)
        stack.append((node, rebuilt))
        if rebuilt not in done:
            stack.append((rebuilt, None))
    return done[root]


def _raise_loop(name: str, before: UOp, after: UOp) -> None:
    raise RewriteLoopError(f"the rules of pass {name!r} do not end: {before} became {after}")
