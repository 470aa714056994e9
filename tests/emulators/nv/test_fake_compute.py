"""Launches on the fake GPUs: kernels that run, and every mistake that a GPU answers."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
import pytest

from tests.emulators.nv import decode, nvrtc
from tests.emulators.nv.client import Client
from tests.emulators.nv.launcher import Launcher
from tests.emulators.nv.profiles import GH100, PROFILES, Profile
from tests.emulators.nv.qmd import NBYTES, bits_of
from tests.emulators.nv.system import FakeSystem

ADD = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 out, .param .u64 a, .param .u32 n)
{
  .reg .pred %p; .reg .b32 %r<6>; .reg .b64 %d<6>;
  ld.param.u64 %d1, [out]; ld.param.u64 %d2, [a]; ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
  mad.lo.s32 %r2, %r2, %r3, %r4;
  mul.wide.u32 %d3, %r2, 4;
  add.s64 %d4, %d2, %d3; add.s64 %d5, %d1, %d3;
  ld.global.u32 %r5, [%d4];
  add.s32 %r5, %r5, %r1;
  st.global.u32 [%d5], %r5;
  ret;
}
"""
CODE = bytes(range(256)) * 2


def opened(profile: Profile = GH100) -> Launcher:
    system = FakeSystem([profile])
    system.register_code(CODE, ADD, "add")
    client = Client(system)
    return Launcher(client, client.open_gpu())


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    made = opened()
    made.set_up()
    yield made
    made.client.close()
    assert not made.client.system.objects()


def launch_add(launcher: Launcher, **changes: int) -> None:
    """out = a + 5 for 64 numbers."""
    data = launcher.work.address + 0x100000
    launcher.work.view[0x100000:0x100100] = np.arange(64, dtype=np.int32).tobytes()
    parameters = struct.pack("<QQI", data + 0x1000, data, 5)
    launcher.launch(CODE, (2, 1, 1), (32, 1, 1), parameters, **changes)


def result(launcher: Launcher) -> list[int]:
    return list(np.frombuffer(bytes(launcher.work.view[0x101000:0x101100]), np.int32))


@pytest.mark.parametrize("chip", PROFILES)
def test_a_kernel_runs(chip: str) -> None:
    launcher = opened(PROFILES[chip])
    launcher.set_up()
    launch_add(launcher)
    assert launcher.finish() == 1
    assert result(launcher) == [i + 5 for i in range(64)]
    assert not launcher.client.system.complaints
    launcher.client.close()


SOURCE = r"""
__constant__ float scale[4];
__device__ int counter;
extern "C" __global__ void turn(float *o, const float *a, int n) {
  __shared__ float t[64];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  t[threadIdx.x] = a[i];
  __syncthreads();
  if (i < n) { o[i] = t[63 - threadIdx.x] * scale[1]; atomicAdd(&counter, 1); }
}
"""


@pytest.mark.skipif(nvrtc.library() is None, reason="NVRTC is not installed")
@pytest.mark.parametrize("chip", PROFILES)
def test_a_kernel_of_nvrtc_runs_with_shared_memory_and_variables(chip: str) -> None:
    launcher = opened(PROFILES[chip])
    system, work = launcher.client.system, launcher.work
    cubin, ptx = nvrtc.build(SOURCE, launcher.profile.target)
    system.register_cubin(cubin, ptx)
    code = system.code.codes("turn")[0]
    launcher.set_up(per_thread=0x240)
    bank_3, bank_4, counter = (work.address + at for at in (0x180000, 0x180100, 0x180200))
    struct.pack_into("<4f", work.view, 0x180000, 1, 2, 3, 4)
    struct.pack_into("<Q", work.view, 0x180100, counter)
    values = np.arange(128, dtype=np.float32)
    work.view[0x100000:0x100200] = values.tobytes()
    parameters = struct.pack("<QQi", work.address + 0x101000, work.address + 0x100000, 100)
    changes = launcher.bank_fields(3, bank_3, 16) | launcher.bank_fields(4, bank_4, 16)
    high = 0x240 >> (4 if launcher.profile.qmd == 5 else 0)
    changes |= {"shared_bytes": 0x400 + 256, "local_high": high}
    launcher.launch(code, (2, 1, 1), (64, 1, 1), parameters, **changes)
    assert launcher.finish() == 1
    found = np.frombuffer(bytes(work.view[0x101000:0x101190]), np.float32)
    wanted = np.concatenate([values[:64][::-1], values[64:][::-1]])[:100] * 2
    assert found.tolist() == wanted.tolist()
    assert work.u32(0x180200) == 100
    assert not system.complaints
    launcher.client.close()


