"""NVIDIA GPUs as tgcore devices, driven by the ioctls of the kernel driver."""
