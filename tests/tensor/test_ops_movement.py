"""Movement ops and indexing against torch and numpy: values, and gradients of the smooth ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.tensor.helpers import compare
from tgcore import Tensor
from tgcore.errors import ShapeError

MOVEMENT: dict[str, tuple[Callable[..., Any], Callable[..., Any] | None, list[tuple[int, ...]]]] = {
    "reshape": (lambda x: x.reshape(6, 4), None, [(2, 3, 4)]),
    "reshape -1": (lambda x: x.reshape(4, -1), None, [(2, 3, 4)]),
    "permute": (lambda x: x.permute(2, 0, 1), None, [(2, 3, 4)]),
    "transpose": (lambda x: x.transpose(0, 2), None, [(2, 3, 4)]),
    "expand": (lambda x: x.expand(5, 3, 4), None, [(3, 1)]),
    "flip": (lambda x: x.flip(0, 2), lambda x: x.flip((0, 2)), [(2, 3, 4)]),
    "squeeze": (lambda x: x.squeeze(1), None, [(2, 1, 4)]),
    "unsqueeze": (lambda x: x.unsqueeze(-1), None, [(2, 4)]),
    "flatten": (lambda x: x.flatten(1), None, [(2, 3, 4)]),
    "unflatten": (lambda x: x.unflatten(1, (2, 3)), None, [(2, 6)]),
    "movedim": (lambda x: x.movedim((0, 1), (2, 0)), None, [(2, 3, 4)]),
    "repeat": (lambda x: x.repeat(2, 1, 3), None, [(2, 3)]),
    "repeat_interleave": (lambda x: x.repeat_interleave(3, 1), None, [(2, 3)]),
    "roll": (lambda x: x.roll((1, -2), (0, 1)), None, [(3, 5)]),
    "roll flat": (lambda x: x.roll(4), None, [(3, 5)]),
    "rot90": (lambda x: x.rot90(1, (0, 1)), None, [(3, 5)]),
    "rot90 by 3": (lambda x: x.rot90(3, (1, 0)), None, [(3, 5)]),
    "unfold": (lambda x: x.unfold(1, 3, 2), None, [(2, 8)]),
    "unfold with gaps": (lambda x: x.unfold(0, 2, 3), None, [(8, 2)]),
    "diagonal": (lambda x: x.diagonal(1), None, [(4, 5)]),
    "diagonal below": (lambda x: x.diagonal(-1, 0, 2), None, [(4, 2, 3)]),
    "diag": (torch.diag, Tensor.diag, [(4,)]),
    "tril": (lambda x: x.tril(1), None, [(2, 4, 5)]),
    "triu": (lambda x: x.triu(-1), None, [(5, 4)]),
    "pad": (lambda x: F.pad(x, (1, 2, 0, 3)), lambda x: x.pad((1, 2, 0, 3)), [(2, 3)]),
    "pad value": (
        lambda x: F.pad(x, (1, 2), value=3.5),
        lambda x: x.pad((1, 2), value=3.5),
        [(2, 3)],
    ),
    "pad negative": (lambda x: F.pad(x, (-1, 2)), lambda x: x.pad((-1, 2)), [(2, 4)]),
    "pad reflect": (
        lambda x: F.pad(x, (2, 1), mode="reflect"),
        lambda x: x.pad((2, 1), mode="reflect"),
        [(2, 4)],
    ),
    "pad replicate": (
        lambda x: F.pad(x, (2, 1), mode="replicate"),
        lambda x: x.pad((2, 1), mode="replicate"),
        [(2, 4)],
    ),
    "pad circular": (
        lambda x: F.pad(x, (2, 1), mode="circular"),
        lambda x: x.pad((2, 1), mode="circular"),
        [(1, 2, 4)],
    ),
    "cat": (
        lambda a, b, c: torch.cat([a, b, c], 1),
        lambda a, b, c: a.cat(b, c, dim=1),
        [(2, 3), (2, 1), (2, 4)],
    ),
    "cat of nothing": (
        lambda a, b: torch.cat([a, b], 0),
        lambda a, b: a.cat(b),
        [(0, 3), (2, 3)],
    ),
    "stack": (
        lambda a, b: torch.stack([a, b], 1),
        lambda a, b: a.stack(b, dim=1),
        [(2, 3), (2, 3)],
    ),
    "split": (lambda x: x.split([1, 3], 1)[1], None, [(2, 4)]),
    "chunk": (lambda x: x.chunk(3, 0)[2], lambda x: x.chunk(3)[2], [(7, 2)]),
    "meshgrid": (
        lambda a, b: torch.meshgrid(a, b, indexing="xy")[0],
        lambda a, b: a.meshgrid(b, indexing="xy")[0],
        [(3,), (4,)],
    ),
    "movement chain": (
        lambda x: x.permute(1, 0).flip(0).reshape(3, 4)[1:, ::2].expand(2, 2, 2),
        lambda x: x.permute(1, 0).flip(0).reshape(3, 4)[1:, ::2].expand(2, 2, 2),
        [(2, 6)],
    ),
}


@pytest.mark.parametrize("name", MOVEMENT)
def test_movement(name: str) -> None:
    theirs, ours, shapes = MOVEMENT[name]
    compare(theirs, ours, shapes, atol=0, rtol=0)


INDICES: dict[str, Any] = {
    "int": 1,
    "negative int": -1,
    "ints": (1, 2, -3),
    "slice": slice(1, 3),
    "step": (slice(None), slice(None, None, 2)),
    "step with rest": (slice(None), slice(1, None, 2), slice(0, 4, 3)),
    "none": (slice(None), None, 1),
    "ellipsis": (..., 1),
    "ellipsis in the middle": (1, ..., slice(1, 2)),
    "empty": slice(2, 2),
}
BACKWARDS: dict[str, Any] = {
    "reversed": slice(None, None, -1),
    "negative step": (slice(None), slice(None, None, -2)),
    "negative step within": (2, slice(4, 1, -2), slice(None, 1, -1)),
}


@pytest.mark.parametrize("name", INDICES)
def test_basic_indexing(name: str) -> None:
    index = INDICES[name]
    compare(lambda x: x[index], None, [(3, 5, 4)], atol=0, rtol=0)


@pytest.mark.parametrize("name", BACKWARDS)
def test_negative_steps(name: str) -> None:
    values = np.arange(60, dtype=np.float32).reshape(3, 5, 4)
    assert np.array_equal(Tensor(values)[BACKWARDS[name]].numpy(), values[BACKWARDS[name]])


ADVANCED: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "one": lambda x, i, j, m: x[i],
    "second axis": lambda x, i, j, m: x[:, i],
    "two": lambda x, i, j, m: x[i, j],
    "two next to each other": lambda x, i, j, m: x[:, i, j],
    "two apart": lambda x, i, j, m: x[i, :, j],
    "with an int": lambda x, i, j, m: x[i, :, 1],
    "with a slice": lambda x, i, j, m: x[1:, i],
    "with none": lambda x, i, j, m: x[None, i],
    "broadcast": lambda x, i, j, m: x[i.reshape(3, 1), j],
    "mask": lambda x, i, j, m: x[m],
    "mask of rows": lambda x, i, j, m: x[:, m[0]],
}


@pytest.mark.parametrize("name", ADVANCED)
def test_advanced_indexing(name: str) -> None:
    use = ADVANCED[name]
    i, j = np.array([2, 0, -1], np.int32), np.array([1, 3, 0], np.int32)
    mask = np.random.default_rng(0).random((3, 5)) > 0.4
    x = np.random.default_rng(1).random((3, 5, 4)).astype(np.float32)

    if name in ("with an int", "two apart"):  # torch and numpy disagree on none of these
        i = np.array([2, 0, 1], np.int32)
    compare(
        lambda x: use(x, torch.tensor(i).long(), torch.tensor(j).long(), torch.tensor(mask)),
        lambda x: use(x, Tensor(i), Tensor(j), Tensor(mask)),
        arrays=[x],
        atol=0,
        rtol=0,
    )


def test_indexing_with_a_list() -> None:
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert Tensor(values)[[2, 0]].tolist() == values[[2, 0]].tolist()


def test_an_index_out_of_range_picks_zero() -> None:
    assert Tensor([1, 2, 3])[Tensor([0, 7, -9])].tolist() == [1, 0, 0]


def test_gather() -> None:
    index = np.array([[0, 2, 1], [3, 0, 0]], np.int64)
    compare(
        lambda x: x.gather(1, torch.tensor(index)),
        lambda x: x.gather(1, Tensor(index)),
        [(3, 4)],
        atol=0,
        rtol=0,
    )
    compare(
        lambda x: x.gather(0, torch.tensor(index)),
        lambda x: x.gather(0, Tensor(index)),
        [(4, 5)],
        atol=0,
        rtol=0,
    )


def test_scatter() -> None:
    index = np.array([[0, 2, 1], [3, 0, 1]], np.int64)
    compare(
        lambda x, s: x.scatter(1, torch.tensor(index), s),
        lambda x, s: x.scatter(1, Tensor(index), s),
        [(3, 4), (2, 3)],
    )
    compare(
        lambda x, s: x.scatter_add(0, torch.tensor(index), s),
        lambda x, s: x.scatter(0, Tensor(index), s, reduce="add"),
        [(4, 4), (2, 3)],
    )


def test_of_several_sources_for_one_place_the_last_one_counts() -> None:
    x = Tensor.zeros(4).scatter(0, Tensor([1, 1, 2]), Tensor([5.0, 6.0, 7.0]))
    assert x.tolist() == [0, 6, 7, 0]


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
def test_scatter_reduce(reduce: str, include_self: bool) -> None:
    index = np.array([[0, 2, 1], [0, 0, 1]], np.int64)
    compare(
        lambda x, s: x.scatter_reduce(1, torch.tensor(index), s, reduce, include_self=include_self),
        lambda x, s: x.scatter_reduce(1, Tensor(index), s, reduce, include_self=include_self),
        [(3, 4), (2, 3)],
        forward_only=True,
    )


def test_one_hot() -> None:
    labels = np.array([[0, 2], [1, 3]], np.int64)
    expected = F.one_hot(torch.tensor(labels), 4).numpy()
    assert np.array_equal(Tensor(labels).one_hot(4).numpy(), expected)
    assert np.array_equal(Tensor(labels).one_hot().numpy(), expected)


@pytest.mark.parametrize("descending", [False, True])
def test_sort_and_topk(descending: bool) -> None:
    x = np.array([[3, 1, 2, 1, 5, -4], [0, 0, 9, 8, -1, 8]], np.float32)
    values, places = Tensor(x).sort(1, descending)
    expected = torch.sort(torch.tensor(x), dim=1, descending=descending, stable=True)
    assert np.array_equal(values.numpy(), expected.values.numpy())
    assert np.array_equal(places.numpy(), expected.indices.numpy())
    top = Tensor(x).topk(3, 1, largest=descending)[0]
    assert np.array_equal(
        top.numpy(), torch.tensor(x).topk(3, 1, largest=descending).values.numpy()
    )


def test_nonzero_and_masked_select() -> None:
    x = np.array([[0, 5], [7, 0]], np.int32)
    assert np.array_equal(Tensor(x).nonzero().numpy(), np.argwhere(x))
    assert Tensor(x).masked_select(Tensor(x) > 5).tolist() == [7]


# *** setitem ***

ASSIGNMENTS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "int": (1, (5,)),
    "slice": (slice(0, 2), (2, 5)),
    "column": ((slice(None), 2), (3,)),
    "step": ((slice(None), slice(None, None, 2)), (3, 3)),
    "broadcast": ((slice(None), slice(1, 3)), (2,)),
    "scalar": ((2, slice(1, 4)), ()),
    "none": ((None, 1), (1, 5)),
    "ellipsis": ((..., 0), (3,)),
    "positions": (np.array([2, 0]), (2, 5)),
    "positions of two axes": ((np.array([2, 0, 1]), np.array([1, 3, 3])), (3,)),
    "slice and positions": ((slice(1, 3), np.array([4, 0])), (2, 2)),
}


@pytest.mark.parametrize("realized", [True, False])
@pytest.mark.parametrize("name", ASSIGNMENTS)
def test_setitem(name: str, realized: bool) -> None:
    index, shape = ASSIGNMENTS[name]
    target = np.arange(15, dtype=np.float32).reshape(3, 5)
    value = (100 + np.arange(np.prod(shape, dtype=int))).astype(np.float32).reshape(shape)
    ours = Tensor(target) if realized else Tensor(target) + 0.5 - 0.5
    ours[index] = Tensor(value)
    target[index] = value
    assert np.array_equal(ours.numpy(), target)


def test_setitem_backwards() -> None:
    target = np.arange(15, dtype=np.float32).reshape(3, 5)
    ours = Tensor(target)
    ours[::-2, ::-1] = Tensor(np.arange(10, dtype=np.float32).reshape(2, 5))
    target[::-2, ::-1] = np.arange(10).reshape(2, 5)
    assert np.array_equal(ours.numpy(), target)


def test_setitem_with_masks() -> None:
    target = np.arange(15, dtype=np.float32).reshape(3, 5)
    mask = target % 4 == 1
    a, b = Tensor(target), Tensor(target)
    a[Tensor(mask)] = -1
    b[Tensor(mask)] = Tensor([10.0, 20.0, 30.0, 40.0])
    first, second = target.copy(), target.copy()
    first[mask], second[mask] = -1, [10, 20, 30, 40]
    assert np.array_equal(a.numpy(), first) and np.array_equal(b.numpy(), second)


def test_setitem_has_gradients() -> None:
    def put(x: Any, v: Any) -> Any:
        y = x * 2
        y[1:] = v
        return y

    compare(put, None, [(3, 4), (2, 4)])


def test_views_see_what_is_written_and_computed_values_do_not() -> None:
    x = Tensor([1.0, 2.0, 3.0, 4.0]).realize()
    view, double = x[1:3], x * 2
    x[1] = 10
    assert x.tolist() == [1, 10, 3, 4]
    assert view.tolist() == [10, 3]
    assert double.tolist() == [2, 4, 6, 8]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: x.reshape(5, 5),
        lambda x: x.reshape(-1, -1),
        lambda x: x.reshape(7, -1),
        lambda x: x.expand(4, 4),
        lambda x: x.permute(0, 0),
        lambda x: x.permute(0),
        lambda x: x.transpose(0, 2),
        lambda x: x.shrink(((0, 9), None)),
        lambda x: x.pad((1, 2, 3)),
        lambda x: x.pad((5, 5), mode="reflect"),
        lambda x: x.cat(Tensor.zeros(3, 5)),
        lambda x: x.stack(Tensor.zeros(4, 3)),
        lambda x: x.split([1, 1]),
        lambda x: x.unfold(0, 9, 1),
        lambda x: x + Tensor.zeros(3),
        lambda x: x @ Tensor.zeros(3, 4),
        lambda x: x[0, 0, 0],
    ],
)
def test_wrong_shapes_are_clear_errors(wrong: Callable[[Tensor], Any]) -> None:
    with pytest.raises(ShapeError, match=r"\d"):
        wrong(Tensor.zeros(3, 4))


def test_wrong_indices_are_clear_errors() -> None:
    x = Tensor.zeros(3, 4)
    with pytest.raises(IndexError, match="index 3 is out of range for axis 0 of size 3"):
        x[3]
    with pytest.raises(IndexError, match="one Ellipsis"):
        x[..., ...]
    with pytest.raises(TypeError, match="integers or bools"):
        x[Tensor([0.5])]


def test_pads_of_one_value_in_two_kernels_have_conditions_of_their_own() -> None:
    """The padded axes have size 1: all indices are 0, but the conditions are on other loops."""
    x = Tensor(np.full((1, 1, 1), 3, np.float32)).realize() * 2
    narrow, wide = x.pad(((0, 0), (0, 0), (1, 0))), x.pad(((0, 0), (1, 0), (2, 0)))
    Tensor.realize(narrow, wide)
    assert narrow.tolist() == [[[0, 6]]]
    assert wide.tolist() == [[[0, 0, 0], [0, 0, 6]]]
