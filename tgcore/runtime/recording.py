"""PROCESS_REPLAY=record: keeps every kernel that code generation makes, for `tgcore replay`.

A row a kernel, by content: what went in (AST, target, renderer, settings, moves if they were
given) and what came out (moves, launch, source). The rows are text, nothing is pickled. Several
processes may write into one file. Whatever goes wrong with it, the program that is recorded goes
on; it is told once.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sqlite3
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tgcore.codegen.program import ProgramSpec
from tgcore.codegen.target import Target
from tgcore.helpers import PROCESS_REPLAY, ContextVar, ansistrip, cache_dir
from tgcore.plugin import discovery
from tgcore.renderer.base import Renderer
from tgcore.runtime.encode import encode_opts, encode_sint, encode_target
from tgcore.uop.encode import Data, encode_graph, to_text
from tgcore.uop.node import sint

FILE: Final = "replay-1.sqlite"
"""The file in the cache folder; the number is the version of the layout."""

COLUMNS: Final = ("key", "name", "device", "provider", "kernel", "opts", "launch", "source")
SCHEMA: Final = (
    "CREATE TABLE kernels (key BLOB PRIMARY KEY, name TEXT NOT NULL, device TEXT NOT NULL, "
    "provider TEXT NOT NULL, kernel TEXT NOT NULL, opts TEXT NOT NULL, launch TEXT NOT NULL, "
    "source TEXT NOT NULL) WITHOUT ROWID"
)
"""`kernel` is what goes in, as JSON; `opts` are the moves, as JSON; `launch` is text to compare."""

_OFF: Final = ("", "0", 0)
_IN_CACHE: Final = ("record", "1", 1)
_BUSY_SECONDS: Final = 20.0


def is_on() -> bool:
    """Whether kernels are to be recorded."""
    return PROCESS_REPLAY.value not in _OFF


def default_path() -> Path:
    """Where kernels are recorded if no file is named."""
    return cache_dir() / FILE


def record(
    spec: ProgramSpec, renderer: Renderer, settings: Sequence[ContextVar], given: bool
) -> None:
    """Keep the kernel, made with these settings; `given` says that its moves were not chosen."""
    _recorder(str(PROCESS_REPLAY.value)).add(spec, renderer, settings, given)


class Recorder:
    """Writes into one file; no method raises because of it."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._pid = 0  # a connection must not be used by a child process
        self._off = False  # after an error
        self._lock = threading.Lock()

    def add(
        self, spec: ProgramSpec, renderer: Renderer, settings: Sequence[ContextVar], given: bool
    ) -> None:
        """Write the kernel's row."""
        with self._lock:
            if self._off:
                return
            try:
                row = row_of(spec, renderer, settings, given)
            except ValueError as error:
                self._warn(f"{ansistrip(spec.name)} is not recorded: {error}")
                return
            try:
                self._write(row)
            except (sqlite3.Error, OSError, ValueError) as error:
                self._off = True
                self._warn(f"kernels are not recorded from here on: {error}")

    def close(self) -> None:
        """Close the file; the next kernel opens it again."""
        with self._lock:
            connection, self._connection, self._off = self._connection, None, False
            if connection is not None and self._pid == os.getpid():
                connection.close()

    def _write(self, row: tuple[bytes | str, ...]) -> None:
        if self._connection is None or self._pid != os.getpid():
            self._pid = os.getpid()
            self._connection = _connect(self._path or default_path())
        marks = ", ".join("?" * len(COLUMNS))
        with _Transaction(self._connection) as connection:
            connection.execute(f"INSERT OR REPLACE INTO kernels VALUES ({marks})", row)

    def _warn(self, message: str) -> None:
        file = self._path or FILE
        print(f"tgcore: PROCESS_REPLAY ({file}): {message}", file=sys.stderr)


class _Transaction:
    """Takes the lock at its begin: only there does SQLite wait for other processes."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def __enter__(self) -> sqlite3.Connection:
        self.connection.execute("BEGIN IMMEDIATE")
        return self.connection

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            self.connection.execute("COMMIT")
        elif self.connection.in_transaction:
            self.connection.execute("ROLLBACK")


@functools.cache
def _recorder(value: str) -> Recorder:
    return Recorder(None if value in _IN_CACHE else Path(value).absolute())


def close() -> None:
    """Close all files, for tests."""
    _recorder.cache_clear()


def _connect(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(
        path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        # a recording is made again if the machine goes down; one file is easier to hand around
        connection.execute("PRAGMA synchronous=OFF")
        with _Transaction(connection):
            found = connection.execute("SELECT sql FROM sqlite_master").fetchall()
            if not found:
                connection.execute(SCHEMA)
            elif found != [(SCHEMA,)]:
                raise sqlite3.DatabaseError("the file holds something else")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


# *** rows ***


def row_of(
    spec: ProgramSpec, renderer: Renderer, settings: Sequence[ContextVar], given: bool
) -> tuple[bytes | str, ...]:
    """The kernel in the order of COLUMNS; ValueError if something in it has no form as data."""
    kind, target = type(renderer), renderer.target
    opts = encode_opts(spec.applied_opts)
    kernel = {
        "ast": encode_graph(spec.ast),
        "target": _target_data(target),
        "renderer": f"{kind.__module__}.{kind.__qualname__}",
        "renderer_key": renderer.cache_key,
        "settings": {setting.name: setting.value for setting in settings},
        "given": given,
    }
    identity = to_text([kernel, opts if given else None])
    key = hashlib.blake2b(identity.encode(), digest_size=20).digest()
    name, provider = ansistrip(spec.name), _provider(target.device)
    launch = launch_text(spec)
    return (
        key, name, target.device, provider, to_text(kernel), to_text(opts), launch, spec.source
    )  # fmt: skip


@functools.cache
def _target_data(target: Target) -> Data:
    return encode_target(target)


def _provider(device: str) -> str:
    """The distribution that supplies the device, for who has to install it."""
    claims = discovery.entries().get(device.partition(":")[0], [])
    return claims[0].distribution if claims else ""


def launch_text(spec: ProgramSpec) -> str:
    """What a launch needs to know beside the source, to be compared."""
    lines = [
        f"buffers {spec.globals}, written {spec.outs}, read {spec.ins}",
        f"variables {tuple(v.arg[0] for v in spec.vars)}",
        f"global size {_sizes_text(spec.global_size)}",
        f"local size {_sizes_text(spec.local_size)}",
        f"threads {spec.threads}",
    ]
    return "\n".join(lines)


def _sizes_text(sizes: tuple[sint, ...] | None) -> str:
    return "none" if sizes is None else " ".join(to_text(encode_sint(size)) for size in sizes)
