"""Object code into memory, ready to be called.

x86-64 object files are linked here, in a few hundred microseconds and without loading LLVM;
those of other processors by llvmlite's linker. Shared objects are opened by the C library.
Reference: "System V Application Binary Interface, AMD64", sections 4.2 to 4.4, and "ELF-64
Object File Format".
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tg_cpu.native import (
    ffi,
    function_address,
    libc,
    open_library,
    pointer,
    symbol_address,
    view,
)
from tgcore.errors import CompileError

_RELOCATABLE, _SHARED = 1, 3  # e_type
_X86_64 = 62  # e_machine
_ALLOC, _NOBITS, _SYMTAB, _RELA = 2, 8, 2, 4  # sh_flags bit, sh_types
_READ_EXECUTE = mmap.PROT_READ | mmap.PROT_EXEC

_ABS64, _PC32, _PLT32, _GOTPCREL, _PC64 = 1, 2, 4, 9, 24
_GOTPCRELX, _REX_GOTPCRELX = 41, 42
_GOT_KINDS: Final = (_GOTPCREL, _GOTPCRELX, _REX_GOTPCRELX)
_STUB = bytes.fromhex("ff2500000000")  # jmp *[rip]; the target's address follows


@dataclass
class LoadedCode:
    """Code in memory: addresses of its functions.

    The memory stays until `release`: no destructor may take it from under a running kernel.
    """

    functions: dict[str, int]
    address: int = 0
    nbytes: int = 0
    keep: list[Any] = field(default_factory=list)

    def release(self) -> None:
        """Give the memory back; nothing may run in it any more."""
        if self.nbytes:
            libc().munmap(pointer(self.address), self.nbytes)
            self.nbytes = 0


def load_code(binary: bytes) -> LoadedCode:
    """Load an object file or a shared object; CompileError if the file is neither."""
    if binary[:4] != b"\x7fELF" or len(binary) < 64:
        return _load_by_llvm(binary)
    kind, machine = struct.unpack_from("<HH", binary, 16)
    if kind == _SHARED:
        return _load_shared(binary)
    if kind == _RELOCATABLE and machine == _X86_64:
        return _Linker(binary).link()
    return _load_by_llvm(binary)


class _Section(NamedTuple):
    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry_size: int


class _Linker:
    """Places the sections of one object file and resolves its relocations."""

    def __init__(self, binary: bytes) -> None:
        self.binary = binary
        table, entry_size, count, names = (
            *struct.unpack_from("<Q", binary, 40),
            *(struct.unpack_from("<HHH", binary, 58)),
        )
        self.sections = [
            _Section(*struct.unpack_from("<IIQQQQIIQQ", binary, table + i * entry_size))
            for i in range(count)
        ]
        self.names = self.sections[names]
        self.placed: dict[int, int] = {}  # section number -> offset in memory
        self.extra = 0  # where the next stub or table entry goes
        self.extras: dict[tuple[str, int], int] = {}

    def link(self) -> LoadedCode:
        size = self._place()
        relocations = [s for s in self.sections if s.type == _RELA and s.info in self.placed]
        entries = sum(s.size // 24 for s in relocations)
        self.extra = -(-size // 16) * 16
        total = self.extra + 16 * entries + 16
        self.start = _map(total)
        self.memory = view(self.start, total)
        for number, offset in self.placed.items():
            section = self.sections[number]
            if section.type != _NOBITS:
                content = self.binary[section.offset : section.offset + section.size]
                self.memory[offset : offset + section.size] = content
        symbols = self._symbols()
        for section in relocations:
            self._relocate(section, symbols)
        if libc().mprotect(pointer(self.start), total, _READ_EXECUTE) != 0:
            raise CompileError("the system does not let this process make code executable")
        functions = {name: address for name, address, is_function in symbols if is_function}
        return LoadedCode(functions, self.start, total)

    def _place(self) -> int:
        size = 0
        for number, section in enumerate(self.sections):
            if not section.flags & _ALLOC or self._name(section).startswith(".eh_frame"):
                continue
            align = max(1, section.align)
            size = -(-size // align) * align
            self.placed[number] = size
            size += section.size
        return size

    def _name(self, section: _Section) -> str:
        return self._text(self.names.offset + section.name)

    def _text(self, offset: int) -> str:
        return self.binary[offset : self.binary.index(b"\0", offset)].decode()

    def _symbols(self) -> list[tuple[str, int, bool]]:
        """(name, address, whether it is one of our functions), in the file's order."""
        table = next(s for s in self.sections if s.type == _SYMTAB)
        strings = self.sections[table.link].offset
        found = []
        for at in range(table.offset, table.offset + table.size, 24):
            name_at, info, _, section, value, _ = struct.unpack_from("<IBBHQQ", self.binary, at)
            name = self._text(strings + name_at)
            if section in self.placed:
                found.append((name, self.start + self.placed[section] + value, info == 0x12))
            elif section == 0 and name:
                found.append((name, _external(name), False))
            else:
                found.append((name, value, False))
        return found

    def _relocate(self, section: _Section, symbols: list[tuple[str, int, bool]]) -> None:
        base = self.placed[section.info]
        for at in range(section.offset, section.offset + section.size, 24):
            offset, info, addend = struct.unpack_from("<QQq", self.binary, at)
            kind, target = info & 0xFFFFFFFF, symbols[info >> 32][1]
            self._apply(kind, base + offset, target, addend)

    def _apply(self, kind: int, place: int, target: int, addend: int) -> None:
        here = self.start + place
        if kind == _ABS64:
            struct.pack_into("<Q", self.memory, place, target + addend)
        elif kind == _PC64:
            struct.pack_into("<q", self.memory, place, target + addend - here)
        elif kind in (_PC32, _PLT32):
            if not -(1 << 31) <= target + addend - here < 1 << 31:
                target = self._extra("stub", target)
            struct.pack_into("<i", self.memory, place, target + addend - here)
        elif kind in _GOT_KINDS:
            entry = self._extra("address", target)
            struct.pack_into("<i", self.memory, place, entry + addend - here)
        else:
            raise CompileError(f"object code has a relocation of kind {kind}, which is not known")

    def _extra(self, kind: str, target: int) -> int:
        """A jump to the target, or its address, near enough to be reached; one for each target."""
        if (kind, target) not in self.extras:
            content = (_STUB if kind == "stub" else b"") + struct.pack("<Q", target)
            self.memory[self.extra : self.extra + len(content)] = content
            self.extras[(kind, target)] = self.start + self.extra
            self.extra += 16
        return self.extras[(kind, target)]


