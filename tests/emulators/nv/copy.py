"""The copy class: its methods, copies, fills, and semaphores."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tests.emulators.nv.faults import ChannelError, copy_error
from tests.emulators.nv.memory import WRITE, PageTable

if TYPE_CHECKING:
    from tests.emulators.nv.host import ChannelRun

_WORD: Final = 0xFFFF_FFFF
# address -> name, bits that have a meaning ("upper": as many as the chip's addresses have)
METHODS: Final[dict[int, tuple[str, int]]] = {
    0x100: ("NOP", _WORD),
    0x240: ("SET_SEMAPHORE_A", -1),
    0x244: ("SET_SEMAPHORE_B", _WORD),
    0x248: ("SET_SEMAPHORE_PAYLOAD", _WORD),
    0x24C: ("SET_SEMAPHORE_PAYLOAD_UPPER", _WORD),
    0x300: ("LAUNCH_DMA", 0x0EFF_FFFF),
    0x400: ("OFFSET_IN_UPPER", -1),
    0x404: ("OFFSET_IN_LOWER", _WORD),
    0x408: ("OFFSET_OUT_UPPER", -1),
    0x40C: ("OFFSET_OUT_LOWER", _WORD),
    0x410: ("PITCH_IN", _WORD),
    0x414: ("PITCH_OUT", _WORD),
    0x418: ("LINE_LENGTH_IN", _WORD),
    0x41C: ("LINE_COUNT", _WORD),
    0x700: ("SET_REMAP_CONST_A", _WORD),
    0x704: ("SET_REMAP_CONST_B", _WORD),
    0x708: ("SET_REMAP_COMPONENTS", 0x0333_7777),
}
UPPER_NARROW, UPPER_WIDE = 0x1_FFFF, 0x1FF_FFFF
_LONGEST_LINE = 1 << 31


def copy_bytes(pages: PageTable, source: int, destination: int, nbytes: int) -> None:
    """Copy between GPU addresses; every run is one copy of the host's."""
    into = pages.pieces(destination, nbytes, WRITE)
    target = memoryview(b"")
    for piece in pages.pieces(source, nbytes):
        while piece.nbytes:
            if target.nbytes == 0:
                target = next(into)
            count = min(len(piece), len(target))
            target[:count] = piece[:count]
            piece, target = piece[count:], target[count:]


