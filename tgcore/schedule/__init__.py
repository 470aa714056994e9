"""From a tensor graph to a list of kernels: rangeify, kernel splitting, order, memory."""

from tgcore.schedule.item import Schedule, ScheduleItem
from tgcore.schedule.schedule import clear_schedule_cache, create_schedule, schedule_cache_info

__all__ = [
    "Schedule",
    "ScheduleItem",
    "clear_schedule_cache",
    "create_schedule",
    "schedule_cache_info",
]
