"""A GPU driven through the kernel driver.

The steps follow the order that the driver demands: device, subdevice, address space, channel
groups with their channels, registration with unified memory, and only then scheduling. What a
step sets up is undone, last first, when a later step fails and when the GPU is closed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from tg_nv.addresses import CHANNEL_WINDOW_BYTES
from tg_nv.architecture import first_of
from tg_nv.driver import facts
from tg_nv.driver import rm_structs as rm
from tg_nv.driver import status as statuses
from tg_nv.driver.client import RMClient, gpu_file, open_file
from tg_nv.driver.rm_structs import Class, Control, FbInfo, MemoryAttr, MemoryFlags
from tg_nv.driver.session import Shared, join, leave
from tg_nv.driver.status import DriverError
from tg_nv.driver.uvm_structs import UvmCall
from tg_nv.interface import (
    Channel,
    Engine,
    Fault,
    FaultReport,
    MemoryKind,
    NVInterface,
)
from tgcore.errors import DeviceError
from tgcore.hcq.files import DeviceFile, FileSystem
from tgcore.hcq.mapping import Mapping, Registers
from tgcore.hcq.memory import HCQMemory

_PAGE: Final = 4096
_BIG_PAGE: Final = 64 << 10
_HUGE_PAGE: Final = 2 << 20

RING_ENTRIES: Final = 1024
_USERD_BYTES: Final = 512
_CHANNEL_BYTES: Final = 64 << 10  # ring, then its indices
_USERD_OFFSET: Final = RING_ENTRIES * 8

_TIME_LOW: Final = 0x80
_TIME_HIGH: Final = 0x84
_DOORBELL: Final = 0x90

_COMMON_FLAGS: Final = MemoryFlags.IGNORE_BANK_PLACEMENT | MemoryFlags.MEMORY_HANDLE_PROVIDED
_FLAGS: Final = {
    Class.MEMORY_LOCAL_USER: _COMMON_FLAGS
    | MemoryFlags.ALIGNMENT_FORCE
    | MemoryFlags.MAP_NOT_REQUIRED
    | MemoryFlags.PERSISTENT_VIDMEM,
    Class.MEMORY_SYSTEM: MemoryFlags.IGNORE_BANK_PLACEMENT
    | MemoryFlags.MEMORY_HANDLE_PROVIDED
    | MemoryFlags.MAP_NOT_REQUIRED,
}
_HOST_ATTR: Final = MemoryAttr.LOCATION_PCI | MemoryAttr.ALLOW_NONCONTIGUOUS
_KINDS: Final = {
    MemoryKind.VIDEO: (Class.MEMORY_LOCAL_USER, MemoryAttr.ALLOW_NONCONTIGUOUS),
    MemoryKind.VISIBLE: (Class.MEMORY_LOCAL_USER, MemoryAttr.CONTIGUOUS),
    MemoryKind.HOST: (Class.MEMORY_SYSTEM, _HOST_ATTR | MemoryAttr.CACHED),
    MemoryKind.STREAM: (Class.MEMORY_SYSTEM, _HOST_ATTR | MemoryAttr.WRITE_COMBINED),
}


@dataclass
class _Owned:
    """What stands behind a piece of memory: the driver's object, and how to give it back."""

    handle: int
    undo: ExitStack


