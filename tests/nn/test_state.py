"""State dictionaries, and files of them: round trips, and what a bad file does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from tgcore import Tensor, dtypes, nn
from tgcore.dtype import DType
from tgcore.nn.state import (
    StateError,
    get_parameters,
    get_state_dict,
    load_state_dict,
    safe_load,
    safe_load_metadata,
    safe_save,
)

Pair = namedtuple("Pair", ["left", "right"])


class Model:
    def __init__(self) -> None:
        self.first = nn.Linear(2, 3)
        self.layers = [nn.Linear(3, 3, bias=False), Tensor.relu, (nn.LayerNorm(3),)]
        self.table = {"x": Tensor([1.0]), 7: Tensor([2.0])}
        self.pair = Pair(Tensor([3.0]), "text")
        self.number = 5
        self.itself = self


def test_names() -> None:
    assert list(get_state_dict(Model())) == [
        "first.weight",
        "first.bias",
        "layers.0.weight",
        "layers.2.0.weight",
        "layers.2.0.bias",
        "table.x",
        "table.7",
        "pair.left",
    ]
    assert list(get_state_dict([Tensor([1])], "model")) == ["model.0"]
    assert list(get_state_dict(Tensor([1]))) == [""]
    shared = Tensor([1])
    assert get_parameters([shared, shared]) == [shared, shared]


def test_loading_gives_the_same_results() -> None:
    one, other = nn.Linear(3, 2), nn.Linear(3, 2)
    x = Tensor.rand(4, 3).realize()
    assert one(x).tolist() != other(x).tolist()
    loaded = load_state_dict(other, get_state_dict(one))
    assert loaded == [other.weight, other.bias]
    assert one(x).tolist() == other(x).tolist()


def test_not_strict_loads_what_both_have() -> None:
    model = nn.Linear(2, 2)
    bias = model.bias
    assert bias is not None
    before = bias.tolist()
    given = {"weight": Tensor.ones(2, 2), "more": Tensor([1])}
    assert load_state_dict(model, given, strict=False, consume=True) == [model.weight]
    assert model.weight.tolist() == [[1, 1], [1, 1]]
    assert bias.tolist() == before
    assert list(given) == ["more"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"weight": (2, 2)}, "missing bias"),
        ({"weight": (2, 2), "bias": (2,), "other": (1,)}, "unexpected other"),
        ({"weight": (2, 2), "bias": (3,)}, r"bias is \(3,\), the model needs \(2,\)"),
        ({"weight": (4,), "bias": (2,)}, r"weight is \(4,\)"),
    ],
)
def test_what_does_not_fit_changes_nothing(given: dict[str, Any], message: str) -> None:
    model = nn.Linear(2, 2)
    before = {name: t.tolist() for name, t in get_state_dict(model).items()}
    with pytest.raises(StateError, match=message):
        load_state_dict(model, {name: Tensor.ones(*shape) for name, shape in given.items()})
    assert before == {name: t.tolist() for name, t in get_state_dict(model).items()}


# *** files ***


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda d: d.name)
def test_round_trip(dtype: DType, tmp_path: Path) -> None:
    values = np.array([[0, 1, 2], [3, 0.5, -1]]).astype(np.float32)
    source = abs(values) if dtypes.is_unsigned(dtype) else values
    tensors = {"a": Tensor(source).cast(dtype), "scalar": Tensor(1).cast(dtype)}
    tensors["empty"] = Tensor.zeros(0, 3, dtype=dtype)
    safe_save(tensors, tmp_path / "t.safetensors")
    loaded = safe_load(str(tmp_path / "t.safetensors"))
    for name, tensor in tensors.items():
        assert loaded[name].dtype is dtype
        assert loaded[name].shape == tensor.shape
        assert loaded[name].cast(dtypes.float32).tolist() == tensor.cast(dtypes.float32).tolist()


def test_views_are_saved_as_they_look(tmp_path: Path) -> None:
    x = Tensor.arange(12).reshape(3, 4).realize()
    views = {"t": x.T, "s": x[1:, 1:3], "f": x.flip(0), "e": x[0].expand(2, 4)}
    safe_save(views, tmp_path / "v")
    loaded = safe_load(tmp_path / "v")
    assert {k: v.tolist() for k, v in loaded.items()} == {k: v.tolist() for k, v in views.items()}


def test_others_read_and_write_the_same(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    safe_save(
        {"b": Tensor([1, 2], dtype=dtypes.int8), "a": Tensor([[0.5]])}, path, {"made": "here"}
    )
    seen = safetensors.numpy.load_file(path)
    assert seen["a"].tolist() == [[0.5]]
    assert seen["b"].tolist() == [1, 2]
    place, header = safe_load_metadata(path)
    assert header["__metadata__"] == {"made": "here"}
    assert place % 8 == 0
    safetensors.numpy.save_file({"w": np.arange(3, dtype=np.uint16)}, path)
    assert safe_load(path)["w"].tolist() == [0, 1, 2]


def test_model_through_a_file(tmp_path: Path) -> None:
    model, other = Model(), Model()
    safe_save(get_state_dict(model), tmp_path / "m")
    load_state_dict(other, safe_load(tmp_path / "m"))
    assert [t.tolist() for t in get_parameters(model)] == [
        t.tolist() for t in get_parameters(other)
    ]


def header_file(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(dtype: str, shape: list[Any], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


HOSTILE: dict[str, bytes] = {
    "empty": b"",
    "short": b"\x08\0\0",
    "no header": header_file(b""),
    "junk": bytes(range(256)) * 4,
    "a header longer than the file": header_file({}, length=1 << 20),
    "a header of 2**63 bytes": header_file({}, length=1 << 63),
    "not json": header_file(b"{'a':"),
    "not utf-8": header_file(b"\xff\xfe{}"),
    "a list": header_file([1, 2]),
    "an entry without a type": header_file({"a": {"shape": [1], "data_offsets": [0, 4]}}, b"1234"),
    "cut data": header_file({"a": entry("F32", [4], 0, 16)}, b"12345678"),
    "more data": header_file({"a": entry("F32", [1], 0, 4)}, b"12345678"),
    "places beyond the file": header_file({"a": entry("F32", [1], 4000, 4004)}, b"1234"),
    "places that overlap": header_file(
        {"a": entry("F32", [1], 0, 4), "b": entry("F32", [1], 0, 4)}, b"1234"
    ),
    "places backwards": header_file({"a": entry("F32", [1], 4, 0)}, b"1234"),
    "a shape that does not fit": header_file({"a": entry("F32", [2], 0, 4)}, b"1234"),
    "a negative shape": header_file({"a": entry("F32", [-1], 0, 4)}, b"1234"),
    "a shape that overflows": header_file({"a": entry("F32", [1 << 62, 8], 0, 4)}, b"1234"),
    "an unknown type": header_file({"a": entry("F33", [1], 0, 4)}, b"1234"),
    "a type that tgcore has not": header_file({"a": entry("F8_E8M0", [4], 0, 4)}, b"1234"),
    "nested deep": header_file(b"[" * 100_000),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(HOSTILE[name])
    with pytest.raises(StateError, match=r"bad\.safetensors"):
        safe_load(path)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing"):
        safe_load(tmp_path / "nothing")
    with pytest.raises(StateError, match="not a file"):
        safe_load(tmp_path)
    with pytest.raises(StateError, match="folder"):
        safe_save({"a": Tensor([1])}, tmp_path)
    with pytest.raises(FileNotFoundError):
        safe_save({"a": Tensor([1])}, tmp_path / "no" / "such" / "folder")
    with pytest.raises(StateError, match="names are texts"):
        safe_save({"a": 1}, tmp_path / "a")  # type: ignore[dict-item]
    with pytest.raises(StateError, match="metadata"):
        safe_save({"a": Tensor([1])}, tmp_path / "a", {"n": 1})  # type: ignore[dict-item]
    assert list(tmp_path.iterdir()) == []


def test_every_cut_of_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t"
    safe_save({"a": Tensor([1.0, 2.0]), "b": Tensor([3])}, path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(StateError):
            safe_load(path)


FULL_DISK = """
import resource, signal, sys
from tgcore import Tensor
from tgcore.nn.state import safe_save
big = Tensor.ones(1 << 18).contiguous().realize()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
try:
    safe_save({"big": big}, sys.argv[1])
