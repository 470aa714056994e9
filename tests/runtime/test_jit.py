"""Recording and replaying what ran."""

import gc

import numpy as np
import pytest

from tests.runtime.graphs import memory, realize, tensor, values_of
from tgcore.dtype import dtypes
from tgcore.helpers import Context
from tgcore.runtime import execute
from tgcore.runtime.buffer import Buffer
from tgcore.runtime.counters import GlobalCounters
from tgcore.runtime.jit import JitError, recording
from tgcore.uop.node import UOp
from tgcore.uop.ops import Ops

MODES = pytest.mark.parametrize("mode", [1, 2], ids=["graphs", "one by one"])


def capture(function, *arguments, names="xyzw"):
    """Runs the function on nodes; (its result nodes, the capture)."""
    with recording() as record:
        outputs = realize(*function(*arguments))
    inputs = [(names[n], memory(a)) for n, a in enumerate(arguments)]
    return outputs, record.finish(inputs)


def values(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("f")


def chain(x):
    """Three kernels, with two temporaries between them."""
    (first,) = realize(x + 1.0)
    (second,) = realize(first.reshape(x.shape) * 2.0)
    return [second.reshape(x.shape) + 5.0]


@MODES
def test_replay_with_other_inputs(mode):
    with Context(JIT=mode):
        (out,), captured = capture(chain, tensor(values(100)))
        assert captured.kernel_count == 3
        for seed in range(1, 4):
            x = values(100, seed=seed)
            captured([memory(tensor(x))])
            np.testing.assert_allclose(values_of(out), (x + 1) * 2 + 5, rtol=1e-6)


@MODES
def test_several_inputs_and_weights(mode):
    weight = tensor(values(8, 8, seed=9))

    def function(x, y):
        return [(x * weight + y).reduce_axis(Ops.ADD, (1,)), x * 2.0]

    with Context(JIT=mode):
        outputs, captured = capture(function, tensor(values(8, 8)), tensor(values(8, 8, seed=1)))
        a, b = values(8, 8, seed=2), values(8, 8, seed=3)
        captured([memory(tensor(a)), memory(tensor(b))])
        w = values_of(weight.base).reshape(8, 8)
        np.testing.assert_allclose(values_of(outputs[0]), (a * w + b).sum(1), rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(values_of(outputs[1]).reshape(8, 8), a * 2)


@MODES
def test_variables(mode):
    n = UOp.variable("n", 1, 100)
    x = tensor(np.zeros(8, np.int32))
    with Context(JIT=mode):
        (out,), captured = capture(lambda x: [x + n.bind(3).cast(dtypes.int32)], x)
        for value in (1, 50):
            captured([memory(tensor(np.full(8, 10, np.int32)))], {"n": value})
            assert (values_of(out) == 10 + value).all()
        with pytest.raises(JitError, match="'n'"):
            captured([memory(x)], {})


def test_temporaries_share_memory():
    size = 1 << 18

    def function(x):
        node = x
        for _ in range(6):
            node = realize(node + 1.0)[0].reshape(x.shape)
        return [node + 1.0]

    x = tensor(values(size))
    (out,), captured = capture(function, x)
    gc.collect()
    # x, the result, and two temporaries at any time
    assert GlobalCounters.mem_used <= 4 * size * 4 + (1 << 16)
    captured([memory(x)])
    np.testing.assert_allclose(values_of(out), values_of(x.base) + 7, rtol=1e-5)


def test_recorded_inputs_are_let_go():
    x = tensor(values(1 << 18))
    _, captured = capture(lambda x: [x + 1.0], x)
    before = GlobalCounters.mem_used
    del x
    gc.collect()
    # a graph may hold on to what it was made with; the calls that run singly may not
    assert GlobalCounters.mem_used <= before
    captured([memory(tensor(values(1 << 18)))])


@MODES
def test_feeding_the_result_back(mode):
    with Context(JIT=mode):
        x = tensor(np.zeros(16, "f"))
        (out,), captured = capture(lambda x: [x + 1.0], x)
        with pytest.raises(JitError, match=r"argument x .* pass a copy"):
            captured([execute.buffer_of(out)])
        last = execute.buffer_of(out)
        captured([Buffer("CPU", 16, dtypes.float32).copy_from(last)])
        assert (values_of(out) == 2).all()


def test_views_of_an_input():
    def function(x):
        node = UOp(Ops.BUFFER_VIEW, x.dtype, (x.base,), (4, 16))
        return [node + 1.0]

    (out,), captured = capture(function, tensor(np.arange(16, dtype="f")))
    captured([memory(tensor(np.arange(100, 116, dtype="f")))])
    assert values_of(out).tolist() == [105, 106, 107, 108]


def test_counters_and_lines(capsys, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    x = tensor(values(128))
    _, captured = capture(chain, x)
    GlobalCounters.reset()
    captured([memory(x)])
    assert GlobalCounters.kernel_count == 3
    assert GlobalCounters.global_ops == 384
    with Context(DEBUG=2):
        captured([memory(x)])
    assert "graph of 3 kernels" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("size", "dtype", "message"),
    [(50, dtypes.float32, "100 elements"), (100, dtypes.int32, "dtypes.int32")],
)
def test_other_kind_of_input(size, dtype, message):
    _, captured = capture(chain, tensor(values(100)))
    with pytest.raises(JitError, match=message) as error:
        captured([Buffer("CPU", size, dtype)])
    assert "argument x" in str(error.value)


def test_other_number_of_inputs():
    _, captured = capture(chain, tensor(values(100)))
    with pytest.raises(JitError, match="1 input"):
        captured([])


def test_nothing_to_capture():
    with recording() as record:
        pass
    with pytest.raises(JitError, match="no kernel"):
        record.finish([])


def test_same_memory_twice_while_captured():
    x = tensor(values(8))
    with recording() as record:
        realize(x + x)
    with pytest.raises(JitError, match="a and b"):
        record.finish([("a", memory(x)), ("b", memory(x))])


def test_capture_in_a_capture():
    with recording(), pytest.raises(JitError), recording():
        pass


@MODES
def test_written_inputs(mode):
    """A function that assigns to its argument changes the memory it is given."""

    def function(x, y):
        return [x.assign(x * 2.0 + y)]

    with Context(JIT=mode):
        x, y = tensor(np.ones(8, "f")), tensor(np.ones(8, "f"))
        with recording() as record:
            realize(*function(x, y))
        captured = record.finish([("x", memory(x)), ("y", memory(y))])
        if not captured.written_inputs:
            pytest.skip("the assign was stored elsewhere")
        a, b = tensor(np.full(8, 5, "f")), tensor(np.full(8, 2, "f"))
        captured([memory(a), memory(b)])
        assert (values_of(a.base) == 12).all()
        assert (values_of(b.base) == 2).all()
        with pytest.raises(JitError, match="x and y"):
            captured([memory(a), memory(a)])
