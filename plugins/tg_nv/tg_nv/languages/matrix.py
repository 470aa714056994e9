"""Matrix instructions of NVIDIA's GPUs (mma.sync): which lane holds which element.

From the figures of "Matrix Fragments for mma" in NVIDIA's PTX ISA manual.
"""

from __future__ import annotations

from typing import Final

from tgcore.codegen.target import Fragment, TensorCore
from tgcore.dtype import DType, dtypes

_C: Final = Fragment("l2 l3 l4 e1", "e0 l0 l1")


def _core(k: int, a: Fragment, b: Fragment, dtype: DType, out: DType, bits: int = 0) -> TensorCore:
    return TensorCore((8, 16, k), 32, dtype, out, a, b, _C, mantissa_bits=bits)


_A16: Final = Fragment("l2 l3 l4 e1", "e0 l0 l1 e2")
_B16: Final = Fragment("e0 l0 l1 e1", "l2 l3 l4")
_A8: Final = Fragment("l2 l3 l4 e2", "e0 e1 l0 l1 e3")
_B8: Final = Fragment("e0 e1 l0 l1 e2", "l2 l3 l4")
_A32: Final = Fragment("l2 l3 l4 e0", "l0 l1 e1")
_B32: Final = Fragment("l0 l1 e0", "l2 l3 l4")

HALF: Final = (
    _core(16, _A16, _B16, dtypes.float16, dtypes.float32),
    _core(16, _A16, _B16, dtypes.bfloat16, dtypes.float32),
    _core(16, _A16, _B16, dtypes.float16, dtypes.float16),
)
INT8: Final = (_core(32, _A8, _B8, dtypes.int8, dtypes.int32),)
TF32: Final = (_core(8, _A32, _B32, dtypes.float32, dtypes.float32, bits=10),)
FP8: Final = (
    _core(32, _A8, _B8, dtypes.fp8e4m3, dtypes.float32),
    _core(32, _A8, _B8, dtypes.fp8e5m2, dtypes.float32),
)

NAMES: Final = {
    dtypes.float16: "f16",
    dtypes.bfloat16: "bf16",
    dtypes.float32: "f32",
    dtypes.int8: "s8",
    dtypes.int32: "s32",
    dtypes.fp8e4m3: "e4m3",
    dtypes.fp8e5m2: "e5m2",
}


def instruction(core: TensorCore) -> str:
    """The instruction's name in PTX."""
    n, m, k = core.dims
    a, b, c = core.dtypes
    kind = "tf32" if core.mantissa_bits else None
    names = (NAMES[c], kind or NAMES[a], kind or NAMES[b], NAMES[c])
    return f"mma.sync.aligned.m{m}n{n}k{k}.row.col.{'.'.join(names)}"
