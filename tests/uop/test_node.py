"""UOp: identity, lifetime, facts."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys

import pytest

from tgcore.dtype import dtypes
from tgcore.errors import ShapeError
from tgcore.uop import AxisType, Ops, UOp
from tgcore.uop.node import infer, live_nodes


def index(value: int) -> UOp:
    return UOp.const(dtypes.index, value)


def buffer(*shape: int) -> UOp:
    size = 1
    for s in shape:
        size *= s
    return UOp.new_buffer("TEST", size, dtypes.float32).reshape(shape)


def test_equal_nodes_are_one_object() -> None:
    assert UOp.variable("i", 0, 3) + 1 is UOp.variable("i", 0, 3) + 1


def test_nodes_of_other_types_differ() -> None:
    assert UOp.const(dtypes.int32, 1) is not UOp.const(dtypes.int64, 1)


def test_negative_zero_is_not_zero() -> None:
    assert UOp.const(dtypes.float32, -0.0) is not UOp.const(dtypes.float32, 0.0)


def test_nan_is_one_constant() -> None:
    assert UOp.const(dtypes.float32, float("nan")) is UOp.const(dtypes.float32, -float("nan"))


def test_nodes_die_with_their_last_user() -> None:
    gc.collect()
    before = live_nodes()
    node = UOp.variable("short_lived", 0, 7)
    for step in range(1000):
        node = node * 3 + step
    assert live_nodes() > before + 1000
    del node
    assert live_nodes() <= before + 1


def test_a_chain_of_100_000_nodes_needs_no_recursion() -> None:
    node = UOp.variable("i", 0, 1)
    for _ in range(100_000):
        node = node.alu(Ops.ADD, index(1))
    assert node.bounds == (100_000, 100_001)
    assert len(node.toposort()) == 100_002
    del node


def test_pickle_gives_the_same_object() -> None:
    node = buffer(3, 4).permute((1, 0)) + 1.5
    assert pickle.loads(pickle.dumps(node)) is node


def test_key_is_the_same_in_another_process() -> None:
    program = (
        "from tgcore.uop import UOp; from tgcore.dtype import dtypes;"
        "print(((UOp.variable('n', 1, 9) * 4 + 2).cast(dtypes.int32)).key.hex())"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    here = (UOp.variable("n", 1, 9) * 4 + 2).cast(dtypes.int32).key.hex()
    assert out.stdout.decode().strip() == here


def test_key_tells_graphs_apart() -> None:
    i = UOp.variable("i", 0, 3)
    assert (i + 1).key != (i + 2).key


@pytest.mark.parametrize(
    ("node", "shape"),
    [
        (buffer(2, 3).permute((1, 0)), (3, 2)),
        (buffer(2, 1).expand((2, 5)), (2, 5)),
        (buffer(2, 3).pad((1, 0), (4, 3)), (4, 3)),
        (buffer(4, 3).shrink((1, 1), (2, 2)), (2, 2)),
        (buffer(4, 3).flip((0,)), (4, 3)),
        (buffer(4, 3).reduce_axis(Ops.ADD, (1,)), (4, 1)),
        (buffer(4, 3) + UOp.const(dtypes.float32, 1), (4, 3)),
        (UOp.const(dtypes.float32, 1), ()),
    ],
)
def test_shape(node: UOp, shape: tuple[int, ...]) -> None:
    assert node.shape == shape


def test_pad_and_shrink_tell_what_they_do() -> None:
    assert buffer(2, 3).pad((1, 0), (4, 3)).marg == ((1, 1), (0, 0))
    assert buffer(4, 3).shrink((1, 1), (2, 2)).marg == ((1, 3), (1, 3))


def test_unequal_shapes_are_an_error_that_names_them() -> None:
    with pytest.raises(ShapeError, match=r"\(2, 3\).*\(3, 2\)"):
        _ = (buffer(2, 3) + buffer(3, 2)).shape


def test_ranges_are_open_until_a_reduce_ends_them() -> None:
    i, j = UOp.range(4, 0), UOp.range(5, 1, AxisType.REDUCE)
    product = i.cast(dtypes.float32) * j.cast(dtypes.float32)
    assert list(product.ranges) == [i, j]
    assert list(product.reduce(Ops.ADD, j).ranges) == [i]


@pytest.mark.parametrize(
    ("expression", "bounds"),
    [
        (UOp.variable("i", 0, 9) * -2, (-18, 0)),
        (UOp.variable("i", -5, 9) // 4, (-2, 2)),
        (UOp.variable("i", -5, 9) % 4, (0, 3)),
        (UOp.variable("i", 4, 7) % 4, (0, 3)),
        (UOp.variable("i", 4, 6) % 4, (0, 2)),
        (UOp.variable("i", 0, 9) < 10, (True, True)),
        (UOp.variable("i", 0, 9) < 0, (False, False)),
    ],
)
def test_bounds(expression: UOp, bounds: tuple[int, int]) -> None:
    assert expression.bounds == bounds


def test_bounds_of_wrapping_integers_are_those_of_the_type() -> None:
    i = UOp.variable("i", 0, 100).cast(dtypes.int8)
    assert (i + i).bounds == (-128, 127)


def test_bind_refuses_a_value_out_of_range() -> None:
    with pytest.raises(ValueError, match=r"11 is not in the range \[1, 10\] of n"):
        UOp.variable("n", 1, 10).bind(11)


def test_infer_evaluates() -> None:
    n = UOp.variable("n", 1, 10)
    assert infer(n * 4 + 2, {"n": 3}) == 14


def test_a_symbolic_value_has_no_truth_value() -> None:
    with pytest.raises(ValueError, match="no truth value"):
        bool(UOp.variable("n", 0, 10) < 5)
