"""Sinks: how rows look as text, latencies, files that cannot be written."""

import json
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart import Change, ReadTime
from agiledart_connectors.codecs.rendering import columns_of, elapsed_ms, plain_number
from agiledart_connectors.opening import open_sink, open_source
from agiledart_dataflow.plan.connectors import Connector, parse_connector
from agiledart_kernel.errors import ConfigurationError, OperationFailed


class Cell(NamedTuple):
    """A nested row."""

    east: int
    south: int


class Report(NamedTuple):
    """One of each kind of field."""

    at: datetime
    name: str | None
    cells: list[Cell]
    share: float
    money: Decimal
    good: bool
    delay: ReadTime


@dataclass(frozen=True)
class Note:
    """A dataclass row."""

    text: str
    delay: ReadTime


REPORT = Report(
    datetime.fromisoformat("2013-01-01 00:02:00"),
    None,
    [Cell(1, 2), Cell(3, 4)],
    1e-7,
    Decimal("1E+3"),
    True,
    ReadTime(5_000_000),
)


def written(connector: Connector, row_type: Any, rows: list[Any], now: int = 6_234_567) -> Any:
    """The writer after these rows, closed."""
    writer = open_sink(connector, row_type, lambda: now)
    writer.write(rows)
    writer.close()
    writer.close()
    return writer


def test_csv_flattens_rows(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    writer = written(Connector("csv", str(path)), Report, [REPORT])
    assert path.read_text() == "2013-01-01 00:02:00,NULL,1,2,3,4,0.0000001,1000,true,1.234\n"
    assert writer.latency.samples == 1


def test_jsonl_keeps_names_and_nesting(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    written(Connector("jsonl", str(path)), Report, [REPORT])
    (line,) = path.read_text().splitlines()
    row = json.loads(line)
    assert row["cells"] == [{"east": 1, "south": 2}, {"east": 3, "south": 4}]
    assert (row["name"], row["good"], row["delay"]) == (None, True, 1.234)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (-1e-9, "-0.000000001"),
        (1.5, "1.5"),
        (1e20, "100000000000000000000"),
        (1 / 3, "0.3333333333333333"),
        (-2.0000004, "-2.0000004"),
        (Decimal("1E-7"), "0.0000001"),
        (Decimal("12.345678901"), "12.345678901"),
    ],
)
def test_numbers_are_plain_decimals(value: float | Decimal, text: str) -> None:
    assert plain_number(value) == text


def test_places_may_be_limited() -> None:
    assert [plain_number(value, 6) for value in (1 / 3, -1e-9, -2.0000004, 1e20, 7.5)] == [
        *("0.333333", "0", "-2", "100000000000000000000", "7.5")
    ]


@given(st.floats(allow_nan=False, allow_infinity=False) | st.decimals(allow_nan=False, allow_infinity=False))
def test_numbers_are_read_back_equal(value: float | Decimal) -> None:
    assert type(value)(plain_number(value)) == value


class Mixed(NamedTuple):
    """A row of every kind of column."""

    text: str
    word: str | None
    number: float
    total: int | None
    at: datetime
    is_on: bool
    amount: Decimal
    until: datetime | None


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    ["", "NULL", '"', '""', ",", "\n", "\r\n", "a,b", "1e2", ";", "\ufeff"]
)
_FLOATS = st.floats(allow_nan=False, allow_infinity=False)
_ROWS = st.builds(
    Mixed,
    _TEXTS,
    st.none() | _TEXTS,
    _FLOATS,
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.datetimes(),
    st.booleans(),
    st.decimals(allow_nan=False, allow_infinity=False, places=4),
    st.none() | st.datetimes(),
)


@settings(max_examples=150)
@given(st.lists(_ROWS, min_size=1, max_size=8), st.sampled_from(["", "delimiter=;&decimal=,", "delimiter=tab&null=-"]))
def test_csv_that_was_written_is_read_back_equal(rows: list[Mixed], options: str) -> None:
    with TemporaryDirectory() as folder:
        url = f"csv:{folder}/rows.csv" + (f"?{options}" if options else "")
        written(parse_connector(url), Mixed, rows)
        header = "&header=0" if options else "?header=0"
        reading = open_source(parse_connector(url + header), Mixed).read(1_000, 0)
        assert (reading.rows, reading.malformed) == (rows, {})


@pytest.mark.parametrize(("read_at", "now", "text"), [(0, 1_500_000, "1.500"), (0, 999, "0.000"), (9, 5, "0.000")])
def test_delays_have_three_decimals_and_are_never_negative(read_at: int, now: int, text: str) -> None:
    assert elapsed_ms(read_at, now) == text


@pytest.mark.parametrize(
    ("kind", "value", "columns"),
    [
        (str, 'a,"b"', ['"a,""b"""']),
        (str, "a\nb", ['"a\nb"']),
        (int, 7, ["7"]),
        (tuple[int, str], (1, "x"), ["1", "x"]),
        (Change[str, int, None], Change("k", None, None), ["k", "-", "-"]),
        (list[Cell | None], [Cell(1, 2), None], ["1", "2", "-"]),
    ],
)
def test_columns_are_formatted_by_type(kind: Any, value: Any, columns: list[str]) -> None:
    got: list[str] = []
    columns_of(kind, "-")(value, 0, got)
    assert got == columns


def test_standard_output_is_not_closed(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    written(Connector("stdout"), Note, [Note("x", ReadTime(0))])
    written(Connector("stdout", "", (("format", "jsonl"),)), Note, [Note("x", ReadTime(0))])
    assert capfdbinary.readouterr().out == b'x,6.234\n{"text":"x","delay":6.234}\n'


def test_null_counts_latencies_only() -> None:
    writer = written(Connector("null"), Note, [Note("x", ReadTime(0))] * 3)
    assert (writer.latency.samples, writer.rows) == (3, None)


@pytest.mark.parametrize("path", ["missing/out.csv", "."])
def test_a_file_that_cannot_be_written_is_named(path: str, tmp_path: Path) -> None:
    with pytest.raises(OperationFailed, match=str(tmp_path)):
        open_sink(Connector("csv", str(tmp_path / path)), Note)


def test_a_full_disk_is_reported_with_the_path() -> None:
    writer = open_sink(Connector("csv", "/dev/full"), Note)
    writer.write([Note("x", ReadTime(0))])
    with pytest.raises(OperationFailed, match="/dev/full cannot be written: no space"):
        writer.flush()


@pytest.mark.parametrize(
    ("connector", "words"),
    [
        (Connector("taxi"), "no sink 'taxi'"),
        (Connector("csv"), "needs a path"),
        (Connector("stdout", "", (("format", "xml"),)), "csv or jsonl"),
        (Connector("jsonl", "x", (("null", "-"),)), "no option 'null'"),
    ],
)
def test_invalid_connectors_are_rejected(connector: Connector, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        open_sink(connector, Note)
