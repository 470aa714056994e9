"""A small hand-written client of the fake driver: raw bytes as the published layouts say.

It shares no table with the fake, so that the fake's own tables are tested, too. One client is one
process with one GPU (or several) in the recommended order of calls.
"""

from __future__ import annotations

import contextlib
import struct
from dataclasses import dataclass, field
from typing import Any

from cffi import FFI

from tests.emulators.nv.system import FakeFile, FakeSystem, UsermodeRegisters
from tgcore.hcq.mapping import Mapping, reserve

_ffi = FFI()
POOL = 0x10_0000_0000  # CPU-visible, identity mapped
POOL_BYTES = 64 << 30  # the same range as the plugin's: both may be in one process
LOCAL_WINDOW, SHARED_WINDOW = 0xFF00_0000, 0x4_0000_0000
CONTEXT_WINDOW = 0x8_0000_0000
VIDEO = 0x20_0000_0000  # GPU only


class Status(Exception):
    """The driver answered with a status."""

    def __init__(self, name: str, status: int) -> None:
        super().__init__(f"{name}: {status:#x}")
        self.status = status


def address_of(data: bytearray) -> int:
    """Where a buffer lies."""
    return int(_ffi.cast("uintptr_t", _ffi.from_buffer(data)))


def request(number: int, nbytes: int) -> int:
    """The encoded number of an ioctl."""
    return 0xC000_0000 | nbytes << 16 | 0x46 << 8 | number


@dataclass
class Buffer:
    """Memory of the client's: handle, addresses."""

    handle: int
    address: int
    nbytes: int
    mapping: Mapping | None = None

    @property
    def view(self) -> memoryview:
        assert self.mapping is not None
        return self.mapping.view

    def u32(self, offset: int = 0) -> int:
        return int.from_bytes(self.view[offset : offset + 4], "little")

    def u64(self, offset: int = 0) -> int:
        return int.from_bytes(self.view[offset : offset + 8], "little")


@dataclass
class Queue:
    """A channel with its ring."""

    handle: int
    tsg: int
    engine: int
    ring: Buffer
    notifier: Buffer
    token: int
    subchannel: int
    cls: int
    entries: int = 64
    put: int = 0
    words: list[int] = field(default_factory=list)

    USERD = 0x8000
    PUSH = 0x10000


@dataclass
class Gpu:
    """One GPU as the client has opened it."""

    index: int
    uuid: bytes
    file: FakeFile
    device: int = 0
    subdevice: int = 0
    space: int = 0
    registers: UsermodeRegisters | None = None


