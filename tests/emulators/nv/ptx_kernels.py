"""Helps to test the PTX interpreter: memory by address, and kernels around a few instructions."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.emulators.nv import ptx

HEAD = ".version 8.6\n.target sm_100a\n.address_size 64\n"
SIZES = {"8": 1, "16": 2, "32": 4, "64": 8}
NUMPY = {
    "u8": "u1", "s8": "i1", "b8": "u1", "u16": "u2", "s16": "i2", "b16": "u2", "f16": "f2",
    "bf16": "u2", "u32": "u4", "s32": "i4", "b32": "u4", "f32": "f4", "u64": "u8", "s64": "i8",
    "b64": "u8", "f64": "f8",
}  # fmt: skip
Array = NDArray[Any]


class VirtualMemory:
    """Arrays at addresses; what is between them is unmapped."""

    def __init__(self) -> None:
        self.mappings: list[tuple[int, Array, bool]] = []
        self.next = 0x7F00_0000_0000

    def add(self, array: Array, writable: bool = True) -> int:
        """The address of an array; it stays the same memory."""
        address = self.next
        self.next += (array.nbytes // 4096 + 2) * 4096
        self.mappings.append((address, array.reshape(-1).view(np.uint8), writable))
        return address

    def resolve(self, address: int, nbytes: int, write: bool) -> tuple[Array, int] | None:
        for base, data, writable in self.mappings:
            if base <= address < base + data.size:
                return (data, base) if writable or not write else None
        return None

    def place(self, module: ptx.Module) -> dict[str, int]:
        """Memory for the variables of a module, with their first contents."""
        symbols: dict[str, int] = {}
        arrays = {}
        for variable in module.placed:
            array = np.zeros(max(variable.size, 1), np.uint8)
            array[: len(variable.data)] = np.frombuffer(variable.data, np.uint8)
            arrays[variable.name] = array
            symbols[variable.name] = self.add(array)
        for variable in module.placed:
            for place in variable.relocations:
                address = symbols[place.symbol] + place.addend
                raw = address.to_bytes(8, "little")[: place.size]
                at = slice(place.offset, place.offset + place.size)
                arrays[variable.name][at] = np.frombuffer(raw, np.uint8)
        return symbols


def launch(
    kernel: ptx.Kernel,
    arguments: Sequence[Array | int | float],
    grid: tuple[int, ...] = (1,),
    block: tuple[int, ...] = (32,),
    memory: VirtualMemory | None = None,
    **options: Any,
) -> int:
    """Runs a kernel; arrays become pointers, numbers what the parameter says."""
    memory = memory or VirtualMemory()
    packed = bytearray(kernel.parameter_bytes)
    for parameter, value in zip(kernel.parameters, arguments, strict=True):
        if isinstance(value, np.ndarray):
            data = struct.pack("<Q", memory.add(value))
        elif isinstance(value, float):
            data = struct.pack("<f" if parameter.size == 4 else "<d", value)
        else:
            data = (int(value) % (1 << 8 * parameter.size)).to_bytes(parameter.size, "little")
        packed[parameter.offset : parameter.offset + len(data)] = data
    symbols = memory.place(kernel.module)
    gx, gy, gz = (*grid, 1, 1)[:3]
    bx, by, bz = (*block, 1, 1)[:3]
    return ptx.run(
        kernel, (gx, gy, gz), (bx, by, bz), bytes(packed), memory, symbols=symbols, **options
    )


def kernel_of(body: str, parameters: int = 1, extra: str = "", after: str = "") -> ptx.Kernel:
    """A kernel `k` with pointers as parameters in %p0, %p1, ..., and %tid.x in %t."""
    names = [f".param .u64 k_{i}" for i in range(parameters)]
    loads = "\n".join(f"ld.param.u64 %p{i}, [k_{i}];" for i in range(parameters))
    text = (
        f"{HEAD}{extra}\n.visible .entry k({', '.join(names)}) {after}\n{{\n"
        f".reg .b64 %p<{parameters}>; .reg .b32 %t; mov.u32 %t, %tid.x;\n{loads}\n"
        f"{body}\nret;\n}}\n"
    )
    return ptx.parse(text).kernels["k"]


def register_bits(kind: str) -> int:
    """The register that holds a type: bytes live in 16 bits."""
    return max(16, 8 * np.dtype(NUMPY[kind]).itemsize)


def _load(name: str, kind: str, parameter: int) -> str:
    if kind == "pred":
        return (
            f"add.u64 %at, %p{parameter}, %wide; ld.global.u8 %byte, [%at];\n"
            f"setp.ne.u16 {name}, %byte, 0;"
        )
    size = np.dtype(NUMPY[kind]).itemsize
    move = "u8" if size == 1 else f"b{size * 8}"
    return (
        f"mad.wide.u32 %at, %i, {size}, %p{parameter};\n"
        f"ld.global.{move} {name}, [%at];"
    )  # fmt: skip


def _declare(name: str, kind: str, floats: bool) -> str:
    if kind == "pred":
        return f".reg .pred {name};"
    letter = "f" if floats and kind in ("f16", "f32", "f64") else "b"
    return f".reg .{letter}{register_bits(kind)} {name};"


def instruction_kernel(
    code: str, inputs: Sequence[str], output: str, how: str = "all", floats: bool = False
) -> ptx.Kernel:
    """%d = code(%a, %b, ...) for each thread. how: all threads, or every other one by a
    branch or by a guard on each instruction; the rest keep what %d was loaded with."""
    names = ["%a", "%b", "%c", "%e"][: len(inputs)]
    kinds = [*inputs, output]
    text = [_declare(n, k, floats) for n, k in zip([*names, "%d"], kinds)]
    text.append(".reg .b64 %at, %wide; .reg .b32 %i, %odd, %x<8>; .reg .b16 %byte, %h<8>;")
    text.append(".reg .pred %some, %q<4>; .reg .b64 %y<4>; .reg .f32 %f<4>;")
    text.append("mov.u32 %i, %ctaid.x; mad.lo.u32 %i, %i, 64, %t; cvt.u64.u32 %wide, %i;")
    text += [_load(n, k, p) for p, (n, k) in enumerate(zip([*names, "%d"], kinds))]
    text.append("and.b32 %odd, %i, 1; setp.eq.u32 %some, %odd, 1;")
    if how == "branch":
        code = f"@!%some bra SKIP;\n{code}\nSKIP:"
    elif how == "guard":
        code = "\n".join(f"@%some {part.strip()};" for part in code.split(";") if part.strip())
    text.append(code)
    if output == "pred":
        text.append("selp.u16 %byte, 1, 0, %d; add.u64 %at, %p_, %wide; st.global.u8 [%at], %byte;")
    else:
        size = np.dtype(NUMPY[output]).itemsize
        text.append(f"mad.wide.u32 %at, %i, {size}, %p_; st.global.b{size * 8} [%at], %d;")
    body = "\n".join(text).replace("%p_", f"%p{len(inputs)}")
    return kernel_of(body, len(inputs) + 1)


def apply(
    code: str, arrays: Sequence[Array], kinds: Sequence[str], output: str, floats: bool = False
) -> Array:
    """What instructions make of arrays; run in all three ways, which must agree."""
    count = len(arrays[0])
    padded = (count + 63) // 64 * 64
    dtype = np.dtype("u1" if output == "pred" else NUMPY[output])
    results = []
    for how in ("all", "branch", "guard"):
        if how == "guard" and "{" in code and "mov" not in code:
            continue
        kernel = instruction_kernel(code, kinds, output, how, floats)
        before = np.full(padded, 1, dtype)
        inputs = [np.resize(a, padded) for a in arrays]
        launch(kernel, [*inputs, before], (padded // 64,), (64,))
        results.append(before)
    odd = np.arange(padded) % 2 == 1
    for other in results[1:]:
        assert same(other[odd], results[0][odd]).all(), "masked threads compute something else"
        assert (other[~odd] == 1).all(), "threads without the guard have changed"
    return results[0][:count]


def same(a: Array, b: Array) -> Array:
    """Equal, or both NaN."""
    if a.dtype.kind in "iub":
        return np.asarray(a == b)
    return np.asarray((a == b) | (np.isnan(a) & np.isnan(b)))


def by_integers(
    function: Callable[..., int], arrays: Sequence[Array], output: str
) -> Array:  # fmt: skip
    """A function of Python's integers on each element, cut to the type of the result."""
    dtype = np.dtype("u1" if output == "pred" else NUMPY[output])
    bits = dtype.itemsize * 8
    rows = zip(*(a.tolist() for a in arrays))
    raw = [int(function(*row)) % (1 << bits) for row in rows]
    return np.array(raw, f"u{dtype.itemsize}").view(dtype)


