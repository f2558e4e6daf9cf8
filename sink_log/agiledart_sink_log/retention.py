"""Trimming of a log without a writer: the log of an ended application must stay within its limits, too.

The trimming process holds the writer's lock for milliseconds, and a new writer waits for it. As in the writer, `committed` first
records which rows are removed, then their file goes; a reader in between gets `trimmed`. Unlike in the writer, the last segment
goes, too, when it is too old: offsets continue from `committed`, and none is reused.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from agiledart_sink_log.layout import (
    Segment,
    committed_bytes,
    lock,
    pinned_partition,
    read_committed,
    read_description,
    segments_of,
    sync_directory,
)
from agiledart_sink_log.plain_files import open_plain
from agiledart_sink_log.reopened_partition import recover


@dataclass(frozen=True)
class Trimmed:
    """Removed rows and bytes of all partitions."""

    rows: int = 0
    size: int = 0


def trim_idle(directory: Path, now_ms: int) -> Trimmed:
    """Remove segments of a log beyond its limits of size and age; does nothing while a writer has it open.

    Args:
        now_ms: wall time.

    Raises OSError, and OperationFailed when `log.json` cannot be read.
    """
    held = lock(directory) if (directory / "log.json").exists() else None
    if held is None:
        return Trimmed()
    try:
        description = read_description(directory)  # under the lock: a writer may have changed the limits just before
        if description is None:
            return Trimmed()
        share, limit_ms = description.max_bytes // max(1, description.partitions), now_ms - description.max_age_ms
        rows = size = 0
        for partition in range(description.partitions):
            with pinned_partition(directory, partition) as folder:
                segments = segments_of(folder) if folder is not None else []
                gone = _beyond(segments, share, limit_ms if description.max_age_ms else 0)
                if folder is None or not gone:
                    continue
                size += sum(os.lstat(segment.path).st_size for segment in segments[:gone])
                rows += _drop(folder, segments, gone, recover(folder, description.log_id, partition).end)
    finally:
        os.close(held)
    return Trimmed(rows, size)


def _beyond(segments: list[Segment], max_bytes: int, limit_ms: int) -> int:
    """Return how many of the oldest segments exceed the limits; all only when the youngest is too old, too."""
    stats = [os.lstat(segment.path) for segment in segments]
    remaining = sum(stat.st_size for stat in stats)
    for number, stat in enumerate(stats):
        is_last = number == len(stats) - 1
        if stat.st_mtime_ns // 1_000_000 >= limit_ms and (is_last or remaining <= max_bytes):
            return number
        remaining -= stat.st_size
    return len(segments)


def _drop(folder: Path, segments: list[Segment], gone: int, end: int) -> int:
    """Remove the `gone` oldest segments, and return the number of their rows."""
    recorded = read_committed(folder)
    before = max(segments[0].base, recorded[0] if recorded is not None else 0)
    first = segments[gone].base if gone < len(segments) else end
    descriptor = open_plain(folder / "committed", os.O_RDWR | os.O_CREAT)
    try:
        os.pwrite(descriptor, committed_bytes(first, end), 0)
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
    for segment in segments[:gone]:
        segment.path.unlink(missing_ok=True)
    sync_directory(folder)
    return max(0, first - before)
