"""The first lines of a file: those to skip, and the header, which may hold line ends within quotes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from agiledart_connectors.codecs.decoder_options import CsvDialect
from agiledart_connectors.codecs.encodings import UTF16_MARKS
from agiledart_connectors.codecs.quoted_records import quoted_records

IsHeader = Callable[[str], bool]
"""First record of a file → whether it is a header, which is no row."""

_UTF8: Final = "utf-8"


@dataclass(frozen=True)
class LineForm:
    """Form in which the lines of files are written.

    Attributes:
        encoding: of the files, by Python's name.
        skip: lines at the beginning of each file that are no data.
        dialect: of CSV; None: lines are no CSV, and end at every line feed.
        is_json: a file may be one JSON document over several lines.
    """

    encoding: str = _UTF8
    skip: int = 0
    dialect: CsvDialect | None = None
    is_json: bool = False

    @property
    def quote(self) -> bytes:
        """Return the quote that may hold line feeds; b"" where there is none."""
        return b"" if self.dialect is None else self.dialect.quote_byte

    @property
    def transcodes(self) -> bool:
        """Return whether bytes have to be converted."""
        return self.encoding != _UTF8


PLAIN_LINES: Final = LineForm()
"""Lines of UTF-8 that are no CSV."""


def start_size(data: bytes, form: LineForm, is_header: IsHeader | None, *, is_end: bool) -> int | None:
    """Return how many bytes at the beginning of a file are no data; None: the header has not come whole.

    Args:
        data: the first whole lines, with their ends.
        form: how they are written.
        is_header: asked of the first record behind the skipped lines; None: there is no header.
        is_end: no more lines follow.
    """
    begin = 0
    for _ in range(form.skip):
        end = data.find(b"\n", begin)
        if end < 0:
            return len(data) if is_end else None
        begin = end + 1
    if is_header is None:
        return begin
    end = data.find(b"\n", begin) + 1
    if not end:
        return begin if is_end else None
    first = data[begin:end]
    if form.dialect is not None and form.quote and form.quote in first:
        cut = quoted_records(data[begin:], form.dialect, is_end=is_end)
        if not cut.records:
            return None
        lines = cut.records[1].line if len(cut.records) > 1 else cut.lines
        first = _lines(data[begin:], lines)
    return begin + len(first) if is_header(first.decode("utf-8", "replace")) else begin


def _lines(data: bytes, count: int) -> bytes:
    """Return the first lines of some data."""
    end = 0
    for _ in range(count):
        end = data.find(b"\n", end) + 1
    return data[:end]


def encoding_note(name: str, data: bytes, encoding: str) -> str:
    """Return the notice for users about a file whose first bytes name another encoding; empty when they do not."""
    if encoding == _UTF8 and data[:2] in UTF16_MARKS:
        return f"{name}: its first bytes say that it is UTF-16, which encoding=utf-16 reads"
    return ""