def edge_values(kind: str, count: int = 40, seed: int = 0) -> Array:
    """Numbers that break things, and some more."""
    generator = np.random.default_rng([seed, len(kind), ord(kind[0])])
    dtype = np.dtype("u1" if kind == "pred" else NUMPY[kind])
    if kind == "pred":
        return generator.integers(0, 2, count).astype(np.uint8)
    if dtype.kind == "f":
        info = np.finfo(dtype)
        special = [0.0, -0.0, 1, -1, 0.5, -2.5, 3.5, np.inf, -np.inf, np.nan, info.max, info.min]
        special += [float(info.tiny), float(info.tiny) / 4, 1.5, -0.25, 100.7, -100.2, 65504, 7]
        rest = generator.standard_normal(count - len(special)) * 8
        with np.errstate(over="ignore"):
            return np.array([*special, *rest]).astype(dtype)
    bits = dtype.itemsize * 8
    special = [0, 1, 2, 3, -1, -2, 7, 31, 32, 33, 1 << (bits - 1), (1 << (bits - 1)) - 1, 100, -100]
    rest = [int.from_bytes(generator.bytes(dtype.itemsize), "little") for _ in range(count - 14)]
    raw = [n % (1 << bits) for n in (*special, *rest)]
    return np.array(raw, f"u{dtype.itemsize}").view(dtype)


def crossed(kinds: Sequence[str], limit: int = 1024) -> list[Array]:
    """Edge values of several types in all combinations, or as many as the limit allows."""
    columns = [edge_values(kind, seed=n) for n, kind in enumerate(kinds)]
    grids = [g.ravel() for g in np.meshgrid(*columns, indexing="ij")]
    chosen = np.arange(grids[0].size)
    if chosen.size > limit:
        chosen = np.random.default_rng(1).permutation(chosen)[:limit]
    return [g[chosen] for g in grids]
