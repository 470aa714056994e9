"""The device under test, skipped where the hardware is absent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tgcore.dtype import DType, dtypes
from tgcore.hcq.device import HCQDevice
from tgcore.plugin import discovery
from tgcore.plugin.discovery import Backend
from tgcore.runtime.buffer import Buffer
from tgcore.runtime.compiled import CompiledDevice
from tgcore.runtime.device import Device

MakeBuffer = Callable[..., Buffer]


@pytest.fixture(scope="session")
def name(request: pytest.FixtureRequest) -> str:
    """The canonical name of the device under test."""
    return Device.canonicalize(request.config.getoption("--tg-device"))


@pytest.fixture(scope="session")
def backend(name: str) -> Backend:
    """Its back end; skips if the probe finds no device."""
    found = Device.backend(name)
    probe = discovery.probe(found)
    if not probe.devices:
        pytest.skip(f"no {name}: {probe.reason}")
    return found


@pytest.fixture(scope="session")
def device(name: str, backend: Backend) -> CompiledDevice:
    """The opened device."""
    return Device[name]


@pytest.fixture
def hcq(device: CompiledDevice) -> HCQDevice:
    """The opened device, if it is driven by queues."""
    if not isinstance(device, HCQDevice):
        pytest.skip(f"{device.name} has no command queues")
    return device


@pytest.fixture(scope="session")
def executes(backend: Backend) -> bool:
    """Whether kernels compute values, so that these can be compared."""
    return backend.description.executes


@pytest.fixture
def make(name: str, device: CompiledDevice) -> MakeBuffer:
    """Makes a buffer of these values."""

    def of(values: Any, dtype: DType = dtypes.int32) -> Buffer:
        array = np.asarray(values, dtype=np.dtype(dtype.fmt))
        return Buffer(name, array.size, dtype, initial=array.tobytes())

    return of


@pytest.fixture(autouse=True)
def settled(device: CompiledDevice) -> Iterator[None]:
    """Leaves the device idle after each test."""
    yield
    device.synchronize()
