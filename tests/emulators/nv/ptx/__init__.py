"""Runs PTX on numpy arrays: the arithmetic of a fake NVIDIA GPU.

`parse(text)` gives a `Module` with its `kernels`; `run(kernel, grid, block, params, memory)` runs
one. Global memory is whatever implements `Memory`. What is not understood raises `PtxError`, what a
GPU would answer with an exception raises a `Fault`.
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
