"""Tensors in files of the GGUF format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

The `gguf` package reads the layout; quantised tensors are decoded by Tensor ops, on their device,
when they are used.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, Final

from tgcore.dtype import DType, dtypes
from tgcore.helpers import prod
from tgcore.nn.errors import StateError
from tgcore.nn.files import MappedFile, Source, path_of
from tgcore.nn.quantization import FORMATS
from tgcore.tensor import Tensor

try:
    from gguf import GGUFReader
except ImportError as error:
    raise ImportError("GGUF files need the gguf package: pip install 'tgcore[nn]'") from error

_PLAIN: Final[dict[int, DType]] = {
    0: dtypes.float32,
    1: dtypes.float16,
    24: dtypes.int8,
    25: dtypes.int16,
    26: dtypes.int32,
    27: dtypes.int64,
    28: dtypes.float64,
    30: dtypes.bfloat16,
}


def gguf_load(fn: Source, device: str | None = None) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """(metadata by key, tensors by name) of a file, given by its path or as a tensor on it.

    Tensors are copied to the device, and decoded to float32 if they are quantised, when they are
    used. A StateError says what is wrong with a file.
    """
    path = path_of(fn)
    reader = _opened(path)
    file = MappedFile(path)
    tensors: dict[str, Tensor] = {}
    for entry in reader.tensors:
        # the package has sizes of the innermost axis first
        shape = tuple(int(s) for s in reversed(entry.shape))
        kind = int(entry.tensor_type)
        tensors[entry.name] = _tensor(file, entry.name, kind, shape, int(entry.data_offset), device)
    return _metadata(path, reader), tensors


def _opened(path: Path) -> Any:
    try:
        return GGUFReader(path, "r")
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError, struct.error,
            OSError, AssertionError, UnicodeError) as error:  # fmt: skip
        raise StateError(f"{path} is not a whole GGUF file: {error}") from None


def _metadata(path: Path, reader: Any) -> dict[str, Any]:
    try:
        return {
            key: field.contents()
            for key, field in reader.fields.items()
            if not key.startswith("GGUF.")
        }
    except (ValueError, IndexError, KeyError, UnicodeError) as error:
        raise StateError(f"{path}: the metadata cannot be read: {error}") from None


def _tensor(
    file: MappedFile, name: str, kind: int, shape: tuple[int, ...], offset: int, device: str | None
) -> Tensor:
    if kind in _PLAIN:
        return file.tensor(_PLAIN[kind], shape, offset, device, name)
    if kind not in FORMATS:
        raise StateError(f"{file.path}: {name} has the quantisation {kind}, which tgcore has not")
    form = FORMATS[kind]
    if not shape or shape[-1] % form.elements:
        raise StateError(
            f"{file.path}: the last axis of {name} {shape} is no whole number of blocks of "
            f"{form.elements}"
        )
    count = prod(shape) // form.elements
    blocks = file.tensor(dtypes.uint8, (count, form.bytes), offset, device, name)
    return (
        form.decode(blocks).reshape(*shape) if count else blocks.cast(dtypes.float32).reshape(shape)
    )
