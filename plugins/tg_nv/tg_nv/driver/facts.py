"""What the driver says of a GPU."""

from __future__ import annotations

from typing import Any, Final

from tg_nv.architecture import WARP, architecture_of, compile_target
from tg_nv.driver import rm_structs as rm
from tg_nv.driver.client import RMClient
from tg_nv.driver.rm_structs import Control, FbInfo, GrInfo
from tg_nv.interface import GPUFacts
from tgcore.errors import DeviceError

_ASKING: Final = "asking for the GPU's "


def class_list(client: RMClient, device: int) -> set[int]:
    """The numbers of all classes that the GPU has."""
    step = _ASKING + "classes"
    count = int(client.control(device, Control.GPU_GET_CLASSLIST, step).numClasses)
    numbers = client.structs.new_array("uint32_t", count)
    client.control(
        device, Control.GPU_GET_CLASSLIST, step,
        numClasses=count, classList=client.structs.address(numbers),
    )  # fmt: skip
    return {int(number) for number in numbers}


def check_compute_mode(client: RMClient, subdevice: int) -> None:
    """DeviceError if programs may not compute on the GPU."""
    step = _ASKING + "compute mode"
    rules = client.control(subdevice, Control.GPU_QUERY_COMPUTE_MODE_RULES, step).rules
    if rules == rm.COMPUTE_MODE_PROHIBITED:
        raise DeviceError(
            "the GPU may not be used for computing",
            "",
            "its compute mode is 'prohibited'",
            "change it: nvidia-smi -c DEFAULT",
        )


def read_facts(client: RMClient, subdevice: int, classes: set[int]) -> GPUFacts:
    """All that the rest of the plugin wants to know."""
    text = client.control(subdevice, Control.GPU_GET_NAME_STRING, _ASKING + "name").text
    name = client.structs.text(text)
    gid = client.control(
        subdevice, Control.GPU_GET_GID_INFO, _ASKING + "UUID", flags=rm.GID_BINARY_SHA1
    )
    architecture = architecture_of(classes, name)
    info = client.info(subdevice, Control.GR_GET_INFO, GrInfo, _ASKING + "multiprocessors")
    memory = client.info(subdevice, Control.FB_GET_INFO, FbInfo, _ASKING + "memory")
    return GPUFacts(
        name=name,
        uuid=bytes(gid.data[0:16]),
        architecture=architecture,
        sm=compile_target(info[GrInfo.SM_VERSION], architecture),
        sm_version=info[GrInfo.SM_VERSION],
        sm_count=_multiprocessors(client, subdevice, info[GrInfo.LITTER_NUM_SM_PER_TPC]),
        warps_per_sm=info[GrInfo.MAX_WARPS_PER_SM] or 2048 // WARP,
        sms_per_tpc=info[GrInfo.LITTER_NUM_SM_PER_TPC],
        tpcs_per_gpc=info[GrInfo.LITTER_NUM_TPC_PER_GPC],
        gpcs=info[GrInfo.LITTER_NUM_GPCS],
        memory_bytes=memory[FbInfo.HEAP_SIZE] << 10,
    )


def _multiprocessors(client: RMClient, subdevice: int, per_tpc: int) -> int:
    step = _ASKING + "multiprocessors"
    gpcs = int(client.control(subdevice, Control.GR_GET_GPC_MASK, step).gpcMask)
    count = 0
    for gpc in (n for n in range(32) if gpcs >> n & 1):
        mask: Any = client.control(subdevice, Control.GR_GET_TPC_MASK, step, gpcId=gpc).tpcMask
        count += int(mask).bit_count()
    return count * per_tpc


def copy_engine(client: RMClient, subdevice: int) -> int:
    """A copy engine that does not share the graphics engine's runlist."""
    caps = client.control(subdevice, Control.CE_GET_ALL_CAPS, _ASKING + "copy engines")
    present = int(caps.present)
    for number in range(len(caps.caps)):
        if present >> number & 1 and not caps.caps[number][0] & rm.GRCE:
            return number
    raise DeviceError(
        "the GPU has no copy engine of its own", "", f"of those present ({present:#x}) all share "
        "the graphics engine's runlist", "see dmesg",
    )  # fmt: skip
