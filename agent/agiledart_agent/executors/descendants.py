"""Processes that users' code starts: they are counted with their executor, and end with it, also outside its process group.

A process whose parent has ended becomes a child of the agent, which is their reaper. The executor's mark in its environment, or an
earlier look at the executor's descendants, says whose it is.
"""

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

MARK: Final = "AGILEDART_EXECUTOR"
"""Variable in the environment of an executor and of the processes that it starts; it names the executor."""

MAX_DESCENDANTS: Final = 1_024
"""Processes of one executor that are looked at, once a second."""

_SET_CHILD_SUBREAPER: Final = 36
_MAX_ENVIRONMENT: Final = 1 << 17


class ProcessIdentity(NamedTuple):
    """A process, and its start in ticks: its number may be used again."""

    pid: int
    started: int


def become_reaper() -> None:
    """Make this process the parent of all its descendants whose parents have ended."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def identity_of(pid: int) -> ProcessIdentity | None:
    """Return the identity of a process; None when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        return ProcessIdentity(pid, int(stat.rpartition(b") ")[2].split()[19]))
    except (OSError, ValueError, IndexError):
        return None


def children_of(pid: int) -> list[int]:
    """Return the child processes of a process."""
    children: list[int] = []
    with contextlib.suppress(OSError, ValueError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                children += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_bytes().split())
    return children


def descendants_of(pid: int) -> Iterator[int]:
    """Yield the processes below a process, `MAX_DESCENDANTS` at most."""
    waiting, seen = [pid], 0
    while waiting:
        for child in children_of(waiting.pop()):
            if seen >= MAX_DESCENDANTS:
                return
            seen += 1
            waiting.append(child)
            yield child


def mark_of(pid: int) -> str:
    """Return the mark in the environment with which a process began; empty: it has none, or is gone."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as environment:
            entries = environment.read(_MAX_ENVIRONMENT).split(b"\0")
    except OSError:
        return ""
    prefix = f"{MARK}=".encode()
    return next((entry[len(prefix) :].decode("ascii", "replace") for entry in entries if entry.startswith(prefix)), "")


def shared_memory_of(pids: Iterable[int]) -> int:
    """Return the memory of processes in bytes; shared memory counts once."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_bytes().splitlines():
                if line.startswith(b"Pss:"):
                    total += int(line.split()[1]) * 1024
                    break
    return total


def end_all(processes: Iterable[ProcessIdentity]) -> list[int]:
    """Kill processes that are still the same. Return their numbers; those that are children of this one are to be reaped."""
    killed = []
    for process in processes:
        if identity_of(process.pid) == process:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, signal.SIGKILL)
                killed.append(process.pid)
    return killed


def reap(pids: Iterable[int]) -> list[int]:
    """Reap ended processes. Return those that have not ended yet."""
    left = []
    for pid in pids:
        with contextlib.suppress(ChildProcessError):  # another process's child, or reaped
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                left.append(pid)
    return left
