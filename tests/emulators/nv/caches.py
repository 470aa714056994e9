"""A GPU's instruction and constant caches: stale until they are invalidated.

Old bytes are really used, as on a GPU; it is a complaint, too, because it is always a mistake.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.emulators.nv.code import Code
from tests.emulators.nv.memory import MmuFault, PageTable

if TYPE_CHECKING:
    from tests.emulators.nv.gpu import FakeGpu

_LINE = 256


class Caches:
    """What one GPU has cached."""

    def __init__(self, gpu: FakeGpu) -> None:
        self._gpu = gpu
        self._code: dict[tuple[int, int], tuple[bytes, Code | None]] = {}
        self._constants: dict[tuple[int, int], bytes] = {}

    def invalidate_code(self) -> None:
        """Code is read from memory again."""
        self._code.clear()

    def invalidate_constants(self) -> None:
        """Constants are read from memory again."""
        self._constants.clear()

    def invalidate_range(self, pages: PageTable, address: int, nbytes: int) -> None:
        """The same for one bank."""
        for line in range(address // _LINE * _LINE, address + nbytes, _LINE):
            self._constants.pop((id(pages), line), None)

    def forget(self, pages: PageTable) -> None:
        """An address space ends."""
        self._code = {k: v for k, v in self._code.items() if k[0] != id(pages)}
        self._constants = {k: v for k, v in self._constants.items() if k[0] != id(pages)}

    def constants(self, pages: PageTable, address: int, nbytes: int) -> bytes:
        """The bytes of a constant bank. Raises MmuFault."""
        start = address // _LINE * _LINE
        data = bytearray(pages.read(start, address + nbytes - start))
        stale = False
        for at in range(0, len(data), _LINE):
            line = bytes(data[at : at + _LINE])
            cached = self._constants.get((id(pages), start + at), line)
            common = min(len(cached), len(line))
            if cached[:common] != line[:common]:
                data[at : at + common] = cached[:common]
                stale = True
            elif len(line) >= len(cached):
                self._constants[id(pages), start + at] = line
        if stale:
            self._gpu.system.complain(f"constants at {address:#x} changed and are still cached")
        return bytes(data[address - start :])

    def code(self, pages: PageTable, address: int) -> Code | None:
        """The kernel at an address; None if nobody knows the code. Raises MmuFault."""
        pages.check(address, 16)
        key = id(pages), address
        if key in self._code:
            old, kernel = self._code[key]
            if pages.read(address, len(old)) != old:
                self._gpu.system.complain(f"code at {address:#x} changed and is still cached")
            return kernel
        data, kernel = self._look_up(pages, address)
        self._code[key] = data, kernel
        return kernel

    def _look_up(self, pages: PageTable, address: int) -> tuple[bytes, Code | None]:
        registry = self._gpu.system.code
        for nbytes in registry.lengths:
            try:
                data = pages.read(address, nbytes)
            except MmuFault:
                continue  # longer than what is mapped
            kernel = registry.find(data)
            if kernel is not None:
                return data, kernel
        return pages.read(address, 16), None
