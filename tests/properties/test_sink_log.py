"""A sink log after every kind of end: whatever was committed is read back exactly, or is refused; never anything else."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart_kernel.errors import LocalProtocolError
from agiledart_sink_log.layout import segments_of
from agiledart_sink_log.log_reader import DamagedError, LogReader, TrimmedError
from agiledart_sink_log.log_writer import LogOptions, LogWriter

FIELDS: list[dict[str, object]] = [{"name": "value", "type": "int", "nullable": False}]
ROOMY = LogOptions(partitions=1, max_bytes=1 << 30, segment_bytes=4 << 10)


@pytest.fixture(autouse=True, scope="module")
def _fast_disk() -> Iterator[None]:
    """Forcing to the disk is what these tests cannot see, and what takes their time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        patch.setattr(os, "fdatasync", lambda _: None)
        yield


@contextmanager
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="adt-log-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def open_log(root: Path, options: LogOptions = ROOMY, keep: int | None = None) -> LogWriter:
    ends = None if keep is None else (keep,)
    return LogWriter(root, "x", options, "int", FIELDS, "app", 1, keep=ends)


def append(log: LogWriter, first: int, count: int, padding: int) -> None:
    """Rows whose value is their own number, and some bytes to fill segments."""
    rows = [[first + n, b"p" * padding] for n in range(count)]
    log.partitions[0].append(msgspec.msgpack.encode(rows), count)


def read_all(root: Path) -> tuple[list[int], list[tuple[int, int]], int]:
    """(values of all rows, gaps that were refused as damaged, committed end)."""
    reader = LogReader(root / "sink-logs" / "x")
    end = reader.ends(0).committed
    offset, values, gaps = reader.ends(0).first, [], []
    while offset < end:
        try:
            batches, following, _ = reader.fetch(0, offset, 100, 2_000)
        except DamagedError as damage:
            good = damage.next_good
        else:
            good = 0
        if good:
            assert good > offset
            gaps.append((offset, good))
            offset = good
            continue
        assert following > offset
        for batch in batches:
            found = [row[0] for row in msgspec.msgpack.decode(batch.body)]
            assert len(found) == batch.rows
            values += found[max(0, offset - batch.offset) :]
            offset = batch.offset + batch.rows
        assert offset == following
    return values, gaps, end


batches = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 900), st.booleans()), min_size=1, max_size=25)
"""(rows, padding, is there a commit behind it?)"""


def write(log: LogWriter, plan: list[tuple[int, int, bool]]) -> int:
    """Carry out a plan; the number of committed rows."""
    committed = 0
    for rows, padding, is_committed in plan:
        append(log, log.partitions[0].end, rows, padding)
        if is_committed:
            log.commit()
            committed = log.partitions[0].end
    return committed


def abandon(log: LogWriter) -> None:
    """Simulate a kill -9: files as they are, nothing more is written."""
    for partition in log.partitions:
        partition._hand_over()
        partition._release()
    log.partitions = []
    log.close()


@settings(max_examples=100, deadline=None)
@given(batches, st.data())
def test_any_crash_point_leaves_a_prefix_with_all_committed_rows(
    plan: list[tuple[int, int, bool]], data: st.DataObject
) -> None:
    """The file may end at any byte behind the last COMMIT: a write that a kill cut short."""
    with folder() as root:
        log = open_log(root)
        committed = write(log, plan)
        abandon(log)
        last = segments_of(root / "sink-logs" / "x" / "0")[-1]
        size = last.path.stat().st_size
        clean = open_log(root)  # to learn where the committed part ends
        assert clean.partitions[0].recovered.lost_from is None
        assert clean.partitions[0].end == committed
        good = last.path.stat().st_size
        abandon(clean)
        raw = last.path.read_bytes()
        tail = data.draw(st.binary(max_size=200)) if size == good else b""
        with last.path.open("wb") as file:
            file.write(raw + tail)
        assert read_all(root) == (list(range(committed)), [], committed)

        again = open_log(root)
        assert again.partitions[0].end == committed
        append(again, committed, 3, 5)
        again.close()
        assert read_all(root) == (list(range(committed + 3)), [], committed + 3)


@settings(max_examples=60, deadline=None)
@given(batches, st.integers(0, 1 << 30))
def test_a_writer_killed_within_any_write_loses_nothing_committed(
    plan: list[tuple[int, int, bool]], where: int
) -> None:
    """The bytes after the last flush are cut at any place."""
    with folder() as root:
        log = open_log(root)
        committed = write(log, [*plan, (1, 0, True)])
        last = segments_of(root / "sink-logs" / "x" / "0")[-1]
        good = last.path.stat().st_size
        write(log, [(rows, padding, False) for rows, padding, _ in plan])
        abandon(log)
        size = last.path.stat().st_size
        with last.path.open("r+b") as file:
            file.truncate(good + where % (size - good + 1))
        assert read_all(root) == (list(range(committed)), [], committed)
        again = open_log(root)
        assert again.partitions[0].end == committed
        assert last.path.stat().st_size == good
        again.close()


