"""The same LLVM IR through NVPTX and the interpreter, and through this machine's processor."""

from __future__ import annotations

import ctypes
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from tests.emulators.nv.ptx_kernels import Array, edge_values, launch
from tests.emulators.nv.test_ptx_compilers import from_llvm

THREADS = 64
KINDS = {"i8": "u8", "i16": "u16", "i32": "u32", "i64": "u64", "float": "f32", "double": "f64"}
BITS = {"float": "f32", "double": "f64"}  # half needs library functions that may not be there
INTEGERS = ("i8", "i16", "i32", "i64")
FLOATS = ("float", "double")
Case = tuple[str, tuple[str, ...], str]  # type of the result, types of %a, %b, %c, instruction
CASES: list[Case] = []

for _t in INTEGERS:
    for _op in [
        "add",
        "sub",
        "mul",
        "udiv",
        "sdiv",
        "urem",
        "srem",
        "shl",
        "lshr",
        "ashr",
        "and",
        "or",
        "xor",
    ]:
        CASES.append((_t, (_t, _t), f"{_op} {_t} %a, %b"))
    for _op in ["smin", "smax", "umin", "umax", "uadd.sat", "sadd.sat", "usub.sat", "ssub.sat"]:
        CASES.append((_t, (_t, _t), f"call {_t} @llvm.{_op}.{_t}({_t} %a, {_t} %b)"))
    for _op in ["ctpop", "bitreverse"]:
        CASES.append((_t, (_t,), f"call {_t} @llvm.{_op}.{_t}({_t} %a)"))
    for _op in ["ctlz", "cttz", "abs"]:
        CASES.append((_t, (_t,), f"call {_t} @llvm.{_op}.{_t}({_t} %a, i1 false)"))
    for _op in ["fshl", "fshr"]:
        call = f"call {_t} @llvm.{_op}.{_t}({_t} %a, {_t} %b, {_t} %c)"
        CASES.append((_t, (_t, _t, _t), call))
    for _f in FLOATS:
        for _op in ["sitofp", "uitofp"]:
            CASES.append((_f, (_t,), f"{_op} {_t} %a to {_f}"))
        CASES.append((_t, (_f,), f"call {_t} @llvm.fptosi.sat.{_t}.{BITS[_f]}({_f} %a)"))
    CASES += [(_u, (_t,), f"{_op} {_t} %a to {_u}") for _u in INTEGERS for _op in ("zext", "sext")
              if int(_u[1:]) > int(_t[1:])]  # fmt: skip
for _f in FLOATS:
    for _op in ["fadd", "fsub", "fmul", "fdiv"]:
        CASES.append((_f, (_f, _f), f"{_op} {_f} %a, %b"))
    for _op in ["sqrt", "fabs", "floor", "ceil", "trunc", "rint"]:
        CASES.append((_f, (_f,), f"call {_f} @llvm.{_op}.{BITS[_f]}({_f} %a)"))
    for _op in ["copysign", "minnum", "maxnum", "minimum", "maximum"]:
        CASES.append((_f, (_f, _f), f"call {_f} @llvm.{_op}.{BITS[_f]}({_f} %a, {_f} %b)"))
    for _op in [
        "oeq",
        "ogt",
        "oge",
        "olt",
        "ole",
        "one",
        "ord",
        "ueq",
        "ugt",
        "uge",
        "ult",
        "ule",
        "une",
        "uno",
    ]:
        CASES.append(("i8", (_f, _f), f"fcmp {_op} {_f} %a, %b"))
CASES.append(("float", ("double",), "fptrunc double %a to float"))
CASES.append(("double", ("float",), "fpext float %a to double"))


def source(case: Case, gpu: bool) -> str:
    """A kernel of all threads, or a function that loops over them."""
    result, kinds, code = case
    space = "ptr addrspace(1)" if gpu else "ptr"
    names = [f"{space} %p{n}" for n in range(len(kinds))]
    text = [f"define {'ptx_kernel ' if gpu else ''}void @k({', '.join([*names, f'{space} %out'])}"]
    text[0] += ") {\n" if gpu else ", i32 %i) {\n"
    if gpu:
        text.append("%i = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()")
    for n, (name, kind) in enumerate(zip("abc", kinds)):
        text.append(f"%at{n} = getelementptr {kind}, {space} %p{n}, i32 %i")
        text.append(f"%{name} = load {kind}, {space} %at{n}")
    if code.startswith("fcmp"):
        text += [f"%bit = {code}", "%r = zext i1 %bit to i8"]
    else:
        text.append(f"%r = {code}")
    text += [
        f"%to = getelementptr {result}, {space} %out, i32 %i",
        f"store {result} %r, {space} %to",
    ]
    text.append("ret void\n}")
    if gpu:
        text.append("declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()")
    if code.startswith("call"):
        head, _, rest = code[5:].partition("(")
        types = ", ".join(part.split()[0] for part in rest.rstrip(")").split(", "))
        text.append(f"declare {head}({types})")
    return "\n".join(text)


def inputs(case: Case) -> list[Array]:
    """Edge values without what LLVM leaves undefined."""
    _, kinds, code = case
    arrays = [edge_values(KINDS[kind], THREADS, seed) for seed, kind in enumerate(kinds)]
    generator = np.random.default_rng(7)
    arrays = [arrays[0], *(generator.permutation(a) for a in arrays[1:])]
    if "div i" in code or "rem i" in code:
        arrays[1][arrays[1] == 0] = 3
        arrays[1][arrays[1] == np.iinfo(arrays[1].dtype).max] = 5
    if code.startswith(("shl", "lshr", "ashr")):
        arrays[1] %= int(kinds[1][1:])
    return arrays


def on_processor(case: Case, arrays: list[Array], out: Array) -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(source(case, False)), machine)
    engine.finalize_object()
    pointers: list[Any] = [ctypes.c_void_p] * (len(arrays) + 1)
    function = ctypes.CFUNCTYPE(None, *pointers, ctypes.c_int)(engine.get_function_address("k"))
    for thread in range(THREADS):
        function(*(a.ctypes.data for a in arrays), out.ctypes.data, thread)


@pytest.mark.parametrize("cpu, features", [("sm_80", "+ptx70"), ("sm_100", "+ptx86")])
@pytest.mark.parametrize("case", CASES, ids=[c[2] for c in CASES])
def test_operation(case: Case, cpu: str, features: str) -> None:
    arrays = inputs(case)
    found, expected = (np.zeros(THREADS, edge_values(KINDS[case[0]]).dtype) for _ in range(2))
    kernel = from_llvm(source(case, True), cpu, features).kernels["k"]
    launch(kernel, [*arrays, found], block=(THREADS,))
    on_processor(case, arrays, expected)
    np.testing.assert_array_equal(found, expected)
