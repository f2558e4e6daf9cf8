"""`ColumnBlock`: bytes that came → columns of all their lines at once where these are many and beyond doubt, else rows.

What is read is the same either way, and the same as `LineBlock` reads: it has all lines that columns cannot have.
"""

from typing import TYPE_CHECKING

from agiledart_connectors.codecs.line_block import LineBlock
from agiledart_dataflow.data.batch import Held
from agiledart_kernel.limits import MAX_COLUMN_BATCH_ROWS

if TYPE_CHECKING:
    from agiledart_connectors.codecs.csv_columns_reader import ColumnParser
    from agiledart_dataflow.data.columns import Columns


class ColumnBlock:
    """Lines that have come and wait to be read; stands in for a `LineBlock`.

    Args:
        rows: takes what does not become columns.
        columns: parses the rest.
    """

    __slots__ = ("_columns", "_data", "_left", "_rows")

    def __init__(self, rows: LineBlock, columns: "ColumnParser") -> None:
        self._rows, self._columns = rows, columns
        self._data: bytes | None = None  # not looked at yet; empty: one empty line
        self._left: Columns | None = None

    @property
    def is_empty(self) -> bool:
        """Whether all has been taken."""
        return self._data is None and self._left is None and self._rows.is_empty

    def fill(self, data: bytes) -> None:
        """As `LineBlock.fill`."""
        self._data = data

    def take(self, max_rows: int, wall_ns: int, malformed: dict[str, int]) -> tuple[Held, int]:
        """As `LineBlock.take`; columns are at most `MAX_COLUMN_BATCH_ROWS`, as they are from every source."""
        data, self._data = self._data, None
        if data is not None:
            self._left = self._columns.parse(data + b"\n", wall_ns)
            if self._left is None:
                self._rows.fill(data)
        left = self._left
        if left is None:
            return self._rows.take(max_rows, wall_ns, malformed)
        some = left.slice(0, MAX_COLUMN_BATCH_ROWS)
        self._rows.number += len(some)
        self._left = left.slice(len(some), len(left)) if len(left) > len(some) else None
        return some, len(some)
