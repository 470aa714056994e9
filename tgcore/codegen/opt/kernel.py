"""A kernel being optimised: its ranges, and the moves that change them.

A move, `Opt(op, axis, arg)`, splits a range or gives it another axis type; the kernel computes the
same afterwards. `axis` counts the ranges in the order of `Kernel.ranges`. A move that does not
apply raises KernelOptError and leaves the kernel as it was.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from enum import Enum

from tgcore.codegen.group import check_shared, positions_of, shared_bytes
from tgcore.codegen.launch import folded
from tgcore.codegen.opt.tensor_core import choose, tensor_core
from tgcore.codegen.target import Target
from tgcore.dtype import Invalid
from tgcore.errors import KernelOptError
from tgcore.helpers import round_up
from tgcore.uop.evaluate import identity_of
from tgcore.uop.node import UOp, to_sint
from tgcore.uop.ops import AXIS_ORDER, AxisType, Ops
from tgcore.uop.rewrite import graph_rewrite
from tgcore.uop.symbolic import symbolic


class OptOps(Enum):
    """The kinds of moves."""

    UPCAST = "upcast"  # arg results at once for each pass of a loop
    UNROLL = "unroll"  # arg steps of a reduce at once
    LOCAL = "local"  # a loop over the items of a work group
    GROUP = "group"  # a reduce shared by a work group, innermost part
    GROUPTOP = "grouptop"  # the same, outermost part
    THREAD = "thread"  # arg threads share a loop
    NOLOCALS = "nolocals"  # no work groups
    PADTO = "padto"  # a range rounded up to a multiple of arg
    SWAP = "swap"  # two loops change places
    TC = "tc"  # matrix instructions

    def __repr__(self) -> str:
        return str(self)

    def __lt__(self, other: OptOps) -> bool:
        return self.value < other.value


@dataclass(frozen=True, order=True)
class Opt:
    """One move."""

    op: OptOps
    axis: int | None = None
    arg: int | None = None

    def __repr__(self) -> str:
        """As it is written in a test or a list of moves: `Opt(OptOps.UNROLL, 1, 16)`."""
        parts = [self.op, self.axis, self.arg]
        while parts[-1] is None:
            parts.pop()
        return f"Opt({', '.join(map(str, parts))})"


_CLOSERS = (Ops.END, Ops.REDUCE)
_LOOPS = (AxisType.LOOP, AxisType.GLOBAL)


class Kernel:
    """A kernel's AST with the moves applied so far."""

    def __init__(self, ast: UOp, target: Target) -> None:
        self.ast, self.target = ast, target
        self.applied: list[Opt] = []
        self.may_use_locals = target.local
        if target.parallel_grid:
            self._launch_loops()
        self._number = 1 + max((r.arg[0] for r in self.ranges), default=-1)

    def _launch_loops(self) -> None:
        """The loops around all stores become positions of work groups."""
        ends = [set(end.src[1:]) if end.op is Ops.END else set() for end in self.ast.src]
        common = [r for r in self.store_ranges if all(r in ranges for ranges in ends)]
        loops = [r for r in common if r.axis_type is AxisType.LOOP]
        table = {r: r.replace(arg=(*r.arg[:-1], AxisType.GLOBAL)) for r in loops}
        self.ast = self.ast.substitute(table)
        self.__dict__.pop("nodes", None)

    # *** what there is ***

    @functools.cached_property
    def nodes(self) -> list[UOp]:
        """All nodes, sources first."""
        return list(self.ast.toposort())

    @property
    def ranges(self) -> list[UOp]:
        """The ranges, by the order of their axis types, then by number."""
        found = [n for n in self.nodes if n.op is Ops.RANGE]
        return sorted(found, key=lambda r: (AXIS_ORDER[r.axis_type], r.arg[:-1]))

    @property
    def store_ranges(self) -> list[UOp]:
        """The loops around the stores of the kernel, outermost first."""
        return [r for end in self.ast.src if end.op is Ops.END for r in end.src[1:]]

    @property
    def reduces(self) -> list[UOp]:
        """The reduces in the kernel."""
        return [n for n in self.nodes if n.op is Ops.REDUCE]

    @property
    def indices(self) -> list[UOp]:
        """The accesses to memory."""
        return [n for n in self.nodes if n.op is Ops.INDEX]

    def axes(self, *types: AxisType) -> list[int]:
        """The numbers of the axes of these types."""
        return [number for number, r in enumerate(self.ranges) if r.axis_type in types]

    # *** the moves ***

    def apply(self, opt: Opt) -> None:
        """Makes the move."""
        move = _MOVES.get(opt.op)
        if move is None or (opt.op in _GRID_MOVES and not self.target.parallel_grid):
            raise KernelOptError(f"{opt.op} does not apply on {self.target.device}")
        before = self.ast
        move(self, opt)
        if self.target.parallel_grid:
            try:
                check_work_group(self, opt)
            except KernelOptError:
                self.ast = before
                self.__dict__.pop("nodes", None)
                raise
        self.applied.append(opt)

    def range_at(self, axis: int | None) -> UOp:
        """The range with that number."""
        ranges = self.ranges
        if axis is None or not 0 <= axis < len(ranges):
            raise KernelOptError(f"there is no axis {axis}: the kernel has {len(ranges)}")
        return ranges[axis]

    def substitute(self, table: dict[UOp, UOp]) -> None:
        """Replaces nodes; a range that becomes an expression is replaced in ENDs and REDUCEs by the
        ranges of that expression."""
        done: dict[UOp, UOp] = dict(table)
        for node in self.nodes:
            if node in table:
                continue
            src = [done.get(s, s) for s in node.src]
            if node.op in _CLOSERS:
                closed = [r for s in src[1:] for r in ([s] if s.op is Ops.RANGE else s.ranges)]
                src = [src[0], *dict.fromkeys(closed)]
            if tuple(src) != node.src:
                done[node] = node.replace(src=tuple(src))
        self.set_ast(done.get(self.ast, self.ast))

    def set_ast(self, ast: UOp) -> None:
        """Another AST; indices are simplified."""
        self.ast = graph_rewrite(ast, symbolic, name="simplify after move")
        self.__dict__.pop("nodes", None)

    def new_range(self, size: int, axis: AxisType) -> UOp:
        """A range with a number of its own."""
        self._number += 1
        return UOp.range(size, self._number, axis)

    def split(self, r: UOp, amount: int, axis: AxisType, top: bool = False) -> UOp:
        """Splits a range into a part of that amount and type and what is left of it: the part is
        the inner one unless `top`. Returns the new part."""
        size = to_sint(r.src[0])
        if not isinstance(size, int):
            raise KernelOptError(f"axis of symbolic size {size} cannot be split")
        if amount < 1 or size % amount:
            raise KernelOptError(f"{amount} does not divide the axis of size {size}")
        if size == amount:
            part = r.replace(arg=(*r.arg[:-1], axis))
            self.substitute({r: part})
            return part
        part = self.new_range(amount, axis)
        rest = r.replace(src=(r.src[0].const_like(size // amount),))
        joined = part * (size // amount) + rest if top else rest * amount + part
        self.substitute({r: joined})
        return part


def _size(r: UOp, opt: Opt) -> int:
    size = to_sint(r.src[0])
    if not isinstance(size, int):
        raise KernelOptError(f"{opt}: the axis has a symbolic size")
    return size


def _amount(r: UOp, opt: Opt) -> int:
    return _size(r, opt) if not opt.arg else opt.arg


def _upcast(kernel: Kernel, opt: Opt) -> None:
    r = kernel.range_at(opt.axis)
    if r.axis_type not in (*_LOOPS, AxisType.LOCAL):
        raise KernelOptError(f"{opt}: only loops over results can be upcast, not {r.axis_type}")
    if r not in kernel.store_ranges:
        raise KernelOptError(f"{opt}: the axis is a loop inside the kernel")
    kernel.split(r, _amount(r, opt), AxisType.UPCAST)


def _unroll(kernel: Kernel, opt: Opt) -> None:
    r = kernel.range_at(opt.axis)
    if r.axis_type not in (AxisType.REDUCE, AxisType.GROUP_REDUCE):
        raise KernelOptError(f"{opt}: only reduces can be unrolled, not {r.axis_type}")
    kernel.split(r, _amount(r, opt), AxisType.UNROLL)


def _thread(kernel: Kernel, opt: Opt) -> None:
    r = kernel.range_at(opt.axis)
    if not kernel.target.threads:
        raise KernelOptError(f"{opt}: {kernel.target.device} has no threads")
    if r.axis_type is not AxisType.LOOP or r not in kernel.store_ranges:
        raise KernelOptError(f"{opt}: only loops over results can be shared by threads")
    if kernel.axes(AxisType.THREAD):
        raise KernelOptError(f"{opt}: the kernel has a thread axis already")
    ends = [n for n in kernel.ast.src if n.op is Ops.END]
    if any(r not in end.src[1:] for end in ends):
        raise KernelOptError(f"{opt}: a store of the kernel lies outside of the axis")
    if not 1 < _amount(r, opt) <= kernel.target.threads:
        raise KernelOptError(f"{opt}: there are {kernel.target.threads} threads")
    kernel.split(r, _amount(r, opt), AxisType.THREAD, top=True)


def _local(kernel: Kernel, opt: Opt) -> None:
    r = kernel.range_at(opt.axis)
    if not kernel.may_use_locals:
        raise KernelOptError(f"{opt}: the kernel has no work groups of several items")
    if r.axis_type is not AxisType.GLOBAL:
        raise KernelOptError(f"{opt}: only loops over results can be local, not {r.axis_type}")
    kernel.split(r, _amount(r, opt), AxisType.LOCAL)


def _group(kernel: Kernel, opt: Opt) -> None:
    r = kernel.range_at(opt.axis)
    if not kernel.may_use_locals or not kernel.target.local_bytes:
        raise KernelOptError(f"{opt}: the kernel has no work groups that share memory")
    if r.axis_type is not AxisType.REDUCE:
        raise KernelOptError(f"{opt}: only reduces can be shared by a group, not {r.axis_type}")
    kernel.split(r, _amount(r, opt), AxisType.GROUP_REDUCE, top=opt.op is OptOps.GROUPTOP)


def _nolocals(kernel: Kernel, opt: Opt) -> None:
    if not kernel.may_use_locals:
        raise KernelOptError(f"{opt}: the kernel has no local axes anyway")
    if kernel.axes(AxisType.LOCAL, AxisType.WARP, AxisType.GROUP_REDUCE):
        raise KernelOptError(f"{opt}: the kernel has local axes already")
    kernel.may_use_locals = False


def _tensor_core(kernel: Kernel, opt: Opt) -> None:
    if not kernel.may_use_locals:
        raise KernelOptError(f"{opt}: the kernel has no work groups of several items")
    if kernel.axes(AxisType.WARP):
        raise KernelOptError(f"{opt}: the kernel uses matrix instructions already")
    try:
        tensor_core(kernel, *choose(kernel, opt.axis, opt.arg))
    except KernelOptError as error:
        raise KernelOptError(f"{opt}: {error}") from None


def check_work_group(kernel: Kernel, opt: Opt) -> None:
    """Raises if the work groups that the moves so far ask for are more than the device has."""
    target = kernel.target
    for node in kernel.reduces:
        check_shared(node, opt)
    shared = positions_of(kernel.reduces)
    if shared is None:
        raise KernelOptError(f"{opt}: all reduces that a group shares need axes of the same sizes")
    local = [r for r in kernel.ranges if r.axis_type in (AxisType.WARP, AxisType.LOCAL)]
    sizes = [r.vmax + 1 for r in (*local, *shared)]
    items = math.prod(sizes)
    if items > target.local_items:
        text = f"a group of {items} items is more than the {target.local_items} that there may be"
        raise KernelOptError(f"{opt}: {text}")
    if not _any_order_fits(sizes, target.local_max):
        raise KernelOptError(f"{opt}: {sizes} items do not fit the limits {target.local_max}")
    nbytes = shared_bytes(kernel.reduces, math.prod(r.vmax + 1 for r in local))
    if nbytes > target.local_bytes:
        text = f"{nbytes} bytes of shared memory are more than the {target.local_bytes} there are"
        raise KernelOptError(f"{opt}: {text}")


def _any_order_fits(sizes: list[int], maxima: tuple[int, ...]) -> bool:
    """Whether the sizes fit in whatever order the launch has them."""
    kinds = set(itertools.permutations([s for s in sizes if s > 1]))
    return all(folded(order, maxima) is not None for order in kinds)


def _swap(kernel: Kernel, opt: Opt) -> None:
    a, b = kernel.range_at(opt.axis), kernel.range_at(opt.arg)
    if a.axis_type is not b.axis_type or a is b:
        raise KernelOptError(f"{opt}: two axes of one type are needed")
    stand_in = a.replace(arg=(-1, a.axis_type))
    kernel.substitute({a: stand_in})
    kernel.substitute({b: b.replace(arg=a.arg)})
    kernel.substitute({stand_in: stand_in.replace(arg=b.arg)})


def _padto(kernel: Kernel, opt: Opt) -> None:
    r = kernel.range_at(opt.axis)
    size = _size(r, opt)
    if not opt.arg or opt.arg < 1:
        raise KernelOptError(f"{opt}: the multiple to pad to is missing")
    padded = round_up(size, opt.arg)
    if padded == size:
        raise KernelOptError(f"{opt}: the axis of size {size} needs no padding")
    if r.axis_type not in (*_LOOPS, AxisType.LOCAL, AxisType.REDUCE):
        raise KernelOptError(f"{opt}: {r.axis_type} axes cannot be padded any more")
    if any(r in n.src[1:] and n.src[0].op is Ops.WMMA for n in kernel.reduces):
        raise KernelOptError(f"{opt}: steps of matrix instructions cannot be padded any more")
    wider = r.replace(src=(r.src[0].const_like(padded),))
    valid = wider < size
    table: dict[UOp, UOp] = {r: wider}
    for node in kernel.nodes:
        if node is r or not any(s in table for s in node.src):
            continue
        src = [table.get(s, s) for s in node.src]
        if node.op is Ops.INDEX and r in node.ranges:
            src = [src[0], *(_under(s, valid) for s in src[1:])]
        if node.op is Ops.REDUCE and r in node.src[1:]:
            identity = src[0].const_like(identity_of(node.arg, node.dtype))
            src = [valid.where(src[0], identity), *src[1:]]
        table[node] = node.replace(src=tuple(src))
    kernel.set_ast(table[kernel.ast])


def _under(index: UOp, valid: UOp) -> UOp:
    if index.op is Ops.WHERE and index.src[2].arg is Invalid:
        return (index.src[0] & valid).where(index.src[1], Invalid)
    return valid.where(index, Invalid)


def try_move(kernel: Kernel, opt: Opt) -> bool:
    """Makes the move if it is legal; whether it was."""
    try:
        kernel.apply(opt)
    except KernelOptError:
        return False
    return True


def static_size(r: UOp) -> int | None:
    """The size of a range, if it is no symbolic one."""
    size = to_sint(r.src[0])
    return size if isinstance(size, int) else None


_GRID_MOVES = (OptOps.LOCAL, OptOps.GROUP, OptOps.GROUPTOP, OptOps.NOLOCALS, OptOps.TC)
_MOVES = {
    OptOps.LOCAL: _local,
    OptOps.GROUP: _group,
    OptOps.GROUPTOP: _group,
    OptOps.NOLOCALS: _nolocals,
    OptOps.TC: _tensor_core,
    OptOps.UPCAST: _upcast,
    OptOps.UNROLL: _unroll,
    OptOps.THREAD: _thread,
    OptOps.SWAP: _swap,
    OptOps.PADTO: _padto,
}
