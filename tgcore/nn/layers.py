"""Layers: plain objects that hold their weights as attributes and are called with a Tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from tgcore.dtype import dtypes
from tgcore.errors import DTypeError, ShapeError
from tgcore.helpers import prod
from tgcore.tensor import Tensor

Sizes: TypeAlias = int | Sequence[int]


def _sizes(value: Sizes, count: int, what: str) -> tuple[int, ...]:
    """One number for each spatial axis."""
    sizes = (value,) * count if isinstance(value, int) else tuple(value)
    if len(sizes) != count:
        raise ShapeError(f"{what}: {value} gives {len(sizes)} numbers for {count} axes")
    return sizes


def _affine(shape: Sizes, wanted: bool, bias: bool = True) -> tuple[Tensor | None, Tensor | None]:
    """A weight of ones and a bias of zeros, if they are wanted."""
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    weight = Tensor.ones(*sizes, requires_grad=True) if wanted else None
    return weight, Tensor.zeros(*sizes, requires_grad=True) if wanted and bias else None


class Linear:
    """x @ weight.T + bias.

    >>> Linear(3, 2)(Tensor.zeros(4, 3)).shape
    (4, 2)
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        bound = 1 / math.sqrt(max(in_features, 1))
        self.weight = Tensor.uniform(
            out_features, in_features, low=-bound, high=bound, requires_grad=True
        )
        self.bias = (
            Tensor.uniform(out_features, low=-bound, high=bound, requires_grad=True)
            if bias
            else None
        )

    def __call__(self, x: Tensor) -> Tensor:
        return x.linear(self.weight.transpose(), self.bias)


class _Conv:
    """What convolutions over any number of axes share: weight, bias and settings."""

    def __init__(
        self,
        weight_shape: tuple[int, ...],
        channels: tuple[int, int],
        kernel_size: tuple[int, ...],
        stride: Sizes,
        dilation: Sizes,
        groups: int,
        bias: bool,
    ) -> None:
        self.kernel_size, self.stride, self.dilation = kernel_size, stride, dilation
        self.groups = groups
        if groups < 1 or any(c % groups for c in channels):
            raise ShapeError(
                f"{type(self).__name__}: {groups} groups do not divide "
                f"{channels[0]} input and {channels[1]} output channels"
            )
        bound = 1 / math.sqrt(max(channels[0] * prod(kernel_size), 1))
        self.weight = Tensor.uniform(*weight_shape, low=-bound, high=bound, requires_grad=True)
        self.bias = (
            Tensor.uniform(channels[1], low=-bound, high=bound, requires_grad=True)
            if bias
            else None
        )


class Conv2d(_Conv):
    """A convolution. `padding` may be "same": the output is then as large as the input.

    >>> Conv2d(3, 8, 3, padding=1)(Tensor.zeros(2, 3, 10, 10)).shape
    (2, 8, 10, 10)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        sizes = _sizes(kernel_size, 2 if isinstance(kernel_size, int) else len(kernel_size), "Conv")
        super().__init__(
            (out_channels, in_channels // max(groups, 1), *sizes),
            (in_channels, out_channels),
            sizes,
            stride,
            dilation,
            groups,
            bias,
        )
        self.padding = self._same_padding(padding) if isinstance(padding, str) else padding

    def _same_padding(self, padding: str) -> Sizes:
        """(before, after) of each axis, the last axis first, as `Tensor.conv2d` takes it."""
        count = len(self.kernel_size)
        if padding.lower() == "valid":
            return 0
        if padding.lower() != "same":
            raise ValueError(f"Conv: padding is a number, 'same' or 'valid', not {padding!r}")
        if any(s != 1 for s in _sizes(self.stride, count, "Conv: stride")):
            raise ValueError("Conv: padding 'same' needs a stride of 1")
        pairs: list[int] = []
        dilations = _sizes(self.dilation, count, "Conv: dilation")
        for size, dilation in zip(reversed(self.kernel_size), reversed(dilations)):
            total = dilation * (size - 1)
            pairs += [total // 2, total - total // 2]
        return tuple(pairs)

    def __call__(self, x: Tensor) -> Tensor:
        return x.conv2d(
            self.weight, self.bias, self.groups, self.stride, self.dilation, self.padding
        )


class Conv1d(Conv2d):
    """A convolution over one axis.

    >>> Conv1d(3, 8, 3)(Tensor.zeros(2, 3, 10)).shape
    (2, 8, 8)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__(
            in_channels, out_channels, (kernel_size,), stride, padding, dilation, groups, bias
        )


