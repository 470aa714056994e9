"""The block formats of GGML: weights in blocks of 32 or 256 with shared scales.

Each function gets blocks (count, bytes of a block) uint8 and gives (count, elements of a block)
float32. The layouts are those of `ggml-common.h` (https://github.com/ggml-org/ggml).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from tgcore.dtype import dtypes
from tgcore.tensor import Tensor

_IQ4_VALUES: Final = (
    *(-127, -104, -83, -65, -49, -35, -22, -10),
    *(1, 13, 25, 38, 53, 69, 89, 113),
)
# twice the values of fp4 e2m1
_FP4_VALUES: Final = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


def _half(blocks: Tensor, at: int) -> Tensor:
    """The float16 at a byte of each block."""
    return blocks[:, at : at + 2].bitcast("float16").cast(dtypes.float32)


def _nibbles(bytes_: Tensor) -> Tensor:
    """(..., n) bytes as (..., 2n): all low halves, then all high ones."""
    return (bytes_ & 15).cat(bytes_ >> 4, dim=-1)


def _bits(bytes_: Tensor, width: int) -> Tensor:
    """(..., n) bytes as (..., 8 // width, n): the lowest bits of all, then the next."""
    mask = (1 << width) - 1
    parts = [(bytes_ >> shift) & mask for shift in range(0, 8, width)]
    return parts[0].stack(*parts[1:], dim=-2)


def _signed(x: Tensor) -> Tensor:
    return x.cast(dtypes.float32)


def _q4_0(b: Tensor) -> Tensor:
    return (_signed(_nibbles(b[:, 2:18])) - 8) * _half(b, 0)


def _q4_1(b: Tensor) -> Tensor:
    return _signed(_nibbles(b[:, 4:20])) * _half(b, 0) + _half(b, 2)


def _fifth_bits(bytes_: Tensor) -> Tensor:
    """(..., 4) bytes as (..., 32) bits, each worth 16."""
    return _bits(bytes_, 1).transpose(-1, -2).flatten(-2) << 4


def _q5_0(b: Tensor) -> Tensor:
    return (_signed(_nibbles(b[:, 6:22]) | _fifth_bits(b[:, 2:6])) - 16) * _half(b, 0)


def _q5_1(b: Tensor) -> Tensor:
    return _signed(_nibbles(b[:, 8:24]) | _fifth_bits(b[:, 4:8])) * _half(b, 0) + _half(b, 2)


def _q8_0(b: Tensor) -> Tensor:
    return _signed(b[:, 2:34].bitcast("int8")) * _half(b, 0)


def _q2_k(b: Tensor) -> Tensor:
    scales = b[:, :16].unsqueeze(-1)
    # two halves of 32 bytes, each four times 32 elements, each of these two scales
    q = _bits(b[:, 16:80].reshape(-1, 2, 32), 2).reshape(-1, 16, 16)
    scale = _half(b, 80).unsqueeze(-1) * _signed(scales & 15)
    least = _half(b, 82).unsqueeze(-1) * _signed(scales >> 4)
    return (scale * _signed(q) - least).flatten(1)


def _q3_k(b: Tensor) -> Tensor:
    q = _bits(b[:, 32:96].reshape(-1, 2, 32), 2).reshape(-1, 8, 32)
    high = _bits(b[:, :32], 1) << 2
    packed = b[:, 96:108]
    low = _nibbles(packed[:, :8])
    scales = low | (_bits(packed[:, 8:12], 2).flatten(1) << 4)
    scale = _half(b, 108) * (_signed(scales) - 32)
    values = (_signed(q | high) - 4).reshape(-1, 16, 16)
    return (scale.unsqueeze(-1) * values).flatten(1)


def _six_bit_pairs(packed: Tensor) -> tuple[Tensor, Tensor]:
    """Twelve bytes as eight scales and eight minima of six bits each."""
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:12]
    scales = (first & 63).cat((third & 15) | ((first >> 6) << 4), dim=1)
    minima = (second & 63).cat((third >> 4) | ((second >> 6) << 4), dim=1)
    return scales, minima


def _with_minima(b: Tensor, q: Tensor) -> Tensor:
    """Eight times 32 elements with scales and minima: Q4_K and Q5_K."""
    scales, minima = _six_bit_pairs(b[:, 4:16])
    scale, least = _half(b, 0) * _signed(scales), _half(b, 2) * _signed(minima)
    return (scale.unsqueeze(-1) * _signed(q) - least.unsqueeze(-1)).flatten(1)


def _q4_k(b: Tensor) -> Tensor:
    return _with_minima(b, _nibbles(b[:, 16:144].reshape(-1, 4, 32)).reshape(-1, 8, 32))


def _q5_k(b: Tensor) -> Tensor:
    low = _nibbles(b[:, 48:176].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    return _with_minima(b, low | (_bits(b[:, 16:48], 1) << 4))


def _q6_k(b: Tensor) -> Tensor:
    # two halves, each of 64 bytes of low bits for four times 32 elements, and 32 of high bits
    low = _nibbles(b[:, :128].reshape(-1, 2, 64)).reshape(-1, 2, 4, 32)
    high = _bits(b[:, 128:192].reshape(-1, 2, 32), 2) << 4
    scale = _half(b, 208) * _signed(b[:, 192:208].bitcast("int8"))
    return (scale.unsqueeze(-1) * (_signed(low | high) - 32).reshape(-1, 16, 16)).flatten(1)


def _looked_up(q: Tensor, values: tuple[int, ...]) -> Tensor:
    table = Tensor(values, dtype=dtypes.float32, device=q.device)
    return table[q.cast(dtypes.int32)]


def _iq4_nl(b: Tensor) -> Tensor:
    return _looked_up(_nibbles(b[:, 2:18]), _IQ4_VALUES) * _half(b, 0)


def _mxfp4(b: Tensor) -> Tensor:
    # an exponent of 8 bits, less one for the doubled values; the least ones are subnormal
    exponent = b[:, :1].cast(dtypes.int32)
    bits = (exponent < 2).where((1 << 21) << exponent, (exponent - 1) << 23)
    return _looked_up(_nibbles(b[:, 1:17]), _FP4_VALUES) * bits.bitcast("float32")


class BlockFormat(NamedTuple):
    """Elements and bytes of a block, and how to decode blocks."""

    elements: int
    bytes: int
    decode: Callable[[Tensor], Tensor]


# by the number that GGUF files have for them
FORMATS: Final[dict[int, BlockFormat]] = {
    2: BlockFormat(32, 18, _q4_0),
    3: BlockFormat(32, 20, _q4_1),
    6: BlockFormat(32, 22, _q5_0),
    7: BlockFormat(32, 24, _q5_1),
    8: BlockFormat(32, 34, _q8_0),
    10: BlockFormat(256, 84, _q2_k),
    11: BlockFormat(256, 110, _q3_k),
    12: BlockFormat(256, 144, _q4_k),
    13: BlockFormat(256, 176, _q5_k),
    14: BlockFormat(256, 210, _q6_k),
    20: BlockFormat(32, 18, _iq4_nl),
    39: BlockFormat(32, 17, _mxfp4),
}
