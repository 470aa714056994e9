"""What code generation makes of a kernel: the source and all that is needed to launch it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tgcore.uop.node import UOp, sint


@dataclass(frozen=True)
class Estimates:
    """What one run of a kernel does; symbolic where its sizes are.

    `ops` are arithmetic operations (a multiply-add counts two), `mem` the bytes of global memory
    that are touched at least once, `lds` the bytes that loads and stores move.
    """

    ops: sint = 0
    mem: sint = 0
    lds: sint = 0


@dataclass(frozen=True)
class ProgramSpec:
    """A kernel as source.

    `globals` gives for each slot the number of the buffer parameter that goes there; `outs` and
    `ins` are the numbers of those that are written and read. `vars` follow the buffers, by name.
    """

    name: str
    function_name: str
    source: str
    device: str
    ast: UOp
    uops: tuple[UOp, ...]
    globals: tuple[int, ...]
    outs: tuple[int, ...]
    ins: tuple[int, ...]
    vars: tuple[UOp, ...] = ()
    global_size: tuple[sint, ...] | None = None
    local_size: tuple[sint, ...] | None = None
    threads: int = 1
    estimates: Estimates = Estimates()
    applied_opts: tuple[Any, ...] = ()
