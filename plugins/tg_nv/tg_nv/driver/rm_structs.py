"""What the resource manager is told and asks for: transport, objects, controls.

Names follow NVIDIA's open kernel modules (nvos.h, nv-ioctl.h, alloc_channel.h, ctrl*.h).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Call(IntEnum):
    """Numbers of ioctls on /dev/nvidiactl and /dev/nvidiaN."""

    RM_ALLOC_MEMORY = 0x27
    RM_FREE = 0x29
    RM_CONTROL = 0x2A
    RM_ALLOC = 0x2B
    RM_MAP_MEMORY = 0x4E
    RM_UNMAP_MEMORY = 0x4F
    CARD_INFO = 0xC8
    REGISTER_FD = 0xC9
    CHECK_VERSION_STR = 0xD2


def request(call: Call, nbytes: int) -> int:
    """The request of an ioctl: read and write, size, magic 'F', number."""
    return 0xC000_0000 | nbytes << 16 | ord("F") << 8 | call


TRANSPORT: Final = """
typedef struct {
    uint32_t hRoot, hObjectParent, hObjectNew, hClass;
    uint64_t pAllocParms, pRightsRequested;
    uint32_t paramsSize, flags, status;
} NVOS64_PARAMETERS;

typedef struct { uint32_t hRoot, hObjectParent, hObjectOld, status; } NVOS00_PARAMETERS;

typedef struct {
    uint32_t hClient, hObject, cmd, flags;
    uint64_t params;
    uint32_t paramsSize, status;
} NVOS54_PARAMETERS;

typedef struct {
    uint32_t hClient, hDevice, hMemory;
    uint64_t offset, length, pLinearAddress;
    uint32_t status, flags;
    int32_t fd;
} NVOS33_PARAMETERS_WITH_FD;

typedef struct {
    uint32_t hClient, hDevice, hMemory;
    uint64_t pLinearAddress;
    uint32_t status, flags;
} NVOS34_PARAMETERS;

typedef struct {
    uint32_t hRoot, hObjectParent, hObjectNew, hClass, flags;
    uint64_t pMemory, limit;
    uint32_t status, padding;
    int32_t fd;
} NVOS02_PARAMETERS_WITH_FD;

typedef struct {
    uint8_t valid;
    uint32_t domain;
    uint8_t bus, slot, function;
    uint16_t vendor_id, device_id;
    uint32_t gpu_id;
    uint16_t interrupt_line;
    uint64_t reg_address, reg_size, fb_address, fb_size;
    uint32_t minor_number;
    uint8_t dev_name[10];
} nv_ioctl_card_info_t;

typedef struct { uint32_t cmd, reply; char versionString[64]; } nv_ioctl_rm_api_version_t;

typedef struct { int32_t ctl_fd; } nv_ioctl_register_fd_t;
"""

VERSION_QUERY: Final = ord("2")
MOST_CARDS: Final = 64


class Class(IntEnum):
    """Classes of objects that are the same on all chips."""

    MEMORY_SYSTEM = 0x3E
    MEMORY_LOCAL_USER = 0x40
    ROOT_CLIENT = 0x41
    MEMORY_OS_DESCRIPTOR = 0x71
    DEVICE = 0x80
    SUBDEVICE = 0x2080
    GT200_DEBUGGER = 0x83DE
    FERMI_CONTEXT_SHARE = 0x9067
    FERMI_VASPACE = 0x90F1
    KEPLER_CHANNEL_GROUP = 0xA06C


OBJECTS: Final = """
typedef struct {
    uint32_t deviceId, hClientShare, hTargetClient, hTargetDevice, flags;
    uint64_t vaSpaceSize, vaStartInternal, vaLimitInternal;
    uint32_t vaMode;
} NV0080_ALLOC_PARAMETERS;

typedef struct { uint32_t subDeviceId; } NV2080_ALLOC_PARAMETERS;

typedef struct {
    uint32_t index, flags;
    uint64_t vaSize, vaStartInternal, vaLimitInternal;
    uint32_t bigPageSize;
    uint64_t vaBase;
    uint32_t pasid;             // since 580
} NV_VASPACE_ALLOCATION_PARAMETERS;

typedef struct {
    uint32_t hObjectError, hObjectEccError, hVASpace, engineType;
    uint8_t bIsCallingContextVgpuPlugin;
} NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS;

