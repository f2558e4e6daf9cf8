"""Processes: their memory, read from /proc (empty on systems without it), and the end of a whole group."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

_PROC = Path("/proc")


def peak_memory_mb(pid: int) -> float | None:
    """Return the peak resident memory of a process in MB (10^6 bytes); None when it has ended."""
    try:
        status = (_PROC / str(pid) / "status").read_text()
    except OSError:
        return None
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return round(int(line.split()[1]) * 1024 / 1e6, 1)
    return None


def children_of(parents: list[int]) -> dict[int, list[int]]:
    """Return parent → its direct children, as sorted process numbers."""
    children: dict[int, list[int]] = {pid: [] for pid in parents}
    try:
        numbers = sorted(int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())
    except OSError:
        return children
    for number in numbers:
        try:
            stat = (_PROC / str(number) / "stat").read_text()
        except OSError:
            continue
        parent = int(stat.rpartition(")")[2].split()[1])
        if parent in children:
            children[parent].append(number)
    return children


class MemoryWatch:
    """Record of the peak memory of each process of a mesh, including ended ones."""

    def __init__(self) -> None:
        self._peaks: dict[str, float] = {}
        self._names: dict[int, str] = {}

    def look(self, agents: dict[str, int]) -> None:
        """Sample the agents (name → process number) and their executors."""
        children = children_of(list(agents.values()))
        for name, pid in agents.items():
            self._note(name, pid)
            for child in children[pid]:
                if child not in self._names:
                    count = sum(known.startswith(f"{name}/") for known in self._names.values())
                    self._names[child] = f"{name}/executor-{count + 1}"
                self._note(self._names[child], child)

    def _note(self, name: str, pid: int) -> None:
        peak = peak_memory_mb(pid)
        if peak:
            self._peaks[name] = max(peak, self._peaks.get(name, 0.0))

    def peaks(self) -> dict[str, float]:
        """Return name of process (`a1`, `a1/executor-1`) → peak memory in MB."""
        return dict(sorted(self._peaks.items()))


def end_process_group(process: "subprocess.Popen[Any]") -> None:
    """End a process that leads a group, with all of the group, and close its pipes."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    process.wait()
