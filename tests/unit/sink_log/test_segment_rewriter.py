"""Rewriting of full segments as columns: the same rows at the same offsets, whatever happens meanwhile."""

import os
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agiledart_dataflow.data.schema import ReadTime
from agiledart_sink_log import segment_rewriter
from agiledart_sink_log.column_form import ColumnForm
from agiledart_sink_log.column_index import ZoneCondition
from agiledart_sink_log.columns_program import rewritten
from agiledart_sink_log.layout import AUTO, NEVER, committed_bytes, segments_of
from agiledart_sink_log.log_reader import DamagedError, LogReader, ReadSelection
from agiledart_sink_log.log_writer import LogOptions, LogWriter
from agiledart_sink_log.protocol import BY_COLUMNS, LEFT_OUT, ROWS
from agiledart_sink_log.row_form import encoded, row_form
from agiledart_sink_log.segment_rewriter import full_segments

pytest.importorskip("pyarrow")


BEGIN = datetime.fromisoformat("2013-01-01 00:00:00")


class Measured(NamedTuple):
    number: int
    at: datetime
    place: str | None
    share: float
    day: date
    span: timedelta
    money: Decimal | None
    read_at: ReadTime
    raw: bytes
    is_good: bool


def measured(number: int) -> Measured:
    return Measured(
        number,
        BEGIN + timedelta(seconds=number, microseconds=number % 3),
        None if number % 7 == 0 else f"p{number % 5}",
        number / 3,
        date(2013, 1, 1 + number % 28),
        timedelta(microseconds=number),
        None if number % 4 else Decimal(number) / 4,
        ReadTime(1_700_000_000_000_000_000 + number),
        b"\x00" * (number % 3),
        number % 2 == 0,
    )


def log_of(root: Path, **options: Any) -> LogWriter:
    form = row_form(Measured)
    return LogWriter(root, "x", LogOptions(1, segment_bytes=16 << 10, **options), form.text, form.fields, "app", 1)


def append(log: LogWriter, count: int, batch: int = 50) -> None:
    for start in range(log.partitions[0].end, log.partitions[0].end + count, batch):
        for body, rows in encoded([measured(start + n) for n in range(batch)]):
            log.partitions[0].append(body, rows)
        log.commit()


def rows_of(root: Path, selection: ReadSelection | None = None) -> list[Any]:
    """Every row of the log in order, columns turned to rows."""
    reader = LogReader(root / "sink-logs" / "x")
    form = ColumnForm(reader.description.fields)
    at, rows = reader.ends(0).first, []
    while at < reader.ends(0).committed:
        batches, following, _ = reader.fetch(0, at, 1_000, 20_000)
        assert following > at
        for batch in batches:
            body = batch.body if batch.form == ROWS else form.rows_of(batch.parts, batch.rows)
            decoded = msgspec.msgpack.decode(body)
            assert len(decoded) == batch.rows
            rows += decoded[max(0, at - batch.offset) :]
            at = batch.offset + batch.rows
    return rows


def comparable(row: Any) -> Any:
    return [Decimal(value) if place == 6 and value is not None else value for place, value in enumerate(row)]


