"""Source `csv:` and every other source that gives CSV lines: no header unless told, columns in the order of the row's fields."""

from typing import Any

from agiledart_dataflow.plan.connectors import Reading
from agiledart_executor.connectors.codecs.line_block import LineBlock
from agiledart_executor.connectors.codecs.parsing import RowParser
from agiledart_executor.connectors.files.lines import Lines


class CsvReader:
    """Reads typed rows; a line that is none is counted by reason and never stops the run."""

    stamps = True

    def __init__(self, lines: Lines, row_type: Any) -> None:
        self._source = lines
        parser = RowParser(row_type)
        self._whole_lines = parser.whole_line
        self._block = LineBlock(parser)
        self._exhausted = False

    def read(self, max_rows: int, wall_ns: int) -> Reading:
        malformed: dict[str, int] = {}
        rows, count = self._block.take(max_rows, wall_ns, malformed)
        while count < max_rows and not self._exhausted:
            if self._block.is_empty:
                count += self._next_block(malformed)
                continue
            some, lines = self._block.take(max_rows - count, wall_ns, malformed)
            count += lines
            rows = rows + some if rows else some
        return Reading(rows, count, malformed, self._exhausted)

    def _next_block(self, malformed: dict[str, int]) -> int:
        """Fetch lines; returns how many were too long, which count as malformed."""
        block = self._source.block()
        if block is None:
            self._exhausted = True
            return 0
        if block.texts is None:
            self._block.fill(block.data)
        else:
            self._block.fill_texts(block.texts, plain=not self._whole_lines and block.plain)
        if block.overlong:
            malformed["columns"] = malformed.get("columns", 0) + block.overlong
        return block.overlong

    def close(self) -> None:
        self._source.close()
