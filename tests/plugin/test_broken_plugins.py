"""A broken plugin is an error with cause and cure for who asks for its device, and for no other."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import GOOD, Site

HEAD = """
from tgcore.plugin import BackendDescription, Probe
from tgcore.plugin.hookspecs import hookimpl
from tgcore.runtime.compiled import CompiledDevice
TGCORE_CONTRACT = (1, 0)
def open_device(name, index):
    return CompiledDevice(name, None)
"""

DESCRIBE = """
@hookimpl
def tgcore_describe_backend():
    return BackendDescription("BAD", priority=1000, open=open_device)
"""

# name -> source, what the error must say of the cause, and of the cure
BROKEN = {
    "import error": ("import no_such_package_xyz", "no_such_package_xyz", "pip install"),
    "missing library": (
        "import ctypes; ctypes.CDLL('libabsent.so.9')", "libabsent.so.9", "install the library",
    ),
    "syntax error": ("def broken(:", "SyntaxError", "pip install --upgrade bad-plugin"),
    "error while importing": ("raise RuntimeError('inner trouble')", "inner trouble", "pip"),
    "no contract version": ("x = 1", "does not state the contract version", "pip install"),
    "strange contract version": ("TGCORE_CONTRACT = 'one'", "must be (major, minor)", "pip"),
    "no description": (HEAD, "tgcore_describe_backend is not implemented", "pip install"),
    "raising description": (
        HEAD + "@hookimpl\ndef tgcore_describe_backend():\n    raise ValueError('inner trouble')",
        "ValueError: inner trouble", "pip install",
    ),
    "missing fields": (
        HEAD + "@hookimpl\ndef tgcore_describe_backend():\n    return BackendDescription('BAD')",
        "'priority' and 'open'", "pip install",
    ),
    "fields of wrong kinds": (
        HEAD + "@hookimpl\ndef tgcore_describe_backend():\n"
        "    class D:\n        name = 'OTHER'; priority = 'high'; hcq = True\n    return D()",
        "priority must be an integer, not str; "
        "open is missing (a function (name, index) -> device); "
        "by_default is missing (a bool); executes is missing (a bool); name is 'OTHER'",
        "pip install",
    ),
    "unknown hook argument": (
        HEAD + DESCRIBE + "@hookimpl\ndef tgcore_buffer_freed(nonsense):\n    pass",
        "nonsense", "pip install",
    ),
    "opens something else": (
        (HEAD + DESCRIBE).replace("return CompiledDevice(name, None)", "return 7"),
        "opened a int, not a CompiledDevice", "pip install --upgrade",
    ),
    "does not open": (
        (HEAD + DESCRIBE).replace("return CompiledDevice(name, None)", "raise OSError('rights')"),
        "rights", "install",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", BROKEN)
def test_error_for_who_asks(site: Site, kind: str) -> None:
    source, cause, cure = BROKEN[kind]
    site.add("bad-plugin", "BAD", source, "0.3")
    site.good("good-plugin", "GOOD")
    told = site.ask("BAD")
    assert "DeviceError: device BAD" in told
    assert "from: bad-plugin 0.3" in told
    assert cause in told.replace("\n", " ") and f"fix:  {cure}" in told
    assert 'bad_plugin.py"' not in told and "During handling" not in told, told


@pytest.mark.parametrize("kind", BROKEN)
def test_other_devices_work_and_the_table_names_it(site: Site, kind: str) -> None:
    site.add("bad-plugin", "BAD", BROKEN[kind][0], "0.3")
    site.good("good-plugin", "GOOD", priority=500)
    told = site.run(
        """
        from tgcore.runtime.device import Device
        print(Device["GOOD"].name)
        from tgcore.cli.main import main
        main(["devices"])
        """
    )
    assert told.startswith("GOOD\n") and "Traceback" not in told
    assert "bad-plugin 0.3" in told and "good-plugin 1.0" in told
    if "open" not in kind:
        assert BROKEN[kind][1].split(";")[0].split("'")[0] in told


def test_the_default_device_is_not_the_broken_one(site: Site) -> None:
    site.add("bad-plugin", "BAD", "raise RuntimeError('inner trouble')")
    site.good("good-plugin", "GOOD", priority=500)
    told = site.run("from tgcore.runtime.device import Device; print(Device.DEFAULT)")
    assert told == "GOOD\n"


def test_traceback_if_asked_for(site: Site) -> None:
    site.add("bad-plugin", "BAD", "raise RuntimeError('inner trouble')")
    assert "bad_plugin.py" in site.ask("BAD", TGCORE_TRACEBACK="1")


def test_raising_probe(site: Site) -> None:
    probe = "\n@hookimpl\ndef tgcore_probe():\n    raise RuntimeError('inner trouble')\n"
    site.add("bad-plugin", "BAD", HEAD + DESCRIBE + probe)
    site.good("good-plugin", "GOOD", priority=500)
    told = site.run(
        """
        from tgcore.runtime.device import Device
        print(Device.DEFAULT)
        from tgcore.cli.main import main
        main(["devices"])
        """
    )
    assert told.startswith("GOOD\n") and "Traceback" not in told
    assert "its probe failed: RuntimeError: inner trouble" in told
    assert "pip install --force-reinstall bad-plugin" in told


def test_probe_that_finds_nothing_says_why(site: Site) -> None:
    probe = "\n@hookimpl\ndef tgcore_probe():\n    return Probe((), 'no driver', 'load it')\n"
    site.add("bad-plugin", "BAD", HEAD + DESCRIBE + probe)
    told = site.run("from tgcore.cli.main import main; main(['devices'])")
    assert "no driver" in told and "load it" in told
    told = site.run("from tgcore.runtime.device import Device; print(Device.DEFAULT)",
                    TGCORE_PLUGINS="bad-plugin")  # fmt: skip
    assert "BAD: no driver (load it)" in told


@pytest.mark.parametrize(
    ("version", "fine", "cure"),
    [
        ((1, 0), True, ""),
        ((1, 1), False, "pip install --upgrade tgcore"),
        ((1, 7), False, "pip install --upgrade tgcore"),
        ((2, 0), False, "pip install --upgrade tgcore"),
        ((0, 9), False, "pip install --upgrade some-plugin"),
        ((0, 0), False, "pip install --upgrade some-plugin"),
    ],
)
def test_contract_versions(site: Site, version: tuple[int, int], fine: bool, cure: str) -> None:
    source = GOOD.replace("{name}", "SOME").replace("{priority}", "1")
    hook_ran = "    print('hook ran')\n    return BackendDescription"
    source = source.replace("    return BackendDescription", hook_ran)
    site.add("some-plugin", "SOME", source.replace("(1, 0)", str(version)))
    told = site.ask("SOME")
    assert ("opened SOME" in told) is fine
    assert ("hook ran" in told) is fine
    if not fine:
        assert f"contract version {version[0]}.{version[1]}, tgcore has 1.0" in told
        assert f"fix:  {cure}" in told


def test_name_clash(site: Site) -> None:
    site.good("first-plugin", "SOME")
    site.add("second-plugin", "SOME", GOOD, "2.5")
    site.good("other-plugin", "OTHER")
    told = site.ask("SOME")
    assert "first-plugin 1.0 and second-plugin 2.5" in told or (
        "second-plugin 2.5 and first-plugin 1.0" in told
    )
    assert "opened OTHER" in site.ask("OTHER")
    assert "opened SOME" in site.ask("SOME", TGCORE_PLUGINS="first-plugin")
    told = site.run("from tgcore.cli.main import main; main(['devices'])")
    assert "first-plugin 1.0" in told and "second-plugin 2.5" in told


def test_disabled(site: Site) -> None:
    site.good("some-plugin", "SOME")
    told = site.ask("SOME", TGCORE_DISABLE="some,other")
    assert "device SOME is switched off" in told and "TGCORE_DISABLE=some,other" in told
    told = site.ask("SOME", TGCORE_PLUGINS="another")
    assert "device SOME is switched off" in told and "TGCORE_PLUGINS=another" in told
