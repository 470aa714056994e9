"""The `tgcore` command."""
