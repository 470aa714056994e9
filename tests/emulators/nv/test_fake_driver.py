"""The fake NVIDIA driver: the build sequence, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.emulators.nv.client import Client
from tests.emulators.nv.profiles import GH100, PROFILES
from tests.emulators.nv.system import FakeSystem

DRIVERS = ["535.288.01", "550.163.01", "570.211.01", "575.64.05", "580.142", "590.48.01"]


@pytest.fixture
def system() -> FakeSystem:
    return FakeSystem([GH100])


@pytest.fixture
def client(system: FakeSystem) -> Iterator[Client]:
    made = Client(system)
    yield made
    made.close()
    assert not system.objects()


@pytest.mark.parametrize("chip", PROFILES)
@pytest.mark.parametrize("driver", DRIVERS)
def test_the_build_sequence_passes_and_semaphores_are_released(chip: str, driver: str) -> None:
    system = FakeSystem([PROFILES[chip]], driver)
    client = Client(system)
    gpu = client.open_gpu()
    slots = client.buffer(gpu, 4096)
    for i, compute in enumerate((False, True)):
        queue = client.queue(gpu, compute=compute)
        client.release(queue, slots.address + 16 * i, 7 + i)
        client.submit(gpu, queue)
        assert slots.u64(16 * i) == 7 + i and slots.u64(16 * i + 8)
        assert queue.ring.u32(queue.USERD + 0x88) == 1
    assert not system.complaints
    client.close()
    assert not system.objects()
