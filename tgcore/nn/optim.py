"""Optimisers: they assign new values to parameters, all in one schedule a step.

The state of an optimiser (momenta and the like) is float32 where parameters are narrower, and the
learning rate is a Tensor, `lr`, that may be assigned: a captured training step follows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tgcore.dtype import DType, dtypes, least_upper_dtype
from tgcore.errors import ShapeError, TgcoreError
from tgcore.helpers import dedup
from tgcore.tensor import Tensor


class Optimizer:
    """The base of all optimisers. Those that derive from it write `_step`.

    Parameters whose `requires_grad` nobody set are marked as needing gradients; those that were
    marked as needing none (running averages) are not changed but realised with each step.
    """

    def __init__(self, params: Iterable[Tensor], lr: float, device: str | None = None) -> None:
        if lr < 0:
            raise ValueError(f"a learning rate is not negative: {lr}")
        everything = dedup(params)
        for tensor in everything:
            if tensor.requires_grad is None and dtypes.is_float(tensor.dtype):
                tensor.requires_grad = True
        self.params = [t for t in everything if t.requires_grad]
        self.buffers = [t for t in everything if not t.requires_grad]
        if not self.params:
            raise ValueError("an optimiser needs at least one parameter that takes gradients")
        self.device = self.params[0].device if device is None else device
        kind = least_upper_dtype(dtypes.default_float, dtypes.float32)
        self.lr = self._scalar(lr, kind)

    def _scalar(self, value: float, dtype: DType = dtypes.float32) -> Tensor:
        """A number in memory, of shape (1,)."""
        tensor = Tensor([value], dtype=dtype, device=self.device, requires_grad=False)
        return tensor.contiguous()

    def _zeros(self) -> list[Tensor]:
        """Zeros in memory for each parameter, float32 at least."""
        return [
            Tensor.zeros(
                *t.shape, dtype=state_dtype(t), device=t.device, requires_grad=False
            ).contiguous()
            for t in self.params
        ]

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for tensor in self.params:
            tensor.grad = None

    def step(self) -> None:
        """Update all parameters (and state), and realise them."""
        Tensor.realize(*self.schedule_step())

    def schedule_step(self) -> list[Tensor]:
        """Assign new values lazily; the tensors that must be realised together."""
        if not Tensor.training:
            raise RuntimeError(
                "optimisers work in training mode only: wrap the training loop in "
                "`with Tensor.train():` or set `Tensor.training = True`"
            )
        return [*self._step(self._gradients()), *self.params, *self.buffers]

    def _gradients(self) -> list[Tensor]:
        missing = [n for n, t in enumerate(self.params) if t.grad is None]
        if missing:
            shapes = ", ".join(f"{n} of shape {self.params[n].shape}" for n in missing[:3])
            raise TgcoreError(
                f"{len(missing)} of {len(self.params)} parameters have no gradient (number "
                f"{shapes}): call backward() on a loss that depends on them, or set "
                "requires_grad = False before the optimiser is made"
            )
        return [t.grad for t in self.params if t.grad is not None]

    def _step(self, grads: Sequence[Tensor]) -> list[Tensor]:
        """Assign to every parameter; returns the state to be realised with them."""
        raise NotImplementedError(f"{type(self).__name__} must define _step")


def state_dtype(tensor: Tensor) -> DType:
    """The type in which a parameter's state is kept and its update computed."""
    return least_upper_dtype(tensor.dtype, dtypes.float32)


def _wide(tensor: Tensor) -> Tensor:
    """The value of a parameter in the type of its state, cut off from the gradient's graph."""
    return tensor.detach().cast(state_dtype(tensor))


