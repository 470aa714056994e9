"""cvt: from any type to any other."""

from __future__ import annotations

from .flow import Op
from .types import TYPES, Type
from .writer import Modifiers, Writer, emits

INTEGER_ROUNDINGS = ("rni", "rzi", "rmi", "rpi")
FLOAT_ROUNDINGS = ("rn", "rz", "rm", "rp", "rna")
FP8 = ("e4m3x2", "e5m2x2")
PACKED = ("f16x2", "bf16x2", *FP8)
SCALARS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16")


@emits("cvt")
def cvt(w: Writer, op: Op, m: Modifiers) -> None:
    if op.modifiers[:1] == ("pack",):
        pack_integers(w, op, m)
        return
    source = m.type(*SCALARS, *PACKED)
    target = m.type(*SCALARS, *PACKED, "tf32")
    if target.name in PACKED:
        to_packed(w, op, m, target, source)
    elif target.name == "tf32":
        to_tf32(w, op, m)
    elif source.name in PACKED:
        raise m.error(f"from {source.name} to {target.name}")
    else:
        m.operands(2)
        expression = scalar(w, m, target, source, op.operands[1])
        w.write_sized(op.operands[0], expression, target.code)


def scalar(w: Writer, m: Modifiers, target: Type, source: Type, operand: object) -> str:
    real_to, real_from = target.kind == "f", source.kind == "f"
    if not real_to and not real_from:
        x = w.source_sized(operand, source.code)
        if m.flag("sat"):
            return f"N.saturate_integer({x}, {target.code!r})"
        if target.size == source.size:
            return f"{x}.view({target.code})" if target.code != source.code else x
        return f"{x}.astype({target.code})"
    if not real_to:
        return float_to_integer(w, m, target, source, operand)
    if not real_from:
        return integer_to_float(w, m, target, source, operand)
    return float_to_float(w, m, target, source, operand)


def float_source(w: Writer, source: Type, operand: object) -> tuple[str, str]:
    """An expression of a float, and its code: bfloat16 becomes float32."""
    if source.name == "bf16":
        return f"N.widen_bf16({w.source(operand, 'u2')})", "f4"
    return w.source(operand, source.code), source.code


def float_to_integer(w: Writer, m: Modifiers, target: Type, source: Type, operand: object) -> str:
    mode = m.one(*INTEGER_ROUNDINGS)
    if not mode:
        raise m.error("a rounding to integers is missing")
    x, _ = float_source(w, source, operand)
    if m.flag("ftz"):
        x = f"N.ftz({x})"
    m.flag("sat")  # these conversions always clamp
    return f"N.to_integer({x}, {target.code!r}, {mode!r})"


def integer_to_float(w: Writer, m: Modifiers, target: Type, source: Type, operand: object) -> str:
    mode = m.one("rn", "rz", "rm", "rp")
    if not mode:
        raise m.error("a rounding is missing")
    x = w.source_sized(operand, source.code)
    clamp = m.flag("sat")
    if target.name == "bf16":
        return f"N.to_bf16({x}.astype(f8), {mode!r})"
    result = f"N.integer_to_float({x}, {target.code!r}, {mode!r})"
    return f"N.saturate({result})" if clamp else result


ROUND = {"rni": "np.rint", "rzi": "np.trunc", "rmi": "np.floor", "rpi": "np.ceil"}


def float_to_float(w: Writer, m: Modifiers, target: Type, source: Type, operand: object) -> str:
    flush, clamp, relu = m.flag("ftz"), m.flag("sat"), m.flag("relu")
    finite = m.flag("satfinite")
    x, code = float_source(w, source, operand)
    if flush and code == "f4":
        x = f"N.ftz({x})"
    whole = m.one(*INTEGER_ROUNDINGS)
    mode = m.one("rn", "rz", "rm", "rp")
    if target.size < source.size and not mode:
        raise m.error("a rounding is missing")
    if whole:
        x = f"{ROUND[whole]}({x})"
    if clamp:
        x = f"N.saturate({x})"
    if relu:
        x = f"N.relu({x})"
    if finite:
        limit = w.constant({"f16": 65504.0, "bf16": 3.3895313892515355e38}[target.name], code)
        x = f"np.clip({x}, -{limit}, {limit})"
    if target.name == "bf16":
        return f"N.to_bf16({x}.astype(f4) if {x}.dtype == f2 else {x}, {mode or 'rn'!r})"
    if target.code == code:
        result = x
    elif target.size > int(code[1]):
        result = f"{x}.astype({target.code})"
    else:
        result = f"N.narrow({x}, {target.code!r}, {mode!r})"
    return f"N.ftz({result})" if flush and target.code == "f4" else result


