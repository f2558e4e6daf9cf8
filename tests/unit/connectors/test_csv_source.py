"""The CSV source: every malformed line is counted by its reason, none stops the run or swallows another."""

import csv
import gzip
import io
import sys
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agiledart import ReadTime
from agiledart_connectors.codecs.lines import BLOCK_BYTES, FileLines, GeneratedLines
from agiledart_connectors.codecs.malformed_examples import MalformedExamples
from agiledart_connectors.codecs.row_parser import RowParser
from agiledart_connectors.files.line_reader import CsvReader
from agiledart_connectors.opening import open_source
from agiledart_dataflow.plan.connectors import Connector, Reading
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_kernel.limits import MAX_LINE_BYTES


class Row(NamedTuple):
    """One of each kind of column."""

    name: str
    at: datetime
    count: int  # type: ignore[assignment]  # hides the method of tuples, as users' columns may
    weight: float
    price: Decimal
    read_at: ReadTime
    note: float | None


GOOD = "a,2013-01-01 00:02:00,7,1.5,2.50,"


def read_all(reader: Any, at_once: int = 7) -> Reading:
    """Everything, as one reading."""
    rows: list[Any] = []
    malformed: dict[str, int] = {}
    lines = 0
    while True:
        reading = reader.read(at_once, 99)
        rows += reading.rows
        lines += reading.lines
        for reason, count in reading.malformed.items():
            malformed[reason] = malformed.get(reason, 0) + count
        if reading.exhausted:
            return Reading(rows, lines, malformed, exhausted=True)


def read(data: bytes, tmp_path: Path, row_type: Any = Row) -> Reading:
    """Result of reading a file."""
    path = tmp_path / "data.csv"
    path.write_bytes(data)
    return read_all(CsvReader(FileLines(str(path)), row_type))


def test_a_good_line_becomes_a_typed_row(tmp_path: Path) -> None:
    (row,) = read(GOOD.encode() + b"\n", tmp_path).rows
    assert row == Row("a", datetime.fromisoformat("2013-01-01 00:02:00"), 7, 1.5, Decimal("2.50"), ReadTime(99), None)
    assert [type(value) for value in row[:5]] == [str, datetime, int, float, Decimal]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "columns"),
        ("a", "columns"),
        (GOOD + ",", "columns"),
        (GOOD[:-1], "columns"),
        ("," * 6, "columns"),
        ('"a"\rb' + GOOD[1:], "columns"),
        ('x\ry"' + GOOD[1:], "columns"),
        (f'"{"a" * (csv.field_size_limit() + 1)}"' + GOOD[1:], "columns"),
        (GOOD.replace("1.5", ""), "number"),
        (GOOD.replace("1.5", "nan"), "number"),
        (GOOD.replace("1.5", "inf"), "number"),
        (GOOD.replace("1.5", "-Infinity"), "number"),
        (GOOD.replace("1.5", "1e999"), "number"),
        (GOOD.replace("1.5", "1_5"), "number"),
        (GOOD.replace("1.5", " 1.5"), "number"),
        (GOOD.replace("1.5", "1.5 "), "number"),
        (GOOD.replace("1.5", "0x10"), "number"),
        (GOOD.replace("1.5", "1,5"), "columns"),
        (GOOD.replace("1.5", "١"), "number"),
        (GOOD.replace("1.5", "."), "number"),
        (GOOD.replace("1.5", "1.5\x00"), "number"),
        (GOOD.replace(",7,", ",7.0,"), "number"),
        (GOOD.replace(",7,", ",+,"), "number"),
        (GOOD.replace(",7,", f",{'9' * 5_000},"), "number"),
        (GOOD.replace(",7,", f",{1 << 64},"), "number"),
        (GOOD.replace(",7,", f",{-(1 << 63) - 1},"), "number"),
        (GOOD.replace("2.50", "NaN"), "number"),
        (GOOD.replace("2.50", "1e999"), "number"),
        (GOOD.replace("2.50", "2_50"), "number"),
        (GOOD + "x", "number"),
        (GOOD + "nan", "number"),
        (GOOD.replace("2013-01-01 00:02:00", "2013-02-30 00:02:00"), "time"),
        (GOOD.replace("2013-01-01 00:02:00", "2013-01-01 24:00:00"), "time"),
        (GOOD.replace("2013-01-01 00:02:00", "2013-1-1 00:02:00"), "time"),
        (GOOD.replace("2013-01-01 00:02:00", " 2013-01-01 00:02:00"), "time"),
        (GOOD.replace("2013-01-01 00:02:00", "２013-01-01 00:02:00"), "time"),
        (GOOD.replace("2013-01-01 00:02:00", ""), "time"),
        (GOOD.replace("2013-01-01 00:02:00", "x").replace("1.5", "x"), "time"),
        (GOOD.replace(",7,", ",x,").replace("2.50", "x"), "number"),
    ],
)
def test_a_malformed_line_is_counted_by_the_first_reason_from_the_left(line: str, reason: str, tmp_path: Path) -> None:
    lines = [GOOD, line, GOOD]
    got = read("\n".join(lines).encode() + b"\n", tmp_path)
    assert (got.lines, got.malformed, len(got.rows)) == (3, {reason: 1}, 2)
    alone = read_all(CsvReader(GeneratedLines(iter([line]), "x"), Row))
    assert (alone.lines, alone.malformed, alone.rows) == (1, {reason: 1}, [])


