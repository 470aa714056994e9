"""Copies of what is about to be overwritten, where a graph needs the old value too late.

Each assign makes a new version of its memory; a version is the BUFFER, or an ASSIGN to it. A step
(whatever is stored: an assign, a contiguous, a copy, an output) that reads a version must run
before the assign that overwrites it. Where steps would have to run before each other, the versions
that they read are copied, and the copies are read instead. A copy needs nothing but the version
itself, so after that there is an order.
"""

from __future__ import annotations

from tgcore.uop.node import UOp
from tgcore.uop.ops import GroupOp, Ops

_STORED = frozenset({Ops.ASSIGN, Ops.CONTIGUOUS, Ops.COPY})


def version_before(assign: UOp) -> UOp:
    """The version of the memory that an assign overwrites."""
    node = assign.src[0]
    while node.op not in (Ops.BUFFER, Ops.ASSIGN) and node.src:
        node = node.src[0]
    return node


def with_copies(roots: list[UOp]) -> dict[UOp, UOp]:
    """The roots with copies of versions read instead of these, where there is no order without;
    empty if that is nowhere."""
    nodes = UOp.sink(*roots).toposort()
    nodes.popitem()
    overwriters: dict[UOp, set[UOp]] = {}
    for node in nodes:
        if node.op is Ops.ASSIGN:
            overwriters.setdefault(version_before(node), set()).add(node)
    steps = dict.fromkeys([*(n for n in nodes if n.op in _STORED), *roots])
    reads = {step: _versions_read(step, overwriters) for step in steps}
    later: dict[UOp, set[UOp]] = {step: set() for step in steps}
    for step in steps:
        for source in _steps_read(step):
            later[source].add(step)
        for version in reads[step]:
            later[step] |= overwriters[version] - {step}
    circles = _circles(later)
    copied = {
        version
        for step in steps
        for version in reads[step]
        if any(o is not step and circles[o] == circles[step] for o in overwriters[version])
    }
    return _rewritten(nodes, roots, copied) if copied else {}


def _inside(step: UOp) -> dict[UOp, None]:
    """The nodes that a step computes itself."""
    value = step.src[1] if step.op is Ops.ASSIGN else step
    inside = value.toposort(lambda n: n is step or n.op not in (*_STORED, Ops.BUFFER))
    if step.op is Ops.ASSIGN:
        inside[step] = None
    return inside


def _versions_read(step: UOp, versions: dict[UOp, set[UOp]]) -> set[UOp]:
    read = {s for n in _inside(step) for s in _values(n) if s in versions}
    return read | ({step} & versions.keys() if step.op is Ops.BUFFER else set())


def _values(node: UOp) -> tuple[UOp, ...]:
    """The sources of which the node reads the values: an assign does not read its target."""
    return node.src[1:] if node.op is Ops.ASSIGN else node.src


def _steps_read(step: UOp) -> set[UOp]:
    found = {s for n in _inside(step) for s in n.src if s.op in _STORED}
    if step.op is Ops.ASSIGN and (before := version_before(step)).op is Ops.ASSIGN:
        found.add(before)
    return found - {step}


def _circles(later: dict[UOp, set[UOp]]) -> dict[UOp, int]:
    """A number for each step, the same for those that would have to run before each other: the
    strongly connected components (Kosaraju's algorithm)."""
    finished = _by_finishing_time(later)
    earlier: dict[UOp, set[UOp]] = {step: set() for step in later}
    for step, others in later.items():
        for other in others:
            earlier[other].add(step)
    number: dict[UOp, int] = {}
    for count, start in enumerate(reversed(finished)):
        stack = [start]
        while stack:
            step = stack.pop()
            if step not in number:
                number[step] = count
                stack.extend(earlier[step])
    return number


def _by_finishing_time(later: dict[UOp, set[UOp]]) -> list[UOp]:
    finished: dict[UOp, None] = {}
    entered: set[UOp] = set()
    for start in later:
        stack = [(start, False)]
        while stack:
            step, done = stack.pop()
            if done:
                finished[step] = None
            elif step not in entered:
                entered.add(step)
                stack.append((step, True))
                stack.extend((other, False) for other in later[step])
    return list(finished)


def _rewritten(nodes: dict[UOp, None], roots: list[UOp], copied: set[UOp]) -> dict[UOp, UOp]:
    values: dict[UOp, UOp] = {}  # what stands for a node where its value is read
    memory: dict[UOp, UOp] = {}  # and where it is written
    for node in nodes:
        if node.op is Ops.ASSIGN:
            target = _on_top(node.src[0], memory)
            new = node.replace(src=(target, values[node.src[1]]))
        else:
            src = tuple(values[s] for s in node.src)
            new = node if src == node.src else node.replace(src=src)
        memory[node] = new
        values[node] = _copy(new) if node in copied else new
    return {root: (memory if root.op is Ops.ASSIGN else values)[root] for root in roots}


def _on_top(view: UOp, memory: dict[UOp, UOp]) -> UOp:
    """The same view of a version's replacement."""
    chain = []
    while view.op in GroupOp.Movement or view.op is Ops.BITCAST:
        chain.append(view)
        view = view.src[0]
    new = memory[view]
    for node in reversed(chain):
        new = node.replace(src=(new, *node.src[1:]))
    return new


def _copy(version: UOp) -> UOp:
    device = version.device
    assert device is not None
    memory = UOp.new_buffer(device, version.size, version.dtype)
    return memory.reshape(version.known_shape).assign(version)
