"""Kernels, copies, signals and memory on fake GPUs of all architectures."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from tg_nv.device import NVDevice

from tests.emulators.nv import FakeSystem
from tests.emulators.nv.install import installed
from tests.emulators.nv.profiles import PROFILES
from tests.plugins.nv import kernels
from tests.plugins.nv.kernels import Memory, device, load, run
from tgcore import Tensor, TinyJit
from tgcore.errors import CompileError, DeviceError, OutOfMemoryError
from tgcore.hcq.symbol import Symbol
from tgcore.helpers import Context
from tgcore.runtime.device import Device


@pytest.fixture(params=PROFILES)
def gpu(request: pytest.FixtureRequest) -> Iterator[NVDevice]:
    """One GPU of each chip in turn."""
    with installed(PROFILES[request.param]):
        yield device()


@pytest.fixture
def hopper() -> Iterator[NVDevice]:
    with installed(PROFILES["GH100"]):
        yield device()


# *** kernels ***


def test_positions_in_grid_and_block(gpu: NVDevice) -> None:
    grid, block = (3, 2, 2), (4, 2, 3)
    out = Memory(gpu, np.zeros((12, 24), np.int32))
    run(gpu, kernels.INDICES, [out.address], grid, block)
    np.testing.assert_array_equal(out.values, np.arange(12)[:, None] * 1000 + np.arange(24))


def test_addresses_and_numbers_as_arguments(gpu: NVDevice) -> None:
    data = np.arange(100, dtype=np.int32)
    source, out = Memory(gpu, data), Memory(gpu, np.zeros(100, np.int32))
    run(gpu, kernels.ADD_ONE, [out.address, source.address, 90], (4, 1, 1), (32, 1, 1))
    np.testing.assert_array_equal(out.values, np.where(np.arange(100) < 90, data + 1, 0))


def test_shared_memory_and_barriers(gpu: NVDevice) -> None:
    data = Memory(gpu, np.arange(256, dtype=np.int32))
    run(gpu, kernels.REVERSE, [data.address], block=(256, 1, 1))
    np.testing.assert_array_equal(data.values, np.arange(256)[::-1])


def test_local_arrays_on_the_stack(gpu: NVDevice) -> None:
    data = Memory(gpu, np.array([1, 2, 3, 4], np.int32))
    run(gpu, kernels.STACK, [data.address, 5], block=(1, 1, 1))
    table = {(i * 7 + 5) % 64: i * [1, 2, 3, 4][i % 4] for i in range(64)}
    np.testing.assert_array_equal(data.values, [table[5], 2, 3, 4])


def test_constants_and_globals_of_a_program(gpu: NVDevice) -> None:
    data = Memory(gpu, np.array([0, 1, 2, 3], np.int32))
    run(gpu, kernels.TABLE, [data.address], block=(4, 1, 1))
    np.testing.assert_array_equal(data.values, [42, 43, 45, 47])


def test_launches_in_one_queue_come_one_after_another(gpu: NVDevice) -> None:
    """A chain of launches: each needs what the one before it wrote."""
    data = Memory(gpu, np.zeros(32, np.int32))
    program = load(gpu, kernels.ADD_ONE)

    def five(queue) -> None:  # type: ignore[no-untyped-def]
        for _ in range(5):
            queue.exec(program, [data.address, data.address, 32], (1, 1, 1), (32, 1, 1))
            queue.memory_barrier()

    gpu.enqueue("five", five)
    np.testing.assert_array_equal(data.values, 5)


def test_only_the_first_launch_of_a_chain_is_sent(hopper: NVDevice) -> None:
    data, program = Memory(hopper, np.zeros(32, np.int32)), load(hopper, kernels.ADD_ONE)
    queue = hopper.compute_queue()
    for _ in range(3):
        queue.exec(program, [data.address, data.address, 32], (1, 1, 1), (32, 1, 1))
        queue.memory_barrier()
    assert list(queue.words).count(0x200120AD) == 1  # SEND_PCAS_A


def test_a_bound_queue_runs_again_with_other_values(gpu: NVDevice) -> None:
    a, b = (Memory(gpu, np.full(64, n, np.int32)) for n in (1, 10))
    out, program = Memory(gpu, np.zeros(64, np.int32)), load(gpu, kernels.ADD_ONE)
    queue = gpu.compute_queue()
    grid = (Symbol("blocks"), 1, 1)
    queue.exec(program, [out.address, Symbol("source"), Symbol("n")], grid, (16, 1, 1))
    queue.bind(gpu)
    expected = np.zeros(64, np.int32)
    for source, value, n, blocks in ((a, 2, 64, 4), (b, 11, 64, 2), (a, 2, 20, 4), (b, 11, 5, 1)):
        queue.submit(gpu, {"source": source.address, "n": n, "blocks": blocks})
        gpu.wait_signal(gpu.rings[queue.engine].fence, gpu.rings[queue.engine].submitted)
        expected[: min(n, 16 * blocks)] = value
        np.testing.assert_array_equal(out.values, expected)


def test_many_submissions_wrap_around_the_ring(hopper: NVDevice) -> None:
    data, program = Memory(hopper, np.zeros(8, np.int32)), load(hopper, kernels.ADD_ONE)
    for _ in range(2500):
        args = [data.address, data.address, 8]
        hopper.enqueue("one", lambda q, a=args: q.exec(program, a, (1, 1, 1), (8, 1, 1)))
    np.testing.assert_array_equal(data.values, 2500)


# *** limits ***


@pytest.mark.parametrize(
    ("grid", "block", "message"),
    [
        ((1, 1, 1), (1025, 1, 1), r"a block of \(1025, 1, 1\) is beyond"),
        ((1, 1, 1), (32, 33, 1), "has 1056 threads, it may have 1024"),
        ((1, 1, 1), (1, 1, 65), r"a block of \(1, 1, 65\) is beyond"),
        ((1, 65536, 1), (1, 1, 1), r"a grid of \(1, 65536, 1\) is beyond"),
        ((0, 1, 1), (1, 1, 1), r"a grid of \(0, 1, 1\) is beyond"),
    ],
)
def test_a_launch_that_is_too_large_is_refused(
    hopper: NVDevice, grid: kernels.Dims, block: kernels.Dims, message: str
) -> None:
    out = Memory(hopper, np.zeros(1, np.int32))
    with pytest.raises(DeviceError, match=f"NV cannot run indices(.|\n)*{message}"):
        run(hopper, kernels.INDICES, [out.address], grid, block)


def test_launch_bounds_are_limits(hopper: NVDevice) -> None:
    source = kernels.INDICES.replace("void indices", "void __launch_bounds__(64) indices")
    source = source.replace("void __launch_bounds__(64)", "__launch_bounds__(64) void")
    with pytest.raises(DeviceError, match="has 65 threads, it may have 64"):
        run(hopper, source, [0], block=(65, 1, 1))


def test_wrong_arguments_are_counted(hopper: NVDevice) -> None:
    with pytest.raises(DeviceError, match="it takes 3 arguments, 1 were given"):
        run(hopper, kernels.ADD_ONE, [0])


def test_too_much_shared_memory_is_refused(hopper: NVDevice) -> None:
    source = kernels.REVERSE.replace("kept[256]", "kept[60000]")
    with pytest.raises((CompileError, DeviceError), match="shared"):
        load(hopper, source)


def test_what_is_no_cubin_is_refused(hopper: NVDevice) -> None:
    program = load(hopper, kernels.ADD_ONE)
    with pytest.raises(CompileError, match="no cubin"):
        hopper.load("add_one", b"\x7fELF" + bytes(100), program.spec)


def test_what_nvrtc_rejects_is_shown_with_its_lines(hopper: NVDevice) -> None:
    with pytest.raises(CompileError) as caught:
        hopper.compiler.compile("int x;\nnonsense y;\n")
    assert "nonsense" in caught.value.output and "    2 | nonsense y;" in str(caught.value)


# *** memory ***


def test_copies_of_all_sizes_come_back(hopper: NVDevice) -> None:
    rng = np.random.default_rng(0)
    for count in (1, 63, 64, 1000, 70_000, 700_001):
        data = rng.integers(-9, 9, count, dtype=np.int32)
        np.testing.assert_array_equal(Memory(hopper, data).values, data)


def test_small_buffers_share_slabs(hopper: NVDevice) -> None:
    kept = [hopper.allocator.alloc(1000) for _ in range(50)]
    assert len({m.address for m in kept}) == 50
    assert max(m.address for m in kept) - min(m.address for m in kept) < 2 << 20


def test_out_of_memory_says_how_much_was_asked_and_is_free() -> None:
    with installed(PROFILES["GH100"]):
        gpu = device()
        free = gpu.allocator.available()
        with pytest.raises(OutOfMemoryError) as caught:
            gpu.allocator.alloc(free * 2)
        text = str(caught.value)
        assert "NV is out of memory" in text and "are in use" in text and "are free" in text


def test_kept_memory_is_freed_before_it_is_out_of_memory() -> None:
    with installed(PROFILES["GH100"]):
        gpu = device()
        part = gpu.allocator.available() // 4
        for _ in range(6):
            memory = gpu.allocator.alloc(part)
            gpu.allocator.free(memory, part)
            part += 1 << 21  # another size: what was kept does not fit


# *** the device under the Tensor API ***


def test_matmul_softmax_and_convolution(gpu: NVDevice) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((20, 20)).astype(np.float32) for _ in range(2))
    x, y = Tensor(a, device="NV"), Tensor(b, device="NV")
    np.testing.assert_allclose((x @ y).numpy(), a @ b, rtol=1e-4, atol=1e-5)
    e = np.exp(a - a.max(-1, keepdims=True))
    np.testing.assert_allclose(x.softmax().numpy(), e / e.sum(-1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("renderer", ["cuda", "llvm"])
def test_inputs_of_tf32_are_rounded_to_nearest(
    renderer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off, a number just below the next one with 10 bits would lose all that is above."""
    monkeypatch.setenv("NV_RENDERER", renderer)
    a = np.full((64, 64), 1 + 2**-10 - 2**-20, np.float32)  # to nearest: 1 + 2**-10
    with installed(PROFILES["GH100"]), Context(ALLOW_TF32=1):
        x, one = Tensor(a, device="NV").realize(), Tensor.ones(64, 64, device="NV").contiguous()
        found = (x @ one.realize()).numpy()
    np.testing.assert_array_equal(found, np.full((64, 64), 64 * (1 + 2**-10), np.float32))


