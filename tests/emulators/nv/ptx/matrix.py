"""Matrix instructions: fragments spread over the lanes of a warp, as PTX lays them down.

All shapes follow one scheme. With g = lane // 4 and i = lane % 4, register r of A holds row
g + 8 * (r % 2) and, per register e elements wide, columns i * e + j + 4 * e * (r // 2); B likewise
with the column g; the accumulator's register r holds row g + 8 * (r // 2), column 2 * i + r % 2.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import numbers
from .memory import Space, Threads
from .warps import Lanes

Values = Any
Numbers = NDArray[np.int64]

ELEMENTS = {"f16": 2, "bf16": 2, "tf32": 1, "s8": 4, "u8": 4, "e4m3": 4, "e5m2": 4, "f64": 1}
# m, n, k of each kind of input
SHAPES: dict[str, tuple[str, ...]] = {
    "f16": ("m16n8k16", "m16n8k8"), "bf16": ("m16n8k16", "m16n8k8"),
    "tf32": ("m16n8k8", "m16n8k4"), "s8": ("m16n8k32", "m16n8k16"),
    "u8": ("m16n8k32", "m16n8k16"), "e4m3": ("m16n8k32",), "e5m2": ("m16n8k32",),
    "f64": ("m8n8k4",),
}  # fmt: skip


def a_registers(shape: str, kind: str) -> int:
    k = int(shape.split("k")[1])
    rows = 2 if shape.startswith("m16") else 1
    return rows * max(1, k // (4 * ELEMENTS[kind]))


def b_registers(shape: str, kind: str) -> int:
    return max(1, int(shape.split("k")[1]) // (4 * ELEMENTS[kind]))


def c_registers(shape: str, kind: str) -> int:
    """Of the accumulator; two values share one where it is f16."""
    if shape.startswith("m8"):
        return 2
    return 2 if kind == "f16" else 4


@cache
def _a_places(count: int, width: int, rows: int) -> tuple[Numbers, Numbers]:
    lane, r, j = np.meshgrid(np.arange(32), np.arange(count), np.arange(width), indexing="ij")
    row = lane // 4 + 8 * (r % rows)
    return row, (lane % 4) * width + j + 4 * width * (r // rows)


@cache
def _b_places(count: int, width: int) -> tuple[Numbers, Numbers]:
    lane, r, j = np.meshgrid(np.arange(32), np.arange(count), np.arange(width), indexing="ij")
    return (lane % 4) * width + j + 4 * width * r, lane // 4


@cache
def _c_places(count: int) -> tuple[Numbers, Numbers]:
    lane, r = np.meshgrid(np.arange(32), np.arange(count), indexing="ij")
    return lane // 4 + 8 * (r // 2), (lane % 4) * 2 + r % 2


def _elements(registers: tuple[Values, ...], kind: str, n: int) -> Values:
    """(warps, 32 lanes, registers, elements) in numbers that can be multiplied."""
    stacked = np.stack([np.broadcast_to(r, n) for r in registers], axis=-1)
    stacked = np.ascontiguousarray(stacked).reshape(-1, 32, len(registers))
    if kind == "f64":
        return stacked.view(np.float64)[..., None]
    if kind == "tf32":
        return (stacked & np.uint32(0xFFFFE000)).view(np.float32)[..., None]
    parts = stacked[..., None].view(np.uint8 if ELEMENTS[kind] == 4 else np.uint16)
    if kind == "f16":
        return parts.view(np.float16).astype(np.float32)
    if kind == "bf16":
        return numbers.widen_bf16(parts)
    if kind in numbers.FP8:
        return numbers.from_fp8(parts, kind)
    return parts.view(np.int8 if kind == "s8" else np.uint8).astype(np.float64)


def multiply(
    batch: Lanes,
    shape: str,
    kinds: tuple[str, str, str, str],
    a: tuple[Values, ...],
    b: tuple[Values, ...],
    c: tuple[Values, ...],
    saturated: bool,
    t: Threads,
) -> tuple[Values, ...]:
    """d = a @ b + c. kinds: of d, a, b, c."""
    kind_d, kind_a, kind_b, kind_c = kinds
    n = batch.count(t)
    m, k = (8 if shape.startswith("m8") else 16), int(shape.split("k")[1])
    warps = n // 32
    dtype = np.float64 if kind_a in ("s8", "u8", "f64") else np.float32
    left, right = np.zeros((warps, m, k), dtype), np.zeros((warps, k, 8), dtype)
    rows = 1 if m == 8 else 2
    left[:, *_a_places(len(a), ELEMENTS[kind_a], rows)] = _elements(a, kind_a, n)
    right[:, *_b_places(len(b), ELEMENTS[kind_b])] = _elements(b, kind_b, n)
    values = _accumulator(c, kind_c, n)
    product = (left @ right)[:, *_c_places(values.shape[-1])]
    return _results(product, values, kind_d, saturated)


def _accumulator(c: tuple[Values, ...], kind: str, n: int) -> Values:
    """(warps, 32 lanes, values)"""
    if kind == "f16":
        pairs = [half for word in c for half in numbers.halves(np.broadcast_to(word, n), "f2")]
        return np.stack(pairs, axis=-1).reshape(n // 32, 32, -1).astype(np.float32)
    stacked = np.stack([np.broadcast_to(x, n) for x in c], axis=-1)
    return stacked.reshape(n // 32, 32, -1)


def _results(product: Values, c: Values, kind: str, saturated: bool) -> tuple[Values, ...]:
    if kind == "s32":
        total = product + c.astype(np.float64)  # exact: far below 2**53
        info = np.iinfo(np.int32)
        if saturated:
            total = np.clip(total, info.min, info.max)
        whole = total.astype(np.int64).astype(np.int32)
        return tuple(whole.reshape(-1, c.shape[-1]).T.copy())
    total = (product + c).reshape(-1, c.shape[-1]).T
    if kind == "f16":
        half = total.astype(np.float16)
        return tuple(numbers.join(half[i], half[i + 1]) for i in range(0, len(half), 2))
    return tuple(total.copy())


def load_matrices(
    batch: Lanes, space: Space, a: Values, count: int, transposed: bool, t: Threads, line: int
) -> tuple[Values, ...]:
    """ldmatrix: 8x8 matrices of 16 bits; lanes 8 * m to 8 * m + 7 name the rows of matrix m."""
    n = batch.count(t)
    lane = np.arange(32)
    addresses = np.broadcast_to(a, n).reshape(-1, 32)
    found = []
    for number in range(count):
        rows = addresses[:, number * 8 : number * 8 + 8]
        places = np.arange(n).reshape(-1, 32)[:, :8].ravel()
        threads = places if t is None else t[places]
        words = space.load_vector(rows.ravel(), "u4", 4, threads, line)
        halves = np.ascontiguousarray(np.stack(words, -1)).view(np.uint16).reshape(-1, 8, 8)
        if transposed:
            halves = halves.transpose(0, 2, 1)
        low = halves[:, lane // 4, lane % 4 * 2]
        high = halves[:, lane // 4, lane % 4 * 2 + 1]
        found.append(numbers.join(low.ravel(), high.ravel()))
    return tuple(found)


def store_matrices(
    batch: Lanes,
    space: Space,
    a: Values,
    values: tuple[Values, ...],
    transposed: bool,
    t: Threads,
    line: int,
) -> None:
    """stmatrix, the reverse of ldmatrix."""
    n = batch.count(t)
    lane = np.arange(32)
    addresses = np.broadcast_to(a, n).reshape(-1, 32)
    places = np.arange(n).reshape(-1, 32)[:, :8].ravel()
    threads = places if t is None else t[places]
    for number, value in enumerate(values):
        low, high = numbers.halves(np.broadcast_to(value, n).reshape(-1, 32), "u2")
        matrix = np.empty((n // 32, 8, 8), np.uint16)
        matrix[:, lane // 4, lane % 4 * 2] = low
        matrix[:, lane // 4, lane % 4 * 2 + 1] = high
        if transposed:
            matrix = matrix.transpose(0, 2, 1)
        words = np.ascontiguousarray(matrix).reshape(-1, 8).view(np.uint32)
        rows = addresses[:, number * 8 : number * 8 + 8].ravel()
        space.store_vector(rows, tuple(words.T), "u4", threads, line)
