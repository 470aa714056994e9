"""Sorting, and what counts or follows extremes."""

from __future__ import annotations

from typing import Self, TypeVar

from tgcore.dtype import dtypes
from tgcore.errors import DTypeError, ShapeError
from tgcore.tensor.indexing import Indexing
from tgcore.uop.ops import Ops

O = TypeVar("O", bound="Ordering")

# up to so many comparisons in all, each element's rank is found by comparing it with all others:
# few kernels, while a sorting network needs some hundred, each of which has to be compiled once
_MOST_COMPARISONS = 1 << 28


class Ordering(Indexing):
    """sort, topk, cummax, bincount and the like."""

    __slots__ = ()

    # *** sorting ***

    def sort(self, dim: int = -1, descending: bool = False) -> tuple[Self, Self]:
        """(values in order, their positions before); equal ones keep their order, nan is greatest.

        >>> [t.tolist() for t in Tensor([3, 1, 2]).sort()]
        [[1, 2, 3], [1, 2, 0]]
        """
        axis = self._axis(dim, "sort")
        if not self.ndim or 0 in self.shape:
            return self, type(self).zeros(self.shape, dtype=dtypes.int32, device=self.uop.device)
        x = self.movedim(axis, -1)
        if int(x.numel()) * int(x.shape[-1]) <= _MOST_COMPARISONS:
            position = x._positions_by_rank(descending)
        else:
            position = x._positions_by_merging(descending)
        return x.gather(-1, position).movedim(-1, axis), position.movedim(-1, axis)

    def _positions_by_rank(self, descending: bool) -> Self:
        """For each rank the position of the element of that rank: each element's rank is how many
        others come before it."""
        size = int(self.shape[-1])
        here, there = self.unsqueeze(-1), self.unsqueeze(-2)
        order = self._index_range(size)
        before = _comes_before(there, order.unsqueeze(0), here, order.unsqueeze(1), descending)
        rank = before.sum(-1)._materialized()
        found = (rank.unsqueeze(-2) == order.unsqueeze(-1)).where(order, 0)
        return found.sum(-1)._materialized()

    def _positions_by_merging(self, descending: bool) -> Self:
        """The same by a bitonic sorting network (Batcher, "Sorting networks and their
        applications", 1968): n (log n)**2 comparisons, all of a step at once."""
        size = int(self.shape[-1])
        steps = (size - 1).bit_length()
        last = dtypes.min(self.dtype) if descending else dtypes.max(self.dtype)
        if dtypes.is_float(self.dtype) and not descending:
            last = float("nan")
        around = [*[(0, 0)] * (self.ndim - 1), (0, (1 << steps) - size)]
        x = type(self)._from_uop(self._pad_constant(around, last).uop.contiguous(), False)
        at = self._index_range(1 << steps)._broadcast_to(x.shape)._materialized()
        for block in range(1, steps + 1):
            x, at = _exchange(x, at, block, descending, mirrored=True)
            for half in range(block - 1, 0, -1):
                x, at = _exchange(x, at, half, descending, mirrored=False)
        return at._slice(at.ndim - 1, 0, size)

    def _materialized(self) -> Self:
        return type(self)._from_uop(self.uop.contiguous(), False)

    def argsort(self, dim: int = -1, descending: bool = False) -> Self:
        """The positions that would sort the tensor.

        >>> Tensor([3, 1, 2]).argsort().tolist()
        [1, 2, 0]
        """
        return self.sort(dim, descending)[1]

    def topk(
        self, k: int, dim: int = -1, largest: bool = True, sorted_: bool = True
    ) -> tuple[Self, Self]:
        """(the k greatest or least values in order, their positions).

        >>> [t.tolist() for t in Tensor([3, 1, 2]).topk(2)]
        [[3, 2], [0, 2]]
        """
        axis = self._axis(dim, "topk")
        if not 0 <= k <= (int(self.shape[axis]) if self.ndim else 1):
            raise ShapeError(f"topk: k={k} is not within axis {dim} of {self.shape}")
        values, positions = self.sort(axis, largest)
        if not self.ndim:
            return values, positions
        return values._slice(axis, 0, k), positions._slice(axis, 0, k)

    def median(self, dim: int = -1, keepdim: bool = False) -> tuple[Self, Self]:
        """(the middle value along the axis, its position): of an even number the lower one of the
        two in the middle.

        >>> [t.item() for t in Tensor([3, 1, 2]).median()]
        [2, 2]
        """
        axis = self._axis(dim, "median")
        if not self.ndim:
            return self.sort()
        size = int(self.shape[axis])
        if size == 0:
            raise ShapeError(f"median: no elements on axis {dim} of {self.shape}")
        middle = (size - 1) // 2
        found = [t._slice(axis, middle, middle + 1) for t in self.sort(axis)]
        if not keepdim:
            found = [t.squeeze(axis) for t in found]
        return found[0], found[1]

    # *** running extremes ***

    def cummax(self, axis: int = 0) -> tuple[Self, Self]:
        """(the greatest of all elements up to each one, the position of the last such).

        >>> [t.tolist() for t in Tensor([1, 3, 2]).cummax()]
        [[1, 3, 3], [0, 1, 1]]
        """
        dim = self._axis(axis, "cummax")
        if not self.ndim or 0 in self.shape:
            return self, type(self).zeros(self.shape, dtype=dtypes.int32, device=self.uop.device)
        values = self._running(dim, Ops.MAX, "cummax")
        size = int(self.shape[dim])
        order = self._index_range(size).reshape((size, *[1] * (self.ndim - dim - 1)))
        is_new = (self == values) | self.isnan()
        position = is_new.where(order, 0)._running(dim, Ops.MAX, "cummax")
        return values, position

    def cummin(self, axis: int = 0) -> tuple[Self, Self]:
        """(the least of all elements up to each one, the position of the last such).

        >>> [t.tolist() for t in Tensor([2, 3, 1]).cummin()]
        [[2, 2, 1], [0, 0, 2]]
        """
        values, position = self._inverse().cummax(axis)
        return values._inverse(), position

    # *** counting ***

    def bincount(self, weights: Self | None = None, minlength: int = 0) -> Self:
        """How often each number from 0 on occurs (or the sum of its weights). Realises self.

        >>> Tensor([0, 2, 2]).bincount().tolist()
        [1, 0, 2]
        """
        if not dtypes.is_int(self.dtype) or self.ndim != 1:
            raise DTypeError(f"bincount needs a vector of integers, not {self.shape} {self.dtype}")
        if weights is not None and weights.shape != self.shape:
            raise ShapeError(f"bincount: weights {weights.shape} do not fit {self.shape}")
        self._need_values("bincount")
        count = minlength
        if self.shape != (0,):
            if int(self.min().item()) < 0:
                raise ValueError("bincount: there are numbers below 0")
            count = max(count, int(self.max().item()) + 1)
        hot = self._one_hot_along(count)
        if weights is None:
            return hot.sum(0)
        return hot.where(weights.unsqueeze(-1), 0).sum(0)


