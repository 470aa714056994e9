"""Totals of what ran and of memory in use."""

from __future__ import annotations

from typing import ClassVar


class GlobalCounters:
    """Totals since the last reset; memory in use is never reset."""

    global_ops: ClassVar[int] = 0
    global_mem: ClassVar[int] = 0
    time_sum_s: ClassVar[float] = 0.0
    kernel_count: ClassVar[int] = 0
    mem_used: ClassVar[int] = 0
    peak_mem: ClassVar[int] = 0

    @classmethod
    def reset(cls) -> None:
        """Start counting anew; the peak of memory starts at what is in use."""
        cls.global_ops, cls.global_mem, cls.time_sum_s, cls.kernel_count = 0, 0, 0.0, 0
        cls.peak_mem = cls.mem_used
