"""The graph over ranges is cut into kernels.

In: BUFFERIZE nodes read by INDEX. Out: a list of steps in an order that respects every dependence;
each step is a kernel, `SINK(END(STORE(INDEX(DEFINE_GLOBAL), value), ranges...))` with its ranges
numbered canonically (so equal kernels are one object), or a COPY, and the buffers it works on.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field

from tgcore.dtype import AddrSpace
from tgcore.errors import ScheduleError
from tgcore.schedule.movement import flat_index
from tgcore.schedule.realize import STORED
from tgcore.uop.node import UOp, to_sint
from tgcore.uop.ops import Ops
from tgcore.uop.rewrite import graph_rewrite
from tgcore.uop.symbolic import symbolic, symbolic_with_valid

# nodes inside a kernel that close loops
_CLOSERS = (Ops.REDUCE, Ops.BUFFERIZE)


@dataclass
class Step:
    """A kernel or a copy, before it has an order: the memory it works on and writes, the nodes
    that it reads, and the number of steps that must come first."""

    ast: UOp
    buffers: tuple[UOp, ...]
    written: UOp
    origin: UOp
    reads: tuple[UOp, ...]
    overwrites: UOp | None = None  # the node whose memory an assign writes over
    needs: set[int] = field(default_factory=set)


@dataclass
class Cut:
    """The steps of a graph, and where the value of each stored node lies."""

    steps: list[Step] = field(default_factory=list)
    storage: dict[UOp, UOp] = field(default_factory=dict)
    writer: dict[UOp, int] = field(default_factory=dict)  # of a stored node
    temporaries: int = 0

    def temporary(self, device: str, size: int, dtype: object) -> UOp:
        """New memory of this schedule; numbered, so that equal schedules are equal."""
        unique = UOp(Ops.UNIQUE, arg=("temporary", self.temporaries))
        self.temporaries += 1
        node = UOp(Ops.DEVICE, arg=device)
        return UOp(Ops.BUFFER, dtype, (unique, node), size)  # type: ignore[arg-type]


def cut_into_kernels(sink: UOp, default_device: str) -> Cut:
    """All steps that compute the sink's sources."""
    cut = Cut()
    for node in sink.toposort():
        if node.op is Ops.BUFFERIZE and node.arg.addrspace is AddrSpace.GLOBAL:
            _cut_kernel(cut, node, node.arg.device or default_device)
        elif node.op is Ops.COPY:
            _cut_copy(cut, node)
    _order_writes_after_reads(cut)
    return cut


def _cut_copy(cut: Cut, node: UOp) -> None:
    source = node.src[0]
    memory = cut.storage.get(source, source)
    size = memory.arg if memory.op is Ops.BUFFER else memory.arg[0]
    target = cut.temporary(node.src[1].arg, size, node.dtype)
    ast = UOp(Ops.COPY, node.dtype, (), size)
    _add_step(cut, Step(ast, (target, memory), target, node, (source,)))


def _add_step(cut: Cut, step: Step) -> None:
    sources = step.reads if step.overwrites is None else (*step.reads, step.overwrites)
    step.needs = {cut.writer[s] for s in sources if s in cut.writer}
    cut.storage[step.origin] = step.written
    cut.writer[step.origin] = len(cut.steps)
    cut.steps.append(step)


def _cut_kernel(cut: Cut, node: UOp, device: str) -> None:
    value, ranges = node.src[0], [r for r in node.src[1:] if r.op is Ops.RANGE]
    if value.op is Ops.ASSIGN:
        target, value = value.src
        overwrites = target.src[0]
        target_memory = cut.storage.get(overwrites, overwrites)
        index = target
    else:
        sizes = [to_sint(r.src[0]) for r in ranges]
        size = 1
        for s in sizes:
            size *= s if isinstance(s, int) else s.vmax
        target_memory = cut.temporary(device, size, node.dtype)
        index = target_memory.index(flat_index(sizes, ranges), dtype=node.dtype)
        overwrites = None
    table, memories = _parameters(cut, [index, value], target_memory)
    body = _with_parameters(index, table).store(_with_parameters(value, table))
    ast = canonical_kernel(UOp.sink(body.end(*ranges)))
    reads = tuple(_memory_nodes(cut, value))
    _add_step(cut, Step(ast, tuple(memories), target_memory, node, reads, overwrites))


def _memory_nodes(cut: Cut, root: UOp) -> dict[UOp, None]:
    """The nodes with storage that an expression reads or writes, in its order."""

    def computes(node: UOp) -> bool:
        return node not in cut.storage and node.op not in STORED

    if not computes(root):
        return {root: None}
    inside = root.toposort(computes)
    return {s: None for node in inside for s in node.src if not computes(s)}


def _parameters(cut: Cut, roots: Iterable[UOp], written: UOp) -> tuple[dict[UOp, UOp], list[UOp]]:
    """What replaces each node with storage in a kernel, and the memories by parameter number."""
    memories: list[UOp] = [written]
    table: dict[UOp, UOp] = {}
    for root in roots:
        for node in _memory_nodes(cut, root):
            memory = cut.storage.get(node, node)
            if memory not in memories:
                memories.append(memory)
            size = memory.arg if memory.op is Ops.BUFFER else memory.arg[0]
            number = memories.index(memory)
            table[node] = UOp.define(Ops.DEFINE_GLOBAL, memory.dtype, size, number)
    return table, memories