# what a GPU answers with an exception


def xid(launcher: Launcher) -> int:
    record = struct.unpack_from("<QIHH", launcher.queue.notifier.view, 0)
    return record[1] if record[3] else 0


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"major": 3}, "version"),
        ({"minor": 1}, "version"),
        ({"type": 3}, "type 3"),
        ({"grid_y": 0}, "grid"),
        ({"block_z": 33}, "block"),
        ({"registers": 0}, "0 registers"),
        ({"shared": 0}, "reserved KiB"),
        ({"shared": 0x410}, "shared size 0x410"),
        ({"shared_bytes": 0x2400, "min_shared": 3}, "does not fit"),
        ({"min_shared": 4}, "no carve-out"),
        ({"max_shared": 3, "min_shared": 5}, "shared configurations"),
        ({"max_shared": 59}, "no carve-out"),
        ({"dependence_counter": 1}, "dependence_counter"),
        ({"bank_valid[0]": 0}, "bank 0 is not bound"),
        ({"bank_size[0]": 0x20}, "bank 0 has"),
        ({"bank_size[0]": 0x22}, "bank 0 ends before the parameters"),
        ({"program_low": 64}, "program at"),
        ({"local_high": 0x240}, "no local memory is set up"),
    ],
)
def test_descriptors_that_are_refused(
    launcher: Launcher, changes: dict[str, int], says: str
) -> None:
    launch_add(launcher, **changes)
    assert launcher.finish() == 0 and xid(launcher) == 13
    assert says in str(launcher.client.system.gpus[0].xids[0])


def test_bits_of_unknown_fields(launcher: Launcher) -> None:
    launch_add(launcher)
    launcher.work.view[0x1000 + 3] |= 0x80
    assert launcher.finish() == 0 and xid(launcher) == 13
    assert "(31,)" in str(launcher.client.system.gpus[0].xids[0])


def test_a_descriptor_that_is_not_mapped(launcher: Launcher) -> None:
    launcher.send(0x77_0000_0000)
    assert launcher.finish() == 0 and xid(launcher) == 31


def test_unknown_code(launcher: Launcher) -> None:
    launch_add(launcher)
    launcher.work.view[0x10000] ^= 1
    assert launcher.finish() == 0 and xid(launcher) == 13


def test_code_without_slack_behind_it(launcher: Launcher) -> None:
    launch_add(launcher)
    client, at = launcher.client, launcher.work.address + 0x11000
    client.uvm_call(66, bytearray(struct.pack("<QQ16sI4x", at, 4096, launcher.gpu.uuid, 0)), 0x20)
    assert launcher.finish() == 0 and xid(launcher) == 31


@pytest.mark.parametrize("window", [0x10_0000_0000, 0x4_0000_1000, 0x4_8000_0000])
def test_a_shared_window_that_is_in_the_way(window: int) -> None:
    launcher = opened()
    launcher.shared_window = window
    launcher.set_up()
    launch_add(launcher)
    assert launcher.finish() == 0 and xid(launcher) == 13
    launcher.client.close()


