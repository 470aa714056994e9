"""The conformance kit: a back end from outside passes, absent hardware skips, trouble fails."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plugin.conftest import GOOD, Site

null = pytest.importorskip("tg_null.plugin")


def run_kit(site: Site, name: str, *options: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n0", "--pyargs",
         "tgcore.testing", "--tg-device", name, *options],
        env=os.environ | {"PYTHONPATH": str(site.folder)},
        cwd=site.folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


def test_a_back_end_from_outside_passes(site: Site) -> None:
    source = Path(null.__file__).read_text().replace('"NULL"', '"ACME"')
    site.add("acme-chip", "ACME", source)
    told = run_kit(site, "ACME")
    assert re.search(r"\d+ passed", told) and "failed" not in told and "error" not in told, told


def test_absent_hardware_skips(site: Site) -> None:
    source = GOOD.replace("{name}", "ACME").replace("{priority}", "1")
    gone = source.replace('Probe(("first", "second", "third"))', 'Probe((), "no chip", "buy one")')
    site.add("acme-chip", "ACME", gone)
    told = run_kit(site, "ACME", "-rs")
    assert "no ACME: no chip" in told and "failed" not in told and " passed" not in told, told


def test_trouble_when_opening_fails(site: Site) -> None:
    source = GOOD.replace("{name}", "ACME").replace("{priority}", "1")
    broken = source.replace("device = CompiledDevice(name, None)", "raise OSError('it smokes')")
    site.add("acme-chip", "ACME", broken)
    told = run_kit(site, "ACME", "-k", "test_parts")
    assert "1 error" in told and "it smokes" in told, told


def test_an_unknown_device_fails(site: Site) -> None:
    assert "no device ACME" in run_kit(site, "ACME", "-k", "test_parts")
