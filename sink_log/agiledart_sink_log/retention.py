"""Trims a log that nobody writes: an application that has ended leaves one behind, which must keep its bounds, too.

Whoever trims holds the writer's lock meanwhile (milliseconds), so it never meets a writer; a writer that comes waits for the lock.
As the writer does it: first `committed` says which rows are gone, then their file goes, so a reader in between is told that they
are trimmed. Unlike the writer's, the last segment goes when it is too old: offsets go on from `committed`, none is used twice.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from agiledart_sink_log.layout import (
    Segment,
    committed_bytes,
    lock,
    open_plain,
    pinned_partition,
    read_committed,
    read_description,
    segments_of,
    sync_directory,
)
from agiledart_sink_log.reopened_partition import recover


@dataclass(frozen=True)
class Trimmed:
    """What went: rows and bytes of all partitions."""

    rows: int = 0
    size: int = 0


def trim_idle(directory: Path, now_ms: int) -> Trimmed:
    """Drop segments of the log in a folder that are beyond its bounds of size and age; nothing while somebody writes it.

    Args:
        now_ms: wall time.

    Raises OSError, and OperationFailed when `log.json` cannot be read.
    """
    held = lock(directory) if (directory / "log.json").exists() else None
    if held is None:
        return Trimmed()
    try:
        found = read_description(directory)  # under the lock: a writer may just have given it other bounds
        if found is None:
            return Trimmed()
        share, limit_ms = found.max_bytes // max(1, found.partitions), now_ms - found.max_age_ms
        rows = size = 0
        for partition in range(found.partitions):
            with pinned_partition(directory, partition) as folder:
                segments = segments_of(folder) if folder is not None else []
                gone = _beyond(segments, share, limit_ms if found.max_age_ms else 0)
                if folder is None or not gone:
                    continue
                size += sum(os.lstat(segment.path).st_size for segment in segments[:gone])
                rows += _drop(folder, segments, gone, recover(folder, found.log_id, partition).end)
    finally:
        os.close(held)
    return Trimmed(rows, size)


def _beyond(segments: list[Segment], max_bytes: int, limit_ms: int) -> int:
    """How many of the oldest segments are too many; all only when the youngest is too old as well."""
    found = [os.lstat(segment.path) for segment in segments]
    kept = sum(one.st_size for one in found)
    for number, one in enumerate(found):
        is_last = number == len(found) - 1
        if one.st_mtime_ns // 1_000_000 >= limit_ms and (is_last or kept <= max_bytes):
            return number
        kept -= one.st_size
    return len(segments)


def _drop(folder: Path, segments: list[Segment], gone: int, end: int) -> int:
    """Let the `gone` oldest go; the number of rows in them."""
    told = read_committed(folder)
    before = max(segments[0].base, told[0] if told is not None else 0)
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