def test_a_store_to_nowhere_is_reported_with_its_address(launcher: Launcher) -> None:
    client = launcher.client
    data = launcher.work.address + 0x100000
    parameters = struct.pack("<QQI", 0x77_0000_0000, data, 5)
    launcher.launch(CODE, (1, 1, 1), (32, 1, 1), parameters)
    assert launcher.finish() == 0 and xid(launcher) == 31
    engine = next(
        n.handle for n in client.system.rm.clients[client.root].nodes.values() if n.cls == 0xCBC0
    )
    block = bytearray(struct.pack("<III52x", 0, client.root, engine))
    debugger = client.alloc(launcher.gpu.device, 0, 0x83DE, block)
    report = client.control(debugger, 0x83DE0328, bytearray(72))
    assert struct.unpack_from("<QII", report) == (0x77_0000_0000, 2, 1)
    assert report[0x40] == 1


def test_an_odd_address_is_an_exception_of_the_sm(launcher: Launcher) -> None:
    data = launcher.work.address + 0x100000
    parameters = struct.pack("<QQI", data + 0x1002, data, 5)
    launcher.launch(CODE, (1, 1, 1), (32, 1, 1), parameters)
    assert launcher.finish() == 0 and xid(launcher) == 13


def test_methods_that_are_refused() -> None:
    for words in ([0x2001_2FFF, 0], [0x2001_20B0, 7], [0x2001_2062, 1 << 26]):
        launcher = opened()
        launcher.queue.words += words
        assert launcher.finish() == 0 and xid(launcher) == 69
        launcher.client.close()


# what it lets pass


def test_block_and_grid_words_that_are_missing(launcher: Launcher) -> None:
    launch_add(launcher)
    launcher.work.view[0x40000:0x40018] = bytes(24)
    assert launcher.finish() == 1
    assert len(launcher.client.system.complaints) == 2


def test_stack_pointers_and_windows_that_are_missing(launcher: Launcher) -> None:
    launcher.set_up(per_thread=0x240)
    launch_add(launcher, local_high=0x240)
    launcher.work.view[0x40020:0x40030] = bytes(16)
    assert launcher.finish() == 1
    assert "stack pointer" in "".join(launcher.client.system.complaints)
    assert "at 0x20" in "".join(launcher.client.system.complaints)


def test_old_code_runs_until_the_cache_is_invalidated(launcher: Launcher) -> None:
    system, other = launcher.client.system, CODE[::-1]
    system.register_code(
        other, ADD.replace("add.s32 %r5, %r5, %r1", "sub.s32 %r5, %r5, %r1"), "add"
    )
    launch_add(launcher)
    launcher.finish()
    launch_add(launcher)
    launcher.load(other)
    launcher.finish()
    assert result(launcher)[7] == 12 and "still cached" in system.complaints.pop()
    launcher.client.push(launcher.queue, 1, 0x1698, 1)
    launch_add(launcher)
    launcher.load(other)
    launcher.finish()
    assert result(launcher)[7] == 2 and not system.complaints


def test_old_constants_are_seen_until_the_bank_is_invalidated(launcher: Launcher) -> None:
    system = launcher.client.system
    for add, invalidate, wanted in ((5, 1, 12), (6, 0, 12), (6, 1, 13)):
        launch_add(launcher, **{"bank_invalidate[0]": invalidate})
        struct.pack_into("<I", launcher.work.view, 0x40000 + 0x210 + 16, add)
        launcher.launches = 0
        launcher.finish()
        assert result(launcher)[7] == wanted
    assert len(system.complaints) == 1


def test_launches_are_not_ordered_without_waiting(launcher: Launcher) -> None:
    launcher.work.view[0x100000:0x100100] = np.arange(64, dtype=np.int32).tobytes()
    data = launcher.work.address + 0x100000
    for wait, wanted in ((False, 0 + 5), (True, 0 + 10)):
        launcher.work.view[0x101000:0x103000] = bytes(0x2000)
        for step in range(2):
            parameters = struct.pack("<QQI", data + 0x1000 * (step + 1), data + 0x1000 * step, 5)
            launcher.launch(CODE, (1, 1, 1), (64, 1, 1), parameters)
            if wait:
                launcher.client.push(launcher.queue, 1, 0x110, 0)
        launcher.finish()
        assert launcher.work.u32(0x102000) == wanted


