"""Kernels written by hand, run on a fake GPU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from tg_nv.device import NVDevice
from tg_nv.program import NVProgram

from tgcore.codegen.late.estimates import Estimates
from tgcore.codegen.program import ProgramSpec
from tgcore.runtime.device import Device
from tgcore.uop import UOp

Dims = tuple[int, int, int]

INDICES = """
extern "C" __global__ void indices(int *out) {
  int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] = block * 1000 + thread;
}"""
ADD_ONE = """
extern "C" __global__ void add_one(int *out, const int *in, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i] + 1;
}"""
REVERSE = """
extern "C" __global__ void reverse(int *data) {
  __shared__ int kept[256];
  kept[threadIdx.x] = data[threadIdx.x];
  __syncthreads();
  data[threadIdx.x] = kept[blockDim.x - 1 - threadIdx.x];
}"""
STACK = """
extern "C" __global__ void stack(int *data, int n) {
  int table[64];
  for (int i = 0; i < 64; i++) table[(i * 7 + n) % 64] = i * data[i % 4];
  data[threadIdx.x] = table[(threadIdx.x * 3 + n) % 64];
}"""
MATMUL = """
extern "C" __global__ void matmul(float *c, const float *a, const float *b, int n) {
  int i = blockIdx.y * blockDim.y + threadIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < n; k++) sum += a[i * n + k] * b[k * n + j];
  c[i * n + j] = sum;
}"""
TABLE = """
__constant__ int factors[4] = {2, 3, 5, 7};
__device__ int counter = 40;
extern "C" __global__ void table(int *data) {
  data[threadIdx.x] = factors[data[threadIdx.x] & 3] + counter;
}"""
WILD = """
extern "C" __global__ void wild(int *data, long long offset) { data[offset] = 1; }"""
TRAP = """
extern "C" __global__ void broken(int *data) { if (data[0] == 0) __trap(); }"""
ENDLESS = """
extern "C" __global__ void endless(volatile int *data) { while (data[0] == 0) { } }"""


def device(name: str = "NV") -> NVDevice:
    """The opened fake GPU."""
    found = Device[name]
    assert isinstance(found, NVDevice)
    return found


def load(gpu: NVDevice, source: str) -> NVProgram:
    """The one kernel of a source."""
    name = source.partition("void ")[2].partition("(")[0]
    spec = ProgramSpec(name, name, source, "NV", UOp.sink(), (), (), (), (), (), None, None, 1,
                       Estimates(0, 0, 0))  # fmt: skip
    return gpu.load(name, gpu.compiler.compile(source), spec)


def run(
    gpu: NVDevice, source: str, args: Sequence[int], grid: Dims = (1, 1, 1), block: Dims = (1, 1, 1)
) -> None:
    """Run it and wait."""
    program = load(gpu, source)
    gpu.enqueue(program.function_name, lambda queue: queue.exec(program, args, grid, block))
    gpu.synchronize()


class Memory:
    """An array on the GPU."""

    def __init__(self, gpu: NVDevice, array: NDArray[np.int32]) -> None:
        self.gpu, self.shape = gpu, array.shape
        self.memory = gpu.allocator.alloc(array.nbytes)
        gpu.allocator.copyin(self.memory, memoryview(array.copy()).cast("B"))

    @property
    def address(self) -> int:
        """Where it is."""
        return self.memory.address

    @property
    def values(self) -> NDArray[np.int32]:
        """What it holds."""
        found = np.empty(self.shape, np.int32)
        self.gpu.allocator.copyout(memoryview(found).cast("B"), self.memory)
        return found