def _with_parameters(root: UOp, table: dict[UOp, UOp]) -> UOp:
    """The expression over parameters, each read at its position in row-major order."""
    done: dict[UOp, UOp] = dict(table)
    for node in root.toposort(lambda n: n not in table):
        src = tuple([done.get(s, s) for s in node.src])
        if src == node.src:
            continue
        if node.op is Ops.INDEX and node.src[0] in table and node.src[0].op is Ops.BUFFERIZE:
            sizes = [to_sint(r.src[0]) for r in node.src[0].src[1:] if r.op is Ops.RANGE]
            if node.src[0].src[0].op is not Ops.ASSIGN:
                src = (src[0], flat_index(sizes, src[1:]))
        done[node] = node.replace(src=src)
    return done.get(root, root)


# *** canonical form ***


def canonical_kernel(ast: UOp) -> UOp:
    """The kernel with simplified indices, its ranges numbered in the order of their appearance."""
    ast = graph_rewrite(ast, symbolic_with_valid, name="simplify kernel")
    ast = _renumber(_loops_of_their_own(ast))
    # sums are sorted by range number, which may just have changed
    return graph_rewrite(ast, symbolic, name="sort indices")


def _loops_of_their_own(ast: UOp) -> UOp:
    """An expression that stands at two places in the kernel (as storage was removed) closes the
    same ranges at both. They are one loop only if they lie in the same loops side by side; else the
    second gets ranges of its own, which may tell apart what lies inside of it."""
    while True:
        closers = [n for n in ast.toposort() if n.op in _CLOSERS]
        closed = [r for n in closers for r in n.src[1:] if r.op is Ops.RANGE]
        if len(set(closed)) == len(closed):
            return ast
        separated = _separate_loops(ast)
        if separated is ast:
            return ast
        ast = separated


def _separate_loops(ast: UOp) -> UOp:
    first: dict[UOp, UOp] = {}
    number = itertools.count(1 + max(n.arg[0] for n in ast.toposort() if n.op is Ops.RANGE))
    done: dict[UOp, UOp] = {}
    for node in ast.toposort():
        src = tuple([done.get(s, s) for s in node.src])
        new = node if src == node.src else node.replace(src=src)
        if node.op in _CLOSERS:
            ranges = [r for r in new.src[1:] if r.op is Ops.RANGE]
            taken = [r for r in ranges if not _may_share(first.setdefault(r, new), new)]
            own = {r: UOp.range(to_sint(r.src[0]), next(number), r.axis_type) for r in taken}
            body = new.src[0].substitute_ranges(own)
            new = new.replace(src=(body, *[own.get(r, r) for r in new.src[1:]]))
        if new is not node:
            done[node] = new
    return done.get(ast, ast)


def _may_share(one: UOp, other: UOp) -> bool:
    return one is other or (
        one.ranges.keys() == other.ranges.keys() and one not in other.toposort()
    )


def _renumber(ast: UOp) -> UOp:
    """Loops of the store first, in their order, then reduces in the order of the graph."""
    ordered: dict[UOp, None] = {}
    for node in ast.toposort():
        if node.op is Ops.END:
            ordered.update(dict.fromkeys(r for r in node.src[1:] if r.op is Ops.RANGE))
    for node in ast.toposort():
        if node.op is Ops.RANGE:
            ordered.setdefault(node)
    table = {r: UOp.range(to_sint(r.src[0]), n, r.axis_type) for n, r in enumerate(ordered)}
    return ast.substitute(table)


# *** order ***


def _order_writes_after_reads(cut: Cut) -> None:
    """A step that overwrites memory comes after all that read what was there before."""
    readers: dict[UOp, list[tuple[int, UOp]]] = {}
    for number, step in enumerate(cut.steps):
        for node in step.reads:
            readers.setdefault(cut.storage.get(node, node), []).append((number, node))
    for number, step in enumerate(cut.steps):
        if step.overwrites is None:
            continue
        for reader, node in readers.get(step.written, ()):
            if reader == number or _is_later_version(cut, node, step.origin):
                continue
            if _depends_on(cut, reader, number):
                raise ScheduleError(
                    "a tensor is read with its old value by something that also depends on its new "
                    "one; make the old value contiguous and realize it before the assign"
                )
            step.needs.add(reader)


def _is_later_version(cut: Cut, node: UOp | None, origin: UOp) -> bool:
    """Whether the node is the assign `origin`, or an assign on top of it."""
    while node is not None and node in cut.writer:
        if node is origin:
            return True
        node = cut.steps[cut.writer[node]].overwrites
    return False


def _depends_on(cut: Cut, step: int, other: int) -> bool:
    """Whether the step needs the other one, directly or not."""
    stack, seen = [step], {step}
    while stack:
        for needed in cut.steps[stack.pop()].needs:
            if needed == other:
                return True
            if needed not in seen:
                seen.add(needed)
                stack.append(needed)
    return False


def ordered_steps(cut: Cut) -> list[Step]:
    """The steps, each after all that it needs; otherwise in the order of the graph."""
    done: set[int] = set()
    result: list[Step] = []
    active: set[int] = set()
    for start in range(len(cut.steps)):
        stack = [start]
        while stack:
            number = stack[-1]
            if number in done:
                stack.pop()
                continue
            pending = sorted(n for n in cut.steps[number].needs if n not in done)
            if pending and number in active and any(p in active for p in pending):
                raise ScheduleError(
                    "an assign and a read of the old value depend on each other; make the old "
                    "value contiguous and realize it before the assign"
                )
            active.add(number)
            if pending:
                stack.extend(reversed(pending))
                continue
            stack.pop()
            done.add(number)
            active.discard(number)
            result.append(cut.steps[number])
    return result
