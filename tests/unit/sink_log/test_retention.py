"""A log without a writer keeps its bounds of size and age; never against a writer, and no offset is used twice."""

import os
import time
from pathlib import Path

import msgspec
import pytest

from agiledart_agent.sink_logs.log_trimming import trim_all
from agiledart_sink_log.layout import log_directory, partition_directory, read_description, segments_of
from agiledart_sink_log.layout import write_description as write
from agiledart_sink_log.log_reader import LogReader, TrimmedError
from agiledart_sink_log.log_writer import LogOptions, LogWriter
from agiledart_sink_log.retention import Trimmed, trim_idle

FIELDS: list[dict[str, object]] = [{"name": "value", "type": "int", "nullable": False}]
OPTIONS = LogOptions(partitions=2, max_bytes=1 << 20, max_age_ms=60_000, segment_bytes=4 << 10)
NOW_MS = 1_700_000_000_000
ROWS = 50


def opened(root: Path, name: str = "x") -> LogWriter:
    return LogWriter(root, name, OPTIONS, "int", FIELDS, "app", 1, lambda: NOW_MS * 1_000_000)


def ended(root: Path, name: str = "x", ages_s: tuple[int, ...] = (300, 200, 30)) -> Path:
    """A log whose writer has ended; partition 0 has one segment of 50 rows for each age, then an empty one as young as the last."""
    log = opened(root, name)
    for _ in ages_s:
        log.partitions[0].append(msgspec.msgpack.encode([[n, b"p" * 100] for n in range(ROWS)]), ROWS)
        log.commit()
    log.partitions[1].append(msgspec.msgpack.encode([[1]]), 1)
    log.close()
    for partition in (0, 1):
        found = segments_of(partition_directory(log.directory, partition))
        for segment, age in zip(found, (*ages_s, ages_s[-1]), strict=False):
            at = (NOW_MS - age * 1_000) * 1_000_000
            os.utime(segment.path, ns=(at, at))
    return log.directory


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def values_kept(directory: Path, partition: int = 0) -> int:
    reader = LogReader(directory)
    ends = reader.ends(partition)
    return ends.committed - ends.first


def test_old_segments_of_an_ended_log_are_removed_and_readers_notified(tmp_path: Path) -> None:
    directory = ended(tmp_path)
    reader = LogReader(directory)
    assert values_kept(directory) == 3 * ROWS
    gone = trim_idle(directory, NOW_MS)
    assert gone.rows == 2 * ROWS + 1
    assert gone.size > 2 * ROWS * 100
    ends = reader.ends(0)
    assert (ends.first, ends.committed) == (2 * ROWS, 3 * ROWS)
    with pytest.raises(TrimmedError) as caught:
        reader.fetch(0, 0, 10, 1_000)
    assert caught.value.first == 2 * ROWS
    assert reader.fetch(0, 2 * ROWS, 10, 1_000)[0][0].rows == ROWS
    assert trim_idle(directory, NOW_MS) == Trimmed()


def test_a_completely_old_log_is_emptied_but_keeps_its_offsets(tmp_path: Path) -> None:
    directory = ended(tmp_path)
    trim_idle(directory, NOW_MS + 600_000)
    assert [segments_of(partition_directory(directory, n)) for n in (0, 1)] == [[], []]
    reader = LogReader(directory)
    assert (reader.ends(0).first, reader.ends(0).committed) == (3 * ROWS, 3 * ROWS)
    assert reader.fetch(0, 3 * ROWS, 10, 1_000) == ([], 3 * ROWS, 3 * ROWS)
    with pytest.raises(TrimmedError):
        reader.fetch(0, 0, 10, 1_000)
    again = opened(tmp_path)
    again.partitions[0].append(msgspec.msgpack.encode([[7]]), 1)
    again.close()
    assert not again.notes()
    batches, following, _ = reader.fetch(0, 3 * ROWS, 10, 1_000)
    assert (batches[0].offset, following) == (3 * ROWS, 3 * ROWS + 1)


def test_offsets_are_not_reused_after_the_disk_lost_their_record(tmp_path: Path) -> None:
    directory = ended(tmp_path)
    (partition_directory(directory, 0) / "committed").unlink()
    trim_idle(directory, NOW_MS + 600_000)
    assert LogReader(directory).ends(0).committed == 3 * ROWS


def test_the_size_limit_of_the_description_is_kept(tmp_path: Path) -> None:
    directory = ended(tmp_path, ages_s=(5, 5, 5, 5))
    description = read_description(directory)
    assert description is not None
    kept = sum(segment.path.stat().st_size for segment in segments_of(partition_directory(directory, 0)))
    write(directory, msgspec.structs.replace(description, max_bytes=kept))  # half of it is each partition's share
    assert trim_idle(directory, NOW_MS).rows == 3 * ROWS
    left = sum(segment.path.stat().st_size for segment in segments_of(partition_directory(directory, 0)))
    assert left <= kept // 2  # two full ones and the newest, which is empty, would not fit
    assert values_kept(directory) == ROWS


def test_a_log_being_written_is_not_trimmed(tmp_path: Path) -> None:
    directory = ended(tmp_path)
    log = opened(tmp_path)
    before = LogReader(directory).ends(0)
    found = segments_of(partition_directory(directory, 0))
    assert trim_idle(directory, NOW_MS + 600_000) == Trimmed()
    assert segments_of(partition_directory(directory, 0)) == found
    assert LogReader(directory).ends(0) == before
    log.close()
    trim_idle(directory, log.description.max_age_ms + max(NOW_MS, _now_ms()) + 1_000)
    assert values_kept(directory) == 0
    opened(tmp_path).close()  # the lock was given back


def test_one_bad_log_does_not_keep_others_from_being_trimmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = ended(tmp_path, "a"), ended(tmp_path, "b")
    unlink = Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path.resolve().is_relative_to(first):
            raise OSError(30, "Read-only file system")
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    wrong = trim_all(tmp_path, NOW_MS * 1_000_000)
    assert len(wrong) == 1
    assert "log a cannot be trimmed" in wrong[0]
    assert values_kept(second) == ROWS
    assert log_directory(tmp_path, "b") == second
