"""What goes wrong with saved tensors."""

from __future__ import annotations

from tgcore.errors import TgcoreError


class StateError(TgcoreError, ValueError):
    """A set of saved tensors, or a file of them, does not fit."""
