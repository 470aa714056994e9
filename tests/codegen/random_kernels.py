"""Random kernels: small tensor programs that the scheduler makes one kernel of.

Beside each value the generator keeps a bound of its size, a bound of the rounding errors in it
(whatever the order in which sums are added up), and whether it is exact: as long as all numbers
are multiples of some 2**-step and small enough for their type, floats lose nothing, and results
must agree to the bit. Only exact values are compared, truncated or used as bits.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tgcore import Context, Tensor
from tgcore.dtype import DType, dtypes
from tgcore.runtime.execute import buffer_of
from tgcore.schedule import create_schedule
from tgcore.testing.lanes import numpy_type
from tgcore.uop import Ops, UOp

_SIZES = (1, 2, 3, 3, 4, 4, 5, 6, 7, 8, 8, 9, 12, 16, 17, 33)
_MOST_ELEMENTS = 600
_MOST_INPUTS = 5
# beyond these, floats would overflow or say little
_LARGEST = {dtypes.fp8e4m3: 200.0, dtypes.fp8e5m2: 2e4, dtypes.float16: 3e4}
_LARGEST_OTHER = 1e5
_KINDS = (
    *(dtypes.float32,) * 8,
    *(dtypes.int32,) * 3,
    *(dtypes.float64, dtypes.float16, dtypes.bfloat16, dtypes.fp8e4m3, dtypes.fp8e5m2),
    *(dtypes.bool, dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16),
    *(dtypes.uint32, dtypes.int64, dtypes.uint64),
)


@dataclass
class RandomKernel:
    """A kernel, what its parameters hold, and by how much its results may be off."""

    ast: UOp
    inputs: dict[int, NDArray[Any]]  # of all parameters, also of those that are written
    outputs: dict[int, float]  # parameter -> the greatest rounding error
    variables: dict[str, int] = field(default_factory=dict)


@dataclass
class _Value:
    tensor: Tensor
    size: float
    error: float = 0.0
    step: int | None = 0  # all elements are multiples of 2**-step; None: not exact

    @property
    def dtype(self) -> DType:
        return self.tensor.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    @property
    def exact(self) -> bool:
        return self.step is not None

    def like(self, tensor: Tensor) -> _Value:
        """The same numbers in another order."""
        return _Value(tensor, self.size, self.error, self.step)


class _Rejected(Exception):
    """This step cannot be taken with these values."""


def _rounding(dtype: DType) -> float:
    return 2.0 ** -dtypes.finfo(dtype)[1]


class _Drawing:
    """Values drawn so far, and the steps that make new ones."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.numbers = np.random.default_rng(rng.getrandbits(32))
        self.values: list[_Value] = []
        self.inputs = 0

    # *** new values ***

    def add(
        self, tensor: Tensor, size: float, error: float, step: int | None, roundings: int = 1
    ) -> None:
        """A result: if it need not be exact, it was rounded so many times."""
        dtype = tensor.dtype
        if not dtypes.is_float(dtype):
            largest = 1.0 if dtype is dtypes.bool else 2.0 ** (dtype.itemsize * 8)
            self.values.append(_Value(tensor, min(size, largest)))
            return
        if size > _LARGEST.get(dtype, _LARGEST_OTHER):
            raise _Rejected
        digits = dtypes.finfo(dtype)[1] + 1
        least = 2 - 2 ** (dtypes.finfo(dtype)[0] - 1) + dtypes.finfo(dtype)[1]
        if step is None or size * 2.0**step > 2.0**digits or step > -least + 40:
            step, error = None, error + roundings * _rounding(dtype) * size
        if error > 0.05 * max(size, 1.0):
            raise _Rejected
        self.values.append(_Value(tensor, size, error, step))

    def input(self, shape: tuple[int, ...], dtype: DType | None = None) -> _Value:
        """New memory."""
        if self.inputs >= _MOST_INPUTS:
            raise _Rejected
        self.inputs += 1
        dtype = dtype or self.rng.choice(_KINDS)
        if dtypes.is_float(dtype):
            values = self.numbers.integers(-8, 9, shape) / 4
            value = _Value(Tensor(values.astype(np.float64)), 2.0, 0.0, 2)
            stored = values.astype(numpy_type(dtype))
        elif dtype is dtypes.bool:
            stored = self.numbers.integers(0, 2, shape).astype(bool)
            value = _Value(Tensor(stored), 1.0)
        else:
            low = 0 if dtypes.is_unsigned(dtype) else -9
            stored = self.numbers.integers(low, 10, shape).astype(numpy_type(dtype))
            if self.rng.random() < 0.2:  # any bits
                stored = np.frombuffer(self.numbers.bytes(stored.nbytes), stored.dtype)
                stored = stored.reshape(shape)
            value = _Value(Tensor(stored), float(max(abs(int(x)) for x in [*stored.flat, 0])))
        value.tensor = Tensor(stored)
        assert value.tensor.dtype is dtype
        return value

    def shape(self) -> tuple[int, ...]:
        """Up to three axes."""
        while True:
            shape = tuple(self.rng.choice(_SIZES) for _ in range(self.rng.randint(1, 3)))
            if math.prod(shape) <= _MOST_ELEMENTS:
                return shape

    def pick(self, suits: Callable[[_Value], bool] = lambda value: True) -> _Value:
        """A value, mostly the last one."""
        fitting = [v for v in self.values if suits(v)]
        if not fitting:
            raise _Rejected
        if fitting[-1] is self.values[-1] and self.rng.random() < 0.7:
            return fitting[-1]
        return self.rng.choice(fitting)

    def partner(self, value: _Value) -> _Value:
        """A value of the type whose shape broadcasts to the other's."""
        fitting = [v for v in self.values if v.dtype is value.dtype and v.shape == value.shape]
        if self.rng.random() < 0.5:
            return self.rng.choice(fitting)
        shape = tuple(s if self.rng.random() < 0.7 else 1 for s in value.shape)
        return self.input(shape[self.rng.randint(0, max(0, len(shape) - 1)) :], value.dtype)

    def axis(self, value: _Value) -> int:
        """One of its axes."""
        if not value.shape:
            raise _Rejected
        return self.rng.randrange(len(value.shape))


