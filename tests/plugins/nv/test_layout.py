"""Structures of the driver: sizes and offsets of all versions, as they were measured in headers."""

from __future__ import annotations

import pytest
from tg_nv.driver.layout import Structs, text_for
from tg_nv.driver.rm_structs import Call, request

DRIVERS = (535, 550, 570, 575, 580, 590, 595)

# name: size, then fields and their offsets; of driver 580
STRUCTURES: dict[str, tuple[int, dict[str, int]]] = {
    "NVOS64_PARAMETERS": (
        48,
        {"hRoot": 0, "hObjectParent": 4, "hObjectNew": 8, "hClass": 0xC, "pAllocParms": 0x10,
         "pRightsRequested": 0x18, "paramsSize": 0x20, "flags": 0x24, "status": 0x28},
    ),
    "NVOS00_PARAMETERS": (16, {"hRoot": 0, "hObjectParent": 4, "hObjectOld": 8, "status": 0xC}),
    "NVOS54_PARAMETERS": (
        32,
        {"hClient": 0, "hObject": 4, "cmd": 8, "flags": 0xC, "params": 0x10, "paramsSize": 0x18,
         "status": 0x1C},
    ),
    "NVOS33_PARAMETERS_WITH_FD": (
        56,
        {"hClient": 0, "hDevice": 4, "hMemory": 8, "offset": 0x10, "length": 0x18,
         "pLinearAddress": 0x20, "status": 0x28, "flags": 0x2C, "fd": 0x30},
    ),
    "NVOS34_PARAMETERS": (
        32,
        {"hClient": 0, "hDevice": 4, "hMemory": 8, "pLinearAddress": 0x10, "status": 0x18},
    ),
    "NVOS02_PARAMETERS_WITH_FD": (
        56,
        {"hRoot": 0, "hObjectParent": 4, "hObjectNew": 8, "hClass": 0xC, "flags": 0x10,
         "pMemory": 0x18, "limit": 0x20, "status": 0x28, "fd": 0x30},
    ),
    "nv_ioctl_card_info_t": (
        72,
        {"valid": 0, "domain": 4, "bus": 8, "slot": 9, "function": 0xA, "vendor_id": 0xC,
         "device_id": 0xE, "gpu_id": 0x10, "reg_address": 0x18, "fb_address": 0x28,
         "minor_number": 0x38, "dev_name": 0x3C},
    ),
    "nv_ioctl_rm_api_version_t": (72, {"cmd": 0, "reply": 4, "versionString": 8}),
    "nv_ioctl_register_fd_t": (4, {"ctl_fd": 0}),
    "NV0080_ALLOC_PARAMETERS": (56, {"deviceId": 0, "hClientShare": 4, "vaMode": 0x30}),
    "NV2080_ALLOC_PARAMETERS": (4, {"subDeviceId": 0}),
    "NV_VASPACE_ALLOCATION_PARAMETERS": (
        56,
        {"index": 0, "flags": 4, "vaSize": 8, "bigPageSize": 0x20, "vaBase": 0x28, "pasid": 0x30},
    ),
    "NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS": (
        20,
        {"hObjectError": 0, "hObjectEccError": 4, "hVASpace": 8, "engineType": 0xC},
    ),
    "NV_CTXSHARE_ALLOCATION_PARAMETERS": (12, {"hVASpace": 0, "flags": 4, "subctxId": 8}),
    "NV_CHANNEL_ALLOC_PARAMS": (
        368,
        {"hObjectError": 0, "hObjectBuffer": 4, "gpFifoOffset": 8, "gpFifoEntries": 0x10,
         "flags": 0x14, "hContextShare": 0x18, "hVASpace": 0x1C, "hUserdMemory": 0x20,
         "userdOffset": 0x40, "engineType": 0x80, "cid": 0x84, "subDeviceId": 0x88,
         "hObjectEccError": 0x8C, "internal": 0x90, "ProcessID": 0x128, "SubProcessID": 0x12C,
         "encryptIv": 0x130, "decryptIv": 0x13C, "hmacNonce": 0x148, "tpcConfigID": 0x168},
    ),
    "NV_MEMORY_ALLOCATION_PARAMS": (
        128,
        {"owner": 0, "type": 4, "flags": 8, "attr": 0x18, "attr2": 0x1C, "rangeLo": 0x30,
         "size": 0x40, "alignment": 0x48, "offset": 0x50, "limit": 0x58, "address": 0x60,
         "ctagOffset": 0x68, "hVASpace": 0x6C, "tag": 0x74, "numaNode": 0x78},
    ),
    "NV_HOPPER_USERMODE_A_PARAMS": (2, {"bBar1Mapping": 0, "bPriv": 1}),
    "NVB0B5_ALLOCATION_PARAMETERS": (8, {"version": 0, "engineType": 4}),
    "NV83DE_ALLOC_PARAMETERS": (12, {"hAppClient": 4, "hClass3dObject": 8}),
    "SYSTEM_GET_P2P_CAPS_V2": (
        8348,
        {"gpuIds": 0, "gpuCount": 0x80, "p2pCaps": 0x84, "capsStatus": 0x90, "busPeerIds": 0x9C,
         "busEgmPeerIds": 0x109C},
    ),
    "GPU_GET_ID_INFO_V2": (32, {"gpuId": 0, "deviceInstance": 8, "numaId": 0x1C}),
    "GPU_GET_CLASSLIST": (16, {"numClasses": 0, "classList": 8}),
    "GPU_GET_NAME_STRING": (132, {"flags": 0, "text": 4}),
    "GPU_QUERY_COMPUTE_MODE_RULES": (4, {"rules": 0}),
    "GPU_GET_GID_INFO": (268, {"index": 0, "flags": 4, "length": 8, "data": 0xC}),
    "GR_GET_INFO": (32, {"size": 0, "list": 8, "route": 0x10}),
    "GR_GET_GPC_MASK": (24, {"route": 0, "gpcMask": 0x10}),
    "GR_GET_TPC_MASK": (24, {"route": 0, "gpcId": 0x10, "tpcMask": 0x14}),
    "GR_GET_CTX_BUFFER_SIZE": (16, {"hChannel": 0, "totalBufferSize": 8}),
    "FB_GET_INFO": (16, {"size": 0, "list": 8}),
    "MC_GET_ARCH_INFO": (16, {"architecture": 0, "implementation": 4, "subRevision": 0xC}),
    "PERF_BOOST": (8, {"flags": 0, "duration": 4}),
    "CE_GET_ALL_CAPS": (136, {"caps": 0, "present": 0x80}),
    "READ_MMU_FAULT_INFO": (72, {"faults": 0, "count": 0x40}),
    "MMU_FAULT": (16, {"address": 0, "type": 8, "access": 0xC}),
    "SM_ERROR_STATE": (
        48,
        {"globalEsr": 0, "warpEsr": 4, "warpEsrPc": 8, "esrAddress": 0x18, "warpEsrPc64": 0x20,
         "cgaEsr": 0x28},
    ),
    "READ_ALL_SM_ERROR_STATES": (
        4824,
        {"hTargetChannel": 0, "numSMsToRead": 4, "states": 8, "mmuFaultInfo": 0x12C8,
         "mmuFaultValid": 0x12CC, "mmuFaultDetails": 0x12D0, "startingSM": 0x12D4},
    ),
    "GPFIFO_SCHEDULE": (3, {"bEnable": 0, "bSkipSubmit": 1, "bSkipEnable": 2}),
    "GPFIFO_GET_WORK_SUBMIT_TOKEN": (4, {"token": 0}),
    "STOP_CHANNEL": (1, {"bImmediate": 0}),
    "UVM_INITIALIZE_PARAMS": (16, {"flags": 0, "rmStatus": 8}),
    "UVM_MM_INITIALIZE_PARAMS": (8, {"uvmFd": 0, "rmStatus": 4}),
    "UVM_REGISTER_GPU_PARAMS": (
        40,
        {"uuid": 0, "numaEnabled": 0x10, "numaNodeId": 0x14, "rmCtrlFd": 0x18, "hClient": 0x1C,
         "hSmcPartRef": 0x20, "rmStatus": 0x24},
    ),
    "UVM_UNREGISTER_GPU_PARAMS": (20, {"rmStatus": 0x10}),
    "UVM_REGISTER_GPU_VASPACE_PARAMS": (
        32,
        {"rmCtrlFd": 0x10, "hClient": 0x14, "hVaSpace": 0x18, "rmStatus": 0x1C},
    ),
    "UVM_UNREGISTER_GPU_VASPACE_PARAMS": (20, {"rmStatus": 0x10}),
    "UVM_REGISTER_CHANNEL_PARAMS": (
        56,
        {"rmCtrlFd": 0x10, "hClient": 0x14, "hChannel": 0x18, "base": 0x20, "length": 0x28,
         "rmStatus": 0x30},
    ),
    "UVM_UNREGISTER_CHANNEL_PARAMS": (28, {"hClient": 0x10, "hChannel": 0x14, "rmStatus": 0x18}),
    "UVM_ENABLE_PEER_ACCESS_PARAMS": (36, {"uuidA": 0, "uuidB": 0x10, "rmStatus": 0x20}),
    "UVM_DISABLE_PEER_ACCESS_PARAMS": (36, {"uuidA": 0, "uuidB": 0x10, "rmStatus": 0x20}),
    "UVM_CREATE_EXTERNAL_RANGE_PARAMS": (24, {"base": 0, "length": 8, "rmStatus": 0x10}),
    "UVM_GPU_ATTRIBUTES": (36, {"uuid": 0, "mapping": 0x10, "caching": 0x14}),
    "UVM_MAP_EXTERNAL_ALLOCATION_PARAMS": (
        9264,
        {"base": 0, "length": 8, "offset": 0x10, "perGpuAttributes": 0x18,
         "gpuAttributesCount": 0x2418, "rmCtrlFd": 0x2420, "hClient": 0x2424, "hMemory": 0x2428,
         "rmStatus": 0x242C},
    ),
    "UVM_FREE_PARAMS": (24, {"base": 0, "length": 8, "rmStatus": 0x10}),
}  # fmt: skip

