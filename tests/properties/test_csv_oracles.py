"""CSV as Python's and polars' readers have it: quotes, line ends within them, several delimiters; by rows and by columns."""

import csv
import io
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart_connectors.codecs.decoder_options import CsvDialect
from agiledart_connectors.codecs.quoted_records import quoted_records
from agiledart_connectors.opening import open_source
from agiledart_dataflow.data.batch import as_rows
from agiledart_dataflow.plan.connectors import Connector


class Three(NamedTuple):
    """A row of texts."""

    a: str
    b: str
    c: str


_CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\r"), max_size=8) | st.sampled_from(
    ["", '"', '""', "\n", "a\nb", "\r\n", ",", ";", " ", "NULL", '"\n"', "x,y", "'"]
)
_ROWS = st.lists(st.tuples(_CELLS, _CELLS, _CELLS), min_size=1, max_size=30)
_ENDS = st.sampled_from(["\n", "\r\n"])
_DELIMITERS = st.sampled_from([",", ";", "\t", "|"])


def written(rows: list[tuple[str, ...]], end: str, delimiter: str, quoting: Any) -> str:
    """The rows as Python writes them."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=end, delimiter=delimiter, quoting=quoting).writerows(rows)
    return text.getvalue()


def read(text: str, delimiter: str, *, columns: bool = False) -> tuple[list[Any], dict[str, int], int]:
    """(rows, malformed, lines) of a file."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "in.csv"
        path.write_bytes(text.encode())
        options = (("delimiter", delimiter), ("header", "0"))
        reader = open_source(Connector("csv", str(path), options), Three, columns=columns)
        rows: list[Any] = []
        malformed: dict[str, int] = {}
        lines = 0
        is_over = False
        while not is_over:
            reading = reader.read(7, 0)
            is_over = reading.exhausted
            rows += as_rows(reading.rows)
            lines += reading.lines
            for reason, count in reading.malformed.items():
                malformed[reason] = malformed.get(reason, 0) + count
        reader.close()
        return rows, malformed, lines


@settings(max_examples=150)
@given(_ROWS, _ENDS, _DELIMITERS, st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]), st.booleans())
def test_files_of_python_are_read(
    rows: list[tuple[str, ...]], end: str, delimiter: str, quoting: int, columns: bool
) -> None:
    text = written([("begin", "", ""), *rows], end, delimiter, quoting)
    expected = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    got, malformed, lines = read(text, delimiter, columns=columns)
    assert (got, malformed, lines) == ([Three(*row) for row in expected], {}, len(rows) + 1)


@settings(max_examples=100)
@given(_ROWS, _ENDS)
def test_polars_reads_the_same(rows: list[tuple[str, ...]], end: str) -> None:
    pl = pytest.importorskip("polars")
    text = written([("begin", "", ""), *rows], end, ",", csv.QUOTE_ALL)
    frame = pl.read_csv(text.encode(), has_header=False, infer_schema=False).fill_null("")
    got, malformed, _ = read(text, ",")
    assert ([tuple(row) for row in got], malformed) == (frame.rows(), {})


@settings(max_examples=200)
@given(_ROWS, _ENDS, st.integers(1, 40))
def test_records_are_the_same_however_the_lines_come(rows: list[tuple[str, ...]], end: str, lines_at_once: int) -> None:
    data = written(list(rows), end, ",", csv.QUOTE_MINIMAL).encode()
    whole = quoted_records(data, CsvDialect(), is_end=True)
    parts: list[list[str]] = []
    waiting = b""
    lines = [line + b"\n" for line in data.split(b"\n")[:-1]]
    for start in range(0, len(lines), lines_at_once):
        waiting += b"".join(lines[start : start + lines_at_once])
        cut = quoted_records(waiting, CsvDialect(), is_end=False)
        parts += [record.cells for record in cut.records]
        waiting = waiting[cut.size :]
    assert waiting == b""
    expected = [row or [""] for row in csv.reader(io.StringIO(data.decode(), newline=""))]
    assert parts == [record.cells for record in whole.records] == expected


@settings(max_examples=200)
@given(st.lists(st.text('ab,"\n \r', max_size=12), max_size=12), st.booleans())
def test_each_record_is_a_row_or_malformed(lines: list[str], columns: bool) -> None:
    rows, malformed, counted = read("\n".join(lines), ",", columns=columns)
    assert len(rows) + sum(malformed.values()) == counted


@settings(max_examples=100)
@given(st.lists(st.text('ab,"', max_size=8), max_size=8))
def test_a_stray_quote_costs_no_neighbour(lines: list[str]) -> None:
    odd = [line for line in lines if line.count('"') % 2]
    good = ["x,y,z"] * 3
    rows, _, _ = read("\n".join([*good, *odd[:1], *good]), ",")
    assert rows.count(Three("x", "y", "z")) == 6
