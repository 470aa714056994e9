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

from tgcore.codegen.late.decompositions import decompositions
from tgcore.codegen.late.linearize import linearize
from tgcore.codegen.target import Target
from tgcore.dtype import dtypes
from tgcore.renderer.c import CRenderer
from tgcore.renderer.llvm import LLVMRenderer
from tgcore.uop.node import UOp
from tgcore.uop.ops import AxisType, Ops
from tgcore.uop.rewrite import graph_rewrite

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


NUMPY = {
    dtypes.bool: np.bool_, dtypes.fp8e4m3: np.uint8, dtypes.fp8e5m2: np.uint8,
    dtypes.bfloat16: np.uint16, **{d: np.dtype(d.fmt) for d in dtypes.all if d.fmt},
}  # fmt: skip


def elementwise_program(cases, in_dtypes, count, lanes, target):
    """The linear program of out[i] = function(a[i], b[i], ...) for (function, type) cases."""
    size = UOp.const(dtypes.int32, count // lanes)
    loop = UOp(Ops.RANGE, dtypes.int32, (size,), (0, AxisType.LOOP))
    index = loop * lanes
    values = []
    for slot, dtype in enumerate(in_dtypes, len(cases)):
        memory = UOp(Ops.DEFINE_GLOBAL, dtype.ptr(count), (), slot)
        address = UOp(Ops.INDEX, memory.dtype, (memory, index))
        values.append(UOp(Ops.LOAD, dtype.vec(lanes), (address,)))
    stores = []
    for slot, (function, dtype) in enumerate(cases):
        out = UOp(Ops.DEFINE_GLOBAL, dtype.ptr(count), (), slot)
        address = UOp(Ops.INDEX, out.dtype, (out, index))
        arguments = values[: function.__code__.co_argcount] if len(cases) > 1 else values
        stores.append(address.store(function(*arguments)))
    effect = UOp.group(*stores).end(loop)
    sink = graph_rewrite(UOp.sink(effect), decompositions(target))
    return linearize(sink, target)


def elementwise_all(
    cases, arrays, in_dtypes, *, lanes=8, target=LLVM_TARGET, language="llvm", opt=1
):
    """The results of all (function, type) cases on the arrays, from one compiled kernel.

    Arrays hold bits, for types that numpy lacks. Of several cases, a function gets as many of the
    arrays as it has arguments.
    """
    count = -(-len(arrays[0]) // lanes) * lanes
    padded = [np.resize(np.ascontiguousarray(a), count) for a in arrays]
    program = elementwise_program(cases, in_dtypes, count, lanes, target)
    renderer, kernel_type = LANGUAGES[language]
    kernel = kernel_type(renderer(target).render(program, "kernel"), "kernel", opt)
    outs = [np.zeros(count, NUMPY[dtype]) for _, dtype in cases]
    used = sorted(u.arg for u in program if u.op is Ops.DEFINE_GLOBAL)
    launch(kernel, [[*outs, *padded][slot] for slot in used])
    return [out[: len(arrays[0])] for out in outs]


def elementwise(function, arrays, in_dtypes, out_dtype, lanes=8, target=LLVM_TARGET, **options):
    """The result of one function."""
    cases = [(function, out_dtype)]
    return elementwise_all(cases, arrays, in_dtypes, lanes=lanes, target=target, **options)[0]


LANGUAGES = {"llvm": (LLVMRenderer, LLVMKernel), "c": (CRenderer, CKernel)}


def ulp_error(got, exact):
    """The largest distance in units in the last place, where `exact` is of a wider type."""
    dtype = got.dtype
    wanted = exact.astype(dtype)
    same = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
    assert (np.isnan(got) == np.isnan(wanted)).all(), (
        "nan where there should be none, or vice versa"
    )
    with np.errstate(all="ignore"):
        unit = np.spacing(np.abs(wanted)).astype(exact.dtype)
        distance = np.abs(got.astype(exact.dtype) - exact) / unit
    distance[same] = np.minimum(np.nan_to_num(distance[same], nan=0, posinf=0), 0.5)
    return float(distance.max())
