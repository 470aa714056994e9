"""Small files that are made once a machine: kept in the cache folder, checked when read."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from tgcore.helpers import CACHELEVEL, cache_dir

_DIGEST = hashlib.sha256().digest_size


def cached(kind: str, key: str, make: Callable[[], bytes]) -> bytes:
    """The bytes for the key: from the file if it is whole, else made and written.

    A file that cannot be read or written (junk, full disk, no rights) costs time, nothing else.
    """
    if CACHELEVEL < 1:
        return make()
    path = _path(kind, key)
    if path is not None and (found := _read(path)) is not None:
        return found
    made = make()
    if path is not None:
        _write(path, made)
    return made


def _path(kind: str, key: str) -> Path | None:
    name = f"{kind}-{hashlib.sha256(key.encode()).hexdigest()[:32]}"
    try:
        return cache_dir() / name
    except OSError:
        return None


def _read(path: Path) -> bytes | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    body = content[_DIGEST:]
    return body if hashlib.sha256(body).digest() == content[:_DIGEST] else None


def _write(path: Path, body: bytes) -> None:
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    except OSError:
        return
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(hashlib.sha256(body).digest() + body)
        os.replace(temporary, path)  # readers see the old file or the whole new one
    except OSError:
        Path(temporary).unlink(missing_ok=True)