typedef struct { uint32_t hVASpace, flags, subctxId; } NV_CTXSHARE_ALLOCATION_PARAMETERS;

typedef struct {
    uint32_t hObjectError, hObjectBuffer;
    uint64_t gpFifoOffset;
    uint32_t gpFifoEntries, flags, hContextShare, hVASpace;
    uint32_t hUserdMemory[8];
    uint64_t userdOffset[8];
    uint32_t engineType, cid, subDeviceId, hObjectEccError;
    uint8_t internal[152];      /* the driver fills it */
    uint32_t ProcessID, SubProcessID, encryptIv[3], decryptIv[3], hmacNonce[8];
    uint32_t tpcConfigID;       // since 570
    uint32_t padding;           // since 570
} NV_CHANNEL_ALLOC_PARAMS;

typedef struct {
    uint32_t owner, type, flags, width, height, pitch, attr, attr2, format, comprCovg, zcullCovg;
    uint64_t rangeLo, rangeHi, size, alignment, offset, limit, address;
    uint32_t ctagOffset, hVASpace, internalflags, tag;
    uint32_t numaNode;          // since 550
} NV_MEMORY_ALLOCATION_PARAMS;

typedef struct { uint8_t bBar1Mapping, bPriv; } NV_HOPPER_USERMODE_A_PARAMS;
typedef struct { uint32_t version, engineType; } NVB0B5_ALLOCATION_PARAMETERS;
typedef struct { uint32_t obsolete, hAppClient, hClass3dObject; } NV83DE_ALLOC_PARAMETERS;
"""

# the kernel copies in its own size of an object's parameters, whatever it is told
OBJECT_PARAMETER_BYTES: Final = 1024

VASPACE_EXTERNALLY_OWNED: Final = 1 << 3
VASPACE_PAGE_FAULTING: Final = 1 << 6
CTXSHARE_ASYNC: Final = 1
ENGINE_GRAPHICS: Final = 0x01
COPY_BY_ENGINE_TYPE: Final = 1  # of NVB0B5: the next field is an engine type
USERMODE_BYTES: Final = 0x1_0000


def copy_engine_type(number: int) -> int:
    """The NV2080 engine type of a copy engine."""
    return 0x09 + number if number < 10 else 0x34 + number - 10


class MemoryFlags(IntEnum):
    """NVOS32_ALLOC_FLAGS."""

    IGNORE_BANK_PLACEMENT = 0x1
    ALIGNMENT_FORCE = 0x100
    MEMORY_HANDLE_PROVIDED = 0x4000
    MAP_NOT_REQUIRED = 0x8000
    PERSISTENT_VIDMEM = 0x10000


class MemoryAttr(IntEnum):
    """Fields of `attr` of an allocation, in place."""

    PAGE_SIZE_HUGE = 3 << 23
    LOCATION_PCI = 1 << 25
    CONTIGUOUS = 2 << 27
    ALLOW_NONCONTIGUOUS = 3 << 27
    CACHED = 1 << 29
    WRITE_COMBINED = 2 << 29


MEMORY_TYPE_NOTIFIER: Final = 13
ATTR2_HUGE_2MB: Final = 1 << 20
OS_MEMORY_CACHED_NO_MAP: Final = 0x4000_1010  # NVOS02: non-contiguous, PCI, cached, no mapping


class Control(IntEnum):
    """Commands of RM_CONTROL."""

    SYSTEM_GET_P2P_CAPS_V2 = 0x12B
    GPU_GET_ID_INFO_V2 = 0x205
    GPU_GET_CLASSLIST = 0x80_0201
    GPU_GET_NAME_STRING = 0x2080_0110
    GPU_QUERY_COMPUTE_MODE_RULES = 0x2080_0131
    GPU_GET_GID_INFO = 0x2080_014A
    GR_GET_INFO = 0x2080_1201
    GR_GET_CTX_BUFFER_SIZE = 0x2080_1218
    GR_GET_GPC_MASK = 0x2080_122A
    GR_GET_TPC_MASK = 0x2080_122B
    FB_GET_INFO = 0x2080_1301
    MC_GET_ARCH_INFO = 0x2080_1701
    PERF_BOOST = 0x2080_200A
    CE_GET_ALL_CAPS = 0x2080_2A0A
    READ_ALL_SM_ERROR_STATES = 0x83DE_030C
    READ_MMU_FAULT_INFO = 0x83DE_0328
    GPFIFO_SCHEDULE = 0xA06C_0101
    STOP_CHANNEL = 0xA06F_0112
    GPFIFO_GET_WORK_SUBMIT_TOKEN = 0xC36F_0108


CONTROLS: Final = """
typedef struct {
    uint32_t gpuIds[32], gpuCount, p2pCaps, readCEs, writeCEs;
    uint8_t capsStatus[9];
    uint32_t busPeerIds[1024];
    uint32_t busEgmPeerIds[1024];       // since 550
} SYSTEM_GET_P2P_CAPS_V2;

