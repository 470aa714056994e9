"""C structures as the driver at hand has them.

Definitions are C text for cffi, grouped by subject in the modules beside this one. A line that
only some drivers have says so in a comment: `// since 580`, `// until 550` (major versions,
inclusive).
"""

from __future__ import annotations

import functools
import re
from typing import Any, Final

from cffi import FFI

from tg_nv.driver import rm_structs, uvm_structs

OLDEST: Final = 535
"""The first driver whose structures are known."""

_TEXTS: Final = (rm_structs.TRANSPORT, rm_structs.OBJECTS, rm_structs.CONTROLS, uvm_structs.TEXT)
_CONDITION: Final = re.compile(r"//\s*(since|until)\s+(\d+)\s*$")


def text_for(text: str, driver: int) -> str:
    """The definitions without the lines that this major version of the driver does not have."""
    kept = []
    for line in text.splitlines():
        found = _CONDITION.search(line)
        if found is None or _holds(found[1], int(found[2]), driver):
            kept.append(line)
    return "\n".join(kept)


def _holds(word: str, version: int, driver: int) -> bool:
    return driver >= version if word == "since" else driver <= version


@functools.cache
def definitions(driver: int) -> FFI:
    """All structures in the layout of that major version."""
    ffi = FFI()
    for text in _TEXTS:
        ffi.cdef(text_for(text, driver))
    return ffi


class Structs:
    """Makes structures, zeroed, in one driver's layout."""

    def __init__(self, driver: int) -> None:
        self.driver = driver
        self.ffi = definitions(driver)

    def new(self, name: str, **fields: Any) -> Any:
        """A structure with these fields; the rest is zero."""
        return self.ffi.new(f"{name} *", fields)

    def new_array(self, name: str, count: int) -> Any:
        """So many structures or numbers, zeroed."""
        return self.ffi.new(f"{name}[]", count)

    def size(self, name: str) -> int:
        """The bytes of a structure."""
        return int(self.ffi.sizeof(name))

    def offset(self, name: str, field: str) -> int:
        """Where a field is in a structure."""
        return int(self.ffi.offsetof(name, field))

    def address(self, structure: Any) -> int:
        """Where the structure lies in this process."""
        return int(self.ffi.cast("uintptr_t", structure))

    def bytes_of(self, structure: Any) -> Any:
        """The structure as a writable buffer."""
        return self.ffi.buffer(structure)

    def text(self, characters: Any) -> str:
        """What a field of characters says, up to its zero."""
        found: Any = self.ffi.string(characters)
        return str(found.decode("ascii", "replace"))
