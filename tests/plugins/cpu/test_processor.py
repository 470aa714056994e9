"""The native command processor: threads, the ring, signals, faults."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from array import array
from pathlib import Path

import numpy as np
import pytest
from tg_cpu import host, llvm, processor
from tg_cpu.device import CPUDevice, CPUProgram, CPUQueue
from tg_cpu.loader import load_code
from tg_cpu.workers import Functions, Processor, functions

from tests.hcq import kernels
from tgcore.dtype import dtypes
from tgcore.errors import DeviceError, OutOfMemoryError
from tgcore.helpers import Context
from tgcore.runtime.buffer import Buffer
from tgcore.runtime.compiled import ProgramCall
from tgcore.runtime.device import Device
from tgcore.uop.node import UOp

N = UOp.variable("n", 0, 1 << 40)
ROOT = Path(__file__).parents[3]


@pytest.fixture
def device() -> CPUDevice:
    opened = Device["CPU"]
    assert isinstance(opened, CPUDevice)
    return opened


def zeros(size: int = 4, device: str = "CPU") -> Buffer:
    return Buffer(device, size, dtypes.int32, initial=bytes(4 * size))


@pytest.mark.parametrize("threads", [1, 2, 3, 8, 64, 1000])
def test_every_thread_runs_once(device: CPUDevice, threads: int) -> None:
    program = kernels.load(device, "by_thread", 1, threads=threads)
    data = zeros(threads * 16)
    for _ in range(20):
        program([data])
    np.testing.assert_array_equal(data.numpy()[::16], 20 * np.arange(1, threads + 1))


def test_threaded_kernels_in_a_row_never_mix(device: CPUDevice) -> None:
    counts = (2, 3, 5, 7)
    programs = [kernels.load(device, "by_thread", 1, threads=n) for n in counts]
    buffers = [zeros(n * 16) for n in counts]
    calls = [ProgramCall(p, (b,)) for p, b in zip(programs, buffers)] * 250
    graph = device.graph(device, calls, {})  # type: ignore[misc]
    for _ in range(20):
        graph.replay([])
    for n, data in zip(counts, buffers):
        np.testing.assert_array_equal(data.numpy()[::16], 5000 * np.arange(1, n + 1))


def test_sleeping_workers_are_woken(device: CPUDevice) -> None:
    program, data = kernels.load(device, "by_thread", 1, threads=2), zeros(32)
    for _ in range(30):
        program([data])
        device.synchronize()
        time.sleep(0.002)  # long enough for all threads to fall asleep
    np.testing.assert_array_equal(data.numpy()[::16], [30, 60])


def test_the_ring_wraps_and_fills(device: CPUDevice) -> None:
    program = kernels.load(device, "add_variable", 1, variables=(N,))
    data = zeros()
    for _ in range(60_000):
        program([data], [1])
    assert data.numpy()[0] == 60_000


def test_a_full_ring_holds_the_host_back() -> None:
    other = Processor(1)
    gate = Device["CPU"].new_signal()  # type: ignore[attr-defined]
    done = Device["CPU"].new_signal()  # type: ignore[attr-defined]
    wait = array("q", [4 | 3 << 8, gate.address, 1])
    count = 200
    block = array("q", [3 | 3 << 8, done.address, 0] * 2000)

    def fill() -> None:
        other.submit(wait)
        for n in range(1, count + 1):
            block[2::3] = array("q", [n] * 2000)
            other.submit(block)

    thread = threading.Thread(target=fill)
    thread.start()
    time.sleep(0.2)
    assert thread.is_alive() and done.value == 0
    gate.value = 1
    thread.join(10)
    assert done.wait(count, timeout=10)
    assert other.close()


def test_a_system_without_futex(monkeypatch: pytest.MonkeyPatch, device: CPUDevice) -> None:
    monkeypatch.setattr(processor, "_FUTEX_NUMBER", {})
    text = processor.source(half=False)
    assert "usleep" in text and "syscall" not in text
    other = Processor(2)
    other.native = Functions(load_code(llvm.compile_ir(text)))
    program, data = kernels.load(device, "by_thread", 1, threads=3), zeros(48)
    assert isinstance(program, CPUProgram)
    done = device.new_signal()
    for n in range(1, 21):
        queue = CPUQueue().exec(program, [data.memory.address]).signal(done, n)
        other.submit(queue.words, 3)
        assert done.wait(n, timeout=10)
        time.sleep(0.002)
    assert data.numpy()[::16].tolist() == [20, 40, 60]
    assert other.close()


def test_many_host_threads(device: CPUDevice) -> None:
    program = kernels.load(device, "add_variable", 1, variables=(N,))
    data = [zeros() for _ in range(8)]

    def work(mine: Buffer) -> None:
        for n in range(500):
            program([mine], [n])
            if n % 50 == 0:
                mine.numpy()

    threads = [threading.Thread(target=work, args=(one,)) for one in data]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.numpy()[0] for one in data] == [sum(range(500))] * 8


def test_devices_wait_for_each_other() -> None:
    first, second = Device["CPU"], Device["CPU:1"]
    program = kernels.load(first, "slow", 1, variables=(N,))
    for _ in range(20):
        source, target = zeros(), zeros(device="CPU:1")
        program([source], [1_000_000])
        target.copy_from(source)
        assert target.numpy()[0] == 1
    assert first is not second


def test_a_program_may_be_dropped_while_it_runs(device: CPUDevice) -> None:
    data = zeros()
    for _ in range(10):
        kernels.load(device, "slow", 1, variables=(N,))([data], [3_000_000])
    assert data.numpy()[0] == 1


def test_timeout_names_the_kernel_and_the_next_operation_works(device: CPUDevice) -> None:
    program = kernels.load(device, "slow", 1, variables=(N,))
    data = zeros()
    program([data], [2_000_000_000])
    with Context(HCQ_TIMEOUT=50), pytest.raises(DeviceError) as caught:
        device.synchronize()
    assert "CPU did not finish slow within 50 ms" in str(caught.value)
    assert "its processor is in kernel slow" in str(caught.value)
    assert "from: tg-cpu 0" in str(caught.value)
    assert data.numpy()[0] == 1


def test_interrupt_in_a_long_kernel(device: CPUDevice) -> None:
    program = kernels.load(device, "slow", 1, variables=(N,))
    data = zeros()
    program([data], [5_000_000_000])
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        device.synchronize()
        device.synchronize()
    assert time.monotonic() - start < 0.5
    timer.join()
    other = zeros()
    kernels.load(device, "add_variable", 1, variables=(N,))([other], [5])
    assert other.numpy()[0] == 5 and data.numpy()[0] == 1


def test_absurd_allocation(device: CPUDevice) -> None:
    free = host.available_memory()
    assert free is not None
    with pytest.raises(OutOfMemoryError, match=r"from: tg-cpu [^$]*are free"):
        Buffer("CPU", 2 * free, dtypes.uint8).ensure_allocated()
    assert zeros().numpy()[0] == 0


def test_fork(device: CPUDevice) -> None:
    program = kernels.load(device, "by_thread", 1, threads=2)
    data = zeros(32)
    program([data])
    child = os.fork()
    if child == 0:
        try:
            program([data])
            fine = data.numpy()[::16].tolist() == [2, 4]
        finally:
            os._exit(0 if fine else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    program([data])
    assert data.numpy()[::16].tolist() == [2, 4]


def test_signals_wake_the_host(device: CPUDevice) -> None:
    one = device.new_signal()
    timer = threading.Timer(0.05, setattr, (one, "value", 3))
    timer.start()
    assert one.wait(3, timeout=10)
    timer.join()


def test_the_native_functions_are_kept() -> None:
    assert functions() is functions()


def test_a_closed_device_says_so_and_opens_again() -> None:
    first = Device["CPU:7"]
    program = kernels.load(first, "add_variable", 1, variables=(N,))
    data = zeros(device="CPU:7")
    program([data], [1])
    first.synchronize()
    first.close()
    with pytest.raises(DeviceError, match="closed"):
        program([data], [1])


def in_new_process(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=os.environ | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


RUN_ADD = """
    import sys
    from tests.hcq import kernels
    from tgcore.runtime.device import Device
    from tgcore.runtime.buffer import Buffer
    from tgcore.dtype import dtypes
    device = Device["CPU"]
    print("llvmlite" in sys.modules, device.processor.threads)
    make = lambda: Buffer("CPU", 4, dtypes.int32, initial=bytes([1, 0, 0, 0] * 4))
    out = make()
    kernels.load(device, "add", 3)([out, make(), make()])
    print(out.numpy())
