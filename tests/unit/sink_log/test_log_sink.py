"""The `log:` connector and the store below it: spreading, options, a second writer, another type, power cuts, age."""

import contextlib
import os
import resource
import signal
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from agiledart import ReadTime, log
from agiledart_connectors.logs.log_sink import LogSinkWriter
from agiledart_connectors.opening import open_sink
from agiledart_connectors.sink_origin import CommittedOutput, SinkOrigin
from agiledart_dataflow.plan.connectors import SinkWriter, parse_connector
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_sink_log.layout import (
    COPY,
    damaged_in,
    log_directory,
    logs_in,
    partition_directory,
    read_committed,
    read_description,
    segments_of,
)
from agiledart_sink_log.log_reader import DamagedError, LogReader


class Row(NamedTuple):
    number: int
    zone: str
    delay: ReadTime


class Other(NamedTuple):
    number: int


NOW = 1_700_000_000_000_000_000


def opened(root: Path, url: str, row_type: Any = Row, clock: Callable[[], int] = lambda: NOW) -> SinkWriter:
    return open_sink(parse_connector(url), row_type, clock, SinkOrigin("app", 3, root))


def rows(first: int, count: int, zones: int = 3) -> list[Row]:
    return [Row(n, f"z{n % zones}", ReadTime(NOW - 2_000_000)) for n in range(first, first + count)]


def read(root: Path, name: str, partition: int = 0) -> list[Any]:
    reader = LogReader(log_directory(root, name))
    ends = reader.ends(partition)
    offset, found = ends.first, []
    while offset < ends.committed:
        batches, offset, _ = reader.fetch(partition, offset, 1_000, 1 << 20)
        found += [row for batch in batches for row in msgspec.msgpack.decode(batch.body)]
    return found


def test_rows_are_read_in_order_and_a_flush_makes_them_visible(tmp_path: Path) -> None:
    writer = opened(tmp_path, "log:x")
    writer.write(rows(0, 3))
    assert LogReader(log_directory(tmp_path, "x")).ends(0).committed == 0
    writer.flush()
    assert [row[0] for row in read(tmp_path, "x")] == [0, 1, 2]
    assert LogReader(log_directory(tmp_path, "x")).is_open
    writer.write(rows(3, 2_000))
    writer.close()
    writer.close()
    assert [row[0] for row in read(tmp_path, "x")] == list(range(2_003))
    assert not LogReader(log_directory(tmp_path, "x")).is_open
    assert writer.latency.samples == 2_003
    ((_, description),) = logs_in(tmp_path)
    assert (description.name, description.application, description.version) == ("x", "app", 3)


def test_uncommitted_rows_are_read_on_request(tmp_path: Path) -> None:
    writer = opened(tmp_path, "log:x")
    assert isinstance(writer, LogSinkWriter)
    writer.write(rows(0, 10))
    writer._hand_over(0)
    writer._log.partitions[0]._hand_over()
    reader = LogReader(log_directory(tmp_path, "x"))
    assert (reader.ends(0, uncommitted=True).latest, reader.ends(0, uncommitted=True).committed) == (10, 0)
    assert reader.fetch(0, 0, 100, 1 << 20)[0] == []
    assert sum(batch.rows for batch in reader.fetch(0, 0, 100, 1 << 20, uncommitted=True)[0]) == 10
    writer.close()


def test_batches_rotate_over_partitions_and_a_new_run_starts_at_the_smallest(tmp_path: Path) -> None:
    for run in range(2):
        writer = opened(tmp_path, "log:x?partitions=3")
        for n in range(4):
            writer.write(rows(10 * n, 10))
            writer.flush()
        writer.close()
        ends = [LogReader(log_directory(tmp_path, "x")).ends(n).committed for n in range(3)]
        assert sum(ends) == 40 * (run + 1)
        assert max(ends) - min(ends) <= 10
    for n in range(3):  # within each partition the order is that of writing, run by run
        numbers = [row[0] for row in read(tmp_path, "x", n)]
        assert sum(a > b for a, b in pairwise(numbers)) <= 1


