"""RM_CONTROL: the commands, the exact size of their parameters, and their answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.emulators.nv import status
from tests.emulators.nv.layout import Versioned, at_version
from tests.emulators.nv.objects import (
    Channel,
    Client,
    Debugger,
    Device,
    Engine,
    Node,
    Subdevice,
    Tsg,
)
from tests.emulators.nv.status import Refused, require
from tests.emulators.nv.userspace import copy_in, copy_out

if TYPE_CHECKING:
    from tests.emulators.nv.rm import ResourceManager

_NONE = 0xFFFF_FFFF
_LONGEST_LIST = 1024


class Parameters:
    """A control's parameter block, by offset."""

    def __init__(self, rm: ResourceManager, node: Node, data: bytearray) -> None:
        self.rm, self.node, self.data = rm, node, data

    def get(self, offset: int, nbytes: int = 4) -> int:
        return int.from_bytes(self.data[offset : offset + nbytes], "little")

    def put(self, offset: int, value: int, nbytes: int = 4) -> None:
        self.text(offset, value.to_bytes(nbytes, "little"))

    def text(self, offset: int, value: bytes) -> None:
        assert offset + len(value) <= len(self.data)
        self.data[offset : offset + len(value)] = value

    def no_route(self, offset: int) -> None:
        """A GR route, which is zero without MIG."""
        require(not any(self.data[offset : offset + 16]), status.INVALID_ARGUMENT, "a GR route")


@dataclass(frozen=True)
class Command:
    """One control command."""

    name: str
    on: type[Node] | tuple[type[Node], ...]
    size: Versioned
    act: Callable[[Parameters], None]


def _gpu_of_id(p: Parameters, gpu_id: int) -> int:
    for gpu in p.rm.system.gpus:
        if gpu.gpu_id == gpu_id:
            return gpu.index
    raise Refused(status.INVALID_ARGUMENT, f"no GPU has the id {gpu_id:#x}")


# on the client


def _build_version(p: Parameters) -> None:
    room = p.get(0)
    require(room >= 64, status.BUFFER_TOO_SMALL, "sizeOfStrings")
    for offset in (8, 0x10, 0x18):
        require(p.get(offset, 8), status.INVALID_POINTER, "a string's buffer")
        copy_out(p.get(offset, 8), p.rm.system.driver.encode() + b"\0")


def _build_version_2(p: Parameters) -> None:
    p.text(0, p.rm.system.driver.encode())


def _attached_ids(p: Parameters) -> None:
    ids = [gpu.gpu_id for gpu in p.rm.system.gpus if gpu.attached]
    for i in range(32):
        p.put(4 * i, ids[i] if i < len(ids) else _NONE)


def _probed_ids(p: Parameters) -> None:
    ids = [gpu.gpu_id for gpu in p.rm.system.gpus]
    for i in range(32):
        p.put(4 * i, ids[i] if i < len(ids) else _NONE)
        p.put(0x80 + 4 * i, _NONE)


def _attach_ids(p: Parameters) -> None:
    if p.get(0) == 0xFFFF:
        for gpu in p.rm.system.gpus:
            gpu.attached_by_id = True
        return
    for i in range(32):
        if p.get(4 * i) != _NONE:
            p.rm.system.gpus[_gpu_of_id(p, p.get(4 * i))].attached_by_id = True


def _id_info(p: Parameters) -> None:
    gpu = p.rm.system.gpus[_gpu_of_id(p, p.get(0))]
    require(gpu.attached, status.INVALID_ARGUMENT, "the GPU is not attached")
    values = {4: 0, 8: gpu.index, 0xC: 0, 0x10: 0, 0x14: gpu.index, 0x18: gpu.index, 0x1C: _NONE}
    for offset, value in values.items():
        p.put(offset, value)


def _pci_info(p: Parameters) -> None:
    gpu = p.rm.system.gpus[_gpu_of_id(p, p.get(0))]
    p.put(4, 0)
    p.put(8, gpu.bus, 2)
    p.put(0xA, 0, 2)


