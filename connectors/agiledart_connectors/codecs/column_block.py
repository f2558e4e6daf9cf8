"""`ColumnBlock`: received bytes → columns of all their lines when there are many unambiguous lines, else rows.

The values are the same either way, and the same as `LineBlock` reads. `LineBlock` takes all lines that columns cannot hold.
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
        """Return whether the reader has taken everything."""
        return self._data is None and self._left is None and self._rows.is_empty

    def fill(self, data: bytes) -> None:
        """Add received bytes, like `LineBlock.fill`."""
        self._data = data

    def take(self, max_rows: int, wall_ns: int, malformed: dict[str, int]) -> tuple[Held, int]:
        """Return the next rows or columns, like `LineBlock.take`; columns hold at most `MAX_COLUMN_BATCH_ROWS` rows."""
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
