"""Convolution and pooling, made of windows (`_pool`), products and reduces."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self, TypeVar

from tgcore.dtype import dtypes, least_upper_dtype
from tgcore.errors import ShapeError
from tgcore.tensor.core import DTypeLike
from tgcore.tensor.factorization import Factorization

Sizes = int | Sequence[int]
C = TypeVar("C", bound="Convolution")


def _each(value: Sizes, count: int, what: str) -> tuple[int, ...]:
    """One number for each of so many axes."""
    if isinstance(value, int):
        return (value,) * count
    if len(value) != count:
        raise ShapeError(f"{what}: {tuple(value)} does not give a number for each of {count} axes")
    return tuple(value)


def _pads(padding: Sizes, count: int, what: str) -> list[tuple[int, int]]:
    """(before, after) of each axis; from one number, one an axis, or a flat list of pairs that
    begins with the last axis."""
    if isinstance(padding, int):
        return [(padding, padding)] * count
    if len(padding) == 2 * count:
        pairs = [(padding[2 * i], padding[2 * i + 1]) for i in range(count)]
        return pairs[::-1]
    if len(padding) == count:
        return [(p, p) for p in padding]
    raise ShapeError(f"{what}: padding {tuple(padding)} does not fit {count} axes")


class Convolution(Factorization):
    """conv2d, conv_transpose2d, avg_pool2d, max_pool2d (of one to three axes, despite the name)."""

    __slots__ = ()

    def conv2d(
        self,
        weight: Self,
        bias: Self | None = None,
        groups: int = 1,
        stride: Sizes = 1,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        dtype: DTypeLike | None = None,
    ) -> Self:
        """The convolution of (batch, channels, ...) with (out, channels / groups, kernel...).

        >>> Tensor.ones(1, 1, 3, 3).conv2d(Tensor.ones(1, 1, 2, 2)).tolist()
        [[[[4.0, 4.0], [4.0, 4.0]]]]
        """
        count = weight.ndim - 2
        self._check_conv(weight, groups, "conv2d", 1)
        kernel = tuple(int(s) for s in weight.shape[2:])
        strides = _each(stride, count, "conv2d: stride")
        spread = _each(dilation, count, "conv2d: dilation")
        x = self.pad([(0, 0), (0, 0), *_pads(padding, count, "conv2d")])
        for size, k, d in zip(x.shape[2:], kernel, spread):
            if int(size) < d * (k - 1) + 1:
                raise ShapeError(
                    f"conv2d: input {self.shape} with padding {padding} is smaller than the kernel "
                    f"{kernel} with dilation {dilation}"
                )
        batch, channels = x.shape[:2]
        out = int(weight.shape[0])
        windows = x._pool(kernel, strides, spread)
        outer = windows.shape[2 : 2 + count]
        per_in, per_out = int(channels) // groups, out // groups
        windows = windows.reshape((batch, groups, per_in, 1, *outer, *kernel))
        windows = windows.expand((batch, groups, per_in, per_out, *outer, *kernel))
        space = range(4, 4 + count)
        windows = windows.permute((0, 1, 3, *space, 2, *range(4 + count, 4 + 2 * count)))
        filters = weight.reshape((1, groups, per_out, *[1] * count, per_in, *kernel))
        kind = least_upper_dtype(self.dtype, weight.dtype)
        summed = tuple(range(-1 - count, 0))
        result = windows.cast(kind)._sum_of_products(filters.cast(kind), summed, dtype)
        result = result.reshape((batch, out, *outer))
        return result if bias is None else result + bias.reshape((1, -1, *[1] * count))

    def _check_conv(self, weight: Self, groups: int, what: str, axis: int) -> None:
        fits = self.ndim == weight.ndim > 2 and groups > 0
        channels = int(self.shape[1]) if self.ndim > 1 else 0
        expected = int(weight.shape[1]) * groups if axis else int(weight.shape[0])
        others = int(weight.shape[0]) if fits else 0
        if not fits or channels != expected or others % groups:
            layout = "out, channels / groups" if axis else "channels, out / groups"
            raise ShapeError(
                f"{what}: input {self.shape}, weight {weight.shape} and groups={groups} do not "
                f"fit: an input (batch, channels, ...) needs a weight ({layout}, ...)"
            )

    def conv_transpose2d(
        self,
        weight: Self,
        bias: Self | None = None,
        groups: int = 1,
        stride: Sizes = 1,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
    ) -> Self:
        """The transposed convolution of (batch, channels, ...) with (channels, out / groups, ...).

        >>> Tensor.ones(1, 1, 2, 2).conv_transpose2d(Tensor.ones(1, 1, 1, 1)).shape
        (1, 1, 2, 2)
        """
        count = weight.ndim - 2
        self._check_conv(weight, groups, "conv_transpose2d", 0)
        kernel = tuple(int(s) for s in weight.shape[2:])
        strides = _each(stride, count, "conv_transpose2d: stride")
        spread = _each(dilation, count, "conv_transpose2d: dilation")
        extra = _each(output_padding, count, "conv_transpose2d: output_padding")
        x = self._spaced(strides)
        w = weight.unflatten(0, (groups, -1)).transpose(1, 2)
        w = w.flip([a + 3 for a in range(count)]).flatten(0, 1)
        pads = _pads(padding, count, "conv_transpose2d")
        flat: list[int] = []
        for (before, after), k, d, e in zip(pads[::-1], kernel[::-1], spread[::-1], extra[::-1]):
            flat += [d * (k - 1) - before, d * (k - 1) - after + e]
        return x.conv2d(w, bias, groups=groups, dilation=spread, padding=flat)

    def _spaced(self, strides: tuple[int, ...]) -> Self:
        """Zeros between the elements of the last axes, stride - 1 each."""
        x = self
        for n, s in enumerate(strides):
            if s == 1:
                continue
            axis = self.ndim - len(strides) + n
            size = int(x.shape[axis])
            before, after = x.shape[:axis], x.shape[axis + 1 :]
            x = x.reshape((*before, size, 1, *after))._resized(axis + 1, s)
            x = x.reshape((*before, size * s, *after))._slice(axis, 0, max((size - 1) * s + 1, 0))
        return x

    # *** pooling ***

    def _pool_setup(
        self,
        kernel_size: Sizes,
        stride: Sizes | None,
        dilation: Sizes,
        padding: Sizes,
        ceil_mode: bool,
        what: str,
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], list[tuple[int, int]]]:
        """(kernel, stride, dilation, padding), the padding grown so that windows at the end fit."""
        count = 2 if isinstance(kernel_size, int) else len(kernel_size)
        kernel = _each(kernel_size, count, what)
        strides = kernel if stride is None else _each(stride, count, what)
        spread = _each(dilation, count, what)
        pads = _pads(padding, count, what)
        if self.ndim < count + 1:
            raise ShapeError(f"{what}: shape {self.shape} has too few axes for kernel {kernel}")
        for n, (size, k, s, d) in enumerate(zip(self.shape[-count:], kernel, strides, spread)):
            before, after = pads[n]
            room = int(size) + before + after - d * (k - 1) - 1
            if room < 0:
                raise ShapeError(f"{what}: kernel {kernel} is larger than the padded {self.shape}")
            if ceil_mode and room % s:
                # a window that began in the padding behind is left out
                steps = -(-room // s)
                if steps * s < int(size) + before:
                    pads[n] = (before, after + steps * s - room)
        return kernel, strides, spread, pads

    def avg_pool2d(
        self,
        kernel_size: Sizes = (2, 2),
        stride: Sizes | None = None,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> Self:
        """The mean of each window over the last axes.

        >>> Tensor([[[1.0, 3.0], [5.0, 7.0]]]).avg_pool2d(2).tolist()
        [[[4.0]]]
        """
        kernel, strides, spread, pads = self._pool_setup(
            kernel_size, stride, dilation, padding, ceil_mode, "avg_pool2d"
        )
        axes = tuple(range(-len(kernel), 0))
        lead = [(0, 0)] * (self.ndim - len(kernel))

        def windows(x: Self, around: list[tuple[int, int]]) -> Self:
            return x.pad([*lead, *around])._pool(kernel, strides, spread)

        total = windows(self, pads).sum(axes)
        asked = _pads(padding, len(kernel), "avg_pool2d")
        ones = self._float()._ones().detach()
        if not count_include_pad:
            return total / windows(ones, pads).sum(axes)
        if pads == asked:
            return total / math.prod(kernel)
        inside = ones._pad_constant([*lead, *asked], 1.0)
        more = [(0, p[1] - a[1]) for p, a in zip(pads, asked)]
        return total / windows(inside, more).sum(axes)

    def max_pool2d(
        self,
        kernel_size: Sizes = (2, 2),
        stride: Sizes | None = None,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        """The greatest element of each window over the last axes (and its position in the input,
        if asked for).

        >>> Tensor([[[1.0, 3.0], [5.0, 7.0]]]).max_pool2d(2).tolist()
        [[[7.0]]]
        """
        kernel, strides, spread, pads = self._pool_setup(
            kernel_size, stride, dilation, padding, ceil_mode, "max_pool2d"
        )
        axes = tuple(range(-len(kernel), 0))
        around = [*[(0, 0)] * (self.ndim - len(kernel)), *pads]
        windows = self.pad(around, value=dtypes.min(self.dtype))._pool(kernel, strides, spread)
        result = windows.max(axes)
        if not return_indices:
            return result
        size = math.prod(int(s) for s in self.shape[-len(kernel) :])
        number = self._index_range(size).reshape(self.shape[-len(kernel) :])
        places = number.pad(pads, value=-1)._pool(kernel, strides, spread)
        best = (windows == windows.max(axes, keepdim=True)) & (places >= 0)
        # the first of equal ones: the greatest number counted from behind
        first = size - best.where(size - places, 0).max(axes)
        return result, first

    def max_unpool2d(
        self,
        indices: Self,
        kernel_size: Sizes = (2, 2),
        stride: Sizes | None = None,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        output_size: Sequence[int] | None = None,
    ) -> Self:
        """Elements put back to where `max_pool2d(..., return_indices=True)` found them, zeros
        elsewhere. Sizes that pooling lost are given by `output_size` (all of the shape, or its last
        axes).

        >>> values, places = Tensor([[[1.0, 3.0], [5.0, 7.0]]]).max_pool2d(2, return_indices=True)
        >>> values.max_unpool2d(places, 2).tolist()
        [[[0.0, 0.0], [0.0, 7.0]]]
        """
        if indices.shape != self.shape:
            raise ShapeError(
                f"max_unpool2d: indices {indices.shape} do not fit the input {self.shape}"
            )
        count = 2 if isinstance(kernel_size, int) else len(kernel_size)
        kernel = _each(kernel_size, count, "max_unpool2d")
        strides = kernel if stride is None else _each(stride, count, "max_unpool2d")
        spread = _each(dilation, count, "max_unpool2d")
        pads = _pads(padding, count, "max_unpool2d")
        lead, sizes = self.shape[:-count], self.shape[-count:]
        target = tuple(
            (int(n) - 1) * s - before - after + d * (k - 1) + 1
            for n, s, d, k, (before, after) in zip(sizes, strides, spread, kernel, pads)
        )
        if output_size is not None:
            target = tuple(output_size)[-count:]
        empty = self._zero()._broadcast_to((*lead, math.prod(target)))
        flat = (*lead, math.prod(int(s) for s in sizes))
        placed = empty.scatter(-1, indices.reshape(flat), self.reshape(flat))
        return placed.reshape((*lead, *target))

    # *** resizing ***

    def interpolate(
        self, size: Sequence[int], mode: str = "linear", align_corners: bool = False
    ) -> Self:
        """The last axes resized: "nearest", "nearest-exact", "linear" (bilinear, trilinear) or
        "cubic" (bicubic).

        >>> Tensor([[[1.0, 3.0]]]).interpolate((4,), mode="nearest").tolist()
        [[[1.0, 1.0, 3.0, 3.0]]]
        """
        mode = _INTERPOLATION_NAMES.get(mode, mode)
        if mode not in ("nearest", "nearest-exact", "linear", "cubic"):
            raise ValueError(
                f"interpolate: mode must be nearest, nearest-exact, linear or cubic, not {mode!r}"
            )
        if len(size) > self.ndim or any(s < 1 for s in size):
            raise ShapeError(f"interpolate: {self.shape} cannot be resized to {tuple(size)}")
        x = self
        for n, new in enumerate(size):
            x = x._interpolate_axis(self.ndim - len(size) + n, new, mode, align_corners)
        return x

    def _interpolate_axis(self, axis: int, new: int, mode: str, align: bool) -> Self:
        old = int(self.shape[axis])
        place = self._index_range(new).cast(dtypes.float32)
        lead = (slice(None),) * axis
        if mode.startswith("nearest"):
            offset = 0.5 if mode == "nearest-exact" else 0.0
            index = ((place + offset) * (old / new)).floor().cast(dtypes.int32).clamp(0, old - 1)
            return self[(*lead, index)]
        if align:
            position = place * ((old - 1) / max(new - 1, 1))
        else:
            position = (place + 0.5) * (old / new) - 0.5
        if mode == "cubic":
            return self._interpolate_cubic(axis, position)
        position = position.clamp(0.0, old - 1.0)
        low = position.floor().cast(dtypes.int32)
        high = (low + 1).clamp(0, old - 1)
        weight = (position - low).reshape((-1, *[1] * (self.ndim - axis - 1)))
        below, above = self[(*lead, low)], self[(*lead, high)]
        return below + (above - below) * weight.cast(self.dtype)

    def _interpolate_cubic(self, axis: int, position: Self) -> Self:
        """Cubic convolution (Keys, 1981) over four neighbours, those beyond an edge repeat it."""
        old = int(self.shape[axis])
        low = position.floor()
        x = position - low
        # the kernel at distances 1 + x, x, 1 - x and 2 - x
        weights = [_keys(1 + x, True), _keys(x, False), _keys(1 - x, False), _keys(2 - x, True)]
        total = None
        for offset, weight in zip((-1, 0, 1, 2), weights):
            index = (low.cast(dtypes.int32) + offset).clamp(0, old - 1)
            part = self[(*(slice(None),) * axis, index)]
            scaled = part * weight.reshape((-1, *[1] * (self.ndim - axis - 1))).cast(self.dtype)
            total = scaled if total is None else total + scaled
        assert total is not None
        return total


# names that PyTorch has for the number of axes
_INTERPOLATION_NAMES = {
    **dict.fromkeys(("bilinear", "trilinear"), "linear"),
    "bicubic": "cubic",
}
# as in PyTorch; -0.5 is the other common choice
_KEYS_A = -0.75


def _keys(x: C, far: bool) -> C:
    """The kernel of cubic convolution at a distance in [0, 1], or in [1, 2] if `far`."""
    a = _KEYS_A
    if far:
        return ((x - 5) * x + 8) * x * a - 4 * a
    return ((a + 2) * x - (a + 3)) * x * x + 1