@pytest.mark.parametrize("text", ["1.5", "+1.5", "-1.5", "1.", ".5", "15e-1", "1.5E+0", "0001.5"])
def test_decimal_numbers_of_every_form_are_read(text: str, tmp_path: Path) -> None:
    (row,) = read(GOOD.replace("1.5", text).encode(), tmp_path).rows
    assert row.weight == float(text)


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (b"", []),
        (b"x\n", ["x"]),
        (b"x", ["x"]),
        (b"x\r\ny\r\n", ["x", "y"]),
        (b"x\r\ny\r", ["x", "y"]),
        (b"\xef\xbb\xbfx\n", ["x"]),
        (b"x\n\xff\xfe\ny\n", ["x", "y"]),
        (b'"a,b"\n', ["a,b"]),
        (b'"say ""hi"""\n', ['say "hi"']),
        (b'a"b\nc\n', ['a"b', "c"]),
        (b'"open\nnext\n', ["next"]),
        (b'"two\nlines"\nnext\n', ["two\nlines", "next"]),
        (b'"two\r\nlines"\r\nnext\r\n', ["two\r\nlines", "next"]),
        (b'"a"b\nnext\n', ["next"]),
        ("x\u2028y\x0bz\n".encode(), ["x\u2028y\x0bz"]),
    ],
)
def test_line_ends_quotes_and_undecodable_bytes_are_handled(data: bytes, names: list[str], tmp_path: Path) -> None:
    class Named(NamedTuple):
        name: str

    assert [row.name for row in read(data, tmp_path, Named).rows] == names


def test_a_stray_quote_makes_its_own_line_malformed(tmp_path: Path) -> None:
    got = read(f'"{GOOD}\n{GOOD}'.encode(), tmp_path)
    assert ([row.name for row in got.rows], got.malformed, got.lines) == (["a"], {"columns": 1}, 2)


def test_plain_text_lines_are_rows_of_str(tmp_path: Path) -> None:
    assert read(b"to be, or not\nto be\n", tmp_path, str).rows == ["to be, or not", "to be"]


def test_numbers_alone_are_rows_of_int(tmp_path: Path) -> None:
    got = read(b"1\n-2\nx\n", tmp_path, int)
    assert (got.rows, got.malformed) == ([1, -2], {"number": 1})


@pytest.mark.parametrize("size", [BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES])
def test_lines_across_blocks_are_whole(size: int, tmp_path: Path) -> None:
    assert read(b"a" * size + b"\nb\n", tmp_path, str).rows == ["a" * size, "b"]


