"""`tgcore replay`: what it shows, its exit status, and files that are no recordings."""

import json
import os
import re
import sqlite3
import subprocess
import sys

import pytest
from click.testing import CliRunner

from tgcore.cli.main import cli
from tgcore.renderer import c_ops
from tgcore.renderer.c import CRenderer
from tgcore.runtime.recording import SCHEMA
from tgcore.uop.ops import Ops

PROGRAM = """
from tgcore import Tensor
for size in (40, 50, 60):
    (Tensor.ones(size).contiguous() + 2).realize()
Tensor.arange(6).reshape(2, 3).contiguous().sum(1).realize()
"""


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """What a process recorded with the C renderer."""
    path = tmp_path_factory.mktemp("replay") / "kernels.sqlite"
    settings = {"PROCESS_REPLAY": str(path), "CPU_RENDERER": "c", "DEV": "CPU", "DEBUG": "0"}
    settings |= dict.fromkeys(("NOOPT", "PCONTIG", "THREADS"), "0")
    subprocess.run([sys.executable, "-c", PROGRAM], env={**os.environ, **settings}, check=True)
    return path


def replay(*args, status=0, jobs=0):
    result = CliRunner().invoke(cli, ["replay", "--jobs", str(jobs), *map(str, args)])
    assert result.exit_code == status, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.output


def count(path, table="kernels"):
    return sqlite3.connect(path).execute(f"SELECT count(*) FROM {table}").fetchone()[0]


@pytest.fixture
def changed(monkeypatch):
    """The C renderer writes one space more after a plus."""
    table = {**CRenderer.code_for_op, Ops.ADD: c_ops._arithmetic("+ ", "|")}
    monkeypatch.setattr(CRenderer, "code_for_op", table)


# *** what it shows ***


@pytest.mark.parametrize("jobs", [0, 2])
def test_two_identical_runs_do_not_differ(recording, jobs):
    number = count(recording)
    text = replay(recording, jobs=jobs)
    assert (
        text
        == f"{number} kernels: {number} equal, 0 different source, 0 different opts, 0 failed\n"
    )
    assert text == replay(recording, "--given-opts", jobs=jobs)


def test_a_change_of_one_character_is_shown(recording, changed):
    text = replay(recording, status=1)
    assert re.search(r"^-.* \+ .*\n\+.* \+  .*$", text, re.MULTILINE)
    assert "--- source recorded\n+++ source now\n@@" in text
    assert "on CPU: different source" in text and "--- opts" not in text


def test_other_moves_are_shown(recording, monkeypatch):
    monkeypatch.setattr("tgcore.codegen.pipeline.optimize_by_hand", lambda kernel: None)
    text = replay(recording, status=1)
    assert "on CPU: different opts" in text
    assert "--- opts recorded\n+++ opts now\n@@ -1 +0,0 @@\n-UPCAST axis 0 arg" in text
    assert " 0 different opts" in replay(recording, "--given-opts")


def test_a_kernel_that_fails_is_shown(recording, monkeypatch):
    monkeypatch.setattr(CRenderer, "code_for_op", {})
    text = replay(recording, status=1)
    assert "on CPU: failed" in text and "Error: " in text


def test_output_is_limited(recording, changed):
    everything = replay(recording, "--most", 100, status=1)
    differing = everything.count("source recorded")
    assert differing >= 3
    text = replay(recording, "--most", 1, status=1)
    assert text.count("source recorded") == 1
    assert f"{differing - 1} more differ; --most {differing} shows all" in text
    assert replay(recording, "--most", 0, status=1) == everything.splitlines()[-1] + "\n"


def test_kernels_are_chosen_by_device_and_name(recording):
    number = count(recording)
    reduces = replay(recording, "--name", "r_*")
    assert reduces.startswith("1 kernel: 1 equal")
    assert replay(recording, "--device", "cpu").startswith(f"{number} kernels: ")
    assert "none of its" in replay(recording, "--device", "OTHER", status=2)


def test_without_a_file_the_one_in_the_cache_is_taken(recording, monkeypatch):
    monkeypatch.setattr("tgcore.cli.replay.default_path", lambda: recording)
    assert " equal, " in replay()


# *** files that are not right ***


