"""LLVM's NVPTX target: LLVM IR to PTX, by llvmlite."""

from __future__ import annotations

import functools
import re
from importlib.util import find_spec
from typing import Any, Final

from tgcore.errors import CompileError

_TRIPLE: Final = "nvptx64-nvidia-cuda"
_OLDEST: Final = 21  # LLVM's version from which on launch bounds are attributes


def why_not() -> str | None:
    """None if PTX can be emitted here, else the reason why not."""
    if find_spec("llvmlite") is None:
        return "llvmlite is not installed"
    try:
        _target()
    except CompileError as error:
        return str(error)
    return None


def version() -> str:
    """Names what the PTX of a source depends on."""
    import llvmlite
    from llvmlite import binding

    numbers = ".".join(map(str, binding.llvm_version_info))
    return f"llvmlite {llvmlite.__version__} LLVM {numbers}"


def emit_ptx(source: str, sm: str) -> str:
    """PTX for an architecture such as "sm_90"; CompileError with LLVM's words."""
    from llvmlite import binding

    machine = _machine(sm)
    try:
        module = binding.parse_assembly(source, binding.create_context())
        module.triple = _TRIPLE
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        words = re.sub(r"^LLVM IR parsing error\n", "", str(error)).replace("<string>", "source")
        raise CompileError(f"LLVM rejects the kernel for {sm}", source, words) from None
    options = binding.create_pipeline_tuning_options(speed_level=3)
    options.loop_unrolling = True
    options.slp_vectorization = True  # pairs of halves
    options.loop_vectorization = False
    builder = binding.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return str(machine.emit_assembly(module))


@functools.cache
def _target() -> Any:
    from llvmlite import binding

    number = binding.llvm_version_info[0]
    if number < _OLDEST:
        raise CompileError(f"llvmlite has LLVM {number}; {_OLDEST} or newer is needed")
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    try:
        return binding.Target.from_triple(_TRIPLE)
    except RuntimeError:
        raise CompileError("llvmlite is built without LLVM's NVPTX target") from None


@functools.cache
def _machine(sm: str) -> Any:
    return _target().create_target_machine(cpu=sm, opt=3)
