"""RM_ALLOC: what each class needs, checks and becomes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.emulators.nv import status
from tests.emulators.nv.layout import View
from tests.emulators.nv.memory import PAGE, Memory
from tests.emulators.nv.objects import (
    ENGINE_GR0,
    Channel,
    Client,
    ContextShare,
    Debugger,
    Device,
    Engine,
    MemoryNode,
    Node,
    Subdevice,
    Tsg,
    Usermode,
    VaSpace,
    VirtualMemory,
)
from tests.emulators.nv.status import Refused, require

if TYPE_CHECKING:
    from tests.emulators.nv.gpu import FakeGpu
    from tests.emulators.nv.rm import ResourceManager

LOW_LIMIT = 1 << 40  # rings lie below it
_MIB2, _KIB64 = 2 << 20, 64 << 10
_POWERS = {1 << n for n in range(64)}


@dataclass
class Request:
    """An allocation: who asks for what, with which parameters."""

    rm: ResourceManager
    handle: int
    cls: int
    parent: Node
    parameters: View | None

    @property
    def given(self) -> View:
        """The parameters of a class that needs some."""
        require(self.parameters, status.INVALID_POINTER, f"class {self.cls:#x} needs parameters")
        assert self.parameters is not None
        return self.parameters

    @property
    def client(self) -> Client:
        return self.parent.client

    def zero(self, *names: str) -> None:
        """Refuse fields that have no use."""
        for name in names:
            if name in self.given and any(self.given.elements(name)):
                self.rm.system.complain(f"class {self.cls:#x}: {name} is not zero")
                raise Refused(status.INVALID_ARGUMENT, f"{name} is not zero")


@dataclass(frozen=True)
class Class:
    """How a class is allocated."""

    parents: type[Node] | tuple[type[Node], ...]
    struct: str | None
    make: Callable[[Request], Node]


def _device(r: Request) -> Node:
    instance = r.given["deviceId"]
    r.zero("hTargetClient", "hTargetDevice", "flags", "vaSpaceSize", "vaMode")
    require(r.given["hClientShare"] in (0, r.client.handle), status.INVALID_CLIENT, "hClientShare")
    gpus = r.rm.system.gpus
    require(instance < len(gpus), status.INVALID_DEVICE, f"no device instance {instance}")
    require(gpus[instance].attached, status.INVALID_ARGUMENT, "the GPU's file is not open")
    twice = any(isinstance(c, Device) and c.gpu is gpus[instance] for c in r.client.children)
    require(not twice, status.IN_USE, "the client has this device already")
    return Device(r.handle, r.cls, r.parent, gpus[instance])


def _subdevice(r: Request) -> Node:
    require(r.given["subDeviceId"] == 0, status.INVALID_ARGUMENT, "there is one subdevice, 0")
    return Subdevice(r.handle, r.cls, r.parent)


def _usermode(r: Request) -> Node:
    require(r.cls in r.parent.gpu.profile.usermodes, status.INVALID_CLASS, "not of this GPU")
    takes_parameters = r.cls >= 0xC661
    if r.parameters is not None:
        require(takes_parameters, status.INVALID_ARGUMENT, "this class takes no parameters")
        require(r.parameters["bBar1Mapping"] <= 1, status.INVALID_ARGUMENT, "bBar1Mapping")
        require(not r.parameters["bPriv"], status.INSUFFICIENT_PERMISSIONS, "bPriv")
        refused = r.parameters["bBar1Mapping"] and not r.parent.gpu.bar1_doorbell
        require(not refused, status.NOT_SUPPORTED, "no mapping through BAR1")
    return Usermode(r.handle, r.cls, r.parent)


def _va_space(r: Request) -> Node:
    flags = r.given["flags"]
    known = 0x4 | 0x8 | 0x10 | 0x40 | 0x100 | 0x1000
    require(not flags & ~known, status.INVALID_FLAGS, f"flags {flags:#x}")
    r.zero("index", "vaStartInternal", "vaLimitInternal", "bigPageSize", "pasid")
    base, size = r.given["vaBase"], r.given["vaSize"]
    require(base % PAGE == 0 and size % PAGE == 0, status.INVALID_ADDRESS, "unaligned")
    limit = 1 << r.parent.gpu.profile.va_bits
    require(base + size <= limit, status.OUT_OF_RANGE, "larger than the GPU can address")
    if not size:
        r.given["vaSize"] = limit - base
    return VaSpace(r.handle, r.cls, r.parent, flags, base)


def _video_memory(r: Request) -> Node:
    require(r.given["attr"] >> 25 & 3 in (0, 3), status.INVALID_ARGUMENT, "LOCATION is not video")
    return _memory(r, "video")


def _system_memory(r: Request) -> Node:
    require(r.given["attr"] >> 25 & 3 in (1, 3), status.INVALID_ARGUMENT, "LOCATION is not PCI")
    return _memory(r, "system")


def _memory(r: Request, place: str) -> Node:
    gpu, p = r.parent.gpu, r.given
    require(p["size"], status.INVALID_ARGUMENT, "no bytes")
    require(p["type"] in (0, 13), status.INVALID_ARGUMENT, f"type {p['type']}")
    require(not p["flags"] & ~0x1C181, status.INVALID_ARGUMENT, f"flags {p['flags']:#x}")
    page = _page_size(r)
    r.zero("width", "height", "pitch", "format", "comprCovg", "zcullCovg", "rangeLo", "rangeHi")
    r.zero("offset", "ctagOffset", "hVASpace", "internalflags", "numaNode")
    alignment = p["alignment"] if p["flags"] & 0x180 else PAGE
    require(alignment in _POWERS, status.INVALID_ARGUMENT, f"alignment {alignment:#x}")
    if place == "system":
        page = max(page, PAGE)
    elif not page:
        page = _MIB2 if p["size"] >= _MIB2 else _KIB64
    nbytes = -(-p["size"] // page) * page
    memory = gpu.system.allocate(gpu, nbytes, place)
    p["size"], p["limit"] = nbytes, nbytes - 1
    return MemoryNode(r.handle, r.cls, r.parent, memory)


def _page_size(r: Request) -> int:
    attr, attr2 = r.given["attr"], r.given["attr2"]
    known = 0x3 << 23 | 0x3 << 25 | 0x3 << 27 | 0x7 << 29
    require(not attr & ~known, status.INVALID_ARGUMENT, f"attr {attr:#x}")
    known = 0x3 | 0x3 << 2 | 0x3 << 4 | 0x3 << 20 | 0x3 << 22
    require(not attr2 & ~known, status.INVALID_ARGUMENT, f"attr2 {attr2:#x}")
    huge = attr2 >> 20 & 3
    kind = attr >> 23 & 3
    require(kind == 3 or not huge, status.INVALID_ARGUMENT, "huge pages without PAGE_SIZE 3")
    require(huge < 2, status.NOT_SUPPORTED, "512 MiB and larger pages are not faked")
    return {0: 0 if r.cls == 0x40 else PAGE, 1: PAGE, 2: _KIB64, 3: _MIB2}[kind]


def _virtual_range(r: Request) -> Node:
    space = _managed_space(r)
    limit = r.given["limit"] or (1 << r.parent.gpu.profile.va_bits) - 1
    base = r.given["offset"]
    require(base <= limit, status.INVALID_LIMIT, "the limit is below the offset")
    return VirtualMemory(r.handle, r.cls, r.parent, space, base, limit + 1 - base)


def _virtual_memory(r: Request) -> Node:
    space, p = _managed_space(r), r.given
    require(p["flags"] & 0x80000, status.INVALID_ARGUMENT, "the VIRTUAL flag is missing")
    require(p["size"], status.INVALID_ARGUMENT, "no bytes")
    alignment = max(p["alignment"], _KIB64)
    nbytes = -(-p["size"] // PAGE) * PAGE
    if p["flags"] & 0x10:  # at a fixed address
        base = p["offset"]
    else:
        base = -(-space.next_address // alignment) * alignment
        space.next_address = base + nbytes
    p["offset"], p["size"], p["limit"] = base, nbytes, nbytes - 1
    return VirtualMemory(r.handle, r.cls, r.parent, space, base, nbytes)


def _managed_space(r: Request) -> VaSpace:
    space = r.client.find(r.given["hVASpace"], VaSpace)
    assert isinstance(space, VaSpace)
    require(not space.external, status.NOT_SUPPORTED, "the VA space is owned by UVM")
    return space


def _tsg(r: Request) -> Node:
    space = r.client.find(r.given["hVASpace"], VaSpace)
    engine, gpu = r.given["engineType"], r.parent.gpu
    r.zero("hObjectEccError", "bIsCallingContextVgpuPlugin")
    require(space.gpu is gpu, status.INVALID_ARGUMENT, "the VA space is of another GPU")
    known = engine == ENGINE_GR0 or gpu.copy_engine(engine) is not None
    require(known, status.INVALID_ARGUMENT, f"no engine type {engine:#x}")
    assert isinstance(space, VaSpace)
    error = r.given["hObjectError"]
    node = r.client.find(error, MemoryNode) if error else None
    tsg = Tsg(r.handle, r.cls, r.parent, space, engine)
    tsg.notifier = node.memory if isinstance(node, MemoryNode) else None
    return tsg


def _context_share(r: Request) -> Node:
    tsg = r.parent
    assert isinstance(tsg, Tsg)
    require(r.given["flags"] in (0, 1, 3), status.INVALID_ARGUMENT, "flags")
    space = r.client.find(r.given["hVASpace"], VaSpace)
    require(space is tsg.space, status.INVALID_ARGUMENT, "not the VA space of the group")
    r.given["subctxId"] = sum(isinstance(c, ContextShare) for c in tsg.children)
    return ContextShare(r.handle, r.cls, tsg)


def _channel(r: Request) -> Node:
    tsg, p = r.parent, r.given
    assert isinstance(tsg, Tsg)
    gpu = tsg.gpu
    require(r.cls in gpu.profile.channels, status.INVALID_CLASS, "not of this GPU")
    require(not p["hVASpace"], status.INVALID_ARGUMENT, "hVASpace of a channel in a group")
    engine = p["engineType"]
    require(engine in (0, tsg.engine), status.INVALID_ARGUMENT, "not the engine of the group")
    require(not p["flags"] & 1 << 5, status.INSUFFICIENT_PERMISSIONS, "a privileged channel")
    require(not p["flags"] & ~0x10, status.INVALID_ARGUMENT, f"flags {p['flags']:#x}")
    r.zero("cid", "subDeviceId", "hObjectEccError", "descriptors", "ProcessID", "SubProcessID")
    r.zero("keys", "tpcConfigID")
    _check_ring(p)
    require(len(gpu.channels) < gpu.profile.max_channels, status.NO_FREE_FIFOS, "no channels left")
    share = _share_of(r, tsg)
    ring, userd, notifier = _channel_memory(r)
    channel = Channel(r.handle, r.cls, tsg)
    channel.share, channel.ring, channel.entries = share, p["gpFifoOffset"], p["gpFifoEntries"]
    channel.userd, channel.userd_offset = userd.memory, p["userdOffset"]
    channel.notifier = notifier.memory if notifier else None
    channel.buffers = [node for node in (ring, userd, notifier) if node is not None]
    for node in channel.buffers:
        node.used_by.add(channel)
    gpu.add_channel(channel)
    return channel


def _check_ring(p: View) -> None:
    ring, entries = p["gpFifoOffset"], p["gpFifoEntries"]
    require(entries in _POWERS and entries >= 4, status.INVALID_ARGUMENT, f"{entries} entries")
    good = ring and ring % 8 == 0 and ring + 8 * entries <= LOW_LIMIT
    require(good, status.INVALID_ARGUMENT, f"the ring at {ring:#x}")
    for name in ("hUserdMemory", "userdOffset"):
        require(not any(p.elements(name)[1:]), status.INVALID_ARGUMENT, f"{name} of subdevices")


def _share_of(r: Request, tsg: Tsg) -> ContextShare | None:
    handle = r.given["hContextShare"]
    share = r.client.find(handle, ContextShare) if handle else None
    same = share is None or share.parent is tsg
    require(same, status.INVALID_ARGUMENT, "the context share is of another group")
    mixed = any((c.share is None) != (share is None) for c in tsg.channels)
    require(not mixed, status.INVALID_ARGUMENT, "all channels of a group have a share, or none")
    assert share is None or isinstance(share, ContextShare)
    return share


def _channel_memory(r: Request) -> tuple[MemoryNode | None, MemoryNode, MemoryNode | None]:
    p, find = r.given, r.client.find
    ring = find(p["hObjectBuffer"], MemoryNode) if p["hObjectBuffer"] else None
    userd = find(p["hUserdMemory"], MemoryNode)
    notifier = find(p["hObjectError"], MemoryNode) if p["hObjectError"] else None
    assert isinstance(userd, MemoryNode)
    offset = p["userdOffset"]
    good = offset % 512 == 0 and offset + 512 <= userd.memory.nbytes
    require(good, status.INVALID_ARGUMENT, f"USERD at offset {offset:#x}")
    if notifier is None:
        r.rm.system.complain("a channel without error notifier: its faults are silent")
    assert ring is None or isinstance(ring, MemoryNode)
    assert notifier is None or isinstance(notifier, MemoryNode)
    return ring, userd, notifier


def _compute(r: Request) -> Node:
    channel = _free_channel(r)
    require(r.cls == channel.gpu.profile.compute, status.INVALID_CLASS, "not of this GPU")
    graphics = channel.tsg.engine == ENGINE_GR0
    require(graphics, status.INVALID_CLASS, "compute on a copy engine's channel")
    if r.parameters is not None:
        require(r.parameters["size"] == 16, status.INVALID_ARGUMENT, "size")
        require(r.parameters["version"] == 2, status.INVALID_ARGUMENT, "version")
    return Engine(r.handle, r.cls, channel)


def _dma_copy(r: Request) -> Node:
    channel = _free_channel(r)
    gpu = channel.gpu
    require(r.cls == gpu.profile.copy, status.INVALID_CLASS, "not of this GPU")
    engine = _copy_engine_asked_for(r, gpu)
    if channel.tsg.engine == ENGINE_GR0:
        partner = engine is None or gpu.is_graphics_copy(engine)
        require(partner, status.INVALID_CLASS, "the copy engine is not on the graphics runlist")
    elif engine is None:
        if gpu.profile.wide:  # seen on Hopper: without parameters it goes to runlist 0
            gpu.move_channel(channel, 0)
    else:
        own = gpu.copy_engine(channel.tsg.engine)
        require(engine == own, status.INVALID_CLASS, "not the copy engine of the group")
    return Engine(r.handle, r.cls, channel)


def _free_channel(r: Request) -> Channel:
    channel = r.parent
    assert isinstance(channel, Channel)
    twice = any(e.cls == r.cls for e in channel.engines)
    require(not twice, status.IN_USE, "the channel has this object already")
    return channel


def _copy_engine_asked_for(r: Request, gpu: FakeGpu) -> int | None:
    if r.parameters is None:
        return None
    version, value = r.parameters["version"], r.parameters["engineType"]
    require(version <= 1, status.INVALID_ARGUMENT, f"version {version}")
    if version == 0:
        present = gpu.profile.copy_engines >> value & 1
        require(present, status.INVALID_ARGUMENT, f"no copy engine {value}")
        return value
    engine = gpu.copy_engine(value)
    require(engine is not None, status.INVALID_ARGUMENT, f"no copy engine of type {value:#x}")
    return engine


def _debugger(r: Request) -> Node:
    client = r.rm.client(r.given["hAppClient"])
    engine = client.find(r.given["hClass3dObject"], Engine)
    r.zero("obsolete")
    assert isinstance(engine, Engine)
    return Debugger(r.handle, r.cls, r.parent, engine)


def register_host_memory(r: Request, address: int, nbytes: int, flags: int) -> Node:
    """Class 0x71, which comes by RM_ALLOC_MEMORY: pages of the process."""
    from tests.emulators.nv.userspace import accessible

    require(flags >> 30 == 1, status.NOT_SUPPORTED, "MAPPING is not NO_MAP")
    require(not flags >> 8 & 0xF, status.NOT_SUPPORTED, "LOCATION is not PCI")
    require(flags >> 4 & 0xF == 1, status.NOT_SUPPORTED, "not marked as non-contiguous")
    require(flags >> 12 & 0xF in (0, 1, 2, 5), status.INVALID_ARGUMENT, "COHERENCY")
    known = 0xC000FFF0 | 1 << 18 | 1 << 21 | 1 << 22
    require(not flags & ~known, status.INVALID_ARGUMENT, f"flags {flags:#x}")
    require(address % PAGE == 0 and address, status.INVALID_ARGUMENT, "pMemory is not aligned")
    require(nbytes % PAGE == 0 and nbytes, status.INVALID_LIMIT, "limit + 1 is not whole pages")
    require(accessible(address, nbytes), status.INVALID_ADDRESS, "pages that cannot be pinned")
    read_only = bool(flags & (1 << 21 | 1 << 22))
    gpu = r.parent.gpu
    memory = Memory(
        nbytes, "host", gpu.index, lambda: None, host_address=address, read_only=read_only
    )
    memory.cpu_views.append((address, 0))
    return MemoryNode(r.handle, r.cls, r.parent, memory)


_CHANNELS = (0xC56F, 0xC86F, 0xC96F, 0xCA6F)
_COMPUTE = (0xC6C0, 0xC7C0, 0xC9C0, 0xCBC0, 0xCDC0, 0xCEC0)
_COPY = (0xC6B5, 0xC7B5, 0xC8B5, 0xC9B5, 0xCAB5)
_USERMODE = (0xC361, 0xC461, 0xC561, 0xC661, 0xC761)

CLASSES: dict[int, Class] = {
    0x80: Class(Client, "NV0080", _device),
    0x2080: Class(Device, "NV2080", _subdevice),
    0x90F1: Class(Device, "VASPACE", _va_space),
    0x40: Class(Device, "MEMORY", _video_memory),
    0x3E: Class(Device, "MEMORY", _system_memory),
    0x70: Class(Device, "MEMORY_VIRTUAL", _virtual_range),
    0x50A0: Class(Device, "MEMORY", _virtual_memory),
    0xA06C: Class(Device, "TSG", _tsg),
    0x9067: Class(Tsg, "CTXSHARE", _context_share),
    0x83DE: Class(Device, "NV83DE", _debugger),
    **{c: Class(Subdevice, "USERMODE", _usermode) for c in _USERMODE},
    **{c: Class(Tsg, "CHANNEL", _channel) for c in _CHANNELS},
    **{c: Class(Channel, "GR", _compute) for c in _COMPUTE},
    **{c: Class(Channel, "DMA_COPY", _dma_copy) for c in _COPY},
}


def allocate(request: Request) -> Any:
    """Make the object. Raises Refused."""
    known = CLASSES[request.cls]
    right_parent = isinstance(request.parent, known.parents)
    require(right_parent, status.INVALID_OBJECT_PARENT, f"parent is {request.parent}")
    return known.make(request)
