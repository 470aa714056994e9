"""Kernels written by hand for the CPU's calling convention, to test queues without a compiler."""

from __future__ import annotations

from tgcore.codegen.program import ProgramSpec
from tgcore.runtime.compiled import CompiledDevice, Program
from tgcore.uop.node import UOp

# data0[i] = data1[i] + data2[i] for 4 int32
ADD = """
define void @add(ptr %args, i32 %thread) {
  %at1 = getelementptr i64, ptr %args, i64 1
  %at2 = getelementptr i64, ptr %args, i64 2
  %out = load ptr, ptr %args
  %a = load ptr, ptr %at1
  %b = load ptr, ptr %at2
  %x = load <4 x i32>, ptr %a, align 4
  %y = load <4 x i32>, ptr %b, align 4
  %z = add <4 x i32> %x, %y
  store <4 x i32> %z, ptr %out, align 4
  ret void
}
"""

# data0[0] += n
ADD_VARIABLE = """
define void @add_variable(ptr %args, i32 %thread) {
  %at1 = getelementptr i64, ptr %args, i64 1
  %out = load ptr, ptr %args
  %n = load i64, ptr %at1
  %n32 = trunc i64 %n to i32
  %x = load i32, ptr %out, align 4
  %z = add i32 %x, %n32
  store i32 %z, ptr %out, align 4
  ret void
}
"""

# data0[thread] += thread + 1, each on its own cache line of 16 int32
BY_THREAD = """
define void @by_thread(ptr %args, i32 %thread) {
  %out = load ptr, ptr %args
  %wide = zext i32 %thread to i64
  %index = shl i64 %wide, 4
  %at = getelementptr i32, ptr %out, i64 %index
  %x = load i32, ptr %at, align 4
  %n = add i32 %thread, 1
  %z = add i32 %x, %n
  store i32 %z, ptr %at, align 4
  ret void
}
"""

# spins n times, then data0[0] = 1
SLOW = """
define void @slow(ptr %args, i32 %thread) {
entry:
  %at1 = getelementptr i64, ptr %args, i64 1
  %out = load ptr, ptr %args
  %n = load i64, ptr %at1
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %i1 = add i64 %i, 1
  call void asm sideeffect "", "~{memory}"()
  %more = icmp ult i64 %i1, %n
  br i1 %more, label %loop, label %end
end:
  store i32 1, ptr %out, align 4
  ret void
}
"""

SOURCES = {"add": ADD, "add_variable": ADD_VARIABLE, "by_thread": BY_THREAD, "slow": SLOW}


def spec_of(name: str, buffers: int, *, outs: tuple[int, ...] = (0,), threads: int = 1,
            variables: tuple[UOp, ...] = ()) -> ProgramSpec:  # fmt: skip
    """A description of a hand-written kernel."""
    numbers = tuple(range(buffers))
    return ProgramSpec(name, name, SOURCES[name], "", UOp.sink(), (), numbers, outs, numbers,
                       variables, threads=threads)  # fmt: skip


def load(device: CompiledDevice, name: str, buffers: int, **options: object) -> Program:
    """Compile and load a kernel."""
    spec = spec_of(name, buffers, **options)  # type: ignore[arg-type]
    return device.load(name, device.compiler.compile(spec.source), spec)
