"""Branches that part threads, barriers, calls, lanes of warps, and what goes wrong there."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulators.nv import ptx
from tests.emulators.nv.ptx_kernels import HEAD, kernel_of, launch

STORE = "mad.wide.u32 %at, %i, 4, %p0; st.global.u32 [%at], %r;"
INDEX = (
    ".reg .b64 %at; .reg .b32 %i, %r, %x<8>; .reg .pred %q<4>;"
    "mov.u32 %x7, %ctaid.x; mov.u32 %x6, %ntid.x; mad.lo.u32 %i, %x7, %x6, %t;"
)


def numbers(body: str, threads: int = 64, blocks: int = 1, **options: object) -> list[int]:
    """%r of each thread."""
    kernel = kernel_of(INDEX + body + STORE, extra=str(options.pop("extra", "")))
    result = np.full(threads * blocks, 0xDEAD, np.uint32)
    launch(kernel, [result], (blocks,), (threads,), **options)
    return result.tolist()


COLLATZ = """
    add.u32 %x0, %i, 1; mov.u32 %r, 0;
LOOP: setp.eq.u32 %q0, %x0, 1; @%q0 bra DONE;
    and.b32 %x1, %x0, 1; setp.eq.u32 %q1, %x1, 0;
    @%q1 bra EVEN;
    mad.lo.u32 %x0, %x0, 3, 1; bra.uni NEXT;
EVEN: shr.u32 %x0, %x0, 1;
NEXT: add.u32 %r, %r, 1; bra LOOP;
DONE:
"""


def collatz(n: int) -> int:
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


def test_loops_of_different_lengths() -> None:
    assert numbers(COLLATZ, 96, 3) == [collatz(i + 1) for i in range(288)]


def test_threads_that_leave_early() -> None:
    body = "setp.gt.u32 %q0, %i, 20; @%q0 ret; mul.lo.u32 %r, %i, 7;"
    assert numbers(body) == [i * 7 if i <= 20 else 0xDEAD for i in range(64)]
    body = "setp.gt.u32 %q0, %i, 20; mov.u32 %r, 5; @!%q0 exit;"
    assert numbers(body) == [0xDEAD if i <= 20 else 5 for i in range(64)]


def test_branch_by_index() -> None:
    body = """
        rem.u32 %x0, %i, 3; mov.u32 %r, 0;
    table: .branchtargets ZERO, ONE, TWO;
        brx.idx %x0, table;
    ZERO: mov.u32 %r, 100; bra END;
    ONE: mov.u32 %r, 200; bra END;
    TWO: mov.u32 %r, 300;
    END: add.u32 %r, %r, %i;
    """
    assert numbers(body) == [(i % 3 + 1) * 100 + i for i in range(64)]
    with pytest.raises(ptx.IllegalInstruction, match="beyond"):
        numbers(body.replace("%i, 3", "%i, 4"))


def test_scopes_hide_registers() -> None:
    body = (
        "mov.u32 %r, 1; { .reg .b32 %r; mov.u32 %r, %i; add.u32 %x0, %r, 1; } add.u32 %r, %r, %x0;"
    )
    assert numbers(body) == [i + 2 for i in range(64)]


POWER = """
.func (.param .b32 result) power(.param .b32 base, .param .b32 exponent)
{
    .reg .b32 %b, %e, %v; .reg .pred %p;
    ld.param.b32 %b, [base]; ld.param.b32 %e, [exponent]; mov.u32 %v, 1;
LOOP: setp.eq.u32 %p, %e, 0; @%p bra OUT;
    mul.lo.u32 %v, %v, %b; sub.u32 %e, %e, 1; bra LOOP;
OUT: st.param.b32 [result+0], %v; ret;
}
"""
CALL = """
    {{ .param .b32 a; .param .b32 b; .param .b32 c;
    st.param.b32 [a+0], {0}; st.param.b32 [b+0], {1};
    call.uni (c), power, (a, b);
    ld.param.b32 {2}, [c+0]; }}