# *** steps ***


def _is_float(value: _Value) -> bool:
    return dtypes.is_float(value.dtype)


def _is_int(value: _Value) -> bool:
    return dtypes.is_int(value.dtype)


def _smooth(d: _Drawing) -> None:
    """A function of floats that does not make errors much larger."""
    v = d.pick(_is_float)
    x, e, u = v.tensor, v.error, _rounding(v.dtype)
    functions: list[tuple[Tensor, float, float]] = [
        (x.minimum(3.0).exp2(), 8.0, 6 * e + 64 * u),
        (x.sin(), 1.0, e + 8 * u),
        ((x.abs() + 0.25).sqrt(), math.sqrt(v.size + 0.25), e + 8 * u * (v.size + 1)),
        ((x * x + 1).reciprocal(), 1.0, 2 * e + 8 * u * (v.size + 1)),
        ((x.abs() + 1).log2(), math.log2(v.size + 1) + 1, 2 * e + 8 * u * (v.size + 1)),
    ]
    tensor, size, error = d.rng.choice(functions)
    d.add(tensor, size, error, None)


def _unary(d: _Drawing) -> None:
    v = d.pick(lambda v: v.dtype is not dtypes.bool)
    x = v.tensor
    if dtypes.is_unsigned(v.dtype):
        choice = d.rng.choice([x * 3 + 1, x.maximum(2), -x])
        return d.add(choice, math.inf, 0.0, 0)
    tensor, factor, more = d.rng.choice(
        [(-x, 1, 0), (x.abs(), 1, 0), (x.relu(), 1, 0), (x * 3 + 1, 3, 1), (x.minimum(1), 1, 1)]
    )
    d.add(tensor, v.size * factor + more, v.error * factor, v.step, 2)


