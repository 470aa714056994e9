"""Reading parts of a tensor: by ints, slices, None, Ellipsis, tensors and masks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np

from tgcore.dtype import dtypes
from tgcore.errors import DTypeError, ShapeError
from tgcore.helpers import prod
from tgcore.runtime.jit import JitError, is_recording
from tgcore.tensor.core import TensorCore
from tgcore.tensor.movement import broadcast_shape
from tgcore.tensor.randomness import Randomness
from tgcore.uop.node import UOp, sint
from tgcore.uop.ops import Ops
from tgcore.uop.symbolic import ssimplify


@dataclass(frozen=True)
class Part:
    """What one index does to one axis: begin and count of elements, each `step` apart, from the
    back if `flipped`; `gone` if the axis goes, as with an int."""

    begin: sint
    count: sint
    step: int = 1
    flipped: bool = False
    gone: bool = False


@dataclass(frozen=True)
class ParsedIndex:
    """An index taken apart: a part for each axis, tensors for some of the axes that remain, and
    the places of new axes. `tensors` are (axis of the view, tensor)."""

    parts: tuple[Part, ...]
    tensors: tuple[tuple[int, Any], ...]
    layout: tuple[str, ...]  # "axis", "new" or "tensor", for every axis of the view in order


I = TypeVar("I", bound="Indexing")


class Indexing(Randomness):
    """`x[...]`, gather, one_hot and what is made of them."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> Self:
        """A part of the tensor, as numpy has it. Tensors as indices pick elements (those out of
        range give 0); bool masks are realised first.

        >>> Tensor.arange(6).reshape(2, 3)[1, ::-2].tolist()
        [5, 3]
        """
        parsed = self._parse_index(index)
        view = self._basic_view(parsed)
        return view._advanced(parsed) if parsed.tensors else view._with_layout(parsed)

    # *** taking an index apart ***

    def _parse_index(self, index: Any) -> ParsedIndex:
        items = list(index) if isinstance(index, tuple) else [index]
        items = [x for item in items for x in self._expand_mask(item)]
        items = self._without_ellipsis(items)
        parts: list[Part] = []
        tensors: list[tuple[int, Any]] = []
        layout: list[str] = []
        for item in items:
            if item is None:
                layout.append("new")
                continue
            axis = len(parts)
            if axis >= self.ndim:
                raise ShapeError(f"too many indices for shape {self.shape}: {index!r}")
            size = self.shape[axis]
            if isinstance(item, TensorCore):
                tensors.append((sum(x != "gone" for x in layout), item))
                layout.append("tensor")
                parts.append(Part(0, size))
            elif isinstance(item, slice):
                layout.append("axis")
                parts.append(_slice_part(item, size))
            else:
                layout.append("gone")
                parts.append(_int_part(item, size, axis))
        return ParsedIndex(tuple(parts), tuple(tensors), tuple(x for x in layout if x != "gone"))

    def _expand_mask(self, item: Any) -> list[Any]:
        """Lists and arrays as tensors; a mask as the positions where it holds."""
        if isinstance(item, (list, np.ndarray)):
            item = self._tensor_from(np.asarray(item) if len(item) else np.zeros(0, np.int32))
        if isinstance(item, (bool, np.bool_)):
            item = self._tensor_from(np.asarray([0] if item else [], np.int32))
            return [None, item] if self.ndim == 0 else [item]
        if not isinstance(item, TensorCore):
            return [item]
        if dtypes.is_float(item.dtype):
            raise DTypeError(f"an index must be of integers or bools, not {item.dtype}")
        if dtypes.is_bool(item.dtype):
            return list(type(self)._from_uop(item.uop).nonzero_tuple())
        return [item]

    def _without_ellipsis(self, items: list[Any]) -> list[Any]:
        dots = [i for i, item in enumerate(items) if item is Ellipsis]
        if len(dots) > 1:
            raise IndexError("an index can have one Ellipsis only")
        named = sum(item is not None and item is not Ellipsis for item in items)
        fill = [slice(None)] * max(self.ndim - named, 0)
        if dots:
            return items[: dots[0]] + fill + items[dots[0] + 1 :]
        return items + fill

    # *** the view: ints and slices ***

    def _basic_view(self, parsed: ParsedIndex) -> Self:
        """The parts of all axes; axes of ints are gone."""
        view = self.shrink([_box(p) for p in parsed.parts])
        view = view.flip([a for a, p in enumerate(parsed.parts) if p.flipped])
        for axis, part in enumerate(parsed.parts):
            if part.step > 1:
                view = view._every(axis, part.step, part.count)
        return view.reshape(tuple(s for s, p in zip(view.shape, parsed.parts) if not p.gone))

    def _every(self, axis: int, step: int, count: sint) -> Self:
        before, after = self.shape[:axis], self.shape[axis + 1 :]
        assert isinstance(count, int)
        x = self._resized(axis, count * step).reshape((*before, count, step, *after))
        return x._slice(axis + 1, 0, 1).reshape((*before, count, *after))

    def _with_layout(self, parsed: ParsedIndex) -> Self:
        """With the new axes that None asks for."""
        sizes = iter(self.shape)
        return self.reshape(tuple(1 if x == "new" else next(sizes) for x in parsed.layout))

    # *** tensors as indices ***

    def _advanced(self, parsed: ParsedIndex) -> Self:
        x = self._with_layout(parsed)
        axes = [a for a, _ in parsed.tensors]
        x, position, shape = x._to_gather(parsed)
        picked = x._pick(position.flatten()).reshape((*shape, *x.shape[1:]))
        if axes != list(range(axes[0], axes[0] + len(axes))):
            return picked  # tensors that are apart from each other: their axes come first
        ndim = len(shape)
        order = list(range(picked.ndim))
        return picked.permute(
            [*order[ndim : ndim + axes[0]], *order[:ndim], *order[ndim + axes[0] :]]
        )

    def _to_gather(self, parsed: ParsedIndex) -> tuple[Self, Self, tuple[sint, ...]]:
        """Self with the indexed axes as one in front, positions on it, and their shape."""
        axes = [a for a, _ in parsed.tensors]
        sizes = [self.shape[a] for a in axes]
        shape = broadcast_shape("index", *(t.shape for _, t in parsed.tensors))
        flat, valid = None, None
        for (_, tensor), size in zip(parsed.tensors, sizes):
            index = _wrapped(tensor, size)
            bound = index._number(size)
            flat = index if flat is None else flat * bound + index
            inside = (index >= 0) & (index < bound)
            valid = inside if valid is None else valid & inside
        assert flat is not None and valid is not None
        if len(axes) > 1:
            flat = valid.where(flat, -1)
        rest = [a for a in range(self.ndim) if a not in axes]
        x = self.permute([*axes, *rest])
        x = x.reshape((prod(sizes), *x.shape[len(axes) :]))
        return x, flat._broadcast_to(shape), shape

    def _number(self, size: sint) -> Any:
        """A size as a number to compute with in self's type."""
        if isinstance(size, UOp):
            return type(self)._from_uop(size.cast(dtypes.int32)).cast(self.dtype)
        return size

    def _pick(self, position: Self) -> Self:
        """Rows by their positions: a choice by comparison, which becomes an index when compiled."""
        rest = self.shape[1:]
        count, total = position.shape[0], self.shape[0]
        if 0 in (count, total, *rest):
            return type(self).zeros((count, *rest), dtype=self.dtype, device=self.uop.device)
        ones = (1,) * len(rest)
        here = self._index_range(total, position.dtype).reshape((1, total, *ones))
        chosen = position.reshape((count, 1, *ones)) == here
        return chosen.where(self.unsqueeze(0), self._zero())._reduce(Ops.ADD, 1, False, "index")

    def _one_hot_along(self, size: int) -> Self:
        """A new last axis, true at the position that self names."""
        index = _wide_enough(self)
        return index.unsqueeze(-1) == index._index_range(size, index.dtype)

    def one_hot(self, num_classes: int = -1) -> Self:
        """A 1 at the position that each element names, zeros elsewhere. Without `num_classes` the
        greatest element is looked up first.

        >>> Tensor([0, 2]).one_hot(3).tolist()
        [[1, 0, 0], [0, 0, 1]]
        """
        if not dtypes.is_int(self.dtype):
            raise DTypeError(f"one_hot needs integers, not {self.dtype}: cast first")
        if num_classes == -1:
            num_classes = int(self.max().item()) + 1
        return self._one_hot_along(num_classes).cast(dtypes.default_int)

    # *** positions that depend on values ***

    def nonzero_tuple(self) -> tuple[Self, ...]:
        """The positions of the elements that are not 0, a tensor for each axis. Realises self.

        >>> [t.tolist() for t in Tensor([[0, 5]]).nonzero_tuple()]
        [[0], [1]]
        """
        self._need_values("nonzero")
        found = np.atleast_1d(self.numpy()).nonzero()
        return tuple(self._from_array(f.astype(np.int32), dtypes.int32, self.device) for f in found)

    def nonzero(self) -> Self:
        """The positions of the elements that are not 0, a row for each. Realises self.

        >>> Tensor([0, 5]).nonzero().tolist()
        [[1]]
        """
        self._need_values("nonzero")
        found = np.argwhere(self.numpy()).astype(np.int32)
        return self._from_array(found, dtypes.int32, self.device)

    def masked_select(self, mask: Self) -> Self:
        """The elements where the mask holds, in one axis. Realises the mask.

        >>> Tensor([1, 2, 3]).masked_select(Tensor([True, False, True])).tolist()
        [1, 3]
        """
        shape = broadcast_shape("masked_select", self.shape, mask.shape)
        found = mask.bool()._broadcast_to(shape).flatten().nonzero_tuple()[0]
        return self._broadcast_to(shape).flatten()[found]

    def _need_values(self, what: str) -> None:
        if is_recording():
            raise JitError(
                f"{what}: how many there are depends on values, which a capture would freeze; use "
                "where() instead, or compute it outside of the captured function"
            )

    def gather(self, dim: int, index: Self) -> Self:
        """Elements along an axis, by positions in a tensor with as many axes.

        >>> Tensor([[1, 2], [3, 4]]).gather(1, Tensor([[1], [0]])).tolist()
        [[2], [3]]
        """
        axis = self._axis(dim, "gather")
        x = self._cut_to(index, axis, "gather")
        size = int(self.shape[axis])
        if 0 in index.shape or size == 0:
            return type(self).zeros(index.shape, dtype=self.dtype, device=self.uop.device)
        along = x.unsqueeze(-1).transpose(-1, axis)
        chosen = _wrapped(index, size)._one_hot_along(size)
        return chosen.where(along, self._zero())._reduce(Ops.ADD, -1, False, "gather")

    def _cut_to(self, index: Self, axis: int, what: str) -> Self:
        if not dtypes.is_int(index.dtype):
            raise DTypeError(f"{what}: the index must be of integers, not {index.dtype}")
        if index.ndim != self.ndim or any(
            i > s for a, (i, s) in enumerate(zip(index.shape, self.shape)) if a != axis
        ):
            raise ShapeError(
                f"{what}: index of shape {index.shape} does not fit {self.shape} along axis "
                f"{axis}: it needs as many axes, and none longer but that one"
            )
        return self.shrink([None if a == axis else (0, s) for a, s in enumerate(index.shape)])

    def scatter(self, dim: int, index: Self, src: Any, reduce: str | None = None) -> Self:
        """Self with elements of src at the positions along an axis; where several go to one place
        the last one counts, or they are added ("add") or multiplied ("multiply") to what is there.

        >>> Tensor([1, 1, 1]).scatter(0, Tensor([0, 2]), Tensor([5, 6])).tolist()
        [5, 1, 6]
        """
        if reduce not in (None, "add", "multiply"):
            raise ValueError(f"scatter: reduce must be None, 'add' or 'multiply', not {reduce!r}")
        axis, chosen, along = self._scatter_parts(dim, index, src, "scatter")
        if 0 in index.shape:
            return self
        if reduce == "add":
            return chosen.where(along, self._zero())._reduce(Ops.ADD, -1, False, "scatter") + self
        if reduce == "multiply":
            one = self._as_tensor(1, "scatter", self.dtype)
            return chosen.where(along, one)._reduce(Ops.MUL, -1, False, "scatter") * self
        count = int(index.shape[axis])
        order = self._index_range(count) + 1
        last = chosen.where(order, 0).max(-1)
        value = (last.unsqueeze(-1) == order).where(along, self._zero())
        return (last > 0).where(value._reduce(Ops.ADD, -1, False, "scatter"), self)

    def _scatter_parts(self, dim: int, index: Self, src: Any, what: str) -> tuple[int, Self, Self]:
        """(axis, which source goes where with the sources last, the sources last)."""
        axis = self._axis(dim, what)
        self._cut_to(index, axis, what)
        source = self._as_tensor(src, what, self.dtype)
        if source.dtype is not self.dtype:
            raise DTypeError(f"{what}: src is {source.dtype}, self is {self.dtype}: cast one")
        if source.ndim == 0:
            source = source._broadcast_to(index.shape)
        source = source.shrink([(0, s) for s in index.shape])
        size = int(self.shape[axis])
        place = _wrapped(index, size).unsqueeze(-1).transpose(-1, axis)
        here_shape = [1] * (self.ndim + 1)
        here_shape[axis] = size
        chosen = place == self._index_range(size, place.dtype).reshape(here_shape)
        along = source.unsqueeze(-1).transpose(-1, axis)
        pairs = [(0, s - i) for s, i in zip(self.shape, index.shape)]
        pairs[axis] = (0, 0)
        return axis, chosen.pad([*pairs, (0, 0)]), along.pad([*pairs, (0, 0)])

    def scatter_reduce(
        self, dim: int, index: Self, src: Self, reduce: str, include_self: bool = True
    ) -> Self:
        """Sources reduced at the positions along an axis: "sum", "prod", "mean", "amax", "amin".

        >>> Tensor([1, 1]).scatter_reduce(0, Tensor([0, 0]), Tensor([5, 6]), "sum").tolist()
        [12, 1]
        """
        axis, chosen, along = self._scatter_parts(dim, index, src, "scatter_reduce")
        hit = chosen._reduce(Ops.MAX, -1, False, "scatter_reduce")
        if reduce in ("sum", "mean"):
            start = self if include_self else hit.where(self._zero(), self)
            total = chosen.where(along, self._zero())._reduce(Ops.ADD, -1, False, "sum") + start
            if reduce == "sum":
                return total
            count = chosen.sum(-1).cast(self.dtype)
            count = count + 1 if include_self else hit.where(count, 1)
            return total.div(count, rounding_mode=None if self.is_floating_point() else "floor")
        one = self._as_tensor(1, "scatter_reduce", self.dtype)
        if reduce == "prod":
            start = self if include_self else hit.where(one, self)
            return chosen.where(along, one)._reduce(Ops.MUL, -1, False, "prod") * start
        if reduce == "amin":
            return (
                self._inverse()
                .scatter_reduce(axis, index, src._inverse(), "amax", include_self)
                ._inverse()
            )
        if reduce != "amax":
            raise ValueError(
                f"scatter_reduce: no reduce {reduce!r}; use sum, prod, mean, amax, amin"
            )
        least = self._as_tensor(dtypes.min(self.dtype), "scatter_reduce", self.dtype)
        best = chosen.where(along, least)._reduce(Ops.MAX, -1, False, "amax")
        return hit.where(self.maximum(best) if include_self else best, self)

    def index_select(self, dim: int, index: Self) -> Self:
        """The parts of an axis that a vector of positions names.

        >>> Tensor([[1, 2, 3]]).index_select(1, Tensor([2, 0])).tolist()
        [[3, 1]]
        """
        axis = self._axis(dim, "index_select")
        return self[(*[slice(None)] * axis, index)]


