"""Buffers: a device's memory with a type, allocated when first needed and freed with its owner."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tgcore.dtype import DType, dtypes
from tgcore.errors import DeviceError, DTypeError
from tgcore.plugin import observers
from tgcore.runtime.counters import GlobalCounters
from tgcore.runtime.device import Device

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tgcore.runtime.allocator import Allocator

_numbers: Final = itertools.count()
_lock: Final = threading.RLock()


class Buffer:
    """`size` elements of a type on a device.

    Memory is allocated on first use. A view (`base` given) shares its base's memory from a byte
    offset on, and keeps the base alive. When the last reference goes, the memory goes back to
    the allocator.
    """

    __slots__ = ("__weakref__", "_given_by", "_memory", "base", "device", "dtype", "is_lent",
                 "is_scratch", "number", "offset", "owner", "size")  # fmt: skip

    def __init__(
        self,
        device: str,
        size: int,
        dtype: DType,
        *,
        base: Buffer | None = None,
        offset: int = 0,
        initial: bytes | bytearray | memoryview | None = None,
    ) -> None:
        if base is not None and (base.base is not None or base.device != device):
            raise ValueError("a view's base must be a whole buffer on the same device")
        if base is not None and not 0 <= offset <= offset + size * dtype.itemsize <= base.nbytes:
            raise ValueError(
                f"a view of {size * dtype.itemsize} bytes at {offset} is not inside {base}"
            )
        self.device: str = device
        self.base: Buffer | None = base
        self.size, self.dtype, self.offset = size, dtype, offset
        self.number = next(_numbers)
        self.owner: object = None  # who owns memory that is not ours to free
        self.is_lent = False  # whether a captured function will write its next results to it
        self.is_scratch = False  # whether nobody reads its contents after they were used
        self._memory: Any = None
        self._given_by: Allocator[Any] | None = None  # its device may have been opened anew since
        if initial is not None:
            self.copyin(memoryview(initial))

    @staticmethod
    def external(device: str, address: int, size: int, dtype: DType, owner: object) -> Buffer:
        """A buffer over memory that `owner` owns (DLPack, a user's pointer), which it keeps alive.

        DeviceError if the device cannot use memory that it did not allocate.
        """
        buffer = Buffer(device, size, dtype)
        buffer._given_by = Device[device].allocator
        memory = buffer._given_by.external(address, buffer.nbytes, owner)
        if memory is None:
            why = "its allocator takes no external pointers"
            raise DeviceError(f"{device} cannot use memory of others", "", why, "copy it instead")
        buffer._memory, buffer.owner = memory, owner
        return buffer

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return self.size * self.dtype.itemsize

    @property
    def allocator(self) -> Allocator[Any]:
        """The allocator that gave the buffer its memory, or will give it."""
        given_by = self._given_by
        return given_by if given_by is not None else Device[self.device].allocator

    @property
    def is_allocated(self) -> bool:
        """Whether the buffer (or its base) has memory."""
        return (self if self.base is None else self.base)._memory is not None

    @property
    def memory(self) -> Any:
        """The allocator's own object for the memory; allocates."""
        return self._memory if self._memory is not None else self.ensure_allocated()._memory

    def ensure_allocated(self) -> Buffer:
        """Allocate if that has not happened yet; returns the buffer itself."""
        if self._memory is None:
            with _lock:
                if self._memory is None:
                    self._allocate()
        return self

    def view(self, size: int, dtype: DType, offset: int) -> Buffer:
        """A part of the buffer as another type, `offset` bytes from its start."""
        base = self if self.base is None else self.base
        return Buffer(self.device, size, dtype, base=base, offset=self.offset + offset)

    def copyin(self, source: memoryview) -> Buffer:
        """Fill the buffer from the host's memory."""
        source = _as_bytes(source)
        if source.nbytes != self.nbytes:
            raise ValueError(f"{source.nbytes} bytes do not fill {self}")
        memory = self.memory
        if source.nbytes:
            self.allocator.copyin(memory, source)
        return self

    def copyout(self, dest: memoryview) -> memoryview:
        """Copy the buffer to the host's memory; waits for the kernels that write it."""
        flat = _as_bytes(dest)
        if flat.nbytes != self.nbytes:
            raise ValueError(f"{flat.nbytes} bytes do not hold {self}")
        memory = self.memory
        if flat.nbytes:
            self.allocator.copyout(flat, memory)
        return dest

    def copy_from(self, source: Buffer) -> Buffer:
        """Fill the buffer from another, on any device, by the shortest way there is."""
        if source.nbytes != self.nbytes:
            raise ValueError(f"{source} does not fill {self}")
        if not self.nbytes:
            return self.ensure_allocated()
        to, origin = self.memory, source.memory
        if self.allocator.transfer(to, origin, self.nbytes, Device[source.device]):
            return self
        if (seen := source.as_memoryview()) is not None:
            self.allocator.copyin(to, seen)
        elif (seen := self.as_memoryview()) is not None:
            source.allocator.copyout(seen, origin)
        else:
            bounce = memoryview(bytearray(self.nbytes))
            source.allocator.copyout(bounce, origin)
            self.allocator.copyin(to, bounce)
        return self

    def as_memoryview(self) -> memoryview | None:
        """The memory itself as bytes, after all that was queued; None if the host can't see it."""
        view = self.allocator.as_memoryview(self.memory)
        if view is not None:
            Device[self.device].synchronize()
        return view

    def numpy(self, *, copy: bool = True) -> NDArray[Any]:
        """The values as a flat array; without `copy`, the device's memory itself if possible."""
        kind = numpy_dtype(self.dtype)
        if not copy and (view := self.as_memoryview()) is not None:
            return np.asarray(_Exposed(self, view)).view(kind)
        values = np.empty(self.size, dtype=kind)
        self.copyout(values.view(np.uint8).data)
        return values

    def __reduce__(self) -> tuple[Any, ...]:
        """A view keeps its base, any other buffer its contents (if anybody may want them)."""
        if self.base is not None:
            return (_view_of, (self.base, self.size, self.dtype, self.offset))
        content = None
        if self._memory is not None and not self.is_scratch:
            content = bytearray(self.nbytes)
            self.copyout(memoryview(content))
        return (_with_content, (self.device, self.size, self.dtype, content, self.is_scratch))

    def _allocate(self) -> None:
        if self.base is not None:
            base = self.base.memory
            self._given_by = self.base.allocator
            self._memory = self._given_by.offset(base, self.nbytes, self.offset)
            return
        nbytes = self.nbytes
        self._given_by = Device[self.device].allocator
        self._memory = self._given_by.alloc(nbytes)
        if self._given_by.is_memory:
            GlobalCounters.mem_used += nbytes
            GlobalCounters.peak_mem = max(GlobalCounters.peak_mem, GlobalCounters.mem_used)
        if observers.buffer_allocated:
            observers.buffer_allocated(
                device=self.device, nbytes=nbytes, dtype=self.dtype, number=self.number
            )

    def deallocate(self) -> None:
        """Give the memory back now; the next use allocates anew."""
        memory, self._memory = self._memory, None
        given_by, self._given_by = self._given_by, None
        if memory is None or given_by is None or self.base is not None or self.owner is not None:
            return
        nbytes = self.nbytes
        if given_by.is_memory:
            GlobalCounters.mem_used -= nbytes
        given_by.free(memory, nbytes)
        if observers.buffer_freed:
            observers.buffer_freed(device=self.device, nbytes=nbytes, number=self.number)

    def __del__(self, finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # at the end of the process devices are closed and modules empty, hence the default value
        if getattr(self, "_memory", None) is not None and not finalizing():
            self.deallocate()

    def __repr__(self) -> str:
        where = "" if self.base is None else f" at byte {self.offset} of buffer {self.base.number}"
        return f"<buffer {self.number} {self.device} {self.size} x {self.dtype}{where}>"


class _Exposed:
    """A buffer's memory for numpy, whose array then keeps the buffer alive."""

    def __init__(self, buffer: Buffer, view: memoryview) -> None:
        self.buffer = buffer
        self.__array_interface__ = np.frombuffer(view, dtype=np.uint8).__array_interface__


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """The numpy type of a data type; those numpy lacks come from the package ml_dtypes."""
    if dtype.fmt is not None:
        return np.dtype(dtype.fmt)
    names = {
        dtypes.bfloat16: "bfloat16",
        dtypes.fp8e4m3: "float8_e4m3fn",
        dtypes.fp8e5m2: "float8_e5m2",
    }
    if dtype not in names:
        raise DTypeError(f"numpy has no type for {dtype}")
    try:
        import ml_dtypes  # an extra: only those who use these types need it
    except ImportError:
        raise DTypeError(
            f"numpy has no {dtype.name}: pip install ml-dtypes, or cast first"
        ) from None
    kind: np.dtype[Any] = np.dtype(getattr(ml_dtypes, names[dtype]))
    return kind


def _as_bytes(view: memoryview) -> memoryview:
    if not view.contiguous:
        raise ValueError("the host's memory must be contiguous")
    if view.nbytes == 0:
        return memoryview(b"")
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


def _view_of(base: Buffer, size: int, dtype: DType, offset: int) -> Buffer:
    return base.view(size, dtype, offset)


def _with_content(
    device: str, size: int, dtype: DType, content: bytearray | None, is_scratch: bool
) -> Buffer:
    buffer = Buffer(device, size, dtype, initial=content)
    buffer.is_scratch = is_scratch
    return buffer