def _comes_before(a: O, at_a: O, b: O, at_b: O, descending: bool) -> O:
    """Whether a, from the position at_a, is sorted before b from at_b."""
    one, other = (b, a) if descending else (a, b)
    less, more = one < other, other < one
    if dtypes.is_float(a.dtype):
        less = less | (other.isnan() & one.isnan().logical_not())
        more = more | (one.isnan() & other.isnan().logical_not())
    result: O = less | (more.logical_not() & (at_a < at_b))
    return result


def _exchange(x: O, at: O, block: int, descending: bool, mirrored: bool) -> tuple[O, O]:
    """A step of the network: pairs half a block of 2**block apart (or mirrored in it) in order."""
    half = 1 << (block - 1)
    shape = (*x.shape[:-1], int(x.shape[-1]) // (2 * half), 2, half)
    axis = x.ndim
    parts = [t.reshape(shape) for t in (x, at)]
    low = [t._slice(axis, 0, 1) for t in parts]
    high = [t._slice(axis, 1, 2) for t in parts]
    if mirrored:
        high = [t.flip(-1) for t in high]
    keep = _comes_before(low[0], low[1], high[0], high[1], descending)
    result = []
    for a, b in zip(low, high):
        second = keep.where(b, a)
        if mirrored:
            second = second.flip(-1)
        result.append(keep.where(a, b).cat(second, dim=axis).reshape(x.shape)._materialized())
    return result[0], result[1]
