"""Source `csv:` and every other source that gives CSV lines: columns in the order of the row's fields, or as a header says."""

from typing import Any

from agiledart_dataflow.plan.connectors import Reading
from agiledart_executor.connectors.codecs.faults import COLUMNS, TOO_LONG, Examples
from agiledart_executor.connectors.codecs.header import columns_by_name, header_note
from agiledart_executor.connectors.codecs.line_block import LineBlock
from agiledart_executor.connectors.codecs.parsing import RowParser
from agiledart_executor.connectors.files.lines import Lines


class CsvReader:
    """Reads typed rows; a line that is none is counted by reason and never stops the run.

    Args:
        lines: where they come from.
        row_type: of the rows.
        examples: are told what is wrong with malformed lines.
    """

    stamps = True

    def __init__(self, lines: Lines, row_type: Any, examples: Examples | None = None) -> None:
        self._source = lines
        self._row_type = row_type
        self._examples = examples or Examples()
        parser = RowParser(row_type)
        self._whole_lines = parser.whole_line
        self._block = LineBlock(parser, self._examples, lines.name)
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
        return Reading(rows, count, malformed, self._exhausted, notes=self._examples.take())

    def takes_header(self, line: str, *, is_one: bool = False) -> bool:
        """Whether a first line is a header; then columns are taken as it names them. `is_one`: it is in any case."""
        columns = columns_by_name(line, self._row_type)
        if columns is None:
            return is_one
        self._block.parser = RowParser(self._row_type, columns)
        self._examples.note(header_note(self._source.name, columns))
        return True

    def _next_block(self, malformed: dict[str, int]) -> int:
        """Fetch lines; returns how many were too long, which count as malformed."""
        block = self._source.block()
        if block is None:
            self._exhausted = True
            return 0
        place = self._block
        if place.name != self._source.name or not place.number:
            place.name, place.number = self._source.name, self._source.skipped
        if block.overlong:
            self._examples.add(COLUMNS, f"{place.name}:{place.number + 1}", TOO_LONG)
            place.number += block.overlong
            malformed[COLUMNS] = malformed.get(COLUMNS, 0) + block.overlong
        if block.texts is None:
            place.fill(block.data)
        else:
            place.fill_texts(block.texts, plain=not self._whole_lines and block.plain)
        return block.overlong

    def close(self) -> None:
        self._source.close()
