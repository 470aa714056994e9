"""Methods that make one element out of many."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

from tgcore.dtype import DType, dtypes, sum_acc_dtype
from tgcore.errors import DTypeError, ShapeError
from tgcore.helpers import prod
from tgcore.tensor.activations import Activations
from tgcore.tensor.core import DTypeLike, constant, full_shape, to_dtype
from tgcore.uop.node import UOp, sint
from tgcore.uop.ops import Ops

Axes = int | Sequence[int] | None


def _identity(op: Ops, dtype: DType) -> Any:
    """What changes nothing in a reduce."""
    return {Ops.ADD: 0, Ops.MUL: 1, Ops.MAX: dtypes.min(dtype)}[op]


class Reduce(Activations):
    """Sums, products, extremes, and what is made of them."""

    __slots__ = ()

    def _reduce(self, op: Ops, axis: Axes, keepdim: bool, what: str) -> Self:
        axes = self._axes(axis, what)
        kept = tuple(1 if a in axes else s for a, s in enumerate(self.shape))
        final = kept if keepdim else tuple(s for a, s in enumerate(self.shape) if a not in axes)
        if 0 in self.shape and 0 not in final:
            if op is Ops.MAX:
                raise ShapeError(f"{what}: no elements on axes {axes} of {self.shape}")
            identity = constant(int(op is Ops.MUL), self.dtype, self.device)
            return self._derived(full_shape(identity, final))
        if 0 in final:
            return self._derived(full_shape(constant(0, self.dtype, self.device), final))
        return self._derived(self._full.reduce_axis(op, axes).reshape(final))

    def sum(self, axis: Axes = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Self:
        """The sum over the axes (all for None). Narrow floats are summed in float32 and come back
        in their type; bools and narrow integers give int32 or uint32.

        >>> Tensor([[1, 2], [3, 4]]).sum(axis=0).tolist()
        [4, 6]
        """
        return self._accumulated(Ops.ADD, axis, keepdim, dtype, "sum")

    def prod(
        self, axis: Axes = None, keepdim: bool = False, dtype: DTypeLike | None = None
    ) -> Self:
        """The product over the axes.

        >>> Tensor([2, 3, 4]).prod().item()
        24
        """
        return self._accumulated(Ops.MUL, axis, keepdim, dtype, "prod")

    def _accumulated(
        self, op: Ops, axis: Axes, keepdim: bool, dtype: DTypeLike | None, what: str
    ) -> Self:
        wanted = None if dtype is None else to_dtype(dtype)
        total = self.cast(wanted or sum_acc_dtype(self.dtype))._reduce(op, axis, keepdim, what)
        narrow = wanted is None and dtypes.is_float(self.dtype) and self.dtype.itemsize < 4
        return total.cast(self.dtype) if narrow else total

    def max(self, axis: Axes = None, keepdim: bool = False) -> Self:
        """The greatest element; nan if there is one.

        >>> Tensor([[1, 5], [3, 2]]).max(axis=1).tolist()
        [5, 3]
        """
        return self._reduce(Ops.MAX, axis, keepdim, "max")

    def min(self, axis: Axes = None, keepdim: bool = False) -> Self:
        """The least element; nan if there is one.

        >>> Tensor([1, 5, 3]).min().item()
        1
        """
        return self._inverse()._reduce(Ops.MAX, axis, keepdim, "min")._inverse()

    def any(self, axis: Axes = None, keepdim: bool = False) -> Self:
        """Whether one element is not 0.

        >>> Tensor([False, True]).any().item()
        True
        """
        return self.bool()._truth(Ops.MAX, axis, keepdim)

    def all(self, axis: Axes = None, keepdim: bool = False) -> Self:
        """Whether no element is 0.

        >>> Tensor([False, True]).all().item()
        False
        """
        return self.bool()._truth(Ops.MUL, axis, keepdim)

    def _truth(self, op: Ops, axis: Axes, keepdim: bool) -> Self:
        if 0 in self.shape and op is Ops.MAX:
            op = Ops.ADD  # of nothing there is no maximum, but none is true either
        return self._reduce(op, axis, keepdim, "any" if op is not Ops.MUL else "all")

    # *** means ***

    def mean(self, axis: Axes = None, keepdim: bool = False) -> Self:
        """The mean; of integers as the default float.

        >>> Tensor([1, 2, 6]).mean().item()
        3.0
        """
        x = self._float()
        acc = sum_acc_dtype(x.dtype)
        count = self._count(axis, "mean")
        total = x.cast(acc)._reduce(Ops.ADD, axis, keepdim, "mean")
        return total._over(count).cast(x.dtype)

    def _count(self, axis: Axes, what: str) -> sint:
        result: sint = prod(self.shape[a] for a in self._axes(axis, what))
        return result

    def _over(self, count: sint) -> Self:
        """Divided by a count: nan for none."""
        if isinstance(count, UOp):
            return self / type(self)._from_uop(count.cast(dtypes.int32)).cast(self.dtype)
        return self / count if count else self * math.nan

    def var(self, axis: Axes = None, keepdim: bool = False, correction: int = 1) -> Self:
        """The variance, with Bessel's correction.

        >>> Tensor([1.0, 2.0, 3.0]).var().item()
        1.0
        """
        x = self._float()
        centered = x - x.mean(axis, keepdim=True)
        total = centered.square().sum(axis, keepdim)
        count = self._count(axis, "var")
        if isinstance(count, UOp):
            return total._over(count - correction)
        return total._over(max(count - correction, 0))

    def std(self, axis: Axes = None, keepdim: bool = False, correction: int = 1) -> Self:
        """The standard deviation.

        >>> Tensor([1.0, 2.0, 3.0]).std().item()
        1.0
        """
        return self.var(axis, keepdim, correction)._norm_of_squares()

    def _norm_of_squares(self) -> Self:
        """The square root of a sum of squares; it has no slope at 0."""
        return self.sqrt()._with_gradient("norm", self)

    def var_mean(
        self, axis: Axes = None, keepdim: bool = False, correction: int = 1
    ) -> tuple[Self, Self]:
        """Variance and mean.

        >>> [t.item() for t in Tensor([1.0, 2.0, 3.0]).var_mean()]
        [1.0, 2.0]
        """
        return self.var(axis, keepdim, correction), self.mean(axis, keepdim)

    def std_mean(
        self, axis: Axes = None, keepdim: bool = False, correction: int = 1
    ) -> tuple[Self, Self]:
        """Standard deviation and mean.

        >>> [t.item() for t in Tensor([1.0, 2.0, 3.0]).std_mean()]
        [1.0, 2.0]
        """
        return self.std(axis, keepdim, correction), self.mean(axis, keepdim)

    def norm(self, ord: float = 2, axis: Axes = None, keepdim: bool = False) -> Self:
        """The norm of that order over the axes.

        >>> Tensor([3.0, 4.0]).norm().item()
        5.0
        """
        x = self._float().abs()
        if ord == math.inf:
            return x.max(axis, keepdim)
        if ord == -math.inf:
            return x.min(axis, keepdim)
        if ord == 0:
            return (x != 0).sum(axis, keepdim).cast(x.dtype)
        if ord == 2:
            return x.square().sum(axis, keepdim)._norm_of_squares()
        return x.pow(ord).sum(axis, keepdim).pow(1 / ord)

    # *** softmax and its relatives ***

    def _shifted(self, axis: int, dtype: DTypeLike | None) -> tuple[Self, Self, Self]:
        """(x - max, exp of it, sum of that)."""
        x = self._float() if dtype is None else self.cast(dtype)
        shifted = x - x.max(axis, keepdim=True).detach()
        e = shifted.exp()
        return shifted, e, e.sum(axis, keepdim=True)

    def softmax(self, axis: int = -1, dtype: DTypeLike | None = None) -> Self:
        """exp(self), scaled so that it sums to 1 along the axis.

        >>> Tensor([0.0, 0.0]).softmax().tolist()
        [0.5, 0.5]
        """
        if 0 in self.shape:
            return self._float()
        _, e, total = self._shifted(axis, dtype)
        return e / total

    def log_softmax(self, axis: int = -1, dtype: DTypeLike | None = None) -> Self:
        """The logarithm of the softmax.

        >>> Tensor([0.0]).log_softmax().tolist()
        [0.0]
        """
        if 0 in self.shape:
            return self._float()
        shifted, _, total = self._shifted(axis, dtype)
        return shifted - total.log()

    def logsumexp(self, axis: Axes = None, keepdim: bool = False) -> Self:
        """log(sum(exp(self))), without overflow.

        >>> Tensor([0.0, 0.0]).logsumexp().numpy().round(3).item()
        0.6930000185966492
        """
        x = self._float()
        top = x.max(axis, keepdim=True).detach()
        top = (top.abs() == math.inf).where(0.0, top)
        total = (x - top).exp().sum(axis, keepdim=True).log() + top
        axes = self._axes(axis, "logsumexp")
        final = tuple(s for a, s in enumerate(self.shape) if a not in axes)
        return total if keepdim else total.reshape(final)

    # *** running totals ***

    def _running(self, axis: int, op: Ops, what: str) -> Self:
        """The reduce of all elements up to each one, as a reduce over windows of zeros and them."""
        dim = self._axis(axis, what)
        if not self.ndim or 0 in self.shape:
            return self
        if isinstance(self.shape[dim], UOp):
            return self._running_by_comparison(dim, op, what)
        size = int(self.shape[dim])
        x = self.movedim(dim, -1)
        pairs: list[tuple[int, int]] = [(0, 0)] * (x.ndim - 1)
        padded = x._pad_constant([*pairs, (size - 1, 0)], _identity(op, self.dtype))
        windows = padded._pool((size,), (1,), (1,))
        return windows._reduce(op, -1, False, what).movedim(-1, dim)

    def _running_by_comparison(self, dim: int, op: Ops, what: str) -> Self:
        """The same for an axis of symbolic size: a reduce over all elements, those that come later
        left out."""
        size = self.shape[dim]
        x = self.movedim(dim, -1).unsqueeze(-2)
        place = self._index_range(size)
        known = place.unsqueeze(0) <= place.unsqueeze(1)
        return (
            known.where(x, _identity(op, self.dtype))._reduce(op, -1, False, what).movedim(-1, dim)
        )

    def cumsum(self, axis: int = 0) -> Self:
        """The sum of all elements up to each one.

        >>> Tensor([1, 2, 3]).cumsum().tolist()
        [1, 3, 6]
        """
        x = self.cast(sum_acc_dtype(self.dtype))
        result = x._split_running(axis)
        narrow = dtypes.is_float(self.dtype) and self.dtype.itemsize < 4
        return result.cast(self.dtype) if narrow else result

    def _split_running(self, axis: int, part: int = 256) -> Self:
        """A long running sum in two steps, so that the work grows less than with the square."""
        dim = self._axis(axis, "cumsum")
        if not self.ndim or isinstance(self.shape[dim], UOp) or int(self.shape[dim]) <= 2 * part:
            return self._running(axis, Ops.ADD, "cumsum")
        size = int(self.shape[dim])
        x = self.movedim(dim, -1)
        groups = -(-size // part)
        x = x._resized(x.ndim - 1, groups * part)
        inner = x.unflatten(-1, (groups, part))._running(-1, Ops.ADD, "cumsum")
        totals = inner._slice(inner.ndim - 1, part - 1, part).squeeze(-1)._split_running(-1)
        before = totals._resized(totals.ndim - 1, groups - 1)._pad_front()
        whole = (inner + before.unsqueeze(-1)).flatten(-2)
        return whole._slice(whole.ndim - 1, 0, size).movedim(-1, dim)

    def _pad_front(self) -> Self:
        pairs: list[tuple[int, int]] = [(0, 0)] * (self.ndim - 1)
        return self._pad_constant([*pairs, (1, 0)], 0)

    def cumprod(self, axis: int = 0) -> Self:
        """The product of all elements up to each one.

        >>> Tensor([1, 2, 3]).cumprod().tolist()
        [1, 2, 6]
        """
        x = self.cast(sum_acc_dtype(self.dtype))
        narrow = dtypes.is_float(self.dtype) and self.dtype.itemsize < 4
        result = x._running(axis, Ops.MUL, "cumprod")
        return result.cast(self.dtype) if narrow else result

    def logcumsumexp(self, axis: int = 0) -> Self:
        """log(cumsum(exp(self))), without overflow.

        >>> Tensor([0.0, 0.0]).logcumsumexp().numpy().round(3).tolist()
        [0.0, 0.6930000185966492]
        """
        if not self.ndim or 0 in self.shape:
            return self._float()
        dim = self._axis(axis, "logcumsumexp")
        x = self._float().movedim(dim, -1)
        size = int(x.shape[-1])
        pairs: list[tuple[int, int]] = [(0, 0)] * (x.ndim - 1)
        padded = x._pad_constant([*pairs, (size - 1, 0)], -math.inf)
        return padded._pool((size,), (1,), (1,)).logsumexp(-1).movedim(-1, dim)

    # *** positions ***

    def _index_range(self, size: sint, dtype: DType = dtypes.int32) -> Self:
        """0 .. size - 1, as a running sum of ones, which the scheduler turns into arithmetic."""
        if isinstance(size, UOp):
            return self._index_range(size.vmax, dtype)._slice(0, 0, size)
        if size == 0:
            return type(self)._from_uop(full_shape(constant(0, dtype, self.uop.device), (0,)))
        ones = full_shape(constant(1, dtype, self.uop.device), (size,))
        return type(self)._from_uop(ones, False)._running(0, Ops.ADD, "arange") - 1

    def argmax(self, axis: int | None = None, keepdim: bool = False) -> Self:
        """The position of the greatest element, the first if there are several.

        >>> Tensor([1, 5, 5]).argmax().item()
        1
        """
        if axis is None:
            found = self.flatten().argmax(0)
            return found.reshape((1,) * self.ndim) if keepdim else found
        dim = self._axis(axis, "argmax")
        if not self.ndim:
            return self._derived(UOp.const(dtypes.int32, 0))
        length = self.shape[dim]
        size = length.vmax if isinstance(length, UOp) else int(length)
        best = self == self.max(dim, keepdim=True)
        if dtypes.is_float(self.dtype):
            best = best | self.isnan()
        place = self._index_range(length).reshape((length, *[1] * (self.ndim - dim - 1)))
        backwards = size - place
        return size - (best.cast(dtypes.int32) * backwards).max(dim, keepdim)

    def argmin(self, axis: int | None = None, keepdim: bool = False) -> Self:
        """The position of the least element, the first if there are several.

        >>> Tensor([3, 1, 2]).argmin().item()
        1
        """
        return self._inverse().argmax(axis, keepdim)

    def detach(self) -> Self:
        """The same values, without a gradient.

        >>> Tensor([1.0], requires_grad=True).detach().requires_grad
        False
        """
        return type(self)._from_uop(self.uop.detach(), False)

    def allclose(
        self, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> Self:
        """Whether all elements are close.

        >>> Tensor([1.0]).allclose(Tensor([1.0])).item()
        True
        """
        return self.isclose(other, rtol, atol, equal_nan).all()

    def _need_float(self, what: str) -> None:
        if not dtypes.is_float(self.dtype):
            raise DTypeError(f"{what} needs floats, not {self.dtype}: cast first")
