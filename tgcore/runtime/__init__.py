"""Running programs: devices, buffers, execution, JIT, caches."""
