"""Logs by columns through Spark's readers, without a JVM: the same rows whatever is pushed down to the agent."""

import contextlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import CaseInsensitiveDict

from agiledart_dataflow.data.schema import ReadTime
from agiledart_kernel.errors import OperationFailed
from agiledart_sink_log import segment_rewriter
from agiledart_sink_log.columns_program import rewritten
from agiledart_sink_log.layout import NEVER
from agiledart_sink_log.log_reader import LogReader
from agiledart_sink_log.log_writer import LogOptions, LogWriter
from agiledart_sink_log.protocol import BY_COLUMNS
from agiledart_sink_log.row_form import encoded, row_form
from pyspark_agiledart import DefaultSource, connection
from tests.spark.folder_client import FolderClient

BEGIN = datetime.fromisoformat("2013-01-01 00:00:00")


class Flat(NamedTuple):
    number: int
    text: str | None
    share: float | None
    at: datetime
    day: date | None
    read_at: ReadTime
    is_good: bool | None
    span: timedelta
    money: Decimal


texts = (
    st.none()
    | st.text(st.sampled_from("abé\U0001f600"), max_size=3)
    | st.just("a" * 70)
    | st.just("a" * 63 + "\ud7ff" * 9)
)
flats = st.builds(
    Flat,
    st.integers(-5, 5) | st.sampled_from([-(2**63), 2**63 - 1]),
    texts,
    st.none() | st.sampled_from([0.0, -0.0, 1.5, -1.5, float("nan"), float("inf"), float("-inf")]),
    st.integers(0, 9).map(lambda minutes: BEGIN + timedelta(minutes=minutes)),
    st.none() | st.integers(0, 9).map(lambda days: date(2012, 12, 28) + timedelta(days)),
    st.integers(-3_000, 3_000).map(ReadTime),
    st.none() | st.booleans(),
    st.integers(-5, 5).map(lambda seconds: timedelta(seconds=seconds, microseconds=1)),
    st.integers(-5, 5).map(lambda cents: Decimal(cents) / 4),
)
comparisons = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])


def compared(name: str, values: "st.SearchStrategy[str]") -> "st.SearchStrategy[str]":
    one = st.builds(lambda sign, value: f"{name} {sign} {value}", comparisons, values)
    several = st.lists(values, min_size=1, max_size=3).map(lambda chosen: f"{name} IN ({', '.join(chosen)})")
    return one | several


conditions = st.one_of(
    compared("number", st.integers(-6, 6).map(str) | st.just(str(2**63 - 1))),
    compared("text", st.sampled_from(["'a'", "'b'", "''", "'é'", "'aa'", f"'{'a' * 64}'", f"'{'a' * 70}'"])),
    st.sampled_from(["a", "", "é", "b", "a" * 66]).map(lambda prefix: f"text LIKE '{prefix}%'"),
    compared("share", st.sampled_from(["0", "1.5", "-1.5", "1e300"])),
    compared("at", st.integers(-1, 10).map(lambda minutes: f"'{BEGIN + timedelta(minutes=minutes)}'")),
    compared("day", st.integers(-1, 10).map(lambda days: f"'{date(2012, 12, 28) + timedelta(days)}'")),
    compared(
        "read_at",
        st.sampled_from(["'1970-01-01 00:00:00'", "'1970-01-01 00:00:00.000001'", "'1969-12-31 23:59:59.999998'"]),
    ),
    compared("is_good", st.sampled_from(["true", "false"])),
    compared("span", st.sampled_from(["1", "-2.5", "0"])),
    compared("money", st.sampled_from(["1", "-0.25", "0"])),
    st.builds(
        lambda name, test: f"{name} {test}",
        st.sampled_from(["text", "share", "day", "is_good", "number"]),
        st.sampled_from(["IS NULL", "IS NOT NULL"]),
    ),
)


@contextmanager
def written(rows: list[Flat], batch_rows: int, columns: str = "") -> Iterator[Path]:
    """A log of small segments; full ones are rewritten as columns, few rows a batch."""
    form = row_form(Flat)
    with tempfile.TemporaryDirectory(prefix="adt-columns-") as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_rewriter, "BATCH_ROWS", batch_rows)
        patch.setattr("os.fsync", lambda _: None)
        patch.setattr("os.fdatasync", lambda _: None)
        root = Path(name)
        options = LogOptions(2, max_bytes=1 << 30, segment_bytes=4 << 10, columns=columns)
        log = LogWriter(root, "x", options, form.text, form.fields, "app", 1)
        left = iter(rows)
        number = 0
        while part := list(islice(left, 3)):
            for body, count in encoded([form.plain(row) if form.plain else row for row in part]):
                log.partitions[number % 2].append(body, count)
            log.commit()
            number += 1
        rewritten(root, 1_000, frozenset())
        yield root
        log.close()


