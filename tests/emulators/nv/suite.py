"""Runs tests on fake GPUs: `NV_FAKE=GH100,GH100 DEV=NV pytest -p tests.emulators.nv.suite ...`."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.emulators.nv.install import installed
from tests.emulators.nv.profiles import PROFILES


@pytest.fixture(scope="session", autouse=True)
def fake_gpus() -> Iterator[None]:
    """The GPUs that NV_FAKE names."""
    names = os.environ.get("NV_FAKE", "GH100").split(",")
    with installed(*(PROFILES[name] for name in names)):
        yield