# what is not the same in all drivers: sizes by version
CHANGED: dict[str, tuple[int, ...]] = {
    "NV_VASPACE_ALLOCATION_PARAMETERS": (48, 48, 48, 48, 56, 56, 56),
    "NV_CHANNEL_ALLOC_PARAMS": (360, 360, 368, 368, 368, 368, 368),
    "NV_MEMORY_ALLOCATION_PARAMS": (120, 128, 128, 128, 128, 128, 128),
    "GPFIFO_SCHEDULE": (2, 2, 2, 3, 3, 3, 3),
    "UVM_MAP_EXTERNAL_ALLOCATION_PARAMS": (1200, 9264, 9264, 9264, 9264, 9264, 9264),
    "UVM_FREE_PARAMS": (24, 24, 24, 24, 24, 16, 16),
    "UVM_UNREGISTER_CHANNEL_PARAMS": (28, 28, 28, 28, 28, 12, 12),
    "CE_GET_ALL_CAPS": (68, 136, 136, 136, 136, 136, 136),
    "GPU_GET_NAME_STRING": (132, 132, 132, 132, 132, 132, 68),
    "SYSTEM_GET_P2P_CAPS_V2": (4252, 8348, 8348, 8348, 8348, 8348, 8348),
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_sizes_and_offsets_are_those_of_the_headers(name: str) -> None:
    structs, (size, fields) = Structs(580), STRUCTURES[name]
    assert structs.size(name) == size
    assert {field: structs.offset(name, field) for field in fields} == fields


@pytest.mark.parametrize("driver", DRIVERS)
def test_each_driver_has_its_own_layouts(driver: int) -> None:
    structs, at = Structs(driver), DRIVERS.index(driver)
    expected = {n: CHANGED[n][at] if n in CHANGED else s for n, (s, _) in STRUCTURES.items()}
    assert {name: structs.size(name) for name in STRUCTURES} == expected


def test_every_structure_is_checked() -> None:
    known = set(Structs(580).ffi.list_types()[0])
    assert known - set(STRUCTURES) == {"UUID", "INFO", "GR_ROUTE"}


@pytest.mark.parametrize(
    ("call", "size", "value"),
    [
        (Call.RM_ALLOC, 48, 0xC030462B),
        (Call.RM_CONTROL, 32, 0xC020462A),
        (Call.RM_FREE, 16, 0xC0104629),
        (Call.RM_MAP_MEMORY, 56, 0xC038464E),
        (Call.RM_UNMAP_MEMORY, 32, 0xC020464F),
        (Call.RM_ALLOC_MEMORY, 56, 0xC0384627),
        (Call.REGISTER_FD, 4, 0xC00446C9),
        (Call.CHECK_VERSION_STR, 72, 0xC04846D2),
        (Call.CARD_INFO, 4608, 0xD20046C8),
    ],
)
def test_requests_hold_size_and_number(call: Call, size: int, value: int) -> None:
    assert request(call, size) == value


def test_lines_of_other_drivers_are_left_out() -> None:
    text = "int a;\nint b;  // since 580\nint c;  // until 579"
    assert text_for(text, 579).split() == ["int", "a;", "int", "c;", "//", "until", "579"]
    assert "int b;" in text_for(text, 580) and "int c;" not in text_for(text, 580)
