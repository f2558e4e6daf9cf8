"""CPU time and memory of processes and all that they started, from /proc."""

import os
from collections.abc import Iterable
from pathlib import Path


def with_descendants(roots: Iterable[int]) -> list[int]:
    """Return these processes that still run, and those that they or their descendants started."""
    children: dict[int, list[int]] = {}
    alive: set[int] = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has just ended
        alive.add(int(path.parent.name))
        children.setdefault(parent, []).append(int(path.parent.name))
    wanted, processes = [root for root in roots if root in alive], []
    while wanted:
        processes.append(wanted.pop())
        wanted += children.get(processes[-1], [])
    return processes


def cpu_seconds(processes: Iterable[int]) -> float:
    """Return the CPU time of processes so far, with that of children that have ended."""
    return sum(_ticks(process) for process in processes) / os.sysconf("SC_CLK_TCK")


def pss_mb(processes: Iterable[int]) -> float:
    """Return the memory of processes in MB; a page that several processes share counts in parts."""
    return sum(_pss_kb(process) for process in processes) / 1e3


def _ticks(process: int) -> int:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(int(fields[place]) for place in (11, 12, 13, 14))


def _pss_kb(process: int) -> float:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) * 1.024 for line in lines if line.startswith("Pss:")), 0.0)
