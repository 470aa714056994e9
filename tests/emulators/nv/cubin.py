"""Reads a cubin, to know its kernels' machine code, needs, and where addresses of variables are.

Only as much of ELF as that takes; the plugin has its own reader.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tests.emulators.nv.code import BankAddress, BankWord, Place

_REGISTERS, _STACK = 0x2F, 0x12  # attributes of .nv.info
_SIZED = 4
_ABSOLUTE_64 = 2


@dataclass
class Kernel:
    """One kernel of a cubin."""

    name: str
    code: bytes
    registers: int = 0
    stack: int = 0
    patched: tuple[int, ...] = ()  # offsets of instructions that get addresses


@dataclass
class Cubin:
    """The kernels of a cubin, and its variables."""

    kernels: list[Kernel] = field(default_factory=list)
    symbols: dict[str, Place] = field(default_factory=dict)


@dataclass
class _Section:
    name: str
    kind: int
    data: bytes


def read(image: bytes) -> Cubin:
    """What a cubin has in it."""
    sections = _sections(image)
    by_name = {s.name: s for s in sections}
    symbols = _symbols(by_name[".symtab"].data, by_name[".strtab"].data)
    numbers = _attributes(by_name[".nv.info"].data) if ".nv.info" in by_name else {}
    result = Cubin()
    for section in sections:
        if section.name.startswith(".text."):
            name = section.name.removeprefix(".text.")
            index = next(i for i, (n, _, s) in enumerate(symbols) if n == name and s)
            kernel = Kernel(name, section.data)
            kernel.registers = numbers.get((_REGISTERS, index), 0)
            kernel.stack = numbers.get((_STACK, index), 0)
            kernel.patched = tuple(sorted({at for at, _ in _relocations(by_name, section.name)}))
            result.kernels.append(kernel)
    for name, value, where in symbols:
        if name and where and sections[where].name == ".nv.constant3":
            result.symbols[name] = BankAddress(3, value)
    for offset, info in _relocations(by_name, ".nv.constant4"):
        if info & 0xFFFF_FFFF == _ABSOLUTE_64:
            result.symbols.setdefault(symbols[info >> 32][0], BankWord(4, offset))
    return result


def _relocations(by_name: Mapping[str, _Section], section: str) -> Iterator[tuple[int, int]]:
    """Where addresses are put into a section: offset, and kind and symbol."""
    for prefix, nbytes in ((".rel", 16), (".rela", 24)):
        table = by_name.get(prefix + section)
        for at in range(0, len(table.data) if table else 0, nbytes):
            assert table is not None
            yield struct.unpack_from("<QQ", table.data, at)


def _sections(image: bytes) -> list[_Section]:
    assert image[:4] == b"\x7fELF" and image[4:6] == b"\x02\x01"
    start = struct.unpack_from("<Q", image, 0x28)[0]
    size, count, names = struct.unpack_from("<HHH", image, 0x3A)
    heads = [struct.unpack_from("<IIQQQQ", image, start + i * size) for i in range(count)]
    strings = heads[names][4]
    result = []
    for name, kind, _, _, offset, nbytes in heads:
        text = image[strings + name : image.index(b"\0", strings + name)].decode()
        has_bytes = kind != 8  # NOBITS
        result.append(_Section(text, kind, image[offset : offset + nbytes] if has_bytes else b""))
    return result


def _symbols(table: bytes, strings: bytes) -> list[tuple[str, int, int]]:
    """Name, value and section of each symbol."""
    result = []
    for at in range(0, len(table), 24):
        name, _, _, section, value, _ = struct.unpack_from("<IBBHQQ", table, at)
        text = strings[name : strings.index(b"\0", name)].decode()
        result.append((text, value, section if section < 0xFF00 else 0))
    return result


def _attributes(data: bytes) -> dict[tuple[int, int], int]:
    """Numbers that belong to a symbol: (attribute, symbol) -> number."""
    result, at = {}, 0
    while at + 4 <= len(data):
        form, attribute, nbytes = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == _SIZED:
            if nbytes == 8:
                symbol, value = struct.unpack_from("<II", data, at)
                result[attribute, symbol] = value
            at += nbytes
    return result
