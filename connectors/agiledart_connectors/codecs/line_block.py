"""`LineBlock`: bytes that came → rows, so many at a time. They become texts, line by line, only where they have to.

Beyond doubt and many, lines are decoded as bytes in pieces of about sixty-four (`bulk_parser.py`); all others are cut and
left to the parser. Where there are quotes, records are cut first (`quoted_records.py`).
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

from agiledart_connectors.codecs.bulk_parser import FEW_LINES, BulkParser
from agiledart_connectors.codecs.encodings import text_of
from agiledart_connectors.codecs.lines import PLAIN
from agiledart_connectors.codecs.malformed_examples import MalformedExamples
from agiledart_connectors.codecs.quoted_records import CsvRecord

_PIECE_BYTES: Final = 12 << 10

_SHORT_BYTES: Final = 2 << 10
"""Only in so little data lines are counted, to see whether they are too few to be decoded together."""


class LineParser(Protocol):
    """Parser of lines and records: a `RowParser`, or a `DictParser` for rows without types."""

    bulk: BulkParser | None
    whole_line: bool

    def parse(self, lines: list[str], wall_ns: int, malformed: dict[str, int], *, plain: bool) -> list[Any]: ...
    def parse_records(self, records: list[CsvRecord], wall_ns: int, malformed: dict[str, int]) -> list[Any]: ...
    def explain(self, lines: list[str], examples: MalformedExamples, place: Callable[[int], str]) -> None: ...
    def explain_records(
        self, records: list[CsvRecord], examples: MalformedExamples, place: Callable[[CsvRecord], str]
    ) -> None: ...


class LineBlock:
    """Lines that a source has received and not read yet.

    Args:
        parser: of the lines; callers may replace it while the block is empty.
        examples: collects texts about malformed lines.

    Attributes:
        is_empty: whether the reader has taken everything.
        name, number: the lines' origin, and how many of its lines were taken: together they give a line's place.
    """

    __slots__ = (
        *("_at", "_begin", "_data", "_examples", "_held", "_is_plain", "_is_rows", "_records", "_records_at", "_stop"),
        *("is_empty", "name", "number", "parser"),
    )

    def __init__(self, parser: LineParser, examples: MalformedExamples | None = None, name: str = "") -> None:
        self.parser = parser
        self.name, self.number = name, 0
        self._examples = examples
        self._data: bytes | None = None  # not yet cut, from `_begin` on
        self._begin = 0
        self._held: list[Any] = []  # cut, from `_at` on: rows or texts
        self._at = 0
        self._records: list[CsvRecord] = []  # instead of these, from `_records_at` on
        self._records_at = self._stop = 0
        self._is_plain = self._is_rows = False
        self.is_empty = True

    def fill(self, data: bytes) -> None:
        """Lines for an empty block: line feeds between them and none at the end, no carriage returns, no quotes around columns."""
        self.is_empty = False
        is_short = len(data) < _SHORT_BYTES and data.count(b"\n") + 1 < FEW_LINES
        if self.parser.bulk is not None and not is_short and b'"' not in data:
            self._held, self._at = [], 0
            self._data, self._begin = data, 0
        else:
            self._hold(data)

    def fill_texts(self, lines: list[str], *, plain: bool) -> None:
        """The same for texts; `plain` as for `RowParser.parse`."""
        self._held, self._at, self._is_rows = lines, 0, False
        self._is_plain = plain
        self.is_empty = not lines

    def fill_records(self, records: list[CsvRecord], lines: int) -> None:
        """The same for records, which are so many lines."""
        self._records, self._records_at, self._stop = records, 0, self.number + lines
        self.is_empty = not records
        if not records:
            self.number = self._stop

    def _hold(self, data: bytes) -> None:
        """Have these lines at hand as texts."""
        text, is_doubtful = text_of(data)
        self._held, self._at = text.split("\n"), 0
        self._is_rows = self.parser.whole_line and not is_doubtful
        self._is_plain = not (self._is_rows or is_doubtful or data.translate(None, PLAIN))

    def take(self, max_rows: int, wall_ns: int, malformed: dict[str, int]) -> tuple[list[Any], int]:
        """The rows of the next lines, and how many records these are, at most `max_rows`; counts malformed ones by reason."""
        if self._records:
            return self._take_records(max_rows, wall_ns, malformed)
        stop = self._at + max_rows
        if stop <= len(self._held):  # the usual case
            some, self._at = self._held[self._at : stop], stop
            if not self._is_rows:
                some = self._parsed(some, wall_ns, malformed)
            self.number += max_rows
            self.is_empty = stop == len(self._held) and self._data is None
            return some, max_rows
        rows: list[Any] = []
        count = 0
        while count < max_rows and (self._at < len(self._held) or (self._data is not None and self._cut())):
            some = self._held[self._at : self._at + max_rows - count]
            self._at += len(some)
            count += len(some)
            taken = len(some)
            if not self._is_rows:
                some = self._parsed(some, wall_ns, malformed)
            self.number += taken
            if rows:
                rows += some
            else:
                rows = some
        self.is_empty = self._data is None and self._at >= len(self._held)
        return rows, count

    def _take_records(self, max_rows: int, wall_ns: int, malformed: dict[str, int]) -> tuple[list[Any], int]:
        start = self._records_at
        some = self._records[start : start + max_rows]
        self._records_at += len(some)
        rows = self.parser.parse_records(some, wall_ns, malformed)
        if len(rows) < len(some) and self._examples is not None and self._examples.wants_more(malformed):
            first = self.number - self._records[0].line + 1
            self.parser.explain_records(some, self._examples, lambda record: f"{self.name}:{first + record.line}")
        if self._records_at >= len(self._records):
            self._records, self._records_at, self.number, self.is_empty = [], 0, self._stop, True
        return rows, len(some)

    def _parsed(self, lines: list[str], wall_ns: int, malformed: dict[str, int]) -> list[Any]:
        """Return the rows of lines; parse malformed ones again while a reason has too few examples."""
        rows = self.parser.parse(lines, wall_ns, malformed, plain=self._is_plain)
        if len(rows) < len(lines) and self._examples is not None and self._examples.wants_more(malformed):
            self.parser.explain(lines, self._examples, lambda index: f"{self.name}:{self.number + index + 1}")
        return rows

    def _cut(self) -> bool:
        """Have the next piece of the data at hand; True."""
        data, begin = self._data, self._begin
        assert data is not None
        end = data.find(b"\n", begin + _PIECE_BYTES)
        piece = data[begin:] if end < 0 else data[begin:end]
        self._data, self._begin = (None, 0) if end < 0 else (data, end + 1)
        bulk = self.parser.bulk
        rows = None if bulk is None or piece.count(b"\n") + 1 < FEW_LINES else bulk.parse(piece)
        if rows is None:
            self._hold(piece)
        else:
            self._held, self._at, self._is_rows = rows, 0, True
        return True
