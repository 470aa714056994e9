"""What a schedule consists of."""

from __future__ import annotations

from dataclasses import dataclass

from tgcore.uop.node import UOp


@dataclass(frozen=True)
class ScheduleItem:
    """One thing to run. `ast` is a SINK (a kernel), a COPY, or a BUFFER_VIEW; `buffers` are BUFFER
    nodes: those that the kernel's parameters 0, 1, ... stand for; for a copy (target, source).
    `metadata` names the Tensor methods that it came from."""

    ast: UOp
    buffers: tuple[UOp, ...]
    metadata: tuple[str, ...] = ()


@dataclass(frozen=True)
class Schedule:
    """The items in order. `outputs` gives for each node that was asked for the BUFFER that holds it
    (or a view of it); `variables` are the values that bound variables have."""

    items: tuple[ScheduleItem, ...]
    outputs: dict[UOp, UOp]
    variables: dict[str, int]
