"""Tensors from nothing: constants, ranges, triangles, and tensors like others."""

from __future__ import annotations

import math
from typing import Any, Self

from tgcore.dtype import DType, dtypes
from tgcore.errors import DTypeError, ShapeError
from tgcore.runtime.device import Device
from tgcore.tensor.core import ConstType, DTypeLike, constant, full_shape, to_dtype
from tgcore.tensor.movement import as_shape
from tgcore.tensor.reduce import Reduce
from tgcore.uop.node import UOp, sint


def _checked_shape(what: str, shape: tuple[Any, ...]) -> tuple[sint, ...]:
    for size in shape:
        if (
            isinstance(size, bool)
            or not isinstance(size, (int, UOp))
            or (isinstance(size, int) and size < 0)
        ):
            raise ShapeError(f"{what}: {shape} is no shape: sizes are integers from 0 on")
    return shape


class Creation(Reduce):
    """Class methods that make tensors, and `*_like` methods."""

    __slots__ = ()

    @classmethod
    def full(
        cls,
        shape: int | tuple[sint, ...] | list[sint],
        fill_value: ConstType,
        *,
        dtype: DTypeLike | None = None,
        device: str | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """The same value everywhere.

        >>> Tensor.full((2, 2), 7).tolist()
        [[7, 7], [7, 7]]
        """
        sizes = _checked_shape("full", (shape,) if isinstance(shape, int) else tuple(shape))
        kind = default_dtype(fill_value) if dtype is None else to_dtype(dtype)
        node = constant(fill_value, kind, Device.canonicalize(device))
        tensor = cls._from_uop(full_shape(node, sizes))
        if requires_grad is not None:
            tensor.requires_grad = requires_grad
        return tensor

    @classmethod
    def zeros(cls, *shape: Any, dtype: DTypeLike | None = None, **options: Any) -> Self:
        """Zeros, of the default float unless told otherwise.

        >>> Tensor.zeros(2).tolist()
        [0.0, 0.0]
        """
        kind = dtypes.default_float if dtype is None else dtype
        return cls.full(as_shape(shape), 0.0, dtype=kind, **options)

    @classmethod
    def ones(cls, *shape: Any, dtype: DTypeLike | None = None, **options: Any) -> Self:
        """Ones, of the default float unless told otherwise.

        >>> Tensor.ones(2).tolist()
        [1.0, 1.0]
        """
        kind = dtypes.default_float if dtype is None else dtype
        return cls.full(as_shape(shape), 1.0, dtype=kind, **options)

    @classmethod
    def empty(
        cls,
        *shape: Any,
        dtype: DTypeLike | None = None,
        device: str | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """Memory whose values nobody has set.

        >>> Tensor.empty(2, 3).shape
        (2, 3)
        """
        sizes = _checked_shape("empty", as_shape(shape))
        kind = dtypes.default_float if dtype is None else to_dtype(dtype)
        if not all(isinstance(s, int) for s in sizes):
            raise ShapeError(f"empty: memory needs a size that is known, not {sizes}")
        size = math.prod(int(s) for s in sizes)
        memory = UOp.new_buffer(Device.canonicalize(device), size, kind)
        return cls._from_uop(memory.reshape(sizes), requires_grad)

    @classmethod
    def arange(
        cls,
        start: float,
        stop: float | None = None,
        step: float = 1,
        *,
        dtype: DTypeLike | None = None,
        device: str | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """Numbers from start (0 if only one is given) to stop, which is not among them.

        >>> Tensor.arange(1, 10, 3).tolist()
        [1, 4, 7]
        """
        if stop is None:
            start, stop = 0, start
        if step == 0:
            raise ValueError("arange: step must not be 0")
        is_float = any(isinstance(v, float) for v in (start, stop, step))
        natural = dtypes.default_float if is_float else dtypes.default_int
        kind = natural if dtype is None else to_dtype(dtype)
        count = max(math.ceil((stop - start) / step), 0)
        if not is_float and dtypes.is_int(kind) and count:
            last = start + (count - 1) * step
            if min(start, last) < dtypes.min(kind) or max(start, last) > dtypes.max(kind):
                raise DTypeError(f"arange: {start} to {last} do not fit {kind}; give a wider dtype")
        anchor = cls._from_uop(constant(0, kind, Device.canonicalize(device)), False)
        work = kind if dtypes.is_int(kind) and kind.itemsize >= 4 else dtypes.default_int
        numbers = anchor._index_range(count, work)
        if is_float or not dtypes.is_int(work):
            numbers = numbers.cast(kind)
        values = numbers if step == 1 else numbers * step
        result = (values if start == 0 else values + start).cast(kind)
        if requires_grad:
            result.requires_grad = True
        return result

    @classmethod
    def linspace(
        cls,
        start: float,
        stop: float,
        steps: int,
        *,
        dtype: DTypeLike | None = None,
        device: str | None = None,
    ) -> Self:
        """`steps` numbers from start to stop, both among them, evenly spaced.

        >>> Tensor.linspace(0, 1, 3).tolist()
        [0.0, 0.5, 1.0]
        """
        if steps < 0:
            raise ValueError(f"linspace: steps must not be negative, got {steps}")
        kind = dtypes.default_float if dtype is None else to_dtype(dtype)
        if steps <= 1:
            return cls.full((steps,), start, dtype=kind, device=device)
        position = cls.arange(steps, device=device).cast(dtypes.default_float)
        return (start + position * ((stop - start) / (steps - 1))).cast(kind)

    @classmethod
    def eye(
        cls,
        n: int,
        m: int | None = None,
        *,
        dtype: DTypeLike | None = None,
        device: str | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """Ones on the diagonal, zeros elsewhere.

        >>> Tensor.eye(2).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
        """
        columns = n if m is None else m
        if n < 0 or columns < 0:
            raise ShapeError(f"eye: sizes must not be negative: {n}, {columns}")
        kind = dtypes.default_float if dtype is None else to_dtype(dtype)
        rows = cls.arange(n, device=device).unsqueeze(1)
        result = (rows == cls.arange(columns, device=device)).cast(kind)
        if requires_grad:
            result.requires_grad = True
        return result

    # *** like others ***

    def full_like(
        self,
        fill_value: ConstType,
        *,
        dtype: DTypeLike | None = None,
        device: str | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """The same value everywhere, in the shape, type and place of self.

        >>> Tensor([1, 2]).full_like(5).tolist()
        [5, 5]
        """
        return type(self).full(
            self.shape,
            fill_value,
            dtype=self.dtype if dtype is None else dtype,
            device=self.device if device is None else device,
            requires_grad=requires_grad,
        )

    def zeros_like(self, **options: Any) -> Self:
        """Zeros in the shape, type and place of self.

        >>> Tensor([3, 4]).zeros_like().tolist()
        [0, 0]
        """
        return self.full_like(0, **options)

    def ones_like(self, **options: Any) -> Self:
        """Ones in the shape, type and place of self.

        >>> Tensor([3, 4]).ones_like().tolist()
        [1, 1]
        """
        return self.full_like(1, **options)

    def empty_like(self, *, dtype: DTypeLike | None = None, device: str | None = None) -> Self:
        """Memory in the shape, type and place of self, whose values nobody has set.

        >>> Tensor.zeros(2, 3).empty_like().shape
        (2, 3)
        """
        return type(self).empty(
            self.shape,
            dtype=self.dtype if dtype is None else dtype,
            device=self.device if device is None else device,
        )

    # *** triangles and diagonals ***

    @classmethod
    def tri(
        cls,
        rows: int,
        columns: int | None = None,
        diagonal: int = 0,
        *,
        dtype: DTypeLike | None = None,
        device: str | None = None,
    ) -> Self:
        """Ones on and below a diagonal.

        >>> Tensor.tri(2).tolist()
        [[1.0, 0.0], [1.0, 1.0]]
        """
        width = rows if columns is None else columns
        kind = dtypes.default_float if dtype is None else to_dtype(dtype)
        return cls._below(rows, width, diagonal, device).cast(kind)

    @classmethod
    def _below(cls, rows: sint, columns: sint, diagonal: int, device: str | None) -> Self:
        anchor = cls._from_uop(constant(0, dtypes.int32, device))
        return anchor._index_range(columns) <= anchor._index_range(rows).unsqueeze(1) + diagonal

    def tril(self, diagonal: int = 0) -> Self:
        """The part on and below a diagonal of the last two axes, zeros elsewhere.

        >>> Tensor([[1, 2], [3, 4]]).tril().tolist()
        [[1, 0], [3, 4]]
        """
        rows, columns = self._matrix_sizes("tril")
        return self._below(rows, columns, diagonal, self.uop.device).where(self, self._zero())

    def triu(self, diagonal: int = 0) -> Self:
        """The part on and above a diagonal of the last two axes, zeros elsewhere.

        >>> Tensor([[1, 2], [3, 4]]).triu().tolist()
        [[1, 2], [0, 4]]
        """
        rows, columns = self._matrix_sizes("triu")
        return self._below(rows, columns, diagonal - 1, self.uop.device).where(self._zero(), self)

    def _matrix_sizes(self, what: str) -> tuple[int, int]:
        if self.ndim < 2:
            raise ShapeError(f"{what} needs two axes at least, not shape {self.shape}")
        return int(self.shape[-2]), int(self.shape[-1])

    def diag(self) -> Self:
        """A matrix with self on its diagonal, or the diagonal of a matrix.

        >>> Tensor([1, 2]).diag().tolist()
        [[1, 0], [0, 2]]
        """
        if self.ndim == 2:
            return self.diagonal()
        if self.ndim != 1:
            raise ShapeError(f"diag needs one or two axes, not shape {self.shape}")
        n = int(self.shape[0])
        eye = type(self).eye(n, dtype=dtypes.bool, device=self.uop.device)
        return eye.where(self.unsqueeze(1), self._zero())

    def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
        """The diagonal of two axes, as the last one.

        >>> Tensor([[1, 2], [3, 4]]).diagonal().tolist()
        [1, 4]
        """
        a, b = self._axis(dim1, "diagonal"), self._axis(dim2, "diagonal")
        if a == b:
            raise ShapeError(f"diagonal: needs two different axes, not {dim1} and {dim2}")
        x = self.movedim((a, b), (-2, -1))
        rows, columns = int(x.shape[-2]), int(x.shape[-1])
        row, column = max(-offset, 0), max(offset, 0)
        n = max(min(rows - row, columns - column), 0)
        lead = (None,) * (x.ndim - 2)
        if n == 0:
            return x.reshape((*x.shape[:-2], -1))._slice(x.ndim - 2, 0, 0)
        x = x.shrink((*lead, (row, row + n), (column, column + n)))
        # with one more column, rows of n + 1 begin with the diagonal's elements
        flat = x.flatten(-2)._resized(x.ndim - 2, n * (n + 1))
        return flat.reshape((*x.shape[:-2], n, n + 1))._slice(x.ndim - 1, 0, 1).squeeze(-1)

    def meshgrid(self, *args: Self, indexing: str = "ij") -> tuple[Self, ...]:
        """Grids whose coordinates along each axis are the tensors' elements.

        >>> [t.tolist() for t in Tensor([1, 2]).meshgrid(Tensor([3]))]
        [[[1], [2]], [[3], [3]]]
        """
        if indexing not in ("ij", "xy"):
            raise ValueError(f"meshgrid: indexing must be 'ij' or 'xy', not {indexing!r}")
        axes = (self, *args)
        order = list(range(len(axes)))
        if indexing == "xy" and len(axes) > 1:
            order[0], order[1] = 1, 0
        grids = []
        shape = [0] * len(axes)
        for tensor, place in zip(axes, order):
            shape[place] = int(tensor.numel())
        for tensor, place in zip(axes, order):
            spread = [1] * len(axes)
            spread[place] = shape[place]
            grids.append(tensor.reshape(spread).expand(shape))
        return tuple(grids)


def default_dtype(value: object) -> DType:
    """The type of a Python value when nothing else is said."""
    if isinstance(value, bool):
        return dtypes.bool
    return dtypes.default_float if isinstance(value, float) else dtypes.default_int
