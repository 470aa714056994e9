"""Launches on the fake GPUs: kernels that run, and every mistake that a GPU answers."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
import pytest

from tests.emulators.nv import nvrtc
from tests.emulators.nv.client import Client
from tests.emulators.nv.launcher import Launcher
from tests.emulators.nv.profiles import GH100, PROFILES, Profile
from tests.emulators.nv.system import FakeSystem

ADD = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 out, .param .u64 a, .param .u32 n)
{
  .reg .pred %p; .reg .b32 %r<6>; .reg .b64 %d<6>;
  ld.param.u64 %d1, [out]; ld.param.u64 %d2, [a]; ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
  mad.lo.s32 %r2, %r2, %r3, %r4;
  mul.wide.u32 %d3, %r2, 4;
  add.s64 %d4, %d2, %d3; add.s64 %d5, %d1, %d3;
  ld.global.u32 %r5, [%d4];
  add.s32 %r5, %r5, %r1;
  st.global.u32 [%d5], %r5;
  ret;
}
"""
CODE = bytes(range(256)) * 2


def opened(profile: Profile = GH100) -> Launcher:
    system = FakeSystem([profile])
    system.register_code(CODE, ADD, "add")
    client = Client(system)
    return Launcher(client, client.open_gpu())


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    made = opened()
    made.set_up()
    yield made
    made.client.close()
    assert not made.client.system.objects()


def launch_add(launcher: Launcher, **changes: int) -> None:
    """out = a + 5 for 64 numbers."""
    data = launcher.work.address + 0x100000
    launcher.work.view[0x100000:0x100100] = np.arange(64, dtype=np.int32).tobytes()
    parameters = struct.pack("<QQI", data + 0x1000, data, 5)
    launcher.launch(CODE, (2, 1, 1), (32, 1, 1), parameters, **changes)


def result(launcher: Launcher) -> list[int]:
    return np.frombuffer(bytes(launcher.work.view[0x101000:0x101100]), np.int32).tolist()


@pytest.mark.parametrize("chip", PROFILES)
def test_a_kernel_runs(chip: str) -> None:
    launcher = opened(PROFILES[chip])
    launcher.set_up()
    launch_add(launcher)
    assert launcher.finish() == 1
    assert result(launcher) == [i + 5 for i in range(64)]
    assert not launcher.client.system.complaints
    launcher.client.close()


SOURCE = r"""
__constant__ float scale[4];
__device__ int counter;
extern "C" __global__ void turn(float *o, const float *a, int n) {
  __shared__ float t[64];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  t[threadIdx.x] = a[i];
  __syncthreads();
  if (i < n) { o[i] = t[63 - threadIdx.x] * scale[1]; atomicAdd(&counter, 1); }
}
"""


@pytest.mark.skipif(nvrtc.library() is None, reason="NVRTC is not installed")
@pytest.mark.parametrize("chip", PROFILES)
def test_a_kernel_of_nvrtc_runs_with_shared_memory_and_variables(chip: str) -> None:
    launcher = opened(PROFILES[chip])
    system, work = launcher.client.system, launcher.work
    cubin, ptx = nvrtc.build(SOURCE, launcher.profile.target)
    system.register_cubin(cubin, ptx)
    code = next(c for c in system.code.codes() if system.code.find(c).entry == "turn")
    launcher.set_up(per_thread=0x240)
    bank_3, bank_4, counter = (work.address + at for at in (0x180000, 0x180100, 0x180200))
    struct.pack_into("<4f", work.view, 0x180000, 1, 2, 3, 4)
    struct.pack_into("<Q", work.view, 0x180100, counter)
    values = np.arange(128, dtype=np.float32)
    work.view[0x100000:0x100200] = values.tobytes()
    parameters = struct.pack("<QQi", work.address + 0x101000, work.address + 0x100000, 100)
    changes = launcher.bank_fields(3, bank_3, 16) | launcher.bank_fields(4, bank_4, 16)
    high = 0x240 >> (4 if launcher.profile.qmd == 5 else 0)
    changes |= {"shared_bytes": 0x400 + 256, "local_high": high}
    launcher.launch(code, (2, 1, 1), (64, 1, 1), parameters, **changes)
    assert launcher.finish() == 1
    found = np.frombuffer(bytes(work.view[0x101000:0x101190]), np.float32)
    wanted = np.concatenate([values[:64][::-1], values[64:][::-1]])[:100] * 2
    assert found.tolist() == wanted.tolist()
    assert work.u32(0x180200) == 100
    assert not system.complaints
    launcher.client.close()
