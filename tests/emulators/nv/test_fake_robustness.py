"""Nonsense is answered with an error, never with an exception of Python's or a crash."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest

from tests.emulators.nv.client import Client, Queue
from tests.emulators.nv.controls import COMMANDS
from tests.emulators.nv.layout import at_version
from tests.emulators.nv.profiles import GB202, GH100, PROFILES
from tests.emulators.nv.system import FakeSystem
from tests.emulators.nv.test_fake_compute import CODE, launch_add, opened, result, xid


def interesting(rng: random.Random, handles: list[int]) -> int:
    """A number that is likelier to get far than a random one."""
    return rng.choice(
        [0, 1, 4, 0x1000, 0x71, 0x3E, 0x40, 1 << 31, 0xFFFF_FFFF, rng.getrandbits(32), *handles]
    )


@pytest.mark.parametrize("seed", range(4))
def test_random_calls(seed: int) -> None:
    rng = random.Random(seed)
    system = FakeSystem([GH100, GB202])
    client = Client(system)
    gpu = client.open_gpu()
    client.queue(gpu, compute=True)
    handles = list(system.rm.clients[client.root].nodes)
    keep = {client.root}
    calls = [(n, system.rm.layouts[s].size) for n, (_, s, _, _) in system.rm.escapes.items()]
    uvm = [(n, system.uvm.layouts[name].size) for n, (name, _) in system.uvm.calls.items()]
    for _ in range(1500):
        files = [f for f in (client.ctl, gpu.file, client.uvm) if not f.closed]
        file = rng.choice(files)
        number, size = rng.choice(uvm if file.kind == "uvm" else calls)
        data = bytearray(size)
        for at in range(0, size - 3, 4):
            if rng.random() < 0.5 and at < 64:
                value = interesting(rng, handles)
                data[at : at + 4] = value.to_bytes(4, "little")
        if number == 0x29 and int.from_bytes(data[8:12], "little") in keep:
            continue
        whole = number if file.kind == "uvm" else 0xC000_4600 | size << 16 | number
        try:
            file.ioctl(whole, data)
        except OSError as error:
            assert error.errno
    client.close()
    assert not system.objects()


@pytest.mark.parametrize("seed", range(2))
def test_random_controls(seed: int) -> None:
    rng = random.Random(seed)
    system = FakeSystem([GH100])
    client = Client(system)
    gpu = client.open_gpu()
    client.queue(gpu, compute=True)
    handles = list(system.rm.clients[client.root].nodes)
    for command, known in COMMANDS.items():
        size = at_version(known.size, system.major)
        for target in handles:
            data = bytearray(size)
            for at in range(0, min(size, 64) - 3, 4):
                value = interesting(rng, handles) if rng.random() < 0.4 else 0
                data[at : at + 4] = value.to_bytes(4, "little")
            try:
                client.control(target, command, data)
            except OSError as error:
                assert error.errno
            except Exception as error:
                assert type(error).__name__ == "Status"
    client.close()


@pytest.mark.parametrize("chip", PROFILES)
def test_random_pushbuffers(chip: str) -> None:
    rng = random.Random(chip)
    methods = [
        0x10,
        0x5C,
        0x60,
        0x6C,
        0x240,
        0x300,
        0x400,
        0x418,
        0x708,
        0x180,
        0x1B0,
        0x1B4,
        0x2B4,
    ]
    methods += [0x2C0, 0x790, 0x7B0, 0x1698, 0x1B00, 0x1B0C, 0x110]
    for compute in (False, True):
        for _ in range(40):
            system = FakeSystem([PROFILES[chip]])
            client = Client(system)
            gpu = client.open_gpu()
            queue = client.queue(gpu, compute=compute)
            target = queue.ring.address
            for _ in range(20):
                count = rng.randrange(1, 5)
                method = rng.choice(methods)
                data = [
                    rng.choice([0, 1, 16, target >> 32, target & 0xFFFF_FFFF]) for _ in range(count)
                ]
                if rng.random() < 0.2:
                    data[0] = rng.getrandbits(32)
                client.push(queue, queue.subchannel, method, *data)
            client.submit(gpu, queue)
            client.close()


@pytest.mark.parametrize("chip", PROFILES)
def test_random_bits_of_descriptors(chip: str) -> None:
    rng = random.Random(chip)
    for _ in range(60):
        launcher = opened(PROFILES[chip])
        launcher.set_up()
        launch_add(launcher)
        for _ in range(rng.randrange(1, 3)):
            at = 0x1000 + rng.randrange(256)
            launcher.work.view[at] ^= 1 << rng.randrange(8)
        launcher.client.system.kernel_budget = 10_000
        launcher.finish()
        launcher.client.close()


# GPUs that take their time


def test_work_is_done_later_when_the_gpu_is_slow() -> None:
    launcher = opened()
    launcher.client.system.delay = 0.02
    launcher.set_up()
    launch_add(launcher)
    assert launcher.finish() == 0
    end = time.monotonic() + 10
    while not launcher.work.u64() and time.monotonic() < end:
        time.sleep(0.001)
    assert result(launcher) == list(np.arange(64) + 5)
    assert launcher.queue.ring.u32(Queue.USERD + 0x88) == 1
    assert not launcher.client.system.complaints
    launcher.client.close()


def test_the_hardware_can_be_made_to_fail() -> None:
    launcher = opened()
    launcher.client.system.gpus[0].fail(79, "fell off the bus")
    assert xid(launcher) == 79
    launcher.client.close()


def test_code_is_known_by_its_bytes() -> None:
    system = opened().client.system
    assert system.code.find(CODE) is not None and system.code.codes("add") == [CODE]
