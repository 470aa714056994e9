"""Calls of the resource manager and of the unified-memory driver, each checked.

Every call takes the `step` it is made for, in words: what an error says was being done.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Any, Final

from tg_nv.driver import rm_structs as rm
from tg_nv.driver import status as statuses
from tg_nv.driver.layout import OLDEST, Structs
from tg_nv.driver.rm_structs import Call, Class, Control
from tg_nv.driver.status import DriverError
from tg_nv.driver.uvm_structs import MAPPING_READ_WRITE_ATOMIC, UvmCall
from tgcore.errors import DeviceError
from tgcore.hcq.files import DeviceFile, FileSystem, refusal

CONTROL_FILE: Final = "/dev/nvidiactl"
UVM_FILE: Final = "/dev/nvidia-uvm"


def gpu_file(minor: int) -> str:
    """The device file of a GPU."""
    return f"/dev/nvidia{minor}"


def open_file(files: FileSystem, path: str) -> DeviceFile:
    """Open a device file; DeviceError says why it cannot be."""
    try:
        return files.open(path)
    except OSError as error:
        raise why_not(path, error) from None


def why_not(path: str, error: OSError) -> DeviceError:
    """Says why a device file cannot be opened, and what to do."""
    found = refusal(path, error)
    if not isinstance(error, FileNotFoundError):
        return found
    fixes = {
        CONTROL_FILE: "install the NVIDIA kernel driver, or load it: modprobe nvidia",
        UVM_FILE: "load the driver's part for unified memory: nvidia-modprobe -u -c 0",
    }
    fix = fixes.get(path, "have the files made: nvidia-modprobe -c 0")
    return DeviceError(found.what, "", found.why, fix)


def call(file: DeviceFile, request: int, structs: Structs, block: Any, step: str) -> None:
    """An ioctl that the operating system must accept."""
    try:
        file.ioctl(request, structs.bytes_of(block))
    except OSError as error:
        text = error.strerror or str(error)
        raise DriverError(step, errno=error.errno or 0, text=text) from None


def driver_version(file: DeviceFile) -> str:
    """The version that the kernel driver gives, such as 580.95.05."""
    structs = Structs(OLDEST)  # this structure never changed
    block = structs.new("nv_ioctl_rm_api_version_t", cmd=rm.VERSION_QUERY)
    request = rm.request(Call.CHECK_VERSION_STR, structs.size("nv_ioctl_rm_api_version_t"))
    call(file, request, structs, block, "asking for the driver's version")
    return structs.text(block.versionString)


def layout_of(version: str) -> Structs:
    """The structures of that version; DeviceError if they are not known."""
    major = re.match(r"(\d+)\.", version)
    if major is None or int(major[1]) < OLDEST:
        raise DeviceError(
            "the NVIDIA driver is not supported",
            "",
            f"it has version {version}",
            f"install driver {OLDEST} or newer",
        )
    return Structs(int(major[1]))


class RMClient:
    """A client of the resource manager: the root of all objects of this process."""

    def __init__(self, files: FileSystem) -> None:
        self.files = files
        with ExitStack() as undo:
            self.file = open_file(files, CONTROL_FILE)
            undo.callback(self.file.close)
            self.version = driver_version(self.file)
            self.structs = layout_of(self.version)
            self.handle = 0
            self.handle = self.alloc(Class.ROOT_CLIENT, 0, step="making a client of the driver")
            undo.pop_all()

    def close(self) -> None:
        """Free all objects."""
        try:
            self.free(self.handle, self.handle, "freeing the client of the driver")
        finally:
            self.file.close()

    # *** transport ***

    def _call(self, number: Call, block: Any, type_name: str, step: str, file: Any = None) -> None:
        request = rm.request(number, self.structs.size(type_name))
        call(file or self.file, request, self.structs, block, step)
        if block.status != statuses.OK:
            raise DriverError(step, int(block.status))

    # *** objects ***

    def alloc(
        self, kind: int, parent: int, params: tuple[str, dict[str, Any]] | None = None, *, step: str
    ) -> int:
        """Make an object; returns its handle. See `alloc_filled` for what the driver fills in."""
        return self.alloc_filled(kind, parent, params, step=step)[0]

    def alloc_filled(
        self, kind: int, parent: int, params: tuple[str, dict[str, Any]] | None = None, *, step: str
    ) -> tuple[int, Any]:
        """Make an object; its handle, and the parameters as the driver left them."""
        structs = self.structs
        address, filled, room = 0, None, None
        if params is not None:
            name, fields = params
            room = structs.new_array("uint8_t", rm.OBJECT_PARAMETER_BYTES)
            filled = structs.ffi.cast(f"{name} *", room)
            for field, value in fields.items():
                setattr(filled, field, value)
            address = structs.address(room)
        block = structs.new(
            "NVOS64_PARAMETERS",
            hRoot=self.handle, hObjectParent=parent, hClass=kind, pAllocParms=address,
        )  # fmt: skip
        self._call(Call.RM_ALLOC, block, "NVOS64_PARAMETERS", step)
        # `filled` points into `room`: one copy that stands by itself
        kept = None if filled is None else structs.ffi.new(f"{params[0]} *", filled[0])  # type: ignore[index]
        del room
        return int(block.hObjectNew), kept

    def free(self, parent: int, handle: int, step: str) -> None:
        """Free an object and all below it."""
        block = self.structs.new(
            "NVOS00_PARAMETERS", hRoot=self.handle, hObjectParent=parent, hObjectOld=handle
        )
        self._call(Call.RM_FREE, block, "NVOS00_PARAMETERS", step)

    def control(self, handle: int, command: Control, step: str, **fields: Any) -> Any:
        """Give an object a command; the parameters as the driver left them."""
        structs = self.structs
        name = command.name
        params = structs.new(name, **fields)
        block = structs.new(
            "NVOS54_PARAMETERS",
            hClient=self.handle, hObject=handle, cmd=command,
            params=structs.address(params), paramsSize=structs.size(name),
        )  # fmt: skip
        self._call(Call.RM_CONTROL, block, "NVOS54_PARAMETERS", step)
        return params

    def info(
        self, handle: int, command: Control, indices: Iterable[int], step: str
    ) -> dict[int, int]:
        """What a control that takes a list of (index, value) says of the indices."""
        wanted = list(indices)
        entries = self.structs.new_array("INFO", len(wanted))
        for entry, index in zip(entries, wanted):
            entry.index = index
        self.control(handle, command, step, size=len(wanted), list=self.structs.address(entries))
        return {int(entry.index): int(entry.data) for entry in entries}

    # *** mappings ***

    def map_memory(self, device: int, memory: int, nbytes: int, file: DeviceFile, step: str) -> int:
        """Let the file be mapped as this memory; returns the cookie for `unmap_memory`."""
        block = self.structs.new(
            "NVOS33_PARAMETERS_WITH_FD",
            hClient=self.handle, hDevice=device, hMemory=memory, length=nbytes, fd=file.fileno(),
        )  # fmt: skip
        self._call(Call.RM_MAP_MEMORY, block, "NVOS33_PARAMETERS_WITH_FD", step)
        return int(block.pLinearAddress)

    def unmap_memory(self, device: int, memory: int, cookie: int, step: str) -> None:
        """Undo `map_memory`, after the file's mapping is gone."""
        block = self.structs.new(
            "NVOS34_PARAMETERS",
            hClient=self.handle, hDevice=device, hMemory=memory, pLinearAddress=cookie,
        )  # fmt: skip
        self._call(Call.RM_UNMAP_MEMORY, block, "NVOS34_PARAMETERS", step)

    # *** cards ***

    def cards(self) -> list[Any]:
        """The GPUs that the driver knows, in the order of their device files."""
        structs = self.structs
        array = structs.new_array("nv_ioctl_card_info_t", rm.MOST_CARDS)
        nbytes = rm.MOST_CARDS * structs.size("nv_ioctl_card_info_t")
        step = "asking which GPUs there are"
        call(self.file, rm.request(Call.CARD_INFO, nbytes), structs, array, step)
        found = [structs.ffi.new("nv_ioctl_card_info_t *", card) for card in array if card.valid]
        return sorted(found, key=lambda card: int(card.minor_number))

    def attach(self, file: DeviceFile, step: str) -> None:
        """Tell a GPU's file which control file it belongs to."""
        block = self.structs.new("nv_ioctl_register_fd_t", ctl_fd=self.file.fileno())
        request = rm.request(Call.REGISTER_FD, self.structs.size("nv_ioctl_register_fd_t"))
        call(file, request, self.structs, block, step)