def test_a_key_stays_in_its_partition_in_order_over_runs(tmp_path: Path) -> None:
    for run in range(2):
        writer = opened(tmp_path, "log:x?partitions=4&key=zone")
        writer.write(rows(1_000 * run, 900, zones=11))
        writer.close()
    where: dict[str, int] = {}
    seen: dict[str, list[int]] = {}
    for partition in range(4):
        for number, zone, _ in read(tmp_path, "x", partition):
            assert where.setdefault(zone, partition) == partition
            seen.setdefault(zone, []).append(number)
    assert all(numbers == sorted(numbers) for numbers in seen.values())
    assert sum(map(len, seen.values())) == 1_800
    assert len(set(where.values())) > 1


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("log:", "needs a name"),
        ("log:a b", "cannot be the name"),
        ("log:../x", "cannot be the name"),
        ("log:x?partitions=0", "a number from 1 to 64"),
        ("log:x?partitions=65", "a number from 1 to 64"),
        ("log:x?max_bytes=7", None),
        ("log:x?max_bytes=many", "for example 64MiB"),
        ("log:x?max_age=0d", "for example 7d"),
        ("log:x?max_age=3w", "for example 7d"),
        ("log:x?key=colour", "rows have no field 'colour'; its fields are number, zone, delay"),
        ("log:x?speed=3", "no option 'speed'"),
    ],
)
def test_options_are_checked_in_words(tmp_path: Path, url: str, says: str | None) -> None:
    if says is None:
        opened(tmp_path, url).close()
        return
    with pytest.raises(ConfigurationError, match=says.replace("(", r"\(")):
        opened(tmp_path, url)
    assert not (tmp_path / "sink-logs").exists()


def test_the_public_name_makes_the_same_connector() -> None:
    made = log("routes", partitions=4, max_bytes="64MiB", max_age="7d", at="pi2")
    assert made == parse_connector("log:routes?partitions=4&max_bytes=64MiB&max_age=7d@pi2")


def test_another_type_or_number_and_a_second_writer_are_refused(tmp_path: Path) -> None:
    writer = opened(tmp_path, "log:x?partitions=2")
    with pytest.raises(OperationFailed, match="is being written by another application"):
        open_sink(parse_connector("log:x"), Row, lambda: NOW, SinkOrigin("app", 3, tmp_path, lock_timeout_s=0.0))
    writer.close()
    with pytest.raises(OperationFailed, match="holds rows of another type: Row"):
        opened(tmp_path, "log:x", Other)
    with pytest.raises(OperationFailed, match="has 2 partitions, not 3; that cannot be changed"):
        opened(tmp_path, "log:x?partitions=3")
    again = opened(tmp_path, "log:x")  # not said: as it is
    assert len(LogReader(log_directory(tmp_path, "x")).description.fields) == 3
    again.close()