typedef struct {
    uint32_t gpuId, gpuFlags, deviceInstance, subDeviceInstance, sliStatus, boardId, gpuInstance;
    int32_t numaId;
} GPU_GET_ID_INFO_V2;

typedef struct { uint32_t numClasses; uint64_t classList; } GPU_GET_CLASSLIST;

typedef struct {
    uint32_t flags;
    char text[128];                     // until 590
    char text[64];                      // since 595
} GPU_GET_NAME_STRING;

typedef struct { uint32_t rules; } GPU_QUERY_COMPUTE_MODE_RULES;
typedef struct { uint32_t index, flags, length; uint8_t data[256]; } GPU_GET_GID_INFO;

typedef struct { uint32_t index, data; } INFO;
typedef struct { uint32_t flags; uint64_t route; } GR_ROUTE;
typedef struct { uint32_t size; uint64_t list; GR_ROUTE route; } GR_GET_INFO;
typedef struct { uint32_t hChannel; uint64_t totalBufferSize; } GR_GET_CTX_BUFFER_SIZE;
typedef struct { GR_ROUTE route; uint32_t gpcMask; } GR_GET_GPC_MASK;
typedef struct { GR_ROUTE route; uint32_t gpcId, tpcMask; } GR_GET_TPC_MASK;
typedef struct { uint32_t size; uint64_t list; } FB_GET_INFO;

typedef struct {
    uint32_t architecture, implementation, revision;
    uint8_t subRevision;
} MC_GET_ARCH_INFO;

typedef struct { uint32_t flags, duration; } PERF_BOOST;

typedef struct {
    uint8_t caps[64][2];                // since 550
    uint8_t caps[32][2];                // until 549
    uint64_t present;                   // since 550
    uint32_t present;                   // until 549
} CE_GET_ALL_CAPS;

typedef struct { uint64_t address; uint32_t type, access; } MMU_FAULT;
typedef struct { MMU_FAULT faults[4]; uint32_t count; } READ_MMU_FAULT_INFO;

typedef struct {
    uint32_t globalEsr, warpEsr, warpEsrPc, globalMask, warpMask;
    uint64_t esrAddress, warpEsrPc64;
    uint32_t cgaEsr, cgaMask;
} SM_ERROR_STATE;
typedef struct {
    uint32_t hTargetChannel, numSMsToRead;
    SM_ERROR_STATE states[100];
    uint32_t mmuFaultInfo;
    uint8_t mmuFaultValid;
    uint32_t mmuFaultDetails, startingSM;
} READ_ALL_SM_ERROR_STATES;

typedef struct {
    uint8_t bEnable, bSkipSubmit;
    uint8_t bSkipEnable;                // since 575
} GPFIFO_SCHEDULE;

typedef struct { uint8_t bImmediate; } STOP_CHANNEL;
typedef struct { uint32_t token; } GPFIFO_GET_WORK_SUBMIT_TOKEN;
"""

COMPUTE_MODE_PROHIBITED: Final = 2
GID_BINARY_SHA1: Final = 2
PERF_BOOST_TO_MAX: Final = 0x12  # command 2 (maximum), for CUDA
FOREVER: Final = 0xFFFF_FFFF
GRCE: Final = 1  # first byte of a copy engine's capabilities: it shares the graphics runlist
P2P_READS: Final = 1 << 1
P2P_WRITES: Final = 1 << 0


class GrInfo(IntEnum):
    """Indices of GR_GET_INFO."""

    SM_VERSION = 0x0C
    MAX_WARPS_PER_SM = 0x0D
    LITTER_NUM_GPCS = 0x14
    LITTER_NUM_TPC_PER_GPC = 0x17
    LITTER_NUM_SM_PER_TPC = 0x20


class FbInfo(IntEnum):
    """Indices of FB_GET_INFO; values in KiB."""

    HEAP_SIZE = 0x09
    HEAP_FREE = 0x16