class IoctlInterface(NVInterface):
    """See `NVInterface`."""

    def __init__(self, files: FileSystem, index: int) -> None:
        self._channels: list[Channel] = []
        self._close_channels = ExitStack()
        self._memory: dict[int, _Owned] = {}
        self._debugger = 0
        with ExitStack() as undo:
            self.session = join(files)
            undo.callback(leave, self.session)
            self._undo = undo
            self._open(index)
            self._undo = undo.pop_all()

    @property
    def _client(self) -> RMClient:
        return self.session.client

    # *** set-up ***

    def _open(self, index: int) -> None:
        client, undo = self._client, self._undo
        card = self._card(index)
        self._minor = int(card.minor_number)
        self._file = open_file(client.files, gpu_file(self._minor))
        undo.callback(self._file.close)
        client.attach(self._file, "attaching to the GPU")
        self.gpu_id = int(card.gpu_id)
        self._device = self._make_device()
        self._subdevice = self._make(
            Class.SUBDEVICE, self._device, ("NV2080_ALLOC_PARAMETERS", {}), "a subdevice"
        )
        facts.check_compute_mode(client, self._subdevice)
        self._classes = facts.class_list(client, self._device)
        self.facts = facts.read_facts(client, self._subdevice, self._classes)
        self._registers = self._map_registers()
        self._boost()
        self._space = self._make_address_space()
        self.session.enter(self)
        undo.callback(self.session.exit, self)

    def _card(self, index: int) -> Any:
        cards = self._client.cards()
        if index >= len(cards):
            raise DeviceError(
                f"there is no NVIDIA GPU {index}",
                "",
                f"the driver knows {len(cards)}",
                "see `tgcore devices`",
            )
        return cards[index]

    def _make(
        self, kind: int, parent: int, params: tuple[str, dict[str, Any]] | None, what: str
    ) -> int:
        """Make an object that goes when the GPU is closed."""
        handle = self._client.alloc(kind, parent, params, step=f"making {what}")
        self._undo.callback(self._client.free, parent, handle, f"freeing {what}")
        return handle

    def _make_device(self) -> int:
        info = self._client.control(
            self._client.handle, Control.GPU_GET_ID_INFO_V2, "asking for the GPU's instance",
            gpuId=self.gpu_id,
        )  # fmt: skip
        params = {"deviceId": info.deviceInstance, "hClientShare": self._client.handle}
        parent = self._client.handle
        return self._make(Class.DEVICE, parent, ("NV0080_ALLOC_PARAMETERS", params), "a device")

    def _map_registers(self) -> Registers:
        """The page with doorbell and clock; through the wider window where there is one."""
        usermodes = self.facts.architecture.usermodes
        kind = first_of(usermodes, self._classes, "page of user registers")
        if kind >= 0xC661:
            try:
                return self._map_page(kind, ("NV_HOPPER_USERMODE_A_PARAMS", {"bBar1Mapping": 1}))
            except DriverError:
                pass  # this system has no such window
        return self._map_page(kind, None)

    def _map_page(self, kind: int, params: tuple[str, dict[str, Any]] | None) -> Registers:
        step = "mapping the GPU's registers"
        with ExitStack() as undo:
            page = self._client.alloc(kind, self._subdevice, params, step=step)
            undo.callback(self._client.free, self._subdevice, page, "freeing the registers' page")
            file = open_file(self._client.files, gpu_file(self._minor))
            with file_closed(file):
                nbytes = rm.USERMODE_BYTES
                self._client.map_memory(self._subdevice, page, nbytes, file, step)
                registers: Registers = self._mapped(lambda: file.registers(nbytes), step)
            undo.callback(registers.close)
            self._undo.push(undo.pop_all())
            return registers

    def _mapped(self, make: Any, step: str) -> Any:
        try:
            return make()
        except OSError as error:
            text = error.strerror or str(error)
            raise DriverError(step, errno=error.errno or 0, text=text) from None

    def _boost(self) -> None:
        """Ask for full clocks: an idle GPU may stay at a fraction of them. Not vital."""
        with suppress(DriverError):
            self._client.control(
                self._subdevice, Control.PERF_BOOST, "asking for full clocks",
                flags=rm.PERF_BOOST_TO_MAX, duration=rm.FOREVER,
            )  # fmt: skip

    def _make_address_space(self) -> int:
        flags = rm.VASPACE_EXTERNALLY_OWNED | rm.VASPACE_PAGE_FAULTING
        fields = {"flags": flags, "vaBase": _PAGE}
        params = ("NV_VASPACE_ALLOCATION_PARAMETERS", fields)
        space = self._make(Class.FERMI_VASPACE, self._device, params, "an address space")
        uuid, uvm = {"uuid": self.facts.uuid}, self.session.uvm
        control_file = self._client.file.fileno()
        uvm.call(
            UvmCall.REGISTER_GPU, "registering the GPU with unified memory",
            uuid=uuid, rmCtrlFd=control_file, hClient=self._client.handle,
        )  # fmt: skip
        step = "unregistering the GPU"
        self._undo.callback(uvm.call, UvmCall.UNREGISTER_GPU, step, uuid=uuid)
        uvm.call(
            UvmCall.REGISTER_GPU_VASPACE, "registering the address space with unified memory",
            uuid=uuid, rmCtrlFd=control_file, hClient=self._client.handle, hVaSpace=space,
        )  # fmt: skip
        step = "unregistering the address space"
        self._undo.callback(uvm.call, UvmCall.UNREGISTER_GPU_VASPACE, step, uuid=uuid)
        return space

    # *** memory ***

    def alloc(self, nbytes: int, kind: MemoryKind, purpose: str) -> HCQMemory:
        self.session.check_process()
        page = _HUGE_PAGE if nbytes >= _HUGE_PAGE else _BIG_PAGE
        if kind in (MemoryKind.HOST, MemoryKind.STREAM):
            page = _PAGE
        size = max(nbytes, 1) + page - 1 & -page
        seen = kind is not MemoryKind.VIDEO
        with ExitStack() as undo:
            handle = self._alloc_object(size, page, kind, purpose, undo)
            addresses = self.session.host if seen else self.session.video
            address = addresses.take(size, max(page, _BIG_PAGE))
            undo.callback(addresses.give_back, address, size)
            view = self._map_for_host(handle, size, kind, address, undo).view if seen else None
            everywhere = kind in (MemoryKind.HOST, MemoryKind.STREAM)
            self._map_for_gpus(handle, size, address, purpose, everywhere, undo)
            visible = None if view is None else view[:nbytes]
            undo.callback(self._memory.pop, address)
            owned = self._memory[address] = _Owned(handle, undo.pop_all())
            return HCQMemory(address, nbytes, visible, owned)

    def _alloc_object(
        self, size: int, page: int, kind: MemoryKind, purpose: str, undo: ExitStack
    ) -> int:
        object_class, attr = _KINDS[kind]
        fields: dict[str, Any] = {
            "owner": self._client.handle, "flags": _FLAGS[object_class], "attr": attr,
            "size": size, "alignment": page,
        }  # fmt: skip
        if purpose == NOTIFIER:
            fields["type"] = rm.MEMORY_TYPE_NOTIFIER
        if kind is MemoryKind.VIDEO and page == _HUGE_PAGE:
            fields |= {"attr": attr | MemoryAttr.PAGE_SIZE_HUGE, "attr2": rm.ATTR2_HUGE_2MB}
        params = ("NV_MEMORY_ALLOCATION_PARAMS", fields)
        step = f"allocating {size} bytes for {purpose}"
        try:
            handle = self._client.alloc(object_class, self._device, params, step=step)
        except DriverError as error:
            if error.status == statuses.NO_MEMORY:
                raise MemoryError(step) from error
            raise
        undo.callback(self._client.free, self._device, handle, f"freeing memory for {purpose}")
        return handle

    def _map_for_host(
        self, handle: int, size: int, kind: MemoryKind, address: int, undo: ExitStack
    ) -> Mapping:
        video = kind is MemoryKind.VISIBLE
        path = gpu_file(self._minor) if video else "/dev/nvidiactl"
        step = f"mapping {size} bytes of the {'GPU' if video else 'host'}'s memory"
        file = open_file(self._client.files, path)
        with file_closed(file):
            cookie = self._client.map_memory(self._device, handle, size, file, step)
            undo.callback(self._client.unmap_memory, self._device, handle, cookie, "un" + step)
            mapping: Mapping = self._mapped(lambda: file.mmap(size, address=address), step)
        undo.callback(mapping.close)
        return mapping

    def _map_for_gpus(
        self, handle: int, size: int, address: int, purpose: str, everywhere: bool, undo: ExitStack
    ) -> None:
        uvm = self.session.uvm
        uvm.create_range(address, size, f"taking addresses for {purpose}")
        undo.callback(uvm.free_range, address, size, f"giving back addresses of {purpose}")
        shared = Shared(self, handle, address, size, everywhere)
        uuids = [gpu.facts.uuid for gpu in self.session.gpus_that_see(shared)]
        uvm.map(address, size, handle, uuids or [self.facts.uuid], f"mapping {purpose} for the GPU")
        self.session.shared[address] = shared
        undo.callback(self.session.shared.pop, address)

    def free(self, memory: HCQMemory) -> None:
        owned = memory.owner
        assert isinstance(owned, _Owned)
        owned.undo.close()

    def sees(self, other: NVInterface) -> bool:
        return isinstance(other, IoctlInterface) and self.session.are_peers(self, other)

    def free_bytes(self) -> int:
        indices = (FbInfo.HEAP_FREE,)
        step = "asking for the GPU's free memory"
        found = self._client.info(self._subdevice, Control.FB_GET_INFO, indices, step)
        return found[FbInfo.HEAP_FREE] << 10

    # *** channels ***

    def open_channel(self, engine: Engine) -> Channel:
        outer, self._undo = self._undo, ExitStack()
        try:
            with self._undo:
                channel = self._open_channel(engine)
                self._close_channels.push(self._undo.pop_all())
        finally:
            self._undo = outer
        self._channels.append(channel)
        return channel

    def _open_channel(self, engine: Engine) -> Channel:
        ring, notifier = self._channel_memory(engine)
        computes = engine is Engine.COMPUTE
        kind = rm.ENGINE_GRAPHICS if computes else self._copy_engine_type()
        group = self._make(
            Class.KEPLER_CHANNEL_GROUP, self._device,
            ("NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS",
             {"hVASpace": self._space, "engineType": kind}),
            f"a {engine.value} channel group",
        )  # fmt: skip
        context = self._make_context(group) if computes else 0
        channel = self._make_channel(engine, kind, group, context, ring, notifier)
        engine_class = self._make_engine(engine, kind, channel)
        step = "asking for the doorbell's token"
        token = self._client.control(
            channel, Control.GPFIFO_GET_WORK_SUBMIT_TOKEN, step, token=rm.FOREVER
        ).token
        self._register(channel)
        self._client.control(group, Control.GPFIFO_SCHEDULE, "scheduling a channel", bEnable=1)
        assert ring.view is not None and notifier.view is not None
        return Channel(
            engine,
            ring.view[:_USERD_OFFSET].cast("Q"),
            ring.view[_USERD_OFFSET : _USERD_OFFSET + _USERD_BYTES].cast("I"),
            notifier.view,
            int(token),
            engine_class,
            channel,
        )

    def _channel_memory(self, engine: Engine) -> tuple[HCQMemory, HCQMemory]:
        ring = self.alloc(_CHANNEL_BYTES, MemoryKind.VISIBLE, f"the {engine.value} channel's ring")
        self._undo.callback(self.free, ring)
        notifier = self.alloc(_PAGE, MemoryKind.HOST, NOTIFIER)
        self._undo.callback(self.free, notifier)
        for memory in (ring, notifier):
            assert memory.view is not None
            memory.view[:] = bytes(memory.nbytes)
        return ring, notifier

    def _make_context(self, group: int) -> int:
        fields = {"hVASpace": self._space, "flags": rm.CTXSHARE_ASYNC}
        params = ("NV_CTXSHARE_ALLOCATION_PARAMETERS", fields)
        return self._make(Class.FERMI_CONTEXT_SHARE, group, params, "a context")

    def _make_channel(
        self, engine: Engine, kind: int, group: int, context: int, ring: HCQMemory,
        notifier: HCQMemory,
    ) -> int:  # fmt: skip
        fields = {
            "hObjectError": _handle(notifier), "hObjectBuffer": _handle(ring),
            "gpFifoOffset": ring.address, "gpFifoEntries": RING_ENTRIES,
            "hContextShare": context, "hUserdMemory": [_handle(ring)],
            "userdOffset": [_USERD_OFFSET],
            "engineType": 0 if engine is Engine.COMPUTE else kind,
        }  # fmt: skip
        channels = self.facts.architecture.channels
        number = first_of(channels, self._classes, "channel class")
        params = ("NV_CHANNEL_ALLOC_PARAMS", fields)
        return self._make(number, group, params, f"a {engine.value} channel")

    def _make_engine(self, engine: Engine, kind: int, channel: int) -> int:
        """The object that takes the channel's commands; returns its class."""
        architecture = self.facts.architecture
        if engine is Engine.COPY:
            number = first_of(architecture.copies, self._classes, "copy class")
            fields = {"version": rm.COPY_BY_ENGINE_TYPE, "engineType": kind}
            params = ("NVB0B5_ALLOCATION_PARAMETERS", fields)
            self._make(number, channel, params, "a copy engine")
            return number
        number = first_of(architecture.computes, self._classes, "compute class")
        compute = self._make(number, channel, None, "a compute engine")
        fields = {"hAppClient": self._client.handle, "hClass3dObject": compute}
        try:
            self._debugger = self._make(
                Class.GT200_DEBUGGER, self._device, ("NV83DE_ALLOC_PARAMETERS", fields),
                "a reporter of faults",
            )  # fmt: skip
        except DriverError:
            self._debugger = 0  # faults will be told with less detail
        return number

    def _copy_engine_type(self) -> int:
        return rm.copy_engine_type(facts.copy_engine(self._client, self._subdevice))

    def _register(self, channel: int) -> None:
        uvm, uuid = self.session.uvm, {"uuid": self.facts.uuid}
        windows = self.session.windows
        window = windows.take(CHANNEL_WINDOW_BYTES, CHANNEL_WINDOW_BYTES)
        self._undo.callback(windows.give_back, window, CHANNEL_WINDOW_BYTES)
        client = self._client
        uvm.call(
            UvmCall.REGISTER_CHANNEL, "registering a channel with unified memory",
            uuid=uuid, rmCtrlFd=client.file.fileno(), hClient=client.handle, hChannel=channel,
            base=window, length=CHANNEL_WINDOW_BYTES,
        )  # fmt: skip
        fields: dict[str, Any] = {"hClient": client.handle, "hChannel": channel}
        if client.structs.driver < 590:
            fields["uuid"] = uuid
        step = "unregistering a channel"
        self._undo.callback(uvm.call, UvmCall.UNREGISTER_CHANNEL, step, **fields)

    def ring_doorbell(self, channel: Channel) -> None:
        self._registers[_DOORBELL] = channel.token

    def device_time(self) -> int:
        registers = self._registers
        while True:
            high, low = registers[_TIME_HIGH], registers[_TIME_LOW]
            if registers[_TIME_HIGH] == high:
                return high << 32 | low

    # *** faults ***

    def failed(self) -> bool:
        return any(_failure(channel) is not None for channel in self._channels)

    def report(self) -> FaultReport:
        codes = [code for c in self._channels if (code := _failure(c)) is not None]
        found = FaultReport(list(dict.fromkeys(codes)))
        if self._debugger:
            try:
                self._read_mmu_faults(found)
                self._read_exceptions(found)
            except DriverError as error:
                found.faults.append(Fault(f"no more is known: {error.what}, {error.why}"))
        return found

    def _read_mmu_faults(self, found: FaultReport) -> None:
        step = "asking for memory faults"
        told = self._client.control(self._debugger, Control.READ_MMU_FAULT_INFO, step)
        for fault in told.faults[0 : int(told.count)]:
            what = f"{_ACCESSES.get(fault.access, 'access')}, {_FAULTS.get(fault.type, 'unknown')}"
            found.faults.append(Fault(what, int(fault.address)))

    def _read_exceptions(self, found: FaultReport) -> None:
        compute = next((c for c in self._channels if c.engine is Engine.COMPUTE), None)
        if compute is None:
            return
        told = self._client.control(
            self._debugger, Control.READ_ALL_SM_ERROR_STATES, "asking for exceptions",
            hTargetChannel=compute.handle, numSMsToRead=min(self.facts.sm_count, 100),
        )  # fmt: skip
        for number, state in enumerate(told.states[0 : min(self.facts.sm_count, 100)]):
            if state.warpEsr or state.globalEsr:
                what = (
                    f"multiprocessor {number}: exception {state.warpEsr:#x} at code address "
                    f"{state.warpEsrPc64:#x}"
                )
                found.faults.append(Fault(what))

    def stop(self) -> None:
        for channel in self._channels:
            with suppress(DriverError):
                step = "stopping a channel"
                self._client.control(channel.handle, Control.STOP_CHANNEL, step, bImmediate=1)

    def close(self) -> None:
        self._channels.clear()
        with ExitStack() as rest:
            rest.callback(self._undo.close)
            for memory in list(self._memory.values()):
                rest.callback(memory.undo.close)
            rest.callback(self._close_channels.close)


NOTIFIER: Final = "a notifier of errors"
_ERROR_PRESENT: Final = 0xFFFF

_FAULTS: Final = {
    0: "no page directory there",
    2: "nothing is mapped there",
    3: "beyond the address space",
    5: "no right to access it",
    6: "it is read-only",
    7: "it is write-only",
    0xE: "the memory is damaged",
    0xF: "no atomic access there",
}
_ACCESSES: Final = {0: "read", 1: "write", 2: "atomic access", 3: "prefetch", 4: "atomic access"}


def _handle(memory: HCQMemory) -> int:
    assert isinstance(memory.owner, _Owned)
    return memory.owner.handle


def _failure(channel: Channel) -> int | None:
    """The code of the error that the driver noted for the channel (its Xid)."""
    record = channel.notifier
    if int.from_bytes(record[14:16], "little") != _ERROR_PRESENT:
        return None
    return int.from_bytes(record[8:12], "little")


@contextmanager
def file_closed(file: DeviceFile) -> Iterator[None]:
    """The file is closed at the end; what was mapped stays."""
    try:
        yield
    finally:
        file.close()
