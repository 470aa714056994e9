"""Matrix products, convolution, pooling, normalisation and losses against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.tensor.helpers import compare, random_arrays
from tgcore import Tensor
from tgcore.errors import DTypeError, ShapeError


@pytest.mark.parametrize(
    "shapes",
    [
        ((3, 4), (4, 5)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((4,), (4,)),
        ((2, 3, 4), (2, 4, 5)),
        ((2, 1, 3, 4), (3, 4, 5)),
        ((2, 3, 4), (4,)),
        ((4,), (2, 4, 3)),
        ((1, 1), (1, 1)),
    ],
)
def test_matmul(shapes: Any) -> None:
    compare(lambda a, b: a @ b, None, shapes)


def test_matmul_of_views() -> None:
    compare(lambda a, b: a.permute(1, 0)[1:] @ b[:, ::2], None, [(4, 3), (4, 6)])


def test_matmul_of_integers() -> None:
    a = np.arange(12, dtype=np.int32).reshape(3, 4)
    assert np.array_equal((Tensor(a) @ Tensor(a.T)).numpy(), a @ a.T)


@pytest.mark.parametrize(
    ("formula", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("ij->ji", [(2, 3)]),
        ("ij->", [(2, 3)]),
        ("ii->i", [(3, 3)]),
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
        ("i,j->ij", [(2,), (3,)]),
        ("ij,ij", [(2, 3), (2, 3)]),
        ("...ij,...jk->...ik", [(2, 3, 4), (2, 4, 5)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)]),
    ],
)
def test_einsum(formula: str, shapes: Any) -> None:
    compare(lambda *a: torch.einsum(formula, *a), lambda *a: Tensor.einsum(formula, *a), shapes)


CONVOLUTIONS: dict[str, tuple[Any, dict[str, Any]]] = {
    "plain": (((2, 3, 7, 6), (4, 3, 3, 3)), {}),
    "1x1": (((2, 3, 4, 4), (4, 3, 1, 1)), {}),
    "stride": (((1, 2, 9, 8), (3, 2, 3, 3)), {"stride": 2}),
    "large stride": (((1, 2, 9, 9), (3, 2, 2, 2)), {"stride": (3, 4)}),
    "dilation": (((1, 2, 9, 8), (3, 2, 3, 2)), {"dilation": (2, 3)}),
    "padding": (((1, 2, 5, 5), (3, 2, 3, 3)), {"padding": (1, 2)}),
    "groups": (((2, 4, 5, 5), (6, 2, 3, 3)), {"groups": 2}),
    "depthwise": (((1, 3, 5, 5), (3, 1, 3, 3)), {"groups": 3, "padding": 1}),
    "all": (((1, 4, 9, 9), (4, 2, 3, 3)), {"groups": 2, "padding": 1, "stride": 2, "dilation": 2}),
    "one axis": (((2, 3, 9), (4, 3, 4)), {"stride": 2, "padding": 1}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_conv2d(name: str) -> None:
    shapes, options = CONVOLUTIONS[name]
    bias = (shapes[1][0],)
    conv = F.conv2d if len(shapes[0]) == 4 else F.conv1d
    compare(
        lambda x, w, b: conv(x, w, b, **options),
        lambda x, w, b: x.conv2d(w, b, **options),
        [*shapes, bias],
        atol=1e-5,
        grad_atol=3e-5,
    )


def test_conv2d_with_uneven_padding() -> None:
    compare(
        lambda x, w: F.conv2d(F.pad(x, (1, 2, 0, 3)), w),
        lambda x, w: x.conv2d(w, padding=(1, 2, 0, 3)),
        [(1, 2, 4, 4), (3, 2, 3, 3)],
        atol=1e-5,
        grad_atol=3e-5,
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stride": 2},
        {"padding": 1},
        {"dilation": 2},
        {"stride": 2, "padding": 1, "output_padding": 1},
        {"groups": 2},
    ],
)
def test_conv_transpose2d(options: dict[str, Any]) -> None:
    compare(
        lambda x, w: F.conv_transpose2d(x, w, **options),
        lambda x, w: x.conv_transpose2d(w, **options),
        [(1, 4, 4, 3), (4, 2, 3, 3)],
        atol=1e-5,
        grad_atol=3e-5,
    )


POOLS: dict[str, tuple[Any, dict[str, Any]]] = {
    "plain": (2, {}),
    "overlapping": (3, {"stride": 2}),
    "stride larger than the kernel": (2, {"stride": 3}),
    "padding": (3, {"stride": 2, "padding": 1}),
    "oblong": ((2, 3), {"stride": (1, 2)}),
    "ceil": (2, {"ceil_mode": True}),
    "ceil with padding": (3, {"stride": 2, "padding": 1, "ceil_mode": True}),
}


@pytest.mark.parametrize("name", POOLS)
def test_pooling(name: str) -> None:
    kernel, options = POOLS[name]
    for theirs, ours in ((F.max_pool2d, Tensor.max_pool2d), (F.avg_pool2d, Tensor.avg_pool2d)):
        compare(
            lambda x, f=theirs: f(x, kernel, **options),
            lambda x, f=ours: f(x, kernel, **options),
            [(2, 2, 7, 9)],
        )


def test_max_pool2d_with_dilation_and_indices() -> None:
    x = np.random.default_rng(0).random((1, 2, 7, 7)).astype(np.float32)
    expected = F.max_pool2d(torch.tensor(x), 2, 2, 0, 2, return_indices=True)
    found = Tensor(x).max_pool2d(2, 2, dilation=2, return_indices=True)
    for a, b in zip(found, expected):
        assert np.array_equal(a.numpy(), b.numpy())


def test_avg_pool2d_without_padding_in_the_count() -> None:
    compare(
        lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        lambda x: x.avg_pool2d(3, 2, padding=1, count_include_pad=False),
        [(1, 2, 6, 6)],
    )


@pytest.mark.parametrize("size", [(6, 8), (3, 2), (4, 4)])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "linear", "aligned"])
def test_interpolate(mode: str, size: Any) -> None:
    name = {"linear": "bilinear", "aligned": "bilinear"}.get(mode, mode)
    options = {"align_corners": mode == "aligned"} if name == "bilinear" else {}
    compare(
        lambda x: F.interpolate(x, size, mode=name, **options),
        lambda x: x.interpolate(size, "linear" if mode == "aligned" else mode, mode == "aligned"),
        [(1, 2, 4, 4)],
    )


def test_layernorm() -> None:
    compare(lambda x: F.layer_norm(x, (5,)), lambda x: x.layernorm(), [(3, 5)])
    compare(lambda x: F.layer_norm(x, (4, 5)), lambda x: x.layernorm((1, 2)), [(3, 4, 5)])


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal: bool) -> None:
    compare(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
        lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=causal),
        [(2, 2, 5, 4)] * 3,
    )


def test_attention_with_masks_and_shared_keys() -> None:
    mask = np.tril(np.ones((5, 6), bool), 1)
    compare(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, torch.tensor(mask)),
        lambda q, k, v: q.scaled_dot_product_attention(k, v, Tensor(mask)),
        [(2, 5, 4), (2, 6, 4), (2, 6, 3)],
    )
    compare(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        lambda q, k, v: q.scaled_dot_product_attention(k, v, enable_gqa=True),
        [(1, 4, 5, 4), (1, 2, 5, 4), (1, 2, 5, 4)],
    )


# *** losses ***

LABELS = np.array([0, 2, 1, 2, -100], np.int64)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_cross_entropy(reduction: str, smoothing: float) -> None:
    compare(
        lambda x: F.cross_entropy(
            x, torch.tensor(LABELS), reduction=reduction, label_smoothing=smoothing
        ),
        lambda x: x.cross_entropy(Tensor(LABELS), reduction, smoothing),
        [(5, 3)],
    )


def test_cross_entropy_of_weighted_classes() -> None:
    weight = np.array([0.5, 2.0, 1.0], np.float32)
    compare(
        lambda x: F.cross_entropy(x, torch.tensor(LABELS), torch.tensor(weight)),
        lambda x: x.cross_entropy(Tensor(LABELS), weight=Tensor(weight)),
        [(5, 3)],
    )


def test_cross_entropy_of_images_and_of_probabilities() -> None:
    labels = np.random.default_rng(0).integers(0, 3, (2, 4))
    compare(
        lambda x: F.cross_entropy(x, torch.tensor(labels)),
        lambda x: x.cross_entropy(Tensor(labels)),
        [(2, 3, 4)],
    )
    compare(
        lambda x, y: F.cross_entropy(x, y.softmax(1), label_smoothing=0.1),
        lambda x, y: x.cross_entropy(y.softmax(1), label_smoothing=0.1),
        [(4, 3), (4, 3)],
    )


def test_sparse_categorical_crossentropy() -> None:
    labels = np.array([1, -1, 0], np.int64)
    compare(
        lambda x: F.cross_entropy(x, torch.tensor(labels), ignore_index=-1, label_smoothing=0.1),
        lambda x: x.sparse_categorical_crossentropy(Tensor(labels), label_smoothing=0.1),
        [(3, 4)],
    )


def test_nll_loss() -> None:
    labels, weight = np.array([1, 3, 0], np.int64), np.array([1, 2, 3, 0.5], np.float32)
    compare(
        lambda x: F.nll_loss(x, torch.tensor(labels), torch.tensor(weight), ignore_index=3),
        lambda x: x.nll_loss(Tensor(labels), Tensor(weight), 3),
        [(3, 4)],
    )


def test_binary_cross_entropies_and_distances() -> None:
    target = np.array([[0.0, 1.0, 0.3]], np.float32)
    compare(
        lambda x: F.binary_cross_entropy(x, torch.tensor(target)),
        lambda x: x.binary_crossentropy(Tensor(target)),
        [(1, 3)],
        low=0.1,
        high=0.9,
    )
    compare(
        lambda x: F.binary_cross_entropy_with_logits(x, torch.tensor(target)),
        lambda x: x.binary_crossentropy_logits(Tensor(target)),
        [(1, 3)],
    )
    compare(F.mse_loss, lambda a, b: a.mse_loss(b), [(2, 3), (2, 3)])
    compare(F.l1_loss, lambda a, b: a.l1_loss(b), [(2, 3), (2, 3)])


def test_dropout_keeps_the_mean_and_only_acts_in_training() -> None:
    Tensor.manual_seed(3)
    x = Tensor.ones(100, 100)
    assert x.dropout(0.3) is x
    with Tensor.train():
        y = x.dropout(0.3).numpy()
        assert (x.dropout(1.0).numpy() == 0).all()
    assert set(np.unique(y)) == {np.float32(0), np.float32(1) / np.float32(0.7)}
    assert abs(y.mean() - 1) < 0.03


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: x.conv2d(Tensor.zeros(2, 4, 3, 3)),
        lambda x: x.conv2d(Tensor.zeros(2, 3, 9, 9)),
        lambda x: x.conv2d(Tensor.zeros(2, 3, 3, 3), padding=(1, 2, 3)),
        lambda x: x.max_pool2d(9),
        lambda x: x.conv_transpose2d(Tensor.zeros(2, 3, 3, 3)),
        lambda x: x.mse_loss(Tensor.zeros(2)),
        lambda x: x.cross_entropy(Tensor.zeros(2, dtype="int32")),
        lambda x: Tensor.einsum("ij,jk->ik", x, x),
    ],
)
def test_wrong_shapes_are_clear_errors(wrong: Any) -> None:
    with pytest.raises(ShapeError):
        wrong(Tensor.zeros(1, 3, 5, 5))


def test_classes_must_be_integers() -> None:
    with pytest.raises(DTypeError, match="integers"):
        Tensor.zeros(2, 3).nll_loss(Tensor.zeros(2))


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("size", [(8, 9), (3, 4), (5, 7), (1, 1)])
def test_cubic_interpolation(size: tuple[int, int], aligned: bool) -> None:
    compare(
        lambda x: F.interpolate(x, size, mode="bicubic", align_corners=aligned),
        lambda x: x.interpolate(size, "bicubic", aligned),
        [(2, 3, 5, 7)],
        atol=5e-6,
    )


@pytest.mark.parametrize("options", [{}, {"stride": 3}, {"padding": 1}])
def test_max_unpool2d_puts_elements_back(options: dict[str, int]) -> None:
    x = random_arrays([(2, 3, 7, 9)])[0]
    values, places = F.max_pool2d(torch.tensor(x), 3, return_indices=True, **options)
    found = Tensor(values.numpy()).max_unpool2d(
        Tensor(places.numpy()), 3, output_size=(7, 9), **options
    )
    expected = F.max_unpool2d(values, places, 3, output_size=(7, 9), **options)
    np.testing.assert_array_equal(found.numpy(), expected.numpy())


def test_max_unpool2d_works_out_the_size() -> None:
    def there_and_back(x: Any, pool: Any, unpool: Any) -> Any:
        return unpool(*pool(x, 2, return_indices=True), 2)

    compare(
        lambda x: there_and_back(x, F.max_pool2d, F.max_unpool2d),
        lambda x: there_and_back(x, Tensor.max_pool2d, Tensor.max_unpool2d),
        [(1, 2, 4, 6)],
    )
