"""How long one call of user code may take, and how much memory an executor: what was asked for, and the system's own bounds.

Resident memory is what is watched, because reserved address space says nothing (Arrow's allocator reserves a gigabyte and uses
none of it). `RLIMIT_DATA` stands well above the bound, so that one absurd allocation raises `MemoryError` in the line that
asked for it; and the kernel is told to end an executor before anything else should it run out of memory after all.
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
"""Of the machine's memory (or of its control group's), unless told."""

RESERVED_BYTES: Final = 2 << 30
"""Address space that libraries may reserve without using it: 1.1 GiB by Arrow, 8 MiB for each thread's stack."""

MB: Final = 1_000_000

_OOM_SCORE: Final = "800"
_GROUP = Path("/sys/fs/cgroup/memory.max")


class Bounds(msgspec.Struct, frozen=True, gc=False):
    """The bounds of one executor.

    Attributes:
        warning_seconds: one call of user code that takes longer is told in the logs.
        limit_seconds: one that takes longer ends the executor; 0: never.
        memory_bytes: resident memory; 0: no bound.
        memory_setting: who said so, in the word that changes it.
    """

    warning_seconds: float = WARNING_SECONDS
    limit_seconds: float = LIMIT_SECONDS
    memory_bytes: int = 0
    memory_setting: str = "executor_memory_mb"

    def with_users(self, limits: UserLimits) -> "Bounds":
        """With the application's own: its times count, its memory only where it wants less."""
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
    """Bytes that this process and its like may use together; 0 when the system does not tell."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 0
    with contextlib.suppress(OSError, ValueError):
        total = min(total, int(_GROUP.read_text()))
    return max(0, total)


def default_memory() -> int:
    """An executor's bound when nobody says one."""
    return int(machine_memory() * MEMORY_SHARE)


def bind_process(bounds: Bounds) -> None:
    """Make the system keep the bounds too, as far as it can. Never fails: an unbounded executor is still watched."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
    if bounds.memory_bytes:
        with contextlib.suppress(OSError, ValueError):
            _, hard = resource.getrlimit(resource.RLIMIT_DATA)
            wanted = bounds.memory_bytes + RESERVED_BYTES
            resource.setrlimit(resource.RLIMIT_DATA, (wanted if hard < 0 else min(wanted, hard), hard))


class ResidentMemory:
    """Reads the resident memory of this process; cheap enough for ten times a second."""

    def __init__(self) -> None:
        self._page = os.sysconf("SC_PAGE_SIZE")
        try:
            self._file = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = -1

    def bytes(self) -> int:
        """0 where the system does not tell."""
        if self._file < 0:
            return 0
        try:
            return int(os.pread(self._file, 128, 0).split()[1]) * self._page
        except (OSError, ValueError, IndexError):
            return 0
