"""What a device can do, as data: code generation asks this and never a device's name."""

from __future__ import annotations

from dataclasses import dataclass

from tgcore.dtype import DType, dtypes
from tgcore.uop.ops import Ops
from tgcore.uop.tensor_core import Fragment, TensorCore

__all__ = ["Fragment", "Target", "TensorCore"]


@dataclass(frozen=True)
class Target:
    """The capabilities of a device and of the language that its kernels are written in.

    `dtypes` are the types it computes with; others are emulated. `ops` are those that the renderer
    can write; the rest is decomposed. `vector_bytes` is the width of its vector registers: 0 means
    that arithmetic is scalar. `memory_widths` are the element counts that one load or store may
    have, beside 1. `masked` says that loads and stores may have a gate for each lane. `index_bits`
    is the width of scalar index arithmetic that costs least.

    A device with a grid of work groups says how many of these there may be (`global_max`) and how
    many work items one may have (`local_max`), along each axis of the launch, the fastest first;
    `local_items` is the most that a group may have in all, `local_bytes` the memory it shares.
    """

    device: str
    arch: str = ""
    dtypes: frozenset[DType] = frozenset(dtypes.all)
    ops: frozenset[Ops] = frozenset()
    vector_bytes: int = 0
    vector_registers: int = 16
    memory_widths: tuple[int, ...] = ()
    memory_bytes: int = 16
    masked: bool = False
    index_bits: int = 32
    threads: int = 0
    local: bool = False
    local_bytes: int = 0
    global_max: tuple[int, ...] = ()
    local_max: tuple[int, ...] = ()
    local_items: int = 1024
    cache_bytes: int = 1 << 20
    tensor_cores: tuple[TensorCore, ...] = ()

    @property
    def parallel_grid(self) -> bool:
        """Whether it is a device with a grid of work groups."""
        return bool(self.global_max)

    def lanes(self, dtype: DType) -> int:
        """How many elements of the type one vector register holds; 1 where there are none."""
        return max(1, self.vector_bytes // max(1, dtype.scalar().itemsize))