def _binary(d: _Drawing) -> None:
    v = d.pick(lambda v: v.dtype is not dtypes.bool)
    w = d.partner(v)
    if d.rng.random() < 0.3:
        v, w = w, v
    a, b = v.tensor, w.tensor
    step = None if v.step is None or w.step is None else max(v.step, w.step)
    size, error = v.size + w.size, v.error + w.error
    match d.rng.choice(["add", "sub", "mul", "mul", "max"]):
        case "add":
            d.add(a + b, size, error, step)
        case "sub":
            d.add(a - b, math.inf if dtypes.is_unsigned(v.dtype) else size, error, step)
        case "mul":
            both = None if v.step is None or w.step is None else v.step + w.step
            error = v.error * w.size + w.error * v.size + v.error * w.error
            d.add(a * b, v.size * w.size, error, both)
        case _:
            d.add(a.maximum(b), max(v.size, w.size), max(v.error, w.error), step)


def _bits(d: _Drawing) -> None:
    v = d.pick(_is_int)
    a, b = v.tensor, d.partner(v).tensor
    amount = d.rng.randrange(v.dtype.itemsize * 8)
    d.add(
        d.rng.choice([a & b, a | b, a ^ b, a << amount, a >> amount, (a & 3) + (b ^ a)]),
        *(math.inf, 0.0, 0),
    )


