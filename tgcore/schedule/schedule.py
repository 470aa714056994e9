"""create_schedule: from a tensor graph to the list of things to run, cached by structure.

Buffers and values of bound variables are taken out of the graph first. What remains is its
structure, a single node, and so the key of the cache: the same structure over other buffers is a
dictionary hit, and only new buffers are put in.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tgcore.errors import ScheduleError
from tgcore.helpers import PCONTIG, SPEC
from tgcore.schedule import metadata
from tgcore.schedule.bufferize import remove_costly_buffers
from tgcore.schedule.indexing import apply_ranges, assign_ranges
from tgcore.schedule.item import Schedule, ScheduleItem
from tgcore.schedule.kernels import cut_into_kernels, ordered_steps
from tgcore.schedule.memory import plan_memory
from tgcore.schedule.realize import clean_tensor_graph, is_plain_view, realize_map, storage_of
from tgcore.uop.node import UOp
from tgcore.uop.ops import Ops
from tgcore.uop.spec import spec_kernel, spec_tensor
from tgcore.uop.stage import stage
from tgcore.uop.verify import verify

_CACHE_ENTRIES = 1024


@dataclass(frozen=True)
class _Template:
    """A schedule over numbered buffers: `outputs` are where the sink's sources end up. `nodes` are
    those of the structure that each item computes, if names are wanted."""

    items: tuple[ScheduleItem, ...]
    outputs: tuple[UOp, ...]
    nodes: tuple[tuple[UOp, ...], ...]


_cache: OrderedDict[tuple[UOp, str, int, bool], _Template] = OrderedDict()
_hits_and_misses = [0, 0]


def clear_schedule_cache() -> None:
    """Forgets all schedules."""
    _cache.clear()
    _hits_and_misses[:] = [0, 0]


def schedule_cache_info() -> tuple[int, int]:
    """(hits, misses) so far."""
    return (_hits_and_misses[0], _hits_and_misses[1])


def create_schedule(sink: UOp, default_device: str = "") -> Schedule:
    """What must run so that every source of the sink is stored.

    `default_device` is where outputs go that no buffer ties to a device.
    """
    structure, table, buffers, variables = _without_buffers(sink)
    named = metadata.wanted()
    key = (structure, default_device, int(PCONTIG), named)
    template = _cache.get(key)
    if template is None:
        _hits_and_misses[1] += 1
        with stage("cutting a graph into kernels", structure, ScheduleError):
            template = _make_template(structure, default_device, named)
        _cache[key] = template
        if len(_cache) > _CACHE_ENTRIES:
            _cache.popitem(last=False)
    else:
        _hits_and_misses[0] += 1
        _cache.move_to_end(key)
    names = metadata.names_of_steps(sink, table, template.nodes) if named else ()
    return _instantiate(template, sink, buffers, variables, names)


def _without_buffers(sink: UOp) -> tuple[UOp, Mapping[UOp, UOp], list[UOp], dict[str, int]]:
    """The graph with its buffers numbered, its variables unbound and without gradients' rules, what
    became of its nodes, and what was taken out."""
    buffers: list[UOp] = []
    variables: dict[str, int] = {}
    table: dict[UOp, UOp] = {}
    for node in sink.toposort():
        if node.op is Ops.BUFFER:
            unique = UOp(Ops.UNIQUE, arg=("input", len(buffers)))
            buffers.append(node)
            table[node] = node.replace(src=(unique, *node.src[1:]))
        elif node.op is Ops.BIND:
            variable, value = node.unbind()
            name = variable.arg[0]
            if variables.setdefault(name, value) != value:
                raise ScheduleError(
                    f"variable {name!r} is bound to both {variables[name]} and {value} "
                    "in one graph; use variables of two names"
                )
            table[node] = variable
        elif node.op is Ops.CUSTOM_GRADIENT:  # a function of the user's must not be kept here
            table[node] = table.get(node.src[0], node.src[0])
        elif table:
            src = tuple([table.get(s, s) for s in node.src])
            if src != node.src:
                table[node] = UOp(node.op, node.dtype, src, node.arg, node.tag)
    return table.get(sink, sink), table, buffers, variables


def _make_template(structure: UOp, default_device: str, named: bool) -> _Template:
    if SPEC:
        verify(structure, spec_tensor)
    wanted = UOp.sink(*[_wanted_storage(s) for s in structure.src])
    traced = [n for n in structure.toposort() if n is not structure] if named else []
    cleaned, became = metadata.followed(clean_tensor_graph, wanted, traced)
    stored = [s for s in cleaned.src if not is_plain_view(s)]
    root = UOp.sink(*dict.fromkeys(stored))
    context = assign_ranges(root, realize_map(root))

    def over_ranges(sink: UOp) -> UOp:
        return remove_costly_buffers(apply_ranges(sink, context))

    followed = list(context.realized) if named else []
    simplified, storage = metadata.followed(over_ranges, root, followed)
    cut = cut_into_kernels(simplified, default_device)
    place = {node: cut.storage.get(value, value) for node, value in zip(root.src, simplified.src)}
    outputs = tuple(
        _output_view(source, place.get(source, source), original)
        for source, original in zip(cleaned.src, structure.src)
    )
    steps = ordered_steps(cut)
    if SPEC:
        for step in steps:
            if step.ast.op is Ops.SINK:
                verify(step.ast, spec_kernel)
    views = plan_memory(steps, {storage_of(o) for o in outputs})
    items = tuple(
        ScheduleItem(step.ast, tuple(views.get(b, b) for b in step.buffers)) for step in steps
    )
    nodes = metadata.nodes_of_steps(steps, became, storage) if named else []
    return _Template(items, outputs, tuple(nodes))


def _wanted_storage(node: UOp) -> UOp:
    """What is to be stored for an output: views of what is stored anyway need nothing more."""
    if is_plain_view(node):
        return node
    inner = node
    while inner.op is Ops.RESHAPE:
        inner = inner.src[0]
    return inner if inner.op in (Ops.CONTIGUOUS, Ops.COPY, Ops.ASSIGN) else node


def _output_view(source: UOp, memory: UOp, original: UOp) -> UOp:
    """The stored node in the shape that was asked for."""
    if source.op is Ops.ASSIGN:
        # an assign is its target, read after the write
        target = source.src[0]
        while any(n.op is Ops.ASSIGN for n in target.toposort()):
            inner = next(n for n in reversed(target.toposort()) if n.op is Ops.ASSIGN)
            target = target.substitute({inner: inner.src[0]})
        return target.reshape(original.known_shape)
    return memory.reshape(original.known_shape)


def _instantiate(
    template: _Template,
    sink: UOp,
    buffers: list[UOp],
    variables: dict[str, int],
    names: Sequence[tuple[str, ...]],
) -> Schedule:
    """The template over these buffers, with new memory for what it makes."""
    made: dict[UOp, UOp] = {}

    items = tuple(
        ScheduleItem(item.ast, tuple([_real(b, made, buffers) for b in item.buffers]), methods)
        for item, methods in zip(template.items, names or itertools.repeat(()))
    )
    outputs = {
        source: output.substitute({b: _real(b, made, buffers) for b in _memory_of(output)})
        for source, output in zip(sink.src, template.outputs)
    }
    used = {v.arg[0] for item in template.items for v in item.ast.variables()}
    return Schedule(items, outputs, {k: v for k, v in variables.items() if k in used})


def _real(node: UOp, made: dict[UOp, UOp], buffers: list[UOp]) -> UOp:
    """A template's memory as real memory. (No closure: it would keep the buffers in a cycle.)"""
    found = made.get(node)
    if found is None:
        if node.op is Ops.BUFFER_VIEW:
            found = node.replace(src=(_real(node.src[0], made, buffers),))
        else:
            unique = node.src[0].arg
            if unique[0] == "input":
                found = buffers[unique[1]]
            else:
                found = UOp.new_buffer(node.src[1].arg, node.arg, node.dtype)
        made[node] = found
    return found


def _memory_of(node: UOp) -> list[UOp]:
    return [n for n in node.toposort() if n.op in (Ops.BUFFER, Ops.BUFFER_VIEW)]
