"""Files that torch.save wrote: what is in them, and what bad ones do."""

from __future__ import annotations

import io
import pickle
import random
import struct
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tgcore import GlobalCounters, Tensor
from tgcore.nn.state import StateError, load_state_dict, torch_load

FORMATS = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "stream"])
KINDS = [
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16),
    *(torch.int32, torch.int64, torch.uint8, torch.bool),
]


def save(path: Path, value: Any, zipped: bool = True) -> Path:
    torch.save(value, path, _use_new_zipfile_serialization=zipped)
    return path


def assert_equal(found: Tensor, expected: torch.Tensor) -> None:
    assert found.shape == tuple(expected.shape)
    if expected.dtype is torch.bfloat16:
        assert found.dtype.name == "bfloat16"
        found, expected = found.float(), expected.float()
    wanted = expected.detach().numpy()
    got = found.numpy()
    assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(got, wanted)


@FORMATS
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_types(kind: torch.dtype, zipped: bool, tmp_path: Path) -> None:
    x = torch.tensor([[0, 1, 2], [3, 4, 5]]).to(kind)
    assert_equal(torch_load(save(tmp_path / "f", x, zipped)), x)


@pytest.mark.parametrize("kind", [torch.uint16, torch.uint32, torch.uint64], ids=str)
def test_types_over_storages_without_one(kind: torch.dtype, tmp_path: Path) -> None:
    x = torch.tensor([1, 2, 60000]).to(kind)
    assert torch_load(save(tmp_path / "f", x)).tolist() == [1, 2, 60000]


VIEWS = {
    "whole": lambda x: x,
    "part": lambda x: x[1:3, 2:5],
    "transposed": lambda x: x.T,
    "part, transposed": lambda x: x[2:].T,
    "every second": lambda x: x[::2, 1::3],
    "one row": lambda x: x[1],
    "one number": lambda x: x[1, 1],
    "expanded": lambda x: x[:, :1].expand(4, 7),
    "expanded in front": lambda x: x[0].expand(3, 6),
    "overlapping": lambda x: x.flatten().unfold(0, 5, 2),
    "none": lambda x: x[:0],
    "more axes": lambda x: x.reshape(2, 2, 3, 2).permute(2, 0, 3, 1),
}


@FORMATS
@pytest.mark.parametrize("name", VIEWS)
def test_views(name: str, zipped: bool, tmp_path: Path) -> None:
    x = VIEWS[name](torch.arange(24.0).reshape(4, 6))
    assert_equal(torch_load(save(tmp_path / "f", x, zipped)), x)


@FORMATS
def test_a_model_and_its_optimiser(zipped: bool, tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}
    loaded = torch_load(save(tmp_path / "f", saved, zipped))
    assert isinstance(loaded["model"], OrderedDict) and loaded["epoch"] == 3
    for name, value in model.state_dict().items():
        assert_equal(loaded["model"][name], value)
    state = loaded["optimizer"]["state"][0]
    assert_equal(state["exp_avg"], optimizer.state_dict()["state"][0]["exp_avg"])


@FORMATS
def test_tensors_that_share_a_storage(zipped: bool, tmp_path: Path) -> None:
    x = torch.arange(6.0)
    loaded = torch_load(save(tmp_path / "f", [x[:4], x[2:], x], zipped))
    assert [t.tolist() for t in loaded] == [[0, 1, 2, 3], [2, 3, 4, 5], [0, 1, 2, 3, 4, 5]]


def test_parameters_and_a_tensor_as_the_source(tmp_path: Path) -> None:
    path = save(tmp_path / "f", torch.nn.Parameter(torch.ones(2)))
    assert torch_load(Tensor(path)).tolist() == [1, 1]


def test_nothing_is_copied_before_it_is_used(tmp_path: Path) -> None:
    big = {str(n): torch.full((1 << 18,), float(n)) for n in range(4)}
    path = save(tmp_path / "f", big)
    before = GlobalCounters.mem_used
    loaded = torch_load(path)
    assert GlobalCounters.mem_used == before
    assert loaded["2"][:2].tolist() == [2, 2]
    assert GlobalCounters.mem_used - before < 2 << 20


