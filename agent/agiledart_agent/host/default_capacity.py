"""Default capacity of a node: it follows the machine's memory and cores."""

import os
from typing import Final

from agiledart_executor.user_code.bounds import machine_memory

INSTANCE_BYTES: Final = 4 << 20
"""Memory of an instance: of a small application's executor (12 to 16 MB) for each of its four typical instances on a node."""

EXECUTOR_BYTES: Final = 128 << 20
"""Memory of an executor with users' code and some state, when a stage grows by another executor."""

MEMORY_SHARE: Final = 0.5
"""Share of the machine's memory that instances may take together when they are small. Large ones have bounds of their own."""

INSTANCES_PER_CORE: Final = 256
"""Instances for each core. At ten rows a second each takes a thousandth of a server's core, a board's three times as much."""

LEAST, MOST = 8, 4_096


def default_capacity(cores: int, memory_bytes: int | None = None) -> int:
    """Return the instances that a node of this machine takes by default. `cores`: that it counts as its own."""
    memory = machine_memory() if memory_bytes is None else memory_bytes
    shared = memory * min(1.0, cores / (os.cpu_count() or 1))  # a node with some of the cores has as much of the memory
    by_memory = int(shared * MEMORY_SHARE) // INSTANCE_BYTES if memory else MOST
    return max(LEAST, min(by_memory, cores * INSTANCES_PER_CORE, MOST))


def executors_in_memory(cores: int, memory_bytes: int | None = None) -> int:
    """Return the number of executors to which one application may grow here without a configured number."""
    memory = machine_memory() if memory_bytes is None else memory_bytes
    shared = memory * min(1.0, cores / (os.cpu_count() or 1))
    return max(1, int(shared * MEMORY_SHARE) // EXECUTOR_BYTES) if memory else 1
