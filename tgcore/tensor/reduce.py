"""Reduces: axes to one value, and running reduces along an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

from tgcore.dtype import DType, dtypes, least_upper_float, sum_acc_dtype
from tgcore.errors import ShapeError
from tgcore.tensor.elementwise import ElementwiseMethods
from tgcore.tensor.movement import product
from tgcore.uop.node import UOp, to_index
from tgcore.uop.ops import Ops

Axes = int | Sequence[int] | None


class ReduceMethods(ElementwiseMethods):
    """Methods that reduce axes."""

    __slots__ = ()

    def _axes(self, axis: Axes) -> tuple[int, ...]:
        if axis is None:
            return tuple(range(self.ndim))
        given = (axis,) if isinstance(axis, int) else tuple(axis)
        if not self.shape and all(a in (0, -1) for a in given):
            return ()
        return tuple(self._axis(a) for a in given)

    def _reduce(self, op: Ops, axis: Axes, keepdim: bool) -> Self:
        axes = self._axes(axis)
        reduced = self._unary(self.uop.reduce_axis(op, axes))
        if keepdim:
            return reduced
        return reduced.reshape([s for a, s in enumerate(self.shape) if a not in axes])

    def sum(
        self, axis: Axes = None, keepdim: bool = False, dtype: DType | str | None = None
    ) -> Self:
        """The sum over axes. It is accumulated in 32 bits at least; small floats come back as they
        were, small integers as 32-bit ones. `dtype` overrides both.

        >>> Tensor([[1, 2], [3, 4]]).sum(axis=0).tolist()
        [4, 6]
        """
        if dtype is not None:
            wanted = dtypes.from_name(dtype) if isinstance(dtype, str) else dtype
            return self.cast(wanted)._reduce(Ops.ADD, axis, keepdim)
        total = self.cast(sum_acc_dtype(self.dtype))._reduce(Ops.ADD, axis, keepdim)
        return total.cast(self.dtype) if self.is_floating_point() else total

    def prod(
        self, axis: Axes = None, keepdim: bool = False, dtype: DType | str | None = None
    ) -> Self:
        """The product over axes."""
        x = self.cast(dtype) if dtype is not None else self
        if dtype is None and not self.is_floating_point():
            x = self.cast(sum_acc_dtype(self.dtype))
        return x._reduce(Ops.MUL, axis, keepdim)

    def max(self, axis: Axes = None, keepdim: bool = False) -> Self:
        """The greatest element over axes.

        >>> Tensor([[1, 5], [3, 4]]).max(axis=1).tolist()
        [5, 4]
        """
        if any(self.shape[a] == 0 for a in self._axes(axis)):
            raise ShapeError(f"max over an empty axis of {self.shape} has no value")
        return self._reduce(Ops.MAX, axis, keepdim)

    def min(self, axis: Axes = None, keepdim: bool = False) -> Self:
        """The least element over axes."""
        if any(self.shape[a] == 0 for a in self._axes(axis)):
            raise ShapeError(f"min over an empty axis of {self.shape} has no value")
        return self._inverse()._reduce(Ops.MAX, axis, keepdim)._inverse()

    def any(self, axis: Axes = None, keepdim: bool = False) -> Self:
        """Whether one element over axes is not 0."""
        return self.bool()._reduce(Ops.MAX, axis, keepdim)

    def all(self, axis: Axes = None, keepdim: bool = False) -> Self:
        """Whether all elements over axes are not 0."""
        return self.logical_not().any(axis, keepdim).logical_not()

    def _count_over(self, axis: Axes) -> Any:
        return product([self.shape[a] for a in self._axes(axis)])

    def mean(self, axis: Axes = None, keepdim: bool = False) -> Self:
        """The average over axes; of integers in the default float.

        >>> Tensor([[1.0, 2.0], [3.0, 4.0]]).mean(axis=1).tolist()
        [1.5, 3.5]
        """
        kind = least_upper_float(self.dtype)
        accumulator = sum_acc_dtype(kind)
        total = self.cast(accumulator)._reduce(Ops.ADD, axis, keepdim)
        return total._divided_by(self._count_over(axis)).cast(kind)

    def _divided_by(self, count: Any) -> Self:
        if isinstance(count, int):
            return self * (1.0 / count if count else math.nan)
        return self / self._unary(to_index(count).cast(self.dtype))

    def var(self, axis: Axes = None, keepdim: bool = False, correction: int = 1) -> Self:
        """The variance over axes."""
        x = self.cast(least_upper_float(self.dtype))
        squares = (x - x.mean(axis, keepdim=True)).square()
        count = self._count_over(axis)
        if isinstance(count, int):
            count = max(count - correction, 0)
        else:
            count = count - correction
        return squares.sum(axis, keepdim)._divided_by(count)

    def var_mean(
        self, axis: Axes = None, keepdim: bool = False, correction: int = 1
    ) -> tuple[Self, Self]:
        """The variance and the mean over axes."""
        return self.var(axis, keepdim, correction), self.mean(axis, keepdim)

    def std(self, axis: Axes = None, keepdim: bool = False, correction: int = 1) -> Self:
        """The standard deviation over axes."""
        return self.var(axis, keepdim, correction).sqrt()

    def norm(self, p: float = 2, axis: Axes = None, keepdim: bool = False) -> Self:
        """The p-norm over axes."""
        if p == math.inf:
            return self.abs().max(axis, keepdim)
        if p == 2:
            return self.square().sum(axis, keepdim).sqrt()
        return (self.abs() ** p).sum(axis, keepdim) ** (1 / p)

    # *** softmax and relatives ***

    def softmax(self, axis: int = -1, dtype: DType | None = None) -> Self:
        """exp(x) / sum(exp(x)) along an axis, without overflow."""
        _, powers, total = self._softmax_parts(axis, dtype)
        return powers / total

    def log_softmax(self, axis: int = -1, dtype: DType | None = None) -> Self:
        """log(softmax(x))."""
        shifted, _, total = self._softmax_parts(axis, dtype)
        return shifted - total.log()

    def _softmax_parts(self, axis: int, dtype: DType | None) -> tuple[Self, Self, Self]:
        x = self.cast(dtype) if dtype is not None else self
        shifted = x - x.max(axis, keepdim=True).detach()
        powers = shifted.exp()
        return shifted, powers, powers.sum(axis, keepdim=True)

    def logsumexp(self, axis: Axes = None, keepdim: bool = False) -> Self:
        """log(sum(exp(x))) without overflow."""
        top = self.max(axis, keepdim=True)
        total = (self - top).exp().sum(axis, keepdim=True).log() + top
        if keepdim:
            return total
        axes = self._axes(axis)
        return total.reshape([s for a, s in enumerate(self.shape) if a not in axes])

    # *** running ***

    def _running(self, op: Ops, axis: int, identity: Any) -> Self:
        """The reduce of all up to each element: windows that end there."""
        if not self.shape or 0 in self.shape:
            return self
        number = self._axis(axis)
        size = self._static_shape("a cumulative op")[number]
        x = self.movedim(number, -1)
        front = [(0, 0)] * (x.ndim - 1) + [(size - 1, 0)]
        padded = x._pad_zero(front)
        if identity != 0:
            ones = x._unary(UOp.const(dtypes.bool, True)).expand(x.shape)._pad_zero(front)
            padded = ones.where(padded, identity)
        windows = padded._pool((size,))
        return windows._reduce(op, -1, False).movedim(-1, number)

    def cumsum(self, axis: int = 0) -> Self:
        """The sum up to each element.

        >>> Tensor([1, 2, 3]).cumsum().tolist()
        [1, 3, 6]
        """
        x = self.cast(sum_acc_dtype(self.dtype))
        total = x._running_in_blocks(axis)
        return total.cast(self.dtype) if self.is_floating_point() else total

    def _running_in_blocks(self, axis: int, block: int = 256) -> Self:
        """Long sums in two steps: inside blocks, then the totals of the blocks before."""
        if not self.shape or 0 in self.shape:
            return self
        number = self._axis(axis)
        size = self._static_shape("cumsum")[number]
        if size <= 2 * block:
            return self._running(Ops.ADD, axis, 0)
        x = self.movedim(number, -1)
        blocks = -(-size // block)
        padded = x._pad_zero([*[(0, 0)] * (x.ndim - 1), (0, blocks * block - size)])
        parts = padded.reshape((*x.shape[:-1], blocks, block))
        inside = parts._running(Ops.ADD, -1, 0)
        before = parts.sum(-1)._running_in_blocks(-1) - parts.sum(-1)
        whole = (inside + before.unsqueeze(-1)).flatten(-2, -1)
        return whole._part(whole.ndim - 1, 0, size).movedim(-1, number)

    def cumprod(self, axis: int = 0) -> Self:
        """The product up to each element."""
        return self._running(Ops.MUL, axis, 1)

    def cummax(self, axis: int = 0) -> Self:
        """The greatest element so far."""
        return self._running(Ops.MAX, axis, dtypes.min(self.dtype))

    def cummin(self, axis: int = 0) -> Self:
        """The least element so far."""
        return self._inverse().cummax(axis)._inverse()

    def allclose(self, other: Self, rtol: float = 1e-5, atol: float = 1e-8) -> bool:
        """Whether all elements are close to the other's."""
        return bool(self.isclose(other, rtol, atol).all()._memory().numpy().item())
