"""Tensors in files that `torch.save` wrote: zip archives, and the older stream of pickles.

The pickles are read by an unpickler that knows a short list of names, all of them functions here:
no code of the file's, and none of another package's, runs. The layouts are those of
`torch/serialization.py`.
"""

from __future__ import annotations

import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from tgcore.dtype import DType, dtypes
from tgcore.helpers import prod
from tgcore.nn.errors import StateError
from tgcore.nn.files import MappedFile, Source, path_of
from tgcore.tensor import Tensor

_MAGIC: Final = 0x1950A86A20F9469CFC6C
_PROTOCOL: Final = 1001
_LOCAL_HEADER: Final = 30  # bytes before the name in front of a zip entry

_FAULTS: Final = (
    *(pickle.UnpicklingError, zipfile.BadZipFile, struct.error, EOFError, OSError, ValueError),
    *(TypeError, KeyError, IndexError, AttributeError, OverflowError, MemoryError, RuntimeError),
    AssertionError,
)

_STORAGES: Final[dict[str, DType]] = {
    "DoubleStorage": dtypes.float64,
    "FloatStorage": dtypes.float32,
    "HalfStorage": dtypes.float16,
    "BFloat16Storage": dtypes.bfloat16,
    "LongStorage": dtypes.int64,
    "IntStorage": dtypes.int32,
    "ShortStorage": dtypes.int16,
    "CharStorage": dtypes.int8,
    "ByteStorage": dtypes.uint8,
    "BoolStorage": dtypes.bool,
    "UntypedStorage": dtypes.uint8,
}
_DTYPES: Final[dict[str, DType]] = {
    **{d.name: d for d in (dtypes.float64, dtypes.float32, dtypes.float16, dtypes.bfloat16)},
    **{d.name: d for d in (dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64, dtypes.bool)},
    **{d.name: d for d in (dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64)},
    "float8_e4m3fn": dtypes.fp8e4m3,
    "float8_e5m2": dtypes.fp8e5m2,
    "double": dtypes.float64,
    "float": dtypes.float32,
    "half": dtypes.float16,
    "long": dtypes.int64,
    "int": dtypes.int32,
    "short": dtypes.int16,
}


def torch_load(fn: Source, device: str | None = None) -> Any:
    """What `torch.save` wrote to a file (given by its path or as a tensor on it): dictionaries,
    lists and the like, with Tensors in the place of torch's. These are copied to the device when
    they are used.

    No code of the file runs. What is no tensor, number, text or plain container is refused by a
    StateError that names it; so are files that are cut short or make no sense.
    """
    path = path_of(fn)
    with open(path, "rb") as file, _told_as_state_errors(path):
        if zipfile.is_zipfile(file):
            return _load_zip(path, file, device)
        file.seek(0)
        return _load_stream(path, file, device)


@contextmanager
def _told_as_state_errors(path: Path) -> Iterator[None]:
    """A file can make any step of reading it fail."""
    try:
        yield
    except StateError:
        raise
    except _FAULTS as error:
        raise StateError(f"{path} is not a whole file of torch.save: {error!r:.200}") from None


# *** what pickles may name ***


@dataclass(frozen=True)
class _StorageType:
    dtype: DType


@dataclass(frozen=True)
class _Storage:
    """A row of elements in the file."""

    file: MappedFile
    dtype: DType
    size: int
    offset: int  # in bytes
    key: str


def _rebuild_tensor(
    device: str | None, storage: Any, offset: Any, size: Any, stride: Any
) -> Tensor:
    """A tensor over a storage, with any strides."""
    if not isinstance(storage, _Storage):
        raise StateError(f"a tensor over {type(storage).__name__} instead of a storage")
    numbers = [offset, *size, *stride]
    if not all(type(n) is int and n >= 0 for n in numbers) or len(size) != len(stride):
        raise StateError(f"a tensor of shape {size}, strides {stride} and offset {offset}")
    last = offset + sum((s - 1) * d for s, d in zip(size, stride))
    if 0 not in size and last >= storage.size:
        raise StateError(
            f"a tensor of shape {tuple(size)}, strides {tuple(stride)} and offset {offset} is not "
            f"within its storage {storage.key} of {storage.size} elements"
        )
    return _strided(storage, offset, tuple(size), tuple(stride), device)


