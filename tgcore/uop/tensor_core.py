"""Matrix instructions as data: what they compute, and which lane holds which element.

A WMMA node has a `TensorCore` as arg and three vectors as sources: what this lane holds of A, B and
C. Its value is what the lane holds of A @ B + C. All lanes of a warp take part, so every lane must
come to the node.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from tgcore.dtype import DType

Bit = tuple[str, int]
"""("l", 2): bit 2 of the lane's number; ("e", 0): bit 0 of an element's number in the lane."""


@dataclass(frozen=True)
class Fragment:
    """Which elements of a matrix the lanes hold.

    `rows` and `columns` say where each bit of the row (column) number comes from, the lowest bit
    first: "l0" is the lowest bit of the lane's number, "e0" of the element's number in the vector
    that a lane holds.

    >>> fragment = Fragment("l2 l3 l4 e1", "e0 l0 l1")
    >>> fragment.elements
    4
    >>> fragment.place(lane=5, element=3)  # (row, column)
    (9, 3)
    """

    rows: str
    columns: str

    @functools.cached_property
    def bits(self) -> tuple[tuple[Bit, ...], tuple[Bit, ...]]:
        """Those of the row and of the column number, the lowest first."""
        row, column = ([_bit(word) for word in text.split()] for text in (self.rows, self.columns))
        return tuple(row), tuple(column)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        row, column = self.bits
        return 1 << len(row), 1 << len(column)

    @property
    def elements(self) -> int:
        """How many elements a lane holds."""
        return 1 << sum(kind == "e" for bits in self.bits for kind, _ in bits)

    def place(self, lane: int, element: int) -> tuple[int, int]:
        """Row and column of an element."""
        number = {"l": lane, "e": element}
        row, column = (
            sum(((number[kind] >> n) & 1) << at for at, (kind, n) in enumerate(bits))
            for bits in self.bits
        )
        return row, column


def _bit(word: str) -> Bit:
    if not re.fullmatch(r"[le]\d{1,2}", word):
        raise ValueError(f"{word!r} is no bit of a lane's or an element's number, like l0 or e1")
    return word[0], int(word[1:])


@dataclass(frozen=True)
class TensorCore:
    """A matrix instruction: C[m, n] += sum over k of A[m, k] * B[k, n].

    `dims` is (N, M, K), `threads` the size of the warp that runs it. A and B are of `dtype_in` (B
    of `dtype_b` if that is given), C of `dtype_out`. `a`, `b` and `c` say which elements a lane
    holds; rows and columns are those of A[m, k], B[k, n] and C[m, n]. `mantissa_bits` tells to how
    many the instruction rounds its inputs, if those have more: it is used only where ALLOW_TF32
    lets it be.
    """

    dims: tuple[int, int, int]
    threads: int
    dtype_in: DType
    dtype_out: DType
    a: Fragment
    b: Fragment
    c: Fragment
    dtype_b: DType | None = None
    mantissa_bits: int = 0

    def __post_init__(self) -> None:
        n, m, k = self.dims
        for name, shape in (("a", (m, k)), ("b", (k, n)), ("c", (m, n))):
            fragment: Fragment = getattr(self, name)
            if fragment.shape != shape:
                text = "{} x {}".format(*shape)
                raise ValueError(
                    f"the fragment {name} of {self.dims} must describe {text} elements"
                )
            _check(name, fragment, self.threads)

    @property
    def dtypes(self) -> tuple[DType, DType, DType]:
        """Those of A, B and C."""
        return self.dtype_in, self.dtype_b or self.dtype_in, self.dtype_out

    @property
    def operations(self) -> int:
        """Multiplications and additions, of all lanes."""
        n, m, k = self.dims
        return 2 * n * m * k


def _check(name: str, fragment: Fragment, threads: int) -> None:
    bits = [bit for part in fragment.bits for bit in part]
    elements = sorted(n for kind, n in bits if kind == "e")
    lanes = [n for kind, n in bits if kind == "l"]
    if len(set(bits)) != len(bits) or elements != list(range(len(elements))):
        raise ValueError(f"the fragment {name} uses a bit twice, or leaves one of an element out")
    if any(1 << n >= threads for n in lanes):
        raise ValueError(f"the fragment {name} has bits that the number of {threads} lanes lacks")
    if name == "c" and 1 << len(lanes) != threads:
        raise ValueError("each element of c must be held by one lane")
