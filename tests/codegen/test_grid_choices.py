"""The default moves for devices with a launch grid: what they choose, and that it is right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.codegen.grid import GRID, close, grid_program, launch_of, run_on_grid
from tests.codegen.matrix_instructions import NVIDIA
from tests.codegen.running import kernel_of, normal
from tgcore import Tensor
from tgcore.codegen import OptimizedKernel, OptOps, optimize
from tgcore.codegen.opt import grid
from tgcore.dtype import dtypes
from tgcore.helpers import Context
from tgcore.schedule import create_schedule
from tgcore.uop import AxisType, Ops, UOp

CHIP = replace(GRID, tensor_cores=NVIDIA)
F16, F32 = dtypes.float16, dtypes.float32


def empty(*shape: int, dtype: Any = F32) -> Tensor:
    return Tensor.empty(*shape, dtype=dtype)


def chosen(tensor: Tensor) -> list[OptimizedKernel]:
    items = create_schedule(UOp.sink(tensor.uop.contiguous()), "CPU").items
    return [optimize(item.ast, CHIP) for item in items if item.ast.op is Ops.SINK]


def sizes(kernel: OptimizedKernel, *types: AxisType) -> list[int]:
    return [n.vmax + 1 for n in kernel.ast.toposort() if n.op is Ops.RANGE and n.axis_type in types]


def program_of(tensor: Tensor) -> list[UOp]:
    return list(grid_program(kernel_of(tensor.uop.contiguous()), None, CHIP))


def vectors(program: list[UOp], op: Ops) -> set[int]:
    return {
        (n if op is Ops.LOAD else n.src[1]).dtype.count
        for n in program
        if n.op is op and n.src[0].dtype.addrspace.name == "GLOBAL"
    }


# *** what is chosen ***


def test_elementwise_kernels_move_sixteen_bytes() -> None:
    for tensor, lanes in (
        (empty(1024, 1024) + empty(1024, 1024), 4),
        (empty(1024, 1024, dtype=F16) * empty(1024, dtype=F16), 8),
        (empty(1024, 1024, dtype=dtypes.uint8) + 1, 16),
        (empty(1024, 1024, dtype=F16).cast(F32), 4),
    ):
        program = program_of(tensor)
        assert vectors(program, Ops.LOAD) == vectors(program, Ops.STORE) == {lanes}
        assert launch_of(program)["l0"] == 128


def test_odd_sizes_are_padded_to_groups() -> None:
    program = program_of(empty(1000003) + 1)
    assert launch_of(program) == {"g0": 7813, "l0": 128}


def test_small_kernels_are_one_group() -> None:
    assert launch_of(program_of(empty(3, 5) + 1)) == {"l0": 15}


def test_transposes_read_and_write_neighbours() -> None:
    (kernel,) = chosen(empty(1024, 1024).transpose(0, 1).contiguous())
    assert sorted(sizes(kernel, AxisType.LOCAL)) == [8, 32]
    launch = launch_of(program_of(empty(1024, 1024).transpose(0, 1).contiguous()))
    assert (launch["l0"], launch["l1"]) == (32, 8)


@pytest.mark.parametrize(
    "tensor",
    [
        lambda: empty(4096, 768).sum(1),
        lambda: empty(64, 1024).max(1),
        lambda: empty(4096, 1000).exp().sum(1),
    ],
)
def test_rows_are_summed_by_groups(tensor: Callable[[], Tensor]) -> None:
    program = program_of(tensor())
    assert sum(n.op is Ops.BARRIER for n in program) in (1, 2)
    assert vectors(program, Ops.LOAD) == {4}
    launch = launch_of(program)
    items = np.prod([size for name, size in launch.items() if name[0] == "l"])
    assert 64 <= items <= 256 and launch["l0"] >= 32


def test_columns_are_summed_side_by_side() -> None:
    launch = launch_of(program_of(empty(4096, 768).sum(0)))
    assert (launch["l0"], launch["l1"]) == (32, 8)


def test_matmuls_get_tiles_both_ways() -> None:
    (kernel,) = chosen(empty(1024, 1024) @ empty(1024, 1024))
    assert sorted(sizes(kernel, AxisType.UPCAST)) == [4, 8]
    assert sorted(sizes(kernel, AxisType.LOCAL)) == [8, 16]
    assert vectors(program_of(empty(1024, 1024) @ empty(1024, 1024)), Ops.LOAD) == {4}


@pytest.mark.parametrize("size", [512, 1000, 4096])
def test_matmuls_of_halves_use_matrix_instructions(size: int) -> None:
    (kernel,) = chosen(empty(size, size, dtype=F16) @ empty(size, size, dtype=F16))
    assert any(o.op is OptOps.TC for o in kernel.opts)
    assert sizes(kernel, AxisType.WARP) == [32]
    assert np.prod(sizes(kernel, AxisType.LOCAL)) == 4
    with Context(TC=0):
        (kernel,) = chosen(empty(size, size, dtype=F16) @ empty(size, size, dtype=F16))
    assert not any(o.op is OptOps.TC for o in kernel.opts)


def test_float32_uses_them_if_it_may() -> None:
    for allowed in (0, 1):
        with Context(ALLOW_TF32=allowed):
            (kernel,) = chosen(empty(512, 512) @ empty(512, 512))
        assert any(o.op is OptOps.TC for o in kernel.opts) == bool(allowed)


def test_convolutions_use_matrix_instructions() -> None:
    x, w = empty(8, 64, 28, 28, dtype=F16), empty(64, 64, 3, 3, dtype=F16)
    (kernel,) = chosen(x.conv2d(w, padding=1))
    assert any(o.op is OptOps.TC for o in kernel.opts)


def test_devices_without_shared_memory_or_groups_are_served() -> None:
    for target in (replace(CHIP, local_bytes=0), replace(CHIP, local=False)):
        for tensor in (empty(64, 64).sum(1), empty(64, 64) @ empty(64, 64)):
            ast = kernel_of(tensor.uop.contiguous())
            assert not any(o.op is OptOps.GROUP for o in optimize(ast, target).opts)
            grid_program(ast, None, target)


# *** that it is right ***

Case = tuple[Tensor, NDArray[Any], float]


def _softmax(x: NDArray[Any]) -> NDArray[Any]:
    e = np.exp(x - x.max(1, keepdims=True))
    return np.asarray(e / e.sum(1, keepdims=True))


def _matmul(m: int, k: int, n: int, kind: Any = np.float32) -> Case:
    a, b = normal(m, k).astype(kind), normal(k, n).astype(kind)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    return Tensor(a) @ Tensor(b), exact, 1e-4 if kind is np.float32 else 3e-3


def _conv(kind: Any) -> Case:
    x, w = normal(2, 4, 9, 9).astype(kind), normal(6, 4, 3, 3).astype(kind)
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    exact = np.einsum("bchwij,ocij->bohw", windows, w.astype(np.float64))
    return Tensor(x).conv2d(Tensor(w), padding=1), exact, 1e-4 if kind is np.float32 else 3e-3


def _normalised(x: NDArray[Any]) -> NDArray[Any]:
    return np.asarray((x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5))


X, Y = normal(8, 96), normal(20, 30)
CASES: dict[str, Callable[[], Case]] = {
    "matmul": lambda: _matmul(48, 40, 24),
    "odd matmul": lambda: _matmul(13, 17, 11),
    "matmul of halves": lambda: _matmul(64, 32, 64, np.float16),
    "odd matmul of halves": lambda: _matmul(33, 40, 35, np.float16),
    "row times matrix": lambda: _matmul(1, 40, 64),
    "convolution": lambda: _conv(np.float32),
    "convolution of halves": lambda: _conv(np.float16),
    "softmax": lambda: (Tensor(X).softmax(), _softmax(X), 1e-4),
    "layernorm": lambda: (Tensor(X).layernorm(), _normalised(X), 1e-4),
    "sum": lambda: (Tensor(Y).sum(), np.asarray(Y.sum()), 1e-4),
    "sum of columns": lambda: (Tensor(Y).sum(0), Y.sum(0), 1e-4),
    "sum of rows": lambda: (Tensor(Y).sum(1), Y.sum(1), 1e-4),
    "place of the greatest": lambda: (Tensor(Y).argmax(1), Y.argmax(1), 0.0),
    "running sum": lambda: (Tensor(Y).cumsum(1), Y.cumsum(1), 1e-4),
    "transpose": lambda: (Tensor(Y).transpose(0, 1).contiguous(), Y.T, 0.0),
    "sum of two": lambda: (Tensor(Y) + Tensor(Y), Y + Y, 0.0),
    "joined": lambda: (Tensor(Y).cat(Tensor(Y), dim=1), np.concatenate([Y, Y], 1), 0.0),
    "a constant": lambda: (Tensor.full((5, 7), 3.0).contiguous(), np.full((5, 7), 3.0), 0.0),
}


@pytest.fixture(params=[1 << 14, 32], ids=["large chip", "small chip"])
def chip(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """So many items keep it busy: with few, small kernels get the moves of large ones."""
    monkeypatch.setattr(grid, "_ENOUGH_ITEMS", request.param)
    monkeypatch.setattr(grid, "_ENOUGH_WARPS", max(1, request.param // 32))
    yield


@pytest.mark.usefixtures("chip")
@pytest.mark.parametrize("name", CASES)
def test_chosen_moves_change_no_result(name: str) -> None:
    tensor, expected, tolerance = CASES[name]()
    (found,) = run_on_grid(tensor, target=CHIP)
    close(found, expected, tolerance)


@pytest.mark.usefixtures("chip")
def test_partly_stored_values() -> None:
    with Context(PCONTIG=2):
        for tensor, expected in ((Tensor(X).softmax(), _softmax(X)), (Tensor(X).layernorm(),
                                                                      _normalised(X))):  # fmt: skip
            (found,) = run_on_grid(tensor, target=CHIP)
            close(found, expected, 1e-4)


@pytest.mark.usefixtures("chip")
@pytest.mark.parametrize("length", [1, 3, 8])
def test_symbolic_sizes(length: int) -> None:
    n = UOp.variable("n", 1, 8).bind(length)
    rows = Tensor(X).shrink(((0, n), (0, 96)))
    (found,) = run_on_grid((rows * 2).uop, target=CHIP)
    close(found, X[:length] * 2)
    (found,) = run_on_grid(rows.sum(1).uop, target=CHIP)
    close(found, X[:length].sum(1), 1e-4)
    (found,) = run_on_grid(rows.sum(0).uop, target=CHIP)
    close(found, X[:length].sum(0), 1e-4)
    w = normal(96, 16)
    (found,) = run_on_grid((rows @ Tensor(w)).uop, target=CHIP)
    close(found, X[:length] @ w, 1e-4)
