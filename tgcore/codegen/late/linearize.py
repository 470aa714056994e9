"""From a graph to a list: the linear program.

In comes a SINK whose loops are closed (END) and whose effects are ordered by data and by AFTER. Out
comes a list of nodes in which every node follows its sources, lies inside the loops of all ranges
that it depends on and of no others, and in which AFTER, GROUP, NOOP and SINK are gone.

Every loop is a block; a node belongs to the block of the innermost range that it depends on. The
graph's own topological order, kept within each block, is then a valid order: a loop stands where
its END stands, which is behind all that its body needs and before all that need its effect.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tgcore.codegen.target import Target
from tgcore.dtype import dtypes
from tgcore.errors import SpecError
from tgcore.uop.node import UOp
from tgcore.uop.ops import Ops

# what comes first, in this order; these depend on nothing but each other
_EARLY: Final = {
    Ops.DEFINE_GLOBAL: 0,
    Ops.DEFINE_VAR: 1,
    Ops.CONST: 2,
    Ops.VCONST: 3,
    Ops.SPECIAL: 4,
    Ops.DEFINE_LOCAL: 5,
    Ops.DEFINE_REG: 6,
}
_DROPPED: Final = frozenset({Ops.AFTER, Ops.GROUP, Ops.NOOP, Ops.SINK})
# two of these are never one, even if they look alike
_EFFECTS: Final = frozenset({Ops.LOAD, Ops.STORE, Ops.BARRIER, Ops.CUSTOM})


def linearize(sink: UOp, target: Target) -> list[UOp]:
    """The nodes of a kernel in the order in which they run."""
    if sink.ranges:
        raise SpecError(f"the kernel leaves ranges open: {[r.arg for r in sink.ranges]}")
    nodes = list(_one_end_a_range(sink).toposort())
    blocks = _Blocks(nodes)
    return list(_Emitter(blocks, target).run())


def _one_end_a_range(sink: UOp) -> UOp:
    """A range that several ENDs close gets one END for all that they close."""
    while True:
        ends: dict[UOp, list[UOp]] = {}
        for node in sink.toposort():
            if node.op is Ops.END:
                if len(node.src) != 2 or node.src[1].op is not Ops.RANGE:
                    raise SpecError(f"an END closes one range in a program: {node}")
                ends.setdefault(node.src[1], []).append(node)
        several = {r: e for r, e in ends.items() if len(e) > 1}
        if not several:
            return sink
        loop, closing = next(iter(several.items()))
        for end in closing:
            if any(other is not end and other in end.toposort() for other in closing):
                raise SpecError(f"the range {loop.arg} is opened again after its END")
        merged = UOp.group(*(end.src[0] for end in closing)).end(loop)
        sink = sink.substitute(dict.fromkeys(closing, merged))


class _Blocks:
    """Which nodes stand directly in which loop, in order.

    `final` is what a node becomes once AFTER and the like are gone (None: nothing is left);
    `waits` are the effects that whoever uses its value must come after.
    """

    def __init__(self, nodes: list[UOp]) -> None:
        self.parent, self.depth = _nesting(nodes)
        self.early: list[tuple[int, int, UOp]] = []
        self.content: dict[UOp | None, list[UOp]] = {None: [], **{r: [] for r in self.parent}}
        self.block: dict[UOp, UOp | None] = {}
        self.final: dict[UOp, UOp | None] = {}
        self.waits: dict[UOp, tuple[UOp, ...]] = {}
        # for an effect, the effects that it must come after
        self.effects_before: dict[UOp, tuple[UOp, ...]] = {}
        self.copies = 0
        for position, node in enumerate(nodes):
            self._place(position, node)

    def _place(self, position: int, node: UOp) -> None:
        waits = self._waits_of(node)
        if node.op in _DROPPED:
            self.final[node] = self.final[node.src[0]] if node.op is Ops.AFTER else None
            self.waits[node] = waits
            return
        final = self._rebuilt(node, waits)
        absorbs = node.op in _EFFECTS or node.op in (Ops.END, Ops.RANGE)
        self.final[node] = final
        # whoever names an effect as its source comes after it
        self.waits[node] = () if absorbs else waits
        if absorbs:
            self.effects_before[final] = waits
        if final in self.block:
            return
        if node.op in _EARLY and all(s.op in _EARLY for s in final.src):
            self.block[final] = None
            order = node.arg if node.op is Ops.DEFINE_GLOBAL else position
            self.early.append((_EARLY[node.op], order, final))
            return
        self._put_in_block(node, final, waits if absorbs else ())

    def _put_in_block(self, node: UOp, final: UOp, waits: tuple[UOp, ...]) -> None:
        if node.op is Ops.RANGE:
            self.block[final] = final  # opened by its block, not inside another node's list
            return
        if node.op is Ops.END:
            inside = self.parent[final.src[1]]
        else:
            inside = self._innermost((*final.src, *waits))
        self.block[final] = inside
        self.content[inside].append(final)

    def _waits_of(self, node: UOp) -> tuple[UOp, ...]:
        found: dict[UOp, None] = {}
        for number, source in enumerate(node.src):
            found.update(dict.fromkeys(self.waits[source]))
            final = self.final[source]
            is_value = number == 0 if node.op is Ops.AFTER else node.op not in _DROPPED
            if final is not None and not is_value:
                found[final] = None
        return tuple(found)

    def _rebuilt(self, node: UOp, waits: tuple[UOp, ...]) -> UOp:
        src = tuple([f for s in node.src if (f := self.final[s]) is not None])
        if node.op is Ops.END and len(src) == 1:  # it closes a group: name its last effect
            body = [w for w in waits if w is not src[0]]
            src = (body[-1] if body else src[0], src[0])
        final = node
        if src != node.src:
            if node.op is Ops.RANGE:
                raise SpecError(f"the size of the range {node.arg} is ordered after effects")
            final = UOp(node.op, node.dtype, src, node.arg, node.tag)
        if node.op in _EFFECTS and final in self.block:
            self.copies += 1
            final = final.rtag(("again", self.copies, node.tag))
        return final

    def _innermost(self, nodes: tuple[UOp, ...]) -> UOp | None:
        best: UOp | None = None
        for node in nodes:
            block = self.block[node]
            if block is not None and (best is None or self.depth[block] > self.depth[best]):
                best = block
        return best


def _nesting(nodes: list[UOp]) -> tuple[dict[UOp, UOp | None], dict[UOp, int]]:
    """For each range the one whose loop is directly around it, and how deep it lies."""
    around: dict[UOp, set[UOp]] = {}
    for node in nodes:
        if node.op is Ops.END:
            loop = node.src[1]
            around[loop] = {r for r in (*node.ranges, *loop.ranges) if r is not loop}
    if missing := [n.arg for n in nodes if n.op is Ops.RANGE and n not in around]:
        raise SpecError(f"no END closes the ranges {missing}")
    depth = _depths(around)
    parent = {
        loop: max(outer, key=lambda r: depth[r]) if outer else None
        for loop, outer in around.items()
    }
    return parent, depth


def _depths(around: dict[UOp, set[UOp]]) -> dict[UOp, int]:
    depth: dict[UOp, int] = {}
    stack = list(around)
    entered: set[UOp] = set()
    while stack:
        loop = stack[-1]
        missing = [r for r in around[loop] if r not in depth]
        if not missing:
            depth[loop] = 1 + max((depth[r] for r in around[loop]), default=-1)
            stack.pop()
            continue
        if loop in entered:
            raise SpecError(f"the loop {loop.arg} lies inside itself")
        entered.add(loop)
        stack.extend(missing)
    return depth


class _Emitter:
    """Writes blocks out one after another, and puts gated stores into branches."""

    def __init__(self, blocks: _Blocks, target: Target) -> None:
        self.blocks, self.target = blocks, target
        # stores that wait for others with the same gate: gate -> stores
        self.gated: dict[UOp, list[UOp]] = {}
        self.pending: set[UOp] = set()
        self.emitted: set[UOp] = set()
        self.branches = 0
        self.renamed: dict[UOp, UOp] = {}  # effects that changed while they were written out
        everything = (n for nodes in blocks.content.values() for n in nodes)
        self.loaded = frozenset(n.src[0] for n in everything if n.op is Ops.LOAD)

    def run(self) -> Iterator[UOp]:
        """All nodes."""
        yield from (n for _, _, n in sorted(self.blocks.early, key=lambda entry: entry[:2]))
        content = self.blocks.content
        stack: list[tuple[Iterator[UOp], UOp | None]] = [(iter(content[None]), None)]
        while stack:
            nodes, end = stack[-1]
            node = next(nodes, None)
            if node is None:
                stack.pop()
                yield from self._flush()
                if end is not None:
                    yield self._up_to_date(end)
            elif node.op is Ops.END:
                yield from self._flush()
                loop = node.src[1]
                yield loop
                stack.append((iter(content[loop]), node))
            else:
                yield from self._one(node)

    def _one(self, node: UOp) -> Iterator[UOp]:
        if self.gated and node.op in _EFFECTS:
            before = self.blocks.effects_before[node]
            if node.op in (Ops.BARRIER, Ops.CUSTOM) or self._waiting(before):
                yield from self._flush()
        gate = self._branch_gate(node)
        if gate is not None:
            self.gated.setdefault(gate, []).append(node)
            self.pending.add(node)
        elif not (node.op is Ops.INDEX and self._only_for_branches(node)):
            if node.op is Ops.INDEX:
                self.emitted.add(node)
            yield self._up_to_date(node) if node.op is Ops.BARRIER else node

    def _up_to_date(self, node: UOp) -> UOp:
        src = tuple(self.renamed.get(s, s) for s in node.src)
        if src == node.src:
            return node
        self.renamed[node] = UOp(node.op, node.dtype, src, node.arg, node.tag)
        return self.renamed[node]

    def _waiting(self, effects: tuple[UOp, ...]) -> bool:
        return not self.pending.isdisjoint(effects)

    def _branch_gate(self, node: UOp) -> UOp | None:
        """The gate of a store that needs a branch."""
        if node.op is not Ops.STORE:
            return None
        address = node.src[0]
        if address.op is not Ops.INDEX or len(address.src) < 3:
            return None
        gate = address.src[2]
        return gate if gate.dtype is dtypes.bool else None

    def _only_for_branches(self, index: UOp) -> bool:
        """Whether it is an address with a scalar gate, which only stores use."""
        if len(index.src) < 3 or index.src[2].dtype is not dtypes.bool:
            return False
        return index not in self.loaded

    def _flush(self) -> Iterator[UOp]:
        gated, self.gated = self.gated, {}
        self.pending.clear()
        for gate, stores in gated.items():
            plain = [_without_gate(store) for store in stores]
            self.renamed.update(zip(stores, plain))
            # an address that was written out stands in this block or around it
            new = dict.fromkeys(s.src[0] for s in plain if s.src[0] not in self.emitted)
            yield from new
            self.branches += 1
            branch = UOp(Ops.IF, dtypes.void, (gate,), None, self.branches)
            yield branch
            yield from plain
            yield UOp(Ops.ENDIF, dtypes.void, (branch,))


def _without_gate(store: UOp) -> UOp:
    address = store.src[0]
    plain = UOp(Ops.INDEX, address.dtype, address.src[:2], address.arg, address.tag)
    return UOp(Ops.STORE, store.dtype, (plain, *store.src[1:]), store.arg, store.tag)
