"""Running tensors and moving their values: devices, numpy, Python lists, DLPack, files, memory."""

from __future__ import annotations

import functools
import os
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tgcore.dtype import DType, dtypes
from tgcore.errors import DeviceError, DTypeError, ShapeError
from tgcore.runtime import execute
from tgcore.runtime.buffer import Buffer, numpy_dtype
from tgcore.runtime.device import Device
from tgcore.tensor import realize
from tgcore.tensor.core import DTypeLike, TensorCore, constant, full_shape, is_memory, to_dtype
from tgcore.tensor.creation import Creation, default_dtype
from tgcore.uop.node import UOp, infer
from tgcore.uop.ops import Ops

if TYPE_CHECKING:
    from numpy.typing import NDArray

# types that numpy has none of its own for
_WIDENED = (dtypes.bfloat16, *dtypes.fp8s)


class Interop(Creation):
    """realize, to, numpy, item, tolist, DLPack."""

    __slots__ = ()

    # *** running ***

    def realize(self, *others: TensorCore) -> Self:
        """Compute this tensor (and others, in the same schedule) and keep the values in memory.

        >>> (Tensor([1]) + 1).realize().tolist()
        [2]
        """
        realize.realize([self, *others])
        return self

    def contiguous(self) -> Self:
        """The same values; when they are computed, they are stored in order.

        >>> Tensor([1, 2]).flip(0).contiguous().tolist()
        [2, 1]
        """
        return self._derived(self._full.contiguous())

    def contiguous_backward(self) -> Self:
        """The same values; the gradient that comes back through here is stored.

        >>> Tensor([1.0]).contiguous_backward().tolist()
        [1.0]
        """
        return self._derived(UOp(Ops.CONTIGUOUS_BACKWARD, self.dtype, (self._full,)))

    def clone(self) -> Self:
        """A copy in memory of its own.

        >>> Tensor([1]).clone().tolist()
        [1]
        """
        memory = UOp.new_buffer(self.device, int(self.numel()), self.dtype).reshape(self.shape)
        return self._derived(memory.assign(self._full))

    def to(self, device: str | None) -> Self:
        """The same values on another device (None: the default device).

        >>> Tensor([1]).to(None).tolist()
        [1]

        >>> Tensor([1]).to('CPU').device
        'CPU'
        """
        target = Device.canonicalize(device)
        if target == self.device:
            return self
        source = self._full
        if not Device[self.device].runs_programs:
            source = _as_memory(source)
        result = self._derived(source.copy_to(target))
        if self._requires_grad is not None:
            result._requires_grad = self._requires_grad
        return result

    def to_(self, device: str | None) -> Self:
        """Move the tensor (and its gradient) to another device; returns itself.

        >>> Tensor([1]).to_('CPU').device
        'CPU'
        """
        moved = self.to(device)
        if self.grad is not None and moved is not self:
            self.grad = self.grad.to(device)
        self._rebind(moved.uop)
        return self

    # *** pickles ***

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle holds the values; they come back on the same device."""
        content, shape = bytearray(), tuple(self.shape)
        if 0 not in shape:
            buffer, shape = self._memory()
            content = bytearray(buffer.nbytes)
            buffer.copyout(memoryview(content))
        facts = (self.dtype, shape, self.device, self._requires_grad)
        return (_unpickled, (type(self), content, *facts))

    # *** out ***

    def _memory(self) -> tuple[Buffer, tuple[int, ...]]:
        """The realised buffer, and the shape with variables at their values."""
        x = self if is_memory(self.uop) or self._stale else self._stored()
        realize.realize([x])
        node = x.uop
        while node.op is Ops.RESHAPE:
            node = node.src[0]
        return execute.buffer_of(node), self._known_shape()

    def _stored(self) -> Self:
        """What to realise for reading: views are copied, so that self stays a view."""
        if 0 not in self.shape and self.uop.base.op in (Ops.BUFFER, Ops.CONST):
            return type(self)._from_uop(self._full.contiguous(), False)
        return self

    def _known_shape(self) -> tuple[int, ...]:
        values: dict[str, int] = {}
        sizes = []
        for size in self.shape:
            if isinstance(size, UOp):
                for node in size.toposort():
                    if node.op is Ops.BIND:
                        variable, value = node.unbind()
                        values[variable.arg[0]] = value
                        size = size.substitute({node: variable})
            sizes.append(infer(size, values))
        return tuple(sizes)

    def data(self) -> memoryview:
        """The values as a memoryview; of a tensor of one axis or none, or more.

        >>> Tensor([1, 2]).data().nbytes
        8
        """
        return self.numpy().data

    def numpy(self) -> NDArray[Any]:
        """The values as an array of their own; bfloat16 and fp8 come as float32.

        >>> Tensor([1, 2]).numpy()
        array([1, 2], dtype=int32)
        """
        if self.dtype in _WIDENED:
            return self.cast(dtypes.float32).numpy()
        buffer, shape = self._memory()
        count = int(np.prod(shape, dtype=np.int64))
        return buffer.numpy()[:count].reshape(shape)

    def item(self) -> Any:
        """The value of a tensor that has one element only.

        >>> Tensor([3]).item()
        3
        """
        if self.numel() != 1:
            raise ShapeError(f"item: a tensor of shape {self.shape} has not one element only")
        return self.numpy().item()

    def tolist(self) -> Any:
        """The values as (nested) lists.

        >>> Tensor([[1, 2]]).tolist()
        [[1, 2]]
        """
        return self.numpy().tolist()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if not dtypes.is_int(self.dtype):
            raise TypeError(f"only integers can be an index, not a tensor of {self.dtype}")
        return int(self.item())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    # *** DLPack ***

    def __dlpack__(self, **options: Any) -> Any:
        """The memory itself, for other libraries (of devices whose memory the host sees)."""
        return self._shared_array().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """(kind, number) of the device: the host's memory."""
        return (1, 0)

    def _shared_array(self) -> NDArray[Any]:
        if self.dtype in _WIDENED:
            raise DTypeError(f"DLPack through numpy has no {self.dtype}: cast to float32 first")
        if self.requires_grad:
            raise DTypeError("a tensor that needs a gradient is not shared: detach() first")
        if not is_memory(self.uop):
            # the memory must outlive the reading
            self._rebind(self._full.contiguous())
            self.realize()
        buffer, shape = self._memory()
        if buffer.is_lent:
            return self.clone()._shared_array()
        if buffer.as_memoryview() is None:
            raise DeviceError(
                f"the host cannot see the memory of {self.device}", "", "", "use .to('CPU') first"
            )
        return buffer.numpy(copy=False).reshape(shape)

    @classmethod
    def from_dlpack(cls, other: Any, device: str | None = None) -> Self:
        """A tensor over the memory of another library's array, on a device that can use it; a copy
        if it cannot, or if the array is not contiguous.

        >>> Tensor.from_dlpack(Tensor([1, 2])).tolist()
        [1, 2]
        """
        array = np.from_dlpack(other)
        kind = _dtype_of(array.dtype)
        if not array.flags.c_contiguous or not array.size:
            return cls._from_array(array, None, device)
        try:
            buffer = Buffer.external(
                Device.canonicalize(device), array.ctypes.data, array.size, kind, (array, other)
            )
        except DeviceError:
            return cls._from_array(array, None, device)
        return cls._of_buffer(buffer, array.shape)

    @classmethod
    def from_blob(
        cls,
        address: int,
        shape: Sequence[int],
        *,
        dtype: DTypeLike | None = None,
        device: str | None = None,
        owner: object = None,
    ) -> Self:
        """A tensor over memory of others, which must live as long as the tensor does (`owner` is
        kept alive for that).

        >>> import numpy
        >>> owner = numpy.arange(3, dtype="int32")
        >>> Tensor.from_blob(owner.ctypes.data, (3,), dtype="int32", owner=owner).tolist()
        [0, 1, 2]
        """
        kind = dtypes.default_float if dtype is None else to_dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64))
        place = Device.canonicalize(device)
        return cls._of_buffer(Buffer.external(place, address, size, kind, owner), tuple(shape))

    @classmethod
    def _of_buffer(cls, buffer: Buffer, shape: tuple[int, ...]) -> Self:
        """A tensor over a buffer."""
        node = UOp.new_buffer(buffer.device, buffer.size, buffer.dtype)
        execute.buffers[node] = buffer
        return cls._from_uop(node.reshape(shape))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """A file's bytes, mapped in memory; .to(device) brings them to a device.

        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     _ = file.write(b"abc")
        ...     file.flush()
        ...     Tensor.from_file(file.name).tolist()
        [97, 98, 99]
        """
        place = pathlib.Path(path)
        size = place.stat().st_size
        node = UOp.new_buffer(f"DISK:{place.absolute()}", size, dtypes.uint8)
        return cls._from_uop(node)

    # *** in ***

    @classmethod
    def _from_data(cls, data: Any, dtype: DType | None, device: str | None) -> UOp:
        """A node for what a user gave to Tensor(...)."""
        if isinstance(data, TensorCore):
            same: UOp = data.uop if dtype is None else data.uop.cast(dtype)
            return same if device is None else cls._from_uop(same).to(device).uop
        place = Device.canonicalize(device)
        if isinstance(data, UOp):
            node = data.cast(dtypes.default_int) if data.dtype is dtypes.index else data
            return node if dtype is None else node.cast(dtype)
        if isinstance(data, (bool, int, float)) and not isinstance(data, np.generic):
            return constant(data, default_dtype(data) if dtype is None else dtype, place)
        if data is None:
            return full_shape(constant(0, dtype or dtypes.default_float, place), (0,))
        if isinstance(data, (bytes, bytearray, memoryview)):
            return cls._from_array(np.frombuffer(data, np.uint8), dtype, place).uop
        if isinstance(data, os.PathLike):
            file = cls.from_file(data)
            return (file if device is None else file.to(device)).uop
        if isinstance(data, (list, tuple)):
            return cls._from_list(data, dtype, place)
        if isinstance(data, (np.ndarray, np.generic)):
            return cls._from_array(np.asarray(data), dtype, place).uop
        if hasattr(data, "__dlpack__"):
            return cls._from_array(np.from_dlpack(data), dtype, place).uop
        raise TypeError(f"a Tensor cannot be made of a {type(data).__name__}")

    @classmethod
    def _from_list(cls, data: Sequence[Any], dtype: DType | None, device: str) -> UOp:
        if any(isinstance(x, TensorCore) for x in data):
            first, *rest = (cls._from_uop(cls._from_data(x, dtype, None)) for x in data)
            return first.stack(*rest).uop
        try:
            array = np.array(data)
        except ValueError:
            raise ShapeError(f"nested lists must be of equal lengths: {data!r:.80}") from None
        if array.dtype.kind not in "biuf":
            if array.size:
                raise TypeError(f"a list of {array.dtype} is no tensor: give numbers or bools")
            array = array.astype(np.float32)
        natural = {"b": dtypes.bool, "i": dtypes.default_int, "u": dtypes.uint64}
        kind = natural.get(array.dtype.kind, dtypes.default_float)
        return cls._from_array(array, kind if dtype is None else dtype, device).uop

    @classmethod
    def _from_array(cls, array: NDArray[Any], dtype: DType | None, device: str | None) -> Self:
        """A tensor with a copy of an array, converted to a type on the host."""
        kind = dtype or _dtype_of(array.dtype)
        if kind in _WIDENED and array.dtype != numpy_dtype(kind):
            array = array.astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            values = np.ascontiguousarray(array.astype(numpy_dtype(kind), copy=False))
        values = values.reshape(array.shape)
        place = Device.canonicalize(device)
        buffer = Buffer(place, values.size, kind)
        buffer.copyin(values.reshape(-1).view(np.uint8).data)
        return cls._of_buffer(buffer, values.shape)

    @classmethod
    def _tensor_from(cls, values: NDArray[Any]) -> Self:
        """A tensor with an array's values, on the default device."""
        if values.dtype.kind in "iu" and values.dtype.itemsize == 8:
            fits = values.size == 0 or abs(values).max() < 1 << 31
            values = values.astype(np.int32) if fits else values
        if values.dtype == np.float64:
            values = values.astype(np.float32)
        return cls._from_array(values, None, None)


