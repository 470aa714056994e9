"""Random numbers: the generator, distributions, seeds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tgcore import Tensor, TinyJit, dtypes
from tgcore.errors import DTypeError
from tgcore.uop import UOp
from tgcore.uop.ops import Ops


def test_threefry_gives_the_numbers_of_its_authors() -> None:
    # known answers of Random123 (kat_vectors): counter, key, result as pairs of 32-bit words
    vectors = [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ]

    def packed(words: tuple[int, int]) -> np.uint64:
        return np.uint64(words[1] << 32 | words[0])

    counters = Tensor(np.array([packed(c) for c, _, _ in vectors]))
    keys = Tensor(np.array([packed(k) for _, k, _ in vectors]))
    found = Tensor._from_uop(counters.uop.alu(Ops.THREEFRY, keys.uop)).numpy()
    assert list(found) == [packed(r) for _, _, r in vectors]
    assert isinstance(counters.uop, UOp)


def kolmogorov_smirnov(values: np.ndarray, cumulative: object) -> float:
    """The largest distance between the values' distribution and the expected one."""
    ordered = np.sort(values.astype(np.float64))
    expected = np.array([cumulative(v) for v in ordered])  # type: ignore[operator]
    steps = np.arange(len(ordered) + 1) / len(ordered)
    return float(max(np.abs(expected - steps[:-1]).max(), np.abs(expected - steps[1:]).max()))


def limit(count: int) -> float:
    """What the distance exceeds in one of 10000 tests of a true hypothesis."""
    return math.sqrt(-math.log(0.0001 / 2) / 2 / count)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
def test_rand_is_uniform(dtype: object) -> None:
    Tensor.manual_seed(11)
    values = Tensor.rand(4000, dtype=dtype).numpy()  # type: ignore[arg-type]
    assert values.min() >= 0 and values.max() < 1
    assert kolmogorov_smirnov(values, lambda v: v) < limit(4000)


def test_randn_is_normal() -> None:
    Tensor.manual_seed(12)
    values = Tensor.randn(4000).numpy()
    assert kolmogorov_smirnov(values, lambda v: (1 + math.erf(v / math.sqrt(2))) / 2) < limit(4000)


def test_narrow_floats_stay_below_1() -> None:
    Tensor.manual_seed(1)
    for dtype in (dtypes.float16, dtypes.bfloat16):
        values = Tensor.rand(5000, dtype=dtype).float().numpy()
        assert values.min() >= 0 and values.max() < 1 and abs(values.mean() - 0.5) < 0.02


def test_randint_covers_its_range_evenly() -> None:
    Tensor.manual_seed(5)
    values = Tensor.randint(6000, low=-3, high=3).numpy()
    counts = np.bincount(values + 3)
    assert len(counts) == 6 and counts.min() > 850
    assert set(Tensor.randint(50, low=0, high=2**40, dtype="int64").numpy() >> 33) != {0}


def test_uniform_and_normal_have_their_range() -> None:
    Tensor.manual_seed(2)
    uniform = Tensor.uniform(2000, low=-3, high=5).numpy()
    assert uniform.min() >= -3 and uniform.max() < 5 and abs(uniform.mean() - 1) < 0.3
    normal = Tensor.normal(2000, mean=10, std=0.5).numpy()
    assert abs(normal.mean() - 10) < 0.1 and abs(normal.std() - 0.5) < 0.05


def test_initialisers_have_the_scale_of_their_papers() -> None:
    Tensor.manual_seed(2)
    shape = (40, 50)
    bounds = {"glorot_uniform": math.sqrt(6 / 90), "scaled_uniform": 1 / math.sqrt(2000)}
    for name, bound in bounds.items():
        values = np.abs(getattr(Tensor, name)(*shape).numpy())
        assert 0.9 * bound < values.max() <= bound
    std = Tensor.kaiming_normal(*shape, a=0).numpy().std()
    assert abs(std / math.sqrt(2 / 50) - 1) < 0.1
    assert np.abs(Tensor.kaiming_uniform(*shape, a=0).numpy()).max() <= math.sqrt(6 / 50)


def test_randperm_and_multinomial() -> None:
    Tensor.manual_seed(4)
    assert sorted(Tensor.randperm(20).tolist()) == list(range(20))
    assert Tensor.randperm(20).tolist() != list(range(20))
    weights = Tensor([0.0, 1.0, 3.0])
    drawn = weights.multinomial(2000, replacement=True).numpy()
    counts = np.bincount(drawn, minlength=3)
    assert counts[0] == 0 and 0.65 < counts[2] / 2000 < 0.85
    assert sorted(Tensor([1.0, 1.0, 0.0]).multinomial(2).tolist()) == [0, 1]


def test_a_seed_gives_the_same_numbers_again() -> None:
    results = []
    for _ in range(2):
        Tensor.manual_seed(42)
        results.append([Tensor.rand(3).tolist(), Tensor.randn(2).tolist(), Tensor.rand(3).tolist()])
    assert results[0] == results[1]
    assert results[0][0] != results[0][2]


def test_the_same_numbers_whether_run_together_or_one_by_one() -> None:
    Tensor.manual_seed(9)
    together = (Tensor.rand(4).stack(Tensor.rand(4))).tolist()
    Tensor.manual_seed(9)
    assert [Tensor.rand(4).tolist(), Tensor.rand(4).tolist()] == together


def test_numbers_drawn_before_a_new_seed_are_those_of_the_old_one() -> None:
    Tensor.manual_seed(1)
    expected = Tensor.rand(3).tolist()
    Tensor.manual_seed(1)
    waiting = Tensor.rand(3)
    Tensor.manual_seed(2)
    assert waiting.tolist() == expected


def test_a_captured_function_draws_new_numbers_as_if_it_were_run() -> None:
    def draw() -> Tensor:
        return (Tensor.rand(3) * 2 + Tensor.rand(3)).realize()

    Tensor.manual_seed(7)
    expected = [draw().tolist() for _ in range(5)]
    Tensor.manual_seed(7)
    jitted = TinyJit(draw)
    assert [jitted().tolist() for _ in range(5)] == expected
    Tensor.manual_seed(7)
    assert jitted().tolist() == expected[0]


def test_wrong_types_are_clear_errors() -> None:
    with pytest.raises(DTypeError, match="int32"):
        Tensor.rand(3, dtype="int32")
    with pytest.raises(ValueError, match="low < high"):
        Tensor.randint(3, low=5, high=5)
