"""What every Tensor is: a node of the graph, a place in the set of live tensors, a gradient.

The methods of Tensor are split by subject into a chain of classes, each of which uses only those
before it: core, movement, elementwise, functions, reduce, creation, random, indexing, linear
algebra, neural ops, losses, interop, autograd, Tensor.
"""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self, TypeAlias

from tgcore.dtype import DType, dtypes
from tgcore.errors import DTypeError, ShapeError, TgcoreError
from tgcore.runtime.device import Device
from tgcore.uop.node import UOp, sint
from tgcore.uop.ops import GroupOp, Ops

ConstType: TypeAlias = bool | int | float
DTypeLike: TypeAlias = DType | str

# scalars that mix freely with any shape
FREE_SCALARS = frozenset({Ops.CONST, Ops.BIND, Ops.DEFINE_VAR})
# what may lie between memory and a tensor that is the same memory seen otherwise
_VIEW_OPS = (GroupOp.Movement - {Ops.PAD}) | {Ops.DETACH}


class Registry:
    """The live tensors, weakly held; in the order in which they got their nodes."""

    def __init__(self) -> None:
        self._refs: dict[int, weakref.KeyedRef[int, TensorCore]] = {}
        self.count = 0  # how often a tensor was added so far

    def add(self, tensor: TensorCore) -> None:
        """Remember a tensor while it lives; one that has a new node, as the latest."""
        number = id(tensor)
        ref = self._refs.pop(number, None)
        self._refs[number] = ref or weakref.KeyedRef(tensor, self._forget, number)
        self.count += 1

    def since(self, count: int) -> list[TensorCore]:
        """At least the live tensors that were added after so many had been, latest first."""
        latest = itertools.islice(reversed(self._refs.values()), self.count - count)
        return [t for ref in list(latest) if (t := ref()) is not None]

    def _forget(self, ref: weakref.KeyedRef[int, TensorCore]) -> None:
        self._refs.pop(ref.key, None)

    def __iter__(self) -> Iterator[TensorCore]:
        for ref in list(self._refs.values()):
            tensor = ref()
            if tensor is not None:
                yield tensor

    def __len__(self) -> int:
        return len(self._refs)


live_tensors = Registry()

# memory that several tensors got because they stood for equal expressions: the first that is
# written to must leave it to the others
lookalikes: weakref.WeakSet[UOp] = weakref.WeakSet()


class _Settings:
    """What changes how operations on tensors behave, for the whole process."""

    def __init__(self) -> None:
        self.grad_enabled = True
        self.training = False


settings = _Settings()


