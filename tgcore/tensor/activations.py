"""Activation functions."""

from __future__ import annotations

import math
from typing import Self

from tgcore.tensor.functions import Functions


class Activations(Functions):
    """What networks put between their layers."""

    __slots__ = ()

    def relu(self) -> Self:
        """max(self, 0).

        >>> Tensor([-1.0, 2.0]).relu().tolist()
        [0.0, 2.0]
        """
        return (self <= 0).where(0, self)  # so that nan stays nan

    def relu6(self) -> Self:
        """min(max(self, 0), 6).

        >>> Tensor([-1.0, 7.0]).relu6().tolist()
        [0.0, 6.0]
        """
        return self.hardtanh(0, 6)

    def sigmoid(self) -> Self:
        """1 / (1 + exp(-self)).

        >>> Tensor([0.0]).sigmoid().tolist()
        [0.5]
        """
        x = self._float()
        # by the exponential that does not overflow
        small = (-x.abs()).exp()
        return ((x < 0).where(small, 1) / (1 + small))._with_gradient("sigmoid", x)

    def logsigmoid(self) -> Self:
        """The logarithm of the sigmoid, without overflow.

        >>> Tensor([0.0]).logsigmoid().numpy().round(3).tolist()
        [-0.6930000185966492]
        """
        return -(-self).softplus()

    def hardsigmoid(self, alpha: float = 1 / 6, beta: float = 0.5) -> Self:
        """min(max(alpha * self + beta, 0), 1).

        >>> Tensor([-4.0, 0.0, 4.0]).hardsigmoid().tolist()
        [0.0, 0.5, 1.0]
        """
        return (alpha * self + beta).hardtanh(0, 1)

    def hardtanh(self, min_val: float = -1, max_val: float = 1) -> Self:
        """min(max(self, min_val), max_val); flat from the bounds on.

        >>> Tensor([-2.0, 0.5, 2.0]).hardtanh().tolist()
        [-1.0, 0.5, 1.0]
        """
        return (self <= min_val).where(min_val, (self >= max_val).where(max_val, self))

    def hardswish(self) -> Self:
        """self * relu6(self + 3) / 6.

        >>> Tensor([-4.0, 3.0]).hardswish().tolist()
        [-0.0, 3.0]
        """
        return self * (self + 3).relu6() * (1 / 6)

    def leaky_relu(self, neg_slope: float = 0.01) -> Self:
        """self, or neg_slope * self where it is negative.

        >>> Tensor([-1.0, 2.0]).leaky_relu(0.5).tolist()
        [-0.5, 2.0]
        """
        return (self > 0).where(self, neg_slope * self)

    def elu(self, alpha: float = 1.0) -> Self:
        """self, or alpha * (exp(self) - 1) where it is negative.

        >>> Tensor([-1.0, 1.0]).elu().numpy().round(3).tolist()
        [-0.6320000290870667, 1.0]
        """
        x = self._float()
        return (x > 0).where(x, alpha * x._below_zero().expm1())

    def _below_zero(self) -> Self:
        """self where it is not positive, else 0."""
        return (self > 0).where(0, self)

    def celu(self, alpha: float = 1.0) -> Self:
        """self, or alpha * (exp(self / alpha) - 1) where it is negative.

        >>> Tensor([-1.0, 1.0]).celu().numpy().round(3).tolist()
        [-0.6320000290870667, 1.0]
        """
        x = self._float()
        return (x > 0).where(x, alpha * (x._below_zero() / alpha).expm1())

    def selu(self, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805) -> Self:
        """gamma * elu(self, alpha).

        >>> Tensor([1.0]).selu().numpy().round(3).tolist()
        [1.0509999990463257]
        """
        return gamma * self.elu(alpha)

    def swish(self) -> Self:
        """self * sigmoid(self).

        >>> Tensor([1.0]).swish().numpy().round(3).tolist()
        [0.7310000061988831]
        """
        return self * self.sigmoid()

    def silu(self) -> Self:
        """The same as `swish`.

        >>> Tensor([1.0]).silu().numpy().round(3).tolist()
        [0.7310000061988831]
        """
        return self.swish()

    def gelu(self, approximate: str = "tanh") -> Self:
        """self times the normal distribution's share below it; by tanh, or exactly ("none").

        >>> Tensor([1.0]).gelu().numpy().round(3).tolist()
        [0.8410000205039978]
        """
        x = self._float()
        if approximate == "none":
            return 0.5 * x * (1 + (x * (1 / math.sqrt(2))).erf())
        if approximate != "tanh":
            raise ValueError(f"gelu: approximate must be 'tanh' or 'none', not {approximate!r}")
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
        # (1 + tanh(u)) / 2 is the sigmoid of 2u
        return x * (2 * inner).sigmoid()

    def quick_gelu(self) -> Self:
        """self * sigmoid(1.702 * self).

        >>> Tensor([1.0]).quick_gelu().numpy().round(3).tolist()
        [0.8460000157356262]
        """
        return self * (self * 1.702).sigmoid()

    def softplus(self, beta: float = 1.0) -> Self:
        """log(1 + exp(beta * self)) / beta, without overflow.

        >>> Tensor([0.0]).softplus().numpy().round(3).tolist()
        [0.6930000185966492]
        """
        x = self._float() * beta
        value = x.relu() + (-x.abs()).exp().log1p()
        return (1 / beta) * value._with_gradient("softplus", x)

    def mish(self) -> Self:
        """self * tanh(softplus(self)).

        >>> Tensor([1.0]).mish().numpy().round(3).tolist()
        [0.8650000095367432]
        """
        return self * self.softplus().tanh()

    def softsign(self) -> Self:
        """self / (1 + |self|).

        >>> Tensor([1.0]).softsign().tolist()
        [0.5]
        """
        return self / (1 + self.abs())
