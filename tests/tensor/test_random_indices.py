"""Parts read and written by random mixtures of ints, slices, None, Ellipsis, arrays and masks."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tgcore import Tensor

EXAMPLES = int(os.environ.get("PROGRAMS", "500"))
KINDS = ["int", "slice", "slice", "none", "tensor", "matrix", "mask", "all"]


def draw_item(data: st.DataObject, kind: str, size: int) -> Any:
    if kind == "none":
        return None
    if kind == "int":
        return data.draw(st.integers(-size, size - 1))
    if kind == "slice":
        return data.draw(st.slices(size))
    if kind == "mask":
        return np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    if kind in ("tensor", "matrix"):
        places = data.draw(st.lists(st.integers(-size, size - 1), min_size=1, max_size=3))
        return np.array(places if kind == "tensor" else [[p] for p in places], np.int32)
    return slice(None)


def draw_index(data: st.DataObject, shape: tuple[int, ...]) -> tuple[Any, ...]:
    items: list[Any] = []
    axis = 0
    while axis < len(shape):
        if (
            Ellipsis not in [i for i in items if not isinstance(i, np.ndarray)]
            and data.draw(st.integers(0, 9)) == 0
        ):
            items.append(Ellipsis)
            axis += data.draw(st.integers(0, len(shape) - axis))
            continue
        kind = data.draw(st.sampled_from(KINDS))
        items.append(draw_item(data, kind, shape[axis]))
        axis += kind != "none"
        if data.draw(st.integers(0, 5)) == 0:
            break
    return tuple(items)


def with_tensors(index: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(Tensor(i) if isinstance(i, np.ndarray) else i for i in index)


def follows_numpy(index: tuple[Any, ...]) -> bool:
    """numpy moves axes where an int or an empty Ellipsis parts arrays; as in torch, ours stay."""
    parting = any(isinstance(i, int) or i is Ellipsis for i in index)
    return not (parting and any(isinstance(i, np.ndarray) for i in index))


def reference(x: np.ndarray[Any, Any], index: tuple[Any, ...]) -> np.ndarray[Any, Any]:
    """The part, by numpy where it agrees with torch, else by torch."""
    try:
        if follows_numpy(index):
            return np.asarray(x[index])
        steps = [i.step for i in index if isinstance(i, slice)]
        assume(all(s is None or s > 0 for s in steps))  # torch has no others
        tensors = [torch.tensor(i) if isinstance(i, np.ndarray) else i for i in index]
        return torch.tensor(x)[tuple(tensors)].numpy()
    except (IndexError, ValueError):
        assume(False)  # arrays that do not fit each other
        raise


SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)
few = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@few
@given(st.data(), SHAPES)
def test_reading(data: st.DataObject, shape: tuple[int, ...]) -> None:
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    index = draw_index(data, shape)
    expected = reference(x, index)
    np.testing.assert_array_equal(Tensor(x)[with_tensors(index)].numpy(), expected)


@few
@given(st.data(), SHAPES, st.booleans())
def test_writing(data: st.DataObject, shape: tuple[int, ...], realized: bool) -> None:
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    index = draw_index(data, shape)
    assume(follows_numpy(index))
    part = reference(x, index)
    if data.draw(st.booleans()):
        value: Any = -5.0
    else:  # of several elements for one place the last one stays
        value = -np.arange(1, part.size + 1, dtype=np.float32).reshape(part.shape)
    expected = x.copy()
    expected[index] = value
    found = Tensor(x).realize() if realized else Tensor(x) * 1
    found[with_tensors(index)] = Tensor(value) if isinstance(value, np.ndarray) else value
    np.testing.assert_array_equal(found.numpy(), expected)
