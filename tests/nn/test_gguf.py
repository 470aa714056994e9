"""GGUF files against the gguf package, which writes them and decodes their blocks with numpy."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from tgcore import GlobalCounters, Tensor
from tgcore.nn.quantization import FORMATS
from tgcore.nn.state import StateError, gguf_load

Kind = gguf.GGMLQuantizationType


def write(path: Path, tensors: dict[str, Any], **metadata: Any) -> Path:
    writer = gguf.GGUFWriter(path, "test")
    for key, value in metadata.items():
        add = {str: writer.add_string, list: writer.add_array, float: writer.add_float32}
        add.get(type(value), writer.add_uint32)(f"test.{key}", value)
    for name, value in tensors.items():
        array, kind = value if isinstance(value, tuple) else (value, None)
        writer.add_tensor(name, array, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("number", FORMATS, ids=lambda n: Kind(n).name)
def test_blocks_are_decoded_exactly(number: int) -> None:
    """Random bytes: all scales, all values, infinite and subnormal ones too."""
    form = FORMATS[number]
    assert gguf.GGML_QUANT_SIZES[Kind(number)] == (form.elements, form.bytes)
    blocks = np.random.default_rng(number).integers(0, 256, (50, form.bytes), dtype=np.uint8)
    blocks[0], blocks[1] = 0, 255
    with np.errstate(all="ignore"):
        expected = gguf.quants.dequantize(blocks, Kind(number))
    np.testing.assert_array_equal(form.decode(Tensor(blocks)).numpy(), expected)


def test_tensors_of_all_plain_types(tmp_path: Path) -> None:
    values = np.arange(6).reshape(2, 3)
    kinds = ["float32", "float16", "float64", "int8", "int16", "int32", "int64"]
    path = write(tmp_path / "f", {kind: values.astype(kind) for kind in kinds})
    _, tensors = gguf_load(path)
    assert list(tensors) == kinds
    for kind, tensor in tensors.items():
        assert tensor.dtype.name == kind and tensor.tolist() == values.tolist()


def test_bfloat16(tmp_path: Path) -> None:
    values = np.array([[1.0, -2.5, 3.0]], np.float32)
    packed = gguf.quants.quantize(values, Kind.BF16)
    _, tensors = gguf_load(write(tmp_path / "f", {"x": (packed, Kind.BF16)}))
    assert tensors["x"].dtype.name == "bfloat16" and tensors["x"].float().tolist() == [[1, -2.5, 3]]


def test_quantised_tensors_have_the_shape_of_their_elements(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    packed = gguf.quants.quantize(values, Kind.Q8_0)
    _, tensors = gguf_load(Tensor(write(tmp_path / "f", {"w": (packed, Kind.Q8_0)})))
    assert tensors["w"].shape == (4, 64)
    np.testing.assert_array_equal(tensors["w"].numpy(), gguf.quants.dequantize(packed, Kind.Q8_0))


def test_metadata(tmp_path: Path) -> None:
    path = write(
        tmp_path / "f", {}, text="hello", number=7, ratio=0.5, names=["a", "b"], sizes=[1, 2, 3]
    )
    metadata, tensors = gguf_load(path)
    assert tensors == {} and metadata["general.architecture"] == "test"
    found = {k.removeprefix("test."): v for k, v in metadata.items() if k.startswith("test.")}
    assert found == {
        "text": "hello", "number": 7, "ratio": 0.5, "names": ["a", "b"], "sizes": [1, 2, 3]
    }  # fmt: skip


def test_nothing_is_copied_before_it_is_used(tmp_path: Path) -> None:
    values = np.ones((256, 1024), np.float32)
    path = write(tmp_path / "f", {str(n): values for n in range(4)})
    before = GlobalCounters.mem_used
    _, tensors = gguf_load(path)
    assert GlobalCounters.mem_used == before
    assert tensors["1"][0, :2].tolist() == [1, 1]
    assert GlobalCounters.mem_used - before < 2 << 20


def test_unknown_quantisations_are_named(tmp_path: Path) -> None:
    blocks = np.zeros((1, gguf.GGML_QUANT_SIZES[Kind.IQ1_S][1]), np.uint8)
    with pytest.raises(StateError, match="w has the quantisation 19"):
        gguf_load(write(tmp_path / "f", {"w": (blocks, Kind.IQ1_S)}))


def test_files_cut_short_or_changed(tmp_path: Path) -> None:
    whole = write(
        tmp_path / "whole", {"a": np.ones((2, 32), np.float32)}, names=["x", "y"], number=3
    ).read_bytes()
    rng, path = random.Random(0), tmp_path / "f"
    refused = 0
    for number in range(120):
        content = bytearray(whole)
        if number % 3 == 0:
            del content[rng.randrange(len(content)) :]
        for _ in range(rng.randint(1, 5) if number % 3 else 0):
            content[rng.randrange(min(len(content), 300))] = rng.randrange(256)
        path.write_bytes(content)
        try:
            gguf_load(path)
        except StateError as error:
            refused += 1
            assert str(error)
    assert refused > 40
