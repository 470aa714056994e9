"""Writing to tensors: who sees the new value, and who keeps the old one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tgcore import GlobalCounters, Tensor
from tgcore.errors import DTypeError, ShapeError


def memory(values: Any) -> Tensor:
    return Tensor(np.asarray(values, np.float32)).realize()


def test_assign_is_lazy_and_keeps_the_memory() -> None:
    x = memory([1, 2])
    before = x.uop.base
    GlobalCounters.reset()
    x.assign(x * 10)
    assert GlobalCounters.kernel_count == 0
    assert x.tolist() == [10, 20]
    assert x.uop.base is before and GlobalCounters.kernel_count == 1


def test_assigns_in_a_row() -> None:
    x = memory([1, 2])
    for _ in range(3):
        x.assign(x + 1)
    y = x * 2
    x.assign(x * 100)
    assert y.tolist() == [8, 10]
    assert x.tolist() == [400, 500]


def test_an_assign_happens_once() -> None:
    x = memory([1.0])
    x.assign(x + 1)
    a, b = x * 1, x * 2
    assert (a.tolist(), b.tolist(), x.tolist()) == ([2], [4], [2])


def test_what_was_computed_before_keeps_the_old_value() -> None:
    x = memory([1, 2])
    old = x + 0.5
    x.assign(memory([10, 20]))
    assert x.tolist() == [10, 20]
    assert old.tolist() == [1.5, 2.5]


def test_an_assign_whose_value_reads_the_target_in_another_order() -> None:
    x = memory([[1, 2], [3, 4]])
    x.assign(x.permute(1, 0) + x.flip(0))
    assert x.tolist() == [[4, 7], [3, 6]]


def test_two_tensors_swapped() -> None:
    a, b = memory([1, 2]), memory([3, 4])
    old_a = a + 0
    a.assign(b + 0)
    b.assign(old_a)
    Tensor.realize(a, b)
    assert (a.tolist(), b.tolist()) == ([3, 4], [1, 2])


def test_old_and_new_value_in_one_expression() -> None:
    x = memory([1, 2])
    old = x * 2
    x.assign(x + 10)
    assert (old + x).tolist() == [13, 16]
    assert (old * x + old).tolist() == [24, 52]


def test_a_second_assign_that_reads_what_was_before_the_first() -> None:
    x = memory([1, 2])
    old = x * 2
    x.assign(x + 10)
    x.assign(old + x)
    assert x.tolist() == [13, 16]


def test_assigning_to_a_view_writes_the_memory() -> None:
    x = memory(np.zeros((3, 4)))
    x[1, 1:3].assign(memory([7, 8]))
    x[:, 0].assign(memory([1, 2, 3]))
    assert x.tolist() == [[1, 0, 0, 0], [2, 7, 8, 0], [3, 0, 0, 0]]


def test_writing_a_view_touches_only_that_part() -> None:
    x = memory(np.zeros((1000, 10)))
    GlobalCounters.reset()
    x[3] = 1
    assert GlobalCounters.kernel_count == 1 and GlobalCounters.global_mem < 1000
    assert x.sum().item() == 10


def test_in_place_operators() -> None:
    x = memory([8, 9])
    same = x
    x += 2
    x *= 3
    x -= 1
    x /= 2
    x //= 2
    x **= 2
    assert same is x and x.tolist() == [49, 64]
    y = Tensor([6, 5]).realize()
    y &= 3
    y |= 8
    y ^= 1
    y <<= 2
    y >>= 1
    y %= 7
    assert y.tolist() == [(((6 & 3 | 8) ^ 1) << 2 >> 1) % 7, (((5 & 3 | 8) ^ 1) << 2 >> 1) % 7]


def test_in_place_on_an_element() -> None:
    x = memory([1, 2, 3])
    x[1] += 10
    assert x.tolist() == [1, 12, 3]


def test_assign_to_what_is_not_in_memory_becomes_the_value() -> None:
    x = Tensor.zeros(2)
    x.assign(Tensor([1.0, 2.0]))
    assert x.tolist() == [1, 2]
    y = Tensor([1.0, 2.0]) + 1
    y[0] = 9
    assert y.tolist() == [9, 3]


def test_assign_of_a_number() -> None:
    x = memory([[1, 2]])
    assert x.assign(5).tolist() == [[5, 5]]


def test_constants_that_are_equal_are_written_one_by_one() -> None:
    a, b = Tensor.zeros(2).contiguous().realize(), Tensor.zeros(2).contiguous().realize()
    a[0] = 1
    assert (a.tolist(), b.tolist()) == ([1, 0], [0, 0])


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_what_is_merely_equal_is_apart(together: bool, whole: bool) -> None:
    x = memory([1, 2])
    for make in (lambda: Tensor.zeros(2).contiguous(), lambda: Tensor.ones(2), lambda: x + 1):
        a, b = make(), make()
        before = make().tolist()
        Tensor.realize(*([a, b] if together else [a]))
        if whole:
            a.assign(a + 5).realize()
            assert a.tolist() == [before[0] + 5, before[1] + 5]
        else:
            a[0] = 9
            assert a.tolist() == [9, before[1]]
        assert b.tolist() == before


def test_a_clone_has_memory_of_its_own() -> None:
    x = memory([1, 2])
    y = x.clone().realize()
    x.assign(x * 0)
    assert (x.tolist(), y.tolist()) == ([0, 0], [1, 2])


def test_views_of_the_memory_follow() -> None:
    x = memory([1, 2, 3, 4])
    row = x.reshape(2, 2)
    x.assign(x + 1).realize()
    assert row.tolist() == [[2, 3], [4, 5]]


def test_replace() -> None:
    x = memory([1, 2])
    assert x.replace(memory([3, 4])).tolist() == [3, 4]
    with pytest.raises(ShapeError, match="replace"):
        x.replace(memory([1]))


def test_misuse_is_a_clear_error() -> None:
    x = memory([1, 2])
    with pytest.raises(ShapeError, match=r"assign.*\(3,\).*\(2,\)"):
        x.assign(memory([1, 2, 3]))
    with pytest.raises(DTypeError, match=r"assign.*int32.*float32"):
        x.assign(Tensor([1, 2]))
    with pytest.raises(ShapeError, match="setitem"):
        x[0:2] = memory([1, 2, 3])
    with pytest.raises(DTypeError, match="cast first"):
        y = Tensor([1, 2])
        y += 0.5


def four(start: float = 0) -> Tensor:
    return Tensor(np.arange(4, dtype=np.float32) + start).realize()


def test_a_value_between_two_assigns_that_wait() -> None:
    s = four()
    s.assign(s * 0.5 + 1)
    between = s * 2
    s.assign(s * 0.5 + 1)
    assert s.tolist() == [1.5, 1.75, 2, 2.25]
    assert between.tolist() == [2, 3, 4, 5]


def test_an_assign_runs_even_if_its_values_turn_out_not_to_be_needed() -> None:
    a, b, c = four(), four(1), four()
    a.assign(c * 0.5 + 1)
    joined = a[1:3].cat(b[0:2])
    c[1:3] = joined[2:4] * 0.5  # cuts off what came from a
    assert joined.tolist() == [1.5, 2, 1, 2]
    assert a.tolist() == [1, 1.5, 2, 2.5]


def test_assigns_that_read_what_the_other_one_overwrites() -> None:
    s, t = four(), four(1)
    s.assign(s * 0.5 + 1)
    s_new, t_old = s, t[1:3].cat(t[0:2])
    t += s_new
    s += t_old
    del t_old
    Tensor.realize(s, t)
    assert s.tolist() == [3, 4.5, 3, 4.5]
    assert t.tolist() == [2, 3.5, 5, 6.5]


def test_old_and_new_values_of_a_second_assign() -> None:
    s = four()
    s.assign(s * 0.5 + 1)
    first = s * 1.5
    s += s
    s += first
    del first
    assert s.tolist() == [3.5, 5.25, 7, 8.75]


def test_setitem_after_an_assign_that_waits_writes_to_the_same_memory() -> None:
    s = four()
    view = s[2:4]
    s.assign(s + 1)
    s[3] = 9
    assert s.tolist() == [1, 2, 3, 9] and view.tolist() == [3, 9]