class Client:
    """A process that uses the fake driver."""

    def __init__(self, system: FakeSystem) -> None:
        self.system, self.major = system, system.major
        self.ctl = system.open("/dev/nvidiactl")
        self.uvm = system.open("/dev/nvidia-uvm")
        self.uvm_mm = system.open("/dev/nvidia-uvm")
        self.root = self.alloc(0, 0, 0x41, root=0)
        self.uvm_call(0x3000_0001, bytearray(16), 8)
        self.uvm_call(75, bytearray(struct.pack("<II", self.uvm.fileno(), 0)), 4)
        self.gpus: list[Gpu] = []
        self._next = POOL
        self._next_video = VIDEO
        self._next_window = CONTEXT_WINDOW
        self._reserve()

    def _reserve(self) -> None:
        with contextlib.suppress(OSError):  # another client of this process has it reserved
            reserve(POOL, POOL_BYTES)

    # transport

    def call(self, file: FakeFile, number: int, data: bytearray, status_at: int) -> bytearray:
        """An ioctl; raises Status."""
        file.ioctl(request(number, len(data)), data)
        status = struct.unpack_from("<I", data, status_at)[0]
        if status:
            raise Status(f"ioctl {number:#x}", status)
        return data

    def uvm_call(self, number: int, data: bytearray, status_at: int) -> bytearray:
        """A UVM ioctl; raises Status."""
        self.uvm_on(self.uvm if number != 75 else self.uvm_mm, number, data, status_at)
        return data

    def uvm_on(self, file: FakeFile, number: int, data: bytearray, status_at: int) -> None:
        """The same on a given file."""
        file.ioctl(number, data)
        status = struct.unpack_from("<I", data, status_at)[0]
        if status:
            raise Status(f"UVM {number}", status)

    def alloc(
        self,
        parent: int,
        handle: int,
        cls: int,
        parameters: bytearray | None = None,
        *,
        root: int | None = None,
    ) -> int:
        """RM_ALLOC in the recommended form."""
        where = address_of(parameters) if parameters is not None else 0
        root = self.root if root is None else root
        data = struct.pack("<IIIIQQIII4x", root, parent, handle, cls, where, 0, 0, 0, 0)
        result = self.call(self.ctl, 0x2B, bytearray(data), 0x28)
        return int(struct.unpack_from("<I", result, 8)[0])

    def alloc_on(self, file: FakeFile) -> None:
        """RM_ALLOC on a file that it may not be for."""
        self.call(file, 0x2B, bytearray(48), 0x28)

    def free(self, parent: int, handle: int) -> None:
        """RM_FREE."""
        self.call(self.ctl, 0x29, bytearray(struct.pack("<IIII", self.root, parent, handle, 0)), 12)

    def control(self, target: int, command: int, data: bytearray) -> bytearray:
        """RM_CONTROL."""
        block = struct.pack(
            "<IIIIQII", self.root, target, command, 0, address_of(data), len(data), 0
        )
        self.call(self.ctl, 0x2A, bytearray(block), 0x1C)
        return data

    # set-up

    def open_gpu(self, index: int = 0, *, space_flags: int = 0x48) -> Gpu:
        """Device, subdevice, usermode page, VA space, registration with UVM."""
        fake = self.system.gpus[index]
        gpu = Gpu(index, fake.uuid, self.system.open(f"/dev/nvidia{fake.minor}"))
        self.call_plain(gpu.file, 201, struct.pack("<I", self.ctl.fileno()))
        gpu.device = self.alloc(self.root, 0, 0x80, bytearray(struct.pack("<I1020x", index)))
        gpu.subdevice = self.alloc(gpu.device, 0, 0x2080, bytearray(1024))
        gpu.registers = self.map_usermode(gpu)
        space = bytearray(1024)
        struct.pack_into("<IIQQQI4xQ", space, 0, 0, space_flags, 0, 0, 0, 0, 0x1000)
        gpu.space = self.alloc(gpu.device, 0, 0x90F1, space)
        if space_flags & 8:
            self.register_gpu(gpu)
        self.gpus.append(gpu)
        return gpu

    def call_plain(self, file: FakeFile, number: int, data: bytes) -> bytearray:
        """An ioctl without a status in its structure."""
        buffer = bytearray(data)
        file.ioctl(request(number, len(buffer)), buffer)
        return buffer

    def register_gpu(self, gpu: Gpu) -> None:
        """UVM_REGISTER_GPU and UVM_REGISTER_GPU_VASPACE."""
        ctl = self.ctl.fileno()
        data = gpu.uuid + struct.pack("<B3xIIIII", 0, 0, ctl, self.root, 0, 0)
        self.uvm_call(37, bytearray(data), 0x24)
        data = gpu.uuid + struct.pack("<IIII", ctl, self.root, gpu.space, 0)
        self.uvm_call(25, bytearray(data), 0x1C)

    def map_usermode(self, gpu: Gpu) -> UsermodeRegisters:
        """The doorbell's page."""
        cls = self.system.gpus[gpu.index].profile.usermodes[0]
        handle = self.alloc(gpu.subdevice, 0, cls)
        file = self.map_memory(gpu, handle, 0x10000, device=gpu.subdevice)
        registers = file.registers(0x10000)
        file.close()
        return registers

    # memory

    def map_memory(
        self, gpu: Gpu, handle: int, nbytes: int, *, device: int = 0, system: bool = False
    ) -> FakeFile:
        """RM_MAP_MEMORY on a fresh file, which is then to be mapped."""
        minor = self.system.gpus[gpu.index].minor
        path = "/dev/nvidiactl" if system else f"/dev/nvidia{minor}"
        file = self.system.open(path)
        data = struct.pack(
            "<III4xQQQIII4x",
            self.root,
            device or gpu.device,
            handle,
            0,
            nbytes,
            0,
            0,
            0,
            file.fileno(),
        )
        self.call(self.ctl, 0x4E, bytearray(data), 0x28)
        return file

    def memory(self, gpu: Gpu, nbytes: int, *, system: bool, kind: int = 0) -> int:
        """RM_ALLOC of memory; the handle."""
        data = bytearray(1024)
        flags, attr = (0xC001, 0x3A00_0000) if system else (0x1C101, 0x1000_0000)
        struct.pack_into("<III", data, 0, self.root, kind, flags)
        struct.pack_into("<I", data, 0x18, attr)
        struct.pack_into("<QQ", data, 0x40, nbytes, 0x1000 if system else 2 << 20)
        return self.alloc(gpu.device, 0, 0x3E if system else 0x40, data)

    def create_range(self, base: int, nbytes: int) -> None:
        """UVM_CREATE_EXTERNAL_RANGE."""
        self.uvm_call(73, bytearray(struct.pack("<QQII", base, nbytes, 0, 0)), 0x10)

    def uvm_map(
        self,
        base: int,
        nbytes: int,
        handle: int,
        gpus: list[Gpu],
        *,
        offset: int = 0,
        kind: int = 0,
    ) -> None:
        """UVM_MAP_EXTERNAL_ALLOCATION."""
        entries, total = (32, 1200) if self.major < 550 else (256, 9264)
        data = bytearray(total)
        struct.pack_into("<QQQ", data, 0, base, nbytes, offset)
        for i, gpu in enumerate(gpus):
            struct.pack_into("<16sI", data, 0x18 + 36 * i, gpu.uuid, kind)
        tail = 0x18 + 36 * entries
        ctl = self.ctl.fileno()
        struct.pack_into("<QIII", data, tail, len(gpus), ctl, self.root, handle)
        self.uvm_call(33, data, total - 4)

    def uvm_free(self, base: int, nbytes: int) -> None:
        """UVM_FREE."""
        if self.major < 590:
            self.uvm_call(34, bytearray(struct.pack("<QQII", base, nbytes, 0, 0)), 0x10)
        else:
            self.uvm_call(34, bytearray(struct.pack("<QII", base, 0, 0)), 8)

    def buffer(
        self, gpu: Gpu, nbytes: int, *, system: bool = True, gpus: list[Gpu] | None = None
    ) -> Buffer:
        """Memory at one address for CPU and GPU."""
        step = 2 << 20
        address = self._next
        self._next += -(-nbytes // step) * step
        nbytes = -(-nbytes // 4096) * 4096 if system else -(-nbytes // step) * step
        handle = self.memory(gpu, nbytes, system=system)
        file = self.map_memory(gpu, handle, nbytes, system=system)
        mapping = file.mmap(nbytes, address=address)
        file.close()
        self.create_range(address, nbytes)
        self.uvm_map(address, nbytes, handle, gpus or [gpu])
        return Buffer(handle, address, nbytes, mapping)

    def video(self, gpu: Gpu, nbytes: int) -> Buffer:
        """Memory that only GPUs see."""
        nbytes = -(-nbytes // (2 << 20)) * (2 << 20)
        address = self._next_video
        self._next_video += nbytes
        handle = self.memory(gpu, nbytes, system=False)
        self.create_range(address, nbytes)
        self.uvm_map(address, nbytes, handle, [gpu])
        return Buffer(handle, address, nbytes)

    def free_buffer(self, gpu: Gpu, buffer: Buffer) -> None:
        """The range first, then the handle."""
        if buffer.mapping is not None:
            buffer.mapping.close()
        self.uvm_free(buffer.address, buffer.nbytes)
        self.free(gpu.device, buffer.handle)

    # queues

    def queue(self, gpu: Gpu, *, compute: bool, schedule: bool = True) -> Queue:
        """Group, share, channel, engine object, token, registration, schedule."""
        profile = self.system.gpus[gpu.index].profile
        engine = 1 if compute else 0x09 + self.copy_engine(gpu)
        tsg = self.alloc(
            gpu.device, 0, 0xA06C, bytearray(struct.pack("<IIII1008x", 0, 0, gpu.space, engine))
        )
        share = 0
        if compute:
            share = self.alloc(tsg, 0, 0x9067, bytearray(struct.pack("<III1012x", gpu.space, 1, 0)))
        ring = self.buffer(gpu, 1 << 20, system=False)
        notifier = self.notifier(gpu)
        channel = self.channel(gpu, tsg, ring, notifier, share=share)
        cls = profile.compute if compute else profile.copy
        parameters = None if compute else bytearray(struct.pack("<II1016x", 1, engine))
        self.alloc(channel, 0, cls, parameters)
        token = struct.unpack("<I", self.control(channel, 0xC36F0108, bytearray(b"\xff" * 4)))[0]
        queue = Queue(channel, tsg, engine, ring, notifier, token, 1 if compute else 4, cls)
        if schedule:
            self.register_channel(gpu, channel)
            self.schedule(tsg)
            self.push(queue, queue.subchannel, 0, cls)
        return queue

    def copy_engine(self, gpu: Gpu) -> int:
        """The first copy engine that is not on the graphics runlist."""
        size = 68 if self.major < 550 else 136
        caps = self.control(gpu.subdevice, 0x20802A0A, bytearray(size))
        mask = int.from_bytes(caps[0x40:0x44] if size == 68 else caps[0x80:], "little")
        return next(n for n in range(20) if mask >> n & 1 and not caps[2 * n] & 1)

    def notifier(self, gpu: Gpu) -> Buffer:
        """Memory for error reports."""
        handle = self.memory(gpu, 4096, system=True, kind=13)
        file = self.map_memory(gpu, handle, 4096, system=True)
        mapping = file.mmap(4096)
        file.close()
        return Buffer(handle, mapping.address, 4096, mapping)

    def channel(
        self, gpu: Gpu, tsg: int, ring: Buffer, notifier: Buffer, *, share: int = 0, **changes: Any
    ) -> int:
        """RM_ALLOC of a channel."""
        values = {
            "entries": 64,
            "space": 0,
            "engine": 0,
            "ring_address": ring.address,
            "userd": Queue.USERD,
            "cls": self.system.gpus[gpu.index].profile.channels[0],
        } | changes
        data = bytearray(1024)
        struct.pack_into(
            "<IIQII", data, 0, notifier.handle, ring.handle, values["ring_address"], 0, 0
        )
        struct.pack_into("<IIII", data, 0x10, values["entries"], 0, share, values["space"])
        struct.pack_into("<I", data, 0x20, ring.handle)
        struct.pack_into("<Q", data, 0x40, values["userd"])
        struct.pack_into("<I", data, 0x80, values["engine"])
        return self.alloc(tsg, 0, values["cls"], data)

    def register_channel(self, gpu: Gpu, channel: int) -> None:
        """UVM_REGISTER_CHANNEL."""
        base = self._next_window
        self._next_window += 64 << 20
        data = gpu.uuid + struct.pack(
            "<III4xQQII", self.ctl.fileno(), self.root, channel, base, 64 << 20, 0, 0
        )
        self.uvm_call(27, bytearray(data), 0x30)

    def unregister_channel(self, gpu: Gpu, channel: int) -> None:
        """UVM_UNREGISTER_CHANNEL."""
        tail = struct.pack("<III", self.root, channel, 0)
        data = tail if self.major >= 590 else gpu.uuid + tail
        self.uvm_call(28, bytearray(data), len(data) - 4)

    def schedule(self, tsg: int, *, enable: int = 1) -> None:
        """GPFIFO_SCHEDULE of a group."""
        self.control(tsg, 0xA06C0101, bytearray([enable, 0, 0][: 3 if self.major >= 575 else 2]))

    # work

    def push(self, queue: Queue, subchannel: int, method: int, *data: int) -> None:
        """Add an increasing method."""
        header = 1 << 29 | len(data) << 16 | subchannel << 13 | method >> 2
        queue.words += [header, *data]

    def release(self, queue: Queue, address: int, value: int, *, flags: int = 0x0310_0001) -> None:
        """Add a host release: by default 64 bits, after idle, with the time."""
        self.push(
            queue,
            0,
            0x5C,
            address & 0xFFFF_FFFF,
            address >> 32,
            value & 0xFFFF_FFFF,
            value >> 32,
            flags,
        )

    def acquire(self, queue: Queue, address: int, value: int, *, flags: int = 0x0100_1003) -> None:
        """Add a host acquire: by default 64 bits, circular >=, switching."""
        self.release(queue, address, value, flags=flags)

    def copy(self, queue: Queue, source: int, destination: int, nbytes: int) -> None:
        """Add a plain copy."""
        offsets = (source >> 32, source & 0xFFFF_FFFF, destination >> 32, destination & 0xFFFF_FFFF)
        self.push(queue, 4, 0x400, *offsets)
        self.push(queue, 4, 0x418, nbytes)
        self.push(queue, 4, 0x300, 0x182)

    def submit(self, gpu: Gpu, queue: Queue, *, entry: int | None = None) -> None:
        """Put the words in the pushbuffer, and ring."""
        at = Queue.PUSH + queue.put * 0x2000
        data = struct.pack(f"<{len(queue.words)}I", *queue.words)
        assert len(data) <= 0x2000
        queue.ring.view[at : at + len(data)] = data
        if entry is None:
            entry = queue.ring.address + at | len(queue.words) << 42
        struct.pack_into("<Q", queue.ring.view, 8 * queue.put, entry)
        queue.put = (queue.put + 1) % queue.entries
        struct.pack_into("<I", queue.ring.view, Queue.USERD + 0x8C, queue.put)
        queue.words = []
        assert gpu.registers is not None
        gpu.registers[0x90] = queue.token

    def close(self) -> None:
        """End the process."""
        for mapping in list(self.system.mappings):
            mapping.close()
        for file in list(self.system.files.values()):
            file.close()
