"""What the rest of the plugin needs of whoever drives the GPU: the kernel driver, say, or PCI."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum, auto

from tg_nv.architecture import Architecture
from tgcore.hcq.memory import HCQMemory


class MemoryKind(Enum):
    """Where memory is, and who sees it."""

    VIDEO = auto()  # the GPU's own, not seen by the host
    VISIBLE = auto()  # the GPU's own, contiguous, seen by the host through a window
    HOST = auto()  # the host's, cached: for what the host reads
    STREAM = auto()  # the host's, write-combined: for what it only writes


class Engine(Enum):
    """What executes the commands of a channel."""

    COMPUTE = "compute"
    COPY = "copy"


@dataclass(frozen=True)
class GPUFacts:
    """What is known of a GPU. Sizes in bytes; `gpcs` and `tpcs_per_gpc` are the design's most."""

    name: str
    uuid: bytes
    architecture: Architecture
    sm: str
    sm_version: int
    sm_count: int
    warps_per_sm: int
    sms_per_tpc: int
    tpcs_per_gpc: int
    gpcs: int
    memory_bytes: int


@dataclass
class Channel:
    """A hardware queue: a ring of entries (64 bits each), and the words by which it is driven.

    `userd` holds the read and write index of the ring, `notifier` what the driver writes when the
    channel fails, `engine_class` is the class of its commands.
    """

    engine: Engine
    ring: memoryview
    userd: memoryview
    notifier: memoryview
    token: int
    engine_class: int
    handle: int = 0

    @property
    def entries(self) -> int:
        """How many entries the ring has."""
        return len(self.ring)


@dataclass(frozen=True)
class Fault:
    """One thing that went wrong: what, and where in memory if it is known."""

    what: str
    address: int | None = None


@dataclass
class FaultReport:
    """What the GPU and its driver say of a failure."""

    codes: list[int] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)


class NVInterface(ABC):
    """One GPU. All addresses are the GPU's, in one address space for all GPUs of the process."""

    facts: GPUFacts

    @abstractmethod
    def alloc(self, nbytes: int, kind: MemoryKind, purpose: str) -> HCQMemory:
        """Memory that this GPU sees; MemoryError if there is not so much."""

    @abstractmethod
    def free(self, memory: HCQMemory) -> None:
        """Give memory of `alloc` back; nothing may use it any more."""

    @abstractmethod
    def sees(self, other: NVInterface) -> bool:
        """Whether the other GPU's own memory is mapped for this one, and the other way round."""

    @abstractmethod
    def open_channel(self, engine: Engine) -> Channel:
        """Set up a channel and put it on the GPU's list of those to run."""

    @abstractmethod
    def ring_doorbell(self, channel: Channel) -> None:
        """Tell the GPU that the channel has new entries."""

    @abstractmethod
    def device_time(self) -> int:
        """The GPU's clock, in nanoseconds."""

    @abstractmethod
    def free_bytes(self) -> int:
        """How much of the GPU's memory nobody uses."""

    @abstractmethod
    def failed(self) -> bool:
        """Whether a channel has failed; quick, as it is asked while the host waits."""

    @abstractmethod
    def report(self) -> FaultReport:
        """What went wrong, as far as GPU and driver tell."""

    @abstractmethod
    def stop(self) -> None:
        """Take all channels off the GPU, whatever they do. Never fails."""

    @abstractmethod
    def close(self) -> None:
        """Give back all that was set up."""
