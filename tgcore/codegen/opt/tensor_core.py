"""The move TC: a reduce over products becomes one over matrix instructions.

A reduce `sum over k of A[m, k] * B[k, n]` is given tiles of m, n and k that are as large as the
instruction's. The lanes of a warp (a WARP range) share a tile. What a lane holds of the operands is
gathered from the elements' own expressions, with m, n and k written as bits of the lane's and the
element's number: CONTRACT(value, range) is a vector with a lane for each step of the range. What it
holds of the result is spread over an UPCAST range: UNROLL(vector, range) is the lane that the range
names. All that surrounds the reduce is as it was, so other moves apply as ever.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tgcore.dtype import DType, dtypes
from tgcore.errors import KernelOptError
from tgcore.helpers import ALLOW_TF32
from tgcore.uop.divmod import split_sum
from tgcore.uop.node import UOp, to_sint
from tgcore.uop.ops import AxisType, Ops
from tgcore.uop.symbolic import split_valid
from tgcore.uop.tensor_core import Bit, TensorCore

if TYPE_CHECKING:
    from tgcore.codegen.opt.kernel import Kernel


@dataclass(frozen=True)
class MatMul:
    """A reduce over `k` of products of `a`, which does not depend on `n`, and `b`, not on `m`."""

    reduce: UOp
    a: UOp
    b: UOp
    n: UOp
    m: UOp
    k: UOp

    @property
    def ranges(self) -> tuple[UOp, UOp, UOp]:
        """In the order of `TensorCore.dims`."""
        return self.n, self.m, self.k


def matmuls(kernel: Kernel, core: TensorCore) -> list[MatMul]:
    """The ways in which the kernel is one for the instruction, the best first: rows of the result
    and of the operands are neighbours in memory."""
    if core.mantissa_bits and not ALLOW_TF32:
        return []
    found: list[MatMul] = []
    for reduce in kernel.reduces:
        operands = _operands(reduce, core)
        for a, b in [] if operands is None else [operands, operands[::-1]]:
            if a.dtype is core.dtypes[0] and b.dtype is core.dtypes[1]:
                found += _axes(kernel, reduce, a, b)
    accesses = [n for n in kernel.indices if n.src[0].op is Ops.DEFINE_GLOBAL]
    stored = [end.src[0].src[0] for end in kernel.ast.src if end.op is Ops.END]
    return sorted(found, key=lambda m: _badness(m, accesses, stored))


def _badness(match: MatMul, accesses: Sequence[UOp], stored: Sequence[UOp]) -> tuple[int, ...]:
    def strides(r: UOp, nodes: Iterable[UOp]) -> list[int]:
        return [split_sum(split_valid(n.src[1])[1])[0].get(r, 0) for n in nodes]

    rows = strides(match.n, stored).count(1)
    near = strides(match.k, accesses).count(1) + strides(match.n, accesses).count(1)
    size = match.n.vmax * match.m.vmax
    return (-rows, -near, -size, -match.k.vmax)


# *** is it a matmul? ***


def _operands(reduce: UOp, core: TensorCore) -> tuple[UOp, UOp] | None:
    """The factors that a reduce sums the products of, in the instruction's types."""
    if reduce.arg is not Ops.ADD or reduce.dtype is not core.dtype_out:
        return None
    value, conditions = reduce.src[0], []
    while True:
        if value.op is Ops.WHERE and _is_zero(value.src[2]):
            conditions.append(value.src[0])
            value = value.src[1]
        elif value.op is Ops.CAST and _loses_nothing(value.src[0].dtype, value.dtype):
            value = value.src[0]
        else:
            break
    if value.op is not Ops.MUL:
        return None
    # integers wrap around in their own type: the product must have been made in a wider one
    if value.dtype is not core.dtype_out and not dtypes.is_float(value.dtype):
        return None
    a, b = (_uncast(factor, core) for factor in value.src)
    closed = set(reduce.src[1:])
    for condition in conditions:
        if not all(r in closed for r in condition.ranges):
            return None  # only on steps of the reduce: both factors may be zero there
        a, b = (condition.where(x, x.const_like(0)) for x in (a, b))
    return a, b


def _is_zero(node: UOp) -> bool:
    return node.op is Ops.CONST and bool(node.arg == 0)


def _loses_nothing(source: DType, target: DType) -> bool:
    if dtypes.is_float(source) and dtypes.is_float(target):
        (exponent, mantissa), (wide, long) = dtypes.finfo(source), dtypes.finfo(target)
        return exponent <= wide and mantissa <= long
    return dtypes.is_int(source) and dtypes.is_int(target) and source.itemsize < target.itemsize


def _uncast(factor: UOp, core: TensorCore) -> UOp:
    while factor.op is Ops.CAST and factor.dtype not in core.dtypes[:2]:
        if not _loses_nothing(factor.src[0].dtype, factor.dtype):
            break
        factor = factor.src[0]
    return factor


def _axes(kernel: Kernel, reduce: UOp, a: UOp, b: UOp) -> list[MatMul]:
    """All choices of loops for n, m and k."""
    loops = [r for r in kernel.store_ranges if r.axis_type is AxisType.GLOBAL]
    of_n = [r for r in loops if r in b.ranges and r not in a.ranges]
    of_m = [r for r in loops if r in a.ranges and r not in b.ranges]
    of_k = [
        r
        for r in reduce.src[1:]
        if r.axis_type is AxisType.REDUCE and r in a.ranges and r in b.ranges
    ]
    triples = [(n, m, k) for n in of_n for m in of_m for k in of_k]
    known = [t for t in triples if all(isinstance(to_sint(r.src[0]), int) for r in t)]
    return [MatMul(reduce, a, b, n, m, k) for n, m, k in known]


