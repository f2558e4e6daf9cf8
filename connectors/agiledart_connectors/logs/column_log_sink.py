"""Sink `log:` that stores columns as it gets them, for rows of flat types where pyarrow is installed."""

from typing import TYPE_CHECKING, Any, Final

from agiledart_connectors.logs.log_sink import LogSinkWriter
from agiledart_dataflow.data.column import arrow_numbers
from agiledart_dataflow.data.columns import Columns
from agiledart_dataflow.data.lazy_module import lazy_import
from agiledart_dataflow.data.schema import read_time_index
from agiledart_sink_log.column_form import ColumnForm, arrow_type, has_flat_columns, has_pyarrow
from agiledart_sink_log.layout import NEVER, Description
from agiledart_sink_log.protocol import MAX_STORED_BYTES

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = lazy_import("pyarrow")

_COLUMN_KINDS: Final = {
    "string": "text",
    "int": "int",
    "float": "float",
    "bool": "bool",
    "bytes": "bytes",
    "datetime": "time",
    "timedelta": "span",
    "read_time": "int",
}
"""Type of a field in a log → kind of the column that holds exactly its values."""

BATCH_ROWS: Final = 10_000
MIN_ROWS: Final = 256
"""Rows below which a batch is stored as rows: each column needs some hundred bytes besides its values."""

BATCH_BYTES: Final = MAX_STORED_BYTES // 2


def takes_columns(description: Description) -> bool:
    """Return whether a log can be written by columns."""
    kinds = [field.get("type") for field in description.fields]
    is_flat = has_flat_columns(description.fields) and all(kind in _COLUMN_KINDS for kind in kinds)
    return description.columns != NEVER and is_flat and has_pyarrow()


class ColumnLogSinkWriter(LogSinkWriter):
    """Writer of a log without a key that also takes columns; arguments as of `LogSinkWriter`."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._form = ColumnForm(self._log.description.fields)
        self._has_times = read_time_index(arguments[1]) is not None
        self._columns: list[Columns] = []
        self._count = 0

    def write(self, rows: list[Any]) -> None:
        self._hand_over_columns()
        super().write(rows)

    def write_columns(self, columns: Columns) -> None:
        """Take columns; those with a value that has no flat column are stored as rows."""
        kinds = [columns.column(number).kind for number in range(len(self._form.kinds))]
        if kinds != [_COLUMN_KINDS[kind] for kind in self._form.kinds]:
            self.write(columns.rows())
            return
        self._hand_over_rows()
        if self._has_times:
            self._times.count_columns(columns)
        self._columns.append(columns)
        self._count += len(columns)
        if self._count >= BATCH_ROWS:
            self._hand_over_columns()

    def flush(self) -> None:
        self._hand_over_columns()
        super().flush()

    def _hand_over_columns(self) -> None:
        waiting, self._columns, count, self._count = self._columns, [], self._count, 0
        if not waiting:
            return
        try:
            parts = [self._arrays(columns) for columns in waiting] if count >= MIN_ROWS else []
        except UnicodeEncodeError:  # the rows say which one it is
            parts = []
        if not parts:
            for columns in waiting:
                self._take_rows(columns.rows())
            self._hand_over_rows()
            return
        self._append([pa.concat_arrays(column) for column in zip(*parts, strict=True)], count)

    def _append(self, arrays: "list[pa.Array]", count: int) -> None:
        """Append one batch, or two halves of a large one."""
        half = count // 2
        if half and sum(array.nbytes for array in arrays) > BATCH_BYTES:
            self._append([array[:half] for array in arrays], half)
            self._append([array[half:] for array in arrays], count - half)
            return
        index, messages = self._form.encoded(arrays)
        self._next().append_columns(index, messages, count)

    def _arrays(self, columns: Columns) -> "list[pa.Array]":
        """Return the Arrow arrays of columns. Raises UnicodeEncodeError for a text that has no UTF-8 form."""
        arrays = []
        for number, kind in enumerate(self._form.kinds):
            column = columns.column(number)
            is_text = column.kind in ("text", "bytes")
            array = column.arrow() if is_text else arrow_numbers(column.values, column.valid)
            own = arrow_type(kind)
            arrays.append(array if array.type == own else array.cast(own))
        return arrays