def edited(recording, tmp_path, **columns):
    """The recording with other values in these columns of all rows."""
    path = tmp_path / "edited.sqlite"
    path.write_bytes(recording.read_bytes())
    with sqlite3.connect(path) as connection:
        for name, value in columns.items():
            if callable(value):
                for key, old in connection.execute(f"SELECT key, {name} FROM kernels").fetchall():
                    row = (value(old), key)
                    connection.execute(f"UPDATE kernels SET {name} = ? WHERE key = ?", row)
            else:
                connection.execute(f"UPDATE kernels SET {name} = ?", (value,))
    connection.close()
    return path


def test_the_package_that_is_needed_is_named(recording, tmp_path):
    def other(text):
        return text.replace("tgcore.renderer.c.CRenderer", "tg_other.renderer.OtherRenderer")

    path = edited(recording, tmp_path, kernel=other, provider="tg-other", device="OTHER")
    text = replay(path, status=2)
    assert "no back end that is installed has the renderer tg_other.renderer.OtherRenderer" in text
    assert "fix: pip install tg-other" in text
    assert f"{count(recording)} not replayable" in text


PLUGIN = """
from tgcore.errors import DeviceError
from tgcore.plugin import BackendDescription
from tgcore.plugin.hookspecs import hookimpl

TGCORE_CONTRACT = (1, 0)

def open_device(name, index):
    from tg_made_up.language import MadeUpRenderer
    raise DeviceError("there is no such chip in this machine")

@hookimpl
def tgcore_describe_backend():
    return BackendDescription("MADEUP", priority=1, open=open_device)
"""
LANGUAGE = """
from tgcore.renderer.llvm import LLVMRenderer

class MadeUpRenderer(LLVMRenderer):
    pass
"""
RECORD_MADE_UP = """
from tg_made_up.language import MadeUpRenderer
from tgcore.codegen.target import Target
from tgcore.dtype import dtypes
from tgcore.runtime.compile import make_program
from tgcore.uop import Ops, UOp

i = UOp.range(8, 0)
target = Target("MADEUP", ops=MadeUpRenderer.supported_ops())
out, a = (UOp.define(Ops.DEFINE_GLOBAL, dtypes.float32, 8, n) for n in range(2))
ast = UOp.sink(out.index(i).store(a.index(i) + a.index(i)).end(i))
make_program(ast, MadeUpRenderer(target))
"""


def test_a_back_end_without_its_device_needs_its_package_only(tmp_path):
    package, info = tmp_path / "tg_made_up", tmp_path / "tg_made_up-1.0.dist-info"
    package.mkdir()
    info.mkdir()
    (package / "__init__.py").write_text("")
    (package / "plugin.py").write_text(PLUGIN)
    (package / "language.py").write_text(LANGUAGE)
    (package / "broken.py").write_text("import no_such_library")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tg-made-up\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tgcore.backends]\nMADEUP = tg_made_up.plugin\n")
    path = tmp_path / "kernels.sqlite"
    here = {**os.environ, "DEBUG": "0", "SPEC": "0", "PROCESS_REPLAY": str(path)}
    there = {**here, "PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", RECORD_MADE_UP], env=there, check=True)
    command = [sys.executable, "-m", "tgcore.cli", "replay", "--jobs", "1", str(path)]
    for environment, status, message in (
        (there, 0, "1 kernel: 1 equal"),
        (here, 2, "fix: pip install tg-made-up"),
    ):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (status, "")
        assert message in done.stdout


def with_ast(change):
    def edit(text):
        kernel = json.loads(text)
        change(kernel["ast"])
        return json.dumps(kernel)

    return edit


DEEP = "[" * 200_000 + "]" * 200_000
JUNK_COLUMNS = {
    "no JSON": {"kernel": "import os"},
    "a pickle": {"kernel": "\x80\x04\x95cos\nsystem\n"},
    "an empty text": {"kernel": ""},
    "a list": {"kernel": "[]"},
    "nothing in it": {"kernel": "{}"},
    "bytes": {"kernel": b"\xff\x00"},
    "deep nesting": {"kernel": DEEP},
    "deep nesting of moves": {"opts": DEEP},
    "a huge number": {"opts": '[["UPCAST",0,' + "9" * 10_000 + "]]"},
    "an unknown move": {"opts": '[["EVIL",0,1]]'},
    "an unknown op": {"kernel": with_ast(lambda ast: ast[0].__setitem__(0, "EVIL"))},
    "a type of a dunder name": {"kernel": with_ast(lambda ast: ast[0].__setitem__(1, "__class__"))},
    "a source that comes later": {"kernel": with_ast(lambda ast: ast[0].__setitem__(2, [5]))},
    "a large constant": {"kernel": with_ast(lambda ast: ast[0].__setitem__(3, 1 << 4000))},
    "an unknown setting": {"kernel": lambda text: text.replace("NOOPT", "DEV")},
    "a setting of another type": {"kernel": lambda text: text.replace('"NOOPT":0', '"NOOPT":"0"')},
    "a target without a device": {"kernel": lambda text: text.replace('"device"', '"devices"')},
    "NaN": {"kernel": lambda text: text.replace('"given":false', '"given":NaN')},
}


