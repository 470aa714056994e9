"""A cache of bytes on disk, shared by processes: an SQLite file that nobody has to trust.

Whatever is wrong with it - no space, no permission, a file cut short or overwritten, a writer that
was killed - it is then as if it were empty. A broken file is put aside and begun anew. Every entry
carries a checksum, so what comes out is what went in.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import threading
import time
from pathlib import Path
from typing import Final

from tgcore.helpers import CACHELEVEL, DEBUG, cache_dir

_FILE: Final = "programs-1.sqlite"  # the number is the version of the layout
_LARGEST_TOTAL: Final = 512 << 20  # bytes kept before the oldest entries go
_LARGEST_ENTRY: Final = 32 << 20
_WRITES_BETWEEN_TRIMS: Final = 256
_BUSY_SECONDS: Final = 2.0
_CHECKSUM_BYTES: Final = 16

_SCHEMA: Final = (
    "CREATE TABLE IF NOT EXISTS entries "
    "(key BLOB PRIMARY KEY, value BLOB NOT NULL, size INTEGER NOT NULL, used REAL NOT NULL) "
    "WITHOUT ROWID"
)


class DiskCache:
    """A table from keys to bytes. No method ever raises because of the file."""

    def __init__(self, path: Path | None = None, limit: int = _LARGEST_TOTAL) -> None:
        self._given_path, self.limit = path, limit
        self._connection: sqlite3.Connection | None = None
        self._pid = 0  # a connection must not be used by a child process
        self._off = False  # after an error that will not pass
        self._lock = threading.RLock()
        self._writes = 0

    def get(self, key: str) -> bytes | None:
        """The bytes stored under the key, or None."""
        with self._lock:
            try:
                connection = self._open()
                if connection is None:
                    return None
                query = "SELECT value FROM entries WHERE key = ?"
                row = connection.execute(query, (_digest(key),)).fetchone()
            except (sqlite3.Error, OSError) as error:
                self._trouble(error)
                return None
        if row is None or not isinstance(row[0], bytes):
            return None
        checksum, value = row[0][:_CHECKSUM_BYTES], row[0][_CHECKSUM_BYTES:]
        return value if checksum == _checksum(key, value) else None

    def put(self, key: str, value: bytes) -> None:
        """Store the bytes, if that is possible."""
        if len(value) > _LARGEST_ENTRY:
            return
        stored = _checksum(key, value) + value
        with self._lock:
            try:
                connection = self._open()
                if connection is None:
                    return
                with connection:
                    connection.execute(
                        "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)",
                        (_digest(key), stored, len(stored), time.time()),
                    )
                self._writes += 1
                if self._writes % _WRITES_BETWEEN_TRIMS == 1:
                    self._trim(connection)
            except (sqlite3.Error, OSError) as error:
                self._trouble(error)

    def clear(self) -> None:
        """Forget all entries."""
        with self._lock:
            try:
                if (connection := self._open()) is not None:
                    with connection:
                        connection.execute("DELETE FROM entries")
            except (sqlite3.Error, OSError) as error:
                self._trouble(error)

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            connection, self._connection, self._off = self._connection, None, False
            if connection is not None and self._pid == os.getpid():
                with contextlib.suppress(sqlite3.Error):
                    connection.close()

    def _open(self) -> sqlite3.Connection | None:
        if self._connection is not None and self._pid == os.getpid():
            return self._connection
        if self._off:
            return None
        path = self._given_path if self._given_path is not None else cache_dir() / _FILE
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._connection = _connect(path)
        except sqlite3.DatabaseError as error:
            if not _is_broken(error):
                raise
            _put_aside(path)
            self._connection = _connect(path)
        self._pid = os.getpid()
        return self._connection

    def _trim(self, connection: sqlite3.Connection) -> None:
        """Drop the oldest entries until the rest is well below the limit."""
        total = connection.execute("SELECT COALESCE(SUM(size), 0) FROM entries").fetchone()[0]
        if total <= self.limit:
            return
        rows = connection.execute("SELECT key, size FROM entries ORDER BY used").fetchall()
        oldest = []
        for key, size in rows:
            if total <= self.limit * 3 // 4:
                break
            oldest.append((key,))
            total -= size
        with connection:
            connection.executemany("DELETE FROM entries WHERE key = ?", oldest)

    def _trouble(self, error: Exception) -> None:
        """Go on without the cache: until the file was replaced, or for good."""
        if DEBUG >= 1:
            print(f"the program cache is not used: {error}")
        busy = isinstance(error, sqlite3.OperationalError) and "locked" in str(error)
        if busy:
            return
        path = self._given_path
        self.close()
        self._off = not _is_broken(error)
        if not self._off:
            with contextlib.suppress(OSError):
                _put_aside(path if path is not None else cache_dir() / _FILE)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=OFF")  # checksums tell what a crash has spoilt
        connection.execute(_SCHEMA)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _is_broken(error: Exception) -> bool:
    """Whether the file holds junk (and not: whether the disk is full, or the file is locked)."""
    code = getattr(error, "sqlite_errorcode", None)
    broken = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_SCHEMA}
    if code is not None and code & 0xFF in broken:
        return True
    text = str(error)
    return "no such table" in text or "no such column" in text or "has no column" in text


def _put_aside(path: Path) -> None:
    """Take a broken file away, in a way that two processes may do at once."""
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{path}{suffix}")


def _digest(key: str) -> bytes:
    return hashlib.blake2b(key.encode(), digest_size=20).digest()


def _checksum(key: str, value: bytes) -> bytes:
    digest = hashlib.blake2b(key.encode(), digest_size=_CHECKSUM_BYTES)
    digest.update(b"\0")
    digest.update(value)
    return digest.digest()


_cache: Final = DiskCache()


def load(key: str) -> bytes | None:
    """What `store` put under the key, in this process or another; None if CACHELEVEL=0."""
    return _cache.get(key) if CACHELEVEL else None


def store(key: str, value: bytes) -> None:
    """Keep the bytes for later processes."""
    if CACHELEVEL:
        _cache.put(key, value)


def close() -> None:
    """Close the file, for tests that replace it."""
    _cache.close()


def clear() -> None:
    """Forget everything that is stored."""
    _cache.clear()
