"""The fake GPUs' host unit and copy engine: what works, and what kills a channel."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator

import pytest

from tests.emulators.nv import decode
from tests.emulators.nv.client import Buffer, Client, Gpu, Queue
from tests.emulators.nv.profiles import AD102, GA100, GH100, PROFILES
from tests.emulators.nv.system import FakeSystem


class Bench:
    """A client with a copy queue and a page of semaphores."""

    def __init__(self, system: FakeSystem, index: int = 0, client: Client | None = None) -> None:
        self.system = system
        self.client = client or Client(system)
        self.gpu: Gpu = self.client.open_gpu(index)
        self.queue: Queue = self.client.queue(self.gpu, compute=False)
        self.slots: Buffer = self.client.buffer(self.gpu, 4096)

    @property
    def fake(self) -> object:
        return self.system.gpus[self.gpu.index]

    def push(self, subchannel: int, method: int, *data: int) -> None:
        self.client.push(self.queue, subchannel, method, *data)

    def submit(self, entry: int | None = None) -> None:
        self.client.submit(self.gpu, self.queue, entry=entry)

    def xid(self) -> int:
        """The error that the notifier reports; 0: none."""
        record = struct.unpack_from("<QIHH", self.queue.notifier.view, 0)
        assert record[3] in (0, 0xFFFF)
        return record[1] if record[3] else 0


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench(FakeSystem([GH100]))
    yield made
    made.client.close()
    assert not made.system.objects()


@pytest.mark.parametrize("chip", PROFILES)
def test_copies_fills_and_signals(chip: str) -> None:
    bench = Bench(FakeSystem([PROFILES[chip]]))
    client, queue = bench.client, bench.queue
    a, b = client.buffer(bench.gpu, 1 << 20), client.buffer(bench.gpu, 1 << 20)
    video = client.video(bench.gpu, 1 << 20)
    a.view[: 1 << 20] = bytes(range(256)) * 4096
    client.copy(queue, a.address, video.address, 1 << 20)
    client.copy(queue, video.address + 5, b.address + 3, 1000)
    bench.push(4, 0x240, bench.slots.address >> 32, bench.slots.address & 0xFFFF_FFFF, 77)
    bench.push(4, 0x300, 0x14)
    bench.submit()
    assert bytes(b.view[3:1003]) == bytes(a.view[5:1005]) and not any(b.view[1003:2000])
    assert bench.slots.u32() == 77 and bench.slots.u64(8) > 0
    fill(bench, b.address + 16, 0xDEAD_BEEF, 4)
    bench.submit()
    assert bytes(b.view[16:36]) == struct.pack("<4I", *[0xDEAD_BEEF] * 4) + b'"#$%'
    assert bench.xid() == 0 and not bench.system.complaints
    client.close()


def fill(bench: Bench, address: int, pattern: int, words: int) -> None:
    bench.push(4, 0x408, address >> 32, address & 0xFFFF_FFFF)
    bench.push(4, 0x418, words)
    bench.push(4, 0x700, pattern)
    bench.push(4, 0x708, 0x0003_0004)
    bench.push(4, 0x300, 0x582)


def test_lines_are_copied_with_pitches(bench: Bench) -> None:
    a = bench.client.buffer(bench.gpu, 4096)
    a.view[:64] = bytes(range(64))
    bench.push(
        4,
        0x400,
        a.address >> 32,
        a.address & 0xFFFF_FFFF,
        a.address >> 32,
        a.address + 1024 & 0xFFFF_FFFF,
    )
    bench.push(4, 0x410, 16, 8, 4, 3)
    bench.push(4, 0x300, 0x382)
    bench.submit()
    wanted = bytes([0, 1, 2, 3, 0, 0, 0, 0, 16, 17, 18, 19, 0, 0, 0, 0, 32, 33, 34, 35])
    assert bytes(a.view[1024:1044]) == wanted


def test_an_acquire_parks_the_channel_until_somebody_releases(bench: Bench) -> None:
    client, slots = bench.client, bench.slots
    other = client.queue(bench.gpu, compute=True)
    client.acquire(bench.queue, slots.address, 5)
    client.release(bench.queue, slots.address + 16, 1)
    bench.submit()
    assert slots.u64(16) == 0 and len(bench.system.parked()) == 1
    assert bench.queue.ring.u32(Queue.USERD + 0x88) == 1  # fetched
    client.release(other, slots.address, 4)
    client.submit(bench.gpu, other)
    assert slots.u64(16) == 0
    client.release(other, slots.address, 6)
    client.submit(bench.gpu, other)
    assert slots.u64(16) == 1 and not bench.system.parked()
    assert slots.u64(8) < slots.u64(24)


def test_a_store_of_the_cpu_wakes_a_parked_channel(bench: Bench) -> None:
    bench.client.acquire(bench.queue, bench.slots.address, 1)
    bench.client.release(bench.queue, bench.slots.address + 16, 1)
    bench.submit()
    bench.slots.view[0] = 1
    end = time.monotonic() + 10
    while not bench.slots.u64(16) and time.monotonic() < end:
        time.sleep(0.001)
    assert bench.slots.u64(16) == 1


def test_acquires_compare_as_their_operation_says(bench: Bench) -> None:
    cases = [(0, 5, 5, True), (0, 6, 5, False), (2, 6, 5, True), (3, 0, 1 << 63, False)]
    cases += [(3, 1, (1 << 64) - 1, True), (2, 1, (1 << 64) - 1, False), (4, 6, 3, True)]
    cases += [(4, 4, 3, False), (5, 1, 2, True), (5, (1 << 64) - 1, 0, False)]
    for i, (operation, found, wanted, passes) in enumerate(cases):
        at = 64 * i
        struct.pack_into("<QQQ", bench.slots.view, at, found, 0, 0)
        address = bench.slots.address + at
        bench.client.acquire(bench.queue, address, wanted, flags=1 << 24 | operation)
        bench.client.release(bench.queue, address + 16, 1)
        bench.submit()
        assert bool(bench.slots.u64(at + 16)) == passes, cases[i]
        value = wanted if operation in (0, 2, 3) else 1 if operation == 4 else 0
        struct.pack_into("<Q", bench.slots.view, at, value)  # let it pass
        bench.system.poll()
        assert bench.slots.u64(at + 16) == 1


def test_the_ring_wraps(bench: Bench) -> None:
    for value in range(1, 200):
        bench.client.release(bench.queue, bench.slots.address, value)
        bench.submit()
        assert bench.slots.u64() == value
    assert bench.xid() == 0 and not bench.system.complaints


# what kills a channel


def test_an_index_that_does_not_wrap(bench: Bench) -> None:
    struct.pack_into("<I", bench.queue.ring.view, Queue.USERD + 0x8C, 64)
    assert bench.gpu.registers is not None
    bench.gpu.registers[0x90] = bench.queue.token
    assert bench.xid() == 32


def test_a_ring_entry_with_a_shifted_address(bench: Bench) -> None:
    at = bench.queue.ring.address + Queue.PUSH
    bench.submit(entry=at >> 2 | len(bench.queue.words) << 42)
    assert bench.xid() == 31
    fault = bench.client.control(bench.queue.handle, 0x906F0106, bytearray(104))
    assert struct.unpack_from("<III", fault) == (at >> 34, at >> 2 & 0xFFFF_FFFF, 2)


def test_a_length_in_bytes(bench: Bench) -> None:
    at = bench.queue.ring.address + Queue.PUSH
    bench.submit(entry=at | 4 * len(bench.queue.words) << 42)
    assert bench.xid() == 32


def test_a_token_that_is_of_no_channel(bench: Bench) -> None:
    bench.client.release(bench.queue, bench.slots.address, 1)
    bench.queue.token ^= 1 << 16
    bench.submit()
    assert bench.slots.u64() == 0 and bench.xid() == 0
    assert "of no channel" in bench.system.complaints[0]


def test_a_channel_that_is_not_scheduled(bench: Bench) -> None:
    bench.client.schedule(bench.queue.tsg, enable=0)
    bench.submit()
    assert "not scheduled" in bench.system.complaints[0]


@pytest.mark.parametrize(
    "words",
    [
        [0x2001_8100, 0],  # no object on the subchannel
        [0x0001_2000, 0],  # a header of an unknown kind
        [0x2001_8000, 0xC6C0],  # an object that the channel has not
        [0x2001_2000, 0xC8B5],  # copies on the compute subchannel
        [0x2001_0010, 0],  # a host method that is none
        [0x2001_0018, 1 << 31],  # bits that have no meaning
        [0x2001_0017, 8, 0x2004_0018],  # fewer words than the header says
    ],
)
def test_malformed_pushbuffers(bench: Bench, words: list[int]) -> None:
    bench.queue.words = words
    bench.submit()
    assert bench.xid() == 32
    bench.submit()
    assert any("dead" in line for line in bench.system.complaints)


def test_semaphores_that_are_not_aligned(bench: Bench) -> None:
    bench.client.release(bench.queue, bench.slots.address + 8, 1)
    bench.submit()
    assert bench.xid() == 32


def test_all_channels_of_the_group_die(bench: Bench) -> None:
    client, gpu = bench.client, bench.gpu
    queue = client.queue(gpu, compute=True)
    notifier = client.notifier(gpu)
    share = client.alloc(queue.tsg, 0, 0x9067, bytearray(struct.pack("<III52x", gpu.space, 1, 0)))
    client.channel(gpu, queue.tsg, queue.ring, notifier, share=share, userd=0x8400)
    client.release(queue, 0x77_0000_0000, 1)
    client.submit(gpu, queue)
    for each in (queue.notifier, notifier):
        assert struct.unpack_from("<IHH", each.view, 8) == (31, 1, 0xFFFF)
    assert bench.xid() == 0  # another group


def test_mappings_for_reading_only(bench: Bench) -> None:
    client = bench.client
    client.uvm_map(bench.slots.address, 4096, bench.slots.handle, [bench.gpu], kind=3)
    client.release(bench.queue, bench.slots.address, 1)
    bench.submit()
    assert bench.xid() == 31
    fault = client.control(bench.queue.handle, 0x906F0106, bytearray(104))
    assert struct.unpack_from("<I", fault, 8)[0] == 6


@pytest.mark.parametrize(
    ("method", "data"),
    [(0x300, 0x1002 | 0x180), (0x300, 0x2 | 1 << 28), (0x260, 0), (0x300, 0x182), (0x708, 1 << 31)],
)
def test_copy_methods_that_are_refused(bench: Bench, method: int, data: int) -> None:
    bench.push(4, method, data)
    bench.submit()
    assert bench.xid() == 41  # copy engine 2


def test_the_a100_has_no_64_bit_copy_semaphores() -> None:
    for method, data in ((0x24C, 1), (0x300, 0x0800_000C)):
        bench = Bench(FakeSystem([GA100]))
        bench.push(4, method, data)
        bench.submit()
        assert bench.xid() == 72  # copy engine 5, the first that is not on the graphics runlist
        bench.client.close()


def test_pipelined_copies_are_not_ordered(bench: Bench) -> None:
    a = bench.client.buffer(bench.gpu, 4096)
    a.view[:8] = b"abcdefgh"
    for start in (0, 8):
        offsets = (a.address + start, a.address + start + 8)
        bench.push(4, 0x400, offsets[0] >> 32, offsets[0] & 0xFFFF_FFFF)
        bench.push(4, 0x408, offsets[1] >> 32, offsets[1] & 0xFFFF_FFFF)
        bench.push(4, 0x418, 8)
        bench.push(4, 0x300, 0x181)
    bench.submit()
    assert bytes(a.view[8:24]) == b"abcdefgh" + bytes(8)


# several GPUs


def test_gpus_signal_and_reach_each_other() -> None:
    system = FakeSystem([GH100, AD102])
    client = Client(system)
    first = Bench(system, 0, client)
    second = Bench(system, 1, client)
    both = [first.gpu, second.gpu]
    slots = client.buffer(first.gpu, 4096, gpus=both)
    video = client.video(second.gpu, 1 << 20)
    text = client.buffer(first.gpu, 4096)
    text.view[:5] = b"hello"
    with pytest.raises(Exception, match="0x26"):
        client.uvm_map(video.address, video.nbytes, video.handle, [first.gpu])
    client.uvm_call(29, bytearray(first.gpu.uuid + second.gpu.uuid + bytes(4)), 0x20)
    client.uvm_map(video.address, video.nbytes, video.handle, [first.gpu])
    client.acquire(second.queue, slots.address, 1)
    back = client.buffer(second.gpu, 4096)
    client.copy(second.queue, video.address, back.address, 5)
    client.release(second.queue, slots.address + 16, 1)
    second.submit()
    client.copy(first.queue, text.address, video.address, 5)
    client.release(first.queue, slots.address, 1)
    first.submit()
    assert bytes(back.view[:5]) == b"hello" and slots.u64(16) == 1
    assert not system.complaints
    client.close()


def test_peers_that_do_not_reach_each_other() -> None:
    system = FakeSystem([GH100, AD102], peers=False)
    client = Client(system)
    gpus = [client.open_gpu(i) for i in range(2)]
    with pytest.raises(Exception, match="0x56"):
        client.uvm_call(29, bytearray(gpus[0].uuid + gpus[1].uuid + bytes(4)), 0x20)
    caps = bytearray(8348)
    struct.pack_into("<II", caps, 0, 0x100, 0x200)
    struct.pack_into("<I", caps, 0x80, 2)
    client.control(client.root, 0x12B, caps)
    assert struct.unpack_from("<I", caps, 0x84)[0] & 3 == 0
    client.close()


# streams as text


def test_a_stream_is_decoded_to_named_methods(bench: Bench) -> None:
    bench.client.copy(bench.queue, 0x10_0000_0000 + 64, 0x10_0020_0000, 256)
    bench.queue.words = [0x2001_8000, 0xC8B5, *bench.queue.words[2:]]
    found = list(decode.words(bench.queue.words))
    assert found == [
        "host.SET_OBJECT 0xc8b5",
        "copy.OFFSET_IN_UPPER 0x10",
        "copy.OFFSET_IN_LOWER 0x40",
        "copy.OFFSET_OUT_UPPER 0x10",
        "copy.OFFSET_OUT_LOWER 0x200000",
        "copy.LINE_LENGTH_IN 0x100",
        "copy.LAUNCH_DMA 0x182 transfer=non_pipelined semaphore=none src_pitch=1 dst_pitch=1"
        " payload=32",
    ]
    release = [0x2005_0017, 0x1000, 0x10, 1, 0, 0x0310_0001]
    assert list(decode.words(release))[-1] == (
        "host.SEM_EXECUTE 0x3100001 operation=release wfi=1 payload=64 timestamp=1"
    )
    assert decode.entry_line(0x0000_2810_0020_0000) == "segment address=0x1000200000 words=10"
    assert "level=1" in decode.entry_line(0x0000_2A10_0020_0000)
    assert decode.entry_line(1).startswith("MALFORMED")
