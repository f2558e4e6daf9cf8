"""The CSV source in columns gives what the CSV source in rows gives: the same rows, the same malformed lines by reason."""

import io
from datetime import datetime
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart import ReadTime
from agiledart_connectors.codecs import csv_columns_reader
from agiledart_connectors.codecs.csv_columns_reader import CsvColumnsReader, supports_columns
from agiledart_connectors.codecs.lines import FileLines
from agiledart_connectors.files.line_reader import CsvReader
from agiledart_dataflow.data.batch import as_rows
from agiledart_kernel.limits import MAX_LINE_BYTES


class Wide(NamedTuple):
    """Each kind of column that columns know, needed and optional."""

    name: str
    count: int  # type: ignore[assignment]  # hides the method of tuples, as users' columns may
    weight: float
    note: str | None
    at: datetime
    limit: int | None
    until: datetime | None
    on: bool
    read_at: ReadTime


GOOD = {
    "text": ("a", "a b", "", "é", "Bronx", "10x", "2013-01-01 00:00:00"),
    "number": ("1", "-2", "007", "12"),
    "real": ("1.5", "-2", ".5", "5.", "1e3", "-0.0", "0.1"),
    "time": ("2013-01-01 00:00:00", "0001-01-01 00:00:00", "9999-12-31 23:59:59"),
    "flag": ("0", "1", "true", "false"),
}
ODD = {
    "text": (" ", " a", "a ", '"a"', '"a,b"', '"a"\rb', "a\tb", "a\x00b", "0x", "\udc80"),
    "number": ("+3", " 4", "5 ", "", "0x1f", "0X1", "1_0", "1.0", "9" * 19, "٣", "-"),
    "real": ("nan", "inf", "-Infinity", "1e999", " 1", "1 ", "", "1,2", "1f", "0x1p3", "1e", "\t1"),
    "time": (
        "",
        "2013-01-01",
        "2013-01-01T00:00:00",
        "2013-02-30 00:00:00",
        "2013-01-01 00:00:60",
        "2013-01-01 00:00+01",
    ),
    "flag": ("True", "TRUE", "", " 1", "yes", "2"),
}
KINDS = ("text", "number", "real", "text", "time", "number", "time", "flag")


def lines_of(odd: bool) -> st.SearchStrategy[str]:
    """Lines of `Wide`."""
    pools = [
        GOOD[kind] + (ODD[kind] if odd else ("",) if place in (3, 5, 6) else ()) for place, kind in enumerate(KINDS)
    ]
    whole = st.tuples(*map(st.sampled_from, pools)).map(",".join)
    return whole | st.sampled_from(["", "a,b", ",,,,,,,,", "\r", " "]) if odd else whole


class Opened(FileLines):
    """The lines of a file that is in memory."""

    def __init__(self, data: bytes, *, skip_header: bool = False) -> None:
        self._data = data
        super().__init__("memory", skip_header=skip_header)

    def _open(self) -> Any:
        return io.BytesIO(self._data)


def everything(reader: Any) -> tuple[list[Any], int, dict[str, int], bool]:
    """(rows, lines, malformed, whether columns came)."""
    rows: list[Any] = []
    lines, malformed, columns = 0, dict[str, int](), False
    while True:
        reading = reader.read(7, 99)
        columns = columns or type(reading.rows) is not list
        rows += as_rows(reading.rows)
        lines += reading.lines
        for reason, count in reading.malformed.items():
            malformed[reason] = malformed.get(reason, 0) + count
        if reading.exhausted:
            return rows, lines, malformed, columns


def check(text: str, wanted: frozenset[str] | None, end: str, header: bool) -> bool:
    """Both readers agree; whether columns came."""
    data = (text + end).encode("utf-8", "surrogateescape")
    by_rows = everything(CsvReader(Opened(data, skip_header=header), Wide))
    by_columns = everything(CsvColumnsReader(Opened(data, skip_header=header), Wide, wanted))
    assert by_columns[:3] == by_rows[:3]
    assert [list(map(type, row)) for row in by_columns[0]] == [list(map(type, row)) for row in by_rows[0]]
    return by_columns[3]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_columns_reader, "_FEW_LINES", 1)
    monkeypatch.setattr(csv_columns_reader, "ROWS_AT_ONCE", 5)
    monkeypatch.setattr(csv_columns_reader, "BLOCK_BYTES", 200)
    monkeypatch.setattr(csv_columns_reader, "_BYTES_AT_ONCE", 1_500)
    monkeypatch.setattr(csv_columns_reader, "_PARSED_BYTES", 256)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(lines_of(odd=True) | lines_of(odd=False), max_size=12),
    st.none() | st.just(frozenset({"name"})) | st.just(frozenset()),
    st.sampled_from(["", "\n", "\r\n"]),
    st.booleans(),
)
def test_columns_equal_rows(lines: list[str], wanted: Any, end: str, header: bool) -> None:
    check("\n".join(lines), wanted, end, header)


