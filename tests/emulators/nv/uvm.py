"""/dev/nvidia-uvm: GPU address spaces that the process lays out itself."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tests.emulators.nv import status, structs
from tests.emulators.nv.layout import Layout, View, at_version
from tests.emulators.nv.memory import PAGE
from tests.emulators.nv.objects import ENGINE_GR0, Channel, Client, MemoryNode, VaSpace
from tests.emulators.nv.rm import refuse_call
from tests.emulators.nv.status import Refused, require

if TYPE_CHECKING:
    from tests.emulators.nv.gpu import FakeGpu
    from tests.emulators.nv.system import FakeFile, FakeSystem

INITIALIZE, DEINITIALIZE = 0x3000_0001, 0x3000_0002
_MM_INITIALIZE: Final = 75
_ATTRIBUTES: Final = 0x18  # where the entries per GPU start
_NO_FD: Final = 0xFFFF_FFFF


class UvmSpace:
    """What one UVM file knows."""

    def __init__(self) -> None:
        self.initialized = False
        self.is_mm = False  # it is the second file, which only keeps the first one's memory
        self.mm: FakeFile | None = None
        self.gpus: dict[int, FakeGpu] = {}
        self.spaces: dict[int, VaSpace] = {}  # by GPU
        self.ranges: dict[int, int] = {}  # base -> bytes
        self.channels: dict[Channel, tuple[int, int]] = {}  # their windows
        self.peers: set[frozenset[int]] = set()

    def occupied(self, base: int, nbytes: int) -> bool:
        """Whether a range or a channel's window lies there."""
        taken = [*self.ranges.items(), *self.channels.values()]
        return any(b < base + nbytes and base < b + n for b, n in taken)

    def forget_space(self, space: VaSpace) -> None:
        """A VA space is freed."""
        self.spaces = {index: s for index, s in self.spaces.items() if s is not space}

    def unmap_range(self, base: int, nbytes: int) -> None:
        """Drop all GPUs' mappings of a range."""
        for space in self.spaces.values():
            space.pages.unmap(base, nbytes)


