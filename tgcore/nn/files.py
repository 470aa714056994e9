"""Tensors that lie in files: mapped in memory, and copied to a device when they are used."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tgcore.dtype import DType, dtypes
from tgcore.helpers import prod
from tgcore.nn.errors import StateError
from tgcore.runtime.buffer import Buffer
from tgcore.runtime.device import Device
from tgcore.runtime.execute import buffers
from tgcore.tensor import Tensor
from tgcore.uop.node import UOp

Source = str | os.PathLike[str] | Tensor
_DISK = "DISK:"


def path_of(source: Source) -> Path:
    """The path of a file, given as such or as a tensor on it (`Tensor(pathlib.Path(...))`)."""
    if isinstance(source, Tensor):
        if not source.device.startswith(_DISK):
            raise StateError(f"a tensor on {source.device} is no file: give its path")
        source = source.device.removeprefix(_DISK)
    path = Path(source)
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    if not path.is_file():
        raise StateError(f"{path} is not a file")
    return path


class MappedFile:
    """A file whose parts are given out as tensors. Nothing is read before they are used."""

    def __init__(self, path: Path) -> None:
        self.path, self.size = path, path.stat().st_size
        self.buffer = Buffer(f"{_DISK}{path.absolute()}", self.size, dtypes.uint8)

    def tensor(
        self, dtype: DType, shape: Sequence[int], offset: int, device: str | None, name: str
    ) -> Tensor:
        """The elements from a byte offset on, as a tensor of the device (which gets its copy when
        the tensor is first computed)."""
        count = prod(shape)
        if any(s < 0 for s in shape) or not 0 <= offset <= self.size - count * dtype.itemsize:
            raise StateError(
                f"{self.path}: {name} of shape {tuple(shape)} {dtype} at byte {offset} is not "
                f"within the {self.size} bytes of the file"
            )
        place = Device.canonicalize(device)
        if count == 0:
            return Tensor.empty(*shape, dtype=dtype, device=place, requires_grad=False)
        node = UOp.new_buffer(self.buffer.device, count, dtype)
        buffers[node] = self.buffer.view(count, dtype, offset)
        return Tensor._from_uop(node, False).to(place).reshape(*shape)
