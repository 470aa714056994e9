"""What real compilers emit: LLVM's NVPTX target and NVIDIA's NVRTC."""

from __future__ import annotations

import ctypes
import functools
import math
from pathlib import Path

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np
import pytest

from tests.emulators.nv import ptx
from tests.emulators.nv.ptx_kernels import launch

TARGETS = [("sm_80", "+ptx70"), ("sm_89", "+ptx83"), ("sm_90", "+ptx80"), ("sm_100", "+ptx86")]


@functools.cache
def from_llvm(source: str, cpu: str, features: str) -> ptx.Module:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(source)
    module.triple = "nvptx64-nvidia-cuda"
    machine = llvm.Target.from_triple(module.triple).create_target_machine(
        cpu=cpu, features=features, opt=3
    )
    return ptx.parse(machine.emit_assembly(module))


IR = """
@tile = internal addrspace(3) global [64 x float] undef, align 16
@table = internal addrspace(1) constant [4 x float] [float 1., float 2., float 3., float 4.]
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare void @llvm.nvvm.barrier0()
declare float @llvm.sqrt.f32(float)
declare half @llvm.fma.f16(half, half, half)
declare i32 @llvm.ctpop.i32(i32)
define ptx_kernel void @k(ptr addrspace(1) %out, ptr addrspace(1) noalias %in, i32 %n) {
entry:
  %array = alloca [4 x float]
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %c = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %b = mul i32 %c, 64
  %i = add i32 %b, %t
  %p = getelementptr float, ptr addrspace(1) %in, i32 %i
  %v = load float, ptr addrspace(1) %p
  %s = getelementptr float, ptr addrspace(3) @tile, i32 %t
  store float %v, ptr addrspace(3) %s
  call void @llvm.nvvm.barrier0()
  %u = xor i32 %t, 1
  %s2 = getelementptr float, ptr addrspace(3) @tile, i32 %u
  %w = load float, ptr addrspace(3) %s2
  %x = fdiv float %w, 3.0
  %y = call float @llvm.sqrt.f32(float %x)
  %h = fptrunc float %y to half
  %hh = call half @llvm.fma.f16(half %h, half 1.5, half %h)
  %hf = fpext half %hh to float
  %bf = fptrunc float %v to bfloat
  %bb = fadd bfloat %bf, 1.0
  %bbf = fpext bfloat %bb to float
  %sum = fadd float %hf, %bbf
  %m = and i32 %t, 3
  %tp = getelementptr float, ptr addrspace(1) @table, i32 %m
  %tv = load float, ptr addrspace(1) %tp
  %sum2 = fadd float %sum, %tv
  %pop = call i32 @llvm.ctpop.i32(i32 %t)
  %popf = sitofp i32 %pop to float
  %sum3 = fadd float %sum2, %popf
  %a = getelementptr float, ptr %array, i32 %m
  store volatile float %sum3, ptr %a
  %sum4 = load volatile float, ptr %a
  %inside = icmp slt i32 %i, %n
  br i1 %inside, label %yes, label %no
yes:
  %q = getelementptr float, ptr addrspace(1) %out, i32 %i
  %old = atomicrmw fadd ptr addrspace(1) %q, float %sum4 monotonic
  %k = srem i32 %i, 7
  switch i32 %k, label %no [ i32 1, label %one
   i32 2, label %two
   i32 3, label %three
   i32 4, label %four
   i32 5, label %two ]
one:
  store float 1., ptr addrspace(1) %q
  br label %no
two:
  store float 2., ptr addrspace(1) %q
  br label %no
three:
  store <2 x half> <half 0., half 2.>, ptr addrspace(1) %q
  br label %no
four:
  store i32 0, ptr addrspace(1) %q
  br label %no
no:
  ret void
}
"""


@pytest.mark.parametrize("cpu, features", TARGETS)
def test_kernel_by_llvm(cpu: str, features: str) -> None:
    kernel = from_llvm(IR, cpu, features).kernels["k"]
    n = 64 * 70 - 5
    values = np.random.default_rng(0).random(64 * 70).astype("f4") * 100
    out = np.full(64 * 70, 0.5, "f4")
    launch(kernel, [out, values, n], (70,), (64,))
    i = np.arange(64 * 70)
    half = np.sqrt(values[i ^ 1] / np.float32(3)).astype("f2")
    half = (half.astype("f8") * 1.5 + half).astype("f2")
    brain = (values.astype(ml_dtypes.bfloat16) + ml_dtypes.bfloat16(1)).astype("f4")
    # the order of the sums is the kernel's; narrow types are rounded alike
    expected = half.astype("f4") + brain + (i % 4 + 1).astype("f4")
    expected += np.bitwise_count(i % 64).astype("f4") + np.float32(0.5)
    special = {1: 1, 2: 2, 3: 2, 4: 0, 5: 2}
    for remainder, value in special.items():
        expected[i % 7 == remainder] = value
    expected[n:] = 0.5
    expected[(i % 7 == 3) & (i < n)] = np.array([0, 2], "f2").view("f4")[0]
    np.testing.assert_allclose(out, expected, rtol=1e-6)


