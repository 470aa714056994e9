"""The compute class: its methods, uploads, semaphores, and the queue of launched grids."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.emulators.nv.faults import CLASS_ERROR, ChannelError
from tests.emulators.nv.launch import LocalMemory, Windows, prepare
from tests.emulators.nv.memory import WRITE
from tests.emulators.nv.qmd import NBYTES, Qmd, decode

if TYPE_CHECKING:
    from tests.emulators.nv.host import ChannelRun

_WORD: Final = 0xFFFF_FFFF
UPPER, BYTE_UPPER = -1, -2  # address bits above 32: as the chip has; a byte before Hopper
# address -> name, bits that have a meaning
METHODS: Final[dict[int, tuple[str, int]]] = {
    0x100: ("NO_OPERATION", _WORD),
    0x110: ("WAIT_FOR_IDLE", _WORD),
    0x140: ("PM_TRIGGER", _WORD),
    0x158: ("SET_REPORT_SEMAPHORE_PAYLOAD_LOWER", _WORD),
    0x15C: ("SET_REPORT_SEMAPHORE_PAYLOAD_UPPER", _WORD),
    0x160: ("SET_REPORT_SEMAPHORE_ADDRESS_LOWER", _WORD),
    0x164: ("SET_REPORT_SEMAPHORE_ADDRESS_UPPER", 0x1FF_FFFF),
    0x168: ("REPORT_SEMAPHORE_EXECUTE", 0x7FFF),
    0x180: ("LINE_LENGTH_IN", _WORD),
    0x184: ("LINE_COUNT", _WORD),
    0x188: ("OFFSET_OUT_UPPER", UPPER),
    0x18C: ("OFFSET_OUT", _WORD),
    0x190: ("PITCH_OUT", _WORD),
    0x1B0: ("LAUNCH_DMA", 0x1373),
    0x1B4: ("LOAD_INLINE_DATA", _WORD),
    0x1DC: ("SET_I2M_SEMAPHORE_A", UPPER),
    0x1E0: ("SET_I2M_SEMAPHORE_B", _WORD),
    0x1E4: ("SET_I2M_SEMAPHORE_C", _WORD),
    0x21C: ("INVALIDATE_SHADER_CACHES", 0x1017),
    0x244: ("INVALIDATE_TEXTURE_HEADER_CACHE_NO_WFI", 0),
    0x248: ("SET_CWD_REF_COUNTER", 0xFF_FF3F),
    0x288: ("SET_QMD_VERSION", _WORD),
    0x298: ("INVALIDATE_SKED_CACHES", 0),
    0x2A0: ("SET_SHADER_SHARED_MEMORY_WINDOW_A", 0x1_FFFF),
    0x2A4: ("SET_SHADER_SHARED_MEMORY_WINDOW_B", _WORD),
    0x2B4: ("SEND_PCAS_A", _WORD),
    0x2B8: ("SEND_PCAS_B", _WORD),
    0x2BC: ("SEND_SIGNALING_PCAS_B", 0x3),
    0x2C0: ("SEND_SIGNALING_PCAS2_B", 0xF),
    0x2E4: ("SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A", 0xFF),
    0x2E8: ("SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_B", _WORD),
    0x2EC: ("SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C", 0xFFFF_01FF),
    0x310: ("SET_SPA_VERSION", 0xFFFF),
    0x790: ("SET_SHADER_LOCAL_MEMORY_A", UPPER),
    0x794: ("SET_SHADER_LOCAL_MEMORY_B", _WORD),
    0x7AC: ("SET_TEXTURE_HEADER_VERSION", _WORD),
    0x7B0: ("SET_SHADER_LOCAL_MEMORY_WINDOW_A", 0x1_FFFF),
    0x7B4: ("SET_SHADER_LOCAL_MEMORY_WINDOW_B", _WORD),
    0xD94: ("SET_SHADER_CACHE_CONTROL", 0x1),
    0x1424: ("INVALIDATE_SAMPLER_CACHE_NO_WFI", 0),
    0x1528: ("SET_SHADER_EXCEPTIONS", 0x1),
    0x1698: ("INVALIDATE_SHADER_CACHES_NO_WFI", 0x1011),
    0x1B00: ("SET_REPORT_SEMAPHORE_A", BYTE_UPPER),
    0x1B04: ("SET_REPORT_SEMAPHORE_B", _WORD),
    0x1B08: ("SET_REPORT_SEMAPHORE_C", _WORD),
    0x1B0C: ("SET_REPORT_SEMAPHORE_D", 0x101E_0E0F),
    0x25F8: ("SET_TRAP_HANDLER_A", 0x1_FFFF),
    0x25FC: ("SET_TRAP_HANDLER_B", _WORD),
}
_SCHEDULING: Final = (2, 3, 9, 0xA, 0xB)  # actions of SEND_SIGNALING_PCAS2_B
_HARMLESS: Final = (0, 1, 8)


def known_bits(mask: int, *, wide: bool) -> int:
    """The bits of a method's data that the chip knows."""
    if mask == UPPER:
        return 0x1FF_FFFF if wide else 0x1_FFFF
    if mask == BYTE_UPPER:
        return 0x1FF_FFFF if wide else 0xFF
    return mask


