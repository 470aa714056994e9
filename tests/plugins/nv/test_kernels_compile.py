"""What NVIDIA's compiler makes of large kernels, for several architectures."""

from __future__ import annotations

import pytest
from tg_nv.architecture import MOST_THREADS

from benchmarks.nv_kernels import ARCHITECTURES, CASES, Compiled, compile_case

MATMULS = ("half", "half, sums in half", "bfloat16", "int8", "tf32")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("case", CASES)
def test_kernels_fit_in_registers(case: str, architecture: str) -> None:
    """No kernel spills; matmuls of small types use matrix instructions."""
    found = list(compile_case(case, architecture))
    assert found
    for kernel in found:
        check(kernel)
    if case in [f"matmul 4096, {kind}" for kind in MATMULS]:
        assert found[0].matrix_instructions >= 8


def check(kernel: Compiled) -> None:
    """Nothing is on the stack, and the GPU can run it."""
    assert kernel.stack_bytes == 0, f"{kernel.name} needs {kernel.stack_bytes} bytes of stack"
    threads = 1
    for size in kernel.block:
        threads *= size
    assert 0 < threads <= MOST_THREADS
    assert kernel.registers * threads <= 65536