"""


def test_calls() -> None:
    body = "and.b32 %x0, %i, 3;" + CALL.format("3", "%x0", "%x1") + CALL.format("%x1", "2", "%r")
    assert numbers(body, extra=POWER) == [9 ** (i % 4) for i in range(64)]
    guarded = "mov.u32 %r, 9; setp.lt.u32 %q0, %i, 5; @!%q0 bra OVER;" + body + "OVER:"
    expected = [9 ** (i % 4) if i < 5 else 9 for i in range(64)]
    assert numbers(guarded, extra=POWER) == expected


def test_calls_that_cannot_be() -> None:
    with pytest.raises(ptx.PtxError, match=r"line 5: vprintf has no body"):
        numbers("call vprintf;", extra="\n.extern .func vprintf();")
    with pytest.raises(ptx.PtxError, match="recursion"):
        numbers("call f;", extra=".func f() { call f; ret; }")
    with pytest.raises(ptx.PtxError, match="unknown function g"):
        numbers("call g;")


def test_special_registers() -> None:
    kernel = kernel_of(
        ".reg .b32 %y<8>;"
        + INDEX
        + """
        mov.u32 %y0, %tid.y; mov.u32 %y1, %ntid.x; mad.lo.u32 %y2, %y0, %y1, %t;
        mov.u32 %y3, %ctaid.y; mov.u32 %y4, %nctaid.x; mov.u32 %x0, %ctaid.x;
        mad.lo.u32 %y5, %y3, %y4, %x0; mad.lo.u32 %i, %y5, 64, %y2;
        mov.u32 %r, %laneid; mov.u32 %x1, %warpid; mad.lo.u32 %r, %x1, 100, %r;
        mov.u32 %x2, %lanemask_lt; popc.b32 %x2, %x2; mad.lo.u32 %r, %x2, 1000, %r;
        mov.u32 %x3, WARP_SZ; add.u32 %r, %r, %x3;
        """
        + STORE
    )
    result = np.zeros(6 * 64, np.uint32)
    launch(kernel, [result], (2, 3), (16, 4))
    thread = np.arange(384) % 64
    assert result.tolist() == (thread % 32 * 1001 + thread // 32 * 100 + 32).tolist()


# --- barriers

REDUCE = """
    .shared .align 4 .b8 sums[512];
    .reg .b32 %s, %o, %n;
    mov.u32 %s, sums; mad.lo.u32 %s, %t, 4, %s; st.shared.u32 [%s], %i; mov.u32 %n, 64;
LOOP: bar.sync 0;
    setp.ge.u32 %q0, %t, %n; @%q0 bra SKIP;
    mad.lo.u32 %o, %n, 4, %s; ld.shared.u32 %x0, [%o]; ld.shared.u32 %x1, [%s];
    add.u32 %x0, %x0, %x1; st.shared.u32 [%s], %x0;
SKIP: shr.u32 %n, %n, 1; setp.ne.u32 %q1, %n, 0; @%q1 bra LOOP;
    bar.sync 0; ld.shared.u32 %r, [sums];
