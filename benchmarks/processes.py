"""Resources of this machine's processes, from /proc: a tree of processes, its CPU time and its memory."""

import contextlib
import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def tree(root: int) -> list[int]:
    """Return a process and all its descendants, the root first."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _stat(int(entry))):
            children.setdefault(int(fields[1]), []).append(int(entry))
    pids = [root]
    for pid in pids:
        pids += children.get(pid, [])
    return pids


def cpu_seconds(root: int) -> float:
    """CPU time of a tree of processes so far, with that of children that have ended."""
    spent = 0
    for pid in tree(root):
        if fields := _stat(pid):
            spent += sum(int(field) for field in fields[11:15])
    return spent / _TICKS


def cpu_by_kind(root: int) -> dict[str, float]:
    """Return the CPU time of a tree of processes so far, summed by kind of process, in seconds."""
    spent: dict[str, float] = {}
    for pid in tree(root):
        if fields := _stat(pid):
            name = kind(pid)
            spent[name] = spent.get(name, 0.0) + sum(int(field) for field in fields[11:15]) / _TICKS
    return spent


def rss_mb(pid: int) -> float:
    """Resident memory; 0 for a process that is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return 0.0


def kind(pid: int) -> str:
    """Which part of Spark, or of a mesh, a process is."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "gone"
    text = b" ".join(words)
    for name, sign in (
        ("jvm", b"org.apache.spark.deploy.SparkSubmit"),
        ("planner", b"python_streaming_source_runner"),
        ("planner", b"pyspark.sql.worker."),
        ("workers", b"pyspark.daemon"),
        ("executors", b"agiledart_executor.programs."),
        ("agents", b"agiledart_cli.main agent"),
    ):
        if sign in text:
            return name
    return "driver" if b"python" in words[0] else "other"


def rss_by_kind(root: int) -> dict[str, float]:
    """Return the resident MB of a tree of processes, summed by kind of process; shared pages count in each process."""
    sizes: dict[str, float] = {}
    for pid in tree(root):
        name = kind(pid)
        sizes[name] = sizes.get(name, 0.0) + rss_mb(pid)
    return {name: round(size, 1) for name, size in sorted(sizes.items()) if size}


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name: state, parent, …; [] for a process that is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []
