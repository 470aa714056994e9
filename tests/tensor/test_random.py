"""Random numbers: the generator, distributions, seeds."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import numpy as np
import pytest

from tgcore import Device, Tensor, TinyJit, dtypes
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


def test_numbers_are_drawn_from_the_seed_on_after_a_device_was_closed() -> None:
    Tensor.manual_seed(3)
    first = Tensor.rand(3, device="CPU:1").tolist()
    Device.forget(Device["CPU:1"])
    assert Tensor.rand(3, device="CPU:1").tolist() == first
    Device.forget(Device["CPU:1"])
    Tensor.manual_seed(3)
    assert Tensor.rand(3, device="CPU:1").tolist() == first


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


def normal_cdf(v: float) -> float:
    return (1 + math.erf(v / math.sqrt(2))) / 2


BOUND = math.sqrt(6 / 50)  # of glorot_uniform for (20, 30)
DISTRIBUTIONS = {
    "uniform": (lambda: Tensor.uniform(4000, low=-3, high=5), lambda v: (v + 3) / 8),
    "normal": (lambda: Tensor.normal(4000, mean=2, std=0.5), lambda v: normal_cdf((v - 2) / 0.5)),
    "rand_like": (lambda: Tensor.zeros(4000).rand_like(), lambda v: v),
    "randn_like": (lambda: Tensor.zeros(4000).randn_like(), normal_cdf),
    "scaled_uniform": (
        lambda: Tensor.scaled_uniform(20, 200) * math.sqrt(4000),
        lambda v: (v + 1) / 2,
    ),
    "glorot_uniform": (
        lambda: Tensor.glorot_uniform(20, 30),
        lambda v: (v + BOUND) / (2 * BOUND),
    ),
    "kaiming_uniform": (
        lambda: Tensor.kaiming_uniform(40, 100, a=0) * math.sqrt(100 / 6),
        lambda v: (v + 1) / 2,
    ),
    "kaiming_normal": (
        lambda: Tensor.kaiming_normal(40, 100, a=0) * math.sqrt(100 / 2),
        normal_cdf,
    ),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions(name: str) -> None:
    draw, cumulative = DISTRIBUTIONS[name]
    Tensor.manual_seed(99)
    values = draw().numpy().flatten()
    assert kolmogorov_smirnov(values, cumulative) < limit(len(values))


def chi_square(counts: np.ndarray, expected: np.ndarray) -> float:
    """The statistic, in standard deviations from its mean (for ten classes or more)."""
    freedom = len(counts) - 1
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return (statistic - freedom) / math.sqrt(2 * freedom)


def test_randint_multinomial_and_dropout_have_the_right_shares() -> None:
    Tensor.manual_seed(7)
    counts = np.bincount(Tensor.randint(20000, low=0, high=16).numpy(), minlength=16)
    assert chi_square(counts, np.full(16, 20000 / 16)) < 5
    weights = np.arange(1, 13, dtype=np.float32)
    drawn = Tensor(weights).multinomial(20000, replacement=True).numpy()
    counts = np.bincount(drawn, minlength=12)
    assert chi_square(counts, 20000 * weights / weights.sum()) < 5
    with Tensor.train():
        kept = (Tensor.ones(20000).dropout(0.3) > 0).mean().item()
    assert abs(kept - 0.7) < 5 * math.sqrt(0.3 * 0.7 / 20000)


def test_every_place_of_a_permutation_is_as_likely() -> None:
    Tensor.manual_seed(8)
    places = np.array([Tensor.randperm(12).numpy() for _ in range(300)])
    assert (np.sort(places, axis=1) == np.arange(12)).all()
    counts = np.array([np.bincount(column, minlength=12) for column in places.T])
    for row in counts:
        assert chi_square(row, np.full(12, 300 / 12)) < 5


def test_all_languages_give_the_same_numbers() -> None:
    """The same seed, in kernels of LLVM IR and of C."""
    program = (
        "from tgcore import Tensor; Tensor.manual_seed(5);"
        "print(Tensor.rand(50).tolist(), Tensor.randint(50, high=1000).tolist(),"
        "Tensor.randperm(20).tolist(), Tensor.random_bits(9).tolist())"
    )
    outputs = {
        renderer: subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "CPU_RENDERER": renderer},
            capture_output=True,
            check=True,
            timeout=100,
        ).stdout
        for renderer in ("llvm", "c")
    }
    assert outputs["llvm"] == outputs["c"] and len(outputs["c"]) > 500