def _map(nbytes: int) -> int:
    flags, writable = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE
    address = int(ffi().cast("intptr_t", libc().mmap(ffi().NULL, nbytes, writable, flags, -1, 0)))
    if address == -1:
        raise MemoryError(f"no {nbytes} bytes for code")
    return address


def _external(name: str) -> int:
    address = symbol_address(name)
    if address is None:
        raise CompileError(f"object code calls {name}, which this process does not have")
    return address


def _load_shared(binary: bytes) -> LoadedCode:
    descriptor, path = tempfile.mkstemp(suffix=".so")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(binary)
        library = open_library(path)
    except OSError as error:
        raise CompileError(f"the shared object does not load: {error}") from None
    finally:
        os.unlink(path)
    return LoadedCode(_SharedFunctions(library))


class _SharedFunctions(dict[str, int]):
    """Looks functions up in an opened library when they are asked for."""

    def __init__(self, library: int) -> None:
        super().__init__()
        self.library = library

    def __missing__(self, name: str) -> int:
        address = function_address(self.library, name)
        if address is None:
            raise KeyError(name)
        return address


def _load_by_llvm(binary: bytes) -> LoadedCode:
    from tg_cpu import llvm  # only on processors whose object code is not linked above

    functions, keep = llvm.link_object(binary)
    return LoadedCode(functions, keep=keep)