def _trust(weight: Tensor, change: Tensor, factor: float = 1.0, decay: float = 0.0) -> Tensor:
    """factor * |weight| / (|change| + decay * |weight|); 1 where one of both norms is 0."""
    w, c = weight.square().sum().sqrt(), change.square().sum().sqrt()
    usable = (w > 0) & (c > 0)
    return usable.where(factor * w / usable.where(c + decay * w, 1.0), 1.0)


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum (Nesterov's if asked) and weight decay. `classic`
    momentum collects steps, that is gradients times the learning rate, instead of gradients.

    >>> w = Tensor([1.0])
    >>> optimizer = SGD([w], lr=0.5)
    >>> with Tensor.train():
    ...     _ = (w * 2).sum().backward()
    ...     optimizer.step()
    >>> w.tolist()
    [0.0]
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        classic: bool = False,
        device: str | None = None,
    ) -> None:
        super().__init__(params, lr, device)
        if nesterov and not momentum:
            raise ValueError(f"{type(self).__name__}: nesterov needs a momentum")
        self.momentum, self.wd, self.nesterov = momentum, weight_decay, nesterov
        self.classic = classic
        self.b = self._zeros() if momentum else []

    def _rate(self, t: Tensor, weight: Tensor, gradient: Tensor) -> Tensor:
        """What the gradient is multiplied by."""
        return self.lr.to(t.device)

    def _step(self, grads: Sequence[Tensor]) -> list[Tensor]:
        for number, (t, gradient) in enumerate(zip(self.params, grads)):
            weight, g = _wide(t), gradient.cast(state_dtype(t))
            rate = self._rate(t, weight, g)
            if self.wd:
                g = g + self.wd * weight
            if self.classic:
                g = g * rate
            g = self._with_momentum(number, g)
            change = g if self.classic else rate * g
            t.assign((weight - change).reshape(t.shape).cast(t.dtype))
        return self.b

    def _with_momentum(self, number: int, g: Tensor) -> Tensor:
        if not self.momentum:
            return g
        velocity = self.b[number]
        velocity.assign(self.momentum * velocity + g)
        return g + self.momentum * velocity if self.nesterov else velocity


class LARS(SGD):
    """SGD with a rate for each parameter, by the norms of it and of its gradient (You, Gitman and
    Ginsburg, "Large batch training of convolutional networks", 2017)."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        momentum: float = 0.9,
        weight_decay: float = 1e-4,
        nesterov: bool = False,
        classic: bool = True,
        tcoef: float = 0.001,
        device: str | None = None,
    ) -> None:
        super().__init__(params, lr, momentum, weight_decay, nesterov, classic, device)
        self.tcoef = tcoef

    def _rate(self, t: Tensor, weight: Tensor, gradient: Tensor) -> Tensor:
        return self.lr.to(t.device) * _trust(weight, gradient, self.tcoef, self.wd)


class Muon(SGD):
    """For matrices: the direction of the momentum, made orthogonal by Newton-Schulz iterations, and
    decoupled weight decay (Jordan and others, "Muon", 2024). Parameters of more axes are matrices
    of their first axis by all others; vectors need another optimiser (see `OptimizerGroup`)."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.02,
        momentum: float = 0.95,
        weight_decay: float = 0.1,
        ns_steps: int = 5,
        ns_params: tuple[float, ...] = (3.4445, -4.775, 2.0315),
        nesterov: bool = True,
        device: str | None = None,
    ) -> None:
        super().__init__(params, lr, momentum, 0.0, nesterov, False, device)
        if vectors := [t.shape for t in self.params if t.ndim < 2]:
            raise ShapeError(
                f"Muon is for matrices, not for parameters of shape {vectors[0]}: give these to "
                "another optimiser, both in an OptimizerGroup"
            )
        self.decay, self.ns_steps, self.ns_params = weight_decay, ns_steps, ns_params

    def _step(self, grads: Sequence[Tensor]) -> list[Tensor]:
        for number, (t, gradient) in enumerate(zip(self.params, grads)):
            weight, rate = _wide(t), self.lr.to(t.device)
            g = self._with_momentum(number, gradient.cast(state_dtype(t)))
            direction = g.reshape(t.shape[0], -1).newton_schulz(self.ns_steps, self.ns_params)
            kept = weight * (1.0 - rate * self.decay) if self.decay else weight
            t.assign((kept - rate * direction.reshape(t.shape)).reshape(t.shape).cast(t.dtype))
        return self.b


