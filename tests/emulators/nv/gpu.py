"""One fake GPU: who it is, its memory, its channels, and how they are run and killed."""

from __future__ import annotations

import hashlib
import struct
import uuid
from collections import deque
from typing import TYPE_CHECKING, Any

from tests.emulators.nv.caches import Caches
from tests.emulators.nv.faults import ChannelError, HungKernel
from tests.emulators.nv.host import ChannelRun
from tests.emulators.nv.layout import View
from tests.emulators.nv.objects import Channel, Tsg
from tests.emulators.nv.profiles import Profile
from tests.emulators.nv.pushbuffer import Segment
from tests.emulators.nv.qmd import Qmd

if TYPE_CHECKING:
    from tests.emulators.nv.system import FakeSystem

_FIRST_CHANNEL = 3
_KEPT = 4096  # records of what was done


class FakeGpu:
    """A GPU of a profile."""

    def __init__(self, system: FakeSystem, index: int, profile: Profile) -> None:
        self.system, self.index, self.profile = system, index, profile
        self.minor, self.bus = index, index + 1
        self.gpu_id = self.bus << 8
        self.pci = f"0000:{self.bus:02x}:00.0"
        self.uuid = hashlib.sha256(f"{profile.chip} {index}".encode()).digest()[:16]
        self.uuid_text = f"GPU-{uuid.UUID(bytes=self.uuid)}"
        self.opened, self.attached_by_id = 0, False
        self.used = self.bar1_used = 0  # bytes
        self.bar1_doorbell = profile.wide
        self.compute_mode = 0
        self.boosts: list[tuple[int, int]] = []  # flags and duration of PERF_BOOST
        self.channels: list[Channel] = []
        self.xids: list[ChannelError] = []
        self.launches: deque[Qmd] = deque(maxlen=_KEPT)  # that ran, newest last
        self.segments: deque[Segment] = deque(maxlen=_KEPT)  # fetched, newest last
        self.overlap = True  # unordered grids really run in another order
        self.caches = Caches(self)
        self._next_channel = _FIRST_CHANNEL
        self._last_time = 0

    # who it is

    @property
    def attached(self) -> bool:
        """Whether it is initialised: its file is open, or it was attached by its id."""
        return self.opened > 0 or self.attached_by_id

    def information(self) -> str:
        """Its file in /proc."""
        return (
            f"Model: \t\t {self.profile.name}\nIRQ:   \t\t 100\nGPU UUID: \t {self.uuid_text}\n"
            f"Bus Type: \t PCIe\nBus Location: \t {self.pci}\nDevice Minor: \t {self.minor}\n"
        )

    def card_info(self, entry: View) -> None:
        """Its entry of CARD_INFO."""
        entry["valid"], entry["bus"], entry["vendor_id"] = 1, self.bus, 0x10DE
        entry["device_id"], entry["gpu_id"] = self.profile.device_id, self.gpu_id
        entry["minor_number"] = self.minor
        entry["reg_address"], entry["reg_size"] = 0xF000_0000, 16 << 20
        entry["fb_address"], entry["fb_size"] = 0x38_0000_0000_00, self.profile.bar1
        entry.put("dev_name", f"nvidia{self.minor}".encode())

    def time(self) -> int:
        """Nanoseconds since an arbitrary start, in steps of 32; never the same twice."""
        now = self.system.time() + (self.index + 1) * 10**12 & ~31
        self._last_time = max(now, self._last_time + 32)
        return self._last_time

    # copy engines

    @property
    def copies(self) -> list[int]:
        """The copy engines there are."""
        return [n for n in range(20) if self.profile.copy_engines >> n & 1]

    def copy_type(self, engine: int) -> int:
        """The engine type of a copy engine."""
        return 0x09 + engine if engine < 10 else 0x34 + engine - 10

    def copy_engine(self, engine_type: int) -> int | None:
        """The copy engine of an engine type, if there is such a one."""
        return next((n for n in self.copies if self.copy_type(n) == engine_type), None)

    def is_graphics_copy(self, engine: int) -> bool:
        """Whether a copy engine shares the graphics runlist."""
        return bool(self.profile.graphics_copies >> engine & 1)

    # channels

    def add_channel(self, channel: Channel) -> None:
        """Give a channel its hardware."""
        channel.number = self._next_channel
        self._next_channel += 1
        engine = self.copy_engine(channel.tsg.engine)
        alone = engine is not None and not self.is_graphics_copy(engine)
        channel.runlist = 1 + engine if alone and engine is not None else 0
        channel.run = ChannelRun(self, channel)
        self.channels.append(channel)

    def move_channel(self, channel: Channel, runlist: int) -> None:
        """Put a channel on another runlist; its token changes."""
        channel.runlist = runlist

    def remove_channel(self, channel: Channel) -> None:
        """Take a channel's hardware back."""
        if channel in self.channels:
            self.channels.remove(channel)
        channel.scheduled, channel.run = False, None

    def ring(self, token: int) -> None:
        """The doorbell: the channel of the token has new work."""
        for channel in self.channels:
            if channel.token == token:
                break
        else:
            self.system.complain(f"doorbell with token {token:#x}, which is of no channel")
            return
        if channel.dead or not channel.scheduled or channel.run is None:
            state = "dead" if channel.dead else "not scheduled"
            self.system.complain(f"doorbell for {channel}, which is {state}")
            return
        self.system.note(f"doorbell {token:#x}")
        self._guarded(channel, channel.run.ring)

    def advance(self) -> bool:
        """Let every channel go as far as it can. Whether any did something."""
        moved = False
        for channel in list(self.channels):
            if channel.scheduled and not channel.dead and channel.run is not None:
                moved |= bool(self._guarded(channel, channel.run.advance))
        return moved

    def parked(self) -> list[str]:
        """What channels wait for."""
        runs = [c.run for c in self.channels if c.run is not None and not c.dead]
        return [run.waits_for for run in runs if run.waits_for]

    def hung(self) -> list[str]:
        """Kernels that do not end."""
        return [c.run.hung for c in self.channels if c.run is not None and c.run.hung]

    def _guarded(self, channel: Channel, act: Any) -> Any:
        try:
            return act()
        except ChannelError as error:
            self.kill(channel.tsg, channel, error)
            return True
        except HungKernel as hang:
            channel.run.hung = str(hang)
            self.system.note(f"{channel} hangs: {hang}")
            return True

    def fail(self, code: int, text: str = "injected") -> None:
        """Let the hardware fail: all channels die with an error."""
        for tsg in {channel.tsg for channel in self.channels}:
            self.kill(tsg, tsg.channels[0], ChannelError(code, text))

    def kill(self, tsg: Tsg, culprit: Channel, error: ChannelError) -> None:
        """Report an error to all channels of a group and stop them."""
        self.xids.append(error)
        self.system.note(f"{error} (channel {culprit.handle:#x} of GPU {self.index})")
        if error.fault is not None:
            culprit.mmu_faults.append(error.fault)
        if error.sm_error is not None:
            culprit.sm_errors.append(error.sm_error)
        now = self.time()
        record = struct.pack("<QIHH", now, error.code, tsg.engine, 0xFFFF)
        for channel in tsg.channels:
            channel.dead, channel.scheduled = True, False
            if channel.notifier is not None:
                channel.notifier.view[: len(record)] = record
        if tsg.notifier is not None:
            tsg.notifier.view[: len(record)] = record
