"""Methods that rearrange elements and compute nothing."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Self

from tgcore.dtype import dtypes, least_upper_dtype
from tgcore.errors import ShapeError
from tgcore.helpers import prod
from tgcore.tensor import rearrange
from tgcore.tensor.core import FREE_SCALARS, TensorCore, constant, full_shape
from tgcore.uop.node import UOp, sint
from tgcore.uop.ops import Ops
from tgcore.uop.symbolic import ssimplify


def as_shape(args: Sequence[Any]) -> tuple[Any, ...]:
    """A shape given as one sequence or as several arguments."""
    if len(args) == 1 and isinstance(args[0], (tuple, list)):
        return tuple(args[0])
    return tuple(args)


def broadcast_shape(what: str, *shapes: tuple[sint, ...]) -> tuple[sint, ...]:
    """The shape that all of these can be expanded to."""
    ndim = max(len(s) for s in shapes)
    padded = [(1,) * (ndim - len(s)) + s for s in shapes]
    result: list[sint] = []
    for sizes in zip(*padded):
        found: sint = 1
        for size in sizes:
            if isinstance(size, int) and size == 1:
                continue
            if isinstance(found, int) and found == 1:
                found = size
            elif found is not size and not (isinstance(found, int) and found == size):
                raise ShapeError(
                    f"{what}: shapes {' and '.join(map(str, shapes))} do not broadcast: "
                    f"sizes {found} and {size} differ and none is 1; reshape or expand one of them"
                )
        result.append(found)
    return tuple(result)


class Movement(TensorCore):
    """reshape, permute, expand, pad, shrink, flip, and what is made of them."""

    __slots__ = ()

    def _move(self, uop: UOp) -> Self:
        return self._derived(uop)

    @property
    def _full(self) -> UOp:
        """The node, with its shape spelled out."""
        return full_shape(self.uop, self.shape)

    # *** the six ***

    def reshape(self, *shape: Any) -> Self:
        """The elements in another shape; one size may be -1, None keeps a size.

        >>> Tensor.arange(6).reshape(2, 3).tolist()
        [[0, 1, 2], [3, 4, 5]]
        """
        wanted = [
            self.shape[i] if s is None and i < self.ndim else s
            for i, s in enumerate(as_shape(shape))
        ]
        if wanted.count(-1) > 1:
            raise ShapeError(f"reshape: {tuple(wanted)} has more than one -1")
        if -1 in wanted:
            known = prod(s for s in wanted if not (isinstance(s, int) and s == -1))
            wanted[wanted.index(-1)] = self._missing_size(known, tuple(wanted))
        ints = [*self.shape, *wanted]
        if all(isinstance(s, int) for s in ints) and prod(wanted) != prod(self.shape):
            raise ShapeError(
                f"reshape: {self.shape} has {prod(self.shape)} elements, "
                f"{tuple(wanted)} has {prod(wanted)}"
            )
        if any(isinstance(s, int) and s < 0 for s in wanted):
            raise ShapeError(f"reshape: sizes must not be negative: {tuple(wanted)}")
        return self._move(self.uop.reshape(tuple(wanted)))

    def _missing_size(self, known: Any, wanted: tuple[Any, ...]) -> sint:
        total = prod(self.shape)
        if isinstance(known, int) and isinstance(total, int):
            if known == 0 or total % known:
                raise ShapeError(f"reshape: no size for -1 turns {self.shape} into {wanted}")
            return total // known
        if known is total:
            return 1
        quotient: sint = total // known
        return quotient

    def view(self, *shape: Any) -> Self:
        """The same as `reshape`.

        >>> Tensor.arange(4).view(2, 2).tolist()
        [[0, 1], [2, 3]]
        """
        return self.reshape(*shape)

    def expand(self, *shape: Any) -> Self:
        """Axes of size 1 repeated; -1 or None keeps a size.

        >>> Tensor([[1], [2]]).expand(2, 3).tolist()
        [[1, 1, 1], [2, 2, 2]]
        """
        wanted = as_shape(shape)
        padded = (1,) * (len(wanted) - self.ndim) + self.shape
        if len(padded) != len(wanted):
            raise ShapeError(f"expand: {wanted} has fewer axes than {self.shape}")
        target = tuple(
            old if new is None or (isinstance(new, int) and new == -1) else new
            for old, new in zip(padded, wanted)
        )
        return self._broadcast_to(target, "expand")

    def _broadcast_to(self, shape: tuple[sint, ...], what: str = "expand") -> Self:
        return self._move(self._expanded(shape, what))

    def _expanded(self, shape: tuple[sint, ...], what: str) -> UOp:
        if self.shape == shape:
            return self.uop
        padded = (1,) * (len(shape) - self.ndim) + self.shape
        for old, new in zip(padded, shape):
            if old is not new and not (isinstance(old, int) and old in (1, new)):
                raise ShapeError(
                    f"{what}: {self.shape} cannot be expanded to {shape}: {old} is not 1 or {new}"
                )
        return self.uop.reshape(padded).expand(shape)

    def _operand(self, shape: tuple[sint, ...]) -> UOp:
        """The node to use in an elementwise op of that shape."""
        if self.uop.op in FREE_SCALARS:
            return self.uop
        return self._expanded(shape, "broadcast")

    def permute(self, *order: Any) -> Self:
        """The axes in another order.

        >>> Tensor.zeros(2, 3, 4).permute(2, 0, 1).shape
        (4, 2, 3)
        """
        axes = tuple(self._axis(a, "permute") for a in as_shape(order))
        if sorted(axes) != list(range(self.ndim)):
            raise ShapeError(f"permute: {axes} is no order of the {self.ndim} axes of {self.shape}")
        return self._move(self.uop.permute(axes)) if self.ndim else self

    def flip(self, *axis: Any) -> Self:
        """The axes reversed.

        >>> Tensor([1, 2, 3]).flip(0).tolist()
        [3, 2, 1]
        """
        return self._move(self._full.flip(self._axes(as_shape(axis), "flip")))

    def shrink(self, arg: Sequence[tuple[sint, sint] | None]) -> Self:
        """The box from begin to end on each axis; None keeps an axis.

        >>> Tensor.arange(5).shrink(((1, 3),)).tolist()
        [1, 2]
        """
        if len(arg) != self.ndim:
            raise ShapeError(f"shrink: {arg} does not name each of the axes of {self.shape}")
        bounds = [(0, s) if a is None else a for a, s in zip(arg, self.shape)]
        for (begin, end), size in zip(bounds, self.shape):
            if (
                all(isinstance(v, int) for v in (begin, end, size))
                and not 0 <= begin <= end <= size
            ):
                raise ShapeError(f"shrink: {tuple(bounds)} is not inside {self.shape}")
        shape = tuple(e if isinstance(b, int) and b == 0 else ssimplify(e - b) for b, e in bounds)
        if shape == self.shape:
            return self
        return self._move(self._full.shrink(tuple(b for b, _ in bounds), shape))

    def pad(
        self,
        padding: Sequence[sint] | Sequence[tuple[sint, sint] | None],
        mode: str = "constant",
        value: float = 0.0,
    ) -> Self:
        """More elements around: a flat (left, right, top, bottom, ...) from the last axis backwards
        as in PyTorch, or a pair (or None) for each axis. Negative padding cuts off. `mode` is
        constant, reflect, replicate or circular.

        >>> Tensor([1, 2]).pad((1, 2)).tolist()
        [0, 1, 2, 0, 0]
        """
        pairs = self._pad_pairs(padding)
        if mode == "constant":
            return self._pad_constant(pairs, value)
        if mode not in ("reflect", "replicate", "circular"):
            raise ValueError(f"pad: no mode {mode!r}; use constant, reflect, replicate or circular")
        result = self
        for axis, (before, after) in enumerate(pairs):
            result = result._pad_axis(axis, before, after, mode)
        return result

    def _pad_pairs(self, padding: Sequence[Any]) -> list[tuple[Any, Any]]:
        if all(p is None or isinstance(p, (tuple, list)) for p in padding):
            if len(padding) != self.ndim:
                raise ShapeError(f"pad: {padding} does not name each of the axes of {self.shape}")
            return [(0, 0) if p is None else (p[0], p[1]) for p in padding]
        if len(padding) % 2 or len(padding) > 2 * self.ndim:
            raise ShapeError(f"pad: {padding} is not a pair for each of the axes of {self.shape}")
        flat = [(padding[i], padding[i + 1]) for i in range(0, len(padding), 2)]
        return [(0, 0)] * (self.ndim - len(flat)) + flat[::-1]

    def _pad_constant(self, pairs: Sequence[tuple[Any, Any]], value: float) -> Self:
        cut = [
            (-b if _negative(b) else 0, s + a if _negative(a) else s)
            for (b, a), s in zip(pairs, self.shape)
        ]
        for (begin, end), size in zip(cut, self.shape):
            if isinstance(begin, int) and isinstance(end, int) and begin > end:
                raise ShapeError(
                    f"pad: {tuple(pairs)} cuts off more than {self.shape} has ({size})"
                )
        inner = self.shrink(cut)
        added = [(0 if _negative(b) else b, 0 if _negative(a) else a) for b, a in pairs]
        shape = tuple(ssimplify(s + b + a) for s, (b, a) in zip(inner.shape, added))
        if shape == inner.shape:
            return inner
        if 0 in inner.shape:
            filled = constant(value, self.dtype, self.device)
            return self._move(full_shape(filled, shape))
        before = tuple(b for b, _ in added)
        padded = self._move(inner._full.pad(before, shape))
        if value == 0:
            return padded
        ones = full_shape(UOp.const(dtypes.bool, True), inner.shape).pad(before, shape)
        fill = self.uop.const_like(value)
        return self._move(ones.alu(Ops.WHERE, padded.uop, fill))

    def _pad_axis(self, axis: int, before: int, after: int, mode: str) -> Self:
        size = int(self.shape[axis])
        limit = {"reflect": size - 1, "replicate": None, "circular": size}[mode]
        if limit is not None and max(before, after) > limit:
            raise ShapeError(
                f"pad: {mode} padding ({before}, {after}) is more than {limit} for axis {axis} "
                f"of {self.shape}"
            )
        cut = self._slice(axis, max(-before, 0), size - max(-after, 0))
        parts = [cut]
        if before > 0:
            parts.insert(0, self._pad_source(axis, before, mode, True))
        if after > 0:
            parts.append(self._pad_source(axis, after, mode, False))
        return parts[0].cat(*parts[1:], dim=axis)

    def _pad_source(self, axis: int, count: int, mode: str, in_front: bool) -> Self:
        size = int(self.shape[axis])
        if mode == "circular":
            return (
                self._slice(axis, size - count, size) if in_front else self._slice(axis, 0, count)
            )
        if mode == "reflect":
            begin = 1 if in_front else size - 1 - count
            return self._slice(axis, begin, begin + count).flip(axis)
        edge = self._slice(axis, 0, 1) if in_front else self._slice(axis, size - 1, size)
        return edge.expand(*[count if a == axis else s for a, s in enumerate(self.shape)])

    def _slice(self, axis: int, begin: sint, end: sint) -> Self:
        return self.shrink([(begin, end) if a == axis else None for a in range(self.ndim)])

    def pad_to(self, *shape: Any) -> Self:
        """Zeros behind each axis up to the shape; None keeps an axis.

        >>> Tensor([1, 2]).pad_to(4).tolist()
        [1, 2, 0, 0]
        """
        wanted = as_shape(shape)
        if len(wanted) != self.ndim:
            raise ShapeError(f"pad_to: {wanted} does not name each of the axes of {self.shape}")
        return self.pad([None if w is None else (0, w - s) for w, s in zip(wanted, self.shape)])

    def shrink_to(self, *shape: Any) -> Self:
        """The first elements of each axis up to the shape; None keeps an axis.

        >>> Tensor([1, 2, 3]).shrink_to(2).tolist()
        [1, 2]
        """
        wanted = as_shape(shape)
        return self.shrink([None if w is None else (0, w) for w in wanted])

    # *** axes come, go and change places ***

    def transpose(self, dim0: int = 1, dim1: int = 0) -> Self:
        """Two axes swapped.

        >>> Tensor([[1, 2], [3, 4]]).transpose().tolist()
        [[1, 3], [2, 4]]
        """
        order = list(range(self.ndim))
        a, b = self._axis(dim0, "transpose"), self._axis(dim1, "transpose")
        if self.ndim:
            order[a], order[b] = order[b], order[a]
        return self.permute(order)

    def swapaxes(self, dim0: int, dim1: int) -> Self:
        """The same as `transpose`.

        >>> Tensor.zeros(2, 3).swapaxes(0, 1).shape
        (3, 2)
        """
        return self.transpose(dim0, dim1)

    @property
    def T(self) -> Self:
        """The first two axes swapped (of a matrix: its transpose)."""
        return self.transpose() if self.ndim >= 2 else self

    def movedim(self, source: int | Sequence[int], destination: int | Sequence[int]) -> Self:
        """Axes moved to other places, the others in their order.

        >>> Tensor.zeros(2, 3, 4).movedim(0, -1).shape
        (3, 4, 2)
        """
        from_ = [source] if isinstance(source, int) else list(source)
        to = [destination] if isinstance(destination, int) else list(destination)
        from_ = [self._axis(a, "movedim") for a in from_]
        to = [self._axis(a, "movedim") for a in to]
        if len(from_) != len(to):
            raise ShapeError(f"movedim: {len(from_)} axes cannot move to {len(to)} places")
        rest = [a for a in range(self.ndim) if a not in from_]
        for place, axis in sorted(zip(to, from_)):
            rest.insert(place, axis)
        return self.permute(rest)

    def squeeze(self, dim: int | None = None) -> Self:
        """Without axes of size 1 (or without that one, if its size is 1).

        >>> Tensor.zeros(2, 1, 3).squeeze().shape
        (2, 3)
        """
        if dim is None:
            return self.reshape(tuple(s for s in self.shape if not (isinstance(s, int) and s == 1)))
        axis = self._axis(dim, "squeeze")
        if not self.ndim or self.shape[axis] != 1:
            return self
        return self.reshape(self.shape[:axis] + self.shape[axis + 1 :])

    def unsqueeze(self, dim: int) -> Self:
        """With a new axis of size 1.

        >>> Tensor([1, 2]).unsqueeze(1).shape
        (2, 1)
        """
        axis = self._axis(dim, "unsqueeze", 1)
        return self.reshape((*self.shape[:axis], 1, *self.shape[axis:]))

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """The axes from start to end as one.

        >>> Tensor.zeros(2, 3, 4).flatten(1).shape
        (2, 12)
        """
        begin, end = self._axis(start_dim, "flatten"), self._axis(end_dim, "flatten")
        inner = prod(self.shape[begin : end + 1])
        return self.reshape((*self.shape[:begin], inner, *self.shape[end + 1 :]))

    def unflatten(self, dim: int, sizes: Sequence[sint]) -> Self:
        """One axis as several.

        >>> Tensor.zeros(2, 12).unflatten(1, (3, 4)).shape
        (2, 3, 4)
        """
        axis = self._axis(dim, "unflatten")
        rest = list(sizes)
        if -1 in rest:
            known = prod(s for s in rest if s != -1)
            rest[rest.index(-1)] = self.shape[axis] // known
        return self.reshape((*self.shape[:axis], *rest, *self.shape[axis + 1 :]))

    def rearrange(self, formula: str, **sizes: int) -> Self:
        """Axes split, moved and merged, in the notation of einops.

        >>> Tensor.zeros(2, 12, 5).rearrange("b (h w) c -> b c h w", h=3).shape
        (2, 5, 3, 4)
        """
        steps = rearrange.parse(formula, self.shape, sizes)
        return self.reshape(steps.split).permute(steps.order).reshape(steps.merged)

    # *** together and apart ***

    def cat(self, *others: Self, dim: int = 0) -> Self:
        """The tensors one behind the other.

        >>> Tensor([1, 2]).cat(Tensor([3])).tolist()
        [1, 2, 3]
        """
        axis = self._axis(dim, "cat")
        tensors = [self, *others]
        for t in others:
            ranks_fit = t.ndim == self.ndim > 0
            if not ranks_fit or any(
                a != b for i, (a, b) in enumerate(zip(t.shape, self.shape)) if i != axis
            ):
                shapes = ", ".join(str(x.shape) for x in tensors)
                raise ShapeError(f"cat: shapes {shapes} differ in more than axis {axis}")
        tensors = [t for t in tensors if t.shape[axis] != 0] or [self]
        if len(tensors) == 1:
            return tensors[0]
        sizes = [t.shape[axis] for t in tensors]
        total = sum(sizes)
        begins = list(itertools.accumulate(sizes, initial=0))
        dtype = least_upper_dtype(*(t.dtype for t in tensors))
        padded = [
            t._cast_for_join(dtype)._pad_constant(
                [(b, ssimplify(total - b - s)) if a == axis else (0, 0) for a in range(t.ndim)],
                0,
            )
            for t, b, s in zip(tensors, begins, sizes)
        ]
        # the parts do not overlap, so their sum (their union) puts them in place
        result = padded[0]
        for part in padded[1:]:
            result = result._derived(result.uop.alu(Ops.ADD, part.uop), part)
        return result

    def _cast_for_join(self, dtype: Any) -> Self:
        return self if self.dtype is dtype else self._derived(self.uop.cast(dtype))

    def stack(self, *others: Self, dim: int = 0) -> Self:
        """The tensors along a new axis.

        >>> Tensor([1, 2]).stack(Tensor([3, 4])).tolist()
        [[1, 2], [3, 4]]
        """
        for t in others:
            if t.shape != self.shape:
                raise ShapeError(f"stack: shapes {self.shape} and {t.shape} differ")
        axis = self._axis(dim, "stack", 1)
        return self.unsqueeze(axis).cat(*[t.unsqueeze(axis) for t in others], dim=axis)

    def split(self, sizes: int | Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """Parts of that size (the last one may be smaller), or of those sizes.

        >>> [t.tolist() for t in Tensor.arange(5).split(2)]
        [[0, 1], [2, 3], [4]]
        """
        axis = self._axis(dim, "split")
        total = int(self.shape[axis])
        if isinstance(sizes, int):
            if sizes <= 0:
                raise ShapeError(f"split: the size must be positive, not {sizes}")
            sizes = [min(sizes, total - b) for b in range(0, max(total, 1), sizes)]
        if sum(sizes) != total:
            raise ShapeError(f"split: sizes {list(sizes)} do not sum to {total} of {self.shape}")
        begins = itertools.accumulate(sizes, initial=0)
        return tuple(self._slice(axis, b, b + s) for b, s in zip(begins, sizes))

    def chunk(self, chunks: int, dim: int = 0) -> list[Self]:
        """So many parts of about equal size.

        >>> [t.tolist() for t in Tensor.arange(5).chunk(2)]
        [[0, 1, 2], [3, 4]]
        """
        if chunks <= 0:
            raise ShapeError(f"chunk: the number of chunks must be positive, not {chunks}")
        axis = self._axis(dim, "chunk")
        size = -(-int(self.shape[axis]) // chunks)
        return list(self.split(size, axis)) if size else list(self.split([0] * chunks, axis))

    def repeat(self, *repeats: Any) -> Self:
        """The whole, so often along each axis.

        >>> Tensor([1, 2]).repeat(2).tolist()
        [1, 2, 1, 2]
        """
        counts = as_shape(repeats)
        if len(counts) < self.ndim:
            raise ShapeError(f"repeat: {counts} does not name each of the axes of {self.shape}")
        base = (1,) * (len(counts) - self.ndim) + self.shape
        spread = [x for s in base for x in (1, s)]
        wide = [x for r, s in zip(counts, base) for x in (r, s)]
        final = tuple(r * s for r, s in zip(counts, base))
        return self.reshape(spread).expand(wide).reshape(final)

    def repeat_interleave(self, repeats: int, dim: int | None = None) -> Self:
        """Each element so often.

        >>> Tensor([1, 2]).repeat_interleave(2).tolist()
        [1, 1, 2, 2]
        """
        x = self.flatten() if dim is None else self
        axis = 0 if dim is None else self._axis(dim, "repeat_interleave")
        shape = x.shape
        wide = x.reshape((*shape[: axis + 1], 1, *shape[axis + 1 :]))
        wide = wide.expand((*shape[: axis + 1], repeats, *shape[axis + 1 :]))
        return wide.reshape((*shape[:axis], shape[axis] * repeats, *shape[axis + 1 :]))

    def roll(self, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Self:
        """Elements shifted, those that leave at the end come back in front.

        >>> Tensor([1, 2, 3]).roll(1).tolist()
        [3, 1, 2]
        """
        if dims is None:
            if not isinstance(shifts, int):
                raise ShapeError("roll: several shifts need dims")
            return self.flatten().roll(shifts, 0).reshape(self.shape)
        shift_list = [shifts] if isinstance(shifts, int) else list(shifts)
        dim_list = [dims] if isinstance(dims, int) else list(dims)
        result = self
        for shift, dim in zip(shift_list, dim_list, strict=True):
            axis = self._axis(dim, "roll")
            size = int(self.shape[axis])
            cut = -shift % size if size else 0
            if cut:
                head, tail = result._slice(axis, cut, size), result._slice(axis, 0, cut)
                result = head.cat(tail, dim=axis)
        return result

    def rot90(self, k: int = 1, dims: tuple[int, int] = (0, 1)) -> Self:
        """Turned by 90 degrees, k times.

        >>> Tensor([[1, 2], [3, 4]]).rot90().tolist()
        [[2, 4], [1, 3]]
        """
        a, b = (self._axis(d, "rot90") for d in dims)
        k %= 4
        if k == 0:
            return self
        if k == 2:
            return self.flip(a, b)
        return self.flip(b).transpose(a, b) if k == 1 else self.transpose(a, b).flip(b)

    # *** windows ***

    def unfold(self, dim: int, size: int, step: int) -> Self:
        """Windows along an axis; the window's axis comes last.

        >>> Tensor.arange(5).unfold(0, 3, 2).tolist()
        [[0, 1, 2], [2, 3, 4]]
        """
        axis = self._axis(dim, "unfold")
        if not 0 < size <= int(self.shape[axis]) or step <= 0:
            raise ShapeError(
                f"unfold: no windows of {size} by {step} on axis {axis} of {self.shape}"
            )
        moved = self.movedim(axis, self.ndim - 1)._pool((size,), (step,), (1,))
        return moved.movedim(self.ndim - 1, axis)

    def _pool(self, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Self:
        """Windows over the last axes: (..., out..., kernel...), by movement alone.

        A row repeated with its length changed by the dilation is, cut into rows of that new length,
        the row shifted once more for each: the windows' elements then lie below each other.
        """
        lead = self.ndim - len(kernel)
        x = self
        outs: list[int] = []
        for n, (k, s, d) in enumerate(zip(kernel, stride, dilation)):
            axis = lead + 2 * n
            size = int(x.shape[axis])
            out = (size - d * (k - 1) - 1) // s + 1
            outs.append(out)
            x = x._pool_axis(axis, size, k, s, d, out)
        order = [*range(lead)]
        order += [lead + 2 * n + 1 for n in range(len(kernel))]
        order += [lead + 2 * n for n in range(len(kernel))]
        return x.permute(order)

    def _pool_axis(self, axis: int, size: int, k: int, s: int, d: int, out: int) -> Self:
        """One axis as two: (kernel, out)."""
        before, after = self.shape[:axis], self.shape[axis + 1 :]
        if k <= s and d == 1:  # no overlap: cut into pieces
            length = out * s
            x = self._resized(axis, length).reshape((*before, out, s, *after))
            x = x._slice(axis + 1, 0, k)
            return x.transpose(axis, axis + 1)
        # `out` steps must fit into a row, so that it can be cut by the stride
        size = max(size, out * s - d)
        row = size + d
        copies = -(-k * row // size)
        x = self._resized(axis, size)
        x = x.repeat([1] * axis + [copies] + [1] * len(after))._slice(axis, 0, k * row)
        x = x.reshape((*before, k, row, *after))._slice(axis + 1, 0, out * s)
        x = x.reshape((*before, k, out, s, *after))._slice(axis + 2, 0, 1)
        return x.reshape((*before, k, out, *after))

    def _resized(self, axis: int, length: int) -> Self:
        """An axis cut or padded at its end."""
        change = length - int(self.shape[axis])
        return self._pad_constant(
            [(0, change) if a == axis else (0, 0) for a in range(self.ndim)], 0
        )


def _negative(value: Any) -> bool:
    return isinstance(value, int) and value < 0