def _strided(
    storage: _Storage,
    offset: int,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    device: str | None,
) -> Tensor:
    # axes from the widest stride to the narrowest; those of stride 0 or size 1 repeat one element
    axes = sorted(
        (a for a, (s, d) in enumerate(zip(size, stride)) if s > 1 and d), key=lambda a: -stride[a]
    )
    inner = [size[a] for a in axes]
    packed = [prod(inner[n + 1 :]) for n in range(len(axes))]
    begin = storage.offset + offset * storage.dtype.itemsize
    if 0 in size or packed == [stride[a] for a in axes]:
        dense = [0] if 0 in size else inner
        x = storage.file.tensor(storage.dtype, dense, begin, device, storage.key)
        if 0 in size:
            return x.reshape(size)
    else:
        span = 1 + sum((size[a] - 1) * stride[a] for a in axes)
        flat = storage.file.tensor(storage.dtype, [span], begin, device, storage.key)
        place = Tensor.zeros(*[1] * len(axes), dtype=dtypes.int64, device=flat.device)
        for n, a in enumerate(axes):
            steps = Tensor.arange(size[a], dtype=dtypes.int64, device=flat.device) * stride[a]
            place = place + steps.reshape([-1 if m == n else 1 for m in range(len(axes))])
        x = flat[place]
    in_order = x.permute(sorted(range(len(axes)), key=lambda n: axes[n]))
    shape = [s if a in axes else 1 for a, s in enumerate(size)]
    return in_order.reshape(shape).expand(size)


