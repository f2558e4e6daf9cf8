"""Use of this machine: share of its processor time, by `/proc/stat`, and memory that it can still give, by `/proc/meminfo`.

Other systems do not have these files; nothing is measured there.
"""

from pathlib import Path
from typing import Final

from agiledart_node.forming.surveyor import MachineUse

_STAT = Path("/proc/stat")
_MEMORY = Path("/proc/meminfo")

_IDLE: Final = (3, 4)
"""Fields `idle` and `iowait` of the line `cpu`; see proc(5)."""

_COUNTED: Final = 8
"""Fields of the line `cpu` up to `steal`; later ones are part of earlier ones."""

LEAST_TICKS: Final = 50
"""Ticks of all processors between two measurements: fewer say little."""


class MachineGauge:
    """Gauge of the use of this machine. Its processor share is that of the time since the measurement before."""

    def __init__(self, stat: Path = _STAT, memory: Path = _MEMORY) -> None:
        self._stat, self._memory = stat, memory
        self._before = self._ticks()
        self._busy_permille: int | None = None

    def use(self) -> MachineUse:
        """Return the use of the machine now."""
        before, after = self._before, self._ticks()
        if before is not None and after is not None and sum(after) - sum(before) >= LEAST_TICKS:
            total, idle = sum(after) - sum(before), after[1] - before[1]
            self._busy_permille = max(0, min(1_000, 1_000 * (total - idle) // total))
            self._before = after
        return MachineUse(self._busy_permille, self._free_memory_mb())

    def _ticks(self) -> tuple[int, int] | None:
        """Return ticks (in work, idle) since the machine started; None: the system does not say."""
        try:
            with self._stat.open() as file:
                fields = [int(text) for text in file.readline().split()[1 : _COUNTED + 1]]
        except (OSError, ValueError):
            return None
        if len(fields) <= max(_IDLE):
            return None
        idle = sum(fields[number] for number in _IDLE)
        return sum(fields) - idle, idle

    def _free_memory_mb(self) -> int | None:
        try:
            with self._memory.open() as file:
                for line in file:
                    if line.startswith("MemAvailable:"):
                        return int(line.split()[1]) * 1_024 // 1_000_000
        except (OSError, ValueError, IndexError):
            return None
        return None