def test_a_captured_function_is_one_submission(hopper: NVDevice) -> None:
    @TinyJit
    def step(x: Tensor) -> Tensor:
        y = (x @ x).relu().realize()
        return (y.sum(0) + x).realize()

    rng = np.random.default_rng(2)
    before = 0
    for n in range(5):
        a = rng.standard_normal((16, 16)).astype(np.float32)
        x = Tensor(a, device="NV").realize()
        hopper.synchronize()
        before = hopper.rings[hopper.compute_queue.engine].submitted
        result = step(x)
        submitted = hopper.rings[hopper.compute_queue.engine].submitted - before
        expected = np.maximum(a @ a, 0).sum(0) + a
        np.testing.assert_allclose(result.numpy(), expected, rtol=1e-4, atol=1e-4)
        assert n < 2 or submitted == 1


def test_timestamps_are_of_the_gpus_clock(hopper: NVDevice) -> None:
    before = hopper.interface.device_time()
    with Context(PROFILE=1):
        (Tensor([1.0, 2.0], device="NV") + 1).realize()
        hopper.synchronize()
    after = hopper.interface.device_time()
    assert hopper.profile
    assert all(before <= e.start <= e.end <= after for e in hopper.profile)
    assert {e.queue for e in hopper.profile} <= {"compute", "copy"}


