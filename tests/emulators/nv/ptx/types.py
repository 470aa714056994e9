"""Types of PTX and the codes of the numpy types that hold them.

A register holds an array over the threads, or a scalar where all threads agree. bfloat16 and the
8-bit floats are held as bits; packed pairs too, as the word that they fill.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Type:
    """name, bytes, kind: b bits, u, s integers, f float, p predicate; code of the numpy type."""

    name: str
    size: int
    kind: str
    code: str

    @property
    def bits(self) -> int:
        return self.size * 8


def _types() -> dict[str, Type]:
    found = [Type("pred", 1, "p", "b1"), Type("b128", 16, "b", "q")]
    for size in (1, 2, 4, 8):
        found.append(Type(f"b{size * 8}", size, "b", f"u{size}"))
        found.append(Type(f"u{size * 8}", size, "u", f"u{size}"))
        found.append(Type(f"s{size * 8}", size, "s", f"i{size}"))
    for size in (2, 4, 8):
        found.append(Type(f"f{size * 8}", size, "f", f"f{size}"))
    found.append(Type("bf16", 2, "f", "u2"))
    found.append(Type("tf32", 4, "f", "u4"))
    packed = {"f16x2": 4, "bf16x2": 4, "u16x2": 4, "s16x2": 4, "f32x2": 8}
    packed |= {"e4m3": 1, "e5m2": 1, "e4m3x2": 2, "e5m2x2": 2}
    found += [Type(name, size, "x", f"u{size}") for name, size in packed.items()]
    return {t.name: t for t in found}


TYPES = _types()
DTYPES = {
    "b1": np.dtype(np.bool_),
    **{code: np.dtype(code) for code in ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8")},
    **{code: np.dtype(code) for code in ("f2", "f4", "f8")},
    "q": np.dtype([("lo", "u8"), ("hi", "u8")]),
}


def size_of(code: str) -> int:
    return DTYPES[code].itemsize


def unsigned(size: int) -> str:
    """The code that holds the bits of a register of this size."""
    return "q" if size == 16 else f"u{size}"
