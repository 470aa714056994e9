"""Kernel launches of the small client: set-up methods, QMD, bank 0."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.emulators.nv.client import LOCAL_WINDOW, SHARED_WINDOW, Buffer, Client, Gpu, Queue
from tests.emulators.nv.launch import HEADS
from tests.emulators.nv.qmd import encode

CODE, QMDS, BANKS, SLOTS = 0x10000, 0x1000, 0x40000, 0x0  # places in the work buffer
WORK_BYTES = 2 << 20
_STACK_TOP = 0xFF_FDC0


@dataclass
class Launcher:
    """One compute queue with memory for code, QMDs and banks."""

    client: Client
    gpu: Gpu
    queue: Queue = field(init=False)
    work: Buffer = field(init=False)
    local: Buffer = field(init=False)
    launches: int = 0
    local_window: int = LOCAL_WINDOW
    shared_window: int = SHARED_WINDOW

    def __post_init__(self) -> None:
        self.queue = self.client.queue(self.gpu, compute=True)
        self.work = self.client.buffer(self.gpu, WORK_BYTES)
        self.local = self.client.video(self.gpu, 256 << 20)

    @property
    def profile(self) -> Any:
        """The chip."""
        return self.client.system.gpus[self.gpu.index].profile

    def set_up(self, *, per_thread: int = 0) -> None:
        """The methods that a channel needs once."""
        push, queue = self.client.push, self.queue
        push(queue, 1, 0x7B0, 0, self.local_window)
        push(queue, 1, 0x2A0, self.shared_window >> 32, self.shared_window & 0xFFFF_FFFF)
        if per_thread:
            profile = self.profile
            warps = profile.max_warps * profile.sms_per_tpc
            per_tpc = -(-per_thread * 32 * warps // 0x8000) * 0x8000
            push(queue, 1, 0x790, self.local.address >> 32, self.local.address & 0xFFFF_FFFF)
            push(queue, 1, 0x2E4, 0, per_tpc, 0xFF)
        push(queue, 1, 0x1698, 0x1011)

    def load(self, code: bytes, at: int = 0) -> int:
        """Put code in memory; its address."""
        self.work.view[CODE + at : CODE + at + len(code)] = code
        return self.work.address + CODE + at

    def bank(
        self, grid: tuple[int, ...], block: tuple[int, ...], parameters: bytes, **head: int
    ) -> tuple[int, int]:
        """A new bank 0: address and bytes."""
        places, base = HEADS[self.profile.qmd], self.profile.parameter_base
        data = bytearray(base) + parameters
        data += bytes(-len(data) % 16)
        struct.pack_into("<3I", data, places.block, *block)
        struct.pack_into("<3I", data, places.grid, *grid)
        struct.pack_into("<Q", data, places.local_window, self.local_window)
        if places.shared_window is not None:
            struct.pack_into("<Q", data, places.shared_window, self.shared_window)
        struct.pack_into("<I", data, places.stack, head.get("stack", _STACK_TOP))
        at = BANKS + 0x1000 * self.launches
        self.work.view[at : at + len(data)] = data
        return self.work.address + at, len(data)

    def qmd(
        self,
        program: int,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        bank: tuple[int, int],
        **changes: int,
    ) -> int:
        """A new QMD; its address. `changes`: fields with other values."""
        version, carve_outs = self.profile.qmd, self.profile.carve_outs
        shared = changes.pop("shared_bytes", 0x400)
        least = next(c for c in carve_outs if c * 1024 >= shared)
        fields = {
            "major": version,
            "call_limit": 1,
            "membar": 1,
            "invalidate_shader_data": 1,
            "bank_invalidate[0]": 1,
            "barriers": 1,
            "registers": 32,
            "shared": shared >> (7 if version == 5 else 0),
            "min_shared": least // 4 + 1,
            "target_shared": least // 4 + 1,
            "max_shared": carve_outs[-1] // 4 + 1,
            "bank_valid[0]": 1,
        }
        fields |= dict(zip(("grid_x", "grid_y", "grid_z"), grid))
        fields |= dict(zip(("block_x", "block_y", "block_z"), block))
        fields |= {"type": 2} if version > 3 else {"global_caching": 1}
        fields |= self._address("program", program, 4 if version == 5 else 0)
        fields |= self.bank_fields(0, *bank)
        at = QMDS + 512 * self.launches
        self.launches += 1
        data = encode(version, fields | changes)
        self.work.view[at : at + len(data)] = data
        return self.work.address + at

    def bank_fields(self, index: int, address: int, nbytes: int) -> dict[str, int]:
        """The fields of a bound bank."""
        shifted = address if self.profile.qmd == 3 else address >> 6
        return {
            f"bank_valid[{index}]": 1,
            f"bank_low[{index}]": shifted & 0xFFFF_FFFF,
            f"bank_high[{index}]": shifted >> 32,
            f"bank_size[{index}]": -(-nbytes // 16),
        }

    def _address(self, name: str, address: int, shift: int) -> Mapping[str, int]:
        value = address >> shift
        return {f"{name}_low": value & 0xFFFF_FFFF, f"{name}_high": value >> 32}

    def send(self, qmd: int, *, action: int = 3) -> None:
        """Add the launch to the queue."""
        self.client.push(self.queue, 1, 0x2B4, qmd >> 8)
        self.client.push(self.queue, 1, 0x2C0, action)

    def launch(
        self,
        code: bytes,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        parameters: bytes,
        **changes: int,
    ) -> None:
        """Load and add a launch of a kernel."""
        program = self.load(code)
        self.send(self.qmd(program, grid, block, self.bank(grid, block, parameters), **changes))

    def finish(self, value: int = 1) -> int:
        """Release a semaphore after all, submit; what is in the semaphore then."""
        self.work.view[SLOTS : SLOTS + 8] = bytes(8)
        self.client.release(self.queue, self.work.address + SLOTS, value)
        self.client.submit(self.gpu, self.queue)
        return self.work.u64(SLOTS)
