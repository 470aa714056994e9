"""`tgcore devices`: which back ends are installed, what they found, and what to do if nothing."""

from __future__ import annotations

import json
import textwrap
from dataclasses import asdict, dataclass

import click

from tgcore.errors import DeviceError
from tgcore.plugin import discovery
from tgcore.plugin.visible import only_visible
from tgcore.runtime.device import Device


@dataclass
class Row:
    """What is known of one back end."""

    name: str
    version: str
    devices: list[str]
    why_not: str = ""
    fix: str = ""
    default: bool = False


def rows() -> list[Row]:
    """One row a claim to a device name, broken plugins included."""
    found = [_row(name, claims) for name, claims in sorted(discovery.entries().items())]
    try:
        default = Device.DEFAULT
    except DeviceError:
        default = ""
    for row in found:
        row.default = row.name == default.partition(":")[0]
    return found


def _row(name: str, claims: list[discovery.Entry]) -> Row:
    version = ", ".join(claim.provider for claim in claims)
    try:
        backend = discovery.load(name)
    except DeviceError as error:
        return Row(name, version, [], error.why or error.what, error.fix)
    probe = discovery.probe(backend)
    seen = only_visible(probe.devices) if backend.description.hcq else probe.devices
    if seen:
        return Row(name, version, list(seen))
    if probe.devices:
        return Row(name, version, [], "HCQ_VISIBLE_DEVICES hides all devices", "unset it")
    return Row(name, version, [], probe.reason or "it found no device", probe.fix)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="For programs instead of people.")
@click.option("--verbose", "-v", is_flag=True, help="Also what each back end says of its health.")
def devices(as_json: bool, verbose: bool) -> None:
    """List back ends: version, devices found or why there is none, what to do."""
    table = rows()
    if as_json:
        click.echo(json.dumps([asdict(row) for row in table], indent=2))
        return
    if not table:
        click.echo(f"No back end is installed.\nfix: {discovery.install_hint()}")
        return
    _show(table)
    if verbose:
        _show_health()


def _show(table: list[Row]) -> None:
    cells = [
        (row.name + (" *" if row.default else ""), row.version, _state(row), row.fix)
        for row in table
    ]
    heads = ("device", "supplied by", "found, or why not", "what to do")
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        _show_plain(cells, heads)
        return
    shown = Table(*heads)
    for row, line in zip(table, cells):
        style = "green" if row.devices else "yellow"
        shown.add_row(line[0], line[1], Text(line[2], style=style), line[3])
    console = Console()
    console.print(shown)
    console.print("* is the default device", style="dim")


def _state(row: Row) -> str:
    return "\n".join(row.devices) if row.devices else row.why_not


def _show_plain(cells: list[tuple[str, str, str, str]], heads: tuple[str, ...]) -> None:
    for name, version, state, fix in cells:
        click.echo(f"{name}  ({version})")
        click.echo(textwrap.indent(state, "    "))
        if fix:
            click.echo(f"    {heads[3]}: {fix}")
    click.echo("* is the default device")


def _show_health() -> None:
    for name in sorted(discovery.entries()):
        try:
            plugin = discovery.load(name).plugin
            hook = getattr(plugin, "tgcore_doctor", None)
            for line in hook() if hook is not None else ():
                click.echo(f"{name}: {line}")
        except Exception as error:
            click.echo(f"{name}: {' '.join(str(error).split())}")