def test_loading_into_a_model(tmp_path: Path) -> None:
    class Model:
        def __init__(self) -> None:
            self.weight, self.bias = Tensor.zeros(4, 3), Tensor.zeros(4)

    theirs, model = torch.nn.Linear(3, 4), Model()
    load_state_dict(model, torch_load(save(tmp_path / "f", theirs.state_dict())))
    assert_equal(model.weight, theirs.weight)


# *** hostile files ***


class Evil:
    def __reduce__(self) -> Any:
        return (print, ("run",))


@FORMATS
@pytest.mark.parametrize("value", [Evil(), torch.nn.Linear(2, 2), {"x": slice(1)}])
def test_no_code_runs(
    value: Any, zipped: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(tmp_path / "f", value, zipped)
    with pytest.raises(StateError, match=r"names \S+\.\S+, which is not loaded"):
        torch_load(path)
    assert capsys.readouterr().out == ""


@FORMATS
def test_files_cut_short_or_changed(zipped: bool, tmp_path: Path) -> None:
    value = {"a": torch.arange(64.0), "b": [torch.ones(3), 1]}
    whole = save(tmp_path / "whole", value, zipped).read_bytes()
    rng, path = random.Random(0), tmp_path / "f"
    for number in range(150):
        content = bytearray(whole)
        if number % 3 == 0:
            del content[rng.randrange(len(content)) :]
        for _ in range(rng.randint(1, 6) if number % 3 else 0):
            content[rng.randrange(len(content))] = rng.randrange(256)
        path.write_bytes(content)
        try:  # it loads, if what was changed is a number, or says what is wrong
            torch_load(path)
        except StateError as error:
            assert str(error)


def test_memo_numbers_allocate_nothing(tmp_path: Path) -> None:
    stream = b"\x80\x02]r" + struct.pack("<I", 2**31 - 1) + b"."
    with zipfile.ZipFile(tmp_path / "f", "w") as archive:
        archive.writestr("a/data.pkl", stream)
    assert torch_load(tmp_path / "f") == []


def archive_of(path: Path, storage: tuple[Any, ...], data: bytes, **options: Any) -> Path:
    """A zip archive with one storage, of an identifier and data that may not fit."""
    file = io.BytesIO()

    class Pickler(pickle._Pickler):
        def persistent_id(self, value: Any) -> Any:
            return storage if value == "the storage" else None

    Pickler(file, protocol=2).dump(OrderedDict(x="the storage"))
    with zipfile.ZipFile(path, "w", **options) as archive:
        archive.writestr("a/data.pkl", file.getvalue())
        archive.writestr("a/data/0", data)
    return path


@pytest.mark.parametrize(
    ("storage", "message"),
    [
        (("storage", 5, "0", "cpu", 2), "unknown kind of storage"),
        (("module", "x"), "unknown kind of reference"),
    ],
)
def test_identifiers_that_make_no_sense(
    storage: tuple[Any, ...], message: str, tmp_path: Path
) -> None:
    with pytest.raises(StateError, match=message):
        torch_load(archive_of(tmp_path / "f", storage, b"1234"))


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    with pytest.raises(StateError, match=r"(whole|no) file of torch\.save"):
        torch_load(tmp_path / "text")
    with zipfile.ZipFile(tmp_path / "zip", "w") as archive:
        archive.writestr("readme", "hello")
    with pytest.raises(StateError, match=r"no data\.pkl"):
        torch_load(tmp_path / "zip")
    with pytest.raises(FileNotFoundError):
        torch_load(tmp_path / "missing")
    with pytest.raises(StateError, match="is not a file"):
        torch_load(tmp_path)


def test_compressed_archives_say_what_to_do(tmp_path: Path) -> None:
    source = save(tmp_path / "f", {"a": torch.ones(100)})
    packed = tmp_path / "packed"
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    with pytest.raises(StateError, match=r"compressed.*without compression"):
        torch_load(packed)
