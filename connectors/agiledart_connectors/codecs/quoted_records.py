"""Lines of CSV → records, whose quoted columns may hold commas, quotes and line ends (RFC 4180).

Python's reader cuts many lines with one call. Where it refuses a record, or a quote is never closed, the record's first line alone
is malformed, and reading goes on with the next line: a stray quote costs no neighbour.

Source: RFC 4180, section 2, points 5 to 7.
"""

import csv
from collections.abc import Iterator
from typing import Final, NamedTuple

from agiledart_connectors.codecs.decoder_options import CsvDialect
from agiledart_connectors.codecs.encodings import has_bad_bytes, text_of
from agiledart_kernel.limits import MAX_LINE_BYTES

MAX_RECORD_LINES: Final = 1_000
"""Most lines of one record. A quote that is not closed by then is a stray one."""


class CsvRecord(NamedTuple):
    """One record.

    Attributes:
        cells: texts of its columns; empty: it is malformed.
        text: the record as it came.
        line: how many lines of the data are before it.
    """

    cells: list[str]
    text: str
    line: int


class QuotedRecords(NamedTuple):
    """Records of some data.

    Attributes:
        records: in their order.
        size: bytes of the data that these are; the others begin a record whose end has not come.
        lines: lines that these are.
    """

    records: list[CsvRecord]
    size: int
    lines: int


def quoted_records(data: bytes, dialect: CsvDialect, *, is_end: bool) -> QuotedRecords:
    """Cut data into records.

    Args:
        data: whole lines with their ends.
        dialect: how they are written.
        is_end: nothing follows, so a quote that is still open is malformed.
    """
    text, is_doubtful = text_of(data)
    lines = text.split("\n")
    lines.pop()
    records: list[CsvRecord] = []
    start = 0
    while start < len(lines):
        cutter = _Cutter(lines, start, dialect)
        records += cutter.records
        start = cutter.stop
        if cutter.is_open and not is_end and len(lines) - start <= MAX_RECORD_LINES:
            rest = sum(len(line.encode("utf-8", "surrogateescape")) + 1 for line in lines[start:])
            if rest <= MAX_LINE_BYTES:
                return QuotedRecords(_checked(records, doubtful=is_doubtful), len(data) - rest, start)
        if cutter.failed:
            records.append(CsvRecord([], lines[start], start))
            start += 1
    return QuotedRecords(_checked(records, doubtful=is_doubtful), len(data), len(lines))


class _Cutter:
    """One pass of Python's reader, up to the first record that it refuses.

    Attributes:
        records: cut so far.
        stop: line behind them.
        failed: the record at `stop` was refused; `is_open`: as the lines ended within it.
    """

    def __init__(self, lines: list[str], start: int, dialect: CsvDialect) -> None:
        self.records: list[CsvRecord] = []
        self.stop = start
        self.failed = self.is_open = False
        reader = dialect.reader(self._fed(lines, start))
        push, at = self.records.append, start
        try:
            for cells in reader:
                end = start + reader.line_num
                text = lines[at] if end == at + 1 else "\n".join(lines[at:end])
                push(CsvRecord(cells or [""], text, at))
                at = end
        except csv.Error:
            self.failed = True
        else:
            self.is_open = False
        self.stop = at

    def _fed(self, lines: list[str], start: int) -> Iterator[str]:
        for number in range(start, len(lines)):
            yield lines[number] + "\n"
        self.is_open = True


def _checked(records: list[CsvRecord], *, doubtful: bool) -> list[CsvRecord]:
    """Return the records, without the cells of those whose bytes are of another encoding."""
    if not doubtful:
        return records
    return [record._replace(cells=[]) if has_bad_bytes(record.text) else record for record in records]
