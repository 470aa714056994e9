"""Small tensor graphs, written in nodes."""

from __future__ import annotations

from tgcore.dtype import DType, dtypes
from tgcore.schedule import Schedule, create_schedule
from tgcore.uop import Ops, UOp

DEVICE = "TEST"


def buffer(*shape: int, dtype: DType = dtypes.float32) -> UOp:
    """New memory of that shape."""
    size = 1
    for s in shape:
        size *= s
    return UOp.new_buffer(DEVICE, size, dtype).reshape(shape)


def matmul(a: UOp, b: UOp) -> UOp:
    """(m, k) @ (k, n)."""
    (m, k), (_, n) = a.known_shape, b.known_shape
    left = a.reshape((m, 1, k)).expand((m, n, k))
    right = b.permute((1, 0)).reshape((1, n, k)).expand((m, n, k))
    return (left * right).reduce_axis(Ops.ADD, (2,)).reshape((m, n))


def softmax(x: UOp) -> UOp:
    """Along the last axis of a matrix."""
    shape = x.known_shape
    e = ((x - x.reduce_axis(Ops.MAX, (1,)).expand(shape)) * 1.4426950408889634).exp2()
    return e * e.reduce_axis(Ops.ADD, (1,)).expand(shape).reciprocal()


def arange(n: int) -> UOp:
    """1 .. n as a sum over a triangle of ones, cut out of a repeated row."""
    row = UOp.const(dtypes.int32, 1).reshape((1,)).expand((n,)).pad((n - 1,), (2 * n - 1,))
    rows = row.reshape((1, 2 * n - 1)).expand((n + 1, 2 * n - 1)).reshape(((n + 1) * (2 * n - 1),))
    skewed = rows.shrink((0,), (n * 2 * n,)).reshape((n, 2 * n)).shrink((0, 0), (n, n))
    return skewed.reduce_axis(Ops.ADD, (1,)).reshape((n,))


def schedule(*outputs: UOp) -> Schedule:
    """The schedule that makes all of these."""
    return create_schedule(UOp.sink(*outputs), DEVICE)


def kernels(*outputs: UOp) -> list[UOp]:
    """The kernels that make all of these."""
    return [item.ast for item in schedule(*outputs).items if item.ast.op is Ops.SINK]
