"""Runs rendered kernels in tests: through llvmlite, or through gcc as a shared library."""

from __future__ import annotations

import ctypes
import itertools
import shutil
import subprocess
import tempfile
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np

from tgcore.codegen.target import Target
from tgcore.dtype import dtypes
from tgcore.renderer.llvm import LLVMRenderer

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()

_numbers = itertools.count()
LLVM_TARGET = Target(
    device="TEST",
    dtypes=frozenset(d for d in dtypes.all if d not in (*dtypes.fp8s, dtypes.bfloat16)),
    ops=LLVMRenderer.supported_ops(),
    vector_bytes=32,
    memory_widths=(2, 4, 8, 16),
    masked=True,
    threads=4,
)
HAS_GCC = shutil.which("gcc") is not None


class LLVMKernel:
    """A compiled LLVM IR module; keeps its execution engine alive."""

    def __init__(self, source: str, name: str, opt: int = 2) -> None:
        self.source = source
        module = llvm.parse_assembly(source)
        module.verify()
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(),
            features=llvm.get_host_cpu_features().flatten(),
            opt=opt,
        )
        tuning = llvm.create_pipeline_tuning_options(speed_level=opt)
        builder = llvm.create_pass_builder(machine, tuning)
        builder.getModulePassManager().run(module, builder)
        self.assembly = machine.emit_assembly(module)
        self.engine = llvm.create_mcjit_compiler(module, machine)
        self.engine.finalize_object()
        self.call = _function(self.engine.get_function_address(name))


class CKernel:
    """A C source compiled by gcc and loaded."""

    def __init__(self, source: str, name: str, opt: int = 2, flags: tuple[str, ...] = ()) -> None:
        self.source = source
        folder = Path(tempfile.mkdtemp())
        library = folder / f"k{next(_numbers)}.so"
        subprocess.run(
            ["gcc", "-x", "c", f"-O{opt}", "-march=native", "-shared", "-fPIC", "-Wall", "-Werror",
             "-Wno-psabi", "-fno-math-errno", *flags, "-o", str(library), "-", "-lm"],
            input=source.encode(), check=True,
        )  # fmt: skip
        self.library = ctypes.CDLL(str(library))
        self.call = _function(ctypes.cast(getattr(self.library, name), ctypes.c_void_p).value)


def _function(address):
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32)(address)


def launch(kernel, arrays, values=(), threads: int = 1) -> None:
    """Runs a kernel on numpy arrays."""
    words = [a.ctypes.data for a in arrays] + list(values)
    args = np.array(words, dtype=np.int64)
    for thread in range(threads):
        kernel.call(args.ctypes.data, thread)