# *** several devices ***


@pytest.fixture
def two() -> Iterator[FakeSystem]:
    """A GPU of one generation and one of another."""
    with installed(PROFILES["GH100"], PROFILES["GA102"]) as system:
        yield system


def test_tensors_go_from_one_gpu_to_another(two: FakeSystem) -> None:
    a = np.arange(1000, dtype=np.float32)
    x = Tensor(a, device="NV").realize()
    y = (x.to("NV:1") * 2).realize()
    z = y.to("NV") + x
    np.testing.assert_array_equal(z.numpy(), a * 3)
    assert device("NV").reaches(device("NV:1"))


def test_gpus_that_do_not_see_each_other_copy_through_the_host() -> None:
    with installed(PROFILES["GH100"], PROFILES["GA102"]) as system:
        system.peers = set()
        a = np.arange(1000, dtype=np.float32)
        y = (Tensor(a, device="NV").realize().to("NV:1") * 2).realize()
        np.testing.assert_array_equal(y.numpy(), a * 2)
        assert not device("NV").reaches(device("NV:1"))


def test_a_graph_over_two_gpus(two: FakeSystem) -> None:
    @TinyJit
    def step(x: Tensor) -> Tensor:
        y = (x * 2).realize()
        return (y.to("NV:1") + 1).realize()

    for n in range(4):
        x = Tensor(np.full(8, n, np.float32), device="NV").realize()
        np.testing.assert_array_equal(step(x).numpy(), np.full(8, 2 * n + 1))


def test_visible_devices_filter_and_order(two: FakeSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HCQ_VISIBLE_DEVICES", "1,0")
    assert device("NV").architecture.sm == "sm_86"
    assert device("NV:1").architecture.sm == "sm_90"
    Device.close()
    monkeypatch.setenv("HCQ_VISIBLE_DEVICES", "1")
    assert device("NV").architecture.sm == "sm_86"
    with pytest.raises(DeviceError, match="no device NV:1"):
        device("NV:1")


def test_one_gpu_closes_while_the_other_goes_on(two: FakeSystem) -> None:
    x = Tensor([1.0, 2.0], device="NV").realize()
    Tensor([1.0], device="NV:1").realize()
    Device.forget(device("NV:1"))
    assert (x + 1).tolist() == [2.0, 3.0]
