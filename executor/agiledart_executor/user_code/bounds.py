"""Bounds of an executor: the time of one call of user code and the memory of the process, as configured and by the system.

The watchdog measures resident memory, because reserved address space means nothing (Arrow's allocator reserves a gigabyte and uses
none of it). `RLIMIT_DATA` is well above the bound, so that one absurd allocation raises `MemoryError` in the line that made it. The
process also asks the kernel to kill an executor first when the machine runs out of memory.
"""

import contextlib
import os
import resource
from pathlib import Path
from typing import Final

import msgspec

from agiledart_dataflow.user_code.user_limits import UserLimits

WARNING_SECONDS: Final = 5.0
LIMIT_SECONDS: Final = 60.0
MEMORY_SHARE: Final = 0.5
"""Default bound as a share of the machine's memory, or of its control group's."""

RESERVED_BYTES: Final = 2 << 30
"""Address space that libraries may reserve without using it: 1.1 GiB by Arrow, 8 MiB for each thread's stack."""

MB: Final = 1_000_000

_OOM_SCORE: Final = "800"
_GROUP = Path("/sys/fs/cgroup/memory.max")


class Bounds(msgspec.Struct, frozen=True, gc=False):
    """Bounds of one executor.

    Attributes:
        warning_seconds: a longer call of user code is reported in the logs.
        limit_seconds: a longer call of user code ends the executor; 0 for no limit.
        memory_bytes: resident memory; 0 for no bound.
        memory_setting: name of the setting that sets the memory bound.
    """

    warning_seconds: float = WARNING_SECONDS
    limit_seconds: float = LIMIT_SECONDS
    memory_bytes: int = 0
    memory_setting: str = "executor_memory_mb"

    def with_users(self, limits: UserLimits) -> "Bounds":
        """Return bounds that include the application's own: its times replace these, its memory bound only when lower."""
        memory, setting = self.memory_bytes, self.memory_setting
        if limits.memory_bytes is not None and (not memory or limits.memory_bytes < memory):
            memory, setting = limits.memory_bytes, "limit(memory_mb=) of its topology"
        return Bounds(
            self.warning_seconds if limits.stuck_warning is None else limits.stuck_warning,
            self.limit_seconds if limits.stuck_limit is None else limits.stuck_limit,
            memory,
            setting,
        )


def machine_memory() -> int:
    """Return the bytes of memory of this machine or control group; 0 when the system does not show them."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 0
    with contextlib.suppress(OSError, ValueError):
        total = min(total, int(_GROUP.read_text()))
    return max(0, total)


def default_memory() -> int:
    """Return an executor's default memory bound in bytes."""
    return int(machine_memory() * MEMORY_SHARE)


def bind_process(bounds: Bounds) -> None:
    """Make the system enforce the bounds, as far as it can. Never fails, because the watchdog enforces them, too."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
    if bounds.memory_bytes:
        with contextlib.suppress(OSError, ValueError):
            _, hard = resource.getrlimit(resource.RLIMIT_DATA)
            wanted = bounds.memory_bytes + RESERVED_BYTES
            resource.setrlimit(resource.RLIMIT_DATA, (wanted if hard < 0 else min(wanted, hard), hard))


class ResidentMemory:
    """Reader of this process's resident memory, cheap enough for ten calls a second."""

    def __init__(self) -> None:
        self._page = os.sysconf("SC_PAGE_SIZE")
        try:
            self._file = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = -1

    def bytes(self) -> int:
        """Return the resident memory in bytes; 0 where the system does not show it."""
        if self._file < 0:
            return 0
        try:
            return int(os.pread(self._file, 128, 0).split()[1]) * self._page
        except (OSError, ValueError, IndexError):
            return 0
