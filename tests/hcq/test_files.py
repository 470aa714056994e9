"""The door to device files: files, mappings at given addresses, registers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tgcore.hcq import mapping
from tgcore.hcq.files import HOST, refusal

PAGE = 4096
PLACE = 0x30_1234_0000_00  # far from where Linux puts anything


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of two pages."""
    file = tmp_path / "file"
    file.write_bytes(b"x" * 2 * PAGE)
    return file


def test_a_mapping_is_shared_with_the_file_and_outlives_it(path: Path) -> None:
    file = HOST.open(str(path))
    mapped = file.mmap(PAGE, PAGE)
    file.close()
    mapped.view[:3] = b"abc"
    assert path.read_bytes()[PAGE : PAGE + 3] == b"abc"
    mapped.close()


def test_a_mapping_may_be_for_reading_only(path: Path) -> None:
    file = HOST.open(str(path), writable=False)
    mapped = file.mmap(PAGE, writable=False)
    assert mapped.view.readonly and bytes(mapped.view[:2]) == b"xx"
    with pytest.raises(OSError):
        file.ioctl(0x5401, bytearray(64))  # asks for a terminal's settings
    file.close()


def test_a_mapping_is_at_the_address_that_was_reserved(path: Path) -> None:
    mapping.reserve(PLACE, 16 * PAGE)
    file = HOST.open(str(path))
    mapped = file.mmap(2 * PAGE, address=PLACE + 4 * PAGE)
    assert mapped.address == PLACE + 4 * PAGE and mapped.view.nbytes == 2 * PAGE
    own = mapping.allocate(PAGE, PLACE)
    assert bytes(own.view[:4]) == bytes(4)
    mapping.reserve(PLACE, PAGE)  # as it is reserved already, nothing changes
    assert bytes(mapped.view[:2]) == b"xx"
    part = mapped.view[:16]
    mapped.close()
    assert bytes(part) == bytes(16)  # a view that is left over does no harm
    file.close()


def test_addresses_in_use_cannot_be_reserved() -> None:
    own = mapping.allocate(4 * PAGE)
    with pytest.raises(OSError):
        mapping.reserve(own.address, PAGE)
    own.close()


def test_closing_twice_is_as_good_as_once(path: Path) -> None:
    file = HOST.open(str(path))
    mapped = file.mmap(PAGE)
    mapped.close()
    mapped.close()
    file.close()
    file.close()


def test_registers_are_words_by_their_offset_in_bytes(path: Path) -> None:
    file = HOST.open(str(path))
    registers = file.registers(PAGE)
    registers[8] = 0x01020304
    assert registers[8] == 0x01020304 and registers[12] == int.from_bytes(b"xxxx", "little")
    assert path.read_bytes()[8:12] == b"\x04\x03\x02\x01"
    registers.close()
    file.close()


def test_what_cannot_be_mapped_is_an_error_that_says_how_much(path: Path) -> None:
    file = HOST.open(str(path))
    with pytest.raises(OSError, match=f"cannot map {PAGE} bytes"):
        file.mmap(PAGE, offset=1)
    file.close()


@pytest.mark.parametrize(
    ("error", "why", "fix"),
    [
        (FileNotFoundError(2, "No such file or directory"), "No such file", "load the kernel"),
        (PermissionError(13, "Permission denied"), "Permission denied", "group"),
        (OSError(5, "Input/output error"), "Input/output error", "dmesg"),
    ],
)
def test_a_refusal_says_why_and_what_to_do(error: OSError, why: str, fix: str) -> None:
    text = str(refusal("/dev/chip0", error))
    assert "/dev/chip0 cannot be opened" in text and why in text and fix in text


def test_what_is_not_there_is_the_errors_of_the_operating_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        HOST.open(str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError):
        HOST.read_text(str(tmp_path / "none"))
