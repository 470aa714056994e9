"""llvmlite: LLVM IR text to object code for this machine."""

from __future__ import annotations

import functools
import re
from typing import Any

import llvmlite
from llvmlite import binding

from tgcore.errors import CompileError

VERSION = f"llvmlite {llvmlite.__version__} LLVM {'.'.join(map(str, binding.llvm_version_info))}"


@functools.cache
def _machine(features: str, level: int) -> Any:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    binding.initialize_native_asmparser()
    target = binding.Target.from_default_triple()
    cpu = binding.get_host_cpu_name()
    # small code model: the loader puts code and constants of a program side by side
    return target.create_target_machine(
        cpu=cpu, features=features, opt=level, reloc="pic", codemodel="small"
    )


@functools.cache
def host_features() -> str:
    """What the processor can do, in LLVM's spelling."""
    return str(binding.get_host_cpu_features().flatten())


def compile_ir(source: str, level: int = 3) -> bytes:
    """An object file; CompileError with LLVM's words if the IR is not valid."""
    machine = _machine(host_features(), level)
    context = binding.create_context()
    module = _parse(source, context)
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    _optimise(module, machine, level)
    binary: bytes = machine.emit_object(module)
    return binary


def assembly(source: str) -> str:
    """The optimised code as text."""
    machine = _machine(host_features(), 3)
    module = _parse(source, binding.create_context())
    _optimise(module, machine, 3)
    return str(machine.emit_assembly(module))


def _parse(source: str, context: Any) -> Any:
    try:
        module = binding.parse_assembly(source, context)
        module.verify()
    except RuntimeError as error:
        raise CompileError("LLVM rejects the kernel", source, _tidy(str(error))) from None
    return module


def _optimise(module: Any, machine: Any, level: int) -> None:
    options = binding.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = level >= 2
    options.slp_vectorization = level >= 2
    options.loop_unrolling = level >= 2
    builder = binding.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)


def _tidy(message: str) -> str:
    return re.sub(r"^LLVM IR parsing error\n", "", message).replace("<string>", "source")


def link_object(binary: bytes) -> tuple[dict[str, int], list[Any]]:
    """Functions and what keeps them, by LLVM's own linker (for processors ours does not know)."""
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), _machine("", 2))
    engine.add_object_file(binding.ObjectFileRef.from_data(binary))
    engine.finalize_object()
    return _EngineFunctions(engine), [engine]


class _EngineFunctions(dict[str, int]):
    def __init__(self, engine: Any) -> None:
        super().__init__()
        self.engine = engine

    def __missing__(self, name: str) -> int:
        address = int(self.engine.get_function_address(name))
        if not address:
            raise KeyError(name)
        return address
