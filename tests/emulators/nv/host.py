"""The host unit: fetches a channel's ring and pushbuffers, runs host methods, feeds engines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Protocol

from tests.emulators.nv.compute import ComputeEngine
from tests.emulators.nv.copy import CopyEngine
from tests.emulators.nv.faults import mmu_error, pbdma_error
from tests.emulators.nv.memory import MmuFault
from tests.emulators.nv.objects import Channel
from tests.emulators.nv.pushbuffer import Entry, Malformed, Segment, entry_of, methods

if TYPE_CHECKING:
    from tests.emulators.nv.gpu import FakeGpu

GPGET, GPPUT = 0x88, 0x8C
COMPUTE_SUBCHANNEL, COPY_SUBCHANNEL = 1, 4
SET_EXTENDED_BASE = 4  # a control entry

# methods of the host unit: name, and bits of data that have a meaning
HOST_METHODS: Final[dict[int, tuple[str, int]]] = {
    0x00: ("SET_OBJECT", 0x1F_FFFF),
    0x08: ("NOP", 0xFFFF_FFFF),
    0x20: ("NON_STALL_INTERRUPT", 0xFFFF_FFFF),
    0x50: ("SET_REFERENCE", 0xFFFF_FFFF),
    0x5C: ("SEM_ADDR_LO", 0xFFFF_FFFC),
    0x60: ("SEM_ADDR_HI", 0x1FF_FFFF),
    0x64: ("SEM_PAYLOAD_LO", 0xFFFF_FFFF),
    0x68: ("SEM_PAYLOAD_HI", 0xFFFF_FFFF),
    0x6C: ("SEM_EXECUTE", 0xFB10_1007 | 1 << 30),
    0x78: ("WFI", 0x1),
    0x80: ("YIELD", 0x3),
}


class Engine(Protocol):
    """What takes methods on a subchannel."""

    def method(self, address: int, data: int) -> None:
        """One method. Raises ChannelError."""

    def idle(self) -> None:
        """Finish all work. Raises ChannelError."""


class ChannelRun:
    """How far the GPU is with one channel."""

    def __init__(self, gpu: FakeGpu, channel: Channel) -> None:
        self.gpu, self.channel = gpu, channel
        self.pages = channel.tsg.space.pages
        self.get = self.put = 0
        self.waits_for = ""  # what an acquire waits for
        self.hung = ""  # the kernel that does not end
        self.interrupts = 0
        self._engines: dict[int, Engine] = {}  # by subchannel
        self._registers: dict[int, int] = {}  # of the host unit
        self._extended_base = 0
        self._work: Iterator[None] | None = None
        self.segment: Segment | None = None  # that is being run

    def ring(self) -> None:
        """The doorbell: take the new GPPut."""
        assert self.channel.userd is not None
        at = self.channel.userd_offset + GPPUT
        put = int.from_bytes(self.channel.userd.view[at : at + 4], "little")
        if put >= self.channel.entries:
            raise pbdma_error(f"GPPut is {put} of {self.channel.entries} entries")
        self.put = put

    @property
    def pending(self) -> bool:
        """Whether there is work that nothing holds up."""
        return not (self.hung or self.waits_for) and self.get != self.put

    def advance(self) -> bool:
        """Go on until an acquire fails or all is done. Whether something was done."""
        if self.hung:
            return False
        if self._work is None:
            if self.get == self.put:
                return False
            self._work = self._entries()
        elif self.waits_for and not self._acquired():
            return False
        try:
            self.waits_for = ""
            next(self._work)
        except StopIteration:
            self._work = None
        except MmuFault as fault:
            raise mmu_error(fault, "host") from None
        except Malformed as error:
            raise pbdma_error(str(error)) from None
        return True

    # ring and pushbuffer

    def _entries(self) -> Iterator[None]:
        while self.get != self.put:
            entry = self.pages.word(self.channel.ring + 8 * self.get, 8)
            self.get = (self.get + 1) % self.channel.entries
            address, words = self._fetch(entry)
            self._write_get()
            for subchannel, method, data in methods(words):
                yield from self._method(subchannel, method, data)
            now = self._words(address, len(words))
            if now != words:
                self.gpu.system.complain(f"pushbuffer {address:#x} changed while it was run")
        self.idle()

    def _write_get(self) -> None:
        assert self.channel.userd is not None
        at = self.channel.userd_offset + GPGET
        self.channel.userd.view[at : at + 4] = self.get.to_bytes(4, "little")

    def _fetch(self, word: int) -> tuple[int, list[int]]:
        """Address and words of a ring entry."""
        entry = entry_of(word)
        if not entry.words:
            self._control_entry(entry)
            return 0, []
        address = self._extended_base | entry.address
        words = self._words(address, entry.words)
        self.segment = Segment(self.channel.handle, word, words)
        self.gpu.segments.append(self.segment)
        return address, words

    def _words(self, address: int, count: int) -> list[int]:
        data = self.pages.read(address, 4 * count)
        return list(memoryview(data).cast("I")) if count else []

    def _control_entry(self, entry: Entry) -> None:
        if entry.opcode == SET_EXTENDED_BASE and self.gpu.profile.wide:
            self._extended_base = entry.operand << 40
        elif entry.opcode != 0:
            raise Malformed(f"control opcode {entry.opcode}")

    def _method(self, subchannel: int, address: int, data: int) -> Iterator[None]:
        if address < 0x100:
            yield from self._host_method(subchannel, address, data)
        elif subchannel not in self._engines:
            raise pbdma_error(f"method {address:#x} on subchannel {subchannel} without object")
        else:
            try:
                self._engines[subchannel].method(address, data)
            except MmuFault as fault:
                raise mmu_error(fault, f"subchannel {subchannel}") from None

    # the host unit's own methods

    def _host_method(self, subchannel: int, address: int, data: int) -> Iterator[None]:
        if address not in HOST_METHODS:
            self.gpu.system.complain(f"host method {address:#x} is not faked")
            raise pbdma_error(f"host method {address:#x}")
        name, known = HOST_METHODS[address]
        if name == "SEM_ADDR_HI" and not self.gpu.profile.wide:
            known = 0xFF
        if data & ~known:
            raise pbdma_error(f"{name} with {data:#x}")
        self._registers[address] = data
        if name == "SET_OBJECT":
            self._set_object(subchannel, data)
        elif name == "WFI":
            self.idle()
        elif name == "NON_STALL_INTERRUPT":
            self.interrupts += 1
        elif name == "SEM_EXECUTE":
            yield from self._semaphore(data)

    def _set_object(self, subchannel: int, data: int) -> None:
        cls = data & 0xFFFF
        if cls not in {e.cls for e in self.channel.engines} or data >> 16:
            raise pbdma_error(f"SET_OBJECT {data:#x}, which the channel has no object of")
        engine: Engine
        if cls == self.gpu.profile.compute:
            right, engine = COMPUTE_SUBCHANNEL, ComputeEngine(self)
        else:
            right, engine = COPY_SUBCHANNEL, CopyEngine(self)
        if subchannel != right:
            raise pbdma_error(f"SET_OBJECT {data:#x} on subchannel {subchannel}, not {right}")
        self._engines.setdefault(subchannel, engine)

    def idle(self) -> None:
        """Wait until the engines have nothing to do."""
        for engine in self._engines.values():
            try:
                engine.idle()
            except MmuFault as fault:
                raise mmu_error(fault, "engine") from None

    @property
    def _address(self) -> int:
        return self._registers.get(0x60, 0) << 32 | self._registers.get(0x5C, 0)

    @property
    def _payload(self) -> int:
        return self._registers.get(0x68, 0) << 32 | self._registers.get(0x64, 0)

    def _semaphore(self, data: int) -> Iterator[None]:
        operation, wide, stamp = data & 7, data >> 24 & 1, data >> 25 & 1
        alignment = 16 if stamp else 8 if wide else 4
        if self._address % alignment:
            raise pbdma_error(f"semaphore at {self._address:#x}, not aligned to {alignment}")
        if operation == 1:
            if data >> 20 & 1:
                self.idle()
            self._release(8 if wide else 4, stamp=bool(stamp))
        elif operation in (0, 2, 3, 4, 5):
            if stamp or data >> 20 & 1:
                raise pbdma_error(f"an acquire with fields of a release: {data:#x}")
            while not self._acquired():
                self.idle()  # what was launched goes on meanwhile
                self.waits_for = (
                    f"{self.channel} waits for {self._payload:#x} at {self._address:#x}"
                )
                yield
        else:
            self.gpu.system.complain(f"SEM_EXECUTE {data:#x} is not faked")
            raise pbdma_error(f"SEM_EXECUTE {data:#x}")

    def _release(self, nbytes: int, *, stamp: bool) -> None:
        payload = (self._payload & (1 << 8 * nbytes) - 1).to_bytes(nbytes, "little")
        self.pages.check(self._address, 16 if stamp else nbytes, access=1)
        if stamp:
            self.pages.write(self._address + 8, self.gpu.time().to_bytes(8, "little"))
            payload = payload.ljust(8, b"\0")
        self.pages.write(self._address, payload)

    def _acquired(self) -> bool:
        data = self._registers[0x6C]
        nbytes = 8 if data >> 24 & 1 else 4
        mask = (1 << 8 * nbytes) - 1
        try:
            found = self.pages.word(self._address, nbytes)
        except MmuFault as fault:
            raise mmu_error(fault, "host") from None
        wanted = self._payload & mask
        operation = data & 7
        if operation == 0:
            return found == wanted
        if operation == 2:
            return found >= wanted
        if operation == 3:
            return not (found - wanted & mask) >> 8 * nbytes - 1
        return bool(found & wanted) if operation == 4 else bool(~(found | wanted) & mask)
