"""What all GPUs of a process share: the client of the driver, unified memory, addresses."""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tg_nv.addresses import (
    CHANNEL_WINDOWS,
    HOST_RANGE,
    VIDEO_RANGE,
    AddressRange,
)
from tg_nv.driver import rm_structs as rm
from tg_nv.driver.client import RMClient, UvmClient
from tg_nv.driver.rm_structs import Control
from tg_nv.driver.status import DriverError
from tg_nv.driver.uvm_structs import UvmCall
from tgcore.errors import DeviceError
from tgcore.hcq.files import FileSystem
from tgcore.hcq.mapping import reserve

if TYPE_CHECKING:
    from tg_nv.driver.ioctl import IoctlInterface

_lock: Final = threading.Lock()
_sessions: Final[dict[FileSystem, Session]] = {}


@dataclass(frozen=True)
class Shared:
    """Memory that several GPUs may see: all of them, or the owner and its peers."""

    owner: IoctlInterface
    handle: int
    address: int
    nbytes: int
    everywhere: bool


class Session:
    """One conversation with the driver; it ends when its last GPU is closed."""

    def __init__(self, files: FileSystem) -> None:
        self.files = files
        self.users = 0
        self.process = os.getpid()
        with ExitStack() as undo:
            self.client = RMClient(files)
            undo.callback(self.client.close)
            self.uvm = UvmClient(self.client)
            undo.callback(self.uvm.close)
            _reserve_host_range()
            self._undo = undo.pop_all()
        self.host = AddressRange(*HOST_RANGE)
        self.video = AddressRange(*VIDEO_RANGE)
        self.windows = AddressRange(*CHANNEL_WINDOWS)
        self.gpus: list[IoctlInterface] = []
        self.shared: dict[int, Shared] = {}  # all memory, by address
        self._peers: set[frozenset[bytes]] = set()  # UUIDs of two that see each other's memory

    # *** several GPUs ***

    def enter(self, gpu: IoctlInterface) -> None:
        """A new GPU: it gets to see what there is."""
        try:
            for other in self.gpus:
                if self._can_be_peers(gpu, other):
                    self._enable(gpu, other)
            self.gpus.append(gpu)
            for memory in list(self.shared.values()):
                if gpu in self.gpus_that_see(memory):
                    self.uvm.map(
                        memory.address, memory.nbytes, memory.handle, [gpu.facts.uuid],
                        "mapping memory for another GPU",
                    )  # fmt: skip
        except BaseException:
            self.exit(gpu)
            raise

    def exit(self, gpu: IoctlInterface) -> None:
        """The GPU sees no other's memory any more, nor they its own."""
        if gpu in self.gpus:
            self.gpus.remove(gpu)
        for pair in [p for p in self._peers if gpu.facts.uuid in p]:
            self._peers.discard(pair)
            a, b = sorted(pair)
            self.uvm.call(
                UvmCall.DISABLE_PEER_ACCESS, "ending access between GPUs",
                uuidA={"uuid": a}, uuidB={"uuid": b},
            )  # fmt: skip

    def are_peers(self, a: IoctlInterface, b: IoctlInterface) -> bool:
        """Whether the two see each other's own memory."""
        return a is b or frozenset((a.facts.uuid, b.facts.uuid)) in self._peers

    def gpus_that_see(self, memory: Shared) -> list[IoctlInterface]:
        """For which GPUs the memory is mapped."""
        return [g for g in self.gpus if memory.everywhere or self.are_peers(g, memory.owner)]

    def _can_be_peers(self, a: IoctlInterface, b: IoctlInterface) -> bool:
        caps = self.client.control(
            self.client.handle, Control.SYSTEM_GET_P2P_CAPS_V2, "asking which GPUs see each other",
            gpuIds=[a.gpu_id, b.gpu_id], gpuCount=2,
        ).p2pCaps  # fmt: skip
        both = rm.P2P_READS | rm.P2P_WRITES
        return bool(caps & both == both)

    def _enable(self, a: IoctlInterface, b: IoctlInterface) -> None:
        try:
            self.uvm.call(
                UvmCall.ENABLE_PEER_ACCESS, "letting GPUs see each other's memory",
                uuidA={"uuid": a.facts.uuid}, uuidB={"uuid": b.facts.uuid},
            )  # fmt: skip
        except DriverError:
            return  # they copy through the host's memory instead
        self._peers.add(frozenset((a.facts.uuid, b.facts.uuid)))

    # *** processes ***

    def check_process(self) -> None:
        """DeviceError in a process that was forked from the one that opened the devices."""
        if os.getpid() != self.process:
            raise DeviceError(
                "an NVIDIA GPU cannot be used after a fork",
                "",
                "the driver ties its files to the process that opened them",
                "open devices in the child only, or start processes with the method 'spawn'",
            )


def _reserve_host_range() -> None:
    """What the host sees has the same addresses for GPU and host."""
    start, end = HOST_RANGE
    try:
        reserve(start, end - start)
    except OSError as error:
        raise DeviceError(
            "the GPU's address range is not free in this process", "", str(error),
            "lift limits of address space (ulimit -v)",
        ) from None  # fmt: skip


def join(files: FileSystem) -> Session:
    """The session over these files, begun if there is none. Call `leave` when done."""
    with _lock:
        session = _sessions.get(files)
        if session is None or session.process != os.getpid():
            session = _sessions[files] = Session(files)
        session.users += 1
        return session


def leave(session: Session) -> None:
    """The last one to leave ends the session."""
    with _lock:
        session.users -= 1
        if session.users == 0:
            _sessions.pop(session.files, None)
            session._undo.close()
