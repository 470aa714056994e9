"""Matrix instructions of real chips, as tables.

NVIDIA: "PTX ISA", section "Matrix fragments for mma.m16n8k..": register pairs and quadruples hold
elements in the order of the vectors here.
"""

from __future__ import annotations

from tgcore.codegen import Fragment, TensorCore
from tgcore.dtype import dtypes

_C = Fragment("l2 l3 l4 e1", "e0 l0 l1")
K16 = (Fragment("l2 l3 l4 e1", "e0 l0 l1 e2"), Fragment("e0 l0 l1 e1", "l2 l3 l4"), _C)
K8 = (Fragment("l2 l3 l4 e1", "e0 l0 l1"), Fragment("e0 l0 l1", "l2 l3 l4"), _C)
K8_32_BIT = (Fragment("l2 l3 l4 e0", "l0 l1 e1"), Fragment("l0 l1 e0", "l2 l3 l4"), _C)
K32 = (Fragment("l2 l3 l4 e2", "e0 e1 l0 l1 e3"), Fragment("e0 e1 l0 l1 e2", "l2 l3 l4"), _C)
K4_64_BIT = (Fragment("l2 l3 l4", "l0 l1"), Fragment("l0 l1", "l2 l3 l4"),
             Fragment("l2 l3 l4", "e0 l0 l1"))  # fmt: skip

HALF_FLOAT = TensorCore((8, 16, 16), 32, dtypes.float16, dtypes.float32, *K16)
HALF_HALF = TensorCore((8, 16, 16), 32, dtypes.float16, dtypes.float16, *K16)
BFLOAT_FLOAT = TensorCore((8, 16, 16), 32, dtypes.bfloat16, dtypes.float32, *K16)
HALF_SMALL = TensorCore((8, 16, 8), 32, dtypes.float16, dtypes.float32, *K8)
TF32 = TensorCore((8, 16, 8), 32, dtypes.float32, dtypes.float32, *K8_32_BIT, mantissa_bits=10)
INT8 = TensorCore((8, 16, 32), 32, dtypes.int8, dtypes.int32, *K32)
E4M3 = TensorCore((8, 16, 32), 32, dtypes.fp8e4m3, dtypes.float32, *K32)
E5M2 = TensorCore((8, 16, 32), 32, dtypes.fp8e5m2, dtypes.float32, *K32)
MIXED = TensorCore((8, 16, 32), 32, dtypes.fp8e4m3, dtypes.float32, *K32, dtypes.fp8e5m2)
DOUBLE = TensorCore((8, 8, 4), 32, dtypes.float64, dtypes.float64, *K4_64_BIT)
NVIDIA = (
    *(HALF_FLOAT, BFLOAT_FLOAT, HALF_SMALL, HALF_HALF),
    *(TF32, INT8, E4M3, E5M2, MIXED, DOUBLE),
)

# RDNA3: both halves of the warp hold the same elements of a and b
RDNA3 = TensorCore(
    (16, 16, 16), 32, dtypes.float16, dtypes.float32,
    Fragment("l0 l1 l2 l3", "e0 e1 e2 e3"),
    Fragment("e0 e1 e2 e3", "l0 l1 l2 l3"),
    Fragment("l4 e0 e1 e2", "l0 l1 l2 l3"),
)  # fmt: skip
# CDNA: 64 lanes
MFMA = TensorCore(
    (16, 16, 16), 64, dtypes.float16, dtypes.float32,
    Fragment("l0 l1 l2 l3", "e0 e1 l4 l5"),
    Fragment("e0 e1 l4 l5", "l0 l1 l2 l3"),
    Fragment("e0 e1 l4 l5", "l0 l1 l2 l3"),
)  # fmt: skip

# of no chip: small enough for small matrices, for many types, with lanes that hold the same
_TINY = (Fragment("l0 l1", "e0"), Fragment("e0", "l1"), Fragment("l1 e0", "l0"))
TINY = tuple(
    TensorCore((2, 4, 2), 4, source, target, *_TINY)
    for source, target in (
        *((kind, kind) for kind in (dtypes.float32, dtypes.int32, dtypes.float64, dtypes.uint64)),
        *((kind, dtypes.float32) for kind in (dtypes.float16, dtypes.bfloat16, dtypes.fp8e4m3)),
    )
)