def _names(device: str | None) -> dict[tuple[str, str], Any]:
    """All that a pickle may name, by module and name."""

    def rebuild(storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> Tensor:
        return _rebuild_tensor(device, storage, offset, size, stride)

    def rebuild_typed(
        storage: Any,
        offset: Any,
        size: Any,
        stride: Any,
        grad: Any,
        hooks: Any,
        dtype: Any,
        *_: Any,
    ) -> Tensor:
        if not isinstance(storage, _Storage) or not isinstance(dtype, DType):
            raise StateError("a tensor without storage or type")
        count = storage.size * storage.dtype.itemsize // dtype.itemsize
        typed = _Storage(storage.file, dtype, count, storage.offset, storage.key)
        return _rebuild_tensor(device, typed, offset, size, stride)

    def parameter(data: Any, *_: Any) -> Any:
        return data

    known: dict[tuple[str, str], Any] = {
        ("collections", "OrderedDict"): OrderedDict,
        ("torch", "Size"): tuple,
        ("torch", "device"): lambda *args: ":".join(map(str, args)),
        ("torch._utils", "_rebuild_tensor"): rebuild,
        ("torch._utils", "_rebuild_tensor_v2"): rebuild,
        ("torch._utils", "_rebuild_tensor_v3"): rebuild_typed,
        ("torch._utils", "_rebuild_parameter"): parameter,
        ("torch._utils", "_rebuild_parameter_with_state"): parameter,
        ("torch.storage", "UntypedStorage"): _StorageType(dtypes.uint8),
    }
    known.update({("torch", name): _StorageType(d) for name, d in _STORAGES.items()})
    known.update({("torch", name): d for name, d in _DTYPES.items()})
    return known


# the one written in Python: that in C allocates whatever size a file asks for
class _Unpickler(pickle._Unpickler):
    def __init__(
        self, file: Any, names: Mapping[tuple[str, str], Any], load: Callable[[Any], Any]
    ) -> None:
        super().__init__(file, encoding="utf-8")
        self.names, self.load_storage = names, load

    def find_class(self, module: str, name: str) -> Any:
        """The function of the short list that has the name."""
        found = self.names.get((module, name))
        if found is None:
            raise StateError(
                f"the file names {module}.{name}, which is not loaded, as it could be any code: "
                "save a state_dict of tensors instead of objects"
            )
        return found

    def persistent_load(self, pid: Any) -> Any:
        """A storage."""
        return self.load_storage(pid)


def _checked_id(pid: Any) -> tuple[DType, str, int]:
    """(type, key, number of elements) of a storage's identifier."""
    if not isinstance(pid, tuple) or len(pid) < 5 or pid[0] != "storage":
        raise StateError(f"an unknown kind of reference: {pid!r:.80}")
    _, kind, key, _, size = pid[:5]
    if not isinstance(kind, _StorageType) or not isinstance(key, str) or type(size) is not int:
        raise StateError(f"an unknown kind of storage: {pid!r:.80}")
    return kind.dtype, key, size


# *** zip archives ***


def _load_zip(path: Path, file: BinaryIO, device: str | None) -> Any:
    mapped = MappedFile(path)
    with zipfile.ZipFile(file) as archive:
        entries = {info.filename: info for info in archive.infolist()}
        pickles = [name for name in entries if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise StateError(f"{path} is a zip archive, but none of torch.save: no data.pkl in it")
        root = pickles[0].removesuffix("data.pkl")
        order = f"{root}byteorder"
        if order in entries and archive.read(order) != b"little":
            raise StateError(f"{path} holds numbers of the other byte order")

        def storage(pid: Any) -> _Storage:
            dtype, key, size = _checked_id(pid)
            info = entries.get(f"{root}data/{key}")
            if info is None:
                raise StateError(f"{path} has no data for the storage {key!r}")
            if size < 0 or info.file_size != size * dtype.itemsize:
                raise StateError(f"{path}: storage {key!r} has not {size} elements of {dtype}")
            return _Storage(mapped, dtype, size, _data_offset(path, file, info), key)

        with archive.open(pickles[0]) as stream:
            return _Unpickler(stream, _names(device), storage).load()


def _data_offset(path: Path, file: BinaryIO, info: zipfile.ZipInfo) -> int:
    """Where the bytes of an entry begin."""
    if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
        raise StateError(
            f"{path}: {info.filename} is compressed or encrypted; torch.save does neither. Unpack "
            "it, and pack it again without compression (zip -0)"
        )
    here = file.tell()
    file.seek(info.header_offset)
    header = file.read(_LOCAL_HEADER)
    file.seek(here)
    if len(header) != _LOCAL_HEADER or header[:4] != b"PK\x03\x04":
        raise StateError(f"{path}: the header of {info.filename} is broken")
    name, extra = (int.from_bytes(header[n : n + 2], "little") for n in (26, 28))
    return info.header_offset + _LOCAL_HEADER + name + extra


# *** streams of pickles ***


def _load_stream(path: Path, file: BinaryIO, device: str | None) -> Any:
    """Magic number, protocol, facts of the machine, the object, the storages' keys, and for each of
    these its size and data."""
    names = _names(device)

    def plain(pid: Any) -> Any:
        raise StateError(f"{path}: a reference where there can be none: {pid!r:.80}")

    head = [_Unpickler(file, {}, plain).load() for _ in range(3)]
    if head[0] != _MAGIC:
        raise StateError(f"{path} is no file of torch.save (files older than 2016 are not read)")
    if head[1] != _PROTOCOL or not isinstance(head[2], dict) or not head[2].get("little_endian"):
        raise StateError(f"{path} is of another protocol or byte order: {head[1:]!r:.120}")
    begin = file.tell()
    mapped = MappedFile(path)
    types: dict[str, tuple[DType, int]] = {}

    def noted(pid: Any) -> _Storage:
        dtype, key, size = _checked_id(pid)
        types[key] = (dtype, size)
        return _Storage(mapped, dtype, size, 0, key)

    # once to learn the types of the storages, which lie behind, and once with their places
    hollow = {**names, **{key: _nothing for key in names if key[0] == "torch._utils"}}
    _Unpickler(file, hollow, noted).load()
    places = _storage_places(path, file, types)
    file.seek(begin)

    def placed(pid: Any) -> _Storage:
        dtype, key, size = _checked_id(pid)
        return _Storage(mapped, dtype, size, places[key], key)

    return _Unpickler(file, names, placed).load()


def _nothing(*_: Any) -> None:
    """Stands for what makes tensors while only storages are looked for."""


def _storage_places(
    path: Path, file: BinaryIO, types: Mapping[str, tuple[DType, int]]
) -> dict[str, int]:
    keys: Sequence[Any] = _Unpickler(file, {}, _nothing).load()
    if not isinstance(keys, list) or set(keys) != types.keys():
        raise StateError(f"{path}: the list of storages does not fit the tensors")
    places = {}
    for key in keys:
        dtype, size = types[key]
        count = int.from_bytes(file.read(8), "little", signed=True)
        if count != size:
            raise StateError(f"{path}: storage {key!r} has {count} elements, {size} are needed")
        places[key] = file.tell()
        file.seek(size * dtype.itemsize, 1)
    return places
