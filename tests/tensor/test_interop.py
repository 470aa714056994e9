"""Values in and out: lists, numpy, DLPack, memory of others, files, devices."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from tgcore import Device, Tensor, UOp, dtypes
from tgcore.errors import DTypeError, ShapeError


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        (3, "int32"),
        (3.5, "float32"),
        (True, "bool"),
        ([1, 2], "int32"),
        ([1.0, 2], "float32"),
        ([True, False], "bool"),
        ([[1], [2]], "int32"),
        ([], "float32"),
        (np.arange(3, dtype=np.int16), "int16"),
        (np.float64(2.5), "float64"),
        (b"ab", "uint8"),
        (None, "float32"),
    ],
)
def test_types_of_what_a_tensor_is_made_of(data: object, dtype: str) -> None:
    t = Tensor(data)
    assert t.dtype.name == dtype
    if data is not None and not isinstance(data, bytes):
        assert np.array_equal(t.numpy(), np.asarray(data, t.numpy().dtype))


def test_a_tensor_of_tensors_and_of_symbols() -> None:
    assert Tensor([Tensor([1, 2]), Tensor([3, 4])]).tolist() == [[1, 2], [3, 4]]
    assert Tensor(UOp.variable("n", 0, 9).bind(4)).item() == 4
    assert Tensor(Tensor([1]), dtype="float32").tolist() == [1.0]


@pytest.mark.parametrize("kind", [d for d in dtypes.all if d.fmt is not None])
def test_numpy_there_and_back(kind: object) -> None:
    array = np.array([[0, 1], [1, 3]]).astype(np.dtype(kind.fmt))  # type: ignore[attr-defined]
    back = Tensor(array).numpy()
    assert back.dtype == array.dtype and np.array_equal(back, array)
    back[0, 0] = 1  # its own memory, writable


def test_arrays_in_any_order() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    for view in (array.T, array[::-1], array[:, ::2], np.asfortranarray(array), array[1:, 1:]):
        assert np.array_equal(Tensor(view).numpy(), view)
    swapped = array.astype(">f4")
    assert np.array_equal(Tensor(swapped).numpy(), array)


def test_types_that_numpy_lacks_come_as_float32() -> None:
    t = Tensor([1.0, 2.5], dtype="bfloat16")
    assert t.numpy().dtype == np.float32 and t.tolist() == [1.0, 2.5]


def test_item_and_the_conversions() -> None:
    assert Tensor([[7]]).item() == 7 and isinstance(Tensor([7]).item(), int)
    assert float(Tensor(2.5)) == 2.5 and int(Tensor(3)) == 3
    assert [10, 20, 30][Tensor(1)] == 20
    assert np.asarray(Tensor([1, 2])).tolist() == [1, 2]
    with pytest.raises(ShapeError, match=r"\(2,\)"):
        Tensor([1, 2]).item()
    with pytest.raises(TypeError, match="truth"):
        bool(Tensor([1]))


def test_dlpack_shares_memory_with_torch() -> None:
    source = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    t = Tensor.from_dlpack(source)
    assert t.shape == (2, 3)
    source[0, 0] = 50
    assert t.tolist()[0][0] in (50, 0)  # a device that cannot share has copied
    ours = (Tensor([1.0, 2.0, 3.0]) * 2).realize()
    theirs = torch.from_dlpack(ours)
    assert theirs.tolist() == [2, 4, 6]
    del ours
    assert theirs.tolist() == [2, 4, 6]


def test_dlpack_of_views_and_of_what_is_not_realised() -> None:
    assert torch.from_dlpack(Tensor([1, 2, 3, 4])[1:3]).tolist() == [2, 3]
    assert torch.from_dlpack(Tensor([1, 2]) + 1).tolist() == [2, 3]
    assert Tensor.from_dlpack(torch.arange(6).reshape(2, 3).T).tolist() == [[0, 3], [1, 4], [2, 5]]


def test_what_dlpack_refuses() -> None:
    with pytest.raises(DTypeError, match="bfloat16"):
        torch.from_dlpack(Tensor([1.0], dtype="bfloat16"))
    with pytest.raises(DTypeError, match="detach"):
        torch.from_dlpack(Tensor([1.0], requires_grad=True))


def test_from_blob() -> None:
    array = np.arange(4, dtype=np.float32)
    t = Tensor.from_blob(array.ctypes.data, (2, 2), owner=array)
    assert (t * 2).tolist() == [[0, 2], [4, 6]]
    array[0] = 5
    assert t.tolist() == [[5, 1], [2, 3]]


def test_a_file_as_a_tensor(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(range(10)))
    assert Tensor(path).to(None).tolist() == list(range(10))
    assert Tensor.from_file(path)[2:4].to(None).tolist() == [2, 3]


def test_the_same_device_again_is_the_same_tensor() -> None:
    x = Tensor([1])
    assert x.to(Device.DEFAULT) is x and x.device == Device.DEFAULT


def test_what_is_no_tensor() -> None:
    for wrong in ("text", object(), {"a": 1}, ["a"]):
        with pytest.raises(TypeError):
            Tensor(wrong)
    with pytest.raises(ShapeError, match="equal lengths"):
        Tensor([[1], [1, 2]])
    with pytest.raises(TypeError, match="operand"):
        Tensor([1]) + "a"


def test_values_out_of_range_wrap_around() -> None:
    assert Tensor([300, -1], dtype="uint8").tolist() == [44, 255]


def test_repr_says_shape_type_and_device() -> None:
    text = repr(Tensor.zeros(2, 3))
    assert "(2, 3)" in text and "float32" in text and Device.DEFAULT in text


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "bool", "uint64"])
def test_pickles_hold_the_values(kind: str) -> None:
    x = Tensor([[0, 1, 2], [3, 4, 5]]).cast(kind)
    for tensor in (x, x.T, x[:0], x[1, 2]):
        found = pickle.loads(pickle.dumps(tensor))
        assert found.dtype is tensor.dtype and found.shape == tensor.shape
        assert found.float().tolist() == tensor.float().tolist()
    assert pickle.loads(pickle.dumps(Tensor([1.0], requires_grad=True))).requires_grad is True
