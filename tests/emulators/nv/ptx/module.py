"""A parsed module, its kernels, and the Python functions that their blocks become."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import prod
from typing import Any

import numpy as np

from . import ops_convert, ops_float, ops_integer, ops_memory, ops_warp
from .flow import Flow, Lowering, round_up
from .parser import Parser
from .syntax import Function, Variable
from .types import DTYPES, Type
from .writer import NAMESPACE, Writer

BlockFunction = Callable[..., Any]
# importing them registers their instructions
FAMILIES = (ops_convert, ops_float, ops_integer, ops_memory, ops_warp)


@dataclass(frozen=True)
class Parameter:
    name: str
    offset: int
    size: int
    align: int
    type: Type


@dataclass
class Kernel:
    """An entry of a module. What needs its body is found out when it is asked for."""

    module: Module
    function: Function
    constants: dict[Any, str] = field(default_factory=dict)
    namespace: dict[str, Any] = field(default_factory=lambda: dict(NAMESPACE))
    texts: dict[int, tuple[str, str]] = field(default_factory=dict)
    compiled: dict[tuple[int, bool], BlockFunction] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.function.name

    @cached_property
    def parameters(self) -> list[Parameter]:
        found = []
        offset = 0
        for p in self.function.parameters:
            offset = round_up(offset, p.align)
            found.append(Parameter(p.name, offset, p.size, p.align, p.type))
            offset += p.size
        return found

    @property
    def parameter_bytes(self) -> int:
        last = self.parameters[-1:]
        return last[0].offset + last[0].size if last else 0

    @property
    def max_threads(self) -> int | None:
        """From .maxntid or .reqntid."""
        found = self.required_threads or self.function.directives.get("maxntid")
        return prod(found) if found else None

    @property
    def required_threads(self) -> tuple[int, int, int] | None:
        found = self.function.directives.get("reqntid")
        if not found:
            return None
        x, y, z = (*found, 1, 1)[:3]
        return x, y, z

    @cached_property
    def flow(self) -> Flow:
        return Lowering(self.module.functions, self.module.variables).lower(self.function)

    @property
    def shared_bytes(self) -> int:
        """Static shared memory; the dynamic part comes after it."""
        return self.flow.shared_bytes

    @property
    def local_bytes(self) -> int:
        return self.flow.local_bytes

    @property
    def features(self) -> frozenset[str]:
        """shared, dynamic_shared, barrier, collectives, matrix, atomics, locks."""
        return frozenset(self.flow.features)

    @property
    def symbols(self) -> frozenset[str]:
        """Global and constant variables whose addresses a run must be given."""
        return frozenset(self.flow.symbols)

    def block_function(self, number: int, masked: bool) -> BlockFunction:
        """A block for all threads, or for some; compiled on first use, as much is never reached."""
        found = self.compiled.get((number, masked))
        if found is None:
            code = compile(self.text(number)[masked], f"<{self.name} block {number}>", "exec")
            exec(code, self.namespace)
            found = self.namespace.pop("part" if masked else "full")
            self.compiled[number, masked] = found
        return found

    def text(self, number: int) -> tuple[str, str]:
        """The Python texts of a block, for all threads and for some."""
        found = self.texts.get(number)
        if found is None:
            block = self.flow.blocks[number]
            found = Writer(self.flow, block, self.constants, self.namespace).functions()
            self.texts[number] = found
        return found

    def check(self) -> None:
        """Writes every block, so that what is not known is found without a run."""
        for block in self.flow.blocks:
            self.text(block.number)

    def initial_registers(self) -> list[Any]:
        return [np.zeros((), DTYPES[code])[()] for code in self.flow.codes]


@dataclass
class Module:
    """PTX version, target, kernels and variables of a text."""

    version: tuple[int, int]
    target: str
    functions: dict[str, Function]
    variables: dict[str, Variable]
    kernels: dict[str, Kernel] = field(default_factory=dict)

    @property
    def placed(self) -> list[Variable]:
        """The variables that a loader must give memory and initial values."""
        return [v for v in self.variables.values() if v.space in ("global", "const")]


@lru_cache(4096)
def parse(text: str) -> Module:
    """The module of a text; the same text gives the same module, with its compiled kernels."""
    parser = Parser(text).parse()
    module = Module(parser.version, parser.target, parser.functions, parser.variables)
    for function in parser.functions.values():
        if function.entry and function.body is not None:
            module.kernels[function.name] = Kernel(module, function)
    return module
