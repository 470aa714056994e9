"""Structures as tables: where each field lies, for each version of the driver.

A number that changed between versions is written `{0: old, 580: new}`: the value of the highest
version that is not above the driver's.
"""

from __future__ import annotations

from collections.abc import Mapping

Versioned = int | Mapping[int, int]
FieldSpec = tuple[Versioned, int] | tuple[Versioned, int, int]


def at_version(value: Versioned, major: int) -> int:
    """The value for a driver of this major version."""
    if isinstance(value, int):
        return value
    return value[max(v for v in value if v <= major)]


class Struct:
    """A structure: its size, and fields as (offset, size of one element, count = 1)."""

    def __init__(self, name: str, size: Versioned, /, **fields: FieldSpec) -> None:
        self.name, self.size, self.fields = name, size, fields

    def layout(self, major: int) -> Layout:
        """The structure of one driver version."""
        size = at_version(self.size, major)
        fields = {}
        for name, (offset, width, *count) in self.fields.items():
            where = at_version(offset, major)
            elements = count[0] if count else 1
            if where >= 0:  # a negative offset: not there in this version
                assert where + width * elements <= size, (self.name, name)
                fields[name] = (where, width, elements)
        return Layout(self.name, size, fields)


class Layout:
    """A structure of one driver version."""

    def __init__(self, name: str, size: int, fields: dict[str, tuple[int, int, int]]) -> None:
        self.name, self.size, self.fields = name, size, fields

    def over(self, data: bytearray | memoryview) -> View:
        """The fields of these bytes."""
        return View(self, data)

    def new(self, **values: int) -> View:
        """A zeroed structure with some fields set."""
        view = self.over(bytearray(self.size))
        for name, value in values.items():
            view[name] = value
        return view


class View:
    """Bytes seen through a layout: `view["field"]` is an integer of the first element."""

    def __init__(self, layout: Layout, data: bytearray | memoryview) -> None:
        self.layout, self.data = layout, data

    def __contains__(self, name: str) -> bool:
        return name in self.layout.fields

    def get(self, name: str) -> int:
        """A field that some versions have not: 0 there."""
        return self[name] if name in self.layout.fields else 0

    def __getitem__(self, name: str) -> int:
        return self.element(name, 0)

    def __setitem__(self, name: str, value: int) -> None:
        self.set_element(name, 0, value)

    def element(self, name: str, index: int) -> int:
        """One element of an array field."""
        offset, width, _ = self.layout.fields[name]
        start = offset + width * index
        return int.from_bytes(self.data[start : start + width], "little")

    def set_element(self, name: str, index: int, value: int) -> None:
        """Set one element of an array field."""
        offset, width, count = self.layout.fields[name]
        assert index < count, (name, index)
        start = offset + width * index
        mask = (1 << 8 * width) - 1
        self.data[start : start + width] = (value & mask).to_bytes(width, "little")

    def elements(self, name: str) -> list[int]:
        """All elements of an array field."""
        return [self.element(name, i) for i in range(self.layout.fields[name][2])]

    def raw(self, name: str) -> bytes:
        """The field's bytes."""
        offset, width, count = self.layout.fields[name]
        return bytes(self.data[offset : offset + width * count])

    def put(self, name: str, value: bytes) -> None:
        """Fill a field with bytes, the rest with zeros."""
        offset, width, count = self.layout.fields[name]
        self.data[offset : offset + width * count] = value.ljust(width * count, b"\0")

    def text(self) -> str:
        """Scalar fields that are not zero, for logs."""
        scalars = (n for n, (_, _, count) in self.layout.fields.items() if count == 1)
        return " ".join(f"{n}={self[n]:#x}" for n in scalars if self[n])