"""


def test_reduction_in_shared_memory() -> None:
    found = numbers(REDUCE, 128, 5)
    expected = [sum(range(b * 128, b * 128 + 128)) for b in range(5) for _ in range(128)]
    assert found == expected


def test_barrier_votes() -> None:
    body = """
        and.b32 %x0, %t, 7; setp.eq.u32 %q0, %x0, 0; setp.lt.u32 %q1, %t, 200;
        barrier.cta.red.popc.aligned.u32 %r, 0, %q0;
        bar.red.and.pred %q2, 0, %q1; selp.u32 %x1, 1000, 0, %q2; add.u32 %r, %r, %x1;
        bar.red.or.pred %q2, 0, !%q1; selp.u32 %x1, 5000, 0, %q2; add.u32 %r, %r, %x1;
    """
    assert numbers(body, 64, 2) == [1008] * 128


def test_exited_threads_are_not_waited_for() -> None:
    body = "setp.ge.u32 %q0, %t, 32; @%q0 exit; bar.sync 0; mov.u32 %r, 1;"
    assert numbers(body) == [1] * 32 + [0xDEAD] * 32


def test_warps_may_meet_at_different_barriers() -> None:
    body = """
        .shared .align 4 .b8 word[4];
        setp.lt.u32 %q0, %t, 32; @%q0 bra FIRST;
        barrier.sync 0; ld.shared.u32 %r, [word]; bra END;
    FIRST: mov.u32 %x0, 77; st.shared.u32 [word], %x0; barrier.sync 0; mov.u32 %r, 1;
    END:
    """
    assert numbers(body) == [1] * 32 + [77] * 32


def test_barriers_for_some_warps() -> None:
    body = """
        setp.ge.u32 %q0, %t, 64; mov.u32 %r, 3; @%q0 bra END;
        bar.sync 1, 64; mov.u32 %r, 4;
    END: bar.sync 0;
    """
    assert numbers(body, 96) == [4] * 64 + [3] * 32


def test_warps_that_were_let_go_come_back_to_a_barrier() -> None:
    """One warp goes round a loop, the other through two barriers of its own."""
    body = """
        .shared .align 4 .b8 words[8]; setp.ge.u32 %q0, %t, 32; mov.u32 %x0, 0; @%q0 bra OTHER;
    LOOP: barrier.sync 0; st.shared.u32 [words], %x0; barrier.sync 0;
        add.u32 %x0, %x0, 1; setp.lt.u32 %q1, %x0, 3; @%q1 bra LOOP;
        mov.u32 %r, 1000; bra END;
    OTHER: mov.u32 %r, 0;
    AGAIN: barrier.sync 0; barrier.sync 0; ld.shared.u32 %x1, [words]; mad.lo.u32 %r, %r, 10, %x1;
        add.u32 %x0, %x0, 1; setp.lt.u32 %q1, %x0, 3; @%q1 bra AGAIN;
    END:
    """
    assert numbers(body, 64, 2) == ([1000] * 32 + [12] * 32) * 2


def test_results_that_are_not_wanted() -> None:
    body = "setp.lt.u32 _|%q0, %i, 5; selp.u32 %r, 1, 2, %q0; mov.b32 {_, %x5}, %r;"
    body = ".reg .b16 %h;" + body.replace("{_, %x5}", "{_, %h}")
    assert numbers(body) == [2 if i < 5 else 1 for i in range(64)]


def test_divergent_barrier() -> None:
    body = "and.b32 %x0, %t, 1; setp.eq.u32 %q0, %x0, 1; @%q0 bra ODD; bar.sync 0; bra END;"
    with pytest.raises(ptx.SyncFault, match="different barriers"):
        numbers(body + "ODD: bar.sync 0; END: mov.u32 %r, 0;")
    with pytest.raises(ptx.SyncFault, match="never come") as found:
        numbers(body + "ODD: bar.sync 1; END: mov.u32 %r, 0;")
    assert len(found.value.waiting) == 2


# --- lanes of warps

LANES = np.arange(64) % 32
WARPS = np.arange(64) // 32


def reference_shuffle(mode: str, b: int, c: int) -> tuple[list[int], list[bool]]:
    """As the PTX manual writes it, for values that are the thread's number."""
    values, valid = [], []
    segment, clamp = c >> 8 & 31, c & 31
    for thread in range(64):
        lane = thread % 32
        last = (lane & segment) | (clamp & ~segment)
        j = {
            "up": lane - b, "down": lane + b, "bfly": lane ^ b,
            "idx": (lane & segment) | (b & ~segment),
        }[mode]  # fmt: skip
        p = j >= last if mode == "up" else j <= last
        values.append(thread - lane + (j if p else lane))
        valid.append(p)
    return values, valid


@pytest.mark.parametrize(
    "mode, b, c",
    [
        ("up", 3, 0),
        ("down", 5, 31),
        ("bfly", 6, 31),
        ("idx", 9, 31),
        ("down", 2, 0x181F),
        ("up", 1, 0x1800),
        ("idx", 5, 0x101F),
        ("bfly", 16, 31),
        ("bfly", 1, 0x1C1F),
    ],
)
def test_shuffles(mode: str, b: int, c: int) -> None:
    body = f"shfl.sync.{mode}.b32 %r|%q0, %i, {b}, {c}, 0xFFFFFFFF; @!%q0 add.u32 %r, %r, 1000;"
    values, valid = reference_shuffle(mode, b, c)
    assert numbers(body) == [v + (0 if p else 1000) for v, p in zip(values, valid)]


