"""Kernels by LLVM's NVPTX target and nvJitLink: `NV_RENDERER=llvm`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("llvmlite")

from tg_nv import architecture, plugin
from tg_nv.cubin import parse_cubin
from tg_nv.languages import nvjitlink, nvptx, nvrtc
from tg_nv.languages.choice import choose_language, gpu_target
from tg_nv.languages.llvm import NVPTXRenderer
from tg_nv.languages.nvjitlink import JitLinkCompiler

from tests.codegen.running import given, kernel_of
from tests.emulators.nv import FakeSystem, cubin
from tests.emulators.nv.install import installed
from tests.emulators.nv.profiles import PROFILES
from tests.plugins.nv.kernels import device
from tgcore import Tensor, dtypes
from tgcore.dtype import DType
from tgcore.errors import CompileError, DeviceError
from tgcore.runtime.compile import make_program
from tgcore.uop import Ops, UOp

REASON = JitLinkCompiler("sm_90").available()
needs_linker = pytest.mark.skipif(REASON is not None, reason=REASON or "")
TARGETS = {a.sm: a for a in architecture.ALL if a.sm in ("sm_80", "sm_89", "sm_90", "sm_100")}
rng = np.random.default_rng(3)
Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module", params=["GA100", "GH100", "GB100"])
def gpu(request: pytest.FixtureRequest) -> Iterator[FakeSystem]:
    """One GPU of three generations in turn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NV_RENDERER", "llvm")
        patch.setenv("DEV", "NV")
        with installed(PROFILES[request.param]) as system:
            assert isinstance(device().compiler, JitLinkCompiler)
            yield system


def on_gpu(array: Array) -> Tensor:
    return Tensor(array, device="NV")


