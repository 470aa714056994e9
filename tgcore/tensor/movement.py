"""Movement: the same elements in other shapes and orders. Nothing here computes a value."""

from __future__ import annotations


import math
from collections.abc import Sequence
from typing import Any, Self, TypeAlias


from tgcore.errors import ShapeError
from tgcore.tensor.core import TensorCore
from tgcore.uop.node import sint

from tgcore.uop.symbolic import ssimplify

Sizes: TypeAlias = "sint | Sequence[sint] | None"


def flat_arguments(arguments: Sequence[Any]) -> tuple[Any, ...]:
    """`f(1, 2)` and `f((1, 2))` alike."""
    if len(arguments) == 1 and isinstance(arguments[0], (tuple, list)):
        return tuple(arguments[0])
    return tuple(arguments)


def product(sizes: Sequence[sint]) -> sint:
    """The product of sizes, simplified."""
    total: sint = 1
    for size in sizes:
        total = size * total
    return ssimplify(total)


def broadcast_shape(*shapes: Sequence[sint]) -> tuple[sint, ...]:
    """The shape that all of these broadcast to, by numpy's rules."""
    rank = max(len(s) for s in shapes)
    aligned = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    result: list[sint] = []
    for sizes in zip(*aligned):
        wide = [s for s in dict.fromkeys(sizes) if not (isinstance(s, int) and s == 1)]
        if len(wide) > 1:
            listed = " and ".join(str(tuple(s)) for s in shapes)
            raise ShapeError(f"shapes {listed} do not broadcast: sizes must be equal, or 1")
        result.append(wide[0] if wide else 1)
    return tuple(result)


