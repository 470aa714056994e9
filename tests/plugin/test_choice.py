"""Which device is the default one, names, and HCQ_VISIBLE_DEVICES."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import Site
from tgcore.errors import DeviceError
from tgcore.plugin.visible import only_visible, physical_index, visible_indices
from tgcore.runtime.device import canonicalize

DEFAULT = "from tgcore.runtime.device import Device; print(Device.DEFAULT)"


def test_priority_and_settings(site: Site) -> None:
    site.good("a-plugin", "LOW", priority=500)
    site.good("b-plugin", "HIGH", priority=600)
    assert site.run(DEFAULT) == "HIGH\n"
    assert site.run(DEFAULT, DEV="low:1") == "LOW:1\n"
    assert site.run(DEFAULT, LOW="1") == "LOW\n"
    assert site.run(DEFAULT, LOW="0") == "HIGH\n"
    assert site.run(DEFAULT, DEV="LOW", HIGH="1") == "LOW\n"
    told = site.run(DEFAULT, LOW="1", HIGH="1")
    assert "LOW=1" in told and "HIGH=1" in told and "DeviceError" in told


def test_no_back_end_names_the_extras(site: Site) -> None:
    told = site.run(DEFAULT, TGCORE_PLUGINS="no-such-distribution")
    assert "no back end is installed" in told
    assert "pip install 'tgcore[cpu]'" in told and "pip install 'tgcore[null]'" in told


def test_unknown_device(site: Site) -> None:
    site.good("a-plugin", "SOME")
    told = site.ask("NONESUCH")
    assert "no device NONESUCH" in told and "SOME" in told
    told = site.ask("CPU", TGCORE_PLUGINS="a-plugin")
    assert "switched off" in told or "tgcore[cpu]" in told


def test_nothing_is_imported_before_it_is_asked_for(site: Site) -> None:
    site.add("loud-plugin", "LOUD", "print('imported')\nTGCORE_CONTRACT = (1, 0)")
    site.good("a-plugin", "SOME")
    assert "imported" not in site.ask("SOME")
    told = site.run(
        "import tgcore, sys; print({'pluggy', 'llvmlite', 'rich', 'click'} & set(sys.modules))"
    )
    assert told == "set()\n"


def test_visible_devices_in_the_registry(site: Site) -> None:
    site.good("a-plugin", "SOME")
    assert "opened SOME 2" in site.ask("SOME", HCQ_VISIBLE_DEVICES="2,0")
    assert "opened SOME:1 0" in site.ask("SOME:1", HCQ_VISIBLE_DEVICES="2,0")
    assert "opened SOME:1 1" in site.ask("SOME:1", HCQ_VISIBLE_DEVICES="")
    told = site.ask("SOME:2", HCQ_VISIBLE_DEVICES="2,0")
    assert "no device SOME:2" in told and "HCQ_VISIBLE_DEVICES=2,0" in told
    assert "HCQ_VISIBLE_DEVICES='two'" in site.ask("SOME", HCQ_VISIBLE_DEVICES="two")


@pytest.mark.parametrize("bad", ["a", "1,,2", "-1", "0,0", "1.5", ","])
def test_bad_visible_devices(monkeypatch: pytest.MonkeyPatch, bad: str) -> None:
    monkeypatch.setenv("HCQ_VISIBLE_DEVICES", bad)
    with pytest.raises(DeviceError, match="HCQ_VISIBLE_DEVICES"):
        visible_indices()


def test_visible_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HCQ_VISIBLE_DEVICES", " 2, 0 ")
    assert visible_indices() == [2, 0]
    assert physical_index("X", 0) == 2
    assert only_visible(("a", "b", "c", "d")) == ("c", "a")
    assert only_visible(("a", "b")) == ("a",)
    monkeypatch.delenv("HCQ_VISIBLE_DEVICES")
    assert visible_indices() is None and only_visible(("a",)) == ("a",)


def test_canonical_names() -> None:
    assert canonicalize("xyz") == canonicalize("XYZ:0") == canonicalize("xyz:") == "XYZ"
    assert canonicalize("xyz:01") == "XYZ:1"
    assert canonicalize("disk:/tmp/A:b") == "DISK:/tmp/A:b"
    with pytest.raises(DeviceError):
        canonicalize("")
