"""backward() and gradient()."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from tgcore.dtype import dtypes
from tgcore.errors import DTypeError, ShapeError, TgcoreError
from tgcore.tensor.assign import Assignment
from tgcore.tensor.core import TensorCore, constant, full_shape, is_memory, live_tensors
from tgcore.tensor.gradient import compute_gradients, history
from tgcore.uop.node import UOp


class Autograd(Assignment):
    """Gradients of one tensor with respect to others."""

    __slots__ = ()

    def gradient(
        self, *targets: Self, gradient: Self | None = None, materialize_grads: bool = False
    ) -> list[Self]:
        """The gradients of self with respect to the targets. `gradient` is that of self (1 if self
        is a scalar). With `materialize_grads` a target that self does not depend on has zeros,
        else it is an error.

        >>> x = Tensor([1.0, 2.0])
        >>> x.square().sum().gradient(x)[0].tolist()
        [2.0, 4.0]
        """
        found = self._gradients([t.uop for t in targets], gradient)
        result = []
        for number, target in enumerate(targets):
            node = found.get(target.uop)
            if node is None:
                if not materialize_grads:
                    raise TgcoreError(
                        f"gradient: the tensor does not depend on target {number} (of shape "
                        f"{target.shape}); use materialize_grads=True to have zeros"
                    )
                zero = constant(0, target.dtype, target.device)
                node = full_shape(zero, target.shape)
            result.append(type(self)._from_uop(full_shape(node, target.shape)))
        return result

    def _gradients(self, targets: list[UOp], gradient: Self | None) -> dict[UOp, UOp]:
        if not dtypes.is_float(self.dtype):
            raise DTypeError(f"only floats have gradients, not {self.dtype}")
        if gradient is None:
            if self.shape != ():
                raise ShapeError(
                    f"a tensor of shape {self.shape} needs a gradient of its own to start from: "
                    "reduce it to a scalar first, with .sum() say, or pass gradient="
                )
            start = self.uop.const_like(1)
        else:
            if gradient.shape != self.shape:
                raise ShapeError(f"gradient has shape {gradient.shape}, the tensor {self.shape}")
            start = gradient.cast(self.dtype).uop
        return compute_gradients(self.uop, full_shape(start, self.shape), targets)

    def custom_gradient(self, rule: Callable[..., Any], *inputs: Self) -> Self:
        """The same values, with gradients by a rule instead of by how they were computed:
        `rule(gradient, result, *inputs)` gets the gradient of the result and gives that of each
        input (one tensor, or a sequence with None for an input that has none). Gradients of
        gradients follow from what the rule computes.

        >>> x = Tensor([0.4, 1.6], requires_grad=True)
        >>> straight = x.detach().round().custom_gradient(lambda gradient, y, x: gradient, x)
        >>> _ = straight.sum().backward()
        >>> straight.tolist(), x.grad.tolist()
        ([0.0, 2.0], [1.0, 1.0])
        """
        kind = type(self)

        def nodes_rule(*nodes: UOp) -> tuple[UOp | None, ...]:
            gradient, result, *sources = [kind._from_uop(n) for n in nodes]
            found = rule(gradient, result, *sources)
            given = found if isinstance(found, (tuple, list)) else [found]
            if len(given) != len(sources):
                raise TgcoreError(
                    f"custom_gradient: the rule gives {len(given)} gradients for {len(sources)} "
                    "inputs"
                )
            return tuple(_checked(g, x) for g, x in zip(given, sources))

        node = self.uop.with_gradient(nodes_rule, *[x.uop for x in inputs])
        return self._derived(node, *inputs)

    def backward(self, gradient: Self | None = None) -> Self:
        """Add the gradient of self to the `grad` of every tensor that self was computed from and
        that requires one.

        >>> x = Tensor([1.0, 2.0], requires_grad=True)
        >>> _ = x.square().sum().backward()
        >>> x.grad.tolist()
        [2.0, 4.0]
        """
        nodes = history(self.uop, smooth=False)
        wanted: list[TensorCore] = [t for t in live_tensors if t._requires_grad and t.uop in nodes]
        if not wanted or (len(wanted) == 1 and wanted[0] is self and is_memory(self.uop)):
            raise TgcoreError(
                "backward: nothing that this tensor was computed from requires a gradient, or it "
                "was realised and no longer knows what that was; make tensors with "
                "requires_grad=True, and call backward before realize"
            )
        found = self._gradients([t.uop for t in wanted], gradient)
        for tensor in wanted:
            node = found.get(tensor.uop)
            if node is None:  # whatever depends on the tensor is flat
                node = constant(0, tensor.dtype, tensor.device)
            new = type(self)._from_uop(full_shape(node, tensor.shape), False)
            tensor.grad = new if tensor.grad is None else tensor.grad + new
        return self


def _checked(gradient: TensorCore | None, source: TensorCore) -> UOp | None:
    """A gradient that a user's rule gave."""
    if gradient is None:
        return None
    if gradient.shape not in (source.shape, ()):
        raise ShapeError(
            f"custom_gradient: the rule gives a gradient of shape {gradient.shape} for an input of "
            f"shape {source.shape}"
        )
    return full_shape(gradient.uop.cast(source.dtype), source.shape)