class MovementMethods(TensorCore):
    """Methods that move elements."""

    __slots__ = ()

    def reshape(self, *shape: Any) -> Self:
        """The elements in another shape; -1 stands for what is left, None for the size as it is.

        >>> Tensor.arange(6).reshape(2, -1).shape
        (2, 3)
        """
        wanted = [self.shape[n] if s is None else s for n, s in enumerate(flat_arguments(shape))]
        unknown = [n for n, s in enumerate(wanted) if isinstance(s, int) and s == -1]
        if len(unknown) > 1:
            raise ShapeError(f"reshape {self.shape} to {tuple(wanted)}: only one size can be -1")
        if unknown:
            known = product([s for n, s in enumerate(wanted) if n != unknown[0]])
            if isinstance(known, int) and known == 0:
                raise ShapeError(f"reshape {self.shape} to {tuple(wanted)}: -1 could be any size")
            wanted[unknown[0]] = ssimplify(self.numel() // known)
        sizes, count = product(wanted), ssimplify(self.numel())
        different = sizes is not count and (
            sizes != count if isinstance(sizes, int) and isinstance(count, int) else False
        )
        if different or any(isinstance(s, int) and s < 0 for s in wanted):
            raise ShapeError(
                f"reshape {self.shape} to {tuple(wanted)}: {count} elements do not fit a shape of "
                f"{sizes}"
            )
        return self._unary(self.uop.reshape(wanted))

    def view(self, *shape: Any) -> Self:
        """The same as `reshape`."""
        return self.reshape(*shape)

    def expand(self, *shape: Any) -> Self:
        """Axes of size 1 (and new ones in front) repeated; -1 or None keeps a size.

        >>> Tensor([1, 2]).expand(3, 2).tolist()
        [[1, 2], [1, 2], [1, 2]]
        """
        wanted = flat_arguments(shape)
        padded = (1,) * (len(wanted) - self.ndim) + self.shape
        if len(padded) != len(wanted):
            raise ShapeError(f"expand {self.shape} to {wanted}: axes cannot be taken away")
        target = tuple(
            old if new is None or (isinstance(new, int) and new == -1) else new
            for old, new in zip(padded, wanted)
        )
        for old, new in zip(padded, target):
            if old is not new and not (isinstance(old, int) and old in (1, new)):
                raise ShapeError(f"expand {self.shape} to {target}: only sizes of 1 can grow")
        return self._unary(self.uop.reshape(padded).expand(target))

    def expand_as(self, other: TensorCore) -> Self:
        """Expanded to the other's shape."""
        return self.expand(other.shape)

    def permute(self, *order: Any) -> Self:
        """The axes in another order.

        >>> Tensor.ones(2, 3, 4).permute(2, 0, 1).shape
        (4, 2, 3)
        """
        axes = tuple(self._axis(a) for a in flat_arguments(order))
        if sorted(axes) != list(range(self.ndim)):
            raise ShapeError(f"permute {self.shape} by {axes}: every axis is needed once")
        return self._unary(self.uop.permute(axes))

    def transpose(self, first: int = 1, second: int = 0) -> Self:
        """Two axes exchanged."""
        order = list(range(self.ndim))
        a, b = self._axis(first), self._axis(second)
        order[a], order[b] = order[b], order[a]
        return self.permute(order)

    def swapaxes(self, first: int, second: int) -> Self:
        """Two axes exchanged."""
        return self.transpose(first, second)

    def movedim(self, source: int, destination: int) -> Self:
        """One axis moved to another place, the others in their order."""
        order = [a for a in range(self.ndim) if a != self._axis(source)]
        order.insert(self._axis(destination), self._axis(source))
        return self.permute(order)

    @property
    def T(self) -> Self:
        """The last two axes exchanged (of a matrix: its transpose)."""
        return self if self.ndim < 2 else self.transpose(-1, -2)

    def flip(self, *axes: Any) -> Self:
        """The axes reversed.

        >>> Tensor([1, 2, 3]).flip(0).tolist()
        [3, 2, 1]
        """
        return self._unary(self.uop.flip([self._axis(a) for a in flat_arguments(axes)]))

    def shrink(self, bounds: Sequence[tuple[sint, sint] | None]) -> Self:
        """The box between (begin, end) of each axis; None keeps an axis."""
        if len(bounds) != self.ndim:
            raise ShapeError(f"shrink {self.shape} needs {self.ndim} pairs, not {len(bounds)}")
        pairs = [(0, s) if b is None else b for b, s in zip(bounds, self.shape)]
        for (begin, end), size in zip(pairs, self.shape):
            numbers = all(isinstance(v, int) for v in (begin, end, size))
            if numbers and not 0 <= begin <= end <= size:
                raise ShapeError(f"shrink {self.shape} by {tuple(pairs)}: out of range")
        begins = [begin for begin, _ in pairs]
        sizes = [ssimplify(end - begin) for begin, end in pairs]
        return self._unary(self.uop.shrink(begins, sizes))

    def _pad_zero(self, pairs: Sequence[tuple[sint, sint]]) -> Self:
        """Zeros around; negative amounts cut off."""
        kept = []
        for (before, after), size in zip(pairs, self.shape):
            begin = -before if isinstance(before, int) and before < 0 else 0
            end = size + after if isinstance(after, int) and after < 0 else size
            kept.append((begin, end))
        cut = self.shrink(kept) if any(k != (0, s) for k, s in zip(kept, self.shape)) else self
        grown = [tuple(v if not isinstance(v, int) or v > 0 else 0 for v in p) for p in pairs]
        shape = [ssimplify(s + b + a) for s, (b, a) in zip(cut.shape, grown)]
        return self._unary(cut.uop.pad([b for b, _ in grown], shape))

    def squeeze(self, axis: int | None = None) -> Self:
        """Without axes of size 1: all of them, or the one."""
        if axis is None:
            return self.reshape([s for s in self.shape if not (isinstance(s, int) and s == 1)])
        number = self._axis(axis)
        if not self.shape or self.shape[number] != 1:
            return self
        return self.reshape(self.shape[:number] + self.shape[number + 1 :])

    def unsqueeze(self, axis: int) -> Self:
        """With a new axis of size 1.

        >>> Tensor([1, 2]).unsqueeze(1).shape
        (2, 1)
        """
        number = self._axis(axis, 1)
        return self.reshape((*self.shape[:number], 1, *self.shape[number:]))

    def flatten(self, start: int = 0, end: int = -1) -> Self:
        """Axes from start to end as one."""
        if not self.shape:
            return self.reshape(1)
        first, last = self._axis(start), self._axis(end)
        merged = product(self.shape[first : last + 1])
        return self.reshape((*self.shape[:first], merged, *self.shape[last + 1 :]))

    def unflatten(self, axis: int, sizes: Sequence[int]) -> Self:
        """One axis as several of these sizes."""
        number = self._axis(axis)
        return self.reshape((*self.shape[:number], *sizes, *self.shape[number + 1 :]))

    def repeat(self, *repeats: Any) -> Self:
        """The whole tensor side by side so many times along each axis, as torch's.

        >>> Tensor([1, 2]).repeat(2).tolist()
        [1, 2, 1, 2]
        """
        counts = flat_arguments(repeats)
        base = (1,) * (len(counts) - self.ndim) + self.shape
        if len(base) != len(counts):
            raise ShapeError(f"repeat {self.shape} by {counts}: a count for each axis is needed")
        split = [v for s in base for v in (1, s)]
        wide = [v for r, s in zip(counts, base) for v in (r, s)]
        return self.reshape(split).expand(wide).reshape([r * s for r, s in zip(counts, base)])

    def repeat_interleave(self, repeats: int, axis: int | None = None) -> Self:
        """Each element so many times in a row."""
        x = self.flatten() if axis is None else self
        number = x._axis(0 if axis is None else axis)
        wide = (*x.shape[: number + 1], repeats, *x.shape[number + 1 :])
        merged = (*x.shape[:number], x.shape[number] * repeats, *x.shape[number + 1 :])
        return x.unsqueeze(number + 1).expand(wide).reshape(merged)

    def split(self, sizes: int | Sequence[int], axis: int = 0) -> tuple[Self, ...]:
        """Parts of that size (the last may be smaller), or of these sizes, along the axis."""
        number = self._axis(axis)
        total = self._static_shape("split")[number]
        if isinstance(sizes, int):
            if sizes < 1:
                raise ValueError(f"split: the size of a part must be positive, not {sizes}")
            sizes = [min(sizes, total - b) for b in range(0, max(total, 1), sizes)]
        if sum(sizes) != total:
            raise ShapeError(f"split {self.shape} along {axis}: {list(sizes)} is not {total}")
        begins = [sum(sizes[:n]) for n in range(len(sizes))]
        return tuple(self._part(number, b, b + s) for b, s in zip(begins, sizes))

    def chunk(self, count: int, axis: int = 0) -> list[Self]:
        """At most so many parts of equal size along the axis."""
        total = self._static_shape("chunk")[self._axis(axis)]
        return list(self.split(max(1, math.ceil(total / count)), axis))

    def _part(self, axis: int, begin: sint, end: sint) -> Self:
        bounds: list[tuple[sint, sint] | None] = [None] * self.ndim
        bounds[axis] = (begin, end)
        return self.shrink(bounds)

    def _pool(
        self,
        kernel: Sequence[int],
        stride: int | Sequence[int] = 1,
        dilation: int | Sequence[int] = 1,
    ) -> Self:
        """Windows over the last axes: (..., outputs..., kernel...), all by movement."""
        count = len(kernel)
        if self.ndim < count:
            raise ShapeError(f"windows of {tuple(kernel)} need {count} axes, not {self.shape}")
        strides = (stride,) * count if isinstance(stride, int) else tuple(stride)
        dilations = (dilation,) * count if isinstance(dilation, int) else tuple(dilation)
        outer = self.shape[: self.ndim - count]
        sizes = self._static_shape("a window op")[self.ndim - count :]
        outputs = [
            (i - d * (k - 1) - 1) // s + 1 for i, k, s, d in zip(sizes, kernel, strides, dilations)
        ]
        if any(o < 1 for o in outputs):
            raise ShapeError(
                f"windows of {tuple(kernel)} with dilation {dilations} do not fit into {sizes}"
            )
        x = self
        if all(s == k and d == 1 for k, s, d in zip(kernel, strides, dilations)):
            kept = [(0, o * s) for o, s in zip(outputs, strides)]
            x = x.shrink([*[None] * len(outer), *kept])
            x = x.reshape((*outer, *[v for o, k in zip(outputs, kernel) for v in (o, k)]))
        else:
            x = x._overlapping(outer, sizes, outputs, kernel, strides, dilations)
        first = len(outer)
        return x.permute(
            *range(first),
            *[first + 2 * n for n in range(count)],
            *[first + 2 * n + 1 for n in range(count)],
        )

    def _overlapping(
        self,
        outer: tuple[sint, ...],
        sizes: Sequence[int],
        outputs: Sequence[int],
        kernel: Sequence[int],
        strides: Sequence[int],
        dilations: Sequence[int],
    ) -> Self:
        """(..., k0, o0, k1, o1, ...) windows, as shifts of a repeated axis, then reordered."""
        # a row repeated and cut to rows that are longer by the dilation is shifted by it each time
        spans = [max(i, s * o) for i, s, o in zip(sizes, strides, outputs)]
        x = self._pad_zero([*[(0, 0)] * len(outer), *[(0, p - i) for p, i in zip(spans, sizes)]])
        repeats = [math.ceil(k * (p + d) / p) for k, p, d in zip(kernel, spans, dilations)]
        x = x.repeat([*[1] * len(outer), *repeats])
        rows = [(0, k * (p + d)) for k, p, d in zip(kernel, spans, dilations)]
        x = x.shrink([*[None] * len(outer), *rows])
        x = x.reshape(
            (*outer, *[v for k, p, d in zip(kernel, spans, dilations) for v in (k, p + d)])
        )
        cut = [v for k, o, s in zip(kernel, outputs, strides) for v in ((0, k), (0, o * s))]
        x = x.shrink([*[None] * len(outer), *cut])
        x = x.reshape(
            (*outer, *[v for k, o, s in zip(kernel, outputs, strides) for v in (k, o, s)])
        )
        first = [v for k, o in zip(kernel, outputs) for v in ((0, k), (0, o), (0, 1))]
        x = x.shrink([*[None] * len(outer), *first])
        x = x.reshape((*outer, *[v for k, o in zip(kernel, outputs) for v in (k, o)]))
        swap = [len(outer) + 2 * n + 1 - m for n in range(len(kernel)) for m in (0, 1)]
        return x.permute(*range(len(outer)), *swap)

    def unfold(self, axis: int, size: int, step: int) -> Self:
        """Windows of that size along the axis, as a new last axis (torch's unfold)."""
        number = self._axis(axis)
        moved = self.movedim(number, -1)
        return moved._pool((size,), step).movedim(-2, number)

    def roll(self, shifts: int, axis: int | None = None) -> Self:
        """Elements moved along an axis; what leaves at one end enters at the other."""
        if axis is None:
            return self.flatten().roll(shifts, 0).reshape(self.shape)
        number = self._axis(axis)
        total = self._static_shape("roll")[number]
        if total == 0:
            return self
        doubled = [1] * self.ndim
        doubled[number] = 2
        begin = -shifts % total
        return self.repeat(doubled)._part(number, begin, begin + total)

    def diagonal(self) -> Self:
        """The diagonal of a square matrix (of the last two axes)."""
        shape = self._static_shape("diagonal")
        if len(shape) < 2 or shape[-1] != shape[-2]:
            raise ShapeError(f"diagonal needs square matrices, not {self.shape}")
        n = shape[-1]
        flat = self.flatten(-2, -1)._pad_zero([*[(0, 0)] * (len(shape) - 2), (0, n)])
        return flat.reshape((*shape[:-2], n, n + 1))._part(len(shape) - 1, 0, 1).squeeze(-1)

    def _broadcast_to(self, shape: Sequence[sint]) -> Self:
        """Expanded by numpy's rules."""
        if self.shape == tuple(shape):
            return self
        if self.ndim > len(shape):
            raise ShapeError(f"cannot broadcast {self.shape} to {tuple(shape)}")
        return self.expand(shape)