class LAMB(Optimizer):
    """Adam's direction with decoupled weight decay, scaled to the norm of each parameter (You and
    others, "Large batch optimization for deep learning", 2020)."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        device: str | None = None,
    ) -> None:
        super().__init__(params, lr, device)
        self.b1, self.b2, self.eps, self.wd = b1, b2, eps, weight_decay
        # powers of b1 and b2: what is still missing from the averages
        self.b1_t, self.b2_t = self._scalar(1.0), self._scalar(1.0)
        self.m, self.v = self._zeros(), self._zeros()

    def _step(self, grads: Sequence[Tensor]) -> list[Tensor]:
        self.b1_t.assign(self.b1_t * self.b1)
        self.b2_t.assign(self.b2_t * self.b2)
        for t, gradient, m, v in zip(self.params, grads, self.m, self.v):
            g = gradient.cast(state_dtype(t))
            m.assign(self.b1 * m + (1 - self.b1) * g)
            v.assign(self.b2 * v + (1 - self.b2) * (g * g))
            rate = self.lr.to(t.device)
            mean = m / (1.0 - self.b1_t.to(t.device))
            square = v / (1.0 - self.b2_t.to(t.device))
            update = mean / (square.sqrt() + self.eps)
            weight = _wide(t)
            if self.wd:
                update = update + self.wd * weight
            change = self._scale(weight, update) * update
            t.assign((weight - rate * change).reshape(t.shape).cast(t.dtype))
        return [self.b1_t, self.b2_t, *self.m, *self.v]

    def _scale(self, weight: Tensor, update: Tensor) -> Tensor | float:
        """What the update is multiplied by, beside the learning rate."""
        return _trust(weight, update)


class AdamW(LAMB):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019)."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        device: str | None = None,
    ) -> None:
        super().__init__(params, lr, b1, b2, eps, weight_decay, device)

    def _scale(self, weight: Tensor, update: Tensor) -> Tensor | float:
        return 1.0


class Adam(AdamW):
    """Adam (Kingma and Ba, 2015).

    >>> w = Tensor([1.0])
    >>> optimizer = Adam([w], lr=0.5)
    >>> with Tensor.train():
    ...     _ = (w * 2).sum().backward()
    ...     optimizer.step()
    >>> w.numpy().round(4).tolist()
    [0.5]
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        device: str | None = None,
    ) -> None:
        super().__init__(params, lr, b1, b2, eps, 0.0, device)


class OptimizerGroup(Optimizer):
    """Several optimisers that step together, in one schedule."""

    def __init__(self, *optimizers: Optimizer) -> None:
        if not optimizers:
            raise ValueError("an optimiser group needs at least one optimiser")
        self.optimizers = optimizers
        self.params = [t for o in optimizers for t in o.params]
        self.buffers = [t for o in optimizers for t in o.buffers]
        self.device, self.lr = optimizers[0].device, optimizers[0].lr

    def schedule_step(self) -> list[Tensor]:
        return [t for o in self.optimizers for t in o.schedule_step()]


def clip_grad_norm_(params: Iterable[Tensor], max_norm: float, norm_type: float = 2.0) -> Tensor:
    """Scale all gradients down so that the norm of all of them together is at most `max_norm`.

    Returns the norm as it was. Nothing is realised: it becomes part of the step.
    """
    owners = [t for t in params if t.grad is not None]
    grads = [t.grad.cast(state_dtype(t)) for t in owners if t.grad is not None]
    if not grads:
        return Tensor(0.0)
    norms = Tensor.stack(*[g.norm(norm_type) for g in grads])
    total = norms.norm(norm_type)
    # the small number is the customary one (it keeps a norm of 0 from dividing by it)
    scale = (max_norm / (total + 1e-6)).minimum(1.0)
    for t, g in zip(owners, grads):
        t.grad = (g * scale.to(t.device)).cast(t.dtype)
    return total


def clip_grad_value_(params: Iterable[Tensor], clip_value: float) -> None:
    """Bring every element of every gradient into [-clip_value, clip_value]. Nothing is realised."""
    if clip_value < 0:
        raise ValueError(f"clip_grad_value_: a bound is not negative: {clip_value}")
    for t in params:
        if t.grad is not None:
            t.grad = t.grad.clamp(-clip_value, clip_value)
