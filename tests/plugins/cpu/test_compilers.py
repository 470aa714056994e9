"""Compilers and the loader of object code."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tg_cpu import llvm, plugin
from tg_cpu.compilers import CCompiler, LLVMCompiler
from tg_cpu.loader import load_code
from tg_cpu.native import symbol_address

from tests.hcq.kernels import ADD
from tgcore.dtype import dtypes
from tgcore.errors import CompileError, DeviceError
from tgcore.runtime.buffer import Buffer
from tgcore.runtime.device import Device

needs_c = pytest.mark.skipif(CCompiler().command is None, reason="no C compiler here")

C_SOURCE = """
#include <math.h>
#include <stdint.h>
static const float table[4] = {0.5f, 1.5f, 2.5f, 3.5f};
void kernel(const int64_t *args, int32_t thread) {
  float *out = (float *)args[0];
  const float *in = (const float *)args[1];
  for (int i = 0; i < 4; i++) out[i] = fmodf(in[i], 2.0f) + table[i];
}
"""

# calls the C and the mathematical library, and reads a constant table
IR_SOURCE = """
@table = internal constant [4 x float] [float 0.5, float 1.5, float 2.5, float 3.5]
declare float @fmodf(float, float)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define void @kernel(ptr %args, i32 %thread) {
entry:
  %out = load ptr, ptr %args
  %second = getelementptr i64, ptr %args, i64 1
  %in = load ptr, ptr %second
  call void @llvm.memset.p0.i64(ptr %out, i8 255, i64 16, i1 false)
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %at = getelementptr float, ptr %in, i64 %i
  %x = load float, ptr %at, align 4
  %rest = call float @fmodf(float %x, float 2.0)
  %constant = getelementptr [4 x float], ptr @table, i64 0, i64 %i
  %c = load float, ptr %constant, align 4
  %sum = fadd float %rest, %c
  %to = getelementptr float, ptr %out, i64 %i
  store float %sum, ptr %to, align 4
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, 4
  br i1 %more, label %loop, label %end
end:
  ret void
}
"""


def run(binary: bytes) -> list[float]:
    device = Device["CPU"]
    values = np.array([1, 2.5, 5, -3], dtype=np.float32)
    given = Buffer("CPU", 4, dtypes.float32, initial=values.tobytes())
    out = Buffer("CPU", 4, dtypes.float32).ensure_allocated()
    device.load("kernel", binary, SimpleNamespace(threads=1))([out, given])  # type: ignore[arg-type]
    return out.numpy().tolist()


EXPECTED = [1.5, 2.0, 3.5, 2.5]


def test_llvm_object_with_calls_and_constants() -> None:
    assert run(LLVMCompiler().compile(IR_SOURCE)) == EXPECTED


def test_linker_of_llvm() -> None:
    functions, keep = llvm.link_object(LLVMCompiler().compile(IR_SOURCE))
    assert functions["kernel"] > 0 and keep
    with pytest.raises(KeyError):
        functions["nothing"]


@needs_c
def test_shared_object_of_c() -> None:
    assert run(CCompiler().compile(C_SOURCE)) == EXPECTED


def test_equal_sources_give_equal_binaries() -> None:
    assert LLVMCompiler().compile(ADD) == LLVMCompiler().compile(ADD)
    assert "LLVM" in llvm.VERSION and "llvm" in LLVMCompiler().cache_key


def test_rejected_ir() -> None:
    bad = ADD.replace("add <4 x i32> %x", "add <4 x i64> %x")
    with pytest.raises(CompileError) as caught:
        LLVMCompiler().compile(bad)
    text = str(caught.value)
    assert "LLVM rejects the kernel" in text and "source:10" in text
    assert "   10 |   %z = add <4 x i64> %x, %y" in text


@needs_c
def test_rejected_c() -> None:
    with pytest.raises(CompileError) as caught:
        CCompiler().compile("int f(void) {\n  return nonsense;\n}\n")
    text = str(caught.value)
    assert "source:2" in text and "    2 |   return nonsense;" in text


def test_no_c_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    reason = CCompiler().available()
    assert reason is not None and "install clang or gcc" in reason
    with pytest.raises(CompileError, match="install clang or gcc"):
        CCompiler().compile("")


@pytest.mark.skipif(shutil.which("objdump") is None, reason="no objdump here")
def test_disassembly() -> None:
    assert "ret" in LLVMCompiler().disassemble(LLVMCompiler().compile(ADD))


def test_unknown_function() -> None:
    binary = LLVMCompiler().compile(
        "declare void @no_such_function_xyz()\n"
        "define void @f(ptr %a, i32 %t) {\n  call void @no_such_function_xyz()\n  ret void\n}\n"
    )
    with pytest.raises(CompileError, match="no_such_function_xyz"):
        load_code(binary)
    assert symbol_address("memcpy") and symbol_address("no_such_function_xyz") is None


def test_unknown_renderer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_RENDERER", "fortran")
    with pytest.raises(DeviceError, match="neither llvm nor c"):
        plugin.choose_language()


def test_what_the_machine_can_do() -> None:
    device = Device["CPU"]
    target = device.renderer.target
    assert dtypes.float32 in target.dtypes and target.vector_bytes in (16, 32, 64)
    assert target.threads >= 1


@needs_c
def test_the_conformance_kit_with_c(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n0", "--pyargs",
         "tgcore.testing", "--tg-device", "CPU", "-k", "float32 or float16 or not test_programs"],
        env=os.environ | {"CPU_RENDERER": "c"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