def test_a_power_cut_skips_offsets_and_reports_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`committed` reached the disk, the last rows did not."""
    writer = opened(tmp_path, "log:x")
    for n in range(3):
        writer.write(rows(10 * n, 10))
        writer.flush()
    writer.close()
    folder = partition_directory(log_directory(tmp_path, "x"), 0)
    (segment,) = segments_of(folder)
    with segment.path.open("r+b") as file:
        file.truncate(segment.path.stat().st_size - 100)
    again = opened(tmp_path, "log:x")
    assert "10 committed rows from offset 20 on are damaged; it goes on at offset 30" in capsys.readouterr().err
    again.write(rows(90, 5))
    again.close()
    reader = LogReader(log_directory(tmp_path, "x"))
    assert read_committed(folder) == (0, 35)
    assert reader.fetch(0, 0, 1_000, 1 << 20)[1] == 20
    with pytest.raises(DamagedError, match="Continue at offset 30") as damaged:
        reader.fetch(0, 20, 1_000, 1 << 20)
    assert damaged.value.next_good == 30
    assert reader.damaged_reads == 1
    assert reader.fetch(0, 30, 1_000, 1 << 20)[1] == 35


def test_rows_that_look_like_entries_are_rows(tmp_path: Path) -> None:
    """Segments of another log as rows; behind damage they must not be taken for entries."""
    writer = opened(tmp_path, "log:y")
    for n in range(5):
        writer.write(rows(n, 1))
        writer.flush()
    writer.close()
    (inner,) = segments_of(partition_directory(log_directory(tmp_path, "y"), 0))
    writer = opened(tmp_path, "log:x", bytes)
    for _ in range(5):
        writer.write([inner.path.read_bytes()])
        writer.flush()
    writer.close()
    (segment,) = segments_of(partition_directory(log_directory(tmp_path, "x"), 0))
    raw = bytearray(segment.path.read_bytes())
    raw[60] ^= 1  # in the header of the first entry
    segment.path.write_bytes(raw)
    reader = LogReader(log_directory(tmp_path, "x"))
    with pytest.raises(DamagedError) as damaged:
        reader.fetch(0, 0, 100, 1 << 20)
    assert damaged.value.next_good == 1
    batches, following, _ = reader.fetch(0, 1, 100, 1 << 20)
    assert [msgspec.msgpack.decode(batch.body) for batch in batches] == [[[inner.path.read_bytes()]]] * 4
    assert following == 5


def test_a_corrupt_committed_file_is_detected_and_skipped(tmp_path: Path) -> None:
    writer = opened(tmp_path, "log:x")
    writer.write(rows(0, 10))
    writer.close()
    path = partition_directory(log_directory(tmp_path, "x"), 0) / "committed"
    raw = bytearray(path.read_bytes())
    raw[11] ^= 4
    path.write_bytes(raw)
    assert read_committed(path.parent) is None
    assert len(read(tmp_path, "x")) == 10
    again = opened(tmp_path, "log:x")
    again.close()
    assert read_committed(path.parent) == (0, 10)


def test_old_segments_expire_and_the_newest_stays(tmp_path: Path) -> None:
    clock = [NOW]
    writer = opened(tmp_path, "log:x?max_age=60s", clock=lambda: clock[0])
    folder = partition_directory(log_directory(tmp_path, "x"), 0)
    for minute in range(5):
        writer.write(rows(minute * 10, 10))
        writer.flush()
        for segment in segments_of(folder):  # files bear the wall clock's time; this test's clock is another
            age_ns = clock[0] - 30_000_000_000 * (len(segments_of(folder)) - segments_of(folder).index(segment))
            os.utime(segment.path, ns=(age_ns, age_ns))
        clock[0] += 30_000_000_000
    writer.close()
    first = LogReader(log_directory(tmp_path, "x")).ends(0).first
    assert 0 < first < 50
    assert [row[0] for row in read(tmp_path, "x")] == list(range(first, 50))


def test_a_failing_disk_is_reported_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = opened(tmp_path, "log:x")
    writer.write(rows(0, 10))
    writer.flush()

    def full(descriptor: int, data: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    writer.write(rows(10, 10))
    with pytest.raises(OperationFailed, match="cannot be written: no space left on device"):
        writer.flush()
    monkeypatch.undo()
    assert len(read(tmp_path, "x")) == 10
    with contextlib.suppress(OperationFailed):
        writer.close()
    opened(tmp_path, "log:x").close()
    assert len(read(tmp_path, "x")) == 10


@pytest.mark.parametrize("damage", ["removed", "emptied", "halved", "flipped"])
def test_the_description_of_a_log_is_read_from_its_copy(tmp_path: Path, damage: str) -> None:
    """The log goes on as the one that it was, with all its rows."""
    writer = opened(tmp_path, "log:x")
    writer.write(rows(0, 3))
    writer.close()
    folder = log_directory(tmp_path, "x")
    path, before = folder / "log.json", read_description(folder)
    content = path.read_bytes()
    if damage == "removed":
        path.unlink()
    else:
        flipped = content.replace(b'"partitions": 1', b'"partitions": 3')
        path.write_bytes({"emptied": b"", "halved": content[: len(content) // 2], "flipped": flipped}[damage])
    assert read_description(folder) == before
    writer = opened(tmp_path, "log:x")
    writer.write(rows(3, 2))
    writer.close()
    assert [row[0] for row in read(tmp_path, "x")] == [0, 1, 2, 3, 4]
    assert path.exists()


def test_without_description_and_copy_rows_are_not_overwritten(tmp_path: Path) -> None:
    writer = opened(tmp_path, "log:x")
    writer.write(rows(0, 3))
    writer.close()
    folder = log_directory(tmp_path, "x")
    (folder / "log.json").unlink()
    (folder / COPY).write_bytes(b"00000000\n{}")
    with pytest.raises(OperationFailed, match=r"log.json is missing.*rows of a log are there. Put one back, or move"):
        opened(tmp_path, "log:x")
    assert list(logs_in(tmp_path)) == []
    (told,) = damaged_in(tmp_path)
    assert "the log x cannot be read" in told
    (folder / "log.json").write_bytes(b"{")
    with pytest.raises(OperationFailed, match=r"log.json is damaged .*no good copy"):
        opened(tmp_path, "log:x")


def test_removed_segments_are_damage_and_not_retention(tmp_path: Path) -> None:
    writer = opened(tmp_path, "log:x")
    writer.write(rows(0, 3))
    writer.close()
    folder = log_directory(tmp_path, "x")
    for segment in segments_of(partition_directory(folder, 0)):
        segment.path.unlink()
    with pytest.raises(DamagedError) as lost:
        LogReader(folder).fetch(0, 0, 10, 1 << 20)
    assert lost.value.next_good == 3


def test_a_moved_log_continues_where_its_last_epoch_ended(tmp_path: Path) -> None:
    here = opened(tmp_path / "here", "log:moves")
    assert isinstance(here, LogSinkWriter)
    here.write(rows(0, 5))
    here.close()
    kept = CommittedOutput((5,), here.identity)

    def go_on(root: Path) -> SinkWriter:
        origin = SinkOrigin("app", 3, root, 0.0, by_epoch=True, keep=kept)
        return open_sink(parse_connector("log:moves"), Row, lambda: NOW, origin)

    there = go_on(tmp_path / "there")
    assert isinstance(there, LogSinkWriter)
    assert there.identity == here.identity
    there.write(rows(5, 2))
    there.commit(there.prepare(), 9)
    there.close()
    reader = LogReader(log_directory(tmp_path / "there", "moves"))
    assert (reader.ends(0).first, reader.ends(0).committed) == (5, 7)
    assert [row[0] for row in read(tmp_path / "there", "moves")] == [5, 6]

    several = SinkOrigin(
        "app", 3, tmp_path / "several", 0.0, by_epoch=True, keep=CommittedOutput((5, 0, 7), here.identity)
    )
    open_sink(parse_connector("log:moves"), Row, lambda: NOW, several).close()
    assert LogReader(log_directory(tmp_path / "several", "moves")).description.partitions == 3

    opened(tmp_path / "taken", "log:moves").close()
    with pytest.raises(OperationFailed, match="another log moves lies on this node"):
        go_on(tmp_path / "taken")


@pytest.fixture
def full_at() -> Iterator[Any]:
    """Makes files of this process end at a size, as a full disk does: in the middle of an entry, too."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, ignored)


