"""How work goes wrong on a fake GPU, by the number that the driver reports (Xid)."""

from __future__ import annotations

from tests.emulators.nv.memory import MmuFault

SM_EXCEPTION, MMU, PBDMA, CLASS_ERROR = 13, 31, 32, 69
_COPY = (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136))  # by copy engine

# kinds of warp errors, as the fake numbers them: the true numbers are not public
ILLEGAL_INSTRUCTION, INVALID_ADDRESS_SPACE, MISALIGNED, BAD_LAUNCH, STACK = 0x4, 0x10, 0xF, 0x1, 0x2


class HungKernel(Exception):
    """A kernel that does not end: no error, but nothing goes on either."""


class ChannelError(Exception):
    """A channel is killed, with all others of its group."""

    def __init__(
        self,
        code: int,
        text: str,
        *,
        fault: MmuFault | None = None,
        sm_error: tuple[int, int, int] | None = None,
    ) -> None:
        super().__init__(f"Xid {code}: {text}")
        self.code, self.text = code, text
        self.fault, self.sm_error = fault, sm_error


def mmu_error(fault: MmuFault, who: str) -> ChannelError:
    """An access to memory that failed."""
    return ChannelError(MMU, f"{who}: {fault}", fault=fault)


def pbdma_error(text: str) -> ChannelError:
    """The host unit cannot make sense of its pushbuffer."""
    return ChannelError(PBDMA, text)


def copy_error(engine: int, text: str) -> ChannelError:
    """A copy engine refuses its parameters."""
    return ChannelError(_COPY[engine], f"copy engine {engine}: {text}")


def sm_error(kind: int, text: str, program: int = 0, address: int = 0) -> ChannelError:
    """A kernel is refused or stopped."""
    return ChannelError(SM_EXCEPTION, text, sm_error=(kind, program, address))