def test_rewritten_segments_hold_the_same_rows_at_the_same_offsets(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    append(log, 3_000)
    folder = log.directory / "0"
    before = rows_of(tmp_path)
    changed = {one.base: one.path.stat().st_mtime_ns for one in segments_of(folder)}
    sizes = sum(one.path.stat().st_size for one in segments_of(folder))
    found = rewritten(tmp_path, 100, frozenset())
    assert found.segments == len(changed) - 1 > 5
    assert (found.left, found.failure, list(full_segments(tmp_path))) == ((), "", [])
    assert [comparable(row) for row in rows_of(tmp_path)] == [comparable(row) for row in before]
    assert {one.base: one.path.stat().st_mtime_ns for one in segments_of(folder)} == changed
    assert sum(one.path.stat().st_size for one in segments_of(folder)) < sizes
    append(log, 500)
    log.close()
    again = log_of(tmp_path)
    assert again.partitions[0].end == 3_500
    assert again.notes() == []
    again.close()
    assert [row[0] for row in rows_of(tmp_path)] == list(range(3_500))
    (folder / "committed").unlink()
    assert LogReader(log.directory).ends(0).committed == 3_500


def test_an_open_reader_finds_rows_in_a_segment_that_was_rewritten_meanwhile(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    append(log, 3_000)
    reader = LogReader(log.directory)
    first = [reader.fetch(0, at, 1, 1)[0][0].offset for at in range(0, 3_000, 130)]
    rewritten(tmp_path, 100, frozenset())
    for at in range(0, 3_000, 130):
        batch = reader.fetch(0, at, 1, 1)[0][0]
        assert batch.offset <= at < batch.offset + batch.rows
    assert first[-1] > 2_800
    log.close()


def test_batches_and_columns_are_left_out_of_an_answer(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    append(log, 3_000)
    rewritten(tmp_path, 100, frozenset())
    reader = LogReader(log.directory)
    wanted = ReadSelection((0, 2), (ZoneCondition(0, ">=", (1_000,)), ZoneCondition(0, "<", (1_010,))))
    batches, _, end = reader.fetch(0, 0, 1_000_000, 1 << 20, selection=wanted)
    assert end == 3_000
    assert sum(batch.rows for batch in batches) == 3_000
    assert all(one.offset + one.rows == other.offset for one, other in pairwise(batches))
    by_columns = [batch for batch in batches if batch.form == BY_COLUMNS]
    assert len(by_columns) == 1  # of ten and more
    assert by_columns[0].offset <= 1_000 < by_columns[0].offset + by_columns[0].rows
    form = ColumnForm(reader.description.fields)
    assert form.decoded(0, by_columns[0].parts[0], by_columns[0].rows).to_pylist()[0] == by_columns[0].offset
    assert len(by_columns[0].parts) == 2
    assert batches[0].form == LEFT_OUT
    assert batches[0].left_out > 0 == batches[0].size
    log.close()


def test_times_of_storing_outlive_the_rewriting(tmp_path: Path) -> None:
    ticks = iter(range(1_000_000_000, 10**15, 1_000_000))
    form = row_form(Measured)
    log = LogWriter(
        tmp_path,
        "x",
        LogOptions(1, segment_bytes=16 << 10),
        form.text,
        form.fields,
        "app",
        1,
        clock=lambda: next(ticks),
    )
    append(log, 2_000)
    reader = LogReader(log.directory)
    before = [at for batch in reader.fetch(0, 0, 10_000, 1 << 23)[0] for at in [batch.at_ms] * batch.rows]
    rewritten(tmp_path, 100, frozenset())
    after: list[int] = []
    columns = ColumnForm(reader.description.fields)
    for batch in reader.fetch(0, 0, 10_000, 1 << 23, selection=ReadSelection((10,)))[0]:
        stored = batch.parts[0] if batch.form == BY_COLUMNS else b""
        after += columns.decoded(10, stored, batch.rows).to_pylist() if stored else [batch.at_ms] * batch.rows
    assert after == before
    assert len(set(after)) > 10
    log.close()


@pytest.mark.parametrize("what", ["never", "old", "nested", "open", "uncommitted"])
def test_segments_that_must_stay_rows_are_not_rewritten(tmp_path: Path, what: str) -> None:
    if what == "nested":
        form = row_form(tuple[int, list[int]])
        log = LogWriter(tmp_path, "x", LogOptions(1, segment_bytes=4 << 10), form.text, form.fields, "app", 1)
        for number in range(200):
            log.partitions[0].append(msgspec.msgpack.encode([[number, [1] * 20]]), 1)
            log.commit()
    else:
        log = log_of(tmp_path, columns=NEVER if what == "never" else AUTO)
        append(log, 50 if what == "open" else 1_000)
    if what == "old":
        for name in ("log.json", "log.json.good"):
            (log.directory / name).unlink(missing_ok=True)
        (log.directory / "log.json").write_bytes(
            msgspec.json.encode(msgspec.structs.replace(log.description, columns=""))
        )
    if what == "uncommitted":
        (log.directory / "0" / "committed").write_bytes(committed_bytes(0, 10))
    assert (len(segments_of(log.directory / "0")) > 1) == (what != "open")
    assert rewritten(tmp_path, 100, frozenset()).segments == 0
    log.close()


def test_a_value_without_a_flat_column_leaves_its_batches_rows(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    append(log, 500)
    odd = measured(500)._replace(money=Decimal(1).scaleb(-20))
    [(body, count)] = list(encoded([odd]))
    log.partitions[0].append(body, count)
    append(log, 1_500)
    before = [comparable(row) for row in rows_of(tmp_path)]
    assert rewritten(tmp_path, 100, frozenset()).segments > 3
    assert [comparable(row) for row in rows_of(tmp_path)] == before
    open_segment = segments_of(log.directory / "0")[-1].base
    batches = LogReader(log.directory).fetch(0, 0, 10_000, 1 << 23)[0]
    rows = [batch for batch in batches if batch.form == ROWS and batch.offset < open_segment]
    assert 1 < len(rows) < 10  # of the one segment with the odd value
    assert rows[0].offset <= 500 < rows[-1].offset + rows[-1].rows
    log.close()


def test_a_damaged_segment_stays_as_it_is(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    append(log, 1_000)
    second = segments_of(log.directory / "0")[1]
    raw = bytearray(second.path.read_bytes())
    raw[3_000] ^= 1
    second.path.write_bytes(raw)
    found = rewritten(tmp_path, 100, frozenset())
    assert found.left == (("x", 0, second.base),)
    assert second.path.read_bytes() == raw
    assert rewritten(tmp_path, 100, frozenset(found.left)).left == ()
    log.close()


def test_a_segment_trimmed_during_its_rewriting_does_not_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_of(tmp_path)
    append(log, 1_000)
    folder = log.directory / "0"
    first, second = segments_of(folder)[:2]
    replace = os.replace

    def trims_first(source: Any, target: Any) -> None:
        if Path(target).name == first.path.name:
            (folder / "committed").write_bytes(committed_bytes(second.base, log.partitions[0].end))
            first.path.unlink()
        replace(source, target)

    monkeypatch.setattr(os, "replace", trims_first)
    rewritten(tmp_path, 1, frozenset())
    assert segments_of(folder)[0].base == second.base
    log.close()


@pytest.mark.parametrize("keep", [700, 730, 750, 1_001])
def test_a_run_that_goes_back_within_a_batch_by_columns_cuts_its_rows_off(tmp_path: Path, keep: int) -> None:
    form = row_form(Measured)
    what = (tmp_path, "x", LogOptions(1, segment_bytes=16 << 10), form.text, form.fields, "app", 1)
    log = LogWriter(*what)
    for start in range(0, 2_000, 10):
        for body, rows in encoded([measured(start + n) for n in range(10)]):
            log.partitions[0].append(body, rows)
        log.commit_up_to(log.prepare(), start // 10 + 1)
    log.close(commits=False)
    assert rewritten(tmp_path, 100, frozenset()).segments > 3
    again = LogWriter(*what, keep=(keep,))
    assert (again.partitions[0].end, again.notes()[1:]) == (keep, [])
    assert [row[0] for row in rows_of(tmp_path)] == list(range(keep))
    for body, rows in encoded([measured(number) for number in range(5_000, 5_010)]):
        again.partitions[0].append(body, rows)
    again.commit_up_to(again.prepare(), 9)
    again.close(commits=False)
    assert [row[0] for row in rows_of(tmp_path)] == [*range(keep), *range(5_000, 5_010)]
    (again.directory / "0" / "committed").unlink()
    assert LogReader(again.directory).ends(0).committed == keep + 10
    rewritten(tmp_path, 100, frozenset())
    assert [row[0] for row in rows_of(tmp_path)] == [*range(keep), *range(5_000, 5_010)]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 1 << 30), st.integers(0, 7), st.booleans())
def test_any_flipped_bit_of_columns_is_detected_and_no_wrong_row_is_served(
    golden: Path, where: int, bit: int, reopens: bool
) -> None:
    folder = golden / "sink-logs" / "x" / "0"
    segments = segments_of(folder)
    segment = segments[where % (len(segments) - 1)]
    right = segment.path.read_bytes()
    flipped = bytearray(right)
    flipped[where % len(flipped)] ^= 1 << bit
    try:
        segment.path.write_bytes(flipped)
        if reopens:
            log = log_of(golden)
            assert log.partitions[0].end == 1_000
            log.close()
        reader = LogReader(golden / "sink-logs" / "x")
        form = ColumnForm(reader.description.fields)
        numbers: list[int] = []
        missing: list[int] = []
        at = 0
        while at < 1_000:
            try:
                batches, _, _ = reader.fetch(0, at, 100, 2_000, selection=ReadSelection((0,)))
            except DamagedError as damage:
                batches, good = [], damage.next_good
                missing += range(at, good)
                at = max(good, at + 1)
            for batch in batches:
                rows = (
                    [row[0] for row in msgspec.msgpack.decode(batch.body)]
                    if batch.form == ROWS
                    else form.decoded(0, batch.parts[0], batch.rows).to_pylist()
                )
                numbers += rows[at - batch.offset :]
                at = batch.offset + batch.rows
        assert sorted(numbers + missing) == list(range(1_000))
        assert len(missing) <= segments[1].base
    finally:
        segment.path.write_bytes(right)


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of a thousand rows, full segments by columns of 50 rows a batch."""
    root = tmp_path_factory.mktemp("columns")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_rewriter, "BATCH_ROWS", 50)
        log = log_of(root)
        append(log, 1_000, 10)
        rewritten(root, 100, frozenset())
        log.close()
    return root