class TensorCore:
    """A lazy value: a node, and what is known about its gradient."""

    __slots__ = ("__weakref__", "_requires_grad", "_stale", "grad", "uop")

    uop: UOp
    grad: Self | None
    default_type: ClassVar[type[TensorCore]]

    def __init__(self, uop: UOp, requires_grad: bool | None = None) -> None:
        self._setup(uop, None)
        if requires_grad is not None:
            self.requires_grad = requires_grad

    def _setup(self, uop: UOp, requires_grad: bool | None) -> None:
        self.uop = uop
        self.grad = None
        self._requires_grad = requires_grad
        self._stale = False
        live_tensors.add(self)

    @classmethod
    def _from_uop(cls, uop: UOp, requires_grad: bool | None = None) -> Self:
        tensor = cls.__new__(cls)
        tensor._setup(uop, requires_grad)
        return tensor

    def _derived(self, uop: UOp, *others: TensorCore) -> Self:
        """A tensor that was computed from self and others."""
        needs = self._requires_grad
        for other in others:
            if needs is None or other._requires_grad:
                needs = needs or other._requires_grad
        if needs is not False and not settings.grad_enabled and dtypes.is_float(uop.dtype):
            uop, needs = uop.detach(), False
        return type(self)._from_uop(uop, needs)

    def _rebind(self, uop: UOp) -> None:
        """Stand for another node from now on."""
        self.uop = uop
        live_tensors.add(self)

    # *** facts ***

    @property
    def shape(self) -> tuple[sint, ...]:
        """The sizes of the axes.

        >>> Tensor.zeros(2, 3).shape
        (2, 3)
        """
        return self.uop.known_shape

    @property
    def dtype(self) -> DType:
        """The data type of the elements.

        >>> Tensor([1, 2]).dtype
        dtypes.int32
        """
        return self.uop.dtype  # type: ignore[no-any-return]

    @property
    def device(self) -> str:
        """The device that the tensor lives on."""
        return self.uop.device or Device.DEFAULT

    @property
    def ndim(self) -> int:
        """The number of axes.

        >>> Tensor.zeros(2, 3).ndim
        2
        """
        return len(self.shape)

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of one axis.

        >>> Tensor.zeros(2, 3).size(1)
        3
        """
        return self.shape if dim is None else self.shape[self._axis(dim, "size")]

    def numel(self) -> sint:
        """The number of elements.

        >>> Tensor.zeros(2, 3).numel()
        6
        """
        return self.uop.size  # type: ignore[no-any-return]

    def element_size(self) -> int:
        """Bytes of one element.

        >>> Tensor([1.0]).element_size()
        4
        """
        return self.dtype.itemsize

    def nbytes(self) -> sint:
        """Bytes of all elements.

        >>> Tensor.zeros(2, 3).nbytes()
        24
        """
        return self.numel() * self.element_size()

    def is_floating_point(self) -> bool:
        """Whether the elements are floats.

        >>> Tensor([1.0]).is_floating_point()
        True
        """
        return dtypes.is_float(self.dtype)

    def dim(self) -> int:
        """The number of axes.

        >>> Tensor.zeros(2, 3).dim()
        2
        """
        return self.ndim

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor without axes has no len()")
        return int(self.shape[0])

    @property
    def requires_grad(self) -> bool | None:
        """Whether `backward` gives this tensor a gradient; None: an optimiser may say so."""
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool | None) -> None:
        if value and not dtypes.is_float(self.dtype):
            raise DTypeError(f"only floats have gradients, not {self.dtype}: cast first")
        if value:
            self._make_unique()
        self._requires_grad = value

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Sets `requires_grad` and returns the tensor itself.

        >>> Tensor([1.0]).requires_grad_().requires_grad
        True
        """
        self.requires_grad = requires_grad
        return self

    def _make_unique(self) -> None:
        """Two equal constants are one node; what has a gradient of its own needs one of its own."""
        node = self.uop
        while node.op in GroupOp.Movement:
            node = node.src[0]
        if node.op is not Ops.CONST or not all(isinstance(s, int) for s in self.shape):
            return
        memory = UOp.new_buffer(self.device, self.uop.size, self.dtype).reshape(self.shape)
        self._rebind(memory.assign(full_shape(self.uop, self.shape)))

    # *** checks ***

    def _axis(self, dim: int, what: str, extra: int = 0) -> int:
        """The axis that a possibly negative number names."""
        total = max(self.ndim + extra, 1)
        if not isinstance(dim, int) or not -total <= dim < total:
            raise ShapeError(
                f"{what}: axis {dim} is out of range for shape {self.shape}; "
                f"it must lie in [{-total}, {total - 1}]"
            )
        return dim + total if dim < 0 else dim

    def _axes(self, axis: int | Sequence[int] | None, what: str) -> tuple[int, ...]:
        """The axes that an argument names, in ascending order; all for None."""
        if axis is None:
            return tuple(range(self.ndim))
        if isinstance(axis, int):
            named = [self._axis(axis, what)]
        else:
            named = [self._axis(a, what) for a in axis]
        if len(set(named)) != len(named):
            raise ShapeError(f"{what}: an axis is named twice in {axis}")
        return tuple(sorted(a for a in named if a < self.ndim))

    def __bool__(self) -> bool:
        raise TypeError("the truth of a tensor is not known before it runs: use .item() or .any()")

    def __hash__(self) -> int:
        return id(self)


def full_shape(uop: UOp, shape: Sequence[sint]) -> UOp:
    """A node that may be a free scalar, as one that has the shape."""
    if uop.shape == tuple(shape):
        return uop
    return uop.reshape((1,) * len(shape)).expand(shape)


def to_dtype(dtype: DTypeLike) -> DType:
    """A data type, given as such or by name."""
    return dtype if isinstance(dtype, DType) else dtypes.from_name(dtype)


def constant(value: ConstType, dtype: DType, device: str | None) -> UOp:
    """A constant that remembers its device."""
    node = UOp.const(dtype, value)
    return node if device is None else node.replace(src=(UOp(Ops.DEVICE, arg=device),))


def is_memory(uop: UOp) -> bool:
    """Whether the node is memory (all of it, in order), so that there is nothing to compute."""
    while uop.op is Ops.RESHAPE:
        uop = uop.src[0]
    return uop.op is Ops.BUFFER


def memory_behind(uop: UOp) -> UOp | None:
    """The BUFFER that a view shows; None for what is computed."""
    while uop.op in _VIEW_OPS:
        uop = uop.src[0]
    return uop if uop.op is Ops.BUFFER else None


class StaleError(TgcoreError):
    """A tensor was not computed before memory that it reads was overwritten."""


@contextlib.contextmanager
def _grad_mode(enabled: bool) -> Iterator[None]:
    previous, settings.grad_enabled = settings.grad_enabled, enabled
    try:
        yield
    finally:
        settings.grad_enabled = previous


def no_grad() -> contextlib.AbstractContextManager[None]:
    """What is computed inside the block has no gradient.

    >>> x = Tensor([1.0], requires_grad=True)
    >>> with Tensor.no_grad():
    ...     y = x * 2
    >>> y.requires_grad
    False
    """
    return _grad_mode(False)


def enable_grad() -> contextlib.AbstractContextManager[None]:
    """What is computed inside the block has gradients, inside a `no_grad` too.

    >>> x = Tensor([1.0], requires_grad=True)
    >>> with Tensor.no_grad(), Tensor.enable_grad():
    ...     y = x * 2
    >>> y.requires_grad
    True
    """
    return _grad_mode(True)


def Variable(name: str, low: int, high: int) -> UOp:
    """An integer within bounds that is known when kernels run; `.bind(value)` gives it a value.

    >>> Variable("n", 1, 10).bind(3).unbind()[1]
    3
    """
    return UOp.variable(name, low, high)