class ConvTranspose2d(_Conv):
    """The transpose of a convolution: what its gradient does with its output's gradient.

    >>> ConvTranspose2d(3, 8, 2, stride=2)(Tensor.zeros(2, 3, 5, 5)).shape
    (2, 8, 10, 10)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        sizes = _sizes(kernel_size, 2 if isinstance(kernel_size, int) else len(kernel_size), "Conv")
        super().__init__(
            (in_channels, out_channels // max(groups, 1), *sizes),
            (in_channels, out_channels),
            sizes,
            stride,
            dilation,
            groups,
            bias,
        )
        self.padding, self.output_padding = padding, output_padding

    def __call__(self, x: Tensor) -> Tensor:
        return x.conv_transpose2d(
            self.weight,
            self.bias,
            self.groups,
            self.stride,
            self.dilation,
            self.padding,
            self.output_padding,
        )


class ConvTranspose1d(ConvTranspose2d):
    """The transpose of a convolution over one axis."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            (kernel_size,),
            stride,
            padding,
            output_padding,
            dilation,
            groups,
            bias,
        )


class BatchNorm:
    """Normalises each channel (axis 1) by its mean and variance over all other axes.

    While training (`Tensor.train()`) the batch's own figures are used, and averaged into
    `running_mean` and `running_var`, which are used otherwise. The averages are assigned
    lazily: an optimiser that was given all parameters realises them in its step.

    >>> BatchNorm(3)(Tensor.ones(2, 3, 4, 4)).shape
    (2, 3, 4, 4)
    """

    def __init__(
        self,
        sz: int,
        eps: float = 1e-5,
        affine: bool = True,
        track_running_stats: bool = True,
        momentum: float = 0.1,
    ) -> None:
        self.eps, self.momentum = eps, momentum
        self.track_running_stats = track_running_stats
        self.weight, self.bias = _affine(sz, affine)
        self.num_batches_tracked = Tensor.zeros(
            dtype=dtypes.int64, requires_grad=False
        ).contiguous()
        if track_running_stats:
            self.running_mean = Tensor.zeros(sz, requires_grad=False).contiguous()
            self.running_var = Tensor.ones(sz, requires_grad=False).contiguous()

    def calc_stats(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of each channel: the batch's, or the running ones."""
        if self.track_running_stats and not Tensor.training:
            return self.running_mean, self.running_var
        axes = tuple(a for a in range(x.ndim) if a != 1)
        shape = tuple(s if a == 1 else 1 for a, s in enumerate(x.shape))
        mean = x.mean(axes)
        variance = (x - mean.detach().reshape(shape)).square().mean(axes)
        return mean, variance

    def _track(self, mean: Tensor, variance: Tensor, per_channel: int) -> None:
        """Average the batch's figures into the running ones (the variance unbiased)."""
        new = self.momentum
        unbiased = variance * (per_channel / max(per_channel - 1, 1))
        for running, batch in ((self.running_mean, mean), (self.running_var, unbiased)):
            running.assign((1 - new) * running + new * batch.detach().cast(running.dtype))
        self.num_batches_tracked.assign(self.num_batches_tracked + 1)

    def __call__(self, x: Tensor) -> Tensor:
        mean, variance = self.calc_stats(x)
        if Tensor.training and self.track_running_stats:
            self._track(mean, variance, int(x.numel()) // max(int(x.shape[1]), 1))
        return x.batchnorm(self.weight, self.bias, mean, (variance + self.eps).rsqrt())


BatchNorm2d = BatchNorm
BatchNorm3d = BatchNorm


class LayerNorm:
    """Normalises over the last axes, whose sizes are given.

    >>> LayerNorm(4)(Tensor.ones(2, 4)).tolist()
    [[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
    """

    def __init__(
        self,
        normalized_shape: Sizes,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
    ) -> None:
        shape = normalized_shape
        self.normalized_shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.axis = tuple(-1 - a for a in range(len(self.normalized_shape)))
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self.weight, self.bias = _affine(self.normalized_shape, elementwise_affine, bias)

    def __call__(self, x: Tensor) -> Tensor:
        found = x.shape[-len(self.normalized_shape) :]
        if found != self.normalized_shape:
            raise ShapeError(
                f"LayerNorm: the last axes of {x.shape} are not {self.normalized_shape}"
            )
        x = x.layernorm(eps=self.eps, axis=self.axis)
        if self.weight is not None:
            x = x * self.weight
        return x if self.bias is None else x + self.bias


class LayerNorm2d(LayerNorm):
    """Normalises over the channels (axis 1) of pictures."""

    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class GroupNorm:
    """Normalises groups of channels (axis 1) together, each sample by itself.

    >>> GroupNorm(2, 4)(Tensor.ones(1, 4, 2, 2)).shape
    (1, 4, 2, 2)
    """

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True
    ) -> None:
        if num_groups < 1 or num_channels % num_groups:
            raise ShapeError(
                f"GroupNorm: {num_groups} groups do not divide {num_channels} channels"
            )
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.weight, self.bias = _affine(num_channels, affine)

    def __call__(self, x: Tensor) -> Tensor:
        if x.ndim < 2 or x.shape[1] != self.num_channels:
            raise ShapeError(
                f"{type(self).__name__}: axis 1 of {x.shape} is not {self.num_channels}"
            )
        shape = x.shape
        x = x.reshape(shape[0], self.num_groups, -1).layernorm(eps=self.eps).reshape(shape)
        if self.weight is None or self.bias is None:
            return x
        per_channel = (1, -1, *[1] * (x.ndim - 2))
        return x * self.weight.reshape(per_channel) + self.bias.reshape(per_channel)


class InstanceNorm(GroupNorm):
    """Normalises each channel of each sample by itself.

    >>> InstanceNorm(3)(Tensor.ones(2, 3, 4, 4)).shape
    (2, 3, 4, 4)
    """

    def __init__(self, num_features: int, eps: float = 1e-5, affine: bool = True) -> None:
        super().__init__(num_features, num_features, eps, affine)
        self.num_features = num_features


class RMSNorm:
    """Divides by the root of the mean square over the last axis.

    >>> RMSNorm(2)(Tensor([[3.0, 3.0]])).numpy().round(3).tolist()
    [[1.0, 1.0]]
    """

    def __init__(self, dim: int, eps: float = 1e-6, elementwise_affine: bool = True) -> None:
        self.eps = eps
        self.weight, _ = _affine(dim, elementwise_affine, bias=False)

    def __call__(self, x: Tensor) -> Tensor:
        wide = x.cast(dtypes.float32) if x.dtype.itemsize < 4 else x
        normed = (wide * (wide.square().mean(-1, keepdim=True) + self.eps).rsqrt()).cast(x.dtype)
        return normed if self.weight is None else normed * self.weight


class Embedding:
    """A table of vectors, looked up by number.

    >>> Embedding(10, 4)(Tensor([1, 2, 3])).shape
    (3, 4)
    """

    def __init__(self, vocab_size: int, embed_size: int) -> None:
        self.vocab_sz, self.embed_sz = vocab_size, embed_size
        self.weight = Tensor.glorot_uniform(vocab_size, embed_size, requires_grad=True)

    def __call__(self, idx: Tensor) -> Tensor:
        if not dtypes.is_int(idx.dtype):
            raise DTypeError(f"Embedding: numbers of rows are integers, not {idx.dtype}")
        return self.weight[idx]


class Dropout:
    """While training, sets elements to zero with probability p and scales up the others.

    >>> Dropout(0.5)(Tensor([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """

    def __init__(self, p: float = 0.5) -> None:
        if not 0 <= p <= 1:
            raise ValueError(f"Dropout: p is a probability, not {p}")
        self.p = p

    def __call__(self, x: Tensor) -> Tensor:
        return x.dropout(self.p)


class LSTMCell:
    """A long short-term memory, for one step of (batch, input_size): called with the hidden and the
    cell state (or None for zeros), it gives the new ones. The gates lie in the order input, forget,
    cell, output (Hochreiter and Schmidhuber, 1997; as in PyTorch).

    >>> h, c = LSTMCell(3, 4)(Tensor.ones(2, 3))
    >>> h.shape, c.shape
    ((2, 4), (2, 4))
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        self.input_size, self.hidden_size = input_size, hidden_size
        bound = 1 / math.sqrt(hidden_size)

        def uniform(*shape: int) -> Tensor:
            return Tensor.uniform(*shape, low=-bound, high=bound, requires_grad=True)

        self.weight_ih = uniform(4 * hidden_size, input_size)
        self.weight_hh = uniform(4 * hidden_size, hidden_size)
        self.bias_ih = uniform(4 * hidden_size) if bias else None
        self.bias_hh = uniform(4 * hidden_size) if bias else None

    def __call__(self, x: Tensor, hc: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        if x.ndim != 2 or x.shape[1] != self.input_size:
            raise ShapeError(f"LSTMCell: {x.shape} is not (batch, {self.input_size})")
        if hc is None:
            zero = Tensor.zeros(x.shape[0], self.hidden_size, dtype=x.dtype, device=x.device)
            hc = (zero, zero)
        h, c = hc
        gates = x.linear(self.weight_ih.T, self.bias_ih) + h.linear(self.weight_hh.T, self.bias_hh)
        i, f, g, o = gates.chunk(4, dim=1)
        new_c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * new_c.tanh(), new_c
