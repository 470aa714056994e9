"""The hooks that a plugin may implement (pluggy, project "tgcore").

They are few and coarse, and none is on a hot path: a kernel launch calls an observer only if
some plugin implements it. A back end must implement `tgcore_describe_backend`; all else is
optional.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pluggy

from tgcore.plugin.contract import BackendDescription, Probe

if TYPE_CHECKING:
    import click

hookspec = pluggy.HookspecMarker("tgcore")
hookimpl = pluggy.HookimplMarker("tgcore")


@hookspec(firstresult=True)
def tgcore_describe_backend() -> BackendDescription | None:
    """Describe the back end. Quick, without opening or looking for a device."""


@hookspec(firstresult=True)
def tgcore_probe() -> Probe | None:
    """Look which devices there are, without side effects; say why there is none, and the fix."""


@hookspec
def tgcore_doctor() -> Sequence[str]:  # type: ignore[empty-body]
    """Lines about the health of the installation, for `tgcore devices --verbose`."""


@hookspec
def tgcore_cli_commands() -> Sequence[click.Command]:  # type: ignore[empty-body]
    """Commands to add to the `tgcore` command line."""


@hookspec
def tgcore_kernel_scheduled(name: str, device: str, kernel: Any) -> None:
    """A kernel became part of a schedule."""


@hookspec
def tgcore_program_compiled(name: str, device: str, source: str, binary: bytes) -> None:
    """A kernel's source was compiled (or found in a cache)."""


@hookspec
def tgcore_kernel_launched(name: str, device: str, buffers: Sequence[Any]) -> None:
    """A kernel was put in a device's queue."""


@hookspec
def tgcore_buffer_allocated(device: str, nbytes: int, dtype: Any, number: int) -> None:
    """A buffer got its memory; `number` identifies it until it is freed."""


@hookspec
def tgcore_buffer_freed(device: str, nbytes: int, number: int) -> None:
    """A buffer's memory went back to its allocator."""


@hookspec(firstresult=True)
def tgcore_compile(device: str, source: str, compile: Callable[[str], bytes]) -> bytes | None:
    """Compile source. Plugins wrap this (`@hookimpl(wrapper=True)`) for caches, replay, dumps."""