def _as_memory(view: UOp) -> UOp:
    """A view that is a run of its memory, as memory: for devices that compute nothing."""
    run = _run_of(view)
    if run is None:
        raise DeviceError(
            f"{view.device} computes nothing, so only a run of its elements can be taken from it",
            "",
            "the view leaves out or reorders some",
            "take all of it to a device with .to() first, then the view",
        )
    memory, first, count = run
    if count == memory.arg:
        return view
    part = UOp(Ops.BUFFER_VIEW, memory.dtype, (memory,), (count, first * memory.dtype.itemsize))
    return part.reshape(view.known_shape)


def _run_of(view: UOp) -> tuple[UOp, int, int] | None:
    """(memory, first element, number of elements) of a view that is one run."""
    count, first = int(view.size), 0
    while view.op in (Ops.RESHAPE, Ops.SHRINK):
        inner = view.src[0]
        if view.op is Ops.SHRINK:
            sizes = [e - b for b, e in view.marg]
            cut = next((a for a, n in enumerate(sizes) if n != 1), len(sizes))
            if sizes[cut + 1 :] != list(inner.known_shape[cut + 1 :]):
                return None
            stride = 1
            for (begin, _), size in zip(view.marg[::-1], inner.known_shape[::-1]):
                first, stride = first + begin * stride, stride * size
        view = inner
    return (view, first, count) if view.op is Ops.BUFFER else None


@functools.cache
def _dtype_of(kind: np.dtype[Any]) -> DType:
    """The type of an array's elements."""
    for dtype in dtypes.all:
        if dtype.fmt is not None and np.dtype(dtype.fmt) == kind.newbyteorder("="):
            return dtype
    names = {"bfloat16": dtypes.bfloat16, "float8_e4m3fn": dtypes.fp8e4m3,
             "float8_e5m2": dtypes.fp8e5m2}  # fmt: skip
    if kind.name in names:
        return names[kind.name]
    raise DTypeError(f"there is no data type for numpy's {kind}: convert the array first")


def _unpickled(
    kind: type[Interop],
    content: bytearray,
    dtype: DType,
    shape: tuple[int, ...],
    device: str,
    requires_grad: bool | None,
) -> Interop:
    node = UOp.new_buffer(device, len(content) // dtype.itemsize, dtype)
    if content:
        execute.buffer_of(node).copyin(memoryview(content))
    return kind._from_uop(node.reshape(shape), requires_grad)
