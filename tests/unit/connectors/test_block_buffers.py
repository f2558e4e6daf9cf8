"""Blocks are read into unreferenced memory, and never into referenced memory."""

from io import BufferedReader
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from agiledart_connectors.codecs import csv_columns_reader
from agiledart_connectors.codecs.block_buffers import BlockBuffers
from agiledart_connectors.codecs.csv_columns_reader import CsvColumnsReader
from agiledart_connectors.codecs.lines import BLOCK_BYTES, FileLines
from agiledart_connectors.files.line_reader import CsvReader
from agiledart_dataflow.data.batch import as_rows
from agiledart_dataflow.data.columns import Columns
from agiledart_dataflow.plan.connectors import SourceReader


@pytest.fixture
def digits(tmp_path: Path) -> BufferedReader:
    """A file of ten times ten bytes: `0…01…1` to `9…9`."""
    path = tmp_path / "digits"
    path.write_bytes(b"".join(bytes([digit]) * 10 for digit in b"0123456789"))
    return path.open("rb")


def test_memory_of_unreferenced_blocks_is_reused(digits: BufferedReader) -> None:
    buffers = BlockBuffers()
    block = buffers.read(digits, 10)
    place = id(block)
    assert block == b"0" * 10
    del block
    assert id(buffers.read(digits, 10)) == place


def test_a_referenced_block_is_not_overwritten(digits: BufferedReader) -> None:
    buffers = BlockBuffers()
    blocks = [buffers.read(digits, 10) for _ in range(10)]
    assert blocks == [bytes([digit]) * 10 for digit in b"0123456789"]


def test_an_array_over_a_block_keeps_it_referenced(digits: BufferedReader) -> None:
    buffers = BlockBuffers()
    arrays = [np.frombuffer(memoryview(buffers.read(digits, 10)), np.uint8) for _ in range(10)]
    assert [array[9] for array in arrays] == list(b"0123456789")


def test_blocks_have_the_requested_size_and_less_at_the_end(digits: BufferedReader) -> None:
    buffers = BlockBuffers()
    sizes = [50, 3, 40, 60, 1]
    assert [len(buffers.read(digits, size)) for size in sizes] == [50, 3, 40, 7, 0]


class Named(NamedTuple):
    """A row with a text that is read later."""

    number: int
    name: str


def test_late_requested_texts_belong_to_their_own_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [Named(number, f"name of {number}") for number in range(30_000)]
    path = tmp_path / "rows.csv"
    path.write_text("".join(f"{row.number},{row.name}\n" for row in rows))
    monkeypatch.setattr(csv_columns_reader, "_BYTES_AT_ONCE", BLOCK_BYTES + 1)
    monkeypatch.setattr(csv_columns_reader, "ROWS_AT_ONCE", 4_000)
    reader = CsvColumnsReader(FileLines(str(path)), Named, frozenset())
    kept: list[Columns] = []
    while not (reading := reader.read(1_000, 0)).exhausted:
        assert isinstance(reading.rows, Columns)
        kept.append(reading.rows)
    reader.close()
    assert len(kept) > 5
    assert [row for columns in kept for row in columns.rows()] == rows


def test_a_large_block_with_irregular_lines_equals_reading_by_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"{number},name of {number}" for number in range(30_000)]
    lines[20_000:20_003] = ["x,no number", '7,"quoted, text"', "8,carriage return\r"]
    path = tmp_path / "rows.csv"
    path.write_bytes("\n".join(lines).encode())
    monkeypatch.setattr(csv_columns_reader, "_BYTES_AT_ONCE", BLOCK_BYTES + 1)
    monkeypatch.setattr(csv_columns_reader, "ROWS_AT_ONCE", 4_000)
    by_rows = everything(CsvReader(FileLines(str(path)), Named))
    by_columns = everything(CsvColumnsReader(FileLines(str(path)), Named))
    assert by_columns[:2] == by_rows[:2]
    assert by_columns[2] == {True, False}


def everything(reader: SourceReader) -> tuple[list[Named], dict[str, int], set[bool]]:
    """(rows, malformed lines by reason, whether they came as columns)."""
    rows: list[Named] = []
    malformed: dict[str, int] = {}
    forms: set[bool] = set()
    exhausted = False
    while not exhausted:
        reading = reader.read(1_000, 0)
        rows += as_rows(reading.rows)
        if len(reading.rows):
            forms.add(type(reading.rows) is not list)
        for reason, count in reading.malformed.items():
            malformed[reason] = malformed.get(reason, 0) + count
        exhausted = reading.exhausted
    reader.close()
    return rows, malformed, forms
