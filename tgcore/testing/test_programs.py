"""Programs compile, load and run; every op and type that the device claims gives right values."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from tgcore.dtype import DType, dtypes
from tgcore.runtime.buffer import Buffer, numpy_dtype
from tgcore.runtime.compiled import CompiledDevice
from tgcore.testing import kernels
from tgcore.testing.conftest import MakeBuffer
from tgcore.uop.ops import Ops

N = 67  # not a multiple of any vector width

FLOAT: dict[Ops, Any] = {
    Ops.EXP2: np.exp2,
    Ops.LOG2: lambda x: np.log2(np.abs(x) + 1),
    Ops.SIN: np.sin,
    Ops.SQRT: lambda x: np.sqrt(np.abs(x)),
    Ops.RECIPROCAL: lambda x: 1 / x,
    Ops.TRUNC: np.trunc,
    Ops.FDIV: np.divide,
}
BOTH: dict[Ops, Any] = {
    Ops.NEG: np.negative,
    Ops.ADD: np.add,
    Ops.MUL: np.multiply,
    Ops.SUB: np.subtract,
    Ops.MAX: np.maximum,
    Ops.CMPLT: np.less,
    Ops.CMPNE: np.not_equal,
    Ops.CMPEQ: np.equal,
    Ops.WHERE: np.where,
    Ops.MULACC: lambda a, b, c: a * b + c,
}
INT: dict[Ops, Any] = {
    Ops.IDIV: lambda a, b: np.trunc(a / b),
    Ops.MOD: np.fmod,
    Ops.AND: np.bitwise_and,
    Ops.OR: np.bitwise_or,
    Ops.XOR: np.bitwise_xor,
}
ARITY = dict.fromkeys((*list(FLOAT)[:6], Ops.NEG), 1) | {Ops.WHERE: 3, Ops.MULACC: 3}
NUMBERS = (*dtypes.ints, dtypes.float16, dtypes.float32, dtypes.float64)


def values_of(dtype: DType, seed: int) -> np.ndarray[Any, Any]:
    """Random values that no op overflows on, none zero."""
    random = np.random.default_rng(seed)
    if dtype is dtypes.bool:
        return random.integers(0, 2, N).astype(bool)
    low = 1 if dtypes.is_unsigned(dtype) else -9
    whole = random.integers(low, 10, N)
    whole[whole == 0] = 3
    return (whole + (0.25 if dtypes.is_float(dtype) else 0)).astype(numpy_dtype(dtype))


@pytest.mark.parametrize("dtype", NUMBERS, ids=lambda d: d.name)
@pytest.mark.parametrize("op", [*FLOAT, *BOTH, *INT], ids=lambda o: o.name)
def test_ops(
    device: CompiledDevice, make: MakeBuffer, executes: bool, op: Ops, dtype: DType
) -> None:
    target = device.renderer.target
    fits = op in BOTH or (op in FLOAT if dtypes.is_float(dtype) else op in INT)
    if op not in target.ops or dtype not in target.dtypes or not fits:
        pytest.skip("the device does not claim it")
    arity = ARITY.get(op, 2)
    inputs = [values_of(dtype, seed) for seed in range(arity)]
    if op is Ops.WHERE:
        inputs[0] = inputs[0] > 2
    if op in (Ops.LOG2, Ops.SQRT):
        inputs[0] = np.abs(inputs[0])
    program = kernels.elementwise(device, op, dtype, N, arity)
    kinds = [dtypes.bool if x.dtype == bool else dtype for x in inputs]
    given = [make(x, kind) for x, kind in zip(inputs, kinds)]
    comparison = op in (Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ)
    out = Buffer(device.name, N, dtypes.bool if comparison else dtype).ensure_allocated()
    program([out, *given])
    result = out.numpy()
    if executes:
        reference = np.log2 if op is Ops.LOG2 else {**FLOAT, **BOTH, **INT}[op]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = reference(*inputs).astype(result.dtype)
        tolerance = {dtypes.float16: 2e-3, dtypes.float32: 1e-5}.get(dtype, 1e-12)
        np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("target", [dtypes.bool, *NUMBERS], ids=lambda d: d.name)
@pytest.mark.parametrize("source", [dtypes.bool, *NUMBERS], ids=lambda d: d.name)
def test_casts(
    device: CompiledDevice, make: MakeBuffer, executes: bool, source: DType, target: DType
) -> None:
    if not {source, target} <= device.renderer.target.dtypes or target is dtypes.bool:
        pytest.skip("the device does not claim it")
    values = np.abs(values_of(source, 1)) if source is not dtypes.bool else values_of(source, 1)
    out = Buffer(device.name, N, target).ensure_allocated()
    kernels.cast(device, source, target, N)([out, make(values, source)])
    result = out.numpy()
    if executes:
        np.testing.assert_array_equal(result, values.astype(numpy_dtype(target)))


def test_variables(device: CompiledDevice, make: MakeBuffer, executes: bool) -> None:
    program, data = kernels.add_variable(device), make([100])
    for n in (1, 20, 1 << 20):
        program([data], [n])
    if executes:
        assert data.numpy()[0] == 100 + 1 + 20 + (1 << 20)


def test_many_launches_in_order(device: CompiledDevice, make: MakeBuffer, executes: bool) -> None:
    program, data = kernels.add_variable(device), make([0])
    for n in range(1000):
        program([data], [n])
    if executes:
        assert data.numpy()[0] == sum(range(1000))


def test_waiting_gives_the_time(device: CompiledDevice, make: MakeBuffer) -> None:
    seconds = kernels.add_variable(device)([make([0])], [1], wait=True)
    assert seconds is not None and 0 <= seconds < 10
