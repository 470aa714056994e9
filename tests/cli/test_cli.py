"""The command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from tgcore.cli.main import cli


def run(*args: str) -> str:
    result = CliRunner().invoke(cli, args, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_devices() -> None:
    text = run("devices")
    assert "device" in text and "supplied by" in text


def test_json() -> None:
    pytest.importorskip("tg_cpu")
    rows = {row["name"]: row for row in json.loads(run("devices", "--json"))}
    assert rows["CPU"]["devices"] and rows["CPU"]["version"].startswith("tg-cpu ")


def test_verbose() -> None:
    pytest.importorskip("tg_cpu")
    assert "CPU: compiler llvm: available" in run("devices", "--verbose")


def test_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("rich", "rich.console", "rich.table", "rich.text"):
        monkeypatch.setitem(sys.modules, name, None)
    text = run("devices")
    assert "┃" not in text and "* is the default device" in text


def test_nothing_installed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tgcore.cli", "devices"],
        env=os.environ | {"TGCORE_PLUGINS": "no-such-distribution"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    assert "No back end is installed." in done.stdout and "tgcore[cpu]" in done.stdout


def test_version_and_help() -> None:
    assert "tgcore" in run("--version") and "devices" in run("--help")
