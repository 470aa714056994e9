"""The pytest plugin: the option that names the device to test."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--tg-device`."""
    group = parser.getgroup("tgcore")
    group.addoption(
        "--tg-device", default=None, help="the device that tgcore.testing checks (default: DEV)"
    )
