"""What the unified-memory driver (/dev/nvidia-uvm) is told: GPU address spaces and mappings.

Names follow uvm_ioctl.h of NVIDIA's open kernel modules.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class UvmCall(IntEnum):
    """Requests of /dev/nvidia-uvm: plain numbers."""

    REGISTER_GPU_VASPACE = 25
    UNREGISTER_GPU_VASPACE = 26
    REGISTER_CHANNEL = 27
    UNREGISTER_CHANNEL = 28
    ENABLE_PEER_ACCESS = 29
    DISABLE_PEER_ACCESS = 30
    MAP_EXTERNAL_ALLOCATION = 33
    FREE = 34
    REGISTER_GPU = 37
    UNREGISTER_GPU = 38
    CREATE_EXTERNAL_RANGE = 73
    MM_INITIALIZE = 75
    INITIALIZE = 0x3000_0001


TEXT: Final = """
typedef struct { uint8_t uuid[16]; } UUID;

typedef struct { uint64_t flags; uint32_t rmStatus; } UVM_INITIALIZE_PARAMS;
typedef struct { int32_t uvmFd; uint32_t rmStatus; } UVM_MM_INITIALIZE_PARAMS;

typedef struct {
    UUID uuid;
    uint8_t numaEnabled;
    int32_t numaNodeId, rmCtrlFd;
    uint32_t hClient, hSmcPartRef, rmStatus;
} UVM_REGISTER_GPU_PARAMS;
typedef struct { UUID uuid; uint32_t rmStatus; } UVM_UNREGISTER_GPU_PARAMS;

typedef struct {
    UUID uuid;
    int32_t rmCtrlFd;
    uint32_t hClient, hVaSpace, rmStatus;
} UVM_REGISTER_GPU_VASPACE_PARAMS;
typedef struct { UUID uuid; uint32_t rmStatus; } UVM_UNREGISTER_GPU_VASPACE_PARAMS;

typedef struct {
    UUID uuid;
    int32_t rmCtrlFd;
    uint32_t hClient, hChannel;
    uint64_t base, length;
    uint32_t rmStatus;
} UVM_REGISTER_CHANNEL_PARAMS;
typedef struct {
    UUID uuid;                  // until 589
    uint32_t hClient, hChannel, rmStatus;
} UVM_UNREGISTER_CHANNEL_PARAMS;

typedef struct { UUID uuidA, uuidB; uint32_t rmStatus; } UVM_ENABLE_PEER_ACCESS_PARAMS;
typedef struct { UUID uuidA, uuidB; uint32_t rmStatus; } UVM_DISABLE_PEER_ACCESS_PARAMS;

typedef struct { uint64_t base, length; uint32_t rmStatus; } UVM_CREATE_EXTERNAL_RANGE_PARAMS;

typedef struct {
    UUID uuid;
    uint32_t mapping, caching, format, elementBits, compression;
} UVM_GPU_ATTRIBUTES;
typedef struct {
    uint64_t base, length, offset;
    UVM_GPU_ATTRIBUTES perGpuAttributes[256];   // since 550
    UVM_GPU_ATTRIBUTES perGpuAttributes[32];    // until 549
    uint64_t gpuAttributesCount;
    int32_t rmCtrlFd;
    uint32_t hClient, hMemory, rmStatus;
} UVM_MAP_EXTERNAL_ALLOCATION_PARAMS;

typedef struct {
    uint64_t base;
    uint64_t length;            // until 589
    uint32_t rmStatus;
} UVM_FREE_PARAMS;
"""

MAPPING_READ_WRITE_ATOMIC: Final = 1
