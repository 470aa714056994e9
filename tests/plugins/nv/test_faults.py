"""What goes wrong on a GPU or in its driver: errors that name it, and life goes on after them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from tg_nv.device import NVDevice
from tg_nv.driver.status import DriverError, name_of

from tests.emulators.nv import FakeSystem
from tests.emulators.nv.install import installed
from tests.emulators.nv.profiles import PROFILES
from tests.plugins.nv import kernels
from tests.plugins.nv.kernels import Memory, device, run
from tgcore import Tensor
from tgcore.errors import DeviceError
from tgcore.helpers import Context
from tgcore.runtime.device import Device


@pytest.fixture
def system() -> Iterator[FakeSystem]:
    with installed(PROFILES["GH100"]) as found:
        found.kernel_budget = 200_000
        yield found


@pytest.fixture
def gpu(system: FakeSystem) -> NVDevice:
    return device()


def failure_of(gpu: NVDevice, source: str, *args: int) -> DeviceError:
    with pytest.raises(DeviceError) as caught:
        run(gpu, source, args)
    return caught.value


# *** kernels that fail ***


def test_an_access_outside_of_memory_names_kernel_address_and_buffer(gpu: NVDevice) -> None:
    data = Memory(gpu, np.zeros(1 << 20, np.int32))
    address = data.address + (1 << 32)
    error = failure_of(gpu, kernels.WILD, data.address, 1 << 30)
    assert error.what == "NV failed while it ran wild"
    assert "memory that is not mapped (Xid 31)" in error.why
    assert f"write, nothing is mapped there at {address:#x}" in error.why
    distance = (1 << 32) - (4 << 20)
    assert f"{distance} bytes after the end of a buffer of {4 << 20} bytes" in error.why


def test_an_access_before_a_buffer_says_so(gpu: NVDevice) -> None:
    data = Memory(gpu, np.zeros(1 << 20, np.int32))
    error = failure_of(gpu, kernels.WILD, data.address, -(1 << 30))
    assert f"{1 << 32} bytes before a buffer of {4 << 20} bytes" in error.why


def test_a_trap_is_an_exception_with_the_place_in_the_code(gpu: NVDevice) -> None:
    data = Memory(gpu, np.zeros(4, np.int32))
    error = failure_of(gpu, kernels.TRAP, data.address)
    assert error.what == "NV failed while it ran broken"
    assert "an exception in a kernel" in error.why and "(Xid 13)" in error.why


def test_a_kernel_without_end_is_given_up(gpu: NVDevice) -> None:
    data = Memory(gpu, np.zeros(4, np.int32))
    with Context(HCQ_TIMEOUT=200):
        error = failure_of(gpu, kernels.ENDLESS, data.address)
    assert error.what == "NV did not finish endless within 200 ms"
    assert "its compute channel did" in error.why and "HCQ_TIMEOUT" in error.fix


FAILURES = {
    "memory": (kernels.WILD, 1 << 30),
    "trap": (kernels.TRAP,),
    "endless": (kernels.ENDLESS,),
}


@pytest.mark.parametrize("what", FAILURES)
def test_the_process_goes_on_with_a_fresh_device(system: FakeSystem, what: str) -> None:
    gpu = device()
    source, *args = FAILURES[what]
    lost = Tensor([1.0, 2.0], device="NV").realize()
    with Context(HCQ_TIMEOUT=200):
        failure_of(gpu, source, Memory(gpu, np.zeros(4, np.int32)).address, *args)
    with pytest.raises(DeviceError, match="NV failed before"):
        gpu.enqueue_copy(0, 0, 4)
    assert device() is not gpu
    assert (Tensor([1.0, 2.0], device="NV") + 1).tolist() == [2.0, 3.0]
    with pytest.raises(DeviceError):
        (lost + 1).tolist()


def test_what_follows_a_failure_in_the_queue_fails_too(gpu: NVDevice) -> None:
    x = Tensor([1.0, 2.0], device="NV").realize()
    y = Memory(gpu, np.zeros(4, np.int32))
    program = kernels.load(gpu, kernels.WILD)
    gpu.enqueue("wild", lambda q: q.exec(program, [y.address, 1 << 40]))
    with pytest.raises(DeviceError, match="NV failed while it ran wild"):
        (x + 1).tolist()


# *** the driver ***


@pytest.mark.parametrize(
    ("path", "code", "why", "fix"),
    [
        ("/dev/nvidiactl", 2, "No such file", "install the NVIDIA kernel driver"),
        ("/dev/nvidiactl", 13, "Permission denied", "join the group"),
        ("/dev/nvidia-uvm", 2, "No such file", "nvidia-modprobe"),
        ("/dev/nvidia0", 13, "Permission denied", "join the group"),
    ],
)
def test_a_file_that_does_not_open_is_named_with_the_reason(
    path: str, code: int, why: str, fix: str
) -> None:
    with installed(PROFILES["GH100"]) as system:
        system.missing[path] = code
        for ask in (lambda: Device["NV"], probe_reason):
            with pytest.raises(DeviceError) as caught:
                ask()
            text = f"{caught.value.what} {caught.value.why}"
            assert path in text and why in text
            assert fix in caught.value.fix


def probe_reason() -> None:
    from tg_nv.plugin import tgcore_probe

    found = tgcore_probe()
    assert not found.devices
    raise DeviceError(found.reason, "", "", found.fix)


def test_a_gpu_that_does_not_start_says_to_look_in_the_log() -> None:
    with installed(PROFILES["GH100"]) as system:
        system.missing["/dev/nvidia0"] = 5
        with pytest.raises(DeviceError, match=r"Input/output error(.|\n)*dmesg"):
            Device["NV"]


def test_an_old_driver_is_named_with_its_version() -> None:
    message = r"version 470.57.02(.|\n)*install driver 535"
    with (
        installed(PROFILES["GH100"], driver="470.57.02"),
        pytest.raises(DeviceError, match=message),
    ):
        Device["NV"]


@pytest.mark.parametrize("driver", ["535.288.01", "550.163.01", "570.211.01", "575.64.05",
                                    "580.142", "590.48.01"])  # fmt: skip
def test_all_drivers_are_spoken_to_in_their_own_layouts(driver: str) -> None:
    with installed(PROFILES["GH100"], driver=driver):
        assert (Tensor([1.0, 2.0], device="NV") + 1).tolist() == [2.0, 3.0]


def test_statuses_have_names() -> None:
    assert name_of(0x1F) == "INVALID_ARGUMENT (0x1f)"
    assert name_of(0x1234) == "unknown status (0x1234)"


# *** each call failing once ***


def work() -> None:
    """Set-up, allocations, copies, launches, another device file: what a program does."""
    x = Tensor(np.arange(300_000, dtype=np.float32), device="NV").realize()
    y = (x + 1).realize()
    assert y[2].item() == 3.0
    Device.close()


def calls_of(driver: str = "580.142") -> int:
    with installed(PROFILES["GH100"], driver=driver) as system:
        start = system.calls
        work()
        return system.calls - start


def test_each_call_of_the_driver_may_fail() -> None:
    """An error that names the step and the status; nothing is left; the next attempt works."""
    count, unharmed = calls_of(), 0
    for number in range(1, count + 1):
        with installed(PROFILES["GH100"]) as system:
            system.fail_ioctl(number, 0x3F)
            try:
                work()
            except DriverError as error:
                known = "INVALID_REQUEST (0x3f)", "Invalid argument"  # some have no status
                assert error.step and any(text in str(error) for text in known), str(error)
            else:
                unharmed += 1
            Device.close()
            assert not system.objects(), (number, system.objects(), system.log[-20:])
            work()
            system.complaints.clear()  # a call that fails leaves what it was to undo
    assert count > 100
    assert unharmed < count // 4  # what is only asked for, such as full clocks


def test_each_call_may_be_refused_by_the_operating_system() -> None:
    count = calls_of()
    for number in range(1, count + 1, 7):
        with installed(PROFILES["GH100"]) as system:
            system.fail_ioctl(number, OSError(22, "Invalid argument"))
            try:
                work()
            except DriverError as error:
                assert "Invalid argument (errno 22)" in str(error)
            Device.close()
            assert not system.objects(), number
            work()
            system.complaints.clear()


def test_running_out_of_memory_in_the_driver_is_an_error_of_memory(gpu: NVDevice) -> None:
    with pytest.raises(MemoryError):
        gpu.allocator.alloc(1 << 50)
    assert (Tensor([1.0], device="NV") + 1).tolist() == [2.0]


def test_an_interrupt_leaves_nothing_behind(system: FakeSystem) -> None:
    gpu = device()
    kept = [Memory(gpu, np.zeros(1 << 20, np.int32)) for _ in range(3)]
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        Device.close()
    assert kept and not system.objects()
