"""`python -m benchmarks.nv_kernels`: what NVIDIA's compiler makes of kernels, without a GPU.

For some architectures: registers, stack (what does not fit in registers goes there), shared memory,
barriers, launch sizes, matrix instructions. `--write` also keeps the tables in NV_KERNELS.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tg_nv.architecture import ALL
from tg_nv.cubin import parse_cubin
from tg_nv.languages.choice import gpu_target
from tg_nv.languages.cuda import CudaRenderer
from tg_nv.languages.nvrtc import NVRTCCompiler, library

from tgcore import Context, Tensor, dtypes
from tgcore.dtype import DType
from tgcore.runtime.compile import make_program
from tgcore.schedule import create_schedule
from tgcore.uop import Ops, UOp

ARCHITECTURES: Final = ("sm_80", "sm_89", "sm_90", "sm_100")
_HEAD: Final = ("kernel", "registers", "stack", "shared", "barriers", "block", "grid", "mma.sync")


def _empty(*shape: int, dtype: DType = dtypes.float32) -> Tensor:
    return Tensor.empty(*shape, dtype=dtype, device="NV")


def _matmul(dtype: DType, out: DType) -> Tensor:
    a, b = (_empty(4096, 4096, dtype=dtype) for _ in range(2))
    if dtypes.is_int(dtype):
        return a.cast(out) @ b.cast(out)  # products of the small type would wrap around
    return a.matmul(b, dtype=out)


def _attention(dtype: DType) -> Tensor:
    q, k, v = (_empty(4, 16, 1024, 64, dtype=dtype) for _ in range(3))
    return q.scaled_dot_product_attention(k, v)


def _chain(dtype: DType) -> Tensor:
    a, b = (_empty(1 << 24, dtype=dtype) for _ in range(2))
    return (a * 2 + b).relu() - 1


def _transpose(size: int) -> Tensor:
    return _empty(size, size).T.contiguous()


def _conv() -> Tensor:
    return _empty(16, 64, 56, 56).conv2d(_empty(64, 64, 3, 3), padding=1)


_HALF, _BF16, _INT8, _FLOAT = dtypes.float16, dtypes.bfloat16, dtypes.int8, dtypes.float32

CASES: Final[dict[str, Callable[[], Tensor]]] = {
    "matmul 4096, float32": lambda: _matmul(_FLOAT, _FLOAT),
    "matmul 4096, tf32": lambda: _matmul(_FLOAT, _FLOAT),
    "matmul 4096, half": lambda: _matmul(_HALF, _FLOAT),
    "matmul 4096, half, sums in half": lambda: _matmul(_HALF, _HALF),
    "matmul 4096, bfloat16": lambda: _matmul(_BF16, _FLOAT),
    "matmul 4096, int8": lambda: _matmul(_INT8, dtypes.int32),
    "matrix by vector 4096, half": lambda: (
        _empty(4096, 4096, dtype=_HALF) @ _empty(4096, dtype=_HALF)
    ),
    "conv2d 16x64x56x56, 3x3": _conv,
    "softmax 4096x1024": lambda: _empty(4096, 1024).softmax(),
    "layer norm 4096x1024": lambda: _empty(4096, 1024).layernorm(),
    "sum of 16M": lambda: _empty(1 << 24).sum(),
    "sum of 4096 columns": lambda: _empty(4096, 4096).sum(0),
    "relu(2a + b) - 1, 16M": lambda: _chain(_FLOAT),
    "relu(2a + b) - 1, 16M, half": lambda: _chain(_HALF),
    "gelu 16M": lambda: _empty(1 << 24).gelu(),
    "transpose 4096": lambda: _transpose(4096),
    "attention 4x16x1024x64, half": lambda: _attention(_HALF),
}
"""What makes each result; several kernels, some of them."""


@dataclass(frozen=True)
class Compiled:
    """One kernel as compiled for one architecture. Sizes in bytes."""

    case: str
    architecture: str
    name: str
    registers: int
    stack_bytes: int
    shared_bytes: int
    barriers: int
    block: tuple[int, ...]
    grid: tuple[int, ...]
    matrix_instructions: int

    @property
    def row(self) -> tuple[str, ...]:
        """As a line of the table."""
        numbers = (self.registers, self.stack_bytes, self.shared_bytes, self.barriers)
        sizes = ("x".join(map(str, size)) for size in (self.block, self.grid))
        return (self.case, *map(str, numbers), *sizes, str(self.matrix_instructions))


def compile_case(case: str, architecture: str) -> Iterator[Compiled]:
    """The kernels of a case, compiled for an architecture such as sm_90."""
    chip = next(a for a in ALL if a.sm == architecture)
    renderer = CudaRenderer(gpu_target(chip, architecture, CudaRenderer))
    compiler = NVRTCCompiler(architecture)
    with Context(ALLOW_TF32=int("tf32" in case)):
        result = UOp.sink(CASES[case]().uop.contiguous())
        asts = [i.ast for i in create_schedule(result, "NV").items if i.ast.op is Ops.SINK]
        programs = [make_program(ast, renderer) for ast in asts]
    for number, spec in enumerate(programs, 1):
        name = case if len(programs) == 1 else f"{case} ({number})"
        kernel = parse_cubin(compiler.compile(spec.source)).kernels[spec.function_name]
        yield Compiled(
            name,
            architecture,
            spec.name,
            kernel.registers,
            kernel.stack_bytes,
            kernel.shared_bytes,
            kernel.barriers,
            _known(spec.local_size),
            _known(spec.global_size),
            compiler.compile_to_ptx(spec.source).count("mma.sync"),
        )


def _known(size: Sequence[Any] | None) -> tuple[int, ...]:
    """Launch sizes, without the ones at the end."""
    sizes = [int(n) for n in size or (1,)]
    while len(sizes) > 1 and sizes[-1] == 1:
        sizes.pop()
    return tuple(sizes)


def table(kernels: Sequence[Compiled]) -> str:
    """A table that reads well as plain text and as Markdown."""
    rows = [_HEAD, *(kernel.row for kernel in kernels)]
    widths = [max(len(row[n]) for row in rows) for n in range(len(_HEAD))]
    lines = ["| " + " | ".join(t.ljust(w) for t, w in zip(row, widths)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines)


def main() -> None:
    """Compile everything that was asked for."""
    parser = argparse.ArgumentParser(prog="benchmarks.nv_kernels", description=__doc__)
    parser.add_argument("--write", action="store_true", help="also write benchmarks/NV_KERNELS.md")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name holds TEXT")
    parser.add_argument("--for", default=",".join(ARCHITECTURES), dest="architectures")
    arguments = parser.parse_args()
    parts = [f"NVRTC {library()[1]}; sizes in bytes; no GPU was used."]
    for architecture in arguments.architectures.split(","):
        print(f"{architecture} ...", file=sys.stderr, flush=True)
        cases = [case for case in CASES if arguments.only in case]
        kernels = [kernel for case in cases for kernel in compile_case(case, architecture)]
        parts.append(f"## {architecture}\n\n{table(kernels)}")
    text = "\n\n".join(parts) + "\n"
    print(text)
    if arguments.write:
        path = Path(__file__).parent / "NV_KERNELS.md"
        head = "# Kernels for NVIDIA's GPUs\n\nMade by `python -m benchmarks.nv_kernels --write`.\n"
        path.write_text(f"{head}\n{text}")
        print(f"written to {path}")


if __name__ == "__main__":
    main()
