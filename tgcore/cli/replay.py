"""`tgcore replay`: what a change does to recorded kernels."""

from __future__ import annotations

import fnmatch
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from tgcore.helpers import pluralize
from tgcore.runtime.recording import default_path
from tgcore.runtime.replay import KINDS, Result, Row, UnusableRecording, compare, decode, read
from tgcore.runtime.replay_pool import make_all

_COLORS = {"+": "green", "-": "red", "@": "cyan"}


@click.command()
@click.argument("db", required=False, type=click.Path(path_type=Path))
@click.option(
    "--jobs",
    "-j",
    type=click.IntRange(min=0),
    default=os.cpu_count() or 1,
    show_default="the processors",
    help="Processes; 0: none but this, without limits.",
)
@click.option(
    "--most", type=click.IntRange(min=0), default=20, show_default=True, help="Differences to show."
)
@click.option("--device", help="Only kernels for this device.")
@click.option("--name", "pattern", help="Only kernels with such a name, e.g. 'r_*'.")
@click.option(
    "--given-opts", is_flag=True, help="Make the recorded moves instead of choosing anew."
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=120.0,
    show_default=True,
    help="Seconds that a kernel may take.",
)
@click.pass_context
def replay(
    ctx: click.Context,
    db: Path | None,
    jobs: int,
    most: int,
    device: str | None,
    pattern: str | None,
    given_opts: bool,
    timeout: float,
) -> None:
    """Make the kernels of a recording anew, and show what differs.

    DB is a file that PROCESS_REPLAY=FILE has made; without it the one of PROCESS_REPLAY=record.
    The exit status is 0 if nothing differs, 1 if something does or fails, 2 if something cannot
    be replayed.
    """
    try:
        path = db if db is not None else default_path()
        rows = _chosen(read(path), device, pattern)
        _check(rows)
    except (UnusableRecording, OSError) as error:
        click.echo(_printable(f"{db or 'the recording in the cache'}: {error}"), err=True)
        ctx.exit(2)
    made = make_all(rows, given_opts, jobs, timeout)
    results = [compare(row, m) for row, m in zip(rows, made)]
    _show_differences(results, most)
    _show_summary(results)
    kinds = {result.kind for result in results}
    ctx.exit(2 if "missing" in kinds else 1 if kinds != {"equal"} else 0)


def _chosen(rows: Sequence[Row], device: str | None, pattern: str | None) -> list[Row]:
    if not rows:
        raise UnusableRecording("it holds no kernels")
    chosen = [
        row
        for row in rows
        if (device is None or row.device.upper() == device.upper())
        and (pattern is None or fnmatch.fnmatchcase(row.name, pattern))
    ]
    if not chosen:
        raise UnusableRecording(f"none of its {pluralize(len(rows), 'kernel')} is asked for")
    return chosen


def _check(rows: Sequence[Row]) -> None:
    """Decode everything before anything is made."""
    for row in rows:
        try:
            decode(row.kernel, row.opts)
        except ValueError as error:
            raise UnusableRecording(f"kernel {row.name[:80]} cannot be read: {error}") from None


# *** showing; all text may be a stranger's ***


def _printable(text: str) -> str:
    """The text without what a terminal would obey."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _show_differences(results: Sequence[Result], most: int) -> None:
    different = [result for result in results if result.kind != "equal"]
    for result in different[:most]:
        row = result.row
        click.secho(_printable(f"{row.name} on {row.device}: {KINDS[result.kind]}"), bold=True)
        for line in result.diff:
            click.secho(_printable(line.replace("\t", "    ")), fg=_COLORS.get(line[:1]))
        if result.kind == "missing" and row.provider:
            click.echo(_printable(f"fix: pip install {row.provider}"))
        click.echo()
    if most and len(different) > most:
        click.echo(f"{len(different) - most} more differ; --most {len(different)} shows all")


def _show_summary(results: Sequence[Result]) -> None:
    counts = Counter(result.kind for result in results)
    always = ("equal", "source", "opts", "failed")
    parts = [
        f"{counts[kind]} {text}" for kind, text in KINDS.items() if kind in always or counts[kind]
    ]
    click.echo(f"{pluralize(len(results), 'kernel')}: {', '.join(parts)}")
    if cut := sum(result.cut for result in results):
        click.echo(f"({pluralize(cut, 'kernel')}, cut into pieces, had the moves chosen anew)")