# --- NVRTC


@functools.cache
def nvrtc() -> ctypes.CDLL:
    pytest.importorskip("nvidia", reason="the package nvidia-cuda-nvrtc is not installed")
    import nvidia

    found = [lib for root in nvidia.__path__ for lib in Path(root).rglob("libnvrtc.so*")]
    if not found:
        pytest.skip("the package nvidia-cuda-nvrtc is not installed")
    return ctypes.CDLL(str(found[0]))


@functools.cache
def from_nvrtc(source: str, arch: str, *options: str) -> ptx.Module:
    library = nvrtc()
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"k.cu", 0, None, None)
    words = [f"--gpu-architecture={arch}".encode(), *(o.encode() for o in options)]
    failed = library.nvrtcCompileProgram(
        program, len(words), (ctypes.c_char_p * len(words))(*words)
    )
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    assert not failed, log.value.decode()
    library.nvrtcGetPTXSize(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    library.nvrtcGetPTX(program, text)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return ptx.parse(text.value.decode())


ARCHS = ["compute_80", "compute_89", "compute_90", "compute_100"]

TILED = r"""
extern "C" __global__ void __launch_bounds__(256)
matmul(float* c, const float* __restrict__ a, const float* __restrict__ b, int n) {
  __shared__ float ta[16][17], tb[16][17];
  int tx = threadIdx.x, ty = threadIdx.y, x = blockIdx.x * 16 + tx, y = blockIdx.y * 16 + ty;
  float sum = 0;
  for (int k = 0; k < n; k += 16) {
    ta[ty][tx] = a[y * n + k + tx]; tb[ty][tx] = b[(k + ty) * n + x];
    __syncthreads();
    for (int j = 0; j < 16; j++) sum += ta[ty][j] * tb[j][tx];
    __syncthreads();
  }
  c[y * n + x] = sum;
}
extern "C" __global__ void naive(float* c, const float* a, const float* b, int n) {
  int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y; float sum = 0;
  for (int k = 0; k < n; k++) sum += a[y * n + k] * b[k * n + x];
  c[y * n + x] = sum;
}
extern "C" __global__ void scale(float* c, const float* a, int n) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) c[i] = a[i] * 3.0f + 1.0f;
}
"""


@pytest.mark.parametrize("name", ["matmul", "naive"])
@pytest.mark.parametrize("arch", ARCHS)
def test_matmul_by_nvrtc(arch: str, name: str) -> None:
    n = 256 if arch == "compute_90" else 64
    a, b = np.random.default_rng(0).standard_normal((2, n, n)).astype("f4")
    c = np.zeros((n, n), "f4")
    launch(from_nvrtc(TILED, arch).kernels[name], [c, a, b, n], (n // 16, n // 16), (16, 16))
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)


def test_a_million_elements() -> None:
    n = 1_000_003
    a, c = np.arange(n, dtype="f4"), np.zeros(n, "f4")
    launch(from_nvrtc(TILED, "compute_90").kernels["scale"], [c, a, n], ((n + 255) // 256,), (256,))
    assert (c == a * 3 + 1).all()


MATH = r"""
__device__ int table[4] = {1, 2, 3, 4};
__constant__ float factors[3] = {1.5f, 2.5f, 3.5f};
extern "C" __device__ __noinline__ float pick(float x, int n) {
  float parts[16]; for (int i = 0; i < n; i++) parts[i] = x * i; return parts[n / 2];
}
struct Three { char a; double b; int c; };
extern "C" __global__ void math(float* o, const float* in, int n) {
  int t = blockIdx.x * blockDim.x + threadIdx.x; if (t >= n) return;
  float x = in[t]; o += t * 16;
  o[0] = sinf(x); o[1] = expf(x); o[2] = logf(fabsf(x)); o[3] = tanhf(x);
  o[4] = powf(fabsf(x), 2.3f); o[5] = erff(x); o[6] = cosf(x * 1e5f);
  o[7] = fmodf(x, 1.7f); o[8] = rintf(x) + floorf(x) * 2;
  o[9] = rsqrtf(fabsf(x)); o[10] = factors[table[t & 3] % 3]; o[11] = pick(x, 10);
  o[12] = t / 7 * 100 + t % 9; o[13] = cbrtf(x); o[14] = x / 3.3f; o[15] = __fdividef(x, 3.f);
}
extern "C" __global__ void doubles(double* o, const double* in, Three s) {
  int t = threadIdx.x; double x = in[t]; o += t * 8;
  o[0] = sin(x); o[1] = exp(x); o[2] = log(fabs(x)); o[3] = x / 3; o[4] = pow(fabs(x), 1.5);
  o[5] = cos(x * 1e10); o[6] = s.a + s.b * s.c; o[7] = (double)(long long)(x * 1e6) + (int)x;
}
extern "C" __global__ void lanes(float* o, const float* in) {
  int t = threadIdx.x; float x = in[t], s = x;
  for (int d = 16; d; d >>= 1) s += __shfl_xor_sync(~0u, s, d);
  o[t] = s + __popc(__ballot_sync(~0u, x > 0)) + __syncthreads_count(x > 0);
  if (x > 0) atomicAdd(&o[64], x);
  atomicMax((int*)&o[65], t); atomicCAS((int*)&o[66], t, t + 1);
}
"""


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("fast", [False, True])
def test_functions_by_nvrtc(arch: str, fast: bool) -> None:
    options = ("--use_fast_math",) if fast else ("-lineinfo",)
    kernel = from_nvrtc(MATH, arch, *options).kernels["math"]
    x = np.random.default_rng(0).standard_normal(1000).astype("f4") * 3
    out = np.zeros((1024, 16), "f4")
    launch(kernel, [out, x, 1000], (8,), (128,))
    t, d = np.arange(1000), x.astype("f8")
    expected = [
        np.sin(d), np.exp(d), np.log(np.abs(d)), np.tanh(d), np.abs(d) ** 2.3,
        [*map(math.erf, d)], np.cos((x * np.float32(1e5)).astype("f8")),
        np.fmod(d, np.float64(np.float32(1.7))), np.rint(x) + np.floor(x) * 2,
        1 / np.sqrt(np.abs(d)), np.array([1.5, 2.5, 3.5])[(t % 4 + 1) % 3], d * 5,
        t // 7 * 100 + t % 9, np.cbrt(d), d / np.float32(3.3), d / 3,
    ]  # fmt: skip
    tolerance = 1e-4 if fast else 2e-6
    for column, values in enumerate(expected):
        if fast and column == 6:
            continue  # the fast cosine is not for large arguments
        np.testing.assert_allclose(out[:1000, column], values, rtol=tolerance, atol=tolerance)
    assert (out[1000:] == 0).all()


@pytest.mark.parametrize("arch", ARCHS)
def test_doubles_by_nvrtc(arch: str) -> None:
    kernel = from_nvrtc(MATH, arch).kernels["doubles"]
    x = np.random.default_rng(0).standard_normal(64) * 3
    out = np.zeros((64, 8))
    three = np.array([(5, 2.5, 7)], np.dtype("i1,f8,i4", align=True))
    launch(kernel, [out, x, int.from_bytes(three.tobytes(), "little")], block=(64,))
    expected = [
        np.sin(x), np.exp(x), np.log(np.abs(x)), x / 3, np.abs(x) ** 1.5, np.cos(x * 1e10),
        np.full(64, 22.5), np.trunc(x * 1e6) + np.trunc(x),
    ]  # fmt: skip
    for column, values in enumerate(expected):
        np.testing.assert_allclose(out[:, column], values, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("arch", ARCHS)
def test_lanes_by_nvrtc(arch: str) -> None:
    kernel = from_nvrtc(MATH, arch).kernels["lanes"]
    x = np.random.default_rng(0).integers(-8, 8, 64).astype("f4")
    out = np.zeros(67, "f4")
    launch(kernel, [out, x], block=(64,))
    positive = (x > 0).reshape(2, 32).sum(1)
    sums = x.reshape(2, 32).sum(1) + positive + (x > 0).sum()
    assert out[:64].tolist() == np.repeat(sums, 32).tolist()
    assert out[64] == x[x > 0].sum()
    assert out[65:].view("i4").tolist() == [63, 64]


def test_printf_is_refused() -> None:
    source = 'extern "C" __global__ void k() { printf("hello\\n"); }'
    kernel = from_nvrtc(source, "compute_90").kernels["k"]
    with pytest.raises(ptx.PtxError, match="vprintf has no body"):
        kernel.check()