def _wide_enough(index: I) -> I:
    """In a type that can name the positions of any axis."""
    return index if index.dtype.itemsize >= 4 else index.cast(dtypes.int32)


def _wrapped(index: I, size: sint) -> I:
    """Negative positions counted from the end."""
    index = _wide_enough(index)
    if dtypes.is_unsigned(index.dtype):
        return index
    return (index < 0).where(index + index._number(size), index)


def _box(part: Part) -> tuple[sint, sint]:
    if part.step == 1:
        return (part.begin, ssimplify(part.begin + part.count))
    assert isinstance(part.count, int)
    length = (part.count - 1) * part.step + 1 if part.count else 0
    return (part.begin, part.begin + length)


def _int_part(item: Any, size: sint, axis: int) -> Part:
    if isinstance(item, UOp):
        return Part(item, 1, gone=True)
    try:
        number = item.__index__()
    except AttributeError:
        raise TypeError(
            f"an index must be an int, slice, None, Ellipsis or Tensor, not {type(item).__name__}"
        ) from None
    if isinstance(size, int) and not -size <= number < size:
        raise IndexError(f"index {number} is out of range for axis {axis} of size {size}")
    return Part(number + size if number < 0 else number, 1, gone=True)


def _slice_part(item: slice, size: sint) -> Part:
    if isinstance(size, UOp) or any(isinstance(v, UOp) for v in (item.start, item.stop)):
        if item.step not in (None, 1):
            raise ShapeError("a slice of symbolic size must have step 1")
        begin = 0 if item.start is None else item.start
        end = size if item.stop is None else item.stop
        return Part(begin, ssimplify(end - begin))
    try:
        begin, end, step = item.indices(size)
    except TypeError:
        raise TypeError(f"a slice must be of ints, not {item}") from None
    count = len(range(begin, end, step))
    if not count:
        return Part(0, 0)
    if step < 0:
        return Part(begin + (count - 1) * step, count, -step, True)
    return Part(begin, count, step)
