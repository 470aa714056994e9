"""TinyJit: a replay gives what running the function would give, or says why it cannot."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.tensor.helpers import (
    needs_memory_that_the_host_sees,
    needs_the_device_in_other_processes,
)
from tgcore import Context, GlobalCounters, Tensor, TinyJit, Variable, nn
from tgcore.errors import TgcoreError
from tgcore.helpers import JIT
from tgcore.runtime.jit import JitError

only_with_jit = pytest.mark.skipif(not JIT, reason="nothing is captured with JIT=0")


def ready(values: Any) -> Tensor:
    return Tensor(np.asarray(values, np.float32)).realize()


def test_a_replay_uses_new_arguments() -> None:
    @TinyJit
    def add(a: Tensor, b: Tensor) -> Tensor:
        return (a + b).realize()

    for n in range(5):
        assert add(ready([n]), ready([10 * n])).tolist() == [11 * n]
    assert (add.captured is not None) == bool(JIT)


def test_results_and_arguments_that_are_not_realised() -> None:
    @TinyJit
    def double(a: Tensor) -> Tensor:
        return a * 2

    for n in range(4):
        assert double(Tensor([1.0 * n]) + 1).tolist() == [2 * n + 2]
        assert double(Tensor.ones(1) * n).tolist() == [2 * n]


def test_an_earlier_result_keeps_its_value() -> None:
    @TinyJit
    def double(a: Tensor) -> Tensor:
        return (a * 2).realize()

    results = [double(ready([n])) for n in range(5)]
    assert [r.tolist() for r in results] == [[0], [2], [4], [6], [8]]


def test_a_result_fed_back_as_argument() -> None:
    @TinyJit
    def grow(a: Tensor) -> Tensor:
        return (a * 2 + 1).realize()

    x, expected = ready([1]), 1.0
    for _ in range(6):
        x, expected = grow(x), expected * 2 + 1
        assert x.tolist() == [expected]


def test_state_that_is_assigned_goes_on() -> None:
    state = ready([0.0, 0.0])

    @TinyJit
    def step(x: Tensor) -> Tensor:
        state.assign(state + x)
        return (state * 10).realize()

    total = np.zeros(2)
    for n in range(5):
        total += n
        assert step(ready([n, n])).tolist() == list(total * 10)
        assert state.tolist() == list(total)


def test_state_that_is_assigned_last_and_not_realised() -> None:
    count = ready([0.0])

    @TinyJit
    def step(x: Tensor) -> Tensor:
        result = (count + x).realize()
        count.assign(count + 1)
        return result

    assert [step(ready([0])).item() for _ in range(5)] == [0, 1, 2, 3, 4]
    assert count.item() == 5


def test_state_that_is_returned_is_that_state() -> None:
    state = ready([1.0])

    @TinyJit
    def step(x: Tensor) -> Tensor:
        return state.assign(state * x).realize()

    for _ in range(4):
        result = step(ready([2.0]))
        assert result is state
    assert state.item() == 16


def test_setitem_on_state() -> None:
    cache = Tensor.zeros(4, 2).contiguous().realize()

    @TinyJit
    def put(row: Tensor) -> Tensor:
        cache[1] = row
        return cache.sum(0).realize()

    for n in range(4):
        assert put(ready([n, 2 * n])).tolist() == [n, 2 * n]


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


def test_nested_arguments_and_results() -> None:
    @TinyJit
    def mix(pair: Pair, more: dict[str, Any]) -> dict[str, Any]:
        return {"sum": pair.first + more["x"][0], "both": Pair(pair.second * 2, pair.first), "n": 7}

    for n in range(4):
        result = mix(Pair(ready([n]), ready([1])), {"x": [ready([5])]})
        assert result["sum"].tolist() == [n + 5] and result["n"] == 7
        assert result["both"].first.tolist() == [2] and result["both"].second.tolist() == [n]


def test_methods_have_a_capture_for_each_object() -> None:
    class Scale:
        def __init__(self, factor: float) -> None:
            self.factor = ready([factor])

        @TinyJit
        def run(self, x: Tensor) -> Tensor:
            return (x * self.factor).realize()

    two, three = Scale(2), Scale(3)
    for n in range(4):
        assert two.run(ready([n])).tolist() == [2 * n]
        assert three.run(ready([n])).tolist() == [3 * n]


def test_variables() -> None:
    n = Variable("n", 1, 8)
    data = ready(np.arange(8))

    @TinyJit
    def total(x: Tensor, count: Any) -> Tensor:
        return x[:count].sum().realize()

    for value in (2, 3, 8, 5, 1):
        assert total(data, n.bind(value)).item() == sum(range(value))


def test_a_position_that_moves_through_a_cache() -> None:
    position = Variable("position", 0, 7)
    cache = Tensor.zeros(8).contiguous().realize()

    @TinyJit
    def put(x: Tensor, place: Any) -> Tensor:
        cache[place] = x
        return cache.sum().realize()

    for n in range(6):
        assert put(ready(n + 1.0), position.bind(n)).item() == sum(range(1, n + 2))


def test_a_train_step_is_the_same_as_without() -> None:
    def losses(jit: bool) -> list[float]:
        Tensor.manual_seed(3)
        layer = nn.Linear(4, 2)
        optimizer = nn.optim.Adam(nn.state.get_parameters(layer), lr=0.05)
        x, y = Tensor.randn(16, 4).realize(), Tensor.randint(16, high=2).realize()

        def step(x: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = layer(x).dropout(0.2).sparse_categorical_crossentropy(y)
            loss.backward()
            optimizer.step()
            return loss.realize()

        run = TinyJit(step) if jit else step
        with Tensor.train():
            return [run(x, y).item() for _ in range(6)]

    np.testing.assert_allclose(losses(True), losses(False), rtol=1e-6)


@only_with_jit
def test_a_replay_runs_as_many_kernels_and_no_python() -> None:
    calls = []

    @TinyJit
    def f(x: Tensor) -> Tensor:
        calls.append(1)
        return ((x + 1).contiguous() * 2).realize()

    counts = []
    for n in range(4):
        GlobalCounters.reset()
        x = ready([n])
        f(x)
        counts.append(GlobalCounters.kernel_count)
    assert len(calls) == 2 and set(counts) == {2}


def test_switched_off_it_runs_the_function() -> None:
    calls = []

    @TinyJit
    def f(x: Tensor) -> Tensor:
        calls.append(1)
        return (x + 1).realize()

    with Context(JIT=0):
        for n in range(4):
            f(ready([n]))
    assert len(calls) == 4


def test_a_result_that_is_a_view_of_an_argument() -> None:
    f = TinyJit(lambda a: ((a * 2).realize(), a.reshape(2, 1)))
    for n in range(4):
        assert f(ready([n, n + 1]))[1].tolist() == [[n], [n + 1]]


def test_a_result_has_the_shape_of_its_call() -> None:
    n = Variable("n", 1, 8)
    f = TinyJit(lambda x, count: x[:count] * 2)
    for count in (2, 3, 8, 1):
        assert f(ready(np.arange(8)), n.bind(count)).tolist() == [2 * k for k in range(count)]


def test_one_result_given_twice_is_one_tensor() -> None:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        y = (x + 1).realize()
        return y, y

    run = TinyJit(f)
    for n in range(4):
        one, other = run(ready([n]))
        assert one is other and one.tolist() == [n + 1]


def test_an_assign_that_waits_is_no_part_of_the_function() -> None:
    state, other = ready([0.0]), ready([0.0])
    f = TinyJit(lambda x: (state + x).realize())
    for _ in range(5):
        other.assign(other + 1)
        state.assign(state + 1)
        f(ready([1]))
    assert (other.tolist(), state.tolist()) == ([5], [5])
    assert f(ready([1])).tolist() == [6]


def test_what_was_computed_from_state_keeps_the_old_value() -> None:
    state = ready([1.0])

    @TinyJit
    def step(x: Tensor) -> Tensor:
        return state.assign(state + x).realize()

    before = []
    for _ in range(5):
        before.append(state * 10)
        step(ready([1]))
    assert [t.item() for t in before] == [10, 20, 30, 40, 50]


def test_memory_shared_with_other_libraries_is_not_overwritten() -> None:
    needs_memory_that_the_host_sees()
    f = TinyJit(lambda x: (x * 2).realize())
    shared = [np.from_dlpack(f(ready([n]))) for n in range(5)]
    assert [s.tolist() for s in shared] == [[0], [2], [4], [6], [8]]


def test_a_gradient_cannot_flow_back_to_state_that_a_replay_overwrote() -> None:
    w = ready([2.0])
    w.requires_grad = True

    @TinyJit
    def step(x: Tensor) -> Tensor:
        return w.assign(w.detach() + x).realize()

    for _ in range(3):
        loss = (w * w).sum()
        loss.realize()
        step(ready([1]))
        with pytest.raises(TgcoreError, match="backward"):
            loss.backward()


# *** pruning, freeing, pickles ***


@only_with_jit
def test_pruned_kernels_run_once() -> None:
    weight, count = ready(np.arange(4)), ready([0.0])

    def f(x: Tensor) -> Tensor:
        table = (weight * 2 + 1).contiguous()  # the same each time
        count.assign(count + 1)
        return (x * table + count).realize()

    numbers = []
    for prune in (False, True):
        count.assign(Tensor([0.0])).realize()
        run = TinyJit(f, prune=prune)
        for n in range(5):
            assert run(ready([n] * 4)).tolist() == [n * (2 * k + 1) + n + 1 for k in range(4)]
        assert run.captured is not None
        numbers.append(run.captured.kernel_count)
    assert numbers[1] == numbers[0] - 1


@only_with_jit
def test_memory_of_temporaries_is_given_back_and_taken_again() -> None:
    size = 1 << 20
    f = TinyJit(lambda x: ((x + 1).contiguous() * 2).contiguous().sum().realize())
    x = Tensor.ones(size).contiguous().realize()
    for _ in range(3):
        assert f(x).item() == 4 * size
    assert f.captured is not None
    before = GlobalCounters.mem_used
    f.captured.free_intermediates()
    assert GlobalCounters.mem_used <= before - 4 * size
    assert f(x).item() == 4 * size


def decoder() -> TinyJit[..., Any]:
    """A captured function with weights, state that it gives out, views and a variable."""
    weight, cache = ready(np.arange(4)), Tensor.zeros(8, 4).contiguous().realize()

    @TinyJit
    def step(x: Tensor, place: Any) -> dict[str, Any]:
        cache[place] = x * weight
        return {"cache": cache, "both": (x + 1, x.reshape(2, 2)), "sum": cache.sum(), "n": 7}

    position = Variable("position", 0, 7)
    for n in range(3):
        step(ready([n] * 4), position.bind(n))
    return step


def check_decoder(step: Any) -> None:
    position = Variable("position", 0, 7)
    expected = np.zeros((8, 4))
    expected[1], expected[2] = np.arange(4), 2 * np.arange(4)
    for n in range(3, 6):
        expected[n] = n * np.arange(4)
        found = step(ready([n] * 4), position.bind(n))
        assert found["cache"].numpy().tolist() == expected.tolist()
        assert found["both"][0].tolist() == [n + 1] * 4
        assert found["both"][1].tolist() == [[n, n], [n, n]]
        assert found["sum"].item() == expected.sum() and found["n"] == 7


@only_with_jit
def test_a_capture_is_pickled_with_its_memory() -> None:
    step = decoder()
    kept = pickle.dumps(step)
    check_decoder(pickle.loads(kept))
    check_decoder(step)  # which has memory of its own
    check_decoder(pickle.loads(kept))
    check_decoder(copy.deepcopy(pickle.loads(kept)))


@only_with_jit
def test_a_capture_runs_in_another_process(tmp_path: Path) -> None:
    needs_the_device_in_other_processes()
    (tmp_path / "step").write_bytes(pickle.dumps(decoder()))
    program = (
        "import pickle, sys; from tests.tensor.test_jit import check_decoder;"
        "check_decoder(pickle.load(open(sys.argv[1], 'rb')))"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path / "step"], check=True, timeout=100)


@only_with_jit
def test_what_cannot_be_pickled_says_why() -> None:
    f = TinyJit(lambda x, other: (x + 1).realize())
    with pytest.raises(JitError, match="not captured yet"):
        pickle.dumps(f)
    for n in range(2):
        f(ready([n]), np.add)
    with pytest.raises(JitError, match=r"argument 1 .*identity"):
        pickle.dumps(f)
    g = TinyJit(lambda x: (x + 1).realize())
    for n in range(2):
        g(ready([n]))
    restored = pickle.loads(pickle.dumps(g))
    restored.reset()
    with pytest.raises(JitError, match="the function is not"):
        restored(ready([1]))


# *** refusals ***


@only_with_jit
@pytest.mark.parametrize(
    ("first", "then", "message"),
    [
        ((lambda: (ready([1, 2]),)), (lambda: (ready([1]),)), r"argument 0 .*\(2,\).*\(1,\)"),
        ((lambda: (ready([1]),)), (lambda: (Tensor([1]).realize(),)), "float32.*int32"),
        ((lambda: (ready([1]), 3)), (lambda: (ready([1]), 4)), "argument 1 .*3.*4"),
        ((lambda: (ready([1]),)), (lambda: (ready([1]), 4)), "argument 1"),
        ((lambda: ([ready([1])],)), (lambda: ([ready([1])] * 2,)), "len"),
    ],
)
def test_other_arguments_are_refused(first: Any, then: Any, message: str) -> None:
    f = TinyJit(lambda x, *rest: (x[0] if isinstance(x, list) else x) + 1)
    for _ in range(3):
        f(*first())
    with pytest.raises(JitError, match=message):
        f(*then())


@only_with_jit
def test_a_shared_argument_while_capturing_is_refused() -> None:
    f = TinyJit(lambda a, b: (a + b).realize())
    x = ready([1])
    f(x, x)
    with pytest.raises(JitError, match="0 and 1 share memory"):
        f(x, x)


@only_with_jit
def test_a_function_that_runs_nothing_is_refused() -> None:
    f = TinyJit(lambda a: a)
    x = ready([1])
    f(x)
    with pytest.raises(JitError, match="no kernel"):
        f(x)


@only_with_jit
def test_what_depends_on_values_is_refused() -> None:
    f = TinyJit(lambda a: a[a > 0].sum().realize())
    f(ready([1, -1]))
    with pytest.raises(JitError, match="nonzero"):
        f(ready([1, -1]))


@only_with_jit
def test_an_error_while_capturing_leaves_nothing_behind() -> None:
    fail = [False]

    @TinyJit
    def f(x: Tensor) -> Tensor:
        if fail[0]:
            raise KeyError("on purpose")
        return (x + 1).realize()

    f(ready([1]))
    fail[0] = True
    with pytest.raises(KeyError):
        f(ready([1]))
    fail[0] = False
    assert [f(ready([n])).item() for n in range(3)] == [1, 2, 3]


@only_with_jit
@pytest.mark.parametrize("call", [1, 3])
def test_an_argument_that_is_overwritten_state_is_refused(call: int) -> None:
    state = ready([1.0])
    f = TinyJit(lambda x: state.assign(state + x).realize())
    for _ in range(call):
        f(ready([1]))
    with pytest.raises(JitError, match=r"argument 0 .*clone"):
        f(state)


@only_with_jit
def test_state_that_is_replaced_is_refused() -> None:
    state = [ready([1.0])]

    def step(x: Tensor) -> Tensor:
        state[0] = (state[0] + x).realize()
        return state[0]

    f = TinyJit(step)
    f(ready([1]))
    with pytest.raises(JitError, match="replaced"):
        f(ready([1]))


@only_with_jit
def test_a_tensor_that_is_made_outside_and_computed_inside_at_each_call_is_refused() -> None:
    made = [ready([1.0])]
    f = TinyJit(lambda x: (x + made[0]).realize())
    f(ready([1]))
    with pytest.raises(JitError, match="pass it as an argument"):
        for n in range(4):
            made[0] = ready([n]) * 2
            assert f(ready([1])).tolist() == [2 * n + 1]


def test_what_was_left_to_be_computed_from_weights_keeps_its_value() -> None:
    weight = ready([1.0])
    double = weight * 2
    f = TinyJit(lambda x: (x + double).realize())
    for _ in range(5):
        assert f(ready([1])).tolist() == [3]
        weight.assign(weight + 1).realize()


@only_with_jit
def test_an_argument_that_is_given_a_gradient_is_refused() -> None:
    f = TinyJit(lambda x: (x * x).sum().backward().realize())

    def argument() -> Tensor:
        return ready([2.0]).requires_grad_()

    f(argument())
    with pytest.raises(JitError, match="argument 0 is given a gradient"):
        f(argument())