"""


def test_opening_is_quick_once_the_processor_is_kept(tmp_path: Path) -> None:
    for known in (True, False):
        done = in_new_process(RUN_ADD, TGCORE_CACHE_DIR=str(tmp_path))
        assert done.stdout.startswith(f"{known} "), done.stderr
        assert "[2 2 2 2]" in done.stdout


@pytest.mark.parametrize("junk", [b"", b"junk", b"x" * 5000])
def test_a_spoilt_cache_is_made_anew(tmp_path: Path, junk: bytes) -> None:
    in_new_process(RUN_ADD, TGCORE_CACHE_DIR=str(tmp_path))
    for file in tmp_path.glob("tg-cpu-*"):
        file.write_bytes(junk)
    done = in_new_process(RUN_ADD, TGCORE_CACHE_DIR=str(tmp_path))
    assert "[2 2 2 2]" in done.stdout, done.stderr


def test_no_place_for_a_cache() -> None:
    done = in_new_process(RUN_ADD, TGCORE_CACHE_DIR="/proc/nowhere")
    assert "[2 2 2 2]" in done.stdout, done.stderr


def test_cpu_count() -> None:
    assert in_new_process(RUN_ADD, CPU_COUNT="1").stdout.split()[1] == "1"
    done = in_new_process(RUN_ADD, CPU_COUNT="many")
    assert "CPU_COUNT='many' is no number of threads" in done.stderr


def test_the_process_ends_while_a_kernel_runs() -> None:
    done = in_new_process(
        """
        from tests.hcq import kernels
        from tests.plugins.cpu.test_processor import N, zeros
        from tgcore.runtime.device import Device
        program = kernels.load(Device["CPU"], "slow", 1, variables=(N,))
        program([zeros()], [100_000_000_000])
        print("over")
        """
    )
    assert done.stdout == "over\n" and done.returncode == 0, done.stderr


def test_interrupt_of_a_process() -> None:
    code = """
        from tests.hcq import kernels
        from tests.plugins.cpu.test_processor import N, zeros
        from tgcore.runtime.device import Device
        program = kernels.load(Device["CPU"], "slow", 1, variables=(N,))
        data = zeros()
        program([data], [3_000_000_000])
        print("running", flush=True)
        try:
            data.numpy()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        print(data.numpy()[0])
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    start = time.monotonic()
    assert process.stdout.readline() == "interrupted\n"
    assert time.monotonic() - start < 0.5
    assert process.stdout.readline() == "1\n"
    assert process.wait(30) == 0