# *** the move ***


def choose(kernel: Kernel, axis: int | None, number: int | None) -> tuple[TensorCore, MatMul]:
    """The instruction with that number (None: the first that fits) and the way with the number
    `axis` to see the kernel as a matmul for it."""
    cores = kernel.target.tensor_cores
    if number is not None and not 0 <= number < len(cores):
        raise KernelOptError(f"there is no matrix instruction {number}: there are {len(cores)}")
    found = [
        (core, match)
        for core in (cores if number is None else cores[number : number + 1])
        for match in matmuls(kernel, core)
    ]
    if not found:
        raise KernelOptError("the kernel is no matmul of types that a matrix instruction takes")
    fitting = [(core, match) for core, match in found if not _remainders(core, match)]
    if not fitting:
        size, tile = _remainders(*found[0])[0]
        raise KernelOptError(f"the axis of size {size} is no multiple of {tile}: pad it first")
    if not 0 <= (axis or 0) < len(fitting):
        raise KernelOptError(f"there are {len(fitting)} ways to use matrix instructions")
    return fitting[axis or 0]


def _remainders(core: TensorCore, match: MatMul) -> list[tuple[int, int]]:
    sizes = zip(match.ranges, core.dims)
    return [(r.vmax + 1, tile) for r, tile in sizes if (r.vmax + 1) % tile]


def tensor_core(kernel: Kernel, core: TensorCore, match: MatMul) -> None:
    """Makes the move."""
    missing = [d for d in core.dtypes if d not in kernel.target.dtypes]
    if missing:
        raise KernelOptError(f"{kernel.target.device} does not know the type {missing[0].name}")
    tiles = {r: _tiles(r, tile) for r, tile in zip(match.ranges, core.dims)}
    warp = kernel.new_range(core.threads, AxisType.WARP)
    k_order = _order_of_k(core)

    def fragment(value: UOp, name: str, count: int, table: dict[UOp, tuple[Bit, ...]]) -> UOp:
        element = kernel.new_range(count, AxisType.UNROLL)
        places = {
            r: tiles[r][0] * tiles[r][1] + place(bits, warp, element) for r, bits in table.items()
        }
        value = value.substitute_ranges(places)
        if count == 1:
            return value.substitute_ranges({element: element.const_like(0)})
        return UOp(Ops.CONTRACT, value.dtype.vec(count), (value, element))

    (a_rows, a_columns), (b_rows, b_columns) = core.a.bits, core.b.bits
    a_k, b_k = ([bits[n] for n in k_order] for bits in (a_columns, b_rows))
    a = fragment(match.a, "a", core.a.elements, {match.m: a_rows, match.k: tuple(a_k)})
    b = fragment(match.b, "b", core.b.elements, {match.k: tuple(b_k), match.n: b_columns})
    count = core.c.elements
    wide = core.dtype_out.vec(count)
    product = UOp(Ops.WMMA, wide, (a, b, UOp.const(wide, 0)), core)
    steps = [r for r in match.reduce.src[1:] if r is not match.k]
    steps += [r for r in (tiles[match.k][0],) if r.op is Ops.RANGE]
    result = product.reduce(Ops.ADD, *steps)
    rows, columns = core.c.bits
    element = kernel.new_range(count, AxisType.UPCAST)
    lane = UOp(Ops.UNROLL, core.dtype_out, (result, element)) if count > 1 else result
    if count == 1:
        element = element.const_like(0)
    table = {match.reduce: lane}
    for r, bits in ((match.m, rows), (match.n, columns)):
        table[r] = tiles[r][0] * tiles[r][1] + place(bits, warp, element)
    kernel.substitute(table)


def _tiles(r: UOp, tile: int) -> tuple[UOp, int]:
    """The number of the tile, and how many steps a tile has."""
    count = (r.vmax + 1) // tile
    return (r.replace(src=(r.src[0].const_like(count),)) if count > 1 else r.const_like(0)), tile


def _order_of_k(core: TensorCore) -> list[int]:
    """Which bits of k are the lowest in memory. Sums do not depend on it, so those come first of
    which a lane holds both values: then it reads neighbours."""
    pairs = list(zip(core.a.bits[1], core.b.bits[0]))
    return sorted(range(len(pairs)), key=lambda n: sum(kind == "l" for kind, _ in pairs[n]))


def place(bits: Sequence[Bit], lane: UOp, element: UOp) -> UOp:
    """The number that is made of these bits of the lane's and the element's number.

    >>> from tgcore.uop.symbolic import simplify
    >>> lane, element = UOp.variable("lane", 0, 31), UOp.variable("element", 0, 3)
    >>> simplify(place((("e", 0), ("l", 0), ("l", 1)), lane, element)).op
    Ops.ADD
    """
    source = {"l": lane, "e": element}
    total = UOp.const(dtypes.index, 0)
    at = 0
    while at < len(bits):
        kind, first = bits[at]
        count = 1
        while at + count < len(bits) and bits[at + count] == (kind, first + count):
            count += 1
        total = total + (source[kind] // (1 << first)) % (1 << count) * (1 << at)
        at += count
    return total


def add_to(total: UOp, value: UOp, op: Ops) -> UOp:
    """What an accumulator becomes by a value: a matrix instruction adds to it by itself."""
    if value.op is Ops.WMMA:
        return value.replace(src=(*value.src[:2], total))
    return total.alu(op, value)


def sum_of(values: Sequence[UOp], op: Ops) -> UOp:
    """All values reduced."""
    return functools.reduce(lambda total, value: add_to(total, value, op), values)