def to_tf32(w: Writer, op: Op, m: Modifiers) -> None:
    m.operands(2)
    mode = m.one("rna", "rn", "rz")
    relu = m.flag("relu")
    m.skip("satfinite")  # the range is that of float32
    x = w.source(op.operands[1], "f4")
    x = f"N.relu({x})" if relu else x
    w.write(op.operands[0], f"N.to_tf32({x}, {mode!r})", "u4")


def to_packed(w: Writer, op: Op, m: Modifiers, target: Type, source: Type) -> None:
    """Two numbers in one register: the first operand becomes the upper one."""
    mode = m.one("rn", "rz")
    relu, finite = m.flag("relu"), m.flag("satfinite")
    if source.name == "f32":
        m.operands(3)
        high, low = (w.source(operand, "f4") for operand in op.operands[1:])
    elif source.name in FP8:
        m.operands(2)
        x = w.let(w.source(op.operands[1], "u2"))
        name = source.name[:4]
        low = f"N.from_fp8({x}, {name!r})"
        high = f"N.from_fp8({x} >> {w.constant(8, 'u2')}, {name!r})"
    elif source.name == "f16x2":
        m.operands(2)
        pair = w.let(f"N.halves({w.source(op.operands[1], 'u4')}, 'f2')")
        low, high = f"{pair}[0].astype(f4)", f"{pair}[1].astype(f4)"
    else:
        raise m.error(f"from {source.name} to {target.name}")
    if not mode:
        raise m.error("a rounding is missing")
    if relu:
        low, high = f"N.relu({low})", f"N.relu({high})"
    w.write(op.operands[0], packed(w, m, target, mode, finite, low, high), target.code)


def packed(
    w: Writer, m: Modifiers, target: Type, mode: str, finite: bool, low: str, high: str
) -> str:
    if target.name in FP8:
        if not finite:
            raise m.error("satfinite is missing")
        name = target.name[:4]
        return f"N.pack((N.to_fp8({low}, {name!r}), N.to_fp8({high}, {name!r})), 2)"
    if finite:
        limit = w.constant({"f16x2": 65504.0, "bf16x2": 3.3895313892515355e38}[target.name], "f4")
        low, high = (f"np.clip({x}, -{limit}, {limit})" for x in (low, high))
    if target.name == "bf16x2":
        return f"N.join(N.to_bf16({low}, {mode!r}), N.to_bf16({high}, {mode!r}))"
    return f"N.join(N.narrow({low}, 'f2', {mode!r}), N.narrow({high}, 'f2', {mode!r}))"


def pack_integers(w: Writer, op: Op, m: Modifiers) -> None:
    """cvt.pack.sat: two clamped integers above the low half of a third operand."""
    m.one("pack")
    if not m.flag("sat"):
        raise m.error("sat is missing")
    if m.left[-1:] == ["b32"]:
        m.one("b32")
    m.type("s32")
    target = TYPES.get(m.left.pop() if m.left else "")
    if target is None or target.name not in ("u16", "s16", "u8", "s8"):
        raise m.error("target type")
    m.operands(3 if target.size == 2 else 4)
    x, y = (w.source(operand, "i4") for operand in op.operands[1:3])
    bits, code = target.bits, f"u{target.size}"
    high, low = (f"N.saturate_integer({v}, {target.code!r}).view({code})" for v in (x, y))
    result = f"N.pack(({low}, {high}), {target.size * 2}).astype(u4)"
    if target.size == 1:
        third = w.source(op.operands[3], "u4")
        result = f"{result} | ({third} << {w.constant(bits * 2, 'u4')})"
    w.write(op.operands[0], result, "u4")