@pytest.mark.parametrize("size", [100, 4_096, 4_097, 5_000, 9_000, 50_000, 70_000])
@pytest.mark.parametrize("length", [5, 700, 6_000])
def test_pieces_of_a_file_hold_whole_lines_and_cover_it(size: int, length: int, tmp_path: Path) -> None:
    data = b"".join(str(n).encode() * (length // 5) + b"\n" for n in range(10_000, 10_000 + 150_000 // length))
    (tmp_path / "lines").write_bytes(data[:-1])
    lines = FileLines(str(tmp_path / "lines"))
    pieces: list[bytes | bytearray] = []
    while (cut := lines.cut(size)) is not None:
        assert not cut[1]
        pieces.append(cut[0])
    lines.close()
    assert b"".join(pieces) == data
    assert all(piece.endswith(b"\n") for piece in pieces if piece)


@pytest.mark.parametrize("end", [b"\n", b""])
def test_a_line_longer_than_the_limit_is_one_malformed_line(end: bytes, tmp_path: Path) -> None:
    got = read(
        b"first\n" + b"x" * (MAX_LINE_BYTES + BLOCK_BYTES + 5) + end + (b"last\n" if end else b""), tmp_path, str
    )
    assert got.rows == (["first", "last"] if end else ["first"])
    assert (got.malformed, got.lines) == ({"columns": 1}, len(got.rows) + 1)


def test_many_small_reads_see_each_line_once(tmp_path: Path) -> None:
    got = read("".join(f"{i}\n" for i in range(30_000)).encode(), tmp_path, int)
    assert got.rows == list(range(30_000))
    assert got.lines == 30_000


def test_gzip_is_recognised_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(gzip.compress(b"1\n") + gzip.compress(b"2\n"))
    assert read_all(open_source(Connector("csv", str(path)), int)).rows == [1, 2]


@pytest.mark.parametrize(("cut", "words"), [(-9, "cut short"), (40, "cut short")])
def test_a_truncated_gzip_file_is_named(cut: int, words: str, tmp_path: Path) -> None:
    path = tmp_path / "short.csv.gz"
    path.write_bytes(gzip.compress("".join(f"{i * 7919}\n" for i in range(50_000)).encode())[:cut])
    with pytest.raises(OperationFailed, match=words) as error:
        read_all(CsvReader(FileLines(str(path)), int), 1_000)
    assert "short.csv.gz" in str(error.value)


def test_a_damaged_gzip_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv.gz"
    data = bytearray(gzip.compress(bytes(range(256)) * 400))
    data[200] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(OperationFailed, match=r"bad\.csv\.gz is (damaged|cut short)"):
        read_all(CsvReader(FileLines(str(path)), str), 1_000)


@pytest.mark.parametrize(("path", "words"), [("missing.csv", "no such file"), (".", "directory")])
def test_a_file_that_cannot_be_opened_is_named(path: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(OperationFailed, match=words) as error:
        open_source(Connector("csv", str(tmp_path / path)), int).read(1, 0)
    assert str(tmp_path) in str(error.value)


def test_a_header_is_skipped_and_not_counted(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("count\n1\n2\n")
    got = read_all(open_source(Connector("csv", str(path), (("header", "1"),)), int))
    assert (got.rows, got.lines) == ([1, 2], 2)


def test_a_minus_sign_names_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(b"1\n2\n"))))
    assert read_all(open_source(Connector("csv", "-"), int)).rows == [1, 2]


def test_a_type_that_no_column_can_fill_is_rejected() -> None:
    class Nested(NamedTuple):
        row: tuple[int, int]

    with pytest.raises(ConfigurationError, match="row"):
        RowParser(Nested)


@pytest.mark.parametrize(
    ("connector", "words"),
    [
        (Connector("cvs", "x"), "there is no source 'cvs'"),
        (Connector("csv", "x", (("sped", "2"),)), "no option 'sped'"),
        (Connector("csv", "x", (("header", "yes"),)), "0 or 1"),
        (Connector("taxi", "x"), "no path"),
        (Connector("taxi", "", (("count", "many"),)), "count=many"),
        (Connector("taxi", "", (("size", "1"),)), "no option 'size'"),
        (Connector("list", "x"), "another process"),
    ],
)
def test_invalid_connectors_are_rejected(connector: Connector, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        open_source(connector, int)


def test_the_generator_is_found_by_its_entry_point() -> None:
    reader = open_source(Connector("taxi", "", (("count", "3"), ("seed", "5"))), str)
    assert [line.count(",") for line in read_all(reader).rows] == [16, 16, 16]


class Counted(NamedTuple):
    """Of columns that are read in bulk, unless there is doubt."""

    number: int
    other: int


class Maybe(NamedTuple):
    """Of columns that are read one by one."""

    number: int | None
    other: int


@pytest.mark.parametrize("kind", [Counted, Maybe])
@pytest.mark.parametrize("plain", [False, True])
def test_an_int_out_of_range_is_malformed_in_every_reading(kind: Any, plain: bool) -> None:
    for number, fits in ((-(1 << 63), True), ((1 << 64) - 1, True), (-(1 << 63) - 1, False), (1 << 64, False)):
        malformed: dict[str, int] = {}
        lines = [f"{n},{number if n == 30 else -n}" for n in range(60)]
        rows = RowParser(kind).parse(lines, 0, malformed, plain=plain)
        assert malformed == ({} if fits else {"number": 1})
        assert rows == [(n, number if n == 30 else -n) for n in range(60) if fits or n != 30]
    notes = MalformedExamples()
    RowParser(kind).explain([f"{1 << 64},1"], notes, lambda _: "here")
    assert notes.take() == ("here number: '18446744073709551616' is no int of 64 bits",)