class UvmClient:
    """The unified-memory driver: which memory is where in the address spaces of GPUs."""

    def __init__(self, client: RMClient) -> None:
        self.client, self.structs = client, client.structs
        with ExitStack() as undo:
            self.file = open_file(client.files, UVM_FILE)
            undo.callback(self.file.close)
            self.call(UvmCall.INITIALIZE, "starting unified memory")
            # kept open for ever: it stands for this process's memory
            self.memory_file = open_file(client.files, UVM_FILE)
            undo.callback(self.memory_file.close)
            self._initialize_memory()
            undo.pop_all()

    def _initialize_memory(self) -> None:
        name, step = "UVM_MM_INITIALIZE_PARAMS", "tying unified memory to this process"
        block = self.structs.new(name, uvmFd=self.file.fileno())
        call(self.memory_file, UvmCall.MM_INITIALIZE, self.structs, block, step)
        if block.rmStatus not in (statuses.OK, statuses.NOTHING_TO_DO):
            raise DriverError(step, int(block.rmStatus))

    def close(self) -> None:
        """All ranges and registrations go with the file."""
        self.memory_file.close()
        self.file.close()

    def call(self, number: UvmCall, step: str, **fields: Any) -> None:
        """One call; DriverError if the driver refuses."""
        name = f"UVM_{number.name}_PARAMS"
        block = self.structs.new(name, **fields)
        call(self.file, number, self.structs, block, step)
        if block.rmStatus != statuses.OK:
            raise DriverError(step, int(block.rmStatus))

    # *** address ranges ***

    def create_range(self, base: int, nbytes: int, step: str) -> None:
        """Take a range of addresses, for all GPUs."""
        self.call(UvmCall.CREATE_EXTERNAL_RANGE, step, base=base, length=nbytes)

    def map(self, base: int, nbytes: int, memory: int, gpus: Sequence[bytes], step: str) -> None:
        """Let the GPUs (by UUID) see an object's memory in a range."""
        attributes = [
            {"uuid": {"uuid": uuid}, "mapping": MAPPING_READ_WRITE_ATOMIC} for uuid in gpus
        ]
        self.call(
            UvmCall.MAP_EXTERNAL_ALLOCATION, step,
            base=base, length=nbytes, perGpuAttributes=attributes,
            gpuAttributesCount=len(attributes), rmCtrlFd=self.client.file.fileno(),
            hClient=self.client.handle, hMemory=memory,
        )  # fmt: skip

    def free_range(self, base: int, nbytes: int, step: str) -> None:
        """Give a whole range back."""
        fields = {"length": nbytes} if self.structs.driver < 590 else {}
        self.call(UvmCall.FREE, step, base=base, **fields)
