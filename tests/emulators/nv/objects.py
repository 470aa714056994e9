"""The resource manager's objects: a tree under each client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tests.emulators.nv import status
from tests.emulators.nv.memory import Memory, PageTable
from tests.emulators.nv.status import Refused

if TYPE_CHECKING:
    from tests.emulators.nv.gpu import FakeGpu

EXTERNALLY_OWNED = 1 << 3
ENGINE_GR0 = 1


class Node:
    """An object with a handle."""

    kind = "object"

    def __init__(self, handle: int, cls: int, parent: Node | None) -> None:
        self.handle, self.cls, self.parent = handle, cls, parent
        self.children: list[Node] = []
        if parent is not None:
            parent.children.append(self)

    @property
    def client(self) -> Client:
        """The client that it belongs to."""
        node: Node = self
        while node.parent is not None:
            node = node.parent
        assert isinstance(node, Client)
        return node

    @property
    def gpu(self) -> FakeGpu:
        """The GPU of the device that it belongs to."""
        node: Node | None = self
        while node is not None and not isinstance(node, Device):
            node = node.parent
        if node is None:
            raise Refused(status.INVALID_OBJECT_PARENT, f"{self} is of no device")
        return node.device_gpu

    def tree(self) -> Iterator[Node]:
        """This object and all below, children first."""
        for child in list(self.children):
            yield from child.tree()
        yield self

    def release(self) -> None:
        """What freeing the object gives back."""

    def __repr__(self) -> str:
        return f"{self.kind} {self.handle:#x}"


class Client(Node):
    """A root: all handles are looked up in it."""

    kind = "client"

    def __init__(self, handle: int, file: Any) -> None:
        super().__init__(handle, 0x41, None)
        self.file = file  # closing it frees the client
        self.nodes: dict[int, Node] = {handle: self}
        self.boosted: dict[int, int] = {}  # GPU index -> flags of PERF_BOOST

    def find(self, handle: int, kind: type[Node] | tuple[type[Node], ...] = Node) -> Node:
        """The object of a handle, which must be of the kind."""
        node = self.nodes.get(handle)
        if node is None:
            raise Refused(status.INVALID_OBJECT_HANDLE, f"handle {handle:#x} is unknown")
        if not isinstance(node, kind):
            raise Refused(status.INVALID_OBJECT_HANDLE, f"{node} is of the wrong kind")
        return node


class Device(Node):
    """A GPU as a client sees it."""

    kind = "device"

    def __init__(self, handle: int, cls: int, parent: Node, gpu: FakeGpu) -> None:
        super().__init__(handle, cls, parent)
        self.device_gpu = gpu


class Subdevice(Node):
    """What most queries are asked of."""

    kind = "subdevice"


class Usermode(Node):
    """The page with doorbell and timer."""

    kind = "usermode"


class Debugger(Node):
    """Tells about faults of a compute object's channel."""

    kind = "debugger"

    def __init__(self, handle: int, cls: int, parent: Node, engine: Engine) -> None:
        super().__init__(handle, cls, parent)
        self.engine = engine


class VaSpace(Node):
    """A GPU address space, owned by UVM (externally) or by the resource manager."""

    kind = "VA space"

    def __init__(self, handle: int, cls: int, parent: Node, flags: int, base: int) -> None:
        super().__init__(handle, cls, parent)
        self.external = bool(flags & EXTERNALLY_OWNED)
        self.pages = PageTable()
        self.uvm: Any = None  # the UVM file that it is registered with
        self.next_address = max(base, 0x20_0000_0000)  # where the manager maps next

    def release(self) -> None:
        if self.uvm is not None:
            self.uvm.forget_space(self)
        for mapped in list(self.pages):
            self.pages.unmap(mapped.start, mapped.end - mapped.start)
        self.gpu.caches.forget(self.pages)


class MemoryNode(Node):
    """Physical memory: classes 0x40, 0x3E and 0x71."""

    kind = "memory"

    def __init__(self, handle: int, cls: int, parent: Node, memory: Memory) -> None:
        super().__init__(handle, cls, parent)
        self.memory = memory
        self.cookies: dict[int, int] = {}  # of CPU mappings: cookie -> bytes of BAR1
        self.used_by: set[Node] = set()  # channels with their ring, USERD or notifier in it

    def release(self) -> None:
        self.gpu.bar1_used -= sum(self.cookies.values())
        self.cookies.clear()
        self.memory.drop()


class VirtualMemory(Node):
    """Addresses of a space that the resource manager owns."""

    kind = "virtual memory"

    def __init__(
        self, handle: int, cls: int, parent: Node, space: VaSpace, base: int, nbytes: int
    ) -> None:
        super().__init__(handle, cls, parent)
        self.space, self.base, self.nbytes = space, base, nbytes
        self.mapped: dict[int, int] = {}  # GPU address -> bytes

    def release(self) -> None:
        for base, nbytes in self.mapped.items():
            self.space.pages.unmap(base, nbytes)


class Tsg(Node):
    """A group of channels that share an address space and an engine."""

    kind = "channel group"

    def __init__(self, handle: int, cls: int, parent: Node, space: VaSpace, engine: int) -> None:
        super().__init__(handle, cls, parent)
        self.space, self.engine = space, engine
        self.notifier: Memory | None = None

    @property
    def channels(self) -> list[Channel]:
        """The channels of the group."""
        return [c for c in self.children if isinstance(c, Channel)]


class ContextShare(Node):
    """A subcontext of a group."""

    kind = "context share"


class Channel(Node):
    """A queue of the GPU; how far the GPU is with it lies in `gpu.ChannelRun`."""

    kind = "channel"

    def __init__(self, handle: int, cls: int, parent: Tsg) -> None:
        super().__init__(handle, cls, parent)
        self.tsg = parent
        self.ring = self.entries = 0
        self.userd: Memory | None = None
        self.userd_offset = 0
        self.notifier: Memory | None = None
        self.buffers: list[MemoryNode] = []
        self.share: ContextShare | None = None
        self.runlist = self.number = 0
        self.scheduled = self.dead = False
        self.uvm: Any = None  # the UVM file that it is registered with
        self.run: Any = None
        self.mmu_faults: list[Any] = []  # what the debugger and the channel report
        self.sm_errors: list[tuple[int, int, int]] = []  # warp error, its PC, address

    @property
    def token(self) -> int:
        """What the doorbell takes for it."""
        return self.runlist << 16 | self.number | self.gpu.profile.token_enable

    @property
    def engines(self) -> list[Engine]:
        """The engine objects that are allocated on it."""
        return [e for e in self.children if isinstance(e, Engine)]

    def release(self) -> None:
        self.gpu.remove_channel(self)
        for node in self.buffers:
            node.used_by.discard(self)


class Engine(Node):
    """A compute or copy object of a channel."""

    kind = "engine object"
