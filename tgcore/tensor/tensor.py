"""Tensor: the class that users have in their hands."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, ClassVar, Self

from tgcore.tensor.autograd import Autograd
from tgcore.tensor.core import DTypeLike, enable_grad, no_grad, settings, to_dtype

__all__ = ["Tensor"]


class _Training(type):
    """`Tensor.training` is a setting of the process, readable and writable on the class."""

    @property
    def training(cls) -> bool:
        """Whether dropout drops and batch norms learn."""
        return settings.training

    @training.setter
    def training(cls, value: bool) -> None:
        settings.training = bool(value)


class Tensor(Autograd, metaclass=_Training):
    """An array of numbers on a device, computed when it is needed.

    `data` may be a number, nested lists, a numpy array, bytes, a path, another library's tensor
    (through DLPack), or a Tensor.

    >>> (Tensor([1, 2]) + 1).tolist()
    [2, 3]
    """

    __slots__ = ()

    no_grad: ClassVar[Any] = staticmethod(no_grad)
    enable_grad: ClassVar[Any] = staticmethod(enable_grad)

    def __init__(
        self,
        data: Any = None,
        device: str | None = None,
        dtype: DTypeLike | None = None,
        requires_grad: bool | None = None,
    ) -> None:
        kind = None if dtype is None else to_dtype(dtype)
        super().__init__(self._from_data(data, kind, device), requires_grad)

    def __repr__(self) -> str:
        grad = "" if self.grad is None else " with a gradient"
        return f"<Tensor {self.device} {self.shape} {self.dtype.name}{grad}>"

    @staticmethod
    @contextlib.contextmanager
    def train(mode: bool = True) -> Iterator[None]:
        """Sets `Tensor.training` for a `with` block or a decorated function.

        >>> with Tensor.train():
        ...     Tensor.training
        True
        """
        previous, settings.training = settings.training, mode
        try:
            yield
        finally:
            settings.training = previous

    @classmethod
    def from_numpy(cls, array: Any, device: str | None = None) -> Self:
        """A tensor with a copy of a numpy array.

        >>> import numpy
        >>> Tensor.from_numpy(numpy.eye(2)).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
        """
        return cls(array, device)
