"""Makes recorded kernels anew with the present sources, and compares.

A recording may come from a stranger. It is opened for reading only and must have the very layout
that `recording` writes; every row is decoded strictly before any kernel is made. What a kernel
becomes is text, which is compared and never compiled. No name in the file is imported: renderers
are looked for among those of the back ends that are installed.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import importlib
import inspect
import pkgutil
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple

import tgcore.renderer
from tgcore.codegen import optimize
from tgcore.codegen.lower import define_local_buffers
from tgcore.codegen.opt import Opt
from tgcore.codegen.pipeline import OptimizedKernel
from tgcore.codegen.simplify import cut_loops, simplify_kernel
from tgcore.codegen.target import Target
from tgcore.errors import DeviceError
from tgcore.helpers import NOOPT, Context, ContextVar
from tgcore.plugin import discovery
from tgcore.renderer.base import Renderer
from tgcore.runtime.compile import SETTINGS, make_program
from tgcore.runtime.encode import decode_opts, decode_target, encode_opts
from tgcore.runtime.recording import COLUMNS, SCHEMA, launch_text
from tgcore.uop.encode import Data, decode_graph, from_text, to_text
from tgcore.uop.node import UOp

_LARGEST_FILE: Final = 4 << 30  # bytes
_LONGEST_TEXT: Final = 64 << 20  # characters of one field, and of the source that is made
# while kernels are made nothing is shown, recorded, traced, verified, or evaluated as Python
_QUIET: Final[dict[str, int | str]] = {
    **dict.fromkeys(("DEBUG", "SPEC", "TRACE_REWRITES"), 0),
    "IGNORE_OOB": 1,
    "PROCESS_REPLAY": "",
}


class UnusableRecording(ValueError):
    """The file is not a recording that can be replayed."""


# *** the file ***


class Row(NamedTuple):
    """A recorded kernel, as text."""

    name: str
    device: str
    provider: str
    kernel: str
    opts: str
    launch: str
    source: str


def read(path: Path) -> list[Row]:
    """All kernels in the file, in an order that does not depend on when they were recorded."""
    if not path.is_file():
        raise UnusableRecording("there is no such file")
    if path.stat().st_size > _LARGEST_FILE:
        raise UnusableRecording(f"it is larger than {_LARGEST_FILE >> 30} GiB")
    try:
        with contextlib.closing(_connect(path)) as connection:
            found = connection.execute("SELECT name, sql FROM sqlite_master").fetchall()
            if found != [("kernels", SCHEMA)]:
                raise UnusableRecording("it is no recording, or one of another version")
            query = f"SELECT {', '.join(COLUMNS[1:])} FROM kernels ORDER BY name, key"
            rows = [Row(*fields) for fields in connection.execute(query)]
    except (sqlite3.Error, OverflowError) as error:
        raise UnusableRecording(f"it cannot be read: {error}") from None
    for row in rows:
        if not all(isinstance(field, str) for field in row):
            raise UnusableRecording("it holds a row whose fields are no text")
    return rows


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_TEXT)
    connection.execute("PRAGMA trusted_schema=OFF")
    return connection


@dataclass(frozen=True)
class Recorded:
    """What a kernel was made from."""

    ast: UOp
    target: Target
    renderer: str
    renderer_key: str
    settings: dict[str, int | str]
    opts: tuple[Opt, ...]
    given: bool  # whether the moves were not chosen


def decode(kernel: str, opts: str) -> Recorded:
    """The two columns as objects; ValueError if they are not what `recording` writes."""
    data = from_text(kernel)
    names = {"ast", "target", "renderer", "renderer_key", "settings", "given"}
    if not isinstance(data, dict) or data.keys() != names:
        raise ValueError(f"not a kernel: it must have {', '.join(sorted(names))}")
    for name, kind in (("renderer", str), ("renderer_key", str), ("given", bool)):
        if type(data[name]) is not kind:
            raise ValueError(f"{name} must be of type {kind.__name__}")
    with Context(**_QUIET):
        ast = decode_graph(data["ast"])
    target, settings = decode_target(data["target"]), _decode_settings(data["settings"])
    names_of = (data["renderer"], data["renderer_key"])
    return Recorded(ast, target, *names_of, settings, decode_opts(from_text(opts)), data["given"])


def _decode_settings(data: Data) -> dict[str, int | str]:
    known: dict[str, ContextVar] = {setting.name: setting for setting in SETTINGS}
    if not isinstance(data, dict):
        raise ValueError("the settings must be an object")
    for name, value in data.items():
        if name not in known:
            raise ValueError(f"no setting {name[:40]!r} changes what a kernel becomes")
        if type(value) is not type(known[name].value):
            raise ValueError(f"{name} must be of type {type(known[name].value).__name__}")
    return data


# *** renderers ***


class NoRenderer(LookupError):
    """The renderer that a kernel was recorded with is not here."""


def renderer_for(recorded: Recorded) -> Renderer:
    """The recorded renderer, made from the target alone, without its device; else NoRenderer."""
    name, device = recorded.renderer, recorded.target.device.partition(":")[0]
    for kinds in _more_and_more_renderers(device):
        if name in kinds:
            break
    else:
        raise NoRenderer(f"no back end that is installed has the renderer {name}")
    try:
        renderer = kinds[name](recorded.target)
        key = renderer.cache_key
    except Exception as error:  # of a plugin: whatever it may be, the next kernel is not concerned
        why = f"{type(error).__name__}: {error}"
        raise NoRenderer(f"{name} cannot be made from a target alone: {why}") from None
    if key != recorded.renderer_key:
        raise NoRenderer(f"{name} made from a target alone is another one: its key is {key!r}")
    return renderer


def _more_and_more_renderers(device: str) -> Iterator[dict[str, type[Renderer]]]:
    """The renderers that are known after more and more modules were imported."""
    yield _renderers()
    _import_all(tgcore.renderer.__name__, tgcore.renderer.__path__)
    yield _renderers()
    for name in [device, *discovery.entries()]:
        plugin = _plugin(name)
        yield _renderers()
        if plugin is not None and name == device:  # it may import its renderer only when it opens
            package = importlib.import_module(plugin.__name__.partition(".")[0])
            _import_all(package.__name__, getattr(package, "__path__", ()))
            yield _renderers()


def _renderers() -> dict[str, type[Renderer]]:
    kinds = Renderer.__subclasses__()
    for kind in kinds:
        kinds.extend(kind.__subclasses__())
    concrete = [kind for kind in kinds if not inspect.isabstract(kind)]
    return {f"{kind.__module__}.{kind.__qualname__}": kind for kind in concrete}


def _plugin(device: str) -> ModuleType | None:
    """The module of the back end, or None if none is installed or it does not load."""
    try:
        return discovery.load(device).plugin
    except DeviceError:
        return None


@functools.cache
def _import_modules(names: tuple[str, ...]) -> None:
    for name in names:
        with contextlib.suppress(Exception):  # what one of them lacks is no matter for the others
            importlib.import_module(name)


def _import_all(package: str, path: Iterable[str]) -> None:
    """Import the modules that lie in an installed package."""
    found = pkgutil.iter_modules(path, f"{package}.")
    _import_modules(tuple(module.name for module in found if not module.name.endswith("__main__")))


# *** making a kernel ***


class Made(NamedTuple):
    """What has become of a kernel: `kind` is "made", "failed" or "missing".

    `text` is the source, or why there is none; `cut` says that its moves could not be given.
    """

    kind: str
    text: str
    opts: tuple[Opt, ...] = ()
    launch: str = ""
    cut: bool = False


def make(kernel: str, opts: str, given_opts: bool) -> Made:
    """Make a recorded kernel; with `given_opts` with the moves that were recorded.

    Never raises: a kernel that cannot be made is a result, too.
    """
    try:
        return _make(decode(kernel, opts), given_opts)
    except NoRenderer as error:
        return Made("missing", str(error))
    except Exception as error:
        text = " ".join(str(error).split())
        return Made("failed", f"{type(error).__name__}: {text[:2000]}")


def _make(recorded: Recorded, given_opts: bool) -> Made:
    renderer = renderer_for(recorded)
    with Context(**_QUIET), Context(**recorded.settings):
        optimized: OptimizedKernel | None = None
        cut = not recorded.given and given_opts and _is_cut(recorded)
        if recorded.given or (given_opts and not cut):
            optimized = optimize(recorded.ast, recorded.target, recorded.opts)
        spec = make_program(recorded.ast, renderer, optimized)
    if len(spec.source) > _LONGEST_TEXT:
        raise ValueError(f"a source of {len(spec.source)} characters is too long to compare")
    return Made("made", spec.source, spec.applied_opts, launch_text(spec), cut)


def _is_cut(recorded: Recorded) -> bool:
    """Whether the loops of the kernel are cut into pieces that have moves of their own."""
    if NOOPT or recorded.target.parallel_grid:
        return False
    simple = simplify_kernel(define_local_buffers(recorded.ast))
    return cut_loops(simple) is not simple


def made_to_text(made: Made) -> str:
    """The result as text, for another process."""
    return to_text([*made[:2], encode_opts(made.opts), *made[3:]])


def made_from_text(text: str | bytes) -> Made:
    """What `made_to_text` made the text of."""
    kind, source, opts, launch, cut = from_text(text)
    return Made(kind, source, decode_opts(opts), launch, cut)


# *** comparing ***


class Result(NamedTuple):
    """A kernel then and now. `kind` is one of KINDS; `diff` are lines."""

    row: Row
    kind: str
    diff: tuple[str, ...] = ()
    cut: bool = False


KINDS: Final = {
    "equal": "equal",
    "source": "different source",
    "opts": "different opts",
    "launch": "different launch",
    "failed": "failed",
    "missing": "not replayable",
}
"""How a kernel may turn out, and how that is called. Other opts make another source, too."""


def compare(row: Row, made: Made) -> Result:
    """What differs: first the moves, then all else."""
    if made.kind != "made":
        return Result(row, made.kind, (made.text,))
    then, now = _opt_lines(decode_opts(from_text(row.opts))), _opt_lines(made.opts)
    parts = [
        ("opts", _diff("opts", then, now)),
        ("source", _diff("source", row.source.split("\n"), made.text.split("\n"))),
        ("launch", _diff("launch", row.launch.split("\n"), made.launch.split("\n"))),
    ]
    differing = [(kind, lines) for kind, lines in parts if lines]
    if not differing:
        return Result(row, "equal", (), made.cut)
    lines = tuple(line for _, part in differing for line in part)
    return Result(row, differing[0][0], lines, made.cut)


def _opt_lines(opts: Iterable[Opt]) -> list[str]:
    return [f"{opt.op.name} axis {opt.axis} arg {opt.arg}" for opt in opts]


def _diff(what: str, then: list[str], now: list[str]) -> list[str]:
    if then == now:
        return []
    heads = (f"{what} recorded", f"{what} now")
    return list(difflib.unified_diff(then, now, *heads, lineterm=""))