def test_a_release_without_waiting_comes_before_the_kernel(launcher: Launcher) -> None:
    launch_add(launcher)
    launcher.client.release(launcher.queue, launcher.work.address + 16, 1, flags=0x0300_0001)
    assert launcher.finish() == 1
    assert launcher.work.u64(24) < launcher.work.u64(8)


# other ways to launch, upload and release


def test_descriptors_release_semaphores_and_launch_the_next(launcher: Launcher) -> None:
    program, data = launcher.load(CODE), launcher.work.address + 0x100000
    launcher.work.view[0x100000:0x100100] = np.arange(64, dtype=np.int32).tobytes()
    slot = launcher.work.address + 32
    qmds = []
    for step in range(2):
        parameters = struct.pack("<QQI", data + 0x1000 * (step + 1), data + 0x1000 * step, 5)
        bank = launcher.bank((1, 1, 1), (64, 1, 1), parameters)
        changes = {
            "release_enable[0]": step,
            "release_wide[0]": step,
            "release_low[0]": (slot & 0xFFFF_FFFF) * step,
            "release_high[0]": (slot >> 32) * step,
            "payload_low[0]": 9 * step,
            "payload_high[0]": step,
            "dependent_enable[0]": 1 - step,
            "dependent_action[0]": 1 - step,
            "dependent_pointer[0]": (1 - step) * ((launcher.work.address + 0x1200) >> 8),
        }
        qmds.append(launcher.qmd(program, (1, 1, 1), (64, 1, 1), bank, **changes))
    launcher.send(qmds[0])
    assert launcher.finish() == 1
    assert launcher.work.u32(0x102000) == 10
    assert launcher.work.u64(32) == 1 << 32 | 9 and launcher.work.u64(40)
    assert not launcher.client.system.complaints


def test_uploads_and_report_semaphores(launcher: Launcher) -> None:
    client, queue, work = launcher.client, launcher.queue, launcher.work
    target = work.address + 0x100004
    client.push(queue, 1, 0x180, 6, 1)
    client.push(queue, 1, 0x188, target >> 32, target & 0xFFFF_FFFF)
    client.push(queue, 1, 0x1B0, 0x41)
    queue.words += [0x6002_206D, 0x64636261, 0x68676665]
    slot = work.address + 16
    client.push(queue, 1, 0x1B00, slot >> 32, slot & 0xFFFF_FFFF, 55, 0)
    assert launcher.finish() == 1
    assert bytes(work.view[0x100000:0x100010]) == b"\0\0\0\0abcdef" + bytes(6)
    assert work.u64(16) == 55 and work.u64(24)


def test_an_endless_kernel_hangs(launcher: Launcher) -> None:
    system = launcher.client.system
    system.kernel_budget = 1000
    endless = "$L: bra $L;\n  ret;"
    system.register_code(CODE, ADD.replace("ret;", endless), "add")
    launch_add(launcher)
    assert launcher.finish() == 0 and xid(launcher) == 0
    assert system.gpus[0].hung()


def test_a_launch_is_decoded_with_its_descriptor(launcher: Launcher) -> None:
    launch_add(launcher)
    launcher.finish()
    segment = launcher.client.system.gpus[0].segments[-1]
    text = decode.lines(segment)
    assert (
        "compute.INVALIDATE_SHADER_CACHES_NO_WFI 0x1011 instruction=1 global_data=1 constant=1"
        in text
    )
    assert "compute.SEND_SIGNALING_PCAS2_B 0x3" in text
    assert {"    grid_x = 0x2", "    block_x = 0x20", "    type = 0x2"} <= set(text)