def by_epoch(root: Path, options: str = "") -> Any:
    return open_sink(parse_connector(f"log:out{options}"), Row, lambda: NOW, SinkOrigin("app", 1, root, by_epoch=True))


@pytest.mark.parametrize("options", ["", "?segment_bytes=4KiB&max_bytes=64MiB"])
def test_rows_of_a_run_with_epochs_wait_while_the_disk_is_full(tmp_path: Path, full_at: Any, options: str) -> None:
    """The flow goes on, the epoch is given up, and the next one that has room commits all of it, each row once."""
    sink = by_epoch(tmp_path, options)
    sink.write(rows(0, 100))
    sink.flush()
    ends = sink.prepare()
    sink.commit(ends, 1)
    reader = LogReader(log_directory(tmp_path, "out"))
    full_at(max(path.stat().st_size for path in reader.directory.rglob("*") if path.is_file()) + 300)
    for first in range(100, 900, 100):
        sink.write(rows(first, 100))
        sink.flush()
    for _ in range(2):
        with pytest.raises(OperationFailed, match=r"sink-logs/out/0 cannot be written: file too large"):
            sink.prepare()
    assert reader.ends(0, uncommitted=True).latest >= 100
    full_at(1 << 24)
    ends = sink.prepare()
    assert ends == (900,)
    sink.commit(ends, 3)
    sink.write(rows(900, 10))
    sink.commit(sink.prepare(), 4)
    sink.close()
    assert LogReader(log_directory(tmp_path, "out")).ends(0).committed == 910
    assert [row[0] for row in read(tmp_path, "out")] == list(range(910))


def test_waiting_rows_in_a_log_are_bounded(tmp_path: Path, full_at: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agiledart_sink_log.partition_writer.MAX_WAITING_BYTES", 20_000)
    sink = by_epoch(tmp_path)
    full_at(200)
    sink.write(rows(0, 10))
    sink.flush()
    with pytest.raises(OperationFailed, match="file too large"):
        sink.write(rows(10, 100_000))
