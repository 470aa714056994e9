"""The command line: the commands of the core, and what plugins add."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from tgcore.cli.devices import devices
from tgcore.cli.replay import replay
from tgcore.cli.rewrites import rewrites
from tgcore.errors import TgcoreError
from tgcore.plugin import discovery


class _Commands(click.Group):
    """Adds the commands of plugins, which are loaded only if the core has none of that name."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        return found if found is not None else _plugin_commands().get(cmd_name)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *_plugin_commands()})


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tgcore", prog_name="tgcore")
def cli() -> None:
    """A tensor compiler whose devices are plugins."""


cli.add_command(devices)
cli.add_command(replay)
cli.add_command(rewrites)


def _plugin_commands() -> dict[str, click.Command]:
    found: dict[str, click.Command] = {}
    for name in discovery.entries():
        try:
            plugin = discovery.load(name).plugin
            hook = getattr(plugin, "tgcore_cli_commands", None)
            commands: Sequence[Any] = hook() if hook is not None else ()
            found.update((command.name, command) for command in commands)
        except Exception as error:
            # a broken plugin has no commands; `tgcore devices` says what is wrong with it
            if discovery.traceback_wanted() and not isinstance(error, TgcoreError):
                raise
    return found


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line; errors of tgcore are shown as text."""
    try:
        cli.main(args, prog_name="tgcore", standalone_mode=True)
    except TgcoreError as error:
        if discovery.traceback_wanted():
            raise
        click.echo(str(error), err=True)
        sys.exit(1)
