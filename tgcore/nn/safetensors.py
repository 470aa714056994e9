"""Tensors in files of the safetensors format: https://github.com/huggingface/safetensors

A file is the header's length (8 bytes, little endian), the header (JSON: for each name the type,
the shape and the place of its bytes), and the bytes. What is read was checked by the `safetensors`
package first: lengths, shapes, places that overlap or leave holes.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

from tgcore.dtype import DType, dtypes
from tgcore.nn.errors import StateError
from tgcore.nn.files import MappedFile, Source, path_of
from tgcore.runtime.execute import buffer_of
from tgcore.tensor import Tensor
from tgcore.tensor.core import memory_behind

try:
    from safetensors import SafetensorError, safe_open
except ImportError as error:
    raise ImportError(
        "safetensors files need the safetensors package: pip install 'tgcore[nn]'"
    ) from error

_NAMES: Final = {
    dtypes.bool: "BOOL",
    dtypes.int8: "I8",
    dtypes.uint8: "U8",
    dtypes.int16: "I16",
    dtypes.uint16: "U16",
    dtypes.int32: "I32",
    dtypes.uint32: "U32",
    dtypes.int64: "I64",
    dtypes.uint64: "U64",
    dtypes.fp8e4m3: "F8_E4M3",
    dtypes.fp8e5m2: "F8_E5M2",
    dtypes.float16: "F16",
    dtypes.bfloat16: "BF16",
    dtypes.float32: "F32",
    dtypes.float64: "F64",
}
_DTYPES: Final = {name: dtype for dtype, name in _NAMES.items()}
_METADATA: Final = "__metadata__"


# *** writing ***


def safe_save(
    tensors: Mapping[str, Tensor],
    fn: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write tensors to a file, with texts beside them if given.

    The file appears whole or not at all: a crash or a full disk leaves what was there before.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     safe_save({"a": Tensor([1.0, 2.0])}, f"{folder}/a.safetensors")
    ...     safe_load(f"{folder}/a.safetensors")["a"].tolist()
    [1.0, 2.0]
    """
    _check_little_endian()
    for name, tensor in tensors.items():
        if not isinstance(name, str) or name == _METADATA or not isinstance(tensor, Tensor):
            raise StateError(
                f"names are texts other than {_METADATA} and values Tensors, not {name!r}: "
                f"{type(tensor).__name__}"
            )
    # wide types first, so that all data is aligned
    names = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    header = _header({name: tensors[name] for name in names}, metadata)
    in_memory = {name: tensors[name].detach().contiguous() for name in names}
    if in_memory:
        Tensor.realize(*in_memory.values())
    with _atomically(Path(fn)) as file:
        file.write(len(header).to_bytes(8, "little"))
        file.write(header)
        for tensor in in_memory.values():
            file.write(_bytes_of(tensor))


def _check_little_endian() -> None:
    if sys.byteorder != "little":
        raise StateError("safetensors files hold little-endian numbers, this machine has others")


def _header(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None) -> bytes:
    header: dict[str, Any] = {}
    if metadata:
        if not all(isinstance(t, str) for pair in metadata.items() for t in pair):
            raise StateError("metadata maps texts to texts")
        header[_METADATA] = dict(metadata)
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + int(tensor.nbytes())
        shape = [int(s) for s in tensor.shape]
        entry = {"dtype": _NAMES[tensor.dtype], "shape": shape, "data_offsets": [begin, end]}
        header[name] = entry
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    return text + b" " * (-len(text) % 8)


def _bytes_of(tensor: Tensor) -> bytearray:
    content = bytearray(int(tensor.nbytes()))
    memory = memory_behind(tensor.uop)
    if content and memory is not None:
        buffer_of(memory).copyout(memoryview(content))
    return content


@contextlib.contextmanager
def _atomically(path: Path) -> Iterator[BinaryIO]:
    """A file beside the path, put in its place when all is written."""
    if path.is_dir():
        raise StateError(f"{path} is a folder: name a file in it")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


# *** reading ***


def safe_load(fn: Source, device: str | None = None) -> dict[str, Tensor]:
    """All tensors of a file, by name, on a device (the default one if none is given). The file is
    mapped in memory; each tensor is copied to the device when it is used."""
    path = path_of(fn)
    header, begin = _checked_header(path)
    header.pop(_METADATA, None)
    file = MappedFile(path)
    return {
        name: file.tensor(
            _dtype_of(path, name, entry),
            entry["shape"],
            begin + entry["data_offsets"][0],
            device,
            name,
        )
        for name, entry in header.items()
    }


def safe_load_metadata(fn: Source) -> tuple[int, dict[str, Any]]:
    """(the place of the first data byte, the header) of a file."""
    header, begin = _checked_header(path_of(fn))
    return begin, header


def _checked_header(path: Path) -> tuple[dict[str, Any], int]:
    """The header, which the safetensors package has found sound, and where the data begin."""
    _check_little_endian()
    try:
        with safe_open(path, framework="numpy") as opened:
            opened.keys()
    except (SafetensorError, OSError) as error:
        raise StateError(f"{path} is not a whole safetensors file: {error}") from None
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header: dict[str, Any] = json.loads(file.read(length))
    return header, 8 + length


def _dtype_of(path: Path, name: str, entry: Mapping[str, Any]) -> DType:
    found = _DTYPES.get(entry["dtype"])
    if found is None:
        raise StateError(f"{path}: {name} is of type {entry['dtype']}, which tgcore has not")
    if (
        math.prod(entry["shape"]) * found.itemsize
        != entry["data_offsets"][1] - entry["data_offsets"][0]
    ):
        raise StateError(f"{path}: the bytes of {name} do not fit its shape {entry['shape']}")
    return found
