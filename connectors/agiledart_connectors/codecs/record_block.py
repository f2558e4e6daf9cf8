"""`RecordBlock`: lines that came, of any format → rows, many at once where none is in doubt; stands in for a `LineBlock`."""

from typing import Any

from agiledart_connectors.codecs.decoder import Decoder, decoded
from agiledart_connectors.codecs.encodings import bytes_of
from agiledart_connectors.codecs.malformed_examples import MalformedExamples
from agiledart_connectors.codecs.quoted_records import CsvRecord


class RecordBlock:
    """Lines that a source has received and not read yet; blank ones are passed over.

    Args:
        decoder: of their format.
        examples: collects texts about malformed lines.

    Attributes:
        is_empty: whether the reader has taken everything.
        name, number: the lines' origin, and how many of its lines were decoded: together they give a line's place.
    """

    __slots__ = ("_at", "_data", "_decoder", "_doubtful", "_examples", "_rows", "is_empty", "name", "number")

    def __init__(self, decoder: Decoder, examples: MalformedExamples, name: str = "") -> None:
        self._decoder, self._examples = decoder, examples
        self.name, self.number = name, 0
        self._data: bytes | None = None
        self._doubtful: list[tuple[int, bytes]] = []  # (number, line) to be decoded one by one, the first at the end
        self._rows: list[Any] = []
        self._at = 0
        self.is_empty = True

    def fill(self, data: bytes) -> None:
        """Lines for an empty block: line feeds between them and none at the end, no carriage returns."""
        self._data, self.is_empty = data, False

    def fill_texts(self, lines: list[str], *, plain: bool) -> None:
        """The same for texts."""
        self.fill("\n".join(lines).encode("utf-8", "surrogatepass"))

    def fill_records(self, records: list[CsvRecord], lines: int) -> None:
        """The same for records, which are so many lines."""
        first = self.number + 1
        self._doubtful = [(first + record.line, bytes_of(record.text)) for record in reversed(records)]
        self.number += lines
        self.is_empty = not records

    def take(self, max_rows: int, wall_ns: int, malformed: dict[str, int]) -> tuple[list[Any], int]:
        """Return at most `max_rows` rows, and how many records these and the malformed ones are.

        Ambiguous lines are decoded no faster than they are asked for, so that the count of records read stays exact.
        """
        bad = 0
        if self._data is not None:
            self._begin(self._data, wall_ns)
        if self._doubtful and not self._rows:
            before = sum(malformed.values())
            some = [self._doubtful.pop() for _ in range(min(max_rows, len(self._doubtful)))]
            lines = [line for _, line in some]
            self._rows, self._at = (
                decoded(
                    self._decoder, lines, wall_ns, malformed, self._examples, lambda i: f"{self.name}:{some[i][0]}"
                ),
                0,
            )
            bad = sum(malformed.values()) - before
        rows = self._rows[self._at : self._at + max_rows]
        self._at += len(rows)
        if self._at >= len(self._rows):
            self._rows, self._at = [], 0
            self.is_empty = not self._doubtful
        return rows, len(rows) + bad

    def _begin(self, data: bytes, wall_ns: int) -> None:
        """Decode all lines at once, or have them at hand where any of them is in doubt."""
        self._data = None
        first, count = self.number + 1, data.count(b"\n") + 1
        self.number += count
        quick = self._decoder.lines(data, wall_ns)
        if quick is not None and (len(quick) == count or len(quick) == _filled(data)):
            self._rows, self._at = quick, 0
        else:
            self._doubtful = [(place, line) for place, line in enumerate(data.split(b"\n"), first) if line.strip()]
            self._doubtful.reverse()


def _filled(data: bytes) -> int:
    """Lines that are not blank."""
    return sum(bool(line.strip()) for line in data.split(b"\n"))
