"""The cache on disk: what goes wrong with files never goes wrong with programs."""

import multiprocessing
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tgcore.runtime import diskcache
from tgcore.runtime.diskcache import DiskCache


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cache" / "file.sqlite"


def test_round_trip(path):
    cache = DiskCache(path)
    assert cache.get("a") is None
    cache.put("a", b"one")
    cache.put("b", b"")
    cache.put("a", b"two")
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (b"two", b"", None)
    cache.close()
    assert DiskCache(path).get("a") == b"two"
    cache.clear()
    assert cache.get("a") is None


def test_folder_is_private(path):
    DiskCache(path).put("a", b"one")
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("damage", ["cut", "junk", "zeros", "empty", "other table", "directory"])
def test_damaged_file(path, damage):
    cache = DiskCache(path)
    for number in range(50):
        cache.put(f"key {number}", os.urandom(3000))
    cache.close()
    whole = path.read_bytes()
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    path.unlink()
    if damage == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    elif damage == "junk":
        path.write_bytes(os.urandom(len(whole)))
    elif damage == "zeros":
        path.write_bytes(bytes(len(whole)))
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "other table":
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE entries (something TEXT)")
    else:
        path.mkdir()
    cache = DiskCache(path)
    for number in range(50):
        cache.get(f"key {number}")
    cache.put("new", b"value")
    if damage == "directory":
        assert cache.get("new") is None
        return
    if cache.get("new") is None:  # the damage was found while writing: the next write works
        cache.put("new", b"value")
    assert cache.get("new") == b"value"
    assert DiskCache(path).get("new") == b"value"


def test_changed_bytes_are_not_returned(path):
    cache = DiskCache(path)
    cache.put("a", b"a value that is long enough")
    cache.close()
    with sqlite3.connect(path) as connection:
        (value,) = connection.execute("SELECT value FROM entries").fetchone()
        connection.execute("UPDATE entries SET value = ?", (value[:-1] + b"!",))
    assert DiskCache(path).get("a") is None


def test_read_only_folder(path):
    path.parent.mkdir()
    blocked = path.parent / "file"
    blocked.write_bytes(b"")
    cache = DiskCache(blocked / "cache.sqlite")  # a file where the folder should be
    cache.put("a", b"one")
    assert cache.get("a") is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_no_permission(path):
    path.parent.mkdir(mode=0o500)
    cache = DiskCache(path)
    cache.put("a", b"one")
    assert cache.get("a") is None


def test_full_disk(path, monkeypatch):
    cache = DiskCache(path)
    cache.put("a", b"one")
    connection = cache._open()
    connection.execute("PRAGMA max_page_count = 3")
    cache.put("large", os.urandom(1 << 20))
    cache.put("b", b"two")
    assert cache.get("large") is None
    cache.close()
    assert cache.get("a") == b"one"


def test_size_is_bounded(path):
    cache = DiskCache(path, limit=100_000)
    for number in range(600):
        cache.put(f"key {number}", bytes(1000))
    total = sqlite3.connect(path).execute("SELECT SUM(size) FROM entries").fetchone()[0]
    assert total < 400_000
    assert cache.get("key 599") is not None


def _write_many(path, seed):
    cache = DiskCache(Path(path))
    for number in range(60):
        cache.put(f"key {number}", f"value {number}".encode() * 100)
        got = cache.get(f"key {(number * 7 + seed) % 60}")
        assert got is None or got.startswith(b"value ")


def test_writers_at_once(path):
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_many, args=(str(path), n)) for n in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    cache = DiskCache(path)
    assert sum(cache.get(f"key {n}") == f"value {n}".encode() * 100 for n in range(60)) == 60


def test_killed_writer(path):
    code = (
        "import sys, os; from pathlib import Path; from tgcore.runtime.diskcache import DiskCache\n"
        "c = DiskCache(Path(sys.argv[1])); n = 0\n"
        "while True:\n    c.put(f'key {n}', os.urandom(100000)); n += 1\n"
        "    print(n, flush=True) if n == 3 else None\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    process.stdout.readline()
    time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    cache = DiskCache(path)
    assert len(cache.get("key 0")) == 100000
    cache.put("new", b"value")
    assert cache.get("new") == b"value"


def test_forked_child(path):
    cache = DiskCache(path)
    cache.put("a", b"one")
    child = os.fork()
    if child == 0:
        try:
            cache.put("b", b"two")
            os._exit(0 if cache.get("a") == b"one" else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert cache.get("b") == b"two"


def test_level_zero_turns_it_off(monkeypatch):
    from tgcore.helpers import Context

    with Context(CACHELEVEL=0):
        diskcache.store("key of this test", b"value")
        assert diskcache.load("key of this test") is None
