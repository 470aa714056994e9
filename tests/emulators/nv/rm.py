"""The resource manager: the ioctls of /dev/nvidiactl and /dev/nvidiaN."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tests.emulators.nv import controls, status, structs
from tests.emulators.nv.allocate import CLASSES, Request, allocate, register_host_memory
from tests.emulators.nv.layout import Layout, View
from tests.emulators.nv.memory import PAGE
from tests.emulators.nv.objects import (
    Channel,
    Client,
    Device,
    MemoryNode,
    Node,
    Subdevice,
    Usermode,
    VirtualMemory,
)
from tests.emulators.nv.status import Refused, require
from tests.emulators.nv.userspace import copy_in, copy_out

if TYPE_CHECKING:
    from tests.emulators.nv.system import FakeFile, FakeSystem

USERMODE_BYTES: Final = 0x10000
_LARGEST: Final = 1 << 20  # structure of a transfer call


def refuse_call(code: int, why: str) -> OSError:
    """An ioctl that fails as a call, with an errno."""
    return OSError(code, f"{os.strerror(code)}: {why}")


class MapContext:
    """What a file shows when it is mapped, set by RM_MAP_MEMORY."""

    def __init__(self, node: Node, offset: int, nbytes: int, cookie: int, *, writable: bool):
        self.node, self.offset, self.nbytes, self.cookie = node, offset, nbytes, cookie
        self.writable = writable


class ResourceManager:
    """All clients, and the calls on them."""

    def __init__(self, system: FakeSystem) -> None:
        self.system = system
        self.clients: dict[int, Client] = {}
        every = [*structs.TRANSPORT, *structs.CLASS_PARAMETERS]
        self.layouts: dict[str, Layout] = {s.name: s.layout(system.major) for s in every}
        self._next_client, self._next_handle, self._next_cookie = 0xC1D0_0001, 0x5C00_0001, 1
        # number -> (name, structure, kind of file, what to do)
        self.escapes: dict[int, tuple[str, str, str, Callable[[FakeFile, View], int | None]]] = {
            0x27: ("RM_ALLOC_MEMORY", "NVOS02", "gpu", self._alloc_memory),
            0x29: ("RM_FREE", "NVOS00", "ctl", self._free),
            0x2A: ("RM_CONTROL", "NVOS54", "ctl", self._control),
            0x2B: ("RM_ALLOC", "NVOS64", "ctl", self._alloc),
            0x34: ("RM_DUP_OBJECT", "NVOS55", "ctl", self._dup),
            0x4E: ("RM_MAP_MEMORY", "NVOS33", "ctl", self._map_memory),
            0x4F: ("RM_UNMAP_MEMORY", "NVOS34", "ctl", self._unmap_memory),
            0x57: ("RM_MAP_MEMORY_DMA", "NVOS46", "ctl", self._map_dma),
            0x58: ("RM_UNMAP_MEMORY_DMA", "NVOS47", "ctl", self._unmap_dma),
            200: ("CARD_INFO", "CARD_INFO", "ctl", self._card_info),
            201: ("REGISTER_FD", "REGISTER_FD", "gpu", self._register_fd),
            210: ("CHECK_VERSION_STR", "VERSION_STR", "ctl", self._check_version),
            211: ("IOCTL_XFER_CMD", "XFER", "any", self._transfer),
            214: ("SYS_PARAMS", "SYS_PARAMS", "ctl", self._system_parameters),
        }

    # the calls themselves

    def call(self, file: FakeFile, request: int, buffer: memoryview) -> None:
        """One ioctl, by its encoded number."""
        number, size = request & 0xFF, request >> 16 & 0x3FFF
        if request >> 30 != 3 or request >> 8 & 0xFF != 0x46:
            self.system.complain(f"ioctl {request:#x} is none of the driver's")
            raise refuse_call(errno.ENOTTY, f"ioctl {request:#x}")
        if len(buffer) < size:
            raise refuse_call(errno.EFAULT, f"{size} bytes are copied, {len(buffer)} given")
        self._dispatch(file, number, buffer[:size])

    def _dispatch(self, file: FakeFile, number: int, buffer: memoryview) -> None:
        if number not in self.escapes:
            self.system.complain(f"ioctl nr {number:#x} is not faked")
            raise refuse_call(errno.ENOTTY, f"nr {number:#x}")
        name, struct, kind, act = self.escapes[number]
        if number == 0x2B and len(buffer) == self.layouts["NVOS21"].size:
            struct = "NVOS21"
        layout = self.layouts[struct]
        cards = number == 200 and len(buffer) % layout.size == 0
        if not cards and len(buffer) != layout.size:
            raise refuse_call(errno.EINVAL, f"{name}: {len(buffer)} bytes, not {layout.size}")
        if kind not in (file.kind, "any"):
            raise refuse_call(errno.EINVAL, f"{name} on a {file.kind} file")
        self.answer(file, name, layout.over(buffer), act)

    def answer(
        self,
        file: FakeFile,
        name: str,
        view: View,
        act: Callable[[FakeFile, View], int | None],
        field: str = "status",
    ) -> None:
        """Run a call, with injected failures, and put its status in the structure."""
        detail = self.describe(name, view)
        result, why = status.OK, ""
        try:
            injected = self.system.inject(name, detail)
            result = injected if injected is not None else act(file, view) or status.OK
        except Refused as refused:
            result, why = refused.status, refused.why
        except OSError as error:
            self.system.note(f"{name} {detail} -> {error}")
            raise
        self.system.note(f"{name} {detail} -> {status.name(result)} {why}".rstrip())
        if field in view:
            view[field] = result
        elif result:
            raise refuse_call(errno.EINVAL, why)

    def describe(self, name: str, view: View) -> str:
        """A call's key fields in words."""
        if name == "RM_CONTROL":
            return f"{controls.name(view['cmd'])} object={view['hObject']:#x}"
        if name in ("CARD_INFO", "CHECK_VERSION_STR"):
            return ""
        return view.text()

    # objects

    def client(self, handle: int) -> Client:
        """A client of this process."""
        require(handle in self.clients, status.INVALID_CLIENT, f"no client {handle:#x}")
        return self.clients[handle]

    def new_handle(self, client: Client, wanted: int) -> int:
        """The handle that the caller wants, or one of the manager's choice."""
        if wanted:
            free = wanted not in client.nodes
            require(free, status.INSERT_DUPLICATE_NAME, f"handle {wanted:#x} is in use")
            return wanted
        while self._next_handle in client.nodes:
            self._next_handle += 1
        self._next_handle += 1
        return self._next_handle - 1

    def _alloc(self, file: FakeFile, view: View) -> None:
        cls = view["hClass"]
        if cls in (0x0, 0x1, 0x41):
            self._alloc_client(file, view)
            return
        if cls not in CLASSES:
            self.system.complain(f"RM_ALLOC of class {cls:#x}, which is not faked")
            raise Refused(status.INVALID_CLASS, f"class {cls:#x}")
        if "flags" in view:
            require(not view["flags"], status.INVALID_ARGUMENT, "flags")
            require(not view["pRightsRequested"], status.INVALID_ARGUMENT, "pRightsRequested")
        client = self.client(view["hRoot"])
        parent = client.find(view["hObjectParent"])
        handle = self.new_handle(client, view["hObjectNew"])
        struct, where = CLASSES[cls].struct, view["pAllocParms"]
        parameters = None
        if struct is not None and where:
            layout = self.layouts[struct]
            parameters = layout.over(copy_in(where, layout.size))
        client.nodes[handle] = allocate(Request(self, handle, cls, parent, parameters))
        view["hObjectNew"] = handle
        if parameters is not None:
            copy_out(where, bytes(parameters.data))

    def _alloc_client(self, file: FakeFile, view: View) -> None:
        require(not view["hRoot"], status.INVALID_CLIENT, "hRoot of a new client")
        handle = view["hObjectNew"]
        if not handle:
            handle = self._next_client
            self._next_client += 1
        require(handle not in self.clients, status.INSERT_DUPLICATE_NAME, "client exists")
        self.clients[handle] = Client(handle, file)
        view["hObjectNew"] = handle

    def _free(self, file: FakeFile, view: View) -> None:
        client = self.client(view["hRoot"])
        node = client.find(view["hObjectOld"])
        if node.parent is not None:
            right = view["hObjectParent"] in (0, node.parent.handle)
            require(right, status.INVALID_OBJECT_PARENT, "not its parent")
        self._check_free(node)
        self.free(node)

    def _check_free(self, node: Node) -> None:
        """What the driver lets pass, but a careful program does not do."""
        gone = set(node.tree())
        for each in gone:
            if isinstance(each, Channel) and each.uvm is not None:
                self.system.complain(f"{each} is freed while UVM has it registered")
            if isinstance(each, MemoryNode) and each.used_by - gone:
                self.system.complain(f"{each} is freed while a channel uses it")
            if isinstance(each, MemoryNode) and each.memory.place != "host":
                for address, _ in each.memory.cpu_views:
                    self.system.complain(f"{each} is freed while the CPU maps it at {address:#x}")

    def free(self, node: Node) -> None:
        """Free an object and all below it."""
        client = node.client
        for each in node.tree():
            if isinstance(each, Channel) and each.uvm is not None:
                each.uvm.channels.pop(each, None)
                each.uvm = None
            each.release()
            del client.nodes[each.handle]
        if node.parent is not None:
            node.parent.children.remove(node)
        else:
            del self.clients[node.handle]

    def file_closed(self, file: FakeFile) -> None:
        """Free the clients of a file."""
        for client in [c for c in self.clients.values() if c.file is file]:
            self.free(client)

    def _dup(self, file: FakeFile, view: View) -> None:
        self.system.complain("RM_DUP_OBJECT is not faked")
        raise Refused(status.NOT_SUPPORTED, "RM_DUP_OBJECT")

    def _alloc_memory(self, file: FakeFile, view: View) -> None:
        if not file.linked:
            raise refuse_call(errno.EINVAL, "REGISTER_FD was not done on this file")
        if view["hClass"] != 0x71:
            self.system.complain(f"RM_ALLOC_MEMORY of class {view['hClass']:#x} is not faked")
            raise Refused(status.NOT_SUPPORTED, "a class other than 0x71")
        client = self.client(view["hRoot"])
        parent = client.find(view["hObjectParent"], Device)
        require(view["hObjectNew"], status.INVALID_ARGUMENT, "the caller chooses hObjectNew")
        require(parent.gpu is file.gpu, status.INVALID_DEVICE, "the file of another GPU")
        handle = self.new_handle(client, view["hObjectNew"])
        request = Request(self, handle, 0x71, parent, None)
        nbytes = view["limit"] + 1
        node = register_host_memory(request, view["pMemory"], nbytes, view["flags"])
        client.nodes[handle] = node

    def _control(self, file: FakeFile, view: View) -> None:
        client = self.client(view["hClient"])
        node = client.find(view["hObject"])
        require(not view["flags"], status.INVALID_ARGUMENT, "flags")
        controls.control(self, node, view["cmd"], view["params"], view["paramsSize"])

    # the CPU's mappings

    def _map_memory(self, file: FakeFile, view: View) -> None:
        client = self.client(view["hClient"])
        require(os.getpid() == self.system.pid, status.INVALID_CLIENT, "of another process")
        node = client.find(view["hMemory"], (MemoryNode, Usermode))
        target = self.system.by_number(view["fd"])
        if target is None or target.kind == "uvm":
            raise Refused(status.INVALID_ARGUMENT, f"fd {view['fd']} is no file of the driver")
        require(target.context is None, status.STATE_IN_USE, "the fd has a mapping already")
        known = 3 | 1 << 4 | 3 << 15 | 1 << 18 | 1 << 19 | 7 << 23
        require(not view["flags"] & ~known, status.INVALID_ARGUMENT, f"flags {view['flags']:#x}")
        offset, length = view["offset"], view["length"]
        if isinstance(node, MemoryNode):
            cookie = self._map_bytes(client, view, node)
        else:
            subdevice = client.find(view["hDevice"], Subdevice) is node.parent
            require(subdevice, status.INVALID_OBJECT_PARENT, "hDevice is not its subdevice")
            whole = not offset and length == USERMODE_BYTES
            require(whole, status.INVALID_LIMIT, "the usermode page is mapped as a whole")
            cookie = self._new_cookie()
        writable = view["flags"] & 3 != 1
        target.context = MapContext(node, offset, length, cookie, writable=writable)
        view["pLinearAddress"] = cookie

    def _map_bytes(self, client: Client, view: View, node: MemoryNode) -> int:
        device = client.find(view["hDevice"], (Device, Subdevice))
        require(device.gpu is node.gpu, status.INVALID_DEVICE, "the memory of another GPU")
        offset, length = view["offset"], view["length"]
        require(node.cls != 0x71, status.NOT_SUPPORTED, "host memory is mapped already")
        good = length and offset % PAGE == 0 and offset + length <= node.memory.nbytes
        require(good, status.INVALID_PARAMETER, f"{length:#x} bytes at offset {offset:#x}")
        bar1 = 0
        if node.memory.place == "video":
            bar1 = -(-length // (64 << 10)) * (64 << 10)
            free = node.gpu.profile.bar1 - node.gpu.bar1_used
            require(bar1 <= free, status.INSUFFICIENT_RESOURCES, "BAR1 is full")
        node.gpu.bar1_used += bar1
        cookie = self._new_cookie()
        node.cookies[cookie] = bar1
        return cookie

    def _new_cookie(self) -> int:
        self._next_cookie += 1
        return 0xFFFF_8000_0000_0000 | self._next_cookie << 12

    def _unmap_memory(self, file: FakeFile, view: View) -> None:
        client = self.client(view["hClient"])
        client.find(view["hDevice"], (Device, Subdevice))
        node = client.find(view["hMemory"], (MemoryNode, Usermode))
        if isinstance(node, MemoryNode):
            known = view["pLinearAddress"] in node.cookies
            require(known, status.INVALID_ADDRESS, "no mapping with this pLinearAddress")
            node.gpu.bar1_used -= node.cookies.pop(view["pLinearAddress"])

    # mappings in address spaces that the manager owns

    def _map_dma(self, file: FakeFile, view: View) -> None:
        client = self.client(view["hClient"])
        device = client.find(view["hDevice"], (Device, Subdevice))
        carrier = client.find(view["hDma"], VirtualMemory)
        node = client.find(view["hMemory"], MemoryNode)
        assert isinstance(carrier, VirtualMemory) and isinstance(node, MemoryNode)
        require(device.gpu is carrier.gpu, status.INVALID_DEVICE, "another GPU")
        flags, offset = view["flags"], view["offset"]
        known = 3 | 1 << 4 | 0xF << 8 | 1 << 15 | 3 << 17
        require(not flags & ~known, status.INVALID_ARGUMENT, f"flags {flags:#x}")
        nbytes = -(-view["length"] // PAGE) * PAGE
        good = nbytes and offset % PAGE == 0 and offset + nbytes <= node.memory.nbytes
        require(good, status.INVALID_LIMIT, "outside of the memory")
        base = self._dma_address(view, carrier, nbytes)
        inside = carrier.base <= base and base + nbytes <= carrier.base + carrier.nbytes
        require(inside and base % PAGE == 0, status.INVALID_ADDRESS, f"{base:#x}")
        require(not carrier.space.pages.overlaps(base, nbytes), status.IN_USE, f"{base:#x}")
        writable = flags & 3 != 1 and not node.memory.read_only
        carrier.space.pages.map(base, nbytes, node.memory, offset, writable=writable)
        carrier.mapped[base] = nbytes
        view["dmaOffset"] = base

    def _dma_address(self, view: View, carrier: VirtualMemory, nbytes: int) -> int:
        if view["flags"] & 1 << 15:  # DMA_OFFSET_FIXED
            return view["dmaOffset"]
        if carrier.cls == 0x50A0:
            return carrier.base
        space = carrier.space
        base = -(-space.next_address // (2 << 20)) * (2 << 20)
        space.next_address = base + nbytes
        return base

    def _unmap_dma(self, file: FakeFile, view: View) -> None:
        client = self.client(view["hClient"])
        carrier = client.find(view["hDma"], VirtualMemory)
        assert isinstance(carrier, VirtualMemory)
        base = view["dmaOffset"]
        require(base in carrier.mapped, status.INVALID_ADDRESS, f"no mapping at {base:#x}")
        nbytes = carrier.mapped[base]
        size = view.get("size")
        require(size in (0, nbytes), status.NOT_SUPPORTED, "a part of a mapping")
        carrier.space.pages.unmap(base, carrier.mapped.pop(base))

    # the system

    def _card_info(self, file: FakeFile, view: View) -> None:
        layout = self.layouts["CARD_INFO"]
        slots = len(view.data) // layout.size
        if slots < len(self.system.gpus):
            raise refuse_call(errno.EINVAL, "fewer entries than GPUs")
        for index in range(slots):
            entry = layout.new()
            if index < len(self.system.gpus):
                self.system.gpus[index].card_info(entry)
            view.data[index * layout.size : (index + 1) * layout.size] = bytes(entry.data)

    def _register_fd(self, file: FakeFile, view: View) -> None:
        target = self.system.by_number(view["ctl_fd"])
        if target is None or target.kind != "ctl":
            raise refuse_call(errno.EINVAL, f"fd {view['ctl_fd']} is not of nvidiactl")
        if file.linked:
            raise refuse_call(errno.EINVAL, "INVALID_STATE: the file is linked already")
        file.linked = True

    def _check_version(self, file: FakeFile, view: View) -> None:
        wanted = view.raw("versionString").rstrip(b"\0").decode("latin-1")
        command, own = view["cmd"], self.system.driver
        if command not in (0, 0x31, 0x32) or (command == 0 and wanted != own):
            raise refuse_call(errno.EINVAL, f"the driver is {own}, not {wanted}")
        view["reply"] = 1
        view.put("versionString", own.encode())

    def _transfer(self, file: FakeFile, view: View) -> None:
        if view["size"] > _LARGEST or view["cmd"] == 211:
            raise refuse_call(errno.EINVAL, f"{view['size']} bytes")
        buffer = copy_in(view["ptr"], view["size"])
        self._dispatch(file, view["cmd"], memoryview(buffer))
        copy_out(view["ptr"], buffer)

    def _system_parameters(self, file: FakeFile, view: View) -> None:
        view["memblock_size"] = 128 << 20

    def objects(self) -> dict[str, Any]:
        """How many live objects there are, by kind."""
        counts: dict[str, Any] = {}
        for client in self.clients.values():
            for node in client.nodes.values():
                counts[node.kind] = counts.get(node.kind, 0) + 1
        return counts