class CopyEngine:
    """The state of a copy object."""

    def __init__(self, run: ChannelRun) -> None:
        self._run, self._gpu, self._pages = run, run.gpu, run.pages
        self._registers: dict[str, int] = {}
        self._pending: list[Callable[[], None]] = []  # copies that nothing has waited for yet
        engine = run.gpu.copy_engine(run.channel.tsg.engine)
        self._engine = engine if engine is not None else 0

    def method(self, address: int, data: int) -> None:
        """One method. Raises ChannelError, MmuFault."""
        if address not in METHODS:
            self._gpu.system.complain(f"copy method {address:#x} is not faked")
            raise self._error(f"method {address:#x}")
        name, known = METHODS[address]
        if name == "SET_SEMAPHORE_PAYLOAD_UPPER" and not self._gpu.profile.copy_payload_64:
            raise self._error(f"{name}, which this class has not")
        if known < 0:
            known = UPPER_WIDE if self._gpu.profile.wide else UPPER_NARROW
        if data & ~known:
            raise self._error(f"{name} with {data:#x}")
        self._registers[name] = data
        if name == "LAUNCH_DMA":
            self._launch(data)

    def idle(self) -> None:
        """Finish all copies: the newest first, as nothing orders them."""
        pending, self._pending = self._pending, []
        for act in reversed(pending) if self._gpu.overlap else pending:
            act()

    def _error(self, text: str) -> ChannelError:
        return copy_error(self._engine, text)

    def _get(self, name: str) -> int:
        if name not in self._registers:
            raise self._error(f"{name} was never set")
        return self._registers[name]

    def _launch(self, flags: int) -> None:
        self._check(flags)
        transfer = flags & 3
        if transfer:
            act = self._fill() if flags >> 10 & 1 else self._copy(flags)
            if transfer == 2:  # not before the earlier ones
                self.idle()
            self._pending.append(act)
        if flags >> 3 & 3:
            if flags >> 2 & 1:
                self.idle()
            self._release(flags)

    def _check(self, flags: int) -> None:
        wide = self._gpu.profile.wide
        if flags & 3 == 3 or flags >> 3 & 3 == 3 or flags >> 5 & 3 == 3:
            raise self._error(f"LAUNCH_DMA {flags:#x}")
        if flags & (1 << 12 | 1 << 13):
            raise self._error("physical addresses need privileges")
        if flags & 3 and flags >> 7 & 3 != 3:
            raise self._error("only pitch layouts are faked")
        if flags >> 27 & 1 and not self._gpu.profile.copy_payload_64:
            raise self._error("64-bit payloads, which this class has not")
        if flags & (0xF << 14 | 3 << 18 | 1 << 22 | 1 << 24):
            raise self._error(f"fields of LAUNCH_DMA {flags:#x} that are not faked")
        if flags & (3 << 20 | 1 << 23):
            raise self._error(f"copy kinds that are not faked, of {'Hopper' if wide else 'none'}")

    def _address(self, name: str) -> int:
        return self._get(f"{name}_UPPER") << 32 | self._get(f"{name}_LOWER")

    def _copy(self, flags: int) -> Callable[[], None]:
        source, destination = self._address("OFFSET_IN"), self._address("OFFSET_OUT")
        length = self._get("LINE_LENGTH_IN")
        lines, pitch_in, pitch_out = 1, 0, 0
        if flags >> 9 & 1:
            lines = self._get("LINE_COUNT")
            pitch_in, pitch_out = self._get("PITCH_IN"), self._get("PITCH_OUT")
            if lines > 1 and pitch_out < length:
                raise self._error("lines of the destination overlap")
        if not 0 < length <= _LONGEST_LINE or not lines:
            raise self._error(f"{lines} lines of {length} bytes")
        if lines == 1 and source < destination + length and destination < source + length:
            self._gpu.system.complain(f"a copy of {length} bytes onto itself at {source:#x}")

        def act() -> None:
            for line in range(lines):
                start, end = source + line * pitch_in, destination + line * pitch_out
                copy_bytes(self._pages, start, end, length)

        return act

    def _fill(self) -> Callable[[], None]:
        """Copies with REMAP: each element is put together from sources and constants."""
        if self._get("LAUNCH_DMA") >> 9 & 1 and self._get("LINE_COUNT") != 1:
            raise self._error("fills of many lines are not faked")
        how, count = self._get("SET_REMAP_COMPONENTS"), self._get("LINE_LENGTH_IN")
        size = (how >> 16 & 3) + 1
        parts_in, parts_out = (how >> 20 & 3) + 1, (how >> 24 & 3) + 1
        choices = [how >> 4 * i & 7 for i in range(parts_out)]
        constants = {4: "SET_REMAP_CONST_A", 5: "SET_REMAP_CONST_B"}
        values = {c: self._get(name) for c, name in constants.items() if c in choices}
        if 7 in choices:
            raise self._error(f"SET_REMAP_COMPONENTS {how:#x}")
        destination, nbytes = self._address("OFFSET_OUT"), count * parts_out * size
        self._pages.check(destination, nbytes, WRITE)
        source = self._address("OFFSET_IN") if any(c < 4 for c in choices) else 0

        def act() -> None:
            shape: Any = (count, parts_out, size)
            if 6 in choices:
                old = bytearray(self._pages.read(destination, nbytes))
                result = np.frombuffer(old, np.uint8).reshape(shape)
            else:
                result = np.empty(shape, np.uint8)
            origin = None
            if any(c < 4 for c in choices):
                data = self._pages.read(source, count * parts_in * size)
                origin = np.frombuffer(data, np.uint8).reshape(count, parts_in, size)
            for i, choice in enumerate(choices):
                if choice < 4:
                    assert origin is not None
                    result[:, i] = origin[:, choice]
                elif choice < 6:
                    bits = values[choice].to_bytes(4, "little")[:size]
                    result[:, i] = np.frombuffer(bits, np.uint8)
            self._pages.write(destination, result.tobytes())

        return act

    def _release(self, flags: int) -> None:
        address = self._get("SET_SEMAPHORE_A") << 32 | self._get("SET_SEMAPHORE_B")
        stamp, wide = flags >> 3 & 3 == 2, flags >> 27 & 1
        alignment = 16 if stamp else 8 if wide else 4
        if address % alignment:
            raise self._error(f"semaphore at {address:#x}, not aligned to {alignment}")
        payload = self._get("SET_SEMAPHORE_PAYLOAD").to_bytes(4, "little")
        if wide:
            payload += self._get("SET_SEMAPHORE_PAYLOAD_UPPER").to_bytes(4, "little")
        if stamp:
            self._pages.check(address, 16, WRITE)
            self._pages.write(address + 8, self._gpu.time().to_bytes(8, "little"))
            payload = payload.ljust(8, b"\0")
        self._pages.write(address, payload)