def _uuid_info(p: Parameters) -> None:
    for gpu in p.rm.system.gpus:
        if bytes(p.data[:16]) == gpu.uuid:
            p.put(0x104, gpu.gpu_id)
            p.put(0x108, gpu.index)
            p.put(0x10C, 0)
            return
    raise Refused(status.OBJECT_NOT_FOUND, "no GPU has this UUID")


def _peer_caps(p: Parameters) -> None:
    count = p.get(0x80)
    require(1 <= count <= 32, status.INVALID_ARGUMENT, "gpuCount")
    indices = [_gpu_of_id(p, p.get(4 * i)) for i in range(count)]
    pairs = [(a, b) for a in indices for b in indices if a != b]
    able = all(p.rm.system.peers_possible(a, b) for a, b in pairs)
    p.put(0x84, 0b101_0011 if able and pairs else 0)  # writes, reads, atomics, PCI
    for i in range(9):
        p.put(0x90 + 4 * i, 0 if able else 5)


# on the device


def _class_list(p: Parameters) -> None:
    classes = p.node.gpu.profile.classes
    if p.get(8, 8):
        require(p.get(0) >= len(classes), status.BUFFER_TOO_SMALL, "numClasses")
        copy_out(p.get(8, 8), b"".join(c.to_bytes(4, "little") for c in classes))
    p.put(0, len(classes))


def _class_list_2(p: Parameters) -> None:
    classes = p.node.gpu.profile.classes
    p.put(0, len(classes))
    for i, cls in enumerate(classes):
        p.put(4 + 4 * i, cls)


def _one(p: Parameters) -> None:
    p.put(0, 1)


def _nothing(p: Parameters) -> None:
    p.data[:] = bytes(len(p.data))


def _channel_list(p: Parameters) -> None:
    """Hardware numbers of channels by their handles."""
    count = p.get(0)
    require(count <= _LONGEST_LIST, status.INVALID_ARGUMENT, f"{count} channels")
    handles = copy_in(p.get(8, 8), 4 * count)
    numbers = b""
    for i in range(count):
        handle = int.from_bytes(handles[4 * i : 4 * i + 4], "little")
        channel = p.node.client.find(handle, Channel)
        assert isinstance(channel, Channel)
        numbers += channel.number.to_bytes(4, "little")
    copy_out(p.get(0x10, 8), numbers)


# on the subdevice


def _info_list(p: Parameters, values: dict[int, int]) -> None:
    """A list of pairs behind a pointer: index in, value out."""
    count, where = p.get(0), p.get(8, 8)
    require(count and where, status.INVALID_POINTER, "no list")
    require(count <= _LONGEST_LIST, status.INVALID_ARGUMENT, f"{count} entries")
    pairs = copy_in(where, 8 * count)
    for i in range(count):
        pairs[8 * i + 4 : 8 * i + 8] = _info(p, values, pairs[8 * i : 8 * i + 4])
    copy_out(where, pairs)


def _info_inline(p: Parameters, values: dict[int, int], slots: int) -> None:
    count = p.get(0)
    require(count <= slots, status.INVALID_ARGUMENT, f"{count} of {slots} entries")
    for i in range(count):
        at = 4 + 8 * i
        p.data[at + 4 : at + 8] = _info(p, values, p.data[at : at + 4])


def _info(p: Parameters, values: dict[int, int], index: bytearray) -> bytes:
    number = int.from_bytes(index, "little")
    if number not in values:
        p.rm.system.complain(f"info index {number:#x} is not faked")
        raise Refused(status.INVALID_ARGUMENT, f"info index {number:#x}")
    return values[number].to_bytes(4, "little")


def _gr_values(p: Parameters) -> dict[int, int]:
    profile = p.node.gpu.profile
    return {
        0x07: sum(mask != 0 for mask in profile.tpc_masks),
        0x08: 1,
        0x0A: 4,
        0x0B: 65536,
        0x0C: profile.sm_version,
        0x0D: profile.max_warps,
        0x0E: 32,
        0x13: 128 if profile.max_warps == 48 else 64,
        0x14: len(profile.tpc_masks),
        0x17: profile.tpc_slots,
        0x1D: profile.sms * 128,
        0x20: profile.sms_per_tpc,
        0x22: profile.sms,
        0x23: 4 * profile.sms,
        0x2C: 64,
    }


