"""`Column`: the values of one field of many rows.

Numbers, bools and times are NumPy arrays with a mask of the values that are present; texts are a list or an Arrow array, in the
form in which they came; everything else is a list of the values. Arrays are never written to: slices are views.
"""

from array import array
from collections.abc import Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from agiledart_dataflow.data.column_schema import ColumnField, ColumnKind
from agiledart_dataflow.data.lazy_module import lazy_import

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Array: TypeAlias = np.ndarray[Any, Any]
else:
    np = lazy_import("numpy")
    pa = lazy_import("pyarrow")
    Array = Any

Selection: TypeAlias = "slice | Array"
"""Selected rows: a range (a view), or an array of their numbers in ascending order (a copy)."""

NUMERIC: tuple[ColumnKind, ...] = ("int", "float", "bool", "time", "span")
_LONGEST_SPAN = timedelta(microseconds=2**63 - 1)
EARLIEST_US = -62_135_596_800_000_000
LATEST_US = 253_402_300_799_999_999
"""Range of the times that a datetime can hold, in microseconds since 1970."""


class Column:
    """Values of one kind.

    Attributes:
        kind: of the values; `object` when they do not fit their field's.
        values: an array (numbers), a list or a pyarrow.Array (texts and bytes), a list (objects).
        valid: of numbers: an array of bools, False where there is None; None when no value is missing.
    """

    __slots__ = ("kind", "valid", "values")

    def __init__(self, kind: ColumnKind, values: Any, valid: "Array | None" = None) -> None:
        self.kind = kind
        self.values = values
        self.valid = valid

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"Column({self.kind}, {len(self.values)} values)"

    def take(self, selection: Selection) -> "Column":
        """Return some of the values."""
        values = self.values
        valid = None if self.valid is None else self.valid[selection]
        if isinstance(values, list) and not isinstance(selection, slice):
            return Column(self.kind, [values[number] for number in selection.tolist()], valid)
        if not isinstance(selection, slice) and self.kind in ("text", "bytes"):
            return Column(self.kind, values.take(arrow_numbers(selection)), valid)
        return Column(self.kind, values[selection], valid)

    def to_list(self) -> list[Any]:
        """Return the values as Python objects, None where a value is missing."""
        values, kind = self.values, self.kind
        if isinstance(values, list):
            return values
        if kind in ("text", "bytes"):
            listed: list[Any] = values.to_pylist()
            return listed
        if kind == "time":
            listed = values.view("datetime64[us]").tolist()
        elif kind == "span":
            listed = values.view("timedelta64[us]").tolist()
        else:
            listed = values.tolist()
        if self.valid is None:
            return listed
        return [value if there else None for value, there in zip(listed, self.valid.tolist(), strict=True)]

    def arrow(self) -> Any:
        """Return texts or bytes as a pyarrow.Array. Raises UnicodeEncodeError for a text that has no UTF-8 form."""
        if isinstance(self.values, list):
            self.values = pa.array(self.values, pa.string() if self.kind == "text" else pa.binary())
        return self.values

    def nulls(self) -> "Array | None":
        """Return an array that is True where there is None; None when no value is missing."""
        if self.kind in NUMERIC:
            return None if self.valid is None else ~self.valid
        if isinstance(self.values, list):
            if None not in self.values:
                return None
            return np.array([value is None for value in self.values])
        return numbers_of(self.values.is_null()) if self.values.null_count else None

    def has_nan(self) -> bool:
        """Return whether NaN is among the numbers."""
        if isinstance(self.values, list):
            return any(value != value for value in self.values)
        numbers = self.values if self.valid is None else self.values[self.valid]
        return bool(np.isnan(numbers).any())


def column_of(field: ColumnField, values: list[Any]) -> Column:
    """Return the column of a field's values; an `object` one when they do not fit the kind.

    Raises:
        TypeError: a value is not of the field's type; names the field and the value.
    """
    kind = field.kind
    if kind == "object":
        return Column(kind, values)
    missing = field.optional and None in values
    if kind in ("text", "bytes"):
        wanted = {str} if kind == "text" else {bytes}
        if not set(map(type, values)) <= (wanted | {type(None)} if missing else wanted):
            raise _misfit(field, values)
        return Column(kind, values)
    valid = None
    there = values
    if missing:
        valid = np.array([value is not None for value in values], dtype=bool)
        filler = _FILLERS[kind]
        there = [filler if value is None else value for value in values]
    try:
        numbers = _array(kind, there)
    except OverflowError:
        return Column("object", values)
    except (TypeError, ValueError):
        raise _misfit(field, values) from None
    return Column("object", values) if numbers is None else Column(kind, numbers, valid)


