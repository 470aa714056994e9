"""What the fake driver answers: NV_STATUS codes, and the exception that carries one."""

from __future__ import annotations

OK = 0x00
BUFFER_TOO_SMALL = 0x02
UUID_NOT_FOUND = 0x12
ILLEGAL_ACTION = 0x16
IN_USE = 0x17
INSERT_DUPLICATE_NAME = 0x19
INSUFFICIENT_RESOURCES = 0x1A
INSUFFICIENT_PERMISSIONS = 0x1B
INVALID_ACCESS_TYPE = 0x1D
INVALID_ADDRESS = 0x1E
INVALID_ARGUMENT = 0x1F
INVALID_CHANNEL = 0x21
INVALID_CLASS = 0x22
INVALID_CLIENT = 0x23
INVALID_DEVICE = 0x26
INVALID_FLAGS = 0x29
INVALID_LIMIT = 0x2E
INVALID_OBJECT = 0x31
INVALID_OBJECT_HANDLE = 0x33
INVALID_OBJECT_PARENT = 0x36
INVALID_PARAMETER = 0x3B
INVALID_POINTER = 0x3D
INVALID_STATE = 0x40
NO_FREE_FIFOS = 0x4F
NO_MEMORY = 0x51
NOT_SUPPORTED = 0x56
OBJECT_NOT_FOUND = 0x57
OUT_OF_RANGE = 0x5B
PAGE_TABLE_NOT_AVAIL = 0x5D
RC_ERROR = 0x60
STATE_IN_USE = 0x63
UVM_ADDRESS_IN_USE = 0x68

NAMES = {v: k for k, v in list(globals().items()) if k.isupper() and isinstance(v, int)}


def name(status: int) -> str:
    """The status in words, for logs."""
    return NAMES.get(status, f"{status:#x}")


class Refused(Exception):
    """The driver answers with a status other than OK."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(f"{name(status)}: {why}")
        self.status, self.why = status, why


def require(condition: object, status: int, why: str) -> None:
    """Refuse with the status unless the condition holds."""
    if not condition:
        raise Refused(status, why)
