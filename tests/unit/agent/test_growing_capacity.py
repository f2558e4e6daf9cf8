"""Into how many executors a stage may grow by itself: as far as memory goes."""

import os

from agiledart_agent.host.default_capacity import EXECUTOR_BYTES, executors_in_memory


def test_capacity_is_limited_by_half_the_memory_and_by_cores() -> None:
    cores = os.cpu_count() or 1
    assert executors_in_memory(cores, 8 * EXECUTOR_BYTES) == 4
    assert executors_in_memory(cores, EXECUTOR_BYTES // 4) == 1, "one there must be"
    assert executors_in_memory(cores, 0) == 1, "the memory size is unknown"
