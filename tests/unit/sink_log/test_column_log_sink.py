"""The sink `log:` that is handed columns: it stores them as they are, in the order of all rows."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart import ReadTime
from agiledart_connectors.logs.column_log_sink import ColumnLogSinkWriter
from agiledart_connectors.logs.log_sink import LogSinkWriter
from agiledart_connectors.opening import open_sink
from agiledart_connectors.sink_origin import SinkOrigin
from agiledart_dataflow.data.columns import Columns
from agiledart_dataflow.plan.connectors import parse_connector
from agiledart_sink_log.column_form import ColumnForm
from agiledart_sink_log.columns_program import rewritten
from agiledart_sink_log.layout import log_directory
from agiledart_sink_log.log_reader import LogReader, ReadBatch
from agiledart_sink_log.protocol import BY_COLUMNS, ROWS

pytest.importorskip("pyarrow")
BEGIN = datetime.fromisoformat("2013-01-01 00:00:00")
NOW = 1_700_000_000_000_000_000


class Seen(NamedTuple):
    number: int
    place: str | None
    share: float | None
    at: datetime
    span: timedelta | None
    read_at: ReadTime
    is_good: bool


def seen(number: int, text: str = "é") -> Seen:
    odd = number % 3 == 0
    return Seen(
        number,
        None if odd else text * (number % 4),
        None if odd else number / 3,
        BEGIN + timedelta(microseconds=number),
        timedelta(seconds=-number) if odd else None,
        ReadTime(NOW - number),
        odd,
    )


def opened(root: Path, url: str = "log:x?partitions=2&segment_bytes=4KiB", row_type: Any = Seen) -> Any:
    return open_sink(parse_connector(url), row_type, lambda: NOW, SinkOrigin("app", 1, root))


def stored(root: Path) -> list[ReadBatch]:
    reader = LogReader(log_directory(root, "x"))
    batches: list[ReadBatch] = []
    for partition in range(reader.description.partitions):
        at = 0
        while at < reader.ends(partition).committed:
            some, at, _ = reader.fetch(partition, at, 1_000_000, 1 << 23)
            batches += some
    return batches


def rows_of(root: Path) -> list[Any]:
    form = ColumnForm(LogReader(log_directory(root, "x")).description.fields)
    rows: list[Any] = []
    for batch in stored(root):
        rows += msgspec.msgpack.decode(batch.body if batch.form == ROWS else form.rows_of(batch.parts, batch.rows))
    return rows


def plain(row: Seen) -> Any:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(row))


def test_columns_are_stored_as_columns_and_small_batches_as_rows(tmp_path: Path) -> None:
    sink = opened(tmp_path, "log:x")
    assert isinstance(sink, ColumnLogSinkWriter)
    rows = [seen(number) for number in range(12_020)]
    for start in range(0, 12_000, 1_500):
        sink.write_columns(Columns.from_rows(rows[start : start + 1_500], Seen))
    sink.flush()
    sink.write_columns(Columns.from_rows(rows[12_000:], Seen))
    sink.close()
    assert [(batch.form, batch.rows) for batch in stored(tmp_path)] == [
        (BY_COLUMNS, 10_500),
        (BY_COLUMNS, 1_500),
        (ROWS, 20),
    ]
    assert rows_of(tmp_path) == [plain(row) for row in rows]
    assert sum(times for _, times in sink.latency.to_plain()) == 12_020


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 600), st.booleans()), min_size=1, max_size=8))
def test_rows_and_columns_keep_their_order_after_any_flush_and_rewrite(
    tmp_path_factory: pytest.TempPathFactory, plan: list[tuple[bool, int, bool]]
) -> None:
    root = tmp_path_factory.mktemp("log")
    sink = opened(root, "log:x?segment_bytes=4KiB")
    rows: list[Seen] = []
    for by_columns, count, flushes in plan:
        more = [seen(len(rows) + index) for index in range(count)]
        rows += more
        if by_columns:
            sink.write_columns(Columns.from_rows(more, Seen))
        else:
            sink.write(more)
        if flushes:
            sink.flush()
    sink.close()
    assert rows_of(root) == [plain(row) for row in rows]
    rewritten(root, 1_000, frozenset())
    assert rows_of(root) == [plain(row) for row in rows]


def test_small_batches_by_columns_are_joined_when_their_segment_is_rewritten(tmp_path: Path) -> None:
    sink = opened(tmp_path, "log:x?segment_bytes=64KiB")
    for start in range(0, 9_000, 300):
        sink.write_columns(Columns.from_rows([seen(start + index) for index in range(300)], Seen))
        sink.flush()
    sink.close()
    before = stored(tmp_path)
    assert {batch.form for batch in before} == {BY_COLUMNS}
    assert rewritten(tmp_path, 100, frozenset()).segments >= 1
    after = stored(tmp_path)
    assert len(after) < len(before) / 2
    assert rows_of(tmp_path) == [plain(seen(number)) for number in range(9_000)]


def test_values_without_a_flat_column_come_as_rows(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    rows = [seen(number) for number in range(1_000)]
    rows[500] = rows[500]._replace(at=datetime.fromisoformat("2013-01-01 00:00:00+01:00"))
    sink.write_columns(Columns.from_rows(rows, Seen))
    sink.close()
    assert {batch.form for batch in stored(tmp_path)} == {ROWS}
    assert len(rows_of(tmp_path)) == 1_000


@pytest.mark.parametrize("url", ["log:x?columns=never", "log:x?key=place"])
def test_a_log_with_a_key_or_without_columns_takes_rows(tmp_path: Path, url: str) -> None:
    sink = opened(tmp_path, url)
    assert type(sink) is LogSinkWriter
    sink.close()


def test_without_pyarrow_a_log_takes_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agiledart_connectors.logs.column_log_sink.has_pyarrow", lambda: False)
    sink = opened(tmp_path)
    assert type(sink) is LogSinkWriter
    sink.close()


def test_an_unknown_choice_of_columns_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="columns is auto or never, not 'yes'"):
        opened(tmp_path, "log:x?columns=yes")
