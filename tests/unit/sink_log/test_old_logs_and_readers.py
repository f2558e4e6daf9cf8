"""Logs, requests and answers of the release before logs had columns: golden files and bytes, which no change may touch."""

import shutil
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from agiledart_kernel.codec import Codec
from agiledart_sink_log.column_form import ColumnForm
from agiledart_sink_log.column_index import ZoneCondition
from agiledart_sink_log.columns_program import rewritten
from agiledart_sink_log.layout import AUTO
from agiledart_sink_log.log_reader import LogReader
from agiledart_sink_log.log_writer import LogOptions, LogWriter
from agiledart_sink_log.protocol import BY_COLUMNS, ROWS, Fetch, Fetched, LogRequest, StoredBatch
from agiledart_sink_log.row_form import encoded, row_form

GOLDEN = Path(__file__).parent / "golden"


class Reading(NamedTuple):
    number: int
    place: str | None
    celsius: float
    at: datetime


def reading(number: int) -> Reading:
    at = datetime.fromisoformat("2013-01-01 00:00:00") + timedelta(seconds=number)
    return Reading(number, None if number % 5 == 0 else f"p{number % 3}", number / 4, at)


EXPECTED = [[number, place, celsius, at.isoformat()] for number, place, celsius, at in map(reading, range(120))]


def copied(tmp_path: Path, name: str) -> Path:
    shutil.copytree(GOLDEN / name, tmp_path / name)
    return tmp_path / name


def rows_in(root: Path) -> tuple[list[Any], set[int]]:
    """Every row, and the forms of stored batches."""
    reader = LogReader(root / "sink-logs" / "golden")
    batches, _, end = reader.fetch(0, 0, 1_000, 1 << 20)
    rows: list[Any] = []
    for batch in batches:
        form = ColumnForm(reader.description.fields)
        body = form.rows_of(batch.parts, batch.rows) if batch.form == BY_COLUMNS else batch.body
        rows += msgspec.msgpack.decode(body)
    assert len(rows) == end
    return rows, {batch.form for batch in batches}


def append(root: Path, count: int) -> None:
    form = row_form(Reading)
    log = LogWriter(root, "golden", LogOptions(segment_bytes=4 << 10), form.text, form.fields, "app", 2)
    assert log.notes() == []
    for number in range(120, 120 + count, 8):
        [(body, rows)] = encoded([reading(number + index) for index in range(8)])
        log.partitions[0].append(body, rows)
        log.commit()
    log.close()


def test_a_log_of_the_last_release_is_read_and_goes_on(tmp_path: Path) -> None:
    root = copied(tmp_path, "rows")
    assert rows_in(root) == (EXPECTED, {ROWS})
    assert rewritten(root, 100, frozenset()).segments == 0  # until a writer of this release has opened it
    append(root, 80)
    rows, forms = rows_in(root)
    assert (rows[:120], len(rows), forms) == (EXPECTED, 200, {ROWS})
    assert LogReader(root / "sink-logs" / "golden").description.columns == AUTO
    pytest.importorskip("pyarrow")
    assert rewritten(root, 100, frozenset()).segments == 2
    assert rows_in(root) == (rows, {ROWS, BY_COLUMNS})


def test_a_log_by_columns_is_read_and_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    root = copied(tmp_path, "columns")
    assert rows_in(root) == (EXPECTED, {ROWS, BY_COLUMNS})
    append(root, 8)
    assert rows_in(root)[0] == EXPECTED + [
        [*reading(number)[:3], reading(number).at.isoformat()] for number in range(120, 128)
    ]


REQUEST: Codec[LogRequest] = Codec(LogRequest)


def test_requests_and_answers_of_the_last_release_mean_the_same() -> None:
    old = bytes.fromhex("99ccea07a4747269700203ce000186a0ce0010000000c2")
    assert REQUEST.decode(old) == Fetch(7, "trip", 2, 3)
    assert Fetch(7, "trip", 2, 3).columns is None  # so an agent answers with rows
    new = REQUEST.encode(Fetch(7, "trip", 2, 3, columns=(0, 2), where=(ZoneCondition(1, "=", ("x",)),)))
    assert new[1 : len(old)] == old[1:]  # an older agent reads the same request, and ignores what follows
    answer = Fetched(7, 2, (StoredBatch(3, 1, b"\x91\x01", 5),), 4, 4, "id")
    assert msgspec.msgpack.encode(answer).hex() == "97cceb070291940301c4029101050404a26964"
