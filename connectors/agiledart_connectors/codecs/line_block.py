"""`LineBlock`: bytes that came → rows, so many at a time. They become texts, line by line, only where they have to.

Beyond doubt and many, lines are decoded as bytes in pieces of about sixty-four (`bulk_parser.py`); all others are cut and
left to the `RowParser`.
"""

from typing import Any, Final

from agiledart_connectors.codecs.bulk_parser import FEW_LINES
from agiledart_connectors.codecs.lines import PLAIN
from agiledart_connectors.codecs.malformed_examples import MalformedExamples
from agiledart_connectors.codecs.row_parser import RowParser

_PIECE_BYTES: Final = 12 << 10

_SHORT_BYTES: Final = 2 << 10
"""Only in so little data lines are counted, to see whether they are too few to be decoded together."""


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
        *("_at", "_begin", "_data", "_examples", "_held", "_is_plain", "_is_rows"),
        *("is_empty", "name", "number", "parser"),
    )

    def __init__(self, parser: RowParser, examples: MalformedExamples | None = None, name: str = "") -> None:
        self.parser = parser
        self.name, self.number = name, 0
        self._examples = examples
        self._data: bytes | None = None  # not yet cut, from `_begin` on
        self._begin = 0
        self._held: list[Any] = []  # cut, from `_at` on: rows or texts
        self._at = 0
        self._is_plain = self._is_rows = False
        self.is_empty = True

    def fill(self, data: bytes) -> None:
        """Lines for an empty block: line feeds between them and none at the end, no carriage returns."""
        self.is_empty = False
        is_short = len(data) < _SHORT_BYTES and data.count(b"\n") + 1 < FEW_LINES
        if self.parser.bulk is not None and not is_short and b'"' not in data:
            self._held, self._at = [], 0
            self._data, self._begin = data, 0
        else:
            self._hold(data)

    def fill_texts(self, lines: list[str], *, plain: bool) -> None:
        """The same for texts; `plain` as for `RowParser.parse`."""
        self._held, self._at, self._is_rows = lines, 0, self.parser.whole_line
        self._is_plain = plain
        self.is_empty = not lines

    def _hold(self, data: bytes) -> None:
        """Have these lines at hand as texts."""
        self._held, self._at, self._is_rows = data.decode("utf-8", "replace").split("\n"), 0, self.parser.whole_line
        self._is_plain = not (self._is_rows or data.translate(None, PLAIN))

    def take(self, max_rows: int, wall_ns: int, malformed: dict[str, int]) -> tuple[list[Any], int]:
        """The rows of the next lines, and how many lines these are, at most `max_rows`; counts malformed ones by reason."""
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
