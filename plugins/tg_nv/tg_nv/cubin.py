"""Cubins: compiled programs, read from their ELF file and laid out for the GPU's memory.

Sections and attributes are those that NVIDIA's compilers write (CUDA 12 and 13).
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from tgcore.errors import CompileError

_MACHINE: Final = 190  # EM_CUDA
_CODE_ALIGNMENT: Final = 128
_BANK_ALIGNMENT: Final = 256
_PREFETCH_BYTES: Final = 4096  # instructions are fetched ahead: this much must be mapped

_BANK: Final = re.compile(r"\.nv\.constant([234])(?:\.(.+))?")  # 0 is filled for each launch

# attributes of .nv.info
_MAX_THREADS: Final = 0x05
_PARAM_CBANK: Final = 0x0A
_EXTERNS: Final = 0x0F
_REQNTID: Final = 0x10
_MIN_STACK_SIZE: Final = 0x12
_KPARAM_INFO: Final = 0x17
_REGCOUNT: Final = 0x2F
_CTA_PER_CLUSTER: Final = 0x3D
_KPARAM_INFO_V2: Final = 0x45
_NUM_BARRIERS: Final = 0x4C
_SIZED: Final = 4  # format of an attribute that is followed by so many bytes

# relocations
_R_NONE: Final = 0
_R_64: Final = 2
_R_LOW: Final = 0x38
_R_HIGH: Final = 0x39
# (first bit, width) of the parts of an instruction that hold an address without its two lowest bits
_R_PARTS: Final = {
    0x3A: ((34, 47),),
    0x4B: ((16, 8), (34, 47)),
    0x72: ((16, 8), (34, 48)),
}
_TOOLS_ONLY: Final = 0x10000


@dataclass
class KernelInfo:
    """One kernel of a cubin. Sizes in bytes.

    `params` are (offset, size) from `param_base` on; `banks` are its constant banks but for bank 0:
    number -> (offset in the image, size).
    """

    name: str
    code_offset: int
    code_bytes: int
    registers: int = 0
    barriers: int = 0
    shared_bytes: int = 0
    stack_bytes: int = 0
    param_base: int = 0
    param_bytes: int = 0
    params: list[tuple[int, int]] = field(default_factory=list)
    banks: dict[int, tuple[int, int]] = field(default_factory=dict)
    most_threads: int = 1024
    required_block: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class _Relocation:
    offset: int
    kind: int
    target: int  # offset in the image
    addend: int


@dataclass
class Cubin:
    """A program's image for the GPU's memory, and what is in it."""

    image: bytearray
    kernels: dict[str, KernelInfo]
    relocations: list[_Relocation]
    variables: dict[str, int]  # offsets of the program's global variables

    def relocated(self, address: int) -> bytes:
        """The image, as it must be at that address."""
        image = bytearray(self.image)
        for r in self.relocations:
            value = address + r.target + r.addend
            if r.kind == _R_64:
                struct.pack_into("<Q", image, r.offset, value)
            elif r.kind in _R_PARTS:
                _put_parts(image, r.offset, value >> 2, _R_PARTS[r.kind])
            else:
                half = value >> 32 if r.kind == _R_HIGH else value & 0xFFFF_FFFF
                struct.pack_into("<I", image, r.offset + 4, half)
        return bytes(image)


def _put_parts(
    image: bytearray, offset: int, value: int, parts: tuple[tuple[int, int], ...]
) -> None:
    """Put a number into fields of an instruction, its lowest bits into the first."""
    instruction = int.from_bytes(image[offset : offset + 16], "little")
    for start, width in parts:
        mask = (1 << width) - 1
        instruction = instruction & ~(mask << start) | (value & mask) << start
        value >>= width
    image[offset : offset + 16] = instruction.to_bytes(16, "little")


def parse_cubin(binary: bytes) -> Cubin:
    """Read a cubin; CompileError if it is none, or needs what is not supported."""
    try:
        elf = ELFFile(io.BytesIO(binary))
        if elf["e_machine"] not in (_MACHINE, "EM_CUDA"):
            raise CompileError(f"the binary is no cubin: it is for machine {elf['e_machine']}")
        return _Reader(elf).read()
    except (ELFError, struct.error, UnicodeDecodeError, KeyError, IndexError) as error:
        raise CompileError(f"the binary is no cubin that can be read: {error!r}") from error


class _Reader:
    def __init__(self, elf: Any) -> None:
        self.elf = elf
        self.sections = list(elf.iter_sections())
        self.symbols = list(elf.get_section_by_name(".symtab").iter_symbols())
        self.offsets: dict[int, int] = {}  # of sections in the image
        self.image = bytearray()

    def read(self) -> Cubin:
        kernels = self._place_code()
        self._place_data(kernels)
        self._read_attributes(kernels)
        relocations = list(self._relocations())
        variables = {
            s.name: self.offsets[s["st_shndx"]] + s["st_value"]
            for s in self.symbols
            if s["st_info"]["type"] == "STT_OBJECT" and s["st_shndx"] in self.offsets
        }
        self.image += bytes(_PREFETCH_BYTES)
        return Cubin(self.image, kernels, relocations, variables)

    # *** layout ***

    def _place(self, number: int, alignment: int) -> int:
        section = self.sections[number]
        self.image += bytes(-len(self.image) % max(alignment, section["sh_addralign"], 1))
        self.offsets[number] = offset = len(self.image)
        empty = section["sh_type"] == "SHT_NOBITS"
        self.image += bytes(section["sh_size"]) if empty else section.data()
        return offset

    def _place_code(self) -> dict[str, KernelInfo]:
        kernels = {}
        for number, section in enumerate(self.sections):
            if section.name.startswith(".text."):
                offset = self._place(number, _CODE_ALIGNMENT)
                name = section.name.removeprefix(".text.")
                kernel = kernels[name] = KernelInfo(name, offset, section["sh_size"])
                kernel.barriers = section["sh_flags"] >> 20 & 0x7F
        if not kernels:
            raise CompileError("the cubin holds no kernel")
        return kernels

    def _place_data(self, kernels: dict[str, KernelInfo]) -> None:
        for number, section in enumerate(self.sections):
            found = _BANK.fullmatch(section.name)
            if found is not None:
                bank = self._place(number, _BANK_ALIGNMENT), section["sh_size"]
                whose = kernels.values() if found[2] is None else [kernels[found[2]]]
                for kernel in whose:
                    kernel.banks[int(found[1])] = bank
            elif section.name in (".nv.global", ".nv.global.init"):
                self._place(number, _BANK_ALIGNMENT)

    # *** attributes ***

    def _read_attributes(self, kernels: dict[str, KernelInfo]) -> None:
        for section in self.sections:
            if section.name == ".nv.info":
                for attribute, data in _attributes(section.data()):
                    self._read_common(kernels, attribute, data)
            elif section.name.startswith(".nv.info."):
                kernel = kernels[section.name.removeprefix(".nv.info.")]
                for attribute, data in _attributes(section.data()):
                    _read_own(kernel, attribute, data)
                kernel.params.sort()
            elif section.name.startswith(".nv.shared."):
                name = section.name.removeprefix(".nv.shared.")
                if name in kernels:
                    kernels[name].shared_bytes = section["sh_size"]

    def _read_common(self, kernels: dict[str, KernelInfo], attribute: int, data: bytes) -> None:
        if attribute not in (_REGCOUNT, _MIN_STACK_SIZE):
            return
        symbol, value = struct.unpack("<II", data[:8])
        kernel = kernels.get(self.symbols[symbol].name)
        if kernel is None:
            return
        if attribute == _REGCOUNT:
            kernel.registers = value
        else:
            kernel.stack_bytes = value

    # *** relocations ***

    def _relocations(self) -> Iterator[_Relocation]:
        for section in self.sections:
            if section["sh_type"] not in ("SHT_REL", "SHT_RELA"):
                continue
            base = self.offsets.get(section["sh_info"])
            if base is None:
                continue  # of something that is not loaded
            for entry in section.iter_relocations():
                kind = entry["r_info_type"]
                if kind == _R_NONE or kind >= _TOOLS_ONLY:
                    continue
                yield self._relocation(entry, kind, base + entry["r_offset"])

    def _relocation(self, entry: Any, kind: int, offset: int) -> _Relocation:
        symbol = self.symbols[entry["r_info_sym"]]
        if kind not in (_R_64, _R_LOW, _R_HIGH, *_R_PARTS):
            raise CompileError(f"the cubin has a relocation of an unknown kind: {kind:#x}")
        where = symbol["st_shndx"]
        if where not in self.offsets:
            raise CompileError(
                f"the cubin needs {symbol.name or 'something'}, which is not in it: functions of "
                "the CUDA runtime (printf, malloc) are not there"
            )
        if entry.is_RELA():
            addend = entry["r_addend"]
        elif kind == _R_64:
            addend = struct.unpack_from("<Q", self.image, offset)[0]
        else:
            addend = 0
        return _Relocation(offset, kind, self.offsets[where] + symbol["st_value"], addend)


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position + 4 <= len(data):
        form, attribute, value = struct.unpack_from("<BBH", data, position)
        position += 4
        if form == _SIZED:
            yield attribute, data[position : position + value]
            position += value
        else:
            yield attribute, struct.pack("<H", value)


def _read_own(kernel: KernelInfo, attribute: int, data: bytes) -> None:
    if attribute == _MAX_THREADS:
        x, y, z = struct.unpack("<III", data)
        kernel.most_threads = x * y * z
    elif attribute == _REQNTID:
        kernel.required_block = struct.unpack("<III", data)
    elif attribute == _PARAM_CBANK:
        _, kernel.param_base, kernel.param_bytes = struct.unpack("<IHH", data)
    elif attribute in (_KPARAM_INFO, _KPARAM_INFO_V2):
        _, _, offset, packed = struct.unpack("<IHHI", data)
        kernel.params.append((offset, packed >> 18))
    elif attribute == _NUM_BARRIERS:
        kernel.barriers = data[0]
    elif attribute == _EXTERNS:
        raise CompileError(f"kernel {kernel.name} needs functions that are not in its cubin")
    elif attribute == _CTA_PER_CLUSTER:
        raise CompileError(f"kernel {kernel.name} runs in clusters, which are not supported")