class Uvm:
    """The UVM driver."""

    def __init__(self, system: FakeSystem) -> None:
        self.system = system
        self.layouts: dict[str, Layout] = {s.name: s.layout(system.major) for s in structs.UVM}
        self.attributes = structs.GPU_ATTRIBUTES.layout(system.major)
        self.max_gpus = at_version(structs.UVM_MAX_GPUS, system.major)
        self.calls: dict[int, tuple[str, Callable[[FakeFile, View], None]]] = {
            INITIALIZE: ("INITIALIZE", self._initialize),
            _MM_INITIALIZE: ("MM_INITIALIZE", self._mm_initialize),
            37: ("REGISTER_GPU", self._register_gpu),
            38: ("UNREGISTER_GPU", self._unregister_gpu),
            25: ("REGISTER_GPU_VASPACE", self._register_space),
            26: ("UNREGISTER_GPU_VASPACE", self._unregister_space),
            27: ("REGISTER_CHANNEL", self._register_channel),
            28: ("UNREGISTER_CHANNEL", self._unregister_channel),
            29: ("ENABLE_PEER_ACCESS", self._enable_peer),
            30: ("DISABLE_PEER_ACCESS", self._disable_peer),
            73: ("CREATE_EXTERNAL_RANGE", self._create_range),
            33: ("MAP_EXTERNAL_ALLOCATION", self._map),
            66: ("UNMAP_EXTERNAL", self._unmap),
            34: ("FREE", self._free),
            39: ("PAGEABLE_MEM_ACCESS", self._pageable),
        }

    def call(self, file: FakeFile, request: int, buffer: memoryview) -> None:
        """One ioctl."""
        if request == DEINITIALIZE:
            self._deinitialize(file)
            return
        if request not in self.calls:
            self.system.complain(f"UVM ioctl {request:#x} is not faked")
            raise refuse_call(errno.EINVAL, f"UVM ioctl {request:#x}")
        name, act = self.calls[request]
        layout = self.layouts[name]
        if len(buffer) < layout.size:
            self.system.complain(f"UVM_{name}: {len(buffer)} bytes for {layout.size}")
            raise refuse_call(errno.EFAULT, f"UVM_{name} copies {layout.size} bytes")
        view = layout.over(buffer[: layout.size])
        self.system.rm.answer(file, f"UVM_{name}", view, self._guarded(request, act), "rmStatus")

    def _guarded(
        self, request: int, act: Callable[[FakeFile, View], None]
    ) -> Callable[[FakeFile, View], None]:
        def guarded(file: FakeFile, view: View) -> None:
            early = request in (INITIALIZE, _MM_INITIALIZE)
            ready = early or (file.uvm.initialized and not file.uvm.is_mm)
            require(ready, status.ILLEGAL_ACTION, "before UVM_INITIALIZE")
            act(file, view)

        return guarded

    def file_closed(self, file: FakeFile) -> None:
        """The address spaces of a file go with it."""
        self._deinitialize(file)
        for other in self.system.files.values():
            if other.kind == "uvm" and other.uvm.mm is file:
                other.uvm.mm = None

    def _deinitialize(self, file: FakeFile) -> None:
        state = file.uvm
        for channel in state.channels:
            channel.uvm = None
        for base, nbytes in state.ranges.items():
            state.unmap_range(base, nbytes)
        for space in state.spaces.values():
            space.uvm = None
        file.uvm = UvmSpace()

    # who takes part

    def _initialize(self, file: FakeFile, view: View) -> None:
        require(not view["flags"] & ~3, status.INVALID_ARGUMENT, "flags")
        require(not file.uvm.initialized, status.INVALID_STATE, "twice")
        require(not file.uvm.is_mm, status.INVALID_STATE, "this is the second file")
        file.uvm.initialized = True

    def _mm_initialize(self, file: FakeFile, view: View) -> None:
        main = self.system.by_number(view["uvmFd"])
        known = main is not None and main.kind == "uvm" and main is not file
        require(known, status.INVALID_ARGUMENT, "uvmFd is not the main file")
        assert main is not None
        require(main.uvm.initialized, status.ILLEGAL_ACTION, "UVM_INITIALIZE comes first")
        require(not file.uvm.initialized, status.INVALID_STATE, "this is a main file")
        require(main.uvm.mm is None, status.INVALID_STATE, "it has a second file already")
        file.uvm.is_mm, main.uvm.mm = True, file

    def _gpu(self, view: View, field: str = "uuid") -> FakeGpu:
        for gpu in self.system.gpus:
            if gpu.uuid == view.raw(field):
                return gpu
        raise Refused(status.UUID_NOT_FOUND, view.raw(field).hex())

    def _registered(self, file: FakeFile, view: View, field: str = "uuid") -> FakeGpu:
        gpu = self._gpu(view, field)
        known = gpu.index in file.uvm.gpus
        require(known, status.INVALID_DEVICE, f"GPU {gpu.index} is not registered")
        return gpu

    def _client(self, view: View) -> Client:
        control = self.system.by_number(view["rmCtrlFd"])
        known = control is not None and control.kind == "ctl"
        require(known, status.INVALID_ARGUMENT, "rmCtrlFd is not of nvidiactl")
        return self.system.rm.client(view["hClient"])

    def _register_gpu(self, file: FakeFile, view: View) -> None:
        gpu = self._gpu(view)
        require(not view["hSmcPartRef"], status.INVALID_ARGUMENT, "MIG is off")
        if view["rmCtrlFd"] != _NO_FD:
            control = self.system.by_number(view["rmCtrlFd"])
            known = control is not None and control.kind == "ctl"
            require(known, status.INVALID_ARGUMENT, "rmCtrlFd is not of nvidiactl")
        require(gpu.index not in file.uvm.gpus, status.INVALID_ARGUMENT, "registered already")
        require(gpu.attached, status.INVALID_DEVICE, "the GPU's file is not open")
        file.uvm.gpus[gpu.index] = gpu
        view["numaEnabled"], view["numaNodeId"] = 0, _NO_FD

    def _unregister_gpu(self, file: FakeFile, view: View) -> None:
        gpu = self._registered(file, view)
        self._drop_space(file.uvm, gpu)
        file.uvm.peers = {p for p in file.uvm.peers if gpu.index not in p}
        del file.uvm.gpus[gpu.index]

    def _register_space(self, file: FakeFile, view: View) -> None:
        gpu = self._registered(file, view)
        require(file.uvm.mm, status.PAGE_TABLE_NOT_AVAIL, "no second UVM file")
        space = self._client(view).find(view["hVaSpace"], VaSpace)
        assert isinstance(space, VaSpace)
        require(space.external, status.INVALID_FLAGS, "the VA space is not externally owned")
        require(space.gpu is gpu, status.INVALID_DEVICE, "the VA space is of another GPU")
        require(gpu.index not in file.uvm.spaces, status.INVALID_ARGUMENT, "registered already")
        require(space.uvm is None, status.INVALID_ARGUMENT, "registered with another file")
        file.uvm.spaces[gpu.index], space.uvm = space, file.uvm

    def _unregister_space(self, file: FakeFile, view: View) -> None:
        gpu = self._registered(file, view)
        require(gpu.index in file.uvm.spaces, status.INVALID_DEVICE, "no VA space registered")
        self._drop_space(file.uvm, gpu)

    def _drop_space(self, state: UvmSpace, gpu: FakeGpu) -> None:
        space = state.spaces.get(gpu.index)
        if space is None:
            return
        for channel in [c for c in state.channels if c.gpu is gpu]:
            self.system.complain(f"{channel} is registered while its VA space goes")
            del state.channels[channel]
            channel.uvm = None
        for base, nbytes in state.ranges.items():
            space.pages.unmap(base, nbytes)
        space.uvm = None
        del state.spaces[gpu.index]

    def _space(self, file: FakeFile, gpu: FakeGpu) -> VaSpace:
        require(file.uvm.mm, status.PAGE_TABLE_NOT_AVAIL, "the second UVM file is closed")
        known = gpu.index in file.uvm.spaces
        require(known, status.INVALID_DEVICE, f"GPU {gpu.index} has no VA space here")
        return file.uvm.spaces[gpu.index]

    # channels

    def _register_channel(self, file: FakeFile, view: View) -> None:
        gpu = self._registered(file, view)
        space = self._space(file, gpu)
        channel = self._client(view).find(view["hChannel"], Channel)
        assert isinstance(channel, Channel)
        require(channel.gpu is gpu, status.INVALID_DEVICE, "the channel of another GPU")
        require(channel.tsg.space is space, status.INVALID_DEVICE, "another VA space")
        require(channel.uvm is None, status.INVALID_STATE, "registered already")
        require(channel.engines, status.INVALID_OBJECT, "it has no engine object")
        graphics = channel.tsg.engine == ENGINE_GR0
        if not graphics:
            copies = channel.runlist != 0
            require(copies, status.INVALID_OBJECT, "a copy channel on the graphics runlist")
        window = (view["base"], view["length"]) if graphics else (0, 0)
        if graphics:
            self._check_window(file.uvm, gpu, *window)
        file.uvm.channels[channel] = window
        channel.uvm = file.uvm

    def _check_window(self, state: UvmSpace, gpu: FakeGpu, base: int, nbytes: int) -> None:
        aligned = base and base % PAGE == 0 and nbytes % PAGE == 0
        require(aligned, status.INVALID_ADDRESS, f"the window at {base:#x}")
        enough = nbytes >= gpu.profile.context_bytes
        require(enough, status.INVALID_ADDRESS, "the window is too small for the context")
        inside = base + nbytes <= 1 << gpu.profile.va_bits
        require(inside, status.OUT_OF_RANGE, f"the window at {base:#x}")
        require(not state.occupied(base, nbytes), status.UVM_ADDRESS_IN_USE, f"{base:#x}")

    def _unregister_channel(self, file: FakeFile, view: View) -> None:
        channel = self.system.rm.client(view["hClient"]).find(view["hChannel"], Channel)
        assert isinstance(channel, Channel)
        require(channel in file.uvm.channels, status.INVALID_CHANNEL, "it is not registered")
        if "uuid" in view:
            require(self._gpu(view) is channel.gpu, status.INVALID_DEVICE, "another GPU's UUID")
        del file.uvm.channels[channel]
        channel.uvm = None
        channel.scheduled = False

    # peers

    def _pair(self, file: FakeFile, view: View) -> frozenset[int]:
        first = self._registered(file, view, "uuidA")
        second = self._registered(file, view, "uuidB")
        require(first is not second, status.INVALID_DEVICE, "a GPU is no peer of itself")
        return frozenset((first.index, second.index))

    def _enable_peer(self, file: FakeFile, view: View) -> None:
        pair = self._pair(file, view)
        able = self.system.peers_possible(*pair)
        require(able, status.NOT_SUPPORTED, "these GPUs do not reach each other")
        require(pair not in file.uvm.peers, status.INVALID_DEVICE, "enabled already")
        file.uvm.peers.add(pair)

    def _disable_peer(self, file: FakeFile, view: View) -> None:
        pair = self._pair(file, view)
        require(pair in file.uvm.peers, status.INVALID_DEVICE, "not enabled")
        file.uvm.peers.discard(pair)
        for index in pair:
            space = file.uvm.spaces.get(index)
            for mapped in list(space.pages) if space else []:
                if mapped.memory.place == "video" and mapped.memory.gpu not in (index,):
                    assert space is not None
                    space.pages.unmap(mapped.start, mapped.end - mapped.start)

    # ranges and mappings

    def _check_base(self, base: int, nbytes: int) -> None:
        aligned = base and nbytes and base % PAGE == 0 and nbytes % PAGE == 0
        require(aligned, status.INVALID_ADDRESS, f"{nbytes:#x} bytes at {base:#x}")

    def _create_range(self, file: FakeFile, view: View) -> None:
        base, nbytes = view["base"], view["length"]
        self._check_base(base, nbytes)
        require(file.uvm.mm, status.PAGE_TABLE_NOT_AVAIL, "no second UVM file")
        widest = max((g.profile.va_bits for g in file.uvm.gpus.values()), default=57)
        require(base + nbytes <= 1 << widest, status.OUT_OF_RANGE, f"{base:#x}")
        free = not file.uvm.occupied(base, nbytes)
        require(free, status.UVM_ADDRESS_IN_USE, f"{nbytes:#x} bytes at {base:#x}")
        file.uvm.ranges[base] = nbytes

    def _within_range(self, file: FakeFile, base: int, nbytes: int) -> None:
        self._check_base(base, nbytes)
        ranges = file.uvm.ranges.items()
        inside = any(b <= base and base + nbytes <= b + n for b, n in ranges)
        require(inside, status.INVALID_ADDRESS, f"{base:#x} is not inside of one range")

    def _map(self, file: FakeFile, view: View) -> None:
        base, nbytes, offset = view["base"], view["length"], view["offset"]
        self._within_range(file, base, nbytes)
        require(offset % PAGE == 0, status.INVALID_ADDRESS, f"offset {offset:#x}")
        count = view["gpuAttributesCount"]
        require(1 <= count <= self.max_gpus, status.INVALID_ARGUMENT, f"{count} GPUs")
        node = self._client(view).find(view["hMemory"], MemoryNode)
        assert isinstance(node, MemoryNode)
        inside = offset + nbytes <= node.memory.nbytes
        require(inside, status.INVALID_LIMIT, "beyond the memory")
        targets = [self._target(file, view, i, node) for i in range(count)]
        for space, writable in targets:
            limit = 1 << space.gpu.profile.va_bits
            require(base + nbytes <= limit, status.OUT_OF_RANGE, f"{base:#x}")
            space.pages.map(base, nbytes, node.memory, offset, writable=writable)
            self.system.check_identity(space.gpu, node.memory)

    def _target(
        self, file: FakeFile, view: View, index: int, node: MemoryNode
    ) -> tuple[VaSpace, bool]:
        """The address space of one entry, and whether it may write."""
        start = _ATTRIBUTES + index * self.attributes.size
        entry = self.attributes.over(bytearray(view.data[start : start + self.attributes.size]))
        gpu = self._registered(file, entry)
        space = self._space(file, gpu)
        kind = entry["gpuMappingType"]
        require(kind <= 3, status.INVALID_ARGUMENT, f"gpuMappingType {kind}")
        require(entry["gpuCachingType"] <= 2, status.INVALID_ARGUMENT, "gpuCachingType")
        for name in ("gpuFormatType", "gpuElementBits", "gpuCompressionType"):
            require(not entry[name], status.INVALID_ARGUMENT, name)
        asks = kind in (1, 2) and node.memory.read_only
        require(not asks, status.INVALID_ACCESS_TYPE, "the memory is read-only")
        foreign = node.memory.place == "video" and node.gpu is not gpu
        enabled = frozenset((gpu.index, node.gpu.index)) in file.uvm.peers
        require(not foreign or enabled, status.INVALID_DEVICE, "peer access is not enabled")
        return space, kind != 3 and not node.memory.read_only

    def _unmap(self, file: FakeFile, view: View) -> None:
        base, nbytes = view["base"], view["length"]
        self._within_range(file, base, nbytes)
        self._space(file, self._registered(file, view)).pages.unmap(base, nbytes)

    def _free(self, file: FakeFile, view: View) -> None:
        base = view["base"]
        known = base in file.uvm.ranges
        require(known, status.INVALID_ADDRESS, f"no range at {base:#x}")
        nbytes = file.uvm.ranges[base]
        if "length" in view:
            exact = view["length"] == nbytes
            require(exact, status.INVALID_ADDRESS, f"the range has {nbytes:#x} bytes")
        file.uvm.unmap_range(base, nbytes)
        del file.uvm.ranges[base]

    def _pageable(self, file: FakeFile, view: View) -> None:
        view["pageableMemAccess"] = 0