def _division(d: _Drawing) -> None:
    v = d.pick(_is_int)
    signed = not dtypes.is_unsigned(v.dtype)
    by: Any = d.rng.choice([2, 3, 4, 7, 10, 16, *([-1, -3] if signed else [])])
    if d.rng.random() < 0.4:
        by = d.partner(v).tensor | 1
    d.add(d.rng.choice([v.tensor // by, v.tensor % by]), math.inf, 0.0, 0)


def _compare(d: _Drawing) -> None:
    v = d.pick(lambda v: v.exact)
    w = d.partner(v)
    if not w.exact:
        raise _Rejected
    a, b = v.tensor, w.tensor
    condition = d.rng.choice([a < b, a == b, a != b, a > b])
    match d.rng.choice(["bool", "where", "where", "not"]):
        case "bool":
            d.add(condition, 1, 0.0, 0)
        case "not":
            d.add(condition.logical_not(), 1, 0.0, 0)
        case _:
            step = max(v.step or 0, w.step or 0)
            d.add(condition.where(a, b), max(v.size, w.size), 0.0, step)


def _cast(d: _Drawing) -> None:
    v = d.pick()
    target = d.rng.choice(_KINDS)
    if dtypes.is_float(target):
        return d.add(v.tensor.cast(target), v.size, v.error, v.step)
    if not v.exact:
        raise _Rejected
    if _is_float(v) and target is not dtypes.bool:
        if v.size > dtypes.max(target):  # what does not fit is nobody's promise
            raise _Rejected
        tensor = v.tensor.abs() if dtypes.is_unsigned(target) else v.tensor
        return d.add(tensor.cast(target), v.size, 0.0, 0)
    fits = target is not dtypes.bool and 0 <= v.size <= dtypes.max(target)
    fits = fits and not dtypes.is_unsigned(target)
    d.add(v.tensor.cast(target), v.size if fits else math.inf, 0.0, 0)


def _as_bits(d: _Drawing) -> None:
    v = d.pick(lambda v: v.exact and v.dtype.itemsize in (4, 8))
    target = {4: dtypes.uint32, 8: dtypes.int64}[v.dtype.itemsize]
    tensor = v.tensor
    if _is_float(v):
        # which of the two zeros a maximum or sum gives is not promised
        tensor = tensor.abs() + 1
        digits = dtypes.finfo(v.dtype)[1]
        if (v.size + 1) * 2.0 ** (v.step or 0) > 2.0**digits:
            raise _Rejected
    d.add(tensor.bitcast(target) >> 3, math.inf, 0.0, 0)


def _reduce(d: _Drawing) -> None:
    v = d.pick(lambda v: v.dtype is not dtypes.bool and len(v.shape) > 0)
    axes = d.rng.sample(range(len(v.shape)), d.rng.randint(1, len(v.shape)))
    keep = d.rng.random() < 0.5
    count = math.prod(v.shape[a] for a in axes)
    match d.rng.choice(["sum", "sum", "max", "min", "prod"]):
        case "sum":
            tensor = v.tensor.sum(tuple(axes), keepdim=keep)
            d.add(tensor, count * v.size, count * v.error, v.step, count + 1)
        case "prod" if _is_int(v):
            axis = axes[0]
            d.add(v.tensor.prod(axis, keepdim=keep), math.inf, 0.0, 0)
        case "min":
            d.values.append(v.like(v.tensor.min(tuple(axes), keepdim=keep)))
        case _:
            d.values.append(v.like(v.tensor.max(tuple(axes), keepdim=keep)))


def _beside_its_reduce(d: _Drawing) -> None:
    """Stored inside the kernel where PCONTIG allows it."""
    v = d.pick(lambda v: v.dtype is not dtypes.bool and len(v.shape) > 0)
    axis = d.axis(v)
    count = v.shape[axis]
    if d.rng.random() < 0.5:
        greatest = v.tensor.max(axis, keepdim=True)
        size = math.inf if dtypes.is_unsigned(v.dtype) else 2 * v.size
        return d.add(v.tensor - greatest, size, 2 * v.error, v.step)
    total = v.tensor.sum(axis, keepdim=True).cast(v.dtype)
    d.add(v.tensor + total, (count + 1) * v.size, (count + 1) * v.error, v.step, count + 2)


def _matmul(d: _Drawing) -> None:
    v = d.pick(lambda v: len(v.shape) >= 2 and v.dtype is not dtypes.bool)
    inner = v.shape[-1]
    w = d.input((inner, d.rng.choice(_SIZES)), v.dtype)
    left, right = v.tensor, w.tensor
    if d.rng.random() < 0.4:
        right = d.input((w.shape[1], inner), v.dtype).tensor.transpose(0, 1)
    step = None if v.step is None or w.step is None else v.step + w.step
    size = inner * v.size * max(w.size, 2.0)
    d.add(left @ right, size, inner * v.error * max(w.size, 2.0), step, inner + 2)


def _order(d: _Drawing) -> None:
    """The same elements elsewhere."""
    v = d.pick(lambda v: len(v.shape) > 0)
    x, rng = v.tensor, d.rng
    match rng.choice(["permute", "flip", "shrink", "expand", "reshape", "step"]):
        case "permute":
            x = x.permute(*rng.sample(range(x.ndim), x.ndim))
        case "flip":
            x = x.flip(d.axis(v))
        case "shrink":
            starts = [rng.randint(0, (s - 1) // 2) for s in v.shape]
            x = x.shrink(tuple((b, rng.randint(b + 1, s)) for b, s in zip(starts, v.shape)))
        case "expand":
            copies = rng.choice([2, 3, 4])
            if x.ndim > 2 or x.numel() * copies > _MOST_ELEMENTS:
                raise _Rejected
            axis = rng.randint(0, x.ndim)
            x = x.unsqueeze(axis).expand(*v.shape[:axis], copies, *v.shape[axis:])
        case "step":
            x = x[(slice(None),) * d.axis(v) + (slice(None, None, rng.choice([2, -1, -2])),)]
        case _:
            total = math.prod(v.shape)
            parts = [n for n in range(1, total + 1) if total % n == 0]
            first = rng.choice(parts)
            x = x.reshape(rng.choice([(total,), (first, total // first), (1, first, -1)]))
    d.values.append(v.like(x))


def _pad(d: _Drawing) -> None:
    v = d.pick(lambda v: len(v.shape) > 0)
    pairs = tuple((d.rng.randint(0, 2), d.rng.randint(0, 3)) for _ in v.shape)
    value: Any = d.rng.choice([0, 0, 1])
    d.add(v.tensor.pad(pairs, value=value), max(v.size, 1), v.error, v.step)


def _positions(d: _Drawing) -> None:
    """Where the element stands decides."""
    v = d.pick(lambda v: len(v.shape) > 0)
    count = v.shape[-1]
    place = Tensor.arange(count)
    limit = d.rng.randint(0, count)
    match d.rng.choice(["mask", "mask", "add", "triangle"]):
        case "mask":
            condition = d.rng.choice([place < limit, (place % 3) == 1, (place * 5 + 2) > limit])
            d.values.append(v.like(condition.where(v.tensor, v.tensor.flip(len(v.shape) - 1))))
        case "triangle" if len(v.shape) >= 2:
            d.values.append(v.like(v.tensor.tril(d.rng.randint(-1, 1))))
        case _:
            tensor = v.tensor + place.cast(v.dtype)
            size = math.inf if dtypes.is_unsigned(v.dtype) else v.size + count
            d.add(tensor, size, v.error, v.step)


def _gather(d: _Drawing) -> None:
    v = d.pick(lambda v: len(v.shape) > 0)
    axis, count = d.axis(v), d.rng.randint(1, 6)
    size = v.shape[axis]
    rows = d.numbers.integers(-size, size, count).astype(np.int32)
    d.values.append(v.like(v.tensor[(slice(None),) * axis + (Tensor(rows),)]))
    d.inputs += 1


def _join(d: _Drawing) -> None:
    v = d.pick(lambda v: len(v.shape) > 0)
    w = d.partner(v)
    if w.shape != v.shape:
        raise _Rejected
    step = None if v.step is None or w.step is None else max(v.step, w.step)
    joined = v.tensor.cat(w.tensor, dim=d.axis(v))
    d.values.append(_Value(joined, max(v.size, w.size), max(v.error, w.error), step))


def _running(d: _Drawing) -> None:
    v = d.pick(lambda v: len(v.shape) > 0 and v.dtype is not dtypes.bool)
    axis = d.axis(v)
    count = v.shape[axis]
    d.add(v.tensor.cumsum(axis), count * v.size, count * v.error, v.step, count + 1)


_STEPS = (
    *(_binary,) * 5,
    *(_unary, _smooth, _compare, _cast, _reduce, _order) * 3,
    *(_pad, _positions, _gather, _join, _matmul, _beside_its_reduce) * 2,
    *(_bits, _division, _as_bits, _running),
)


# *** kernels ***


def random_kernel(rng: random.Random) -> RandomKernel:
    """A kernel that the scheduler made of a random tensor program."""
    while True:
        kernel = _try_kernel(rng)
        if kernel is not None:
            return kernel


def _try_kernel(rng: random.Random) -> RandomKernel | None:
    drawing = _Drawing(rng)
    drawing.values.append(drawing.input(drawing.shape()))
    for _ in range(rng.randint(1, 7)):
        try:
            rng.choice(_STEPS)(drawing)
        except _Rejected:
            continue
        if drawing.values[-1].tensor.numel() > 4 * _MOST_ELEMENTS:
            drawing.values.pop()
    found = _kernel_of(drawing.values[-1], rng)
    if found is not None and rng.random() < 0.1:
        return _with_variable(drawing.values[-1], rng)
    if found is not None and rng.random() < 0.15:
        return _two_outputs(found)
    return found


def _kernel_of(value: _Value, rng: random.Random, **variables: int) -> RandomKernel | None:
    wanted = value.tensor.uop.contiguous()
    with Context(PCONTIG=rng.choice([0, 0, 1, 2])):
        items = create_schedule(UOp.sink(wanted), "CPU").items
    if len(items) != 1 or items[0].ast.op is not Ops.SINK:
        return None
    inputs: dict[int, NDArray[Any]] = {}
    for number, buffer in enumerate(items[0].buffers):
        kind = numpy_type(buffer.dtype)
        if number == 0:
            inputs[number] = np.full(buffer.arg, 77).astype(kind)
        else:
            inputs[number] = np.frombuffer(buffer_of(buffer).numpy().tobytes(), kind).copy()
    return RandomKernel(items[0].ast, inputs, {0: value.error}, variables)


def _with_variable(value: _Value, rng: random.Random) -> RandomKernel | None:
    """What some rows of it, as many as a variable says, give."""
    rows = value.shape[0] if value.shape else 0
    if rows < 2 or value.dtype is dtypes.bool:
        return None
    bound = rng.randint(1, rows)
    n = UOp.variable("n", 1, rows).bind(bound)
    some = value.tensor.shrink(((0, n), *((0, s) for s in value.shape[1:])))
    drawing = _Drawing(rng)
    try:
        if rng.random() < 0.5:
            drawing.add(some.sum(0), rows * value.size, rows * value.error, value.step, rows + 1)
        else:
            drawing.add(some + some, 2 * value.size, 2 * value.error, value.step)
    except _Rejected:
        return None
    return _kernel_of(drawing.values[-1], rng, n=bound)


def _two_outputs(kernel: RandomKernel) -> RandomKernel:
    """The kernel with a second output: twice the first, stored in the same loops."""
    (end,) = kernel.ast.src
    store, ranges = (end.src[0], end.src[1:]) if end.op is Ops.END else (end, ())
    address, value = store.src
    number = len(kernel.inputs)
    memory = address.src[0].replace(arg=number)
    other = value.logical_not() if value.dtype is dtypes.bool else value + value
    second = address.replace(src=(memory, *address.src[1:])).store(other).end(*ranges)
    return RandomKernel(
        kernel.ast.replace(src=(end, second)),
        {**kernel.inputs, number: kernel.inputs[0].copy()},
        {**kernel.outputs, number: 2 * kernel.outputs[0]},
        kernel.variables,
    )


# *** matmuls ***

_MATMUL_KINDS = (
    *(dtypes.float16, dtypes.float16, dtypes.bfloat16, dtypes.fp8e4m3),
    *(dtypes.float32, dtypes.float64, dtypes.int32, dtypes.uint64),
)
_MATMUL_SIZES = (2, 3, 4, 4, 5, 6, 8, 8, 12, 16, 17, 32)


def random_matmul(rng: random.Random) -> RandomKernel:
    """A matrix product, exact in the type that it is summed in; perhaps batched or transposed, and
    with something before and after."""
    while True:
        drawing = _Drawing(rng)
        kind = rng.choice(_MATMUL_KINDS)
        total = kind if kind.itemsize >= 4 else dtypes.float32
        m, k, n = (rng.choice(_MATMUL_SIZES) for _ in range(3))
        batch = (rng.choice([2, 3]),) if rng.random() < 0.25 else ()
        left, right = (*batch, m, k), (*batch, k, n)
        a, b = (_perhaps_transposed(drawing, shape, kind) for shape in (left, right))
        if rng.random() < 0.3:
            a = a.relu()
        if kind.itemsize == 1 or rng.random() < 0.3:  # products of such bytes would be rounded
            a, b = a.cast(total), b.cast(total)
        result = a.matmul(b, dtype=total)
        if rng.random() < 0.3:
            result = result + drawing.input((n,), total).tensor
        if rng.random() < 0.3:
            result = result.relu() * 2
        if rng.random() < 0.2:
            result = result.sum(-1)
        found = _kernel_of(_Value(result, 0.0), rng)
        if found is not None:
            return found


def _perhaps_transposed(drawing: _Drawing, shape: tuple[int, ...], kind: DType) -> Tensor:
    if drawing.rng.random() < 0.6:
        return drawing.input(shape, kind).tensor
    *batch, rows, columns = shape
    return drawing.input((*batch, columns, rows), kind).tensor.transpose(-2, -1)