def _gr_info(p: Parameters) -> None:
    p.no_route(0x10)
    _info_list(p, _gr_values(p))


def _gr_info_2(p: Parameters) -> None:
    slots = (len(p.data) - 24) // 8
    _info_inline(p, _gr_values(p), slots)


def _fb_values(p: Parameters) -> dict[int, int]:
    gpu = p.node.gpu
    total, free = gpu.profile.vram >> 10, (gpu.profile.vram - gpu.used) >> 10
    bar1, bar1_free = gpu.profile.bar1 >> 10, (gpu.profile.bar1 - gpu.bar1_used) >> 10
    sizes = {0x05: bar1, 0x1D: bar1_free, 0x07: total, 0x08: total, 0x20: total}
    return {**sizes, 0x09: total, 0x16: free, 0x0B: 5120, 0x1B: 32 << 20}


def _fb_info(p: Parameters) -> None:
    _info_list(p, _fb_values(p))


def _fb_info_2(p: Parameters) -> None:
    _info_inline(p, _fb_values(p), (len(p.data) - 4) // 8)


def _gpc_mask(p: Parameters) -> None:
    p.no_route(0)
    p.put(0x10, sum(1 << i for i, mask in enumerate(p.node.gpu.profile.tpc_masks) if mask))


def _tpc_mask(p: Parameters) -> None:
    p.no_route(0)
    masks, gpc = p.node.gpu.profile.tpc_masks, p.get(0x10)
    require(gpc < len(masks) and masks[gpc], status.INVALID_ARGUMENT, f"no GPC {gpc}")
    p.put(0x14, masks[gpc])


def _sm_order(p: Parameters) -> None:
    at = len(p.data) - 24  # behind the 512 entries
    require(not any(p.data[at + 8 :]), status.INVALID_ARGUMENT, "a GR route")
    profile = p.node.gpu.profile
    width = at // 512  # of an entry, which grew, too
    for sm in range(profile.sms):
        p.put(width * sm + 4, sm % profile.sms_per_tpc, 2)
        p.put(width * sm + 6, sm // profile.sms_per_tpc, 2)
    p.put(at, profile.sms, 2)
    p.put(at + 2, profile.sms // profile.sms_per_tpc, 2)


def _context_size(p: Parameters) -> None:
    node = p.node.client.find(p.get(0), Channel)
    p.put(8, node.gpu.profile.context_bytes, 8)


def _preemption(p: Parameters) -> None:
    p.node.client.find(p.get(4), Channel)
    require(p.get(0) in (1, 2, 3), status.INVALID_ARGUMENT, "flags")
    require(p.get(0xC) <= 2, status.INVALID_ARGUMENT, "mode")


def _flush(p: Parameters) -> None:
    require(not p.get(0xFB0) & ~0x37, status.INVALID_ARGUMENT, "flags")


def _architecture(p: Parameters) -> None:
    profile = p.node.gpu.profile
    p.put(0, profile.architecture)
    p.put(4, profile.implementation)
    p.put(8, 0xA1)
    p.put(0xC, 0, 1)


def _gpu_name(p: Parameters) -> None:
    if len(p.data) == 132:  # flags first, room for two alphabets
        require(p.get(0) == 0, status.INVALID_ARGUMENT, "only ASCII is faked")
    p.text(4, p.node.gpu.profile.name.encode().ljust(64, b"\0"))


def _gid(p: Parameters) -> None:
    require(p.get(0) == 0, status.INVALID_ARGUMENT, "index")
    gpu = p.node.gpu
    require(p.get(4) in (0, 2), status.INVALID_ARGUMENT, "flags")
    text = gpu.uuid if p.get(4) == 2 else gpu.uuid_text.encode() + b"\0"
    p.put(8, len(text))
    p.text(0xC, text)


def _compute_mode(p: Parameters) -> None:
    p.put(0, p.node.gpu.compute_mode)


def _partners(p: Parameters) -> None:
    gpu = p.node.gpu
    found = [gpu.copy_type(n) for n in gpu.copies if gpu.is_graphics_copy(n)]
    p.put(0xC, len(found))
    for i, engine in enumerate(found):
        p.put(0x10 + 4 * i, engine)


def _engines(p: Parameters) -> None:
    gpu = p.node.gpu
    found = [1, *(gpu.copy_type(n) for n in gpu.copies)]
    p.put(0, len(found))
    for i, engine in enumerate(found):
        p.put(4 + 4 * i, engine)


def _copy_caps(p: Parameters) -> None:
    profile = p.node.gpu.profile
    engines, width = (64, 8) if len(p.data) == 136 else (32, 4)
    for n in range(engines):
        p.put(2 * n, profile.copy_engines & profile.graphics_copies & 1 << n != 0, 1)
    p.put(2 * engines, profile.copy_engines, width)


def _boost(p: Parameters) -> None:
    require(not p.get(0) & ~0x73, status.INVALID_ARGUMENT, f"flags {p.get(0):#x}")
    p.node.client.boosted[p.node.gpu.index] = p.get(0)
    p.node.gpu.boosts.append((p.get(0), p.get(4)))


# on groups and channels


def _schedule_group(p: Parameters) -> None:
    assert isinstance(p.node, Tsg)
    require(p.node.channels, status.INVALID_STATE, "a group without channels")
    _schedule(p, p.node.channels)


def _schedule_channel(p: Parameters) -> None:
    assert isinstance(p.node, Channel)
    _schedule(p, [p.node])


def _schedule(p: Parameters, channels: list[Channel]) -> None:
    require(p.get(0, 1) <= 1, status.INVALID_ARGUMENT, "bEnable")
    for channel in channels:
        require(not channel.dead, status.RC_ERROR, f"{channel} is dead")
        unknown = channel.tsg.space.external and channel.uvm is None
        require(not unknown, status.INVALID_STATE, f"{channel} is not registered with UVM")
        require(channel.engines, status.INVALID_STATE, f"{channel} has no engine object")
    for channel in channels:
        channel.scheduled = bool(p.get(0, 1))


def _bind(p: Parameters) -> None:
    tsg = p.node if isinstance(p.node, Tsg) else p.node.parent
    assert isinstance(tsg, Tsg)
    require(p.get(0) == tsg.engine, status.INVALID_ARGUMENT, "another engine")


def _accept(p: Parameters) -> None:
    """Nothing that the fake shows depends on it."""


def _token(p: Parameters) -> None:
    assert isinstance(p.node, Channel)
    require(p.node.engines, status.INVALID_STATE, "the engine object does not exist yet")
    p.put(0, p.node.token)


def _stop(p: Parameters) -> None:
    assert isinstance(p.node, Channel)
    p.node.scheduled = False
    p.node.run = None


def _engine_id(p: Parameters) -> None:
    assert isinstance(p.node, Channel)
    engine = p.node.client.find(p.get(0), Engine)
    require(engine.parent is p.node, status.INVALID_OBJECT_PARENT, "of another channel")
    p.put(4, engine.cls)
    p.put(8, engine.cls)
    p.put(0xC, p.node.tsg.engine)


def _channel_fault(p: Parameters) -> None:
    assert isinstance(p.node, Channel)
    p.data[:] = bytes(len(p.data))
    for fault in p.node.mmu_faults[:1]:
        p.put(0, fault.address >> 32)
        p.put(4, fault.address & _NONE)
        p.put(8, fault.kind)
        p.text(0xC, f"FAULT_{fault.kind}".encode())


# on the debugger


def _sm_errors(p: Parameters) -> None:
    assert isinstance(p.node, Debugger)
    channel = p.node.engine.parent
    assert isinstance(channel, Channel)
    asked, count, start = p.get(0), p.get(4), p.get(0x12D4)
    require(asked in (0, channel.handle), status.INVALID_CHANNEL, "hTargetChannel")
    require(count <= 100, status.INVALID_ARGUMENT, "numSMsToRead")
    p.text(8, bytes(48 * 100))
    for i, error in enumerate(channel.sm_errors[start : start + count]):
        at = 8 + 48 * i
        p.put(at + 4, error[0])
        p.put(at + 8, error[1] & _NONE)
        p.put(at + 0x18, error[2], 8)
        p.put(at + 0x20, error[1], 8)
    p.put(0x12CC, bool(channel.mmu_faults), 1)
    p.put(0x12D0, channel.mmu_faults[0].kind if channel.mmu_faults else 0)


def _clear_sm_errors(p: Parameters) -> None:
    assert isinstance(p.node, Debugger) and isinstance(p.node.engine.parent, Channel)
    p.node.engine.parent.sm_errors.clear()


def _mmu_faults(p: Parameters) -> None:
    assert isinstance(p.node, Debugger)
    channel = p.node.engine.parent
    assert isinstance(channel, Channel)
    found = channel.mmu_faults[:4]
    for i, fault in enumerate(found):
        p.put(16 * i, fault.address, 8)
        p.put(16 * i + 8, fault.kind)
        p.put(16 * i + 12, fault.access)
    p.put(0x40, len(found))


COMMANDS: dict[int, Command] = {
    0x101: Command("SYSTEM_GET_BUILD_VERSION", Client, 40, _build_version),
    0x13E: Command("SYSTEM_GET_BUILD_VERSION_V2", Client, {0: 776, 570: 1032}, _build_version_2),
    0x201: Command("GPU_GET_ATTACHED_IDS", Client, 128, _attached_ids),
    0x205: Command("GPU_GET_ID_INFO_V2", Client, 32, _id_info),
    0x214: Command("GPU_GET_PROBED_IDS", Client, {0: 256, 580: 384}, _probed_ids),
    0x215: Command("GPU_ATTACH_IDS", Client, 132, _attach_ids),
    0x21B: Command("GPU_GET_PCI_INFO", Client, 12, _pci_info),
    0x274: Command("GPU_GET_UUID_INFO", Client, 272, _uuid_info),
    0x12B: Command("SYSTEM_GET_P2P_CAPS_V2", Client, {0: 4252, 550: 8348}, _peer_caps),
    0x800201: Command("GPU_GET_CLASSLIST", Device, 16, _class_list),
    0x800292: Command(
        "GPU_GET_CLASSLIST_V2", Device, {0: 644, 550: 700, 570: 404, 580: 804}, _class_list_2
    ),
    0x800280: Command("GPU_GET_NUM_SUBDEVICES", Device, 4, _one),
    0x800289: Command("GPU_GET_VIRTUALIZATION_MODE", Device, {0: 4, 570: 8}, _nothing),
    0x80170D: Command("FIFO_GET_CHANNELLIST", Device, 24, _channel_list),
    0x20801201: Command("GR_GET_INFO", Subdevice, 32, _gr_info),
    0x20801228: Command(
        "GR_GET_INFO_V2", Subdevice, {0: 448, 550: 472, 570: 488, 590: 496}, _gr_info_2
    ),
    0x2080122A: Command("GR_GET_GPC_MASK", Subdevice, 24, _gpc_mask),
    0x2080122B: Command("GR_GET_TPC_MASK", Subdevice, 24, _tpc_mask),
    0x2080121B: Command(
        "GR_GET_GLOBAL_SM_ORDER", Subdevice, {0: 6168, 575: 7192, 580: 9240}, _sm_order
    ),
    0x20801218: Command("GR_GET_CTX_BUFFER_SIZE", Subdevice, 16, _context_size),
    0x20801210: Command("GR_SET_CTXSW_PREEMPTION_MODE", Subdevice, 32, _preemption),
    0x20801301: Command("FB_GET_INFO", Subdevice, 16, _fb_info),
    0x20801303: Command(
        "FB_GET_INFO_V2", Subdevice, {0: 436, 550: 444, 570: 460, 580: 1028}, _fb_info_2
    ),
    0x2080130E: Command("FB_FLUSH_GPU_CACHE", Subdevice, 4024, _flush),
    0x20801701: Command("MC_GET_ARCH_INFO", Subdevice, 16, _architecture),
    0x20800110: Command("GPU_GET_NAME_STRING", Subdevice, {0: 132, 595: 68}, _gpu_name),
    0x2080014A: Command("GPU_GET_GID_INFO", Subdevice, 268, _gid),
    0x20800131: Command("GPU_QUERY_COMPUTE_MODE_RULES", Subdevice, 4, _compute_mode),
    0x20800119: Command("GPU_GET_SIMULATION_INFO", Subdevice, 4, _nothing),
    0x20800147: Command("GPU_GET_ENGINE_PARTNERLIST", Subdevice, 144, _partners),
    0x20800170: Command("GPU_GET_ENGINES_V2", Subdevice, {0: 252, 550: 260, 570: 340}, _engines),
    0x20802A0A: Command("CE_GET_ALL_CAPS", Subdevice, {0: 68, 550: 136}, _copy_caps),
    0x2080200A: Command("PERF_BOOST", Subdevice, 8, _boost),
    0xA06C0101: Command("TSG_GPFIFO_SCHEDULE", Tsg, {0: 2, 575: 3}, _schedule_group),
    0xA06C0102: Command("TSG_BIND", Tsg, 4, _bind),
    0xA06C0103: Command("TSG_SET_TIMESLICE", Tsg, 8, _accept),
    0xA06C0105: Command("TSG_PREEMPT", Tsg, 8, _accept),
    0xA06C0107: Command("TSG_SET_INTERLEAVE_LEVEL", Tsg, 4, _accept),
    0xC36F0108: Command("GPFIFO_GET_WORK_SUBMIT_TOKEN", Channel, 4, _token),
    0xA06F0103: Command("GPFIFO_SCHEDULE", Channel, {0: 2, 575: 3}, _schedule_channel),
    0xA06F0104: Command("BIND", Channel, 4, _bind),
    0xA06F0108: Command("SET_ERROR_NOTIFIER", Channel, 1, _accept),
    0xA06F0112: Command("STOP_CHANNEL", Channel, 1, _stop),
    0x906F0101: Command("GET_CLASS_ENGINEID", Channel, 16, _engine_id),
    0x906F0106: Command("GET_MMU_FAULT_INFO", Channel, 104, _channel_fault),
    0x83DE030C: Command("READ_ALL_SM_ERROR_STATES", Debugger, 4824, _sm_errors),
    0x83DE0310: Command("CLEAR_ALL_SM_ERROR_STATES", Debugger, 8, _clear_sm_errors),
    0x83DE0328: Command("READ_MMU_FAULT_INFO", Debugger, 72, _mmu_faults),
}


def name(command: int) -> str:
    """A command in words."""
    return COMMANDS[command].name if command in COMMANDS else f"{command:#x}"


def control(rm: ResourceManager, node: Node, number: int, where: int, nbytes: int) -> None:
    """Run a command on an object. Raises Refused."""
    injected = rm.system.inject_command(name(number), number)
    require(injected is None, injected or 0, "injected")
    if number not in COMMANDS:
        rm.system.complain(f"control {number:#x} is not faked")
        raise Refused(status.NOT_SUPPORTED, f"control {number:#x}")
    command = COMMANDS[number]
    if not isinstance(node, command.on):
        rm.system.complain(f"{command.name} on {node}")
        raise Refused(status.NOT_SUPPORTED, f"{command.name} on {node}")
    size = at_version(command.size, rm.system.major)
    require(nbytes == size, status.INVALID_ARGUMENT, f"{command.name} has {size} bytes")
    require(where, status.INVALID_POINTER, "no parameters")
    data = copy_in(where, size)
    command.act(Parameters(rm, node, data))
    copy_out(where, data)