def table(client: FolderClient, **options: str) -> list[tuple[Any, ...]]:
    """The rows that a batch reader yields, in order."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "open_client", lambda *_: client)
        source = DefaultSource(CaseInsensitiveDict({"sink": "x", "waitMs": "0", **options}))
        reader = source.reader(source.schema())
        batches = [batch for task in reader.partitions() for batch in reader.read(task)]
        for batch in batches:
            batch.validate(full=True)
        return [tuple(map(str, row.values())) for batch in batches for row in batch.to_pylist()]


NAMES = [str(field["name"]) for field in row_form(Flat).fields]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(flats, min_size=40, max_size=120),
    st.integers(1, 20),
    st.lists(conditions, max_size=2),
    st.lists(st.sampled_from([*NAMES, "_offset", "_partition"]), unique=True, min_size=1),
)
def test_push_down_changes_no_row(rows: list[Flat], batch_rows: int, where: list[str], columns: list[str]) -> None:
    """Columns, some columns of some batches, and rows: three ways to the same rows."""
    options = {"where": " AND ".join(where), "metadata": "true", "columns": ",".join(columns)}
    with written(rows, batch_rows) as root:
        read = table(FolderClient(root), **options)
        assert read == table(FolderClient(root, is_pushed_down=False), **options)
    with written(rows, batch_rows, NEVER) as root:
        assert read == table(FolderClient(root), **options)


def test_a_filter_on_rows_ordered_by_time_reads_few_bytes() -> None:
    rows = [
        Flat(n, f"t{n % 9}", n / 7, BEGIN + timedelta(minutes=n), None, ReadTime(n), True, timedelta(), Decimal(1))
        for n in range(12_000)
    ]
    with written(rows, 120) as root:
        everything, filtered = FolderClient(root), FolderClient(root)
        assert len(table(everything)) == 12_000
        begin, end = BEGIN + timedelta(minutes=6_000), BEGIN + timedelta(minutes=6_120)
        found = table(filtered, where=f"at >= '{begin}' AND at < '{end}'")
        assert len(found) == 120
        assert sum(filtered.sizes) <= 0.05 * sum(everything.sizes)
        assert filtered.left_out[0] > 80
        columns = FolderClient(root)
        table(columns, columns="number")
        assert sum(columns.sizes) < 0.3 * sum(everything.sizes)


@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=400), st.integers(0, 8), st.integers(0, 1 << 20), st.integers(1, 255))
def test_damaged_columns_are_refused_with_one_sentence_or_read_within_their_types(
    other: bytes, number: int, place: int, change: int
) -> None:
    """Columns are users' bytes, whose checksum their writer can make: the reader validates them."""
    rows = [Flat(n, "x", 1.0, BEGIN, None, ReadTime(n), True, timedelta(), Decimal(1)) for n in range(300)]
    with written(rows, 50) as root:
        reader = LogReader(root / "sink-logs" / "x")
        stored = next(one for one in reader.fetch(0, 0, 1_000, 1 << 20)[0] if one.form == BY_COLUMNS)
        flipped = bytearray(stored.parts[number])
        flipped[place % len(flipped)] ^= change
        for forged in (bytes(flipped), other, bytes(stored.parts[number][: place % len(stored.parts[number])])):
            client = FolderClient(root)
            fetch = client.fetch_parts

            def forging(*what: Any, forged: bytes = forged, fetch: Any = fetch, **how: Any) -> Any:
                answer = fetch(*what, **how)
                batches = [
                    one
                    if one.form != BY_COLUMNS
                    else type(one)(
                        one.offset, one.rows, one.form,
                        (*one.parts[:number], memoryview(forged), *one.parts[number + 1 :]), one.at_ms,
                    )
                    for one in answer.batches
                ]  # fmt: skip
                return type(answer)(tuple(batches), answer.next_offset, answer.end)

            client.fetch_parts = forging  # type: ignore[method-assign]
            with contextlib.suppress(OperationFailed):
                table(client)


def test_the_times_of_storing_are_those_of_the_rows(tmp_path: Path) -> None:
    ticks = iter(range(1_000_000_000, 10**15, 1_000_000))
    form = row_form(Flat)
    log = LogWriter(
        tmp_path, "x", LogOptions(1, segment_bytes=4 << 10), form.text, form.fields, clock=lambda: next(ticks)
    )
    for number in range(200):
        row = Flat(number, None, None, BEGIN, None, ReadTime(0), None, timedelta(), Decimal(0))
        [(body, count)] = encoded([row])
        log.partitions[0].append(body, count)
        log.commit()
    options = {"metadata": "true", "columns": "number,_offset,_stored_at"}
    before = table(FolderClient(tmp_path), **options)
    assert rewritten(tmp_path, 100, frozenset()).segments > 2
    assert table(FolderClient(tmp_path), **options) == before
    assert len({at for _, _, at in before}) == 200
    assert before[0][2].startswith(str(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))[:19])
    log.close()
