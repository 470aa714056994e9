"""The fake NVIDIA driver: the build sequence, and what it refuses."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.emulators.nv.client import CONTEXT_WINDOW, Client, Status, address_of, request
from tests.emulators.nv.memory import PageTable
from tests.emulators.nv.objects import VaSpace
from tests.emulators.nv.profiles import GH100, PROFILES
from tests.emulators.nv.system import FakeFile, FakeSystem
from tgcore.hcq import mapping as host

DRIVERS = ["535.288.01", "550.163.01", "570.211.01", "575.64.05", "580.142", "590.48.01"]


@pytest.fixture
def system() -> FakeSystem:
    return FakeSystem([GH100])


@pytest.fixture
def client(system: FakeSystem) -> Iterator[Client]:
    made = Client(system)
    yield made
    made.close()
    assert not system.objects()


@pytest.mark.parametrize("chip", PROFILES)
@pytest.mark.parametrize("driver", DRIVERS)
def test_the_build_sequence_passes_and_semaphores_are_released(chip: str, driver: str) -> None:
    system = FakeSystem([PROFILES[chip]], driver)
    client = Client(system)
    gpu = client.open_gpu()
    slots = client.buffer(gpu, 4096)
    for i, compute in enumerate((False, True)):
        queue = client.queue(gpu, compute=compute)
        client.release(queue, slots.address + 16 * i, 7 + i)
        client.submit(gpu, queue)
        assert slots.u64(16 * i) == 7 + i and slots.u64(16 * i + 8)
        assert queue.ring.u32(queue.USERD + 0x88) == 1
    assert not system.complaints
    client.close()
    assert not system.objects()


# what the driver refuses: the classic mistakes


def refusal(act: Callable[[], object]) -> int:
    """The status that a call is answered with."""
    with pytest.raises(Status) as caught:
        act()
    return caught.value.status


def failure(act: Callable[[], object]) -> int:
    """The errno that a call fails with."""
    with pytest.raises(OSError) as caught:
        act()
    assert caught.value.errno is not None
    return caught.value.errno


def test_control_parameters_of_another_version_are_refused(client: Client) -> None:
    gpu = client.open_gpu()
    assert refusal(lambda: client.control(client.root, 0x214, bytearray(256))) == 0x1F
    client.control(client.root, 0x214, bytearray(384))
    queue = client.queue(gpu, compute=False, schedule=False)
    client.register_channel(gpu, queue.handle)
    assert refusal(lambda: client.control(queue.tsg, 0xA06C0101, bytearray(2))) == 0x1F


def test_a_structure_of_another_version_fails_as_a_call(client: Client) -> None:
    assert failure(lambda: client.ctl.ioctl(request(0x57, 56), bytearray(56))) == errno.EINVAL
    assert failure(lambda: client.ctl.ioctl(request(0x58, 40), bytearray(48))) == errno.EINVAL
    assert failure(lambda: client.ctl.ioctl(request(0x99, 8), bytearray(8))) == errno.ENOTTY
    assert failure(lambda: client.uvm.ioctl(35, bytearray(64))) == errno.EINVAL
    assert client.system.complaints.pop() and client.system.complaints.pop()


def test_unknown_controls_and_classes_are_refused_and_recorded(client: Client) -> None:
    assert refusal(lambda: client.control(client.root, 0x136, bytearray(8))) == 0x56
    assert refusal(lambda: client.alloc(client.root, 0, 0x1234)) == 0x22
    assert "0x136" in client.system.complaints[0] and "0x1234" in client.system.complaints[1]


def test_channel_fields_are_checked(client: Client) -> None:
    gpu = client.open_gpu()
    tsg = client.alloc(
        gpu.device, 0, 0xA06C, bytearray(struct.pack("<IIII64x", 0, 0, gpu.space, 1))
    )
    ring, notifier = client.buffer(gpu, 1 << 20, system=False), client.notifier(gpu)

    def channel(**changes: int) -> int:
        return refusal(lambda: client.channel(gpu, tsg, ring, notifier, **changes))

    assert channel(space=gpu.space) == 0x1F
    assert channel(engine=9) == 0x1F
    assert channel(entries=100) == 0x1F
    assert channel(ring_address=1 << 40) == 0x1F
    assert channel(userd=0x8100) == 0x1F
    assert channel(cls=0xCA6F) == 0x22
    first = client.channel(gpu, tsg, ring, notifier)
    share = client.alloc(tsg, 0, 0x9067, bytearray(struct.pack("<III52x", gpu.space, 1, 0)))
    assert channel(share=share) == 0x1F  # all channels of a group have one, or none
    assert refusal(lambda: client.alloc(gpu.device, 0, 0xC86F, bytearray(1024))) == 0x36
    # the token is known, and the channel scheduled, when the engine object is there
    assert refusal(lambda: client.control(first, 0xC36F0108, bytearray(4))) == 0x40


def test_files_are_of_the_right_kind(client: Client) -> None:
    gpu = client.open_gpu()
    video = client.memory(gpu, 2 << 20, system=False)
    wrong = client.map_memory(gpu, video, 2 << 20, system=True)
    assert failure(lambda: wrong.mmap(2 << 20)) == errno.ENXIO
    host = client.memory(gpu, 4096, system=True)
    wrong = client.map_memory(gpu, host, 4096)
    assert failure(lambda: wrong.mmap(4096)) == errno.ENXIO
    assert failure(lambda: client.ctl.mmap(4096)) == errno.EINVAL
    right = client.map_memory(gpu, host, 4096, system=True)
    assert failure(lambda: right.mmap(8192)) == errno.ENXIO
    assert failure(lambda: right.mmap(4096, 4096)) == errno.EINVAL
    right.mmap(4096).close()
    data = struct.pack(
        "<III4xQQQIII4x", client.root, gpu.device, host, 0, 4096, 0, 0, 0, right.number
    )
    assert refusal(lambda: client.call(client.ctl, 0x4E, bytearray(data), 0x28)) == 0x63
    assert failure(lambda: client.alloc_on(gpu.file)) == errno.EINVAL
    link = struct.pack("<I", client.ctl.number)
    assert failure(lambda: client.call_plain(gpu.file, 201, link)) == errno.EINVAL  # twice
    assert failure(lambda: client.call_plain(client.ctl, 201, link)) == errno.EINVAL


def test_the_usermode_page_belongs_to_the_subdevice(client: Client) -> None:
    gpu = client.open_gpu()
    handle = client.alloc(gpu.subdevice, 0, 0xC661, bytearray([1, 0, *bytes(62)]))
    assert refusal(lambda: client.map_memory(gpu, handle, 0x10000)) in (0x33, 0x36)
    assert gpu.registers is not None
    first = gpu.registers[0x84] << 32 | gpu.registers[0x80]
    second = gpu.registers[0x84] << 32 | gpu.registers[0x80]
    assert second > first and first % 32 == 0


def test_uvm_needs_initialising_and_its_second_file(system: FakeSystem) -> None:
    client = Client(system)
    gpu = client.open_gpu(space_flags=0)
    fresh = system.open("/dev/nvidia-uvm")
    assert refusal(lambda: client.uvm_on(fresh, 73, bytearray(24), 0x10)) == 0x16
    assert refusal(lambda: client.register_gpu(gpu)) == 0x29  # not externally owned
    client.uvm_mm.close()
    gpu.uuid = bytes(16)
    assert refusal(lambda: client.register_gpu(gpu)) == 0x12
    client.close()


def test_without_the_second_file_there_are_no_page_tables(client: Client) -> None:
    client.uvm_mm.close()
    assert refusal(client.open_gpu) == 0x5D


def test_schedule_comes_after_the_registration_with_uvm(client: Client) -> None:
    gpu = client.open_gpu()
    queue = client.queue(gpu, compute=True, schedule=False)
    assert refusal(lambda: client.schedule(queue.tsg)) == 0x40
    client.register_channel(gpu, queue.handle)
    client.schedule(queue.tsg)


def test_a_copy_channel_on_the_graphics_runlist_is_no_copy_channel(client: Client) -> None:
    gpu = client.open_gpu()
    client.copy_engine = lambda gpu: 0  # type: ignore[method-assign]
    assert refusal(lambda: client.queue(gpu, compute=False)) == 0x31


def test_ranges_have_rules(client: Client) -> None:
    gpu = client.open_gpu()
    base, size = 0x30_0000_0000, 0x40_0000
    client.create_range(base, size)
    assert refusal(lambda: client.create_range(base + size - 4096, 4096)) == 0x68
    assert refusal(lambda: client.create_range(0, 4096)) == 0x1E
    assert refusal(lambda: client.create_range(base + 100, 4096)) == 0x1E
    assert refusal(lambda: client.create_range(1 << 57, 4096)) == 0x5B
    memory = client.memory(gpu, 0x20_0000, system=False)
    assert refusal(lambda: client.uvm_map(base + size, 4096, memory, [gpu])) == 0x1E
    assert refusal(lambda: client.uvm_map(base, size, memory, [gpu])) == 0x2E
    assert refusal(lambda: client.uvm_map(base, 4096, 0x77, [gpu])) == 0x33
    assert refusal(lambda: client.uvm_free(base, size // 2)) == 0x1E
    client.uvm_free(base, size)


def test_memory_stays_as_long_as_uvm_maps_it(client: Client) -> None:
    gpu = client.open_gpu()
    before = client.system.objects().get("video memory", 0)
    buffer = client.video(gpu, 4 << 20)
    client.free(gpu.device, buffer.handle)
    assert client.system.objects()["video memory"] == before + (4 << 20)
    client.uvm_free(buffer.address, buffer.nbytes)
    assert client.system.objects().get("video memory", 0) == before


def test_video_memory_and_bar1_end(client: Client) -> None:
    system = FakeSystem([replace(GH100, vram=16 << 20, bar1=4 << 20)])
    small = Client(system)
    gpu = small.open_gpu()
    assert refusal(lambda: small.memory(gpu, 18 << 20, system=False)) == 0x51
    big = small.memory(gpu, 16 << 20, system=False)
    assert refusal(lambda: small.memory(gpu, 2 << 20, system=False)) == 0x51
    assert refusal(lambda: small.map_memory(gpu, big, 16 << 20)) == 0x1A
    small.free(gpu.device, big)
    small.memory(gpu, 2 << 20, system=False)
    small.close()


def test_host_memory_is_registered_through_the_linked_device_file(client: Client) -> None:
    gpu = client.open_gpu()
    pages = host.allocate(8192)

    def register(address: int, *, flags: int = 0x4000_1010, file: FakeFile = gpu.file) -> None:
        data = struct.pack(
            "<IIIII4xQQI4xi4x", client.root, gpu.device, 0x7100, 0x71, flags, address, 8191, 0, -1
        )
        client.call(file, 0x27, bytearray(data), 0x28)

    assert refusal(lambda: register(pages.address + 8)) == 0x1F
    assert refusal(lambda: register(pages.address, flags=0x1010)) == 0x56
    assert refusal(lambda: register(4096)) == 0x1E
    unlinked = client.system.open("/dev/nvidia0")
    assert failure(lambda: register(pages.address, file=unlinked)) == errno.EINVAL
    register(pages.address)
    client.create_range(pages.address, 8192)
    client.uvm_map(pages.address, 8192, 0x7100, [gpu])
    queue = client.queue(gpu, compute=False)
    client.release(queue, pages.address + 4096, 99)
    client.submit(gpu, queue)
    assert int.from_bytes(pages.view[4096:4104], "little") == 99


def test_handles_are_unique_and_freed_with_their_parents(client: Client) -> None:
    gpu = client.open_gpu()
    tsg = bytearray(struct.pack("<IIII64x", 0, 0, gpu.space, 1))
    client.alloc(gpu.device, 0x1234, 0xA06C, tsg)
    assert refusal(lambda: client.alloc(gpu.device, 0x1234, 0xA06C, tsg)) == 0x19
    assert refusal(lambda: client.free(client.root, 0x9999)) == 0x33
    client.free(client.root, gpu.device)
    assert set(client.system.objects()) == {"client", "file"}


def test_closing_the_control_file_frees_the_client(system: FakeSystem) -> None:
    client = Client(system)
    gpu = client.open_gpu()
    client.ctl.close()
    assert "client" not in system.objects()
    assert failure(lambda: client.ctl.ioctl(request(0x2B, 48), bytearray(48))) == errno.EBADF
    gpu.file.close()
    client.close()


def test_after_a_fork_nothing_is_mapped(client: Client) -> None:
    gpu = client.open_gpu()
    memory = client.memory(gpu, 4096, system=True)
    client.system.pid = 1
    assert refusal(lambda: client.map_memory(gpu, memory, 4096, system=True)) == 0x23


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES, errno.EIO])
def test_files_can_be_missing(system: FakeSystem, number: int) -> None:
    system.missing["/dev/nvidiactl"] = number
    assert failure(lambda: system.open("/dev/nvidiactl")) == number
    assert system.read_text("/sys/module/nvidia/version") == "580.142\n"
    assert "580.142" in system.read_text("/proc/driver/nvidia/version")
    assert "GPU-" in system.read_text("/proc/driver/nvidia/gpus/0000:01:00.0/information")
    assert failure(lambda: system.read_text("/proc/driver/nvidia/params")) == errno.ENOENT


def test_every_call_can_be_made_to_fail() -> None:
    passed = FakeSystem([GH100])
    Client(passed).open_gpu()
    for number in range(1, passed.calls + 1):
        system = FakeSystem([GH100])
        system.fail_ioctl(number, 0x51)
        with pytest.raises((Status, OSError)):
            Client(system).open_gpu()
        client_files = list(system.files.values())
        for file in client_files:
            file.close()
        assert not system.objects()
    system = FakeSystem([GH100])
    system.fail_command("MC_GET_ARCH_INFO", 0x65)
    client = Client(system)
    gpu = client.open_gpu()
    assert refusal(lambda: client.control(gpu.subdevice, 0x20801701, bytearray(16))) == 0x65
    client.control(gpu.subdevice, 0x20801701, bytearray(16))
    system.hook = lambda number, name, detail: (
        OSError(errno.EINTR, "x") if name == "RM_ALLOC" else None
    )
    assert failure(lambda: client.alloc(gpu.device, 0, 0x2080)) == errno.EINTR
    client.close()


def test_queries_say_what_the_profile_says(client: Client) -> None:
    gpu = client.open_gpu()
    ask = client.control
    assert ask(gpu.subdevice, 0x20801701, bytearray(16))[:2] == b"\x80\x01"
    assert ask(client.root, 0x205, bytearray(struct.pack("<I28x", 0x100)))[8:12] == bytes(4)
    data = bytearray(4 * 32)
    block = bytearray(struct.pack("<I4xQ", 0, 0))
    count = struct.unpack_from("<I", ask(gpu.device, 0x800201, block))[0]
    ask(gpu.device, 0x800201, bytearray(struct.pack("<I4xQ", count, address_of(data))))
    classes = struct.unpack_from(f"<{count}I", data)
    assert {0xC86F, 0xCBC0, 0xC8B5, 0xC661} <= set(classes)
    pairs = bytearray(struct.pack("<IIII", 0x14, 0, 0x0C, 0))
    ask(gpu.subdevice, 0x20801201, bytearray(struct.pack("<I4xQ16x", 2, address_of(pairs))))
    assert struct.unpack("<IIII", pairs) == (0x14, 4, 0x0C, 0x900)
    gid = ask(gpu.subdevice, 0x2080014A, bytearray(struct.pack("<II260x", 0, 2)))
    assert gid[12:28] == gpu.uuid
    assert b"H200" in ask(gpu.subdevice, 0x20800110, bytearray(132))


@pytest.mark.parametrize("driver", ["550.163.01", "580.142"])
def test_plan_b_maps_in_spaces_of_the_resource_manager(driver: str) -> None:
    system = FakeSystem([GH100], driver)
    client = Client(system)
    gpu = client.open_gpu(space_flags=0)
    memory = client.memory(gpu, 2 << 20, system=False)
    data = bytearray(1024)
    struct.pack_into("<III", data, 0, client.root, 0, 0x84001)
    struct.pack_into("<I", data, 0x18, 0x0A00_0000)
    struct.pack_into("<QQ", data, 0x40, 2 << 20, 0x20_0000)
    struct.pack_into("<I", data, 0x6C, gpu.space)
    carrier = client.alloc(gpu.device, 0, 0x50A0, data)
    late = client.major >= 580
    block = bytearray(64 if late else 56)
    struct.pack_into("<IIIIQQ", block, 0, client.root, gpu.device, carrier, memory, 0, 2 << 20)
    client.call(client.ctl, 0x57, block, 0x38 if late else 0x30)
    address = struct.unpack_from("<Q", block, 0x30 if late else 0x28)[0]
    assert address and address % 0x20_0000 == 0
    struct.pack_into("<I", block, 8, gpu.space)  # the space itself is no carrier
    assert refusal(lambda: client.call(client.ctl, 0x57, block, 0x38 if late else 0x30)) == 0x33
    client.close()


def test_plan_b_is_refused_in_spaces_of_uvm(client: Client) -> None:
    gpu = client.open_gpu()
    data = bytearray(1024)
    struct.pack_into("<I", data, 8, 0x84001)
    struct.pack_into("<Q", data, 0x40, 4096)
    struct.pack_into("<I", data, 0x6C, gpu.space)
    assert refusal(lambda: client.alloc(gpu.device, 0, 0x50A0, data)) == 0x56


GOLDEN = {
    "NVOS64": 0xC030462B,
    "NVOS54": 0xC020462A,
    "NVOS00": 0xC0104629,
    "NVOS33": 0xC038464E,
    "NVOS02": 0xC0384627,
    "NVOS46": 0xC0404657,
    "NVOS47": 0xC0304658,
    "REGISTER_FD": 0xC00446C9,
    "VERSION_STR": 0xC04846D2,
}


def test_golden_request_numbers(system: FakeSystem) -> None:
    numbers = {struct_: nr for nr, (_, struct_, _, _) in system.rm.escapes.items()}
    for name, wanted in GOLDEN.items():
        assert request(numbers[name], system.rm.layouts[name].size) == wanted
    assert request(200, 64 * system.rm.layouts["CARD_INFO"].size) == 0xD20046C8
    sizes = [system.rm.layouts[n].size for n in ("CHANNEL", "MEMORY", "VASPACE")]
    assert sizes == [368, 128, 56]
    older = FakeSystem([GH100], "535.288.01").rm.layouts
    assert request(0x57, older["NVOS46"].size) == 0xC0384657
    assert request(0x58, older["NVOS47"].size) == 0xC0284658


def test_the_short_form_of_alloc_and_the_transfer_call(client: Client) -> None:
    gpu = client.open_gpu()
    data = bytearray(struct.pack("<IIIIQII", client.root, gpu.device, 0x77, 0x3E, 0, 0, 0))
    assert refusal(lambda: client.call(client.ctl, 0x2B, data, 0x1C)) == 0x3D  # no parameters
    free = bytearray(struct.pack("<IIII", client.root, client.root, gpu.device, 0))
    client.call_plain(client.ctl, 211, struct.pack("<IIQ", 0x29, len(free), address_of(free)))
    assert set(client.system.objects()) >= {"client"} and "device" not in client.system.objects()


def test_versions_and_cards(client: Client) -> None:
    def check(command: int, text: bytes) -> bytearray:
        return client.call_plain(client.ctl, 210, struct.pack("<II64s", command, 0, text))

    found = check(0x32, b"")
    assert found[4] == 1 and found[8:].rstrip(b"\0") == b"580.142"
    assert failure(lambda: check(0, b"570.1")) == errno.EINVAL
    cards = client.call_plain(client.ctl, 200, bytes(72 * 64))
    assert cards[0] == 1 and struct.unpack_from("<II", cards, 0x10)[0] == 0x100 and not cards[72]
    two = FakeSystem([GH100, GH100])
    short = two.open("/dev/nvidiactl")
    assert failure(lambda: short.ioctl(request(200, 72), bytearray(72))) == errno.EINVAL


def test_different_addresses_of_cpu_and_gpu_are_a_complaint_on_hopper(client: Client) -> None:
    gpu = client.open_gpu()
    handle = client.memory(gpu, 4096, system=True)
    mapped = client.map_memory(gpu, handle, 4096, system=True).mmap(4096)
    client.create_range(0x30_0000_0000, 4096)
    client.uvm_map(0x30_0000_0000, 4096, handle, [gpu])
    assert "for the CPU" in client.system.complaints[0]
    mapped.close()


def test_boosts_are_seen(client: Client) -> None:
    gpu = client.open_gpu()
    client.control(gpu.subdevice, 0x2080200A, bytearray(struct.pack("<II", 0x12, 0xFFFF_FFFF)))
    assert client.system.gpus[0].boosts == [(0x12, 0xFFFF_FFFF)]


def test_an_orderly_end_leaves_nothing_and_complains_of_nothing(client: Client) -> None:
    gpu = client.open_gpu()
    queue = client.queue(gpu, compute=True)
    client.unregister_channel(gpu, queue.handle)
    client.free(gpu.device, queue.tsg)
    client.free_buffer(gpu, queue.ring)
    assert queue.notifier.mapping is not None
    queue.notifier.mapping.close()
    client.free(gpu.device, queue.notifier.handle)
    client.free(client.root, gpu.device)
    assert not client.system.complaints
    assert set(client.system.objects()) == {"client", "file"}


def test_frees_in_a_wrong_order_are_complaints(client: Client) -> None:
    gpu = client.open_gpu()
    queue = client.queue(gpu, compute=True)
    client.free(gpu.device, queue.ring.handle)
    client.free(gpu.device, queue.tsg)
    text = "\n".join(client.system.complaints)
    for part in ("while a channel uses it", "while the CPU maps it", "while UVM has it"):
        assert part in text


def test_channels_run_out() -> None:
    system = FakeSystem([replace(GH100, max_channels=1)])
    client = Client(system)
    gpu = client.open_gpu()
    client.queue(gpu, compute=True)
    assert refusal(lambda: client.queue(gpu, compute=False)) == 0x4F
    client.close()


def test_windows_of_channels_keep_ranges_away(client: Client) -> None:
    gpu = client.open_gpu()
    client.queue(gpu, compute=True)
    assert refusal(lambda: client.create_range(CONTEXT_WINDOW + 4096, 4096)) == 0x68
    queue = client.queue(gpu, compute=True, schedule=False)
    client.create_range(CONTEXT_WINDOW + (64 << 20), 4096)
    assert refusal(lambda: client.register_channel(gpu, queue.handle)) == 0x68


def test_what_is_unmapped_or_unregistered_is_gone(client: Client) -> None:
    gpu = client.open_gpu()
    buffer = client.buffer(gpu, 4096)

    def unmap() -> bytearray:
        data = struct.pack("<QQ16sI4x", buffer.address, 4096, gpu.uuid, 0)
        return client.uvm_call(66, bytearray(data), 0x20)

    unmap()
    assert not client.system.objects().get("UVM mapping")
    client.uvm_map(buffer.address, 4096, buffer.handle, [gpu])
    client.uvm_call(26, bytearray(gpu.uuid + bytes(4)), 0x10)
    assert refusal(unmap) == 0x26
    client.uvm_call(38, bytearray(gpu.uuid + bytes(4)), 0x10)
    assert refusal(lambda: client.uvm_call(38, bytearray(gpu.uuid + bytes(4)), 0x10)) == 0x26
    client.register_gpu(gpu)
    client.uvm_map(buffer.address, 4096, buffer.handle, [gpu])


def test_a_part_of_a_mapping_can_be_replaced(client: Client) -> None:
    gpu = client.open_gpu()
    first = client.video(gpu, 4 << 20)
    second = client.memory(gpu, 2 << 20, system=False)
    client.uvm_map(first.address + 4096, 4096, second, [gpu])
    pages = [(m.start - first.address, m.end - m.start, m.offset) for m in spaces(client)[0]]
    assert pages == [(0, 4096, 0), (4096, 4096, 0), (8192, (4 << 20) - 8192, 8192)]
    client.free(gpu.device, second)
    client.uvm_free(first.address, first.nbytes)
    client.free(gpu.device, first.handle)
    assert not client.system.objects().get("video memory")


def spaces(client: Client) -> list[PageTable]:
    """The page tables of a client's VA spaces."""
    nodes = client.system.rm.clients[client.root].nodes.values()
    return [node.pages for node in nodes if isinstance(node, VaSpace)]
