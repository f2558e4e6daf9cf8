"""Rows of a partition that wait for disk space: refused, lost or partial writes are neither torn nor taken for written."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from agiledart_kernel.errors import OperationFailed, RollBackNeeded
from agiledart_sink_log import partition_writer as writing
from agiledart_sink_log.layout import segments_of
from agiledart_sink_log.log_writer import LogOptions, LogWriter
from agiledart_sink_log.partition_writer import PartitionWriter
from agiledart_sink_log.reopened_partition import recover

BODY = msgspec.msgpack.encode([[1, 2]])
LOG_ID = "11" * 8


class Disk(NamedTuple):
    """Lets calls of the system fail."""

    patch: pytest.MonkeyPatch

    def refuse(self, where: Any, name: str, number: int, times: int = 1) -> Callable[[], None]:
        """The next so many calls fail; gives what lets them pass again."""
        real: Callable[..., Any] = getattr(where, name)
        left = [times]

        def call(*arguments: Any) -> Any:
            if left[0]:
                left[0] -= 1
                raise OSError(number, os.strerror(number))
            return real(*arguments)

        self.patch.setattr(where, name, call)
        return lambda: self.patch.setattr(where, name, real)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def opened(directory: Path, **more: Any) -> PartitionWriter:
    options = {"segment_bytes": 1 << 20, "max_bytes": 1 << 26, "max_age_ms": 0, **more}
    return PartitionWriter(directory, LOG_ID, 0, schema=1, waits=True, **options)


@pytest.mark.parametrize("work", [PartitionWriter.prepare, lambda writer: writer.commit_up_to(1, 1)])
def test_rows_that_the_disk_lost_are_not_counted_as_written_next_epoch(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch, work: Callable[[PartitionWriter], Any]
) -> None:
    """The system marks pages clean that it could not write, and the next call succeeds."""
    monkeypatch.setattr(writing, "SYNC_SECONDS", 0.0)
    writer = opened(tmp_path)
    writer.append(BODY, 1)
    disk.refuse(os, "fdatasync", errno.EIO)
    with pytest.raises(RollBackNeeded, match="cannot be written: input/output error"):
        work(writer)
    writer.append(BODY, 1)
    writer.flush()
    for _ in range(2):
        with pytest.raises(RollBackNeeded, match="cannot be written: input/output error"):
            writer.prepare()
    writer.close(commits=False)
    again = opened(tmp_path, keep=0)
    again.append(BODY, 1)
    assert again.prepare() == 1
    again.close(commits=False)


@pytest.mark.parametrize(
    ("where", "name", "times"), [(writing, "sync_directory", 1), (writing, "open_plain", 1), (os, "ftruncate", 1)]
)
def test_a_segment_that_cannot_be_begun_is_begun_later(
    tmp_path: Path, disk: Disk, where: Any, name: str, times: int
) -> None:
    writer = opened(tmp_path, segment_bytes=50)
    writer.append(BODY, 1)
    disk.refuse(where, name, errno.ENOSPC, times)
    with pytest.raises(OperationFailed, match="cannot be written: no space left on device"):
        writer.prepare()
    assert [segment.base for segment in segments_of(tmp_path)] == [0]
    assert writer.bytes_kept == (tmp_path / segments_of(tmp_path)[0].path.name).stat().st_size
    assert writer.prepare() == 1
    writer.commit_up_to(1, 1)
    writer.append(BODY, 1)
    assert writer.prepare() == 2
    writer.commit_up_to(2, 2)
    writer.close(commits=False)
    assert [segment.base for segment in segments_of(tmp_path)] == [0, 1, 2]
    assert recover(tmp_path, LOG_ID, 0).end == 2


@pytest.mark.parametrize("is_full", [False, True])
def test_a_segment_with_only_a_commit_is_continued_at_any_age(tmp_path: Path, disk: Disk, *, is_full: bool) -> None:
    """The next one would have its name: rows would go into a file of no name, or the commit be written over."""
    now = [10**18]
    writer = opened(tmp_path, max_age_ms=60_000, clock=lambda: now[0])
    writer.append(BODY, 1)
    now[0] += 20 * 10**9
    writer.commit_up_to(writer.prepare(), 1)
    idle = segments_of(tmp_path)[-1].path
    content = idle.read_bytes()
    now[0] += 20 * 10**9
    if is_full:
        disk.refuse(os, "write", errno.ENOSPC)
    assert writer.prepare() == 1
    assert idle.read_bytes() == content
    disk.patch.undo()
    writer.append(BODY, 1)
    writer.commit_up_to(writer.prepare(), 2)
    writer.close(commits=False)
    assert recover(tmp_path, LOG_ID, 0).end == 2


def test_partitions_of_a_log_share_the_waiting_limit(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "MAX_WAITING_BYTES", 10_000)
    log = LogWriter(tmp_path, "out", LogOptions(partitions=8), "[]", [], waits=True)
    let = disk.refuse(os, "write", errno.ENOSPC, 1 << 30)
    body = msgspec.msgpack.encode([["x" * 1_000]])
    for partition in log.partitions:
        partition.append(body, 1)
        partition.flush()
    log.partitions[0].append(body, 1)
    with pytest.raises(OperationFailed, match="no space left on device"):
        log.partitions[1].append(body, 1)
    let()
    assert sum(log.prepare()) == 10, "one row more than fitted was refused"
    for _ in range(20):
        log.partitions[0].append(body, 1)
        log.prepare()
    log.close(commits=False)
