"""The reference interpreter against numpy: what it computes, what it counts, what it finds."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.codegen.running import given, kernel_of, normal, program, result
from tests.schedule.graphs import matmul, softmax
from tests.testing.interpreting import (
    Array,
    Lowering,
    as_written,
    for_device,
    for_vectors,
    interpreted,
)
from tgcore import Context, Tensor
from tgcore.codegen import Opt, OptOps
from tgcore.dtype import AddrSpace, DType, dtypes
from tgcore.testing import interpreter, lanes
from tgcore.testing.interpreter import (
    BarrierError,
    DataRaceError,
    InterpreterError,
    NotInterpretableError,
    OutOfBoundsError,
    UninitializedError,
    run_program,
)
from tgcore.testing.lanes import cast, elementwise, numpy_type
from tgcore.uop import AxisType, Ops, UOp

LOWERINGS = pytest.mark.parametrize(
    "lowering", [for_device, for_vectors, as_written], ids=["device", "vectors", "plain"]
)
rng = np.random.default_rng(3)


def drawn(shape: tuple[int, ...], kind: str) -> Array:
    if kind in ("bfloat16", "fp8e4m3", "fp8e5m2"):
        return rng.standard_normal(shape).astype(numpy_type(dtypes.from_name(kind)))
    if kind.startswith("float"):
        return rng.standard_normal(shape).astype(kind)
    if kind == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    info = np.iinfo(kind)
    return rng.integers(info.min, info.max, shape, dtype=kind, endpoint=True)


def node(array: Array, kind: str) -> UOp:
    # numpy's interface for memory does not know bfloat16 and fp8
    bits = array if array.dtype.isbuiltin == 1 else array.view(f"u{array.dtype.itemsize}")
    return given(bits, dtypes.from_name(kind))


# *** elementwise ***


@LOWERINGS
@pytest.mark.parametrize("kind", [d.name for d in dtypes.all])
def test_sums_and_products_of_every_type(kind: str, lowering: Lowering) -> None:
    a, b = drawn((3, 7), kind), drawn((3, 7), kind)
    (found,) = interpreted(node(a, kind) * node(b, kind) + node(a, kind), lowering=lowering)
    with np.errstate(all="ignore"):
        expected = a * b + a
    assert found.dtype == a.dtype
    if dtypes.is_float(dtypes.from_name(kind)):
        # emulated types and multiply-adds round less often than numpy
        step = 2.0 ** -dtypes.finfo(dtypes.from_name(kind))[1]
        wide = a.astype(np.float64) * b.astype(np.float64) + a.astype(np.float64)
        np.testing.assert_allclose(found.astype(np.float64), wide, rtol=step, atol=2 * step)
    else:
        np.testing.assert_array_equal(found, expected)


@LOWERINGS
@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64"])
def test_division_of_integers_goes_towards_zero(kind: str, lowering: Lowering) -> None:
    least = np.iinfo(kind).min
    a = np.array([7, -7, 7, -7, 5, 0, least, least, least], kind)
    b = np.array([2, 2, -2, -2, 0, 0, -1, 3, 0], kind)
    x, y = node(a, kind), node(b, kind)
    quotient, rest = interpreted(x.alu(Ops.IDIV, y), x.alu(Ops.MOD, y), lowering=lowering)
    assert quotient.tolist()[:6] == [3, -3, -3, 3, 0, 0]
    assert rest.tolist()[:6] == [1, -1, 1, -1, 0, 0]
    assert quotient.tolist()[6:] == [least, -(-least // 3), 0]
    assert rest.tolist()[6:] == [0, least + (-least // 3) * 3, 0]


def test_products_of_64_bits_wrap_around() -> None:
    a = drawn((50,), "int64")
    (found,) = interpreted(node(a, "int64") * 1_000_003)
    assert found.tolist() == [(int(x) * 1_000_003 + 2**63) % 2**64 - 2**63 for x in a]


@pytest.mark.parametrize("kind", ["uint8", "int8", "uint32", "int64"])
def test_shifts_beyond_the_width_leave_the_sign(kind: str) -> None:
    dtype = dtypes.from_name(kind)
    bits = dtype.itemsize * 8
    value = np.array([dtypes.min(dtype), dtypes.max(dtype), 5], kind)
    amounts = np.array([1, bits - 1, bits], kind)
    for amount in amounts:
        left = elementwise(Ops.SHL, dtype, [value, np.full(3, amount)])
        right = elementwise(Ops.SHR, dtype, [value, np.full(3, amount)])
        wrapped = [lanes._wrap(int(x) << int(amount), dtype) for x in value]
        assert left.tolist() == wrapped
        assert right.tolist() == [int(x) >> int(amount) for x in value]


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_a_multiply_add_rounds_once(kind: Any) -> None:
    a, b, c = (rng.standard_normal(300).astype(kind) for _ in range(3))
    c[:100] = -(a * b)[:100]  # where what is rounded off is all that is left
    dtype = dtypes.from_name(np.dtype(kind).name)
    found = elementwise(Ops.MULACC, dtype, [a, b, c])
    for x, y, z, r in zip(a, b, c, found):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        away = abs(exact - Fraction(float(r)))
        for near in (np.nextafter(r, kind(np.inf)), np.nextafter(r, kind(-np.inf))):
            assert away <= abs(exact - Fraction(float(near)))


def test_threefry_gives_the_published_numbers() -> None:
    # the known answers of the authors' library (Random123, kat_vectors)
    counters = [0, 0xFFFFFFFFFFFFFFFF, 0x85A308D3_243F6A88]
    keys = [0, 0xFFFFFFFFFFFFFFFF, 0x03707344_13198A2E]
    answers = [0x99BA4EFE_6B200159, 0xBB002BE7_1CB996FC, 0x483DF7A0_C4923A9C]
    operands = [np.array(counters, np.uint64), np.array(keys, np.uint64)]
    assert elementwise(Ops.THREEFRY, dtypes.uint64, operands).tolist() == answers


@LOWERINGS
def test_functions(lowering: Lowering) -> None:
    a = np.abs(normal(40)) + np.float32(0.1)
    x = given(a)
    found = interpreted(
        x.exp2(), x.log2(), x.sin(), x.sqrt(), x.reciprocal(), x.trunc(), lowering=lowering
    )
    wide = a.astype(np.float64)
    expected = [np.exp2(wide), np.log2(wide), np.sin(wide), np.sqrt(wide), 1 / wide, np.trunc(a)]
    for ours, theirs in zip(found, expected):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-7)


def test_the_greater_of_a_number_and_nan_is_nan() -> None:
    found = elementwise(
        Ops.MAX, dtypes.float32, [np.array([np.nan, 1, 2], "f"), np.array([1, np.nan, 3], "f")]
    )
    np.testing.assert_array_equal(found, [np.nan, np.nan, 3])


# *** casts ***

NUMPY_KINDS = [d for d in dtypes.all if d not in (*dtypes.fp8s, dtypes.bfloat16)]


@LOWERINGS
@pytest.mark.parametrize("source", [d.name for d in dtypes.all])
def test_casts_between_all_types(source: str, lowering: Lowering) -> None:
    values = drawn((29,), source)
    if dtypes.is_float(dtypes.from_name(source)):
        values = (values.astype(np.float64) * 30).astype(values.dtype)
    x = node(values, source)
    found = interpreted(*[x.cast(target).contiguous() for target in dtypes.all], lowering=lowering)
    for target, ours in zip(dtypes.all, found):
        if target.name == source:
            expected = values
        elif target is dtypes.bool:
            expected = values != 0
        else:
            with np.errstate(all="ignore"):
                wide = values
                if target not in NUMPY_KINDS or dtypes.from_name(source) not in NUMPY_KINDS:
                    wide = values.astype(np.float64)
                if dtypes.is_float(dtypes.from_name(source)) and not dtypes.is_float(target):
                    wide = np.trunc(wide).astype(np.int64)
                expected = wide.astype(numpy_type(target))
        assert ours.dtype == expected.dtype, target
        np.testing.assert_array_equal(ours, expected, err_msg=f"{source} to {target}")


@LOWERINGS
@pytest.mark.parametrize("target", [d.name for d in dtypes.ints])
def test_floats_that_do_not_fit_become_what_hardware_makes_of_them(
    target: str, lowering: Lowering
) -> None:
    values = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 1e19, 2e19, -1.0, 300.0], np.float64)
    whole = given(values, dtypes.float64).cast(dtypes.from_name(target))
    (found,) = interpreted(whole, lowering=lowering)
    np.testing.assert_array_equal(found, result(whole))


def test_bits_of_floats() -> None:
    a = normal(12)
    x = given(a)
    (found,) = interpreted(x.bitcast(dtypes.uint32))
    np.testing.assert_array_equal(found, a.view(np.uint32))


def test_a_bool_is_any_byte_but_zero() -> None:
    assert lanes.bitcast(np.array([0, 1, 7], np.uint8), dtypes.bool).tolist() == [0, 1, 1]


# *** kernels ***


@LOWERINGS
@pytest.mark.parametrize(("m", "k", "n"), [(4, 5, 3), (16, 8, 17), (1, 33, 2)])
def test_matmul(m: int, k: int, n: int, lowering: Lowering) -> None:
    a, b = normal(m, k), normal(k, n)
    (found,) = interpreted(matmul(given(a), given(b)), lowering=lowering)
    np.testing.assert_allclose(found, a @ b, atol=1e-4)


@pytest.mark.parametrize("level", [0, 1, 2])
@LOWERINGS
def test_softmax_also_as_one_kernel_with_local_buffers(level: int, lowering: Lowering) -> None:
    x = normal(5, 12)
    e = np.exp(x - x.max(1, keepdims=True))
    with Context(PCONTIG=level):
        (found,) = interpreted(softmax(given(x)), lowering=lowering)
    np.testing.assert_allclose(found, e / e.sum(1, keepdims=True), rtol=1e-5)


@LOWERINGS
def test_rows_that_indices_choose(lowering: Lowering) -> None:
    x, rows = normal(9, 6), np.array([3, 0, 8, 3, -1], np.int32)
    (found,) = interpreted(Tensor(x)[Tensor(rows)].uop, lowering=lowering)
    np.testing.assert_array_equal(found, x[rows])


@LOWERINGS
def test_padding_joining_flipping_and_running_sums(lowering: Lowering) -> None:
    a, b = normal(5, 7), normal(5, 4)
    x, y = Tensor(a), Tensor(b)
    joined = np.concatenate([a, b], 1)
    found = interpreted(
        x.pad(((1, 2), (0, 3)), value=2.0).uop,
        x.cat(y, dim=1).flip(1).uop,
        x.cat(y, dim=1).cumsum(1).uop,
        lowering=lowering,
    )
    np.testing.assert_array_equal(found[0], np.pad(a, ((1, 2), (0, 3)), constant_values=2.0))
    np.testing.assert_array_equal(found[1], joined[:, ::-1])
    np.testing.assert_allclose(found[2], joined.cumsum(1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("length", [1, 4, 7])
def test_a_program_serves_every_value_of_its_variable(length: int) -> None:
    x = normal(7, 3)
    n = UOp.variable("n", 1, 7).bind(length)
    (found,) = interpreted(
        given(x).shrink((0, 0), (n, 3)).reduce_axis(Ops.ADD, (0,)), lowering=for_device
    )
    np.testing.assert_allclose(found.reshape(3), x[:length].sum(0), rtol=1e-5)


def test_a_variable_needs_a_value_in_its_bounds() -> None:
    n = UOp.variable("n", 1, 7).bind(2)
    linear = for_device(kernel_of(given(normal(7, 3)).shrink((0, 0), (n, 3)) + 1))
    memory = {0: np.zeros(21, "f"), 1: np.ones(21, "f")}
    with pytest.raises(InterpreterError, match="no value for the variable n"):
        run_program(linear, memory)
    with pytest.raises(InterpreterError, match=r"n = 8 is not in \[1, 7\]"):
        run_program(linear, memory, {"n": 8})


MOVES = [
    [Opt(OptOps.THREAD, 0, 2)],
    [Opt(OptOps.UPCAST, 1, 3), Opt(OptOps.THREAD, 0, 2)],
    [Opt(OptOps.PADTO, 0, 5), Opt(OptOps.UPCAST, 0, 5)],
    [Opt(OptOps.PADTO, 1, 4), Opt(OptOps.UPCAST, 1, 4), Opt(OptOps.UNROLL, 3, 5)],
    [Opt(OptOps.PADTO, 2, 7), Opt(OptOps.UNROLL, 2, 7)],
    [Opt(OptOps.SWAP, 0, 1)],
]


@pytest.mark.parametrize("opts", MOVES, ids=lambda m: " ".join(o.op.name for o in m))
def test_moves_with_threads_gates_and_masks(opts: list[Opt]) -> None:
    a, b = normal(8, 10), normal(10, 6)
    ast = kernel_of(matmul(given(a), given(b)))
    memory = {0: np.zeros((8, 6), "f"), 1: a.copy(), 2: b.copy()}
    run_program(program(ast, opts), memory)
    np.testing.assert_allclose(memory[0], a @ b, atol=1e-4)


# *** work groups ***


def shared_sum(with_barrier: bool = True, only_some: bool = False) -> list[UOp]:
    """Each of 2 groups of 4 items adds up what its items wrote to local memory."""
    out = UOp(Ops.DEFINE_GLOBAL, dtypes.int32.ptr(8), (), 0)
    group, item = special("g0", 2), special("l0", 4)
    four, zero = UOp.const(dtypes.int32, 4), UOp.const(dtypes.int32, 0)
    position = group * 4 + item
    local = UOp(Ops.DEFINE_LOCAL, dtypes.int32.ptr(4, AddrSpace.LOCAL), (), "s")
    store = UOp(Ops.INDEX, local.dtype, (local, item)).store(position * 10)
    barrier = UOp(Ops.BARRIER, dtypes.void, (store,))
    branch = UOp(Ops.IF, dtypes.void, (item < 2,))
    register = UOp(Ops.DEFINE_REG, dtypes.int32.ptr(1, AddrSpace.REG), (), "acc")
    total = UOp(Ops.INDEX, register.dtype, (register, zero))
    loop = UOp(Ops.RANGE, dtypes.int32, (four,), (0, AxisType.REDUCE))
    value = UOp(Ops.INDEX, local.dtype, (local, loop)).load()
    old = total.load()
    added = total.store(old + value)
    result = total.load().rtag("result")
    target = UOp(Ops.INDEX, out.dtype, (out, position))
    linear = [out, four, zero, *listed(group), *listed(item), *listed(position), local, register]
    linear += [*listed(position * 10, item < 2), store.src[0], store]
    if only_some:
        linear.append(branch)
    linear += [barrier] if with_barrier else []
    if only_some:
        return [*dict.fromkeys(linear), UOp(Ops.ENDIF, dtypes.void, (branch,))]
    linear += [total, total.store(zero), loop, value.src[0], value, old, old + value, added]
    linear += [added.end(loop), result, target, target.store(result)]
    return list(dict.fromkeys(linear))


def special(name: str, size: int) -> UOp:
    return UOp(Ops.SPECIAL, dtypes.int32, (UOp.const(dtypes.int32, size),), name)


def listed(*nodes: UOp) -> list[UOp]:
    return [n for node in nodes for n in node.toposort()]


def test_the_items_of_a_group_share_local_memory() -> None:
    memory = np.zeros(8, np.int32)
    run_program(shared_sum(), {0: memory})
    assert memory.tolist() == [60] * 4 + [220] * 4


def test_local_memory_without_a_barrier_is_read_too_early() -> None:
    with pytest.raises(DataRaceError, match=r"local memory s\[0\]: item 7 reads what another one"):
        run_program(shared_sum(with_barrier=False), {0: np.zeros(8, np.int32)})


def test_all_items_of_a_group_must_meet_at_a_barrier() -> None:
    with pytest.raises(BarrierError, match="others do not"):
        run_program(shared_sum(only_some=True), {0: np.zeros(8, np.int32)})


# *** what is wrong with a program ***


def stored(index: UOp, value: UOp | None = None, size: int = 4) -> list[UOp]:
    out = UOp(Ops.DEFINE_GLOBAL, dtypes.int32.ptr(size), (), 3)
    written = UOp.const(dtypes.int32, 1) if value is None else value
    return listed(UOp(Ops.INDEX, out.dtype, (out, index)).store(written))


@pytest.mark.parametrize("index", [-1, 4])
def test_an_index_out_of_bounds_is_named(index: int) -> None:
    message = rf"parameter 3\[{index}\] does not exist: its size is 4\n.*Ops.STORE"
    with pytest.raises(OutOfBoundsError, match=message) as caught:
        run_program(stored(UOp.const(dtypes.int32, index)), {3: np.zeros(4, np.int32)})
    assert caught.value.node is not None and caught.value.node.op is Ops.STORE


def test_a_vector_must_lie_inside_as_a_whole() -> None:
    value = UOp.const(dtypes.int32.vec(4), (1, 2, 3, 4))
    memory = np.zeros(6, np.int32)
    run_program(stored(UOp.const(dtypes.int32, 2), value, 6), {3: memory})
    assert memory.tolist() == [0, 0, 1, 2, 3, 4]
    with pytest.raises(OutOfBoundsError, match=r"parameter 3\[6\]"):
        run_program(stored(UOp.const(dtypes.int32, 3), value, 6), {3: memory})


def test_a_buffer_that_is_too_small_is_found_when_it_is_used() -> None:
    program = stored(UOp.const(dtypes.int32, 3))
    with pytest.raises(OutOfBoundsError, match="its size is 2"):
        run_program(program, {3: np.zeros(2, np.int32)})


def test_lanes_whose_gate_is_off_touch_nothing() -> None:
    out = UOp(Ops.DEFINE_GLOBAL, dtypes.int32.ptr(4), (), 0)
    gate = UOp.const(dtypes.bool.vec(4), (True, False, True, False))
    address = UOp(Ops.INDEX, out.dtype, (out, UOp.const(dtypes.int32, 1), gate))
    other = UOp.const(dtypes.int32.vec(4), (7, 8, 9, 10))
    value = UOp(Ops.LOAD, dtypes.int32.vec(4), (address, other))
    memory = np.array([1, 2, 3, 4], np.int32)
    counts = run_program(listed(address.store(value * 2)), {0: memory})
    assert memory.tolist() == [1, 4, 3, 8]
    assert (counts.moved, counts.read, counts.written) == (16, {0: 8}, {0: 8})


def test_a_register_must_be_written_before_it_is_read() -> None:
    register = UOp(Ops.DEFINE_REG, dtypes.int32.ptr(2, AddrSpace.REG), (), "acc")
    value = UOp(Ops.INDEX, register.dtype, (register, UOp.const(dtypes.int32, 1))).load()
    with pytest.raises(UninitializedError, match=r"registers acc\[1\] is read"):
        run_program(stored(UOp.const(dtypes.int32, 0), value), {3: np.zeros(4, np.int32)})


@pytest.mark.parametrize("index", ["the same element", "what the other one reads"])
def test_threads_that_touch_what_others_write_are_found(index: str) -> None:
    thread = special("t0", 2)
    zero = UOp.const(dtypes.int32, 0)
    if index == "the same element":
        linear = stored(zero, thread)
    else:
        out = UOp(Ops.DEFINE_GLOBAL, dtypes.int32.ptr(4), (), 3)
        value = UOp(Ops.INDEX, out.dtype, (out, zero)).load()
        linear = listed(UOp(Ops.INDEX, out.dtype, (out, thread)).store(value))
    with pytest.raises(DataRaceError, match=r"work group [01]"):
        run_program(linear, {3: np.zeros(4, np.int32)})


def test_text_of_a_language_cannot_be_interpreted() -> None:
    text = UOp(Ops.CUSTOMI, dtypes.int32, (), "1 + 1")
    with pytest.raises(NotInterpretableError, match="CUSTOMI cannot be interpreted"):
        run_program(stored(UOp.const(dtypes.int32, 0), text), {3: np.zeros(4, np.int32)})


def test_buffers_must_fit_their_parameters() -> None:
    linear = stored(UOp.const(dtypes.int32, 0))
    with pytest.raises(InterpreterError, match="no buffer for parameter 3"):
        run_program(linear, {})
    with pytest.raises(InterpreterError, match="parameter 3 holds int32, its buffer float32"):
        run_program(linear, {3: np.zeros(4, np.float32)})
    with pytest.raises(InterpreterError, match="not contiguous"):
        run_program(linear, {3: np.zeros(8, np.int32)[::2]})


def test_a_node_outside_of_its_loop_is_found() -> None:
    out = UOp(Ops.DEFINE_GLOBAL, dtypes.int32.ptr(4), (), 3)
    loop = UOp(Ops.RANGE, dtypes.int32, (UOp.const(dtypes.int32, 4),), (0, AxisType.LOOP))
    inside = loop * 2
    address = UOp(Ops.INDEX, out.dtype, (out, loop))
    end = address.store(inside).end(loop)
    last = UOp(Ops.INDEX, out.dtype, (out, UOp.const(dtypes.int32, 0))).store(inside)
    linear = [*listed(end), last.src[0].src[1], last.src[0], last]
    with pytest.raises(InterpreterError, match="outside of the loop"):
        run_program(linear, {3: np.zeros(4, np.int32)})


# *** counts ***


def test_counts_of_a_small_matmul() -> None:
    ast = kernel_of(matmul(given(normal(4, 8)), given(normal(8, 2))))
    memory = {0: np.zeros(8, "f"), 1: np.zeros(32, "f"), 2: np.zeros(16, "f")}
    counts = run_program(as_written(ast), memory)
    assert counts.ops == 2 * 4 * 8 * 2
    assert counts.written == {0: 4 * 8} and counts.read == {1: 4 * 32, 2: 4 * 16}
    assert counts.touched == 4 * (8 + 32 + 16)
    assert counts.moved == 4 * (2 * 64 + 8)
    assert counts.index_ops > 0


def test_the_examples_in_the_docstrings() -> None:
    for module in (interpreter, lanes):
        found = doctest.testmod(module)
        assert found.attempted and not found.failed


# *** against the device ***


@pytest.mark.parametrize("kind", ["uint8", "int32", "float32", "float64"])
def test_constant_casts_agree(kind: str) -> None:
    dtype: DType = dtypes.from_name(kind)
    value = np.array([1.75, -2.5], np.float64)
    assert cast(value, dtypes.float64, dtype).tolist() == Tensor(value).cast(kind).numpy().tolist()


OPS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean of squares": lambda x: (x * x).mean(1),
    "sort": lambda x: x.sort(1)[0],
    "argmax": lambda x: x.argmax(1),
    "layer norm": lambda x: (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1),
}


@pytest.mark.parametrize("name", OPS)
@LOWERINGS
def test_kernels_give_the_same_on_the_device(name: str, lowering: Lowering) -> None:
    x = normal(4, 9)
    (found,) = interpreted(OPS[name](Tensor(x)).uop, lowering=lowering)
    np.testing.assert_allclose(found, OPS[name](Tensor(x)).numpy(), rtol=1e-5, atol=1e-6)