@pytest.mark.parametrize("name", JUNK_COLUMNS)
def test_junk_in_a_row_is_an_error_and_nothing_is_made(name, recording, tmp_path, monkeypatch):
    def never(*args):
        raise AssertionError("a kernel was made")

    monkeypatch.setattr("tgcore.cli.replay.make_all", never)
    path = edited(recording, tmp_path, **JUNK_COLUMNS[name])
    text = replay(path, status=2)
    assert str(path) in text and len(text.splitlines()) == 1 and len(text) < 400
    assert "cannot be read: " in text or "no text" in text


def database(*statements):
    def make(path):
        with sqlite3.connect(path) as connection:
            for statement in statements:
                connection.execute(statement)
        connection.close()

    return make


VIEW = "CREATE VIEW kernels AS SELECT load_extension('evil')"
LOOP = (
    "CREATE VIEW kernels AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) "
    "SELECT x AS key, x AS name FROM n"
)
TRIGGER = "CREATE TRIGGER t AFTER INSERT ON kernels BEGIN SELECT 1; END"
JUNK_FILES = {
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("I am no database\n" * 1000),
    "a pickle": lambda path: path.write_bytes(b"\x80\x04\x95\x1d\x00\x00\x00cos\nsystem\n(Vx\ntR."),
    "a database of something else": database("CREATE TABLE money (amount)"),
    "a recording with no kernels": database(SCHEMA),
    "other columns": database("CREATE TABLE kernels (key, name)"),
    "a view": database(VIEW),
    "a view without end": database(LOOP),
    "a trigger": database(SCHEMA, TRIGGER),
    "a folder": lambda path: path.mkdir(),
    "nothing": lambda path: None,
}


@pytest.mark.parametrize("name", JUNK_FILES)
def test_a_file_of_another_kind_is_an_error(name, tmp_path):
    path = tmp_path / "file.sqlite"
    JUNK_FILES[name](path)
    text = replay(path, status=2)
    assert text.startswith(f"{path}: ") and len(text.splitlines()) == 1


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_truncated_file_is_an_error(share, recording, tmp_path):
    data = recording.read_bytes()
    path = tmp_path / "cut.sqlite"
    path.write_bytes(data[: int(len(data) * share)])
    assert "it cannot be read: " in replay(path, status=2)


def test_a_damaged_file_is_an_error_or_a_difference(recording, tmp_path):
    data = recording.read_bytes()
    path = tmp_path / "damaged.sqlite"
    for start in range(100, len(data), len(data) // 25):
        path.write_bytes(data[:start] + bytes(b ^ 0x55 for b in data[start : start + 40])
                         + data[start + 40 :])  # fmt: skip
        result = CliRunner().invoke(cli, ["replay", "--jobs", "0", str(path)])
        assert result.exit_code in (0, 1, 2)
        assert result.exception is None or isinstance(result.exception, SystemExit)


def test_a_file_is_not_written_to(recording):
    before = recording.read_bytes()
    replay(recording)
    assert recording.read_bytes() == before
    assert [p.name for p in recording.parent.iterdir()] == [recording.name]


def test_a_terminal_obeys_nothing_in_the_file(recording, tmp_path):
    evil = "\x1b]0;title\x07\x1b[2J\x9b\u202e"
    path = edited(recording, tmp_path, source=f"line\n{evil}\n", name=f"r{evil}", launch=evil)
    text = replay(path, status=1)
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(text)
    assert "\\x1b]0;title\\x07" in text


def test_the_help_says_what_the_exit_status_means():
    assert "exit status" in replay("--help")