_FILLERS: dict[ColumnKind, Any] = {
    "int": 0,
    "float": 0.0,
    "bool": False,
    "time": datetime(1970, 1, 1),  # noqa: DTZ001  times without a zone are UTC by definition
    "span": timedelta(0),
}


def _array(kind: ColumnKind, values: list[Any]) -> "Array | None":
    """Return an array of these values; None when they are right but do not fit. Raises TypeError for wrong ones."""
    if kind == "int":
        return np.frombuffer(array("q", values), dtype=np.int64) if values else np.empty(0, np.int64)
    if kind == "float":
        return np.frombuffer(array("d", values), dtype=np.float64) if values else np.empty(0)
    if kind == "bool":
        if not set(map(type, values)) <= {bool}:
            raise TypeError
        return np.array(values, dtype=bool)
    if kind == "time":
        if set(map(attrgetter("tzinfo"), _checked(values, datetime))) - {None}:
            return None
        return np.array(values, dtype="datetime64[us]").view(np.int64)
    if values and not -_LONGEST_SPAN <= min(_checked(values, timedelta)) <= max(values) <= _LONGEST_SPAN:
        return None
    return np.array(values, dtype="timedelta64[us]").view(np.int64)


def _checked(values: list[Any], kind: type) -> list[Any]:
    if not set(map(type, values)) <= {kind} and not all(isinstance(value, kind) for value in values):
        raise TypeError
    return values


def _misfit(field: ColumnField, values: list[Any]) -> TypeError:
    """Return the error that names the value that is not of the field's type."""
    for value in values:
        if value is None and field.optional:
            continue
        try:
            if field.kind in ("text", "bytes"):
                fits = isinstance(value, str if field.kind == "text" else bytes)
            else:
                _array(field.kind, [value])
                fits = True
        except (TypeError, ValueError):
            fits = False
        if not fits:
            return TypeError(f"the field {field.name} is {field.type!r} and cannot be {value!r}")
    return TypeError(f"the field {field.name} is not {field.type!r} throughout")


def concatenated_columns(columns: Sequence[Column]) -> Column:
    """Return columns of one field, one after the other."""
    if len(columns) == 1:
        return columns[0]
    kinds = {column.kind for column in columns}
    if len(kinds) > 1 or "object" in kinds:
        return Column("object", [value for column in columns for value in column.to_list()])
    kind = columns[0].kind
    if kind in ("text", "bytes"):
        if any(isinstance(column.values, list) for column in columns):
            return Column(kind, [value for column in columns for value in column.to_list()])
        return Column(kind, pa.concat_arrays([column.values for column in columns]))
    valid = None
    if any(column.valid is not None for column in columns):
        valid = np.concatenate(
            [np.ones(len(column), bool) if column.valid is None else column.valid for column in columns]
        )
    return Column(kind, np.concatenate([column.values for column in columns]), valid)


def arrow_numbers(values: "Array", valid: "Array | None" = None) -> Any:
    """Return a pyarrow array of numbers or bools, without a copy where possible.

    `pyarrow.array` would do the same, but it loads pandas where that is installed, at 25 MB.
    """
    present = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    if values.dtype == np.bool_:
        bits = pa.py_buffer(np.packbits(values, bitorder="little"))
        return pa.Array.from_buffers(pa.bool_(), len(values), [present, bits])
    kind = pa.int64() if values.dtype == np.int64 else pa.float64()
    return pa.Array.from_buffers(kind, len(values), [present, pa.py_buffer(np.ascontiguousarray(values))])


def numbers_of(array: Any) -> "Array":
    """Return the numbers or bools of a pyarrow array; values at nulls are arbitrary. Loads no pandas, either."""
    start, stop = array.offset, array.offset + len(array)
    buffer = array.buffers()[1]
    if not len(array):
        return np.empty(0, bool if array.type == pa.bool_() else np.float64 if array.type == pa.float64() else np.int64)
    if array.type == pa.bool_():
        return np.unpackbits(np.frombuffer(buffer, np.uint8), bitorder="little")[start:stop].astype(bool)
    numbers: Array = np.frombuffer(buffer, np.float64 if array.type == pa.float64() else np.int64)[start:stop]
    return numbers
