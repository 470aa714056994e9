"""Runs PTX on numpy arrays: the arithmetic of a fake NVIDIA GPU.

`parse(text)` gives a `Module` with its `kernels`; `run(kernel, grid, block, params, memory)` runs
one. Global memory is whatever implements `Memory`. What is not understood raises `PtxError`, what a
GPU would answer with an exception raises a `Fault`.

From text to result: `parser` makes data of the text (`syntax`), `flow` resolves names, inlines
calls and cuts basic blocks, `writer` with the families `ops_*` turns a block into a Python function
of numpy calls, and `machine` runs these for many threads at once (`batch`), in the order that their
branches and barriers ask for.

Not known, and refused: recursion, indirect calls, calls out of the module, textures, clusters,
mbarriers and bulk copies, wgmma and tcgen05. Computed a little differently from a GPU: the
approximate functions (as exactly as numpy does), `fma.rn.f32` (rounded twice in rare cases),
`fma.rn.f64` near the ends of its range (not fused), the sign of a zero that min or max returns.
"""

from .faults import (
    Fault,
    Hang,
    IllegalInstruction,
    MemoryFault,
    MisalignedAddress,
    PtxError,
    SyncFault,
)
from .machine import run
from .memory import Memory
from .module import Kernel, Module, Parameter, parse

__all__ = [
    "Fault", "Hang", "IllegalInstruction", "Kernel", "Memory", "MemoryFault", "MisalignedAddress",
    "Module", "Parameter", "PtxError", "SyncFault", "parse", "run",
]  # fmt: skip