def test_golden_places_of_fields() -> None:
    def place(version: int, name: str) -> tuple[int, int]:
        high, low = bits_of(version)[name]
        return low, high - low + 1

    assert place(3, "block_x") == (74 * 8, 16)
    grid = [place(3, f"grid_{a}") for a in "xyz"]
    assert grid == [(48 * 8, 32), (52 * 8, 16), (56 * 8, 16)]
    grid = [place(4, f"grid_{a}") for a in "xyz"]
    assert grid == [(128 * 8, 32), (132 * 8, 16), (136 * 8, 16)]
    block = [place(4, f"block_{a}") for a in "xyz"]
    assert block == [(144 * 8, 16), (146 * 8, 16), (148 * 8, 16)]
    assert place(4, "registers") == (1200, 9) and place(4, "barriers") == (1211, 5)
    assert place(4, "program_low") == (152 * 8, 32) and place(4, "program_high") == (156 * 8, 25)
    assert place(4, "bank_low[0]") == (192 * 8, 32) and place(4, "bank_size[0]") == (1587, 13)
    grid = [place(5, f"grid_{a}") for a in "xyz"]
    assert grid == [(156 * 8, 32), (160 * 8, 16), (164 * 8, 16)]
    block = [place(5, f"block_{a}") for a in "xyz"]
    assert block == [(136 * 8, 16), (138 * 8, 16), (140 * 8, 8)]
    assert place(5, "program_low") == (128 * 8, 32) and place(5, "program_high") == (132 * 8, 21)


@pytest.mark.parametrize("version", [3, 4, 5])
def test_fields_do_not_overlap(version: int) -> None:
    seen: set[int] = set()
    for high, low in bits_of(version).values():
        bits = set(range(low, high + 1))
        assert not seen & bits and high < 8 * NBYTES[version]
        seen |= bits


def test_barriers_must_be_given(launcher: Launcher) -> None:
    text = ADD.replace("st.global", "bar.sync 0; st.global")
    launcher.client.system.register_code(CODE, text, "add")
    launch_add(launcher, barriers=0)
    assert launcher.finish() == 0 and xid(launcher) == 13


def test_errors_of_an_sm_are_reported_by_the_debugger(launcher: Launcher) -> None:
    client = launcher.client
    client.system.register_code(CODE, ADD.replace("ret;", "trap;"), "add")
    engine = next(
        n for n in client.system.rm.clients[client.root].nodes.values() if n.cls == 0xCBC0
    )
    block = bytearray(struct.pack("<III52x", 0, client.root, engine.handle))
    debugger = client.alloc(launcher.gpu.device, 0, 0x83DE, block)
    launch_add(launcher)
    assert launcher.finish() == 0 and xid(launcher) == 13
    report = bytearray(4824)
    struct.pack_into("<II", report, 0, launcher.queue.handle, 100)
    client.control(debugger, 0x83DE030C, report)
    warp_error, program = struct.unpack_from("<I24xQ", report, 12)
    assert warp_error and program == launcher.work.address + 0x10000
    client.control(debugger, 0x83DE0310, bytearray(8))
    client.control(debugger, 0x83DE030C, report)
    assert not struct.unpack_from("<I", report, 12)[0]


def test_a_descriptor_that_changes_while_it_is_run(launcher: Launcher) -> None:
    launch_add(launcher)
    qmd = launcher.work.address + 0x1000
    client, queue = launcher.client, launcher.queue
    client.push(queue, 1, 0x180, 4, 1, qmd >> 32, qmd & 0xFFFF_FFFF)
    client.push(queue, 1, 0x1B0, 0x41)
    client.push(queue, 1, 0x1B4, 1)
    launcher.finish()
    assert "changed while it was run" in client.system.complaints[0]


def test_long_chains_of_launches(launcher: Launcher) -> None:
    program, data = launcher.load(CODE), launcher.work.address + 0x100000
    grid, block, count = (1, 1, 1), (32, 1, 1), 100
    for step in range(count):
        parameters = struct.pack("<QQI", data, data, 1)
        bank = launcher.bank(grid, block, parameters)
        following = launcher.work.address + 0x1000 + 512 * (step + 1)
        last = step == count - 1
        changes = {} if last else {"dependent_enable[0]": 1, "dependent_action[0]": 1}
        pointer = 0 if last else following >> 8
        launcher.qmd(program, grid, block, bank, **changes, **{"dependent_pointer[0]": pointer})
    launcher.send(launcher.work.address + 0x1000)
    assert launcher.finish() == 1
    assert launcher.work.u32(0x100000) == count
    assert len(launcher.client.system.gpus[0].launches) == count
