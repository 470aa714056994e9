"""Loads and stores in every space, atomics, variables of modules, and faults of memory."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from tests.emulators.nv import ptx
from tests.emulators.nv.ptx_kernels import HEAD, VirtualMemory, kernel_of, launch

REGS = (
    ".reg .b64 %at, %to, %l<8>; .reg .b32 %r, %x<12>; .reg .b16 %h<8>; .reg .pred %q<4>;"
    ".reg .f32 %f<8>; .reg .b128 %w<4>; .reg .f64 %d<4>;"
)


def run(body: str, *arrays: np.ndarray, threads: int = 32, blocks: int = 1, **options: object):  # type: ignore[no-untyped-def]
    kernel = kernel_of(REGS + body, len(arrays), extra=str(options.pop("extra", "")))
    launch(kernel, list(arrays), (blocks,), (threads,), **options)
    return arrays[0]


VECTORS = [("b8", 4), ("b16", 2), ("u32", 4), ("b64", 2), ("f32", 4)]


@pytest.mark.parametrize("kind, width", VECTORS)
def test_vectors(kind: str, width: int) -> None:
    size = int(kind[1:]) // 8
    source = np.random.default_rng(0).integers(0, 256, 32 * size * width).astype("u1")
    out = np.zeros_like(source)
    letter = {1: "h", 2: "h", 4: "f" if kind == "f32" else "x", 8: "l"}[size]
    names = ", ".join(f"%{letter}{k}" for k in range(width))
    step = size * width
    run(
        f"mad.wide.u32 %at, %t, {step}, %p1; mad.wide.u32 %to, %t, {step}, %p0;"
        f"ld.global.v{width}.{kind} {{{names}}}, [%at];"
        f"st.global.v{width}.{kind} [%to], {{{names}}};",
        out,
        source,
    )
    assert (out == source).all()


def test_wide_vectors_and_128_bits() -> None:
    source = np.arange(64, dtype="u8") * 0x123456789
    out = np.zeros_like(source)
    run(
        "mad.wide.u32 %at, %t, 32, %p1; mad.wide.u32 %to, %t, 32, %p0;"
        "ld.global.v4.b64 {%l0, %l1, %l2, %l3}, [%at];"
        "st.global.v4.b64 [%to], {%l3, %l2, %l1, %l0};",
        out, source, threads=16,
    )  # fmt: skip
    assert (out.reshape(-1, 4) == source.reshape(-1, 4)[:, ::-1]).all()
    run(
        "mad.wide.u32 %at, %t, 16, %p1; mad.wide.u32 %to, %t, 16, %p0;"
        "ld.global.b128 %w0, [%at]; mov.b128 {%l0, %l1}, %w0; mov.b128 %w1, {%l1, %l0};"
        "st.global.b128 [%to], %w1;",
        out, source,
    )  # fmt: skip
    assert (out.reshape(-1, 2) == source.reshape(-1, 2)[:, ::-1]).all()


def test_small_types_are_extended() -> None:
    source = np.array([0x80FF7F01] * 32, "u4")
    out = np.zeros(32 * 4, "u4")
    run(
        "mad.wide.u32 %at, %t, 4, %p1; mad.wide.u32 %to, %t, 16, %p0;"
        "ld.global.u8 %x0, [%at+2]; ld.global.s8 %x1, [%at+2]; ld.global.s16 %x2, [%at+2];"
        "ld.global.b8 %h0, [%at+3]; cvt.s32.s8 %x3, %h0;"
        "st.global.v4.u32 [%to], {%x0,%x1,%x2,%x3};",
        out, source,
    )  # fmt: skip
    assert out[:4].tolist() == [0xFF, 2**32 - 1, 0xFFFF80FF, 2**32 - 128]


def test_moves_pack_and_unpack() -> None:
    out = np.zeros((32, 2), "u4")
    run(
        "mad.wide.u32 %to, %t, 8, %p0; mov.b32 %x0, 0x11223344; mov.b32 {%h0, %h1}, %x0;"
        "mov.b32 %x1, {%h1, %h0}; mov.b64 %l0, {%x1, %t}; mov.b64 {%h4, %h5, %h6, _}, %l0;"
        "mov.b64 {_, %x2}, %l0; mov.b64 %l1, {%h5, %h4, %h6, %h0}; mov.b64 {%x3, %x4}, %l1;"
        "add.u32 %x2, %x2, %x3; st.global.v2.u32 [%to], {%x1, %x2};",
        out,
    )
    assert out[5].tolist() == [0x33441122, 0x11223344 + 5]


def test_guarded_loads_and_stores() -> None:
    source = np.arange(32, dtype="u4")
    out = np.full(32, 500, "u4")
    run(
        "mad.wide.u32 %at, %t, 4, %p1; mad.wide.u32 %to, %t, 4, %p0; mov.u32 %r, 77;"
        "setp.lt.u32 %q0, %t, 20; setp.gt.u32 %q1, %t, 9; @!%q0 mov.u64 %at, 0;"
        "@%q0 ld.global.u32 %r, [%at]; @%q1 st.global.u32 [%to], %r;",
        out, source,
    )  # fmt: skip
    assert out.tolist() == [500] * 10 + [*range(10, 20)] + [77] * 12


def test_the_last_thread_wins() -> None:
    out = np.zeros(4, "u4")
    run("st.global.u32 [%p0], %t; shr.u32 %x0, %t, 4; mad.wide.u32 %to, %x0, 4, %p0;"
        "st.global.u32 [%to+8], %t;", out)  # fmt: skip
    assert out.tolist() == [31, 0, 15, 31]


def test_local_memory_is_each_threads_own() -> None:
    out = np.zeros(64, "u4")
    body = """
        .local .align 16 .b8 stack[64];
        mov.u64 %l0, stack; cvta.local.u64 %l1, %l0; add.u32 %x0, %t, 100;
        and.b32 %x1, %t, 3; mad.wide.u32 %at, %x1, 4, %l0; st.local.u32 [%at], %x0;
        mad.wide.u32 %at, %x1, 4, %l1; ld.u32 %x2, [%at];
        st.local.v4.u32 [stack+16], {%x2, %x2, %x2, %x2}; ld.local.u32 %r, [%l0+28];
        mov.u32 %x3, %ctaid.x; mad.lo.u32 %x3, %x3, 32, %t;
        mad.wide.u32 %to, %x3, 4, %p0; st.global.u32 [%to], %r;
    """
    assert run(body, out, blocks=2).tolist() == [*range(100, 132)] * 2


def test_shared_memory_is_each_blocks_own() -> None:
    out = np.zeros(128, "u4")
    body = """
        .shared .align 8 .b8 fixed[136];
        mov.u32 %x5, %ctaid.x; mad.lo.u32 %x4, %x5, 1000, %t;
        mov.u32 %x0, fixed; mad.lo.u32 %x1, %t, 4, %x0; st.shared.u32 [%x1], %x4;
        mov.u64 %l0, more; mad.wide.u32 %l1, %t, 4, %l0; cvta.shared.u64 %l2, %l1;
        st.u32 [%l2], %x5;
        bar.sync 0; xor.b32 %x2, %t, 1; mad.lo.u32 %x3, %x2, 4, %x0;
        ld.volatile.shared.u32 %r, [%x3];
        ld.shared.u32 %x6, [%l1]; add.u32 %r, %r, %x6; mad.lo.u32 %x5, %x5, 32, %t;
        mad.wide.u32 %to, %x5, 4, %p0; st.global.u32 [%to], %r;
    """
    extra = ".extern .shared .align 16 .b8 more[];"
    run(body, out, blocks=4, shared_bytes=128, extra=extra)
    assert out.tolist() == [b * 1001 + (t ^ 1) for b in range(4) for t in range(32)]
    kernel = kernel_of(REGS + body, extra=extra)
    assert kernel.shared_bytes == 136
    assert {"shared", "dynamic_shared", "barrier"} <= kernel.features
    with pytest.raises(ptx.MemoryFault, match="shared address"):
        run(body, out, blocks=4, shared_bytes=16, extra=extra)


def test_generic_addresses_of_several_spaces_at_once() -> None:
    out = np.zeros(32, "u4")
    source = np.arange(32, dtype="u4") + 10
    body = """
        .shared .align 4 .b8 words[128]; .local .align 4 .b8 own[4];
        mov.u32 %x0, words; mad.lo.u32 %x0, %t, 4, %x0; add.u32 %x1, %t, 2000;
        st.shared.u32 [%x0], %x1;
        add.u32 %x1, %t, 3000; st.local.u32 [own], %x1;
        mad.wide.u32 %l0, %t, 4, %p1; cvt.u64.u32 %l1, %x0; cvta.shared.u64 %l1, %l1;
        mov.u64 %l2, own; cvta.local.u64 %l2, %l2;
        rem.u32 %x2, %t, 3; setp.eq.u32 %q0, %x2, 0; setp.eq.u32 %q1, %x2, 1;
        selp.b64 %l3, %l1, %l2, %q1; selp.b64 %l3, %l0, %l3, %q0;
        ld.u32 %r, [%l3]; mov.u32 %x3, 0; isspacep.shared %q2, %l3; @%q2 add.u32 %r, %r, 10000;
        st.u32 [%l3], %r; ld.u32 %r, [%l3];
        mad.wide.u32 %to, %t, 4, %p0; st.global.u32 [%to], %r;
    """
    run(body, out, source)
    expected = [(t + 10, t + 12000, t + 3000)[t % 3] for t in range(32)]
    assert out.tolist() == expected
    assert source[::3].tolist() == expected[::3]


def test_parameters() -> None:
    text = f"""{HEAD}
    .visible .entry k(.param .u8 a, .param .u64 .ptr .global .align 4 out,
                      .param .align 8 .b8 s[24],
                      .param .f32 f, .param .u16 h)
    {{
        .reg .b32 %r<6>; .reg .f32 %f<2>; .reg .b64 %l<6>;
        ld.param.u64 %l0, [out]; ld.param.u8 %r0, [a]; ld.param.s32 %r1, [s+8];
        ld.param.u16 %r2, [h];
        ld.param.f32 %f0, [f]; cvt.rzi.s32.f32 %r3, %f0; mov.b64 %l1, s; ld.param.b32 %r4, [%l1+16];
        cvta.param.u64 %l2, %l1; ld.u32 %r5, [%l2+20]; add.u32 %r4, %r4, %r5;
        st.global.v4.u32 [%l0], {{%r0, %r1, %r2, %r3}}; st.global.u32 [%l0+16], %r4; ret;
    }}"""
    kernel = ptx.parse(text).kernels["k"]
    layout = [(p.name, p.offset, p.size) for p in kernel.parameters]
    assert layout == [("a", 0, 1), ("out", 8, 8), ("s", 16, 24), ("f", 40, 4), ("h", 44, 2)]
    assert kernel.parameter_bytes == 46
    out = np.zeros(5, "i4")
    struct = int.from_bytes(np.array([1, 2, -3, 4, 5, 6], "i4").tobytes(), "little")
    launch(kernel, [200, out, struct, 7.9, 65535])
    assert out.tolist() == [200, -3, 65535, 7, 11]


def test_variables_of_a_module() -> None:
    extra = """
    .global .align 4 .b8 bytes[12] = {1, 0, 0, 0, 2, 0, 0, 0, 3};
    .visible .const .align 4 .f32 floats[3] = {0f3F800000, 2.5, 0f40800000};
    .global .u64 pointer = bytes;
    .visible .global .align 8 .u64 pointers[2] = {generic(bytes)+4, 0};
    .global .s32 counter;
    """
    out = np.zeros(4, "f4")
    body = """
        mov.u64 %l0, bytes; ld.global.u32 %x0, [%l0+4]; ld.const.f32 %f0, [floats+4];
        ld.global.u64 %l1, [pointer]; ld.global.u32 %x1, [%l1+8]; ld.global.u64 %l2, [pointers];
        ld.u32 %x2, [%l2]; add.u32 %x0, %x0, %x1; cvt.rn.f32.u32 %f1, %x0; cvt.rn.f32.u32 %f2, %x2;
        atom.global.add.u32 %x4, [counter], 1; ld.global.u32 %x5, [counter];
        cvt.rn.f32.u32 %f3, %x5;
        st.global.v4.f32 [%p0], {%f0, %f1, %f2, %f3};
    """
    assert run(body, out, extra=extra).tolist() == [2.5, 5.0, 2.0, 32.0]
    kernel = kernel_of(REGS + body, extra=extra)
    assert kernel.symbols == {"bytes", "floats", "pointer", "pointers", "counter"}
    with pytest.raises(ptx.PtxError, match="no address was given for the variable bytes"):
        ptx.run(kernel, (1, 1, 1), (1, 1, 1), bytes(8), VirtualMemory())


def test_copies_from_global_to_shared() -> None:
    source = np.arange(128, dtype="u4")
    out = np.zeros(128, "u4")
    body = """
        .shared .align 16 .b8 tile[512];
        mov.u32 %x0, tile; mad.lo.u32 %x0, %t, 16, %x0; mad.wide.u32 %at, %t, 16, %p1;
        and.b32 %x1, %t, 1; shl.b32 %x1, %x1, 4;
        cp.async.cg.shared.global [%x0], [%at], 16, %x1;
        cp.async.commit_group; cp.async.wait_group 0; cp.async.wait_all; bar.sync 0;
        cp.async.ca.shared.global.L2::128B [%x0+4], [%at], 4;
        ld.shared.v4.u32 {%x2, %x3, %x4, %x5}, [%x0];
        mad.wide.u32 %to, %t, 16, %p0; st.global.v4.u32 [%to], {%x2, %x3, %x4, %x5};
    """
    run(body, out, source)
    expected = source.reshape(32, 4) * (np.arange(32) % 2)[:, None]
    expected[:, 1] = source.reshape(32, 4)[:, 0]
    assert (out.reshape(32, 4) == expected).all()


def test_hints_have_no_effect() -> None:
    out = np.zeros(32, "u4")
    run(
        "mad.wide.u32 %to, %t, 4, %p0; membar.gl; fence.acq_rel.gpu; fence.proxy.async;"
        "prefetch.global.L2 [%p0]; nanosleep.u32 100; griddepcontrol.wait;"
        "ld.global.nc.L1::no_allocate.L2::256B.u32 %r, [%to]; ld.relaxed.gpu.global.u32 %x0, [%to];"
        "ld.global.L1::evict_last.L2::cache_hint.u32 %x2, [%to], %l0;"
        "ld.volatile.global.u32 %x3, [%to];"
        "ld.acquire.sys.global.u32 %x1, [%to]; add.u32 %r, %r, 3; st.global.wt.u32 [%to], %r;"
        '.pragma "nounroll";\n.loc 1 2 3\n',
        out,
    )
    assert (out == 3).all()


# --- atomics

ATOMICS: dict[str, Callable[[int, int], int]] = {
    "add.u32": lambda a, b: a + b, "min.s32": min, "max.u32": max, "and.b32": lambda a, b: a & b,
    "or.b32": lambda a, b: a | b, "xor.b32": lambda a, b: a ^ b, "exch.b32": lambda a, b: b,
    "inc.u32": lambda a, b: 0 if a >= b else a + 1,
    "dec.u32": lambda a, b: b if a == 0 or a > b else a - 1, "add.u64": lambda a, b: a + b,
    "max.s64": max,
}  # fmt: skip


@pytest.mark.parametrize("places", [1, 3, 32])
@pytest.mark.parametrize("name", ATOMICS)
def test_atomics_run_one_thread_after_the_other(name: str, places: int) -> None:
    bits = int(name[-2:])
    letter, dtype = ("x", "u4") if bits == 32 else ("l", "u8")
    memory = np.full(32, 9, dtype)
    found = np.zeros(32, dtype)
    extend = "cvt.u64.u32 %l4, %x1;" if bits == 64 else "mov.u32 %x4, %x1;"
    run(
        f"rem.u32 %x0, %t, {places}; mad.wide.u32 %at, %x0, {bits // 8}, %p0;"
        f"mul.lo.u32 %x1, %t, 3;"
        f"{extend} atom.global.{name} %{letter}5, [%at], %{letter}4;"
        f"mad.wide.u32 %to, %t, {bits // 8}, %p1; st.global.b{bits} [%to], %{letter}5;",
        memory, found,
    )  # fmt: skip
    expected = [9] * 32
    for thread in range(32):
        assert found[thread] == expected[thread % places]
        expected[thread % places] = ATOMICS[name](expected[thread % places], thread * 3)
    assert memory.tolist() == expected


def test_compare_and_swap() -> None:
    memory = np.zeros(2, "u8")
    run("add.u32 %x0, %t, 1; cvt.u64.u32 %l0, %t; cvt.u64.u32 %l1, %x0;"
        "atom.global.cas.b64 %l2, [%p0], %l0, %l1;", memory)  # fmt: skip
    assert memory.tolist() == [32, 0]


def test_atomics_of_floats() -> None:
    memory = np.zeros(8, "f4")
    run("and.b32 %x0, %t, 7; mad.wide.u32 %at, %x0, 4, %p0; cvt.rn.f32.u32 %f0, %t;"
        "red.global.add.f32 [%at], %f0; setp.lt.u32 %q0, %t, 8; mov.f32 %f1, 0f3E800000;"
        "@%q0 atom.relaxed.gpu.global.add.f32 %f2, [%at], %f1;", memory)  # fmt: skip
    assert memory.tolist() == [sum(range(k, 32, 8)) + 0.25 for k in range(8)]
    double = np.ones(1)
    run("cvt.rn.f64.u32 %d0, %t; atom.global.add.f64 _, [%p0], %d0;", double)
    assert double[0] == 497
    halves = np.zeros(2, "f2")
    run("mov.b32 %x0, 0x3C004000; red.global.add.noftz.f16x2 [%p0], %x0;", halves)
    assert halves.tolist() == [64, 32]
    brains = np.zeros(2, ml_dtypes.bfloat16)
    run("mov.b16 %h0, 0x3F80; red.global.add.noftz.bf16 [%p0], %h0;", brains)
    assert brains.astype("f4").tolist() == [32, 0]


def test_atomics_in_shared_memory_of_many_blocks() -> None:
    out = np.zeros(8, "u4")
    body = """
        .shared .align 4 .b8 sum[4];
        mov.u32 %x5, %ctaid.x; setp.ne.u32 %q0, %t, 0; @!%q0 st.shared.u32 [sum], 0; bar.sync 0;
        add.u32 %x0, %t, %x5; mov.u64 %l0, sum; cvta.shared.u64 %l1, %l0;
        red.shared.add.u32 [sum], %x0; atom.add.u32 %x1, [%l1], 1; bar.sync 0;
        ld.shared.u32 %r, [sum]; mad.wide.u32 %to, %x5, 4, %p0; @!%q0 st.global.u32 [%to], %r;
    """
    assert run(body, out, blocks=8).tolist() == [496 + 32 * b + 32 for b in range(8)]


# --- faults


def test_unmapped_addresses() -> None:
    out = np.zeros(40, "u4")
    body = "mul.wide.u32 %l0, %t, 200; add.u64 %at, %l0, %p0; st.global.u32 [%at], %t;"
    with pytest.raises(ptx.MemoryFault, match="store to global address 0x7f0") as found:
        run("\n" + body, out)
    assert found.value.write
    # the first 160 bytes are mapped; the lowest address beyond them is reported
    assert found.value.thread == (1, 0, 0)
    assert found.value.address % 4096 == 200
    assert found.value.line == 10
    with pytest.raises(ptx.MemoryFault, match="load from global") as read:
        run("ld.u32 %r, [0x10];", out)
    assert not read.value.write


def test_memory_that_may_not_be_written() -> None:
    memory = VirtualMemory()
    source = np.zeros(4, "u4")
    kernel = kernel_of(REGS + "ld.global.u32 %r, [%p0]; st.global.u32 [%p0], %r;")
    address = memory.add(source, writable=False)
    with pytest.raises(ptx.MemoryFault, match="store"):
        ptx.run(kernel, (1, 1, 1), (1, 1, 1), address.to_bytes(8, "little"), memory)


MISALIGNED = [
    "ld.global.u32 %r, [%at]",
    "ld.global.v4.f32 {%f0,%f1,%f2,%f3}, [%at]",
    "st.global.b64 [%at], %l0",
    "atom.global.add.u32 %r, [%at], 1",
]


@pytest.mark.parametrize("code", MISALIGNED)
def test_misaligned_addresses(code: str) -> None:
    out = np.zeros(256, "u4")
    with pytest.raises(ptx.MisalignedAddress, match="no multiple of") as found:
        run(f"setp.eq.u32 %q0, %t, 9; mov.u64 %at, %p0; @%q0 add.u64 %at, %at, 2; {code};", out)
    assert found.value.thread == (9, 0, 0)


def test_one_instruction_may_reach_several_mappings() -> None:
    first, second, out = (
        np.arange(4, dtype="u4"),
        np.arange(100, 104, dtype="u4"),
        np.zeros(8, "u4"),
    )
    body = """
        and.b32 %x0, %t, 3; setp.lt.u32 %q0, %t, 4; selp.b64 %l0, %p1, %p2, %q0;
        mad.wide.u32 %at, %x0, 4, %l0; ld.global.u32 %r, [%at]; st.global.u32 [%at], %t;
        mad.wide.u32 %to, %t, 4, %p0; st.global.u32 [%to], %r;
    """
    run(body, out, first, second, threads=8)
    assert out.tolist() == [0, 1, 2, 3, 100, 101, 102, 103]
    assert (first.tolist(), second.tolist()) == ([0, 1, 2, 3], [4, 5, 6, 7])


def test_many_blocks_in_batches() -> None:
    out = np.zeros(100_000, "u4")
    body = "mov.u32 %x0, %ctaid.x; mad.lo.u32 %x0, %x0, 100, %t; mad.wide.u32 %to, %x0, 4, %p0;"
    run(body + "mul.lo.u32 %r, %x0, 3; st.global.u32 [%to], %r;", out, threads=100, blocks=1000)
    assert (out == np.arange(100_000) * 3).all()
