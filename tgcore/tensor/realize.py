"""Running what tensors stand for, and telling every live tensor what is in memory now.

The rule about overwritten memory: an assign changes the tensor that it is called on, and views of
the same memory with it. Everything that was computed from the old value keeps it: such tensors
are computed in the same schedule, before the assign. Gradients are the exception (storing them only
because they are still at hand would cost kernels): one that was not realised before an assign
overwrote what it needs says so when it is read.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable

from tgcore.errors import ScheduleError
from tgcore.runtime import execute
from tgcore.runtime.device import Device
from tgcore.schedule import Schedule, create_schedule
from tgcore.schedule.metadata import carry_names
from tgcore.tensor.core import (
    StaleError,
    TensorCore,
    is_memory,
    live_tensors,
    lookalikes,
    memory_behind,
)
from tgcore.tensor.hazards import with_copies
from tgcore.uop.node import UOp
from tgcore.uop.ops import Ops

# where realised tensors came from, by their BUFFER, so that gradients go on to flow through them
origins: weakref.WeakKeyDictionary[UOp, UOp] = weakref.WeakKeyDictionary()

# asked before each run, with the nodes to be run: what else must run then
before_run: list[Callable[[dict[UOp, None]], list[UOp]]] = []


def realize(tensors: Iterable[TensorCore]) -> None:
    """Compute the tensors, all in one schedule."""
    wanted: dict[UOp, None] = {}
    for tensor in tensors:
        if tensor._stale:
            raise StaleError(
                "this gradient was not computed before the values that it needs were overwritten "
                "(by an optimiser's step, for example): call .realize() on it before that"
            )
        if not is_memory(tensor.uop):
            wanted[tensor.uop] = None
    run_nodes(wanted)


def run_nodes(wanted: dict[UOp, None]) -> dict[UOp, UOp]:
    """Compute the nodes, and rewrite every live tensor that contains one. Returns the memory of
    each."""
    table: dict[UOp, UOp] = {}
    for node in [n for n in wanted if 0 in n.known_shape]:
        del wanted[node]
        table[node] = _empty(node)
    if wanted:
        _run(wanted, table)
    if table:
        _rewrite_live(table)
    return table


def _empty(node: UOp) -> UOp:
    return UOp.new_buffer(node.device or Device.DEFAULT, 0, node.dtype).reshape(node.known_shape)


def _run(wanted: dict[UOp, None], table: dict[UOp, UOp]) -> None:
    _complete(wanted)
    groups = _by_device(wanted)
    copies: dict[UOp, UOp] = {}
    try:
        schedules = _schedules(groups, {})
    except ScheduleError:
        copies = with_copies([node for group in groups.values() for node in group])
        if not copies:
            raise
        carry_names(UOp.sink(*copies), UOp.sink(*copies.values()))
        schedules = _schedules(groups, copies)
    for schedule in schedules:
        execute.run(schedule.items, schedule.variables)
    memory = {node: m for schedule in schedules for node, m in schedule.outputs.items()}
    for node in wanted:
        # a schedule knows variables only, the tensor's shape has their values too
        table[node] = memory[copies.get(node, node)].reshape(node.known_shape)
    running = {n for n in wanted if n.op is Ops.ASSIGN}
    for node in running:
        table[node] = _target_of(node)
    if running and origins:
        _forget_overwritten(running)


def _complete(wanted: dict[UOp, None]) -> None:
    """Add what must run with the nodes."""
    nodes = UOp.sink(*wanted).toposort()
    for hook in before_run:
        for extra in hook(nodes):
            wanted[extra] = None
            nodes |= extra.toposort()
    if any(n.op is Ops.ASSIGN for n in nodes):
        _keep_old_values(wanted)
    # each assign runs, even one of which the values turn out not to be needed
    wanted.update(dict.fromkeys(n for n in UOp.sink(*wanted).toposort() if n.op is Ops.ASSIGN))
    for tensor in live_tensors:
        # what is stored on the way is kept for the tensors that are just that
        if tensor.uop.op in (Ops.CONTIGUOUS, Ops.COPY) and tensor.uop in nodes:
            wanted[tensor.uop] = None


def _schedules(groups: dict[str, list[UOp]], copies: dict[UOp, UOp]) -> list[Schedule]:
    return [
        create_schedule(UOp.sink(*[copies.get(node, node) for node in group]), device)
        for device, group in groups.items()
    ]


def _target_of(assign: UOp) -> UOp:
    """The memory that an assign wrote, seen through the same views."""
    target = assign.src[0]
    while (inner := next((n for n in target.toposort() if n.op is Ops.ASSIGN), None)) is not None:
        target = target.substitute({inner: inner.src[0]})
    return target


def _by_device(wanted: dict[UOp, None]) -> dict[str, list[UOp]]:
    """Constants apart, by their devices: nothing else ties them to one."""
    groups: dict[str, list[UOp]] = {}
    rest: list[UOp] = []
    for node in wanted:
        is_constant = node.base.op is Ops.CONST and node.device not in (None, Device.DEFAULT)
        group = groups.setdefault(str(node.device), []) if is_constant else rest
        group.append(node)
    if rest:
        devices = {n.device for n in rest} - {None}
        only = devices.pop() if len(devices) == 1 else None
        groups.setdefault(only or Device.DEFAULT, []).extend(rest)
    return groups


# *** old values ***


def unsettled(tensors: Iterable[TensorCore]) -> list[TensorCore]:
    """Those of the tensors that may matter to `settle`."""
    return [t for t in tensors if not is_memory(t.uop) or (origins and t.uop.base in origins)]


def settle(tensors: Iterable[TensorCore], written: set[UOp]) -> None:
    """Before something that is no schedule overwrites memory: compute those of the tensors that
    read it, or that wait to write."""
    waiting = [
        t
        for t in tensors
        if memory_behind(t.uop) is None  # a view sees what is written
        and not t._stale
        and any(n.op is Ops.ASSIGN or n in written for n in t.uop.toposort())
    ]
    if waiting:
        gradients = {id(t.grad) for t in live_tensors if t.grad is not None}
        for tensor in waiting:
            tensor._stale = id(tensor) in gradients
        realize([t for t in waiting if not t._stale])
    if origins:
        _forget_readers(written, set())


def replace_origins(table: dict[UOp, UOp]) -> None:
    """Other memory for what realised tensors came from."""
    known = dict(origins)
    replaced = UOp.sink(*known.values()).substitute(table).src
    for memory, new in zip(known, replaced, strict=True):
        origins[table.get(memory, memory)] = new


def _keep_old_values(wanted: dict[UOp, None]) -> None:
    """Add what reads memory that is about to be overwritten, and lives on."""
    gradients = {id(t.grad) for t in live_tensors if t.grad is not None}
    candidates: dict[UOp, list[TensorCore]] = {}
    for tensor in live_tensors:
        if memory_behind(tensor.uop) is None and not tensor._stale:
            candidates.setdefault(tensor.uop, []).append(tensor)
    known = 0
    while True:
        running = {n for n in UOp.sink(*wanted).toposort() if n.op is Ops.ASSIGN}
        if len(running) == known:
            return
        known = len(running)
        for node in _readers(list(candidates), running):
            if node in wanted:
                continue
            if all(id(t) in gradients for t in candidates[node]):
                for tensor in candidates[node]:
                    tensor._stale = True
            else:
                wanted[node] = None


def _readers(roots: list[UOp], running: set[UOp]) -> list[UOp]:
    """The roots that read memory as it is before these assigns overwrite it."""
    written = {m for a in running if (m := memory_behind(_target_of(a))) is not None}
    return _roots_that_read(written, roots, running)


def _versions_before(assign: UOp) -> list[UOp]:
    """The assigns to the same memory that this one comes after."""
    found = []
    node = assign.src[0]
    while node.op is not Ops.BUFFER and node.src:
        if node.op is Ops.ASSIGN:
            found.append(node)
        node = node.src[0]
    return found


def _roots_that_read(written: set[UOp], roots: list[UOp], running: set[UOp]) -> list[UOp]:
    gone = written.union(*(_versions_before(a) for a in running))
    reads: dict[UOp, bool] = {}
    for node in UOp.sink(*roots).toposort():
        if node.op is Ops.BUFFER or node in running:
            reads[node] = node in gone
        elif node.op is Ops.ASSIGN:  # the target is written, not read
            reads[node] = reads[node.src[1]]
        else:
            reads[node] = any(reads[s] for s in node.src)
    return [root for root in roots if reads[root]]


def _forget_overwritten(running: set[UOp]) -> None:
    """Gradients cannot flow to where values came from, once those were computed from are gone."""
    written = {m for a in running if (m := memory_behind(_target_of(a))) is not None}
    _forget_readers(written, running)


def _forget_readers(written: set[UOp], running: set[UOp]) -> None:
    nodes = list(dict.fromkeys(origins.values()))
    gone = set(_roots_that_read(written, nodes, running))
    for memory in [m for m, origin in origins.items() if origin in gone]:
        del origins[memory]


def _rewrite_live(table: dict[UOp, UOp]) -> None:
    """Every live tensor's graph, with what is in memory now."""
    affected: dict[UOp, list[TensorCore]] = {}
    for tensor in live_tensors:
        if not is_memory(tensor.uop):
            affected.setdefault(tensor.uop, []).append(tensor)
    known = dict(origins)
    roots = UOp.sink(*affected, *known.values())
    rebuilt = roots.substitute(table)
    carry_names(roots, rebuilt)
    replaced = rebuilt.src
    for old, new in zip(affected, replaced, strict=False):
        if new is not old:
            tensors = affected[old]
            for tensor in tensors:
                tensor.uop = new
            if len(tensors) > 1 and old.op is not Ops.ASSIGN and is_memory(new):
                lookalikes.add(new.base)
            if old in table and any(t.requires_grad for t in tensors):
                _remember_origin(old, new, table)
    for memory, new in zip(known, replaced[len(affected) :], strict=True):
        if new.base is not memory:
            origins[memory] = new


def _remember_origin(old: UOp, new: UOp, table: dict[UOp, UOp]) -> None:
    if old.op is Ops.ASSIGN or not is_memory(new) or not old.src:
        return
    src = tuple(table.get(s, s) if s.op is Ops.ASSIGN else s.substitute(table) for s in old.src)
    origins[new.base] = origin = old.replace(src=src)
    carry_names(old, origin)
