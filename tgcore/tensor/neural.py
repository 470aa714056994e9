"""Normalisation, attention, dropout and losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Self

from tgcore.dtype import dtypes
from tgcore.errors import DTypeError, ShapeError
from tgcore.tensor.convolution import Convolution
from tgcore.tensor.core import settings


class Neural(Convolution):
    """What networks are trained with."""

    __slots__ = ()

    def sequential(self, layers: Iterable[Callable[[Any], Any]]) -> Self:
        """The layers applied one after the other.

        >>> Tensor([-1.0]).sequential([Tensor.abs, Tensor.sqrt]).tolist()
        [1.0]
        """
        x: Any = self
        for layer in layers:
            x = layer(x)
        return x  # type: ignore[no-any-return]

    # *** normalisation ***

    def layernorm(self, axis: int | tuple[int, ...] = -1, eps: float = 1e-5) -> Self:
        """Shifted and scaled to mean 0 and variance 1 along the axes.

        >>> Tensor([1.0, 3.0]).layernorm(eps=0).tolist()
        [-1.0, 1.0]
        """
        centered = self - self.mean(axis, keepdim=True)
        return centered * (centered.square().mean(axis, keepdim=True) + eps).rsqrt()

    def batchnorm(
        self,
        weight: Self | None,
        bias: Self | None,
        mean: Self,
        invstd: Self,
        axis: int | tuple[int, ...] = 1,
    ) -> Self:
        """(self - mean) * invstd * weight + bias, where these lie along the axes.

        >>> mean, invstd = Tensor([1.0, 1.0]), Tensor([1.0, 2.0])
        >>> Tensor([[1.0, 2.0]]).batchnorm(None, None, mean, invstd).tolist()
        [[0.0, 2.0]]
        """
        axes = (axis,) if isinstance(axis, int) else axis
        shape = tuple(s if a in axes else 1 for a, s in enumerate(self.shape))
        x = self - mean.reshape(shape)
        if weight is not None:
            x = x * weight.reshape(shape)
        scale = invstd.reshape(shape) if invstd.ndim == len(axes) else invstd
        x = x * scale
        return x if bias is None else x + bias.reshape(shape)

    def dropout(self, p: float = 0.5) -> Self:
        """In training: zeros with probability p, the rest scaled so that the mean stays.

        >>> Tensor.ones(3).dropout(0.5).tolist()
        [1.0, 1.0, 1.0]
        """
        if not 0 <= p <= 1:
            raise ValueError(f"dropout: p={p} is no probability")
        if not settings.training or p == 0:
            return self
        if p == 1:
            return self._zero()._broadcast_to(self.shape)
        kept = type(self).rand(self.shape, device=self.device, contiguous=False) >= p
        mask = type(self)._from_uop(kept.uop.contiguous(), False)
        return mask.where(self, 0) / (1 - p)

    def scaled_dot_product_attention(
        self,
        key: Self,
        value: Self,
        attn_mask: Self | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        enable_gqa: bool = False,
    ) -> Self:
        """softmax(self @ key^T / sqrt(size) + mask) @ value.

        >>> q = Tensor.ones(1, 2, 4)
        >>> q.scaled_dot_product_attention(q, q).shape
        (1, 2, 4)
        """
        if enable_gqa:
            groups = int(self.shape[-3]) // int(key.shape[-3])
            key, value = key.repeat_interleave(groups, -3), value.repeat_interleave(groups, -3)
        if self.ndim < 2 or self.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
            raise ShapeError(
                f"scaled_dot_product_attention: query {self.shape}, key {key.shape} and value "
                f"{value.shape} do not fit"
            )
        scores = self.matmul(key.transpose(-2, -1), dtype=_wide(self)) * (
            1 / math.sqrt(int(self.shape[-1]))
        )
        if is_causal:
            if attn_mask is not None:
                raise ValueError(
                    "scaled_dot_product_attention: is_causal and attn_mask are both given"
                )
            rows, columns = scores.shape[-2:]
            attn_mask = self._below(rows, columns, 0, self.uop.device)
        if attn_mask is not None:
            if dtypes.is_bool(attn_mask.dtype):
                scores = attn_mask.where(scores, -math.inf)
            else:
                scores = scores + attn_mask
        return scores.softmax(-1).cast(self.dtype).dropout(dropout_p).matmul(value)

    # *** losses ***

    def _reduced(self, reduction: str) -> Self:
        if reduction == "mean":
            return self.mean()
        if reduction == "sum":
            return self.sum()
        if reduction == "none":
            return self
        raise ValueError(f"reduction must be 'mean', 'sum' or 'none', not {reduction!r}")

    def _check_target(self, y: Self, what: str) -> None:
        if self.shape != y.shape:
            raise ShapeError(
                f"{what}: shapes {self.shape} and {y.shape} of input and target differ"
            )

    def binary_crossentropy(self, y: Self, reduction: str = "mean") -> Self:
        """-y log(self) - (1 - y) log(1 - self).

        >>> Tensor([1.0]).binary_crossentropy(Tensor([1.0])).item()
        0.0
        """
        self._check_target(y, "binary_crossentropy")
        # as in PyTorch the logarithms do not go below -100
        hit, miss = self.log().clamp(min_=-100.0), (1 - self).log().clamp(min_=-100.0)
        return (-y * hit - (1 - y) * miss)._reduced(reduction)

    def binary_crossentropy_logits(
        self, y: Self, reduction: str = "mean", pos_weight: Self | None = None
    ) -> Self:
        """Binary cross-entropy of sigmoid(self), without overflow.

        >>> Tensor([0.0]).binary_crossentropy_logits(Tensor([1.0])).numpy().round(3).item()
        0.6930000185966492
        """
        self._check_target(y, "binary_crossentropy_logits")
        weight = 1 if pos_weight is None else 1 + (pos_weight - 1) * y
        tail = (-self.abs()).exp().log1p() + (-self).relu()
        return ((1 - y) * self + weight * tail)._reduced(reduction)

    def mse_loss(self, target: Self, reduction: str = "mean") -> Self:
        """The squared difference.

        >>> Tensor([1.0, 3.0]).mse_loss(Tensor([1.0, 1.0])).item()
        2.0
        """
        self._check_target(target, "mse_loss")
        return (self - target).square()._reduced(reduction)

    def l1_loss(self, target: Self, reduction: str = "mean") -> Self:
        """The absolute difference.

        >>> Tensor([1.0, 3.0]).l1_loss(Tensor([1.0, 1.0])).item()
        1.0
        """
        self._check_target(target, "l1_loss")
        return (self - target).abs()._reduced(reduction)

    def sparse_categorical_crossentropy(
        self,
        Y: Self,
        ignore_index: int = -1,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
    ) -> Self:
        """The cross-entropy of logits (..., classes) and the numbers of the right classes.

        >>> round(Tensor([[0.0, 0.0]]).sparse_categorical_crossentropy(Tensor([1])).item(), 4)
        0.6931
        """
        self._check_classes(Y, self.shape[:-1], "sparse_categorical_crossentropy")
        log_probability = self.log_softmax()
        valid = Y.ne(ignore_index)
        hot = Y._one_hot_along(int(self.shape[-1])) & valid.unsqueeze(-1)
        picked = hot.where(log_probability, 0).sum(-1)
        loss = picked
        if label_smoothing:
            smooth = valid.where(log_probability.mean(-1), 0)
            loss = (1 - label_smoothing) * picked + label_smoothing * smooth
        return (-loss)._reduced_valid(valid, reduction)

    def _reduced_valid(self, valid: Self, reduction: str, weight: Self | None = None) -> Self:
        if reduction != "mean":
            return self._reduced(reduction)
        total = valid.cast(self.dtype).sum() if weight is None else weight.sum()
        return self.sum() / total

    def _check_classes(self, Y: Self, shape: Any, what: str) -> None:
        if not dtypes.is_int(Y.dtype):
            raise DTypeError(f"{what}: the classes must be integers, not {Y.dtype}: cast first")
        if Y.shape != shape:
            raise ShapeError(f"{what}: logits {self.shape} and classes {Y.shape} do not fit")
        if not self.ndim:
            raise ShapeError(f"{what}: logits need an axis of classes")

    def cross_entropy(
        self,
        Y: Self,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        ignore_index: int = -100,
        weight: Self | None = None,
    ) -> Self:
        """The cross-entropy of logits (batch, classes, ...) and classes (batch, ...) or
        probabilities (batch, classes, ...).

        >>> round(Tensor([[0.0, 0.0]]).cross_entropy(Tensor([1])).item(), 4)
        0.6931
        """
        if not 0 <= label_smoothing <= 1:
            raise ValueError(f"cross_entropy: label_smoothing={label_smoothing} is not in [0, 1]")
        axis = 0 if self.ndim == 1 else 1
        if dtypes.is_int(Y.dtype) and Y.ndim == self.ndim - 1:
            logits = self.movedim(axis, -1)
            if weight is not None:
                return self._weighted_cross_entropy(
                    Y, reduction, label_smoothing, ignore_index, weight
                )
            return logits.sparse_categorical_crossentropy(
                Y, ignore_index, label_smoothing, reduction
            )
        if Y.shape != self.shape:
            raise ShapeError(f"cross_entropy: logits {self.shape} and targets {Y.shape} do not fit")
        classes = int(self.shape[axis])
        y = (1 - label_smoothing) * Y + label_smoothing / classes
        terms = self.log_softmax(axis) * y
        if weight is not None:
            terms = terms * weight.reshape((-1, *[1] * (self.ndim - axis - 1)))
        loss = -terms.sum(axis)
        if reduction == "mean" and loss.ndim:
            return loss.sum() / int(loss.numel())
        return loss._reduced(reduction)

    def _weighted_cross_entropy(
        self, Y: Self, reduction: str, smoothing: float, ignore_index: int, weight: Self
    ) -> Self:
        axis = 0 if self.ndim == 1 else 1
        log_probability = self.log_softmax(axis).movedim(axis, -1)
        valid = Y.ne(ignore_index)
        hot = Y._one_hot_along(int(self.shape[axis])) & valid.unsqueeze(-1)
        picked = hot.where(log_probability * weight, 0).sum(-1)
        loss = -(1 - smoothing) * picked
        if smoothing:
            spread = valid.where((log_probability * weight).mean(-1), 0)
            loss = loss - smoothing * spread
        return loss._reduced_valid(valid, reduction, hot.where(weight, 0).sum(-1))

    def nll_loss(
        self,
        Y: Self,
        weight: Self | None = None,
        ignore_index: int | None = None,
        reduction: str = "mean",
    ) -> Self:
        """The negative of the log-probability (batch, classes, ...) of the right classes.

        >>> Tensor([[-1.0, -2.0]]).nll_loss(Tensor([1])).item()
        2.0
        """
        axis = 0 if self.ndim == 1 else 1
        shape = tuple(s for a, s in enumerate(self.shape) if a != axis)
        self._check_classes(Y, shape, "nll_loss")
        valid = Y._ones().bool() if ignore_index is None else Y.ne(ignore_index)
        hot = Y._one_hot_along(int(self.shape[axis])) & valid.unsqueeze(-1)
        scale = hot.cast(self.dtype) if weight is None else hot.where(weight, 0)
        loss = -hot.where(self.movedim(axis, -1) * scale, 0).sum(-1)
        return loss._reduced_valid(valid, reduction, scale.sum(-1))


def _wide(tensor: Neural) -> Any:
    """The type in which scores are summed: at least float32."""
    return dtypes.float64 if tensor.dtype is dtypes.float64 else dtypes.float32