@settings(max_examples=100, deadline=None)
@given(batches, st.integers(0, 1 << 30), st.integers(0, 7), st.booleans())
def test_any_flipped_bit_is_detected_and_no_wrong_row_is_served(
    plan: list[tuple[int, int, bool]], where: int, bit: int, reopen: bool
) -> None:
    with folder() as root:
        log = open_log(root)
        write(log, plan)
        log.close()
        end = log.partitions[0].end
        segments = segments_of(root / "sink-logs" / "x" / "0")
        sizes = [segment.path.stat().st_size for segment in segments]
        place = where % sum(sizes)
        number = 0
        while place >= sizes[number]:
            place -= sizes[number]
            number += 1
        segment = segments[number]
        raw = bytearray(segment.path.read_bytes())
        raw[place] ^= 1 << bit
        segment.path.write_bytes(raw)
        if reopen:
            again = open_log(root)
            assert again.partitions[0].end == end  # no offset is used twice
            append(again, end, 2, 0)
            again.close()
            end += 2
        values, gaps, found_end = read_all(root)
        assert found_end == end
        missing = [n for first, stop in gaps for n in range(first, stop)]
        assert sorted(values + missing) == list(range(end))  # each row is read rightly or refused, none twice
        assert values == sorted(values)


@settings(max_examples=40, deadline=None)
@given(batches, st.integers(1, 5))
def test_a_log_stays_within_its_bound_and_keeps_the_newest(plan: list[tuple[int, int, bool]], runs: int) -> None:
    options = LogOptions(partitions=1, max_bytes=16 << 10, segment_bytes=4 << 10)
    with folder() as root:
        for _ in range(runs):
            log = open_log(root, options)
            write(log, [(rows, padding, True) for rows, padding, _ in plan])
            # One segment is being written, one flush may overrun it: a batch here has at most 9 × 1 kB.
            assert log.partitions[0].bytes_kept <= (16 << 10) + (4 << 10) + 10_000
            log.close()
        reader = LogReader(root / "sink-logs" / "x")
        ends = reader.ends(0)
        assert read_all(root)[0] == list(range(ends.first, ends.committed))
        if ends.first:
            with pytest.raises(TrimmedError) as trimmed:
                reader.fetch(0, ends.first - 1, 10, 100)
            assert trimmed.value.first == ends.first


EPOCHS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 900), st.sampled_from("-pc")), min_size=1, max_size=40)
"""(rows, padding, what follows: nothing, a barrier, the commit of the last barrier)."""


def write_epochs(log: LogWriter, plan: list[tuple[int, int, str]]) -> tuple[list[int], int]:
    """Carry out a plan; (ends of epochs that were prepared, index of the last that is committed, or -1)."""
    prepared, committed = [], -1
    for rows, padding, what in plan:
        if rows:
            append(log, log.partitions[0].end, rows, padding)
        if what == "p":
            (end,) = log.prepare()
            prepared.append(end)
        elif what == "c" and committed + 1 < len(prepared):
            committed = len(prepared) - 1
            log.commit_up_to((prepared[committed],), committed + 1)
    return prepared, committed


@settings(max_examples=150, deadline=None)
@given(EPOCHS, st.data())
def test_readers_see_complete_epochs_and_the_register_decides_what_stays(
    plan: list[tuple[int, int, str]], data: st.DataObject
) -> None:
    """A kill anywhere; then the log goes on at the end that the register names: a prepared epoch, known as committed or not."""
    with folder() as root:
        log = open_log(root)
        prepared, committed = write_epochs(log, plan)
        visible = prepared[committed] if committed >= 0 else 0
        assert read_all(root) == (list(range(visible)), [], visible)
        latest = log.partitions[0].end
        abandon(log)
        reader = LogReader(root / "sink-logs" / "x")
        assert reader.ends(0, uncommitted=True).latest == latest
        assert read_all(root) == (list(range(visible)), [], visible)
        keep = data.draw(st.sampled_from(prepared[max(0, committed) :] or [0]))
        again = open_log(root, keep=keep)
        assert again.partitions[0].recovered.lost_from is None
        assert again.partitions[0].end == keep
        assert read_all(root) == (list(range(keep)), [], keep)
        append(again, keep, 3, 5)
        again.close(commits=False)
        assert read_all(root) == (list(range(keep)), [], keep)


@settings(max_examples=60, deadline=None)
@given(EPOCHS)
def test_without_a_register_the_last_local_commit_counts(plan: list[tuple[int, int, str]]) -> None:
    """Also when the small file beside the segments is gone, and epochs are longer than a segment."""
    with folder() as root:
        log = open_log(root)
        prepared, committed = write_epochs(log, plan)
        visible = prepared[committed] if committed >= 0 else 0
        abandon(log)
        (root / "sink-logs" / "x" / "0" / "committed").unlink()
        assert read_all(root) == (list(range(visible)), [], visible)
        again = open_log(root)
        assert again.partitions[0].end == visible
        append(again, visible, 2, 0)
        again.close()
        assert read_all(root) == (list(range(visible + 2)), [], visible + 2)


def test_a_commit_above_the_prepared_or_below_the_committed_epoch_is_refused() -> None:
    with folder() as root:
        log = open_log(root)
        append(log, 0, 5, 0)
        (end,) = log.prepare()
        log.commit_up_to((end,), 1)
        for wrong in (end + 1, end - 1):
            with pytest.raises(LocalProtocolError, match="commit up to"):
                log.commit_up_to((wrong,), 2)
        log.close()


@settings(max_examples=40, deadline=None)
@given(EPOCHS)
def test_open_epochs_are_never_trimmed(plan: list[tuple[int, int, str]]) -> None:
    options = LogOptions(partitions=1, max_bytes=16 << 10, segment_bytes=4 << 10)
    with folder() as root:
        log = open_log(root, options)
        prepared, committed = write_epochs(log, plan)
        visible = prepared[committed] if committed >= 0 else 0
        assert log.partitions[0].first <= visible
        abandon(log)
        if prepared:
            again = open_log(root, options, keep=prepared[-1])
            assert again.partitions[0].end == prepared[-1]
            again.close()
