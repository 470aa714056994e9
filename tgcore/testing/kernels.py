"""Small kernels for the kit, as linear programs, made with the device's own parts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tgcore.codegen.program import ProgramSpec
from tgcore.dtype import DType, dtypes
from tgcore.runtime.compiled import CompiledDevice, Program
from tgcore.uop.node import UOp
from tgcore.uop.ops import AxisType, Ops

_numbers = itertools.count()


def elementwise(device: CompiledDevice, op: Ops, dtype: DType, size: int, arity: int) -> Program:
    """out[i] = op(in0[i], ...) for `size` elements."""
    out_type = dtypes.bool if op in (Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ) else dtype
    inner = [dtypes.bool, dtype, dtype] if op is Ops.WHERE else [dtype] * arity
    pointers = [
        UOp(Ops.DEFINE_GLOBAL, kind.ptr(size), (), number)
        for number, kind in enumerate([out_type, *inner])
    ]
    count = UOp.const(dtypes.int32, size)
    loop = UOp(Ops.RANGE, dtypes.int32, (count,), (0, AxisType.LOOP))
    loads, before = [], []
    for pointer in pointers[1:]:
        at = UOp(Ops.INDEX, pointer.dtype, (pointer, loop))
        loads.append(UOp(Ops.LOAD, pointer.dtype.base, (at,)))
        before += [at, loads[-1]]
    value = UOp(op, out_type, tuple(loads))
    place = UOp(Ops.INDEX, pointers[0].dtype, (pointers[0], loop))
    store = UOp(Ops.STORE, dtypes.void, (place, value))
    end = UOp(Ops.END, dtypes.void, (store, loop))
    uops = [*pointers, count, loop, *before, value, place, store, end]
    return build(device, uops, len(pointers))


def cast(device: CompiledDevice, source: DType, target: DType, size: int) -> Program:
    """out[i] = in[i] as another type."""
    out = UOp(Ops.DEFINE_GLOBAL, target.ptr(size), (), 0)
    given = UOp(Ops.DEFINE_GLOBAL, source.ptr(size), (), 1)
    count = UOp.const(dtypes.int32, size)
    loop = UOp(Ops.RANGE, dtypes.int32, (count,), (0, AxisType.LOOP))
    at = UOp(Ops.INDEX, given.dtype, (given, loop))
    load = UOp(Ops.LOAD, source, (at,))
    value = UOp(Ops.CAST, target, (load,))
    place = UOp(Ops.INDEX, out.dtype, (out, loop))
    store = UOp(Ops.STORE, dtypes.void, (place, value))
    end = UOp(Ops.END, dtypes.void, (store, loop))
    return build(device, [out, given, count, loop, at, load, value, place, store, end], 2)


def add_variable(device: CompiledDevice) -> Program:
    """data[0] += n, an int32."""
    data = UOp(Ops.DEFINE_GLOBAL, dtypes.int32.ptr(1), (), 0)
    variable = UOp(Ops.DEFINE_VAR, dtypes.int32, (), ("n", 0, 1 << 20))
    zero = UOp.const(dtypes.int32, 0)
    at = UOp(Ops.INDEX, data.dtype, (data, zero))
    load = UOp(Ops.LOAD, dtypes.int32, (at,))
    value = UOp(Ops.ADD, dtypes.int32, (load, variable))
    store = UOp(Ops.STORE, dtypes.void, (at, value))
    return build(device, [data, variable, zero, at, load, value, store], 1, (variable,))


def build(
    device: CompiledDevice, uops: Sequence[UOp], buffers: int, variables: tuple[UOp, ...] = ()
) -> Program:
    """Render, compile and load a linear program whose buffer 0 is written."""
    name = f"kit_{next(_numbers)}"
    sink = UOp(Ops.SINK, dtypes.void, tuple(u for u in uops if u.op in (Ops.END, Ops.STORE))[-1:])
    linear = (*uops, sink)
    source = device.renderer.render(linear, name)
    slots = tuple(range(buffers))
    spec = ProgramSpec(
        name, name, source, device.name, sink, linear, slots, (0,), slots, variables
    )  # fmt: skip
    return device.load(name, device.compiler.compile(source), spec)
