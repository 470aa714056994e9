"""Integer and logic instructions against Python's integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.emulators.nv.ptx_kernels import (
    Array,
    apply,
    by_integers,
    crossed,
    instruction_kernel,
    launch,
)


def signed(number: int, bits: int) -> int:
    number %= 1 << bits
    return number - (1 << bits) if number >> (bits - 1) else number


def clamp(number: int, low: int, high: int) -> int:
    return min(max(number, low), high)


def truncated(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def reverse(number: int, bits: int) -> int:
    return int(format(number, f"0{bits}b")[::-1], 2)


def leading(number: int, bits: int) -> int:
    return bits - number.bit_length()


def find(number: int, bits: int) -> int:
    plain = ~number if number < 0 else number
    return plain.bit_length() - 1


def field(a: int, start: int, length: int, bits: int, is_signed: bool) -> int:
    start, length = start & 255, length & 255
    value = (a % (1 << bits)) >> start if start < bits else 0
    value &= (1 << length) - 1
    last = min(start + length - 1, bits - 1)
    negative = is_signed and length and (a % (1 << bits)) >> last & 1
    return value | -(1 << min(length, bits)) if negative else value


def insert(a: int, b: int, start: int, length: int, bits: int) -> int:
    start, length = start & 255, length & 255
    mask = ((1 << length) - 1) << start & ((1 << bits) - 1)
    return (b & ~mask) | (a << start & mask)


def permuted(a: int, b: int, selector: int) -> int:
    data = (a | b << 32).to_bytes(8, "little")
    found = []
    for k in range(4):
        nibble = selector >> 4 * k & 15
        byte = data[nibble & 7]
        found.append((255 if byte & 128 else 0) if nibble & 8 else byte)
    return int.from_bytes(bytes(found), "little")


def table(a: int, b: int, c: int, entries: int) -> int:
    bits = (entries >> (4 * (a >> k & 1) + 2 * (b >> k & 1) + (c >> k & 1)) & 1 for k in range(32))
    return sum(bit << k for k, bit in enumerate(bits))


def dot(a: int, b: int, c: int, bits: int = 8) -> int:
    return c + sum(signed(a >> 8 * k, 8) * signed(b >> 8 * k, 8) for k in range(4))


def halves_by_bytes(a: int, b: int, c: int) -> int:
    return c + signed(a, 16) * (b & 255) + signed(a >> 16, 16) * (b >> 8 & 255)


def halfwise(function: Callable[[int, int], int]) -> Callable[[int, int], int]:
    def both(a: int, b: int) -> int:
        low = function(signed(a, 16), signed(b, 16)) & 0xFFFF
        return low | (function(signed(a >> 16, 16), signed(b >> 16, 16)) & 0xFFFF) << 16

    return both


Case = tuple[str, tuple[str, ...], str, Callable[..., int]]
CASES: list[Case] = []


def case(code: str, kinds: str, output: str, function: Callable[..., int]) -> None:
    CASES.append((code, tuple(kinds.split()), output, function))


for _bits in (16, 32, 64):
    for _letter in "us":
        _t = f"{_letter}{_bits}"
        case(f"add.{_t} %d, %a, %b", f"{_t} {_t}", _t, lambda a, b: a + b)
        case(f"sub.{_t} %d, %a, %b", f"{_t} {_t}", _t, lambda a, b: a - b)
        case(f"mul.lo.{_t} %d, %a, %b", f"{_t} {_t}", _t, lambda a, b: a * b)
        case(f"mul.hi.{_t} %d, %a, %b", f"{_t} {_t}", _t, lambda a, b, n=_bits: a * b >> n)
        case(f"mad.lo.{_t} %d, %a, %b, %c", f"{_t} {_t} {_t}", _t, lambda a, b, c: a * b + c)
        case(
            f"mad.hi.{_t} %d, %a, %b, %c",
            f"{_t} {_t} {_t}",
            _t,
            lambda a, b, c, n=_bits: (a * b >> n) + c,
        )
        case(f"min.{_t} %d, %a, %b", f"{_t} {_t}", _t, min)
        case(f"max.{_t} %d, %a, %b", f"{_t} {_t}", _t, max)
        case(f"div.{_t} %d, %a, %b", f"{_t} {_t}", _t, lambda a, b: truncated(a, b) if b else -1)
        case(
            f"rem.{_t} %d, %a, %b",
            f"{_t} {_t}",
            _t,
            lambda a, b: a - b * truncated(a, b) if b else a,
        )
        case(
            f"sad.{_t} %d, %a, %b, %c", f"{_t} {_t} {_t}", _t, lambda a, b, c: c + abs(a - b)
        )  # fmt: skip
        case(f"shr.{_t} %d, %a, %b", f"{_t} u32", _t, lambda a, b: a >> b)
        case(f"add.{_t} %d, %a, -3", _t, _t, lambda a: a - 3)
        if _bits < 64:
            _w = f"{_letter}{_bits * 2}"
            case(f"mul.wide.{_t} %d, %a, %b", f"{_t} {_t}", _w, lambda a, b: a * b)
            case(f"mad.wide.{_t} %d, %a, %b, %c", f"{_t} {_t} {_w}", _w, lambda a, b, c: a * b + c)
    _b, _s = f"b{_bits}", f"s{_bits}"
    case(f"and.{_b} %d, %a, %b", f"{_b} {_b}", _b, lambda a, b: a & b)
    case(f"or.{_b} %d, %a, %b", f"{_b} {_b}", _b, lambda a, b: a | b)
    case(f"xor.{_b} %d, %a, 0xF0", _b, _b, lambda a: a ^ 0xF0)
    case(f"not.{_b} %d, %a", _b, _b, lambda a: ~a)
    case(f"cnot.{_b} %d, %a", _b, _b, lambda a: a == 0)
    case(f"shl.{_b} %d, %a, %b", f"{_b} u32", _b, lambda a, b: a << b if b < 64 else 0)
    case(f"shl.{_b} %d, %a, 5", _b, _b, lambda a: a << 5)
    case(f"neg.{_s} %d, %a", _s, _s, lambda a: -a)
    case(f"abs.{_s} %d, %a", _s, _s, abs)

for _bits in (32, 64):
    _b = f"b{_bits}"
    case(f"popc.{_b} %d, %a", _b, "u32", int.bit_count)
    case(f"clz.{_b} %d, %a", _b, "u32", lambda a, n=_bits: leading(a, n))
    case(f"brev.{_b} %d, %a", _b, _b, lambda a, n=_bits: reverse(a, n))
    case(
        f"bfi.{_b} %d, %a, %b, %c, %e",
        f"{_b} {_b} u32 u32",
        _b,
        lambda a, b, c, e, n=_bits: insert(a, b, c, e, n),
    )
    for _letter in "us":
        _t = f"{_letter}{_bits}"
        case(f"bfind.{_t} %d, %a", _t, "u32", lambda a, n=_bits: find(a, n))
        case(
            f"bfind.shiftamt.{_t} %d, %a",
            _t,
            "u32",
            lambda a, n=_bits: n - 1 - find(a, n) if find(a, n) >= 0 else -1,
        )
        case(
            f"bfe.{_t} %d, %a, %b, %c",
            f"{_t} u32 u32",
            _t,
            lambda a, b, c, n=_bits, s=_letter == "s": field(a, b, c, n, s),
        )

case("add.sat.s32 %d, %a, %b", "s32 s32", "s32", lambda a, b: clamp(a + b, -(2**31), 2**31 - 1))
case("sub.sat.s32 %d, %a, %b", "s32 s32", "s32", lambda a, b: clamp(a - b, -(2**31), 2**31 - 1))
case("mul24.lo.s32 %d, %a, %b", "s32 s32", "s32", lambda a, b: signed(a, 24) * signed(b, 24))
case("mad24.lo.u32 %d, %a, %b, %c", "u32 u32 u32", "u32",
     lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c)  # fmt: skip
case("prmt.b32 %d, %a, %b, %c", "b32 b32 b32", "b32", permuted)
case("prmt.b32.f4e %d, %a, %b, %c", "b32 b32 b32", "b32",
     lambda a, b, c: (a | b << 32) >> 8 * (c & 3))  # fmt: skip
case("prmt.b32.rc8 %d, %a, %b, %c", "b32 b32 b32", "b32",
     lambda a, b, c: (a >> 8 * (c & 3) & 255) * 0x01010101)  # fmt: skip
case("lop3.b32 %d, %a, %b, %c, 0x96", "b32 b32 b32", "b32", lambda a, b, c: a ^ b ^ c)
case("lop3.b32 %d, %a, %b, %c, 0xE8", "b32 b32 b32", "b32",
     lambda a, b, c: table(a, b, c, 0xE8))  # fmt: skip
case("lop3.b32 %d, %a, %b, %c, 0x1B", "b32 b32 b32", "b32",
     lambda a, b, c: table(a, b, c, 0x1B))  # fmt: skip
case("shf.l.wrap.b32 %d, %a, %b, %c", "b32 b32 u32", "b32",
     lambda a, b, c: (b << 32 | a) << (c & 31) >> 32)  # fmt: skip
case("shf.l.clamp.b32 %d, %a, %b, %c", "b32 b32 u32", "b32",
     lambda a, b, c: (b << 32 | a) << min(c, 32) >> 32)  # fmt: skip
case("shf.r.wrap.b32 %d, %a, %b, %c", "b32 b32 u32", "b32",
     lambda a, b, c: (b << 32 | a) >> (c & 31))  # fmt: skip
case("shf.r.clamp.b32 %d, %a, %b, %c", "b32 b32 u32", "b32",
     lambda a, b, c: (b << 32 | a) >> min(c, 32))  # fmt: skip
case("dp4a.s32.s32 %d, %a, %b, %c", "u32 u32 s32", "s32", dot)
case("dp4a.u32.u32 %d, %a, %b, %c", "u32 u32 u32", "u32",
     lambda a, b, c: c + sum((a >> s & 255) * (b >> s & 255) for s in (0, 8, 16, 24)))  # fmt: skip
case("dp2a.lo.s32.u32 %d, %a, %b, %c", "u32 u32 s32", "s32",
     halves_by_bytes)  # fmt: skip
case("bmsk.wrap.b32 %d, %a, %b", "u32 u32", "b32",
     lambda a, b: ((1 << (b & 31)) - 1) << (a & 31))  # fmt: skip
case("szext.wrap.s32 %d, %a, %b", "s32 u32", "s32",
     lambda a, b: signed(a, b & 31) if b & 31 else 0)  # fmt: skip
case("add.u16x2 %d, %a, %b", "b32 b32", "b32", halfwise(lambda a, b: a + b))
case("min.s16x2 %d, %a, %b", "b32 b32", "b32", halfwise(min))
case("max.s16x2 %d, %a, %b", "b32 b32", "b32", halfwise(max))
case("max.relu.s32 %d, %a, %b", "s32 s32", "s32", lambda a, b: max(a, b, 0))
case("and.pred %d, %a, %b", "pred pred", "pred", lambda a, b: a & b)
case("xor.pred %d, %a, %b", "pred pred", "pred", lambda a, b: a ^ b)
case("not.pred %d, %a", "pred", "pred", lambda a: 1 - a)
case("selp.b32 %d, %a, %b, %c", "b32 b32 pred", "b32", lambda a, b, c: a if c else b)
case("selp.s64 %d, %a, -5, %b", "s64 pred", "s64", lambda a, b: a if b else -5)
case("slct.u32.s32 %d, %a, %b, %c", "u32 u32 s32", "u32", lambda a, b, c: a if c >= 0 else b)
case("cvt.pack.sat.s16.s32 %d, %a, %b", "s32 s32", "b32", lambda a, b:
     (clamp(a, -32768, 32767) & 0xFFFF) << 16 | clamp(b, -32768, 32767) & 0xFFFF)  # fmt: skip
case("cvt.pack.sat.u8.s32.b32 %d, %a, %b, %c", "s32 s32 b32", "b32", lambda a, b, c:
     (c & 0xFFFF) << 16 | clamp(a, 0, 255) << 8 | clamp(b, 0, 255))  # fmt: skip


@pytest.mark.parametrize("code, kinds, output, function", CASES, ids=[c[0] for c in CASES])
def test_integers(
    code: str, kinds: tuple[str, ...], output: str, function: Callable[..., int]
) -> None:
    arrays = crossed(kinds)
    found = apply(code + ";", arrays, kinds, output)
    expected = by_integers(function, arrays, output)
    assert found.tolist() == expected.tolist()


COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
    "lo": lambda a, b: a < b, "ls": lambda a, b: a <= b, "hi": lambda a, b: a > b,
    "hs": lambda a, b: a >= b,
}  # fmt: skip


COMPARED = [
    (name, kind)
    for name in COMPARISONS
    for kind in ("u16", "s16", "u32", "s32", "u64", "s64")
    if name not in ("lo", "ls", "hi", "hs") or kind[0] == "u"
]


@pytest.mark.parametrize("name, kind", COMPARED)
def test_comparisons(name: str, kind: str) -> None:
    arrays = crossed([kind, kind])
    compare = COMPARISONS[name]
    found = apply(f"setp.{name}.{kind} %d, %a, %b;", arrays, [kind, kind], "pred")
    assert found.tolist() == by_integers(compare, arrays, "pred").tolist()


@pytest.mark.parametrize("mode", ["and", "or", "xor"])
def test_comparisons_are_combined_with_a_predicate(mode: str) -> None:
    kinds = ["s32", "s32", "pred"]
    arrays = crossed(kinds)
    combine = {"and": lambda p, q: p and q, "or": lambda p, q: p or q, "xor": lambda p, q: p != q}
    code = f"setp.lt.{mode}.s32 %q0|%q1, %a, %b, %c; selp.u32 %x0, 1, 0, %q0;"
    code += "selp.u32 %x1, 2, 0, %q1; or.b32 %d, %x0, %x1;"
    found = apply(code, arrays, kinds, "u32")

    def both(a: int, b: int, c: int) -> int:
        first, second = combine[mode](a < b, bool(c)), combine[mode](not a < b, bool(c))
        return int(first) + 2 * int(second)

    assert found.tolist() == by_integers(both, arrays, "u32").tolist()


def test_set_gives_all_ones_or_one() -> None:
    arrays = crossed(["s32", "s32"])
    found = apply("set.gt.u32.s32 %d, %a, %b;", arrays, ["s32", "s32"], "u32")
    assert found.tolist() == by_integers(lambda a, b: -(a > b), arrays, "u32").tolist()
    found = apply("set.gt.f32.s32 %d, %a, %b;", arrays, ["s32", "s32"], "f32")
    assert found.tolist() == [float(a > b) for a, b in zip(*(x.tolist() for x in arrays))]


@pytest.mark.parametrize("op, sign", [("add", 1), ("sub", -1)])
def test_carry_through_two_words(op: str, sign: int) -> None:
    arrays = crossed(["b64", "b64"])
    code = (
        "mov.b64 {%x0, %x1}, %a; mov.b64 {%x2, %x3}, %b;"
        f"{op}.cc.u32 %x4, %x0, %x2; {op}c.u32 %x5, %x1, %x3; mov.b64 %d, {{%x4, %x5}};"
    )
    found = run_plain(code, arrays)
    assert found == [(a + sign * b) % 2**64 for a, b in zip(*(x.tolist() for x in arrays))]


def test_product_of_long_integers_by_carries() -> None:
    """The 128-bit product as NVIDIA's compiler writes it; its upper half is checked."""
    arrays = crossed(["b64", "b64"])
    code = (
        "mov.b64 {%x0, %x1}, %a; mov.b64 {%x2, %x3}, %b;"
        "mul.lo.u32 %x4, %x0, %x2; mul.hi.u32 %x5, %x0, %x2;"
        "mad.lo.cc.u32 %x5, %x0, %x3, %x5; madc.hi.u32 %x6, %x0, %x3, 0;"
        "mad.lo.cc.u32 %x5, %x1, %x2, %x5; madc.hi.cc.u32 %x6, %x1, %x2, %x6;"
        "madc.hi.u32 %x7, %x1, %x3, 0;"
        "mad.lo.cc.u32 %x6, %x1, %x3, %x6; addc.u32 %x7, %x7, 0; mov.b64 %d, {%x6, %x7};"
    )
    found = run_plain(code, arrays)
    assert found == [a * b >> 64 for a, b in zip(*(x.tolist() for x in arrays))]


def run_plain(code: str, arrays: list[Array]) -> list[int]:
    """Without guards, which instructions with a carry cannot have."""
    padded = (len(arrays[0]) + 63) // 64 * 64
    result = np.zeros(padded, np.uint64)
    kernel = instruction_kernel(code, ["b64"] * len(arrays), "b64")
    launch(kernel, [*(np.resize(a, padded) for a in arrays), result], (padded // 64,), (64,))
    return result[: len(arrays[0])].tolist()
