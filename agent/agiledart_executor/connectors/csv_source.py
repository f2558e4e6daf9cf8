"""Source `csv:` and every other source that gives CSV lines: no header unless told, columns in the order of the row's fields."""

from typing import Any

from agiledart_dataflow.connectors import Reading
from agiledart_executor.connectors.lines import Lines
from agiledart_executor.connectors.parsing import RowParser


class CsvReader:
    """Reads typed rows; a line that is none is counted by reason and never stops the run."""

    stamps = True

    def __init__(self, lines: Lines, row_type: Any) -> None:
        self._source = lines
        self._parser = RowParser(row_type)
        self._lines: list[str] = []
        self._plain = True
        self._at = 0
        self._exhausted = False

    def read(self, max_rows: int, wall_ns: int) -> Reading:
        malformed: dict[str, int] = {}
        stop = self._at + max_rows
        if stop <= len(self._lines):  # the usual case
            lines, self._at = self._lines[self._at : stop], stop
            return Reading(self._parser.parse(lines, wall_ns, malformed, plain=self._plain), max_rows, malformed)
        rows: list[Any] = []
        count = 0
        while count < max_rows and not self._exhausted:
            if self._at >= len(self._lines):
                count += self._next_block(malformed)
                continue
            lines = self._lines[self._at : self._at + max_rows - count]
            self._at += len(lines)
            count += len(lines)
            rows += self._parser.parse(lines, wall_ns, malformed, plain=self._plain)
        return Reading(rows, count, malformed, self._exhausted)

    def _next_block(self, malformed: dict[str, int]) -> int:
        """Fetch lines; returns how many were too long, which count as malformed."""
        block = self._source.block()
        self._at = 0
        if block is None:
            self._lines, self._exhausted = [], True
            return 0
        self._lines = block.lines
        self._plain = not self._parser.whole_line and block.plain
        if block.overlong:
            malformed["columns"] = malformed.get("columns", 0) + block.overlong
        return block.overlong

    def close(self) -> None:
        self._source.close()
