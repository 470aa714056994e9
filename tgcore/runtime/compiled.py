"""What an opened device is to the rest of the core: base classes of devices, programs, graphs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tgcore.errors import DeviceError

if TYPE_CHECKING:
    from tgcore.codegen.program import ProgramSpec
    from tgcore.renderer.base import Compiler, Renderer
    from tgcore.runtime.allocator import Allocator
    from tgcore.runtime.buffer import Buffer

Dims = tuple[int, int, int]


class Program(ABC):
    """A program loaded on a device. Calling it puts it in the device's queue."""

    def __init__(self, device: CompiledDevice, function_name: str, spec: ProgramSpec) -> None:
        self.device, self.function_name, self.spec = device, function_name, spec

    @abstractmethod
    def __call__(
        self,
        buffers: Sequence[Buffer],
        values: Sequence[int] = (),
        *,
        global_size: Dims = (1, 1, 1),
        local_size: Dims = (1, 1, 1),
        wait: bool = False,
    ) -> float | None:
        """Enqueue one run.

        `buffers` in the order of `spec.globals`, already allocated; `values` in the order of
        `spec.vars`. With `wait`, blocks and returns the seconds that it took on the device.
        """


@dataclass(frozen=True)
class ProgramCall:
    """One launch in a graph: the program, its buffers (order of spec.globals), its launch size.

    Which variables it takes, and sizes that depend on them, are in `program.spec`.
    """

    program: Program
    buffers: tuple[Buffer, ...]


@dataclass(frozen=True)
class CopyCall:
    """One copy in a graph: slot 0 is the destination, slot 1 the source."""

    dest: Buffer
    source: Buffer

    @property
    def buffers(self) -> tuple[Buffer, Buffer]:
        """Destination and source, as slots."""
        return (self.dest, self.source)


GraphCall = ProgramCall | CopyCall


class Graph(ABC):
    """A list of calls that is replayed as a whole.

    `calls` run in their order, as if one after another. `inputs` maps (number of the call, slot
    in its buffers) to the number of the input that replaces that buffer at replay. Buffers must
    be allocated; those that are no inputs stay what they are and are kept alive. Raises
    `GraphError` if these calls cannot be one graph (then the caller runs them one by one).
    """

    @abstractmethod
    def __init__(
        self,
        device: CompiledDevice,
        calls: Sequence[GraphCall],
        inputs: Mapping[tuple[int, int], int],
        var_names: Sequence[str] = (),
    ) -> None: ...

    @abstractmethod
    def replay(
        self,
        inputs: Sequence[Buffer],
        var_vals: Mapping[str, int] | None = None,
        *,
        wait: bool = False,
    ) -> float | None:
        """Enqueue all calls with these inputs and variables; with `wait`, the seconds it took."""


class GraphError(DeviceError):
    """These calls cannot be captured as one graph on this device."""


class CompiledDevice:
    """An opened device: where programs are compiled for, loaded and run.

    `renderer` and `compiler` make a kernel's binary, `allocator` gives memory, `load` makes a
    binary callable. `graph` is the class that replays captured calls, or None.
    """

    def __init__(
        self,
        name: str,
        allocator: Allocator[Any],
        renderer: Renderer | None = None,
        compiler: Compiler | None = None,
        graph: type[Graph] | None = None,
    ) -> None:
        self.name, self.allocator, self.graph = name, allocator, graph
        self._renderer, self._compiler = renderer, compiler
        self.provider = ""  # wheel and version that supply it, for messages; the registry knows

    @property
    def renderer(self) -> Renderer:
        """What writes this device's kernels; DeviceError for devices that only hold memory."""
        if self._renderer is None:
            raise self._holds_memory_only()
        return self._renderer

    @property
    def compiler(self) -> Compiler:
        """What compiles this device's kernels; DeviceError for devices that only hold memory."""
        if self._compiler is None:
            raise self._holds_memory_only()
        return self._compiler

    @property
    def runs_programs(self) -> bool:
        """False for devices that only hold memory."""
        return self._renderer is not None

    def load(self, function_name: str, binary: bytes, spec: ProgramSpec) -> Program:
        """Make a compiled binary callable."""
        raise self._holds_memory_only()

    def synchronize(self) -> None:
        """Return once all that was put in the device's queues is done."""

    def close(self) -> None:
        """Give back what the device holds; nothing may be used after it."""

    def _holds_memory_only(self) -> DeviceError:
        return DeviceError(
            f"{self.name} runs no programs",
            "",
            "it only holds memory",
            "copy the tensor to a device that computes: Tensor.to(device)",
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"