@settings(deadline=None, max_examples=100)
@given(st.lists(lines_of(odd=False), min_size=3, max_size=30), st.none() | st.just(frozenset()))
def test_valid_lines_arrive_as_columns(lines: list[str], wanted: Any) -> None:
    assert check("\n".join(lines), wanted, "\n", header=False)


@pytest.mark.parametrize("kind", ODD)
def test_each_oddity_is_handled_alone(kind: str) -> None:
    good = ["a", "1", "1.5", "", "2013-01-01 00:00:00", "", "", "1"]
    for place, of in enumerate(KINDS):
        if of == kind:
            for text in ODD[kind]:
                odd = [*good[:place], text, *good[place + 1 :]]
                check("\n".join(map(",".join, [good, good, odd, good])), frozenset(), "\n", header=False)


def test_bytes_of_another_encoding_are_malformed_though_no_step_asks_for_their_column() -> None:
    line = "\udcff,1,1.5,,2013-01-01 00:00:00,,,1\n"
    assert not check(line * 3, frozenset(), "", header=False)
    data = (line + line.replace("\udcff", "ü")).encode("utf-8", "surrogateescape")
    _, lines, malformed, _ = everything(CsvColumnsReader(Opened(data), Wide, frozenset()))
    assert (lines, malformed) == (2, {"encoding": 1})


def test_lines_that_are_too_long_are_malformed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_columns_reader, "BLOCK_BYTES", 3 * MAX_LINE_BYTES)
    good = "a,1,1.5,,2013-01-01 00:00:00,,,1\n"
    check(good * 20 + "a" * (MAX_LINE_BYTES + 7) + good + good * 20, frozenset(), "", header=False)


def test_rows_parsed_together_are_emitted_in_batches() -> None:
    data = "".join(f"a{n},{n},1.5,,2013-01-01 00:00:00,,,1\n" for n in range(200)).encode()
    reader = CsvColumnsReader(Opened(data), Wide, frozenset())
    sizes: list[int] = []
    seen: list[tuple[str, int]] = []
    while not (reading := reader.read(7, 99)).exhausted:
        sizes.append(len(reading.rows))
        seen += [(row.name, row.count) for row in as_rows(reading.rows)]
    assert seen == [(f"a{n}", n) for n in range(200)]
    assert max(sizes) == 5
    assert sizes.count(5) > 35


class Names(NamedTuple):
    """Text fields only, which are read on demand."""

    first: str
    last: str


def test_unselected_texts_are_still_validated() -> None:
    lines = ["a,b"] * 40
    assert everything(CsvColumnsReader(Opened("\n".join(lines).encode()), Names, frozenset()))[1:] == (40, {}, True)
    lines[20] = "a"
    assert everything(CsvColumnsReader(Opened("\n".join(lines).encode()), Names, frozenset()))[1] == 40


class Sparse(NamedTuple):
    """Nothing that has to be there."""

    at: datetime | None
    name: str
    weight: float | None
    on: bool | None


class Lone(NamedTuple):
    """One column: an empty line is an empty text."""

    name: str
    read_at: ReadTime


@settings(deadline=None)
@given(
    st.sampled_from([Names, Sparse, Lone]),
    st.lists(st.sampled_from(["full", "empty", "commas"]), max_size=40),
    st.none() | st.just(frozenset()),
)
def test_empty_lines_are_handled_when_every_field_is_optional(row_type: Any, kinds: list[str], wanted: Any) -> None:
    full = {Names: "a,b", Sparse: "2013-01-01 00:00:00,a,1.5,1", Lone: "a"}[row_type]
    texts = {"full": full, "empty": "", "commas": "," * full.count(",")}
    data = "".join(texts[kind] + "\n" for kind in kinds).encode()
    by_rows = everything(CsvReader(Opened(data), row_type))
    by_columns = everything(CsvColumnsReader(Opened(data), row_type, wanted))
    assert by_columns[:3] == by_rows[:3]
    assert by_columns[3] or not kinds or ("empty" in kinds and row_type is not Lone)


def test_rows_that_can_arrive_as_columns_are_recognised() -> None:
    assert supports_columns(Wide)
    assert not supports_columns(int)
    assert not supports_columns(tuple[int, str])