def normal(*shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def close(found: Tensor, expected: Array, rtol: float = 1e-5, atol: float = 1e-5) -> None:
    assert found.device == "NV"
    np.testing.assert_allclose(found.numpy(), expected, rtol=rtol, atol=atol)


# *** numbers ***


@needs_linker
def test_elementwise(gpu: FakeSystem) -> None:
    a, b = normal(13, 37), normal(13, 37)
    x, y = on_gpu(a), on_gpu(b)
    close((x * y + 2).relu() / (y * y + 1) - x, np.maximum(a * b + 2, 0) / (b * b + 1) - a)
    close(x.exp() + (y.abs() + 1).log().sqrt(), np.exp(a) + np.sqrt(np.log(np.abs(b) + 1)))
    close(x.sin().maximum(y.trunc()), np.maximum(np.sin(a), np.trunc(b)))


@needs_linker
def test_reductions_with_shared_memory(gpu: FakeSystem) -> None:
    a = normal(4096)
    close(on_gpu(a).sum(), a.sum(), rtol=1e-4, atol=1e-4)
    close(on_gpu(a).max(), a.max())
    b = normal(7, 300)
    close(on_gpu(b).sum(1), b.sum(1), rtol=1e-4)
    close(on_gpu(b).softmax(), np.exp(b) / np.exp(b).sum(1, keepdims=True))


@needs_linker
def test_matmul(gpu: FakeSystem) -> None:
    for n, k, m in ((33, 70, 41), (64, 64, 64)):
        a, b = normal(n, k), normal(k, m)
        close(on_gpu(a) @ on_gpu(b), a @ b, atol=1e-4)


@needs_linker
@pytest.mark.parametrize("kind", [dtypes.float16, dtypes.bfloat16])
@pytest.mark.parametrize("result", [None, dtypes.float32])
def test_matmul_of_small_floats(gpu: FakeSystem, kind: DType, result: DType | None) -> None:
    numpy_kind: Any = np.float16 if kind is dtypes.float16 else ml_dtypes.bfloat16
    a, b = (normal(64, 64).astype(numpy_kind).astype(np.float32) for _ in range(2))
    found = on_gpu(a).cast(kind).matmul(on_gpu(b).cast(kind), dtype=result)
    step = {None: 2.0**-7 if kind is dtypes.bfloat16 else 2.0**-9, dtypes.float32: 1e-5}[result]
    close(found.float(), a @ b, rtol=step, atol=8 * step)


@needs_linker
def test_matmul_of_int8(gpu: FakeSystem) -> None:
    a, b = (rng.integers(-128, 128, (64, 64)).astype(np.int8) for _ in range(2))
    found = on_gpu(a).int().matmul(on_gpu(b).int())
    np.testing.assert_array_equal(found.numpy(), a.astype(np.int32) @ b.astype(np.int32))


EDGES = [0, 1, -1, 2.5, -2.5, 100, 127, 128, 200.75, 255, 256, 300, -129, 32767, 40000, 65504]
EDGES += [1e6, -1e6, 2.0**31, -(2.0**31), 3e9, 2.0**63, -(2.0**63), 1e19, 3e38, np.inf, -np.inf]
KINDS = [d for d in dtypes.all if d.fmt is not None and d not in dtypes.fp8s]


@needs_linker
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_casts_are_those_of_the_processor(gpu: FakeSystem, kind: DType) -> None:
    """All types from and to all others, with numbers that do not fit."""
    numbers = np.array([*EDGES, np.nan], np.float64)
    source = {d: Tensor(numbers, device=d).cast(kind).realize() for d in ("CPU", "NV")}
    for target in dtypes.all:
        if target in dtypes.fp8s or (target not in KINDS and target is not dtypes.bfloat16):
            continue
        here, there = (source[d].cast(target) for d in ("CPU", "NV"))
        if target is dtypes.bfloat16:
            here, there = here.float(), there.float()
        np.testing.assert_array_equal(there.numpy(), here.numpy(), err_msg=str(target))


@needs_linker
def test_bfloat16_of_bools_and_integers(gpu: FakeSystem) -> None:
    flags = np.array([True, False, True, True])
    found = on_gpu(flags).cast(dtypes.bfloat16).float()
    np.testing.assert_array_equal(found.numpy(), flags.astype(np.float32))
    numbers = np.array([-3, 257, 1 << 20, -(1 << 40)], np.int64)
    found = on_gpu(numbers).cast(dtypes.bfloat16).float()
    expected = numbers.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(found.numpy(), expected)


@needs_linker
@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint64])
def test_integers(gpu: FakeSystem, kind: type[np.integer[Any]]) -> None:
    info = np.iinfo(kind)
    a = rng.integers(info.min, info.max, 40, kind, endpoint=True)
    b = rng.integers(info.min, info.max, 40, kind, endpoint=True)
    b[b == 0] = 3
    b[:10] = np.arange(1, 11)
    x, y = on_gpu(a), on_gpu(b)
    for found, expected in [
        (x + y, a + b), (x * y, a * b), (x // y, a // b), (x % y, a % b), (x ^ y, a ^ b),
        (x << 3, a << 3), (x >> 3, a >> 3), (x < y, a < b), (x.maximum(y), np.maximum(a, b)),
    ]:  # fmt: skip
        np.testing.assert_array_equal(found.numpy(), expected)


@needs_linker
def test_vectors_of_bools(gpu: FakeSystem) -> None:
    a, b = rng.integers(0, 2, (2, 64, 64)).astype(bool)
    x, y = on_gpu(a), on_gpu(b)
    np.testing.assert_array_equal(((x & y) | ~x).numpy(), (a & b) | ~a)
    np.testing.assert_array_equal((x ^ y).sum().numpy(), (a ^ b).sum())
    np.testing.assert_array_equal(x.where(y, ~y).numpy(), np.where(a, b, ~b))
    np.testing.assert_array_equal(x.any(1).numpy(), a.any(1))


@needs_linker
def test_gather(gpu: FakeSystem) -> None:
    table, indices = normal(50, 9), rng.integers(0, 50, (4, 6))
    np.testing.assert_array_equal(on_gpu(table)[on_gpu(indices)].numpy(), table[indices])
    close(on_gpu(table).pad(((1, 2), (3, 0))), np.pad(table, ((1, 2), (3, 0))))


@needs_linker
def test_convolution(gpu: FakeSystem) -> None:
    torch = pytest.importorskip("torch")
    image, weights = normal(2, 3, 12, 11), normal(5, 3, 3, 3)
    found = on_gpu(image).conv2d(on_gpu(weights), padding=1)
    expected = torch.nn.functional.conv2d(torch.tensor(image), torch.tensor(weights), padding=1)
    close(found, expected.numpy(), atol=1e-4)


# *** text ***


def half_matmul() -> UOp:
    a, b = (given(normal(64, 64).astype(np.float16), dtypes.float16) for _ in range(2))
    product = a.reshape((64, 1, 64)).expand((64, 64, 64)) * b.permute((1, 0)).reshape(
        (1, 64, 64)
    ).expand((64, 64, 64))
    return product.cast(dtypes.float32).reduce_axis(Ops.ADD, (2,))


def source_of(node: UOp, sm: str) -> str:
    """LLVM IR of the one kernel of a graph."""
    return make_program(kernel_of(node), NVPTXRenderer(target(sm))).source


def target(sm: str) -> Any:
    return gpu_target(TARGETS[sm], sm, NVPTXRenderer)


def sum_of_many() -> UOp:
    return given(normal(1 << 14)).reduce_axis(Ops.ADD, (0,))


@pytest.fixture
def nothing_of_nvidia(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither NVRTC nor nvJitLink is installed."""
    for module in (nvrtc, nvjitlink):
        module.library.cache_clear()
        monkeypatch.setattr(module, "candidates", lambda *names: [])


@pytest.fixture(autouse=True)
def forget_libraries() -> Iterator[None]:
    yield
    for module in (nvrtc, nvjitlink):
        module.library.cache_clear()


@pytest.mark.parametrize("sm", TARGETS)
@pytest.mark.parametrize("kernel", [half_matmul, sum_of_many])
def test_ptx_needs_nothing_of_nvidia(
    sm: str, kernel: Callable[[], UOp], nothing_of_nvidia: None
) -> None:
    text = nvptx.emit_ptx(source_of(kernel(), sm), sm)
    assert f".target {sm}" in text and ".visible .entry" in text and ".maxntid" in text
    assert ("mma.sync" in text) == (kernel is half_matmul)
    assert ("bar.sync" in text) == (kernel is sum_of_many)
    assert (".shared" in text) == (kernel is sum_of_many)


def test_loads_are_as_wide_as_memory_allows() -> None:
    text = nvptx.emit_ptx(source_of(half_matmul(), "sm_90"), "sm_90")
    assert re.search(r"ld\.global\.nc\.v[24]\.b(32|64)", text), text


def test_reason_without_linker(nothing_of_nvidia: None) -> None:
    reason = JitLinkCompiler("sm_90").available()
    assert reason == "nvJitLink is not installed: pip install nvidia-nvjitlink"


@needs_linker
def test_reason_with_an_old_linker(monkeypatch: pytest.MonkeyPatch) -> None:
    nvjitlink.library.cache_clear()
    monkeypatch.setattr(nvjitlink, "_OLDEST", (99, 0))
    reason = JitLinkCompiler("sm_90").available()
    assert reason is not None and re.match(r"nvJitLink \d+\.\d+ is too old: pip", reason)


def test_reason_without_llvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvptx, "find_spec", lambda name: None)
    assert JitLinkCompiler("sm_90").available() == "llvmlite is not installed"


def test_reason_with_an_old_llvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llvmlite.binding.llvm_version_info", (15, 0, 7))
    nvptx._target.cache_clear()
    assert JitLinkCompiler("sm_90").available() == "llvmlite has LLVM 15; 21 or newer is needed"


def test_a_device_without_its_compiler_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, nothing_of_nvidia: None
) -> None:
    monkeypatch.setenv("NV_RENDERER", "llvm")
    with installed(PROFILES["GH100"]), pytest.raises(DeviceError) as caught:
        device()
    assert "nvJitLink is not installed" in str(caught.value)
    assert "tg-nv[llvm]" in str(caught.value)


def test_unknown_renderer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NV_RENDERER", "fortran")
    with pytest.raises(DeviceError, match=r"none of cuda, llvm"):
        choose_language(None)  # type: ignore[arg-type]


def test_doctor_names_both_compilers() -> None:
    with installed(PROFILES["GH100"]):
        lines = plugin.tgcore_doctor()
    assert [line.partition(":")[0] for line in lines[1:]] == ["compiler nvrtc", "compiler llvm"]


def test_llvm_says_what_it_rejects() -> None:
    with pytest.raises(CompileError, match="LLVM rejects the kernel for sm_90"):
        nvptx.emit_ptx("define void @k() { nonsense }", "sm_90")


@needs_linker
def test_the_linker_says_what_it_rejects() -> None:
    with pytest.raises(CompileError, match="nvJitLink rejects the PTX") as caught:
        JitLinkCompiler("sm_90").link(".version 7.8\n.target sm_90\n.address_size 64\nnonsense\n")
    assert "nonsense" in str(caught.value)
    with pytest.raises(CompileError, match="nvJitLink cannot compile for gfx90a"):
        JitLinkCompiler("gfx90a").link("")


# *** cubins ***

QUOTIENT = """
define ptx_kernel void @quotient(ptr addrspace(1) %p) {
  %q = getelementptr float, ptr addrspace(1) %p, i32 1
  %a = load float, ptr addrspace(1) %p
  %b = load float, ptr addrspace(1) %q
  %c = fdiv float %a, %b
  store float %c, ptr addrspace(1) %p
  ret void
}
"""


@needs_linker
@pytest.mark.parametrize("sm", TARGETS)
def test_calls_go_to_where_the_function_lies(sm: str) -> None:
    """Division calls a function of the cubin at its address, which is put into the call."""
    binary = JitLinkCompiler(sm).compile(QUOTIENT)
    found = parse_cubin(binary)
    (callee,) = (k for name, k in found.kernels.items() if name != "quotient")
    base = 0x1_2345_6789_0000 if sm in ("sm_80", "sm_89") else 0x123_4567_89AB_0000
    image = found.relocated(base)
    kernel = found.kernels["quotient"]
    calls = [
        int.from_bytes(image[at : at + 16], "little")
        for at in range(kernel.code_offset, kernel.code_offset + kernel.code_bytes, 16)
    ]
    (call,) = (i for i in calls if i & 0xFFF == 0x943)  # CALL.ABS
    where = call >> 34 & (1 << 47) - 1
    if sm not in ("sm_80", "sm_89"):
        where = where << 8 | call >> 16 & 0xFF
    assert where << 2 == base + callee.code_offset
    assert kernel.registers >= callee.registers
    assert cubin.read(binary).kernels