except OSError as error:
    print("refused:", error.strerror)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on the size of files")
def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "model"
    safe_save({"a": Tensor([1.0])}, path)
    command = [sys.executable, "-c", FULL_DISK, str(path)]
    environment = {**os.environ, "TGCORE_CACHE_DIR": str(tmp_path / "cache"), "CACHELEVEL": "0"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert "refused:" in done.stdout
    assert safe_load(path)["a"].tolist() == [1.0]
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["model"]


def test_whoever_reads_while_it_is_written_sees_one_or_the_other(tmp_path: Path) -> None:
    path = tmp_path / "model"
    versions = [Tensor.full((1000,), float(n)).contiguous().realize() for n in range(2)]
    safe_save({"a": versions[0]}, path)
    stop = threading.Event()
    failures: list[BaseException] = []

    def read() -> None:
        while not stop.is_set():
            try:
                values = safetensors.numpy.load_file(path)["a"]
                assert (values == values[0]).all()
            except BaseException as error:
                failures.append(error)
                return

    reader = threading.Thread(target=read)
    reader.start()
    for n in range(40):
        safe_save({"a": versions[n % 2]}, path)
    stop.set()
    reader.join()
    assert not failures


def test_importing_the_package_does_not_import_safetensors() -> None:
    code = (
        "import sys, tgcore; from tgcore import nn; nn.state.get_parameters; "
        "assert 'safetensors' not in sys.modules; nn.state.safe_load; "
        "assert 'safetensors' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
