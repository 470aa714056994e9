"""`tgcore rewrites`: what rewriting does, and costs, while a program runs."""

from __future__ import annotations

import os
import runpy
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from tgcore.helpers import Context
from tgcore.uop import trace
from tgcore.uop.node import UOp
from tgcore.uop.render import pyrender
from tgcore.uop.trace import Rewrite, RuleTotals

_ROOT = Path(__file__).parent.parent.parent


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--profile", is_flag=True, help="Only totals: passes and rules by time and matches.")
@click.option("--matches", is_flag=True, help="Show each match: the rule, before and after.")
@click.option("--name", "wanted", help="Only the passes of this name.")
@click.option(
    "--most", type=click.IntRange(min=1), default=30, show_default=True, help="Lines a table."
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def rewrites(
    profile: bool, matches: bool, wanted: str | None, most: int, file: Path, args: Sequence[str]
) -> None:
    """Run the Python FILE with ARGS, and show each rewrite of a graph that happened.

    A line gives the pass (indented if a rule of another one started it), the nodes of the graph
    before and after, the matches and the time. Options of this command stand before FILE.
    """
    trace.clear()
    with Context(TRACE_REWRITES=2 if profile else 1):
        _run(file, args)
    records = [r for r in trace.rewrites() if wanted in (None, r.name)]
    trace.clear()
    if not records:
        click.echo("no graph was rewritten")
    elif profile:
        _show_profile(records, most)
    else:
        _show_list(records, matches)


def _run(file: Path, args: Sequence[str]) -> None:
    """As `python FILE ARGS` would; an error of the program's ends the command."""
    saved = sys.argv, sys.path[0]
    sys.argv, sys.path[0] = [str(file), *args], str(file.parent)
    try:
        runpy.run_path(str(file), run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            raise
    finally:
        sys.argv, sys.path[0] = saved


# *** one by one ***


def _show_list(records: Iterable[Rewrite], with_matches: bool) -> None:
    for record in records:
        margin = "  " * record.depth
        click.echo(
            f"{margin}{_name(record)}: {_count(record.before)} -> {_count(record.after)} nodes, "
            f"{len(record.matches)} matches, {record.seconds * 1e3:.2f} ms"
        )
        for match in record.matches if with_matches else ():
            click.echo(f"{margin}  {_place(match.rule)}")
            click.echo(_text(match.before, f"{margin}  - "))
            click.echo(_text(match.after, f"{margin}  + "))


def _name(record: Rewrite) -> str:
    return record.name or "(unnamed)"


def _count(graph: UOp | None) -> str:
    return "?" if graph is None else str(len(graph.toposort()))


def _text(node: UOp, margin: str) -> str:
    return "\n".join(margin + line for line in pyrender(node, most_lines=8).split("\n"))


# *** totals ***


@dataclass
class _PassTotals:
    runs: int = 0
    seconds: float = 0.0
    own_seconds: float = 0.0
    matches: int = 0


def _show_profile(records: Sequence[Rewrite], most: int) -> None:
    passes: defaultdict[str, _PassTotals] = defaultdict(_PassTotals)
    rules: defaultdict[str, RuleTotals] = defaultdict(RuleTotals)
    for record in records:
        row = passes[_name(record)]
        row.runs += 1
        row.seconds += record.seconds
        row.own_seconds += record.own_seconds
        for place, found in record.rules.items():
            rule = rules[place]
            rule.tries += found.tries
            rule.matches += found.matches
            rule.seconds += found.seconds
            row.matches += found.matches
    heads = ("pass", "own ms", "with inner ms", "runs", "matches")
    _table(heads, [_pass_row(name, passes[name]) for name in passes], most)
    click.echo()
    heads = ("rule", "ms", "us a try", "tries", "matches")
    _table(heads, [_rule_row(place, rules[place]) for place in rules], most)


def _pass_row(name: str, p: _PassTotals) -> tuple[str, ...]:
    own, whole = f"{p.own_seconds * 1e3:.2f}", f"{p.seconds * 1e3:.2f}"
    return (name, own, whole, str(p.runs), str(p.matches))


def _rule_row(place: str, r: RuleTotals) -> tuple[str, ...]:
    each = f"{r.seconds / max(r.tries, 1) * 1e6:.2f}"
    return (_place(place), f"{r.seconds * 1e3:.2f}", each, str(r.tries), str(r.matches))


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]], most: int) -> None:
    """By the second column, the greatest first."""
    shown = sorted(rows, key=lambda row: float(row[1]), reverse=True)[:most]
    first = max(len(row[0]) for row in (heads, *shown))
    for row in (heads, *shown):
        click.echo(row[0].ljust(first) + "".join(f"{cell:>15s}" for cell in row[1:]))
    if len(rows) > most:
        click.echo(f"... and {len(rows) - most} more (--most)")


def _place(rule: str) -> str:
    """File and line, short for files of this package."""
    return rule.removeprefix(f"{_ROOT}{os.sep}")