def test_shuffles_of_parted_threads() -> None:
    """Each half of a warp shuffles on its own side of a branch, then all together."""
    body = """
        and.b32 %x0, %t, 31; setp.lt.u32 %q0, %x0, 16; @%q0 bra LOW;
        shfl.sync.bfly.b32 %r, %i, 1, 31, 0xFFFF0000; bra MEET;
    LOW: add.u32 %x1, %i, 100; shfl.sync.bfly.b32 %r, %x1, 2, 31, 0x0000FFFF;
    MEET: shfl.sync.bfly.b32 %r, %r, 16, 31, -1;
    """
    halves = [(i ^ 1) if i % 32 >= 16 else (i ^ 2) + 100 for i in range(64)]
    assert numbers(body) == [halves[i ^ 16] for i in range(64)]


def test_groups_with_masks_of_their_own() -> None:
    body = """
        and.b32 %x0, %t, 1; mov.u32 %x1, 0x55555555; shl.b32 %x1, %x1, %x0;
        redux.sync.add.u32 %r, %t, %x1;
    """
    even = {w: sum(t for t in range(w * 32, w * 32 + 32) if t % 2 == 0) for w in (0, 1)}
    assert numbers(body) == [even[i // 32] + (16 if i % 2 else 0) for i in range(64)]


def test_lanes_that_never_come() -> None:
    body = "and.b32 %x0, %t, 31; setp.lt.u32 %q0, %x0, 16; @%q0 exit; "
    with pytest.raises(ptx.SyncFault, match="never come"):
        numbers(body + "shfl.sync.bfly.b32 %r, %i, 1, 31, -1;")
    with pytest.raises(ptx.SyncFault, match="own mask"):
        numbers("shfl.sync.bfly.b32 %r, %i, 1, 31, 0xFFFF;")


def test_a_short_warp_has_no_more_lanes() -> None:
    assert numbers("shfl.sync.down.b32 %r, %i, 1, 31, -1;", 8) == [1, 2, 3, 4, 5, 6, 7, 7]
    assert numbers("redux.sync.max.s32 %r, %t, -1;", 40) == [31] * 32 + [39] * 8


def test_votes() -> None:
    body = """
        and.b32 %x0, %t, 5; setp.eq.u32 %q0, %x0, 0;
        vote.sync.ballot.b32 %r, %q0, -1; activemask.b32 %x1; sub.u32 %r, %r, %x1;
        vote.sync.any.pred %q1, %q0, -1; @%q1 add.u32 %r, %r, 1;
        vote.sync.all.pred %q1, %q0, -1; @%q1 add.u32 %r, %r, 2;
        vote.sync.uni.pred %q1, !%q0, -1; @%q1 add.u32 %r, %r, 4;
        vote.sync.all.pred %q1, %q0, 1; @%q1 add.u32 %r, %r, 8;
    """
    # a mask that a thread is not in is an error: only the last vote has one
    ballot = sum(1 << lane for lane in range(32) if lane & 5 == 0)
    shortened = body[: body.rindex("vote")]
    assert numbers(shortened) == [(ballot + 1 + 1) % 2**32] * 64
    with pytest.raises(ptx.SyncFault, match="own mask"):
        numbers(body)


def test_matches() -> None:
    body = "rem.u32 %x0, %t, 5; match.any.sync.b32 %r, %x0, -1;"
    expected = [
        sum(1 << k % 32 for k in range(t // 32 * 32, t // 32 * 32 + 32) if k % 5 == t % 5)
        for t in range(64)
    ]
    assert numbers(body) == expected
    body = "shr.u32 %x0, %t, 6; match.all.sync.b32 %r|%q0, %x0, -1; @%q0 add.u32 %r, %r, 2;"
    assert numbers(body) == [1] * 64
    assert numbers("match.all.sync.b32 %r|%q0, %t, -1;") == [0] * 64


def test_redux_and_elect() -> None:
    assert numbers("redux.sync.xor.b32 %r, %t, -1;") == [0] * 64
    assert numbers("redux.sync.min.u32 %r, %t, -1;") == [0] * 32 + [32] * 32
    assert numbers("redux.sync.add.s32 %r, %t, -1;") == [496] * 32 + [496 + 1024] * 32
    body = "mov.u32 %r, 0; elect.sync %x0|%q0, -1; @%q0 mov.u32 %r, 1;"
    assert numbers(body) == [int(i % 32 == 0) for i in range(64)]


def test_spinning_threads_starve_nobody() -> None:
    """A lock that lanes of one warp take in turn: the one that has it must get on."""
    body = """
        .shared .align 4 .b8 lock[8];
        mov.u32 %x0, 0; setp.ne.u32 %q0, %t, 0; @%q0 bra BEGIN; st.shared.v2.u32 [lock], {0, 0};
    BEGIN: bar.sync 0;
    TRY: atom.shared.cas.b32 %x1, [lock], 0, 1; setp.ne.u32 %q1, %x1, 0; @%q1 bra TRY;
        ld.shared.u32 %x2, [lock+4]; add.u32 %x2, %x2, 1; st.shared.u32 [lock+4], %x2;
        atom.shared.exch.b32 %x1, [lock], 0;
        bar.sync 0; ld.shared.u32 %r, [lock+4];
    """
    assert numbers(body, 32, 2) == [32] * 64


# --- faults


def test_endless_loops_hang() -> None:
    with pytest.raises(ptx.Hang, match="more than 5000 instructions"):
        numbers("LOOP: add.u32 %r, %i, 1; bra LOOP;", budget=5000)


def test_trap_names_the_thread() -> None:
    body = "setp.eq.u32 %q0, %i, 37; @%q0 bra BAD; bra GOOD; BAD: trap; GOOD: mov.u32 %r, 0;"
    with pytest.raises(ptx.IllegalInstruction, match="trap") as found:
        numbers(body, 16, 4)
    assert (found.value.block, found.value.thread) == ((2, 0, 0), (5, 0, 0))
    assert found.value.kernel == "k"
    with pytest.raises(ptx.IllegalInstruction):
        numbers("setp.eq.u32 %q0, %i, 3; @%q0 trap; mov.u32 %r, 0;")


def test_unknown_things_are_errors_with_a_line() -> None:
    line = len((HEAD + "\n\n\n\n").splitlines())
    for text, message in (
        ("frobnicate.u32 %r, %i;", "unknown instruction frobnicate.u32"),
        ("add.fancy.u32 %r, %i, 1;", "modifier .fancy"),
        ("add.f19 %r, %i, 1;", "type f19"),
        ("add.u32 %r, %i, %nothing;", "unknown special register"),
        ("add.u32 %r, %i, nothing;", "unknown name nothing"),
        ("add.u64 %r, %i, 1;", "is a .b32"),
        ("add.f32 %r, %i, 1;", "an integer where a float"),
        (".fancy 3;", "unknown directive .fancy"),
        ("mov.u32 %r, (;", "operand"),
        ("setp.lo.s32 %q0, %i, 1; setp.zz.s32 %q0, %i, 1;", "comparison"),
        ("ld.global.u32.v3 %r, [%p0];", "type v3"),
        ("atom.global.add.s64 %at, [%p0], %at;", "no atomic add of s64"),
        ("wgmma.fence.sync.aligned;", "unknown instruction wgmma"),
        ("bra %i;", "a label is expected"),
        ("setp.lo.s32 %q0|%q1, %i, 1; prmt.b32 %r, %i;", "2 operands"),
    ):
        with pytest.raises(ptx.PtxError, match=message) as found:
            numbers("\n" + text)
        assert found.value.line >= line


def test_unknown_module_directives() -> None:
    with pytest.raises(ptx.PtxError, match=r"line 4: unknown directive \.fancy"):
        ptx.parse(HEAD + ".fancy 3\n")
    with pytest.raises(ptx.PtxError, match="not a PTX module"):
        ptx.parse("")


def test_launch_limits() -> None:
    kernel = kernel_of("", after=".maxntid 64, 1, 1")
    assert kernel.max_threads == 64
    with pytest.raises(ptx.PtxError, match="allows 64 threads"):
        launch(kernel, [np.zeros(1)], block=(65,))
    kernel = kernel_of("", after=".reqntid 32, 2 .minnctapersm 2")
    assert kernel.required_threads == (32, 2, 1)
    with pytest.raises(ptx.PtxError, match="blocks of"):
        launch(kernel, [np.zeros(1)], block=(64,))


def test_instructions_are_counted_and_traced() -> None:
    seen = []
    kernel = kernel_of(INDEX + "mov.u32 %r, 1;" + STORE)
    count = launch(
        kernel, [np.zeros(64, "u4")], (2,), (32,), trace=lambda line, n: seen.append((line, n))
    )
    assert count == 9  # the last one ends the kernel
    assert [n for _, n in seen] == [64]