@dataclass(frozen=True)
class _Grid:
    """A grid that is ready to run."""

    qmd: Qmd
    data: bytes  # of the descriptor
    run: Callable[[], None]


class ComputeEngine:
    """The state of a compute object."""

    def __init__(self, run: ChannelRun) -> None:
        self._run, self._gpu, self._pages = run, run.gpu, run.pages
        self._registers: dict[str, int] = {}
        self._grids: list[Callable[[], None]] = []  # launched, and nothing waits for them yet
        self._inline: bytearray | None = None
        self._actions: dict[str, Callable[[int], None]] = {
            "WAIT_FOR_IDLE": lambda data: self.idle(),
            "REPORT_SEMAPHORE_EXECUTE": self._report_semaphore_execute,
            "LAUNCH_DMA": self._start_upload,
            "LOAD_INLINE_DATA": self._upload,
            "INVALIDATE_SHADER_CACHES": self._invalidate_after_idle,
            "INVALIDATE_SHADER_CACHES_NO_WFI": self._invalidate,
            "SEND_SIGNALING_PCAS_B": self._signaling_pcas,
            "SEND_SIGNALING_PCAS2_B": self._signaling_pcas_2,
            "SET_REPORT_SEMAPHORE_D": self._report_semaphore,
            "SET_SHADER_LOCAL_MEMORY_A": self._local_memory_changes,
        }

    def method(self, address: int, data: int) -> None:
        """One method. Raises ChannelError, MmuFault."""
        if address not in METHODS:
            self._gpu.system.complain(f"compute method {address:#x} is not faked")
            raise self._error(f"method {address:#x}")
        name, mask = METHODS[address]
        old = self._gpu.profile.compute == 0xC6C0 and 0x158 <= address <= 0x168
        if old or data & ~known_bits(mask, wide=self._gpu.profile.wide):
            raise self._error(f"{name} with {data:#x}")
        self._registers[name] = data
        if name in self._actions:
            self._actions[name](data)

    def idle(self) -> None:
        """Finish all grids: the newest first, as nothing orders them."""
        grids, self._grids = self._grids, []
        for run in reversed(grids) if self._gpu.overlap else grids:
            run()

    def _error(self, text: str) -> ChannelError:
        return ChannelError(CLASS_ERROR, f"compute: {text}")

    def _get(self, name: str) -> int:
        if name not in self._registers:
            raise self._error(f"{name} was never set")
        return self._registers[name]

    def _pair(self, name: str, upper: str = "_A", lower: str = "_B") -> int:
        return self._get(name + upper) << 32 | self._get(name + lower)

    # caches

    def _invalidate(self, data: int) -> None:
        if data & 1:
            self._gpu.caches.invalidate_code()
        if data >> 12 & 1:
            self._gpu.caches.invalidate_constants()

    def _invalidate_after_idle(self, data: int) -> None:
        self.idle()
        self._invalidate(data)

    # uploads

    def _start_upload(self, data: int) -> None:
        if not data & 1:
            raise self._error("uploads in block-linear layout are not faked")
        if data & 0x302 or data >> 4 & 3 == 3:
            raise self._error(f"fields of LAUNCH_DMA {data:#x} that are not faked")
        if self._get("LINE_COUNT") != 1 or not self._get("LINE_LENGTH_IN"):
            raise self._error("an upload of other than one line")
        self._inline = bytearray()

    def _upload(self, data: int) -> None:
        if self._inline is None:
            raise self._error("inline data that nobody waits for")
        self._inline += data.to_bytes(4, "little")
        nbytes = self._get("LINE_LENGTH_IN")
        if len(self._inline) < nbytes:
            return
        target = self._get("OFFSET_OUT_UPPER") << 32 | self._get("OFFSET_OUT")
        self._pages.write(target, self._inline[:nbytes])
        self._inline = None
        if self._get("LAUNCH_DMA") >> 4 & 3 == 2:
            address = self._pair("SET_I2M_SEMAPHORE")
            one_word = self._get("LAUNCH_DMA") >> 12 & 1
            payload = self._get("SET_I2M_SEMAPHORE_C")
            self._write_semaphore(address, payload, 4, stamp=not one_word)

    # semaphores

    def _write_semaphore(self, address: int, payload: int, nbytes: int, *, stamp: bool) -> None:
        alignment = 16 if stamp else nbytes
        if address % alignment:
            raise self._error(f"semaphore at {address:#x}, not aligned to {alignment}")
        data = (payload & (1 << 8 * nbytes) - 1).to_bytes(nbytes, "little")
        if stamp:
            self._pages.check(address, 16, WRITE)
            self._pages.write(address + 8, self._gpu.time().to_bytes(8, "little"))
            data = data.ljust(8, b"\0")
        self._pages.write(address, data)

    def _report_semaphore(self, data: int) -> None:
        if data & 3 or data >> 3 & 1:
            raise self._error(f"report semaphores of kind {data:#x} are not faked")
        if not data >> 2 & 1:  # it flushes
            self.idle()
        address, payload = self._pair("SET_REPORT_SEMAPHORE"), self._get("SET_REPORT_SEMAPHORE_C")
        self._write_semaphore(address, payload, 4, stamp=not data >> 28 & 1)

    def _report_semaphore_execute(self, data: int) -> None:
        size, wide = data >> 3 & 3, data >> 12 & 1
        if data & 3 or data >> 6 & 1 or size == 3:
            raise self._error(f"report semaphores of kind {data:#x} are not faked")
        if not data >> 5 & 1:
            self.idle()
        address = self._pair("SET_REPORT_SEMAPHORE_ADDRESS", "_UPPER", "_LOWER")
        payload = self._pair("SET_REPORT_SEMAPHORE_PAYLOAD", "_UPPER", "_LOWER")
        self._write_semaphore(address, payload, 8 if wide else 4, stamp=size == 0)

    # launches

    def _local_memory_changes(self, data: int) -> None:
        if self._grids:
            self._gpu.system.complain("local memory is changed while grids may be running")

    def _signaling_pcas(self, data: int) -> None:
        if data >> 1 & 1:
            self._launch(self._get("SEND_PCAS_A") << 8)

    def _signaling_pcas_2(self, data: int) -> None:
        if data in _SCHEDULING:
            self._launch(self._get("SEND_PCAS_A") << 8)
        elif data not in _HARMLESS:
            self._gpu.system.complain(f"PCAS action {data} is not faked")
            raise self._error(f"SEND_SIGNALING_PCAS2_B with {data:#x}")

    def _launch(self, address: int) -> None:
        first = self._prepared(address)
        self._grids.append(lambda: self._run_chain(first))

    def _prepared(self, address: int) -> _Grid:
        """A launch whose descriptor has been read and checked."""
        version = self._gpu.profile.qmd
        data = self._pages.read(address, NBYTES[version])
        qmd = decode(data, version, address)
        if self._run.segment is not None:
            self._run.segment.qmds.append(qmd)
        run = prepare(self._gpu, self._pages, qmd, self._windows(), self._local_memory())
        return _Grid(qmd, data, run)

    def _run_chain(self, first: _Grid) -> None:
        """A grid, and those that its end launches: nothing runs beside them."""
        todo = [first]
        while todo:
            grid = todo.pop(0)
            if self._pages.read(grid.qmd.address, len(grid.data)) != grid.data:
                self._gpu.system.complain(f"QMD {grid.qmd.address:#x} changed while it was run")
            grid.run()
            self._releases(grid.qmd)
            todo += [self._prepared(address) for address in self._dependents(grid.qmd)]

    def _dependents(self, qmd: Qmd) -> list[int]:
        """Addresses of the descriptors that come after one."""
        result = []
        for i in range(2):
            if qmd[f"dependent_enable[{i}]"]:
                action = qmd[f"dependent_action[{i}]"]
                if action not in (1, 3):
                    raise self._error(f"dependent QMD action {action} is not faked")
                result.append(qmd[f"dependent_pointer[{i}]"] << 8)
        return result

    def _releases(self, qmd: Qmd) -> None:
        get = qmd.__getitem__
        for i in range(2):
            if not get(f"release_enable[{i}]"):
                continue
            if get(f"release_reduction[{i}]") or get(f"release_size[{i}]") == 3:
                raise self._error("QMD releases that are not faked")
            address = get(f"release_high[{i}]") << 32 | get(f"release_low[{i}]")
            payload = get(f"payload_high[{i}]") << 32 | get(f"payload_low[{i}]")
            wide, stamp = get(f"release_wide[{i}]"), get(f"release_size[{i}]") == 0
            self._write_semaphore(address, payload, 8 if wide else 4, stamp=stamp)

    def _windows(self) -> Windows:
        return Windows(
            self._pair("SET_SHADER_LOCAL_MEMORY_WINDOW"),
            self._pair("SET_SHADER_SHARED_MEMORY_WINDOW"),
        )

    def _local_memory(self) -> LocalMemory | None:
        if "SET_SHADER_LOCAL_MEMORY_A" not in self._registers:
            return None
        self._get("SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C")
        return LocalMemory(
            self._pair("SET_SHADER_LOCAL_MEMORY"),
            self._pair("SET_SHADER_LOCAL_MEMORY_NON_THROTTLED"),
        )
