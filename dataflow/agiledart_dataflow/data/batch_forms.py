"""Forms of columns that functions and sources of batches take and return: Arrow, dicts of arrays, data frames.

Arrays that go out share the engine's memory, which other branches read, too, so they are read-only. The maker of arrays that come
in may keep them and fill them again, so writable arrays are copied. Arrow's arrays never change by definition.
"""

from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import msgspec

from agiledart_dataflow.data.column import NUMERIC, Column, arrow_numbers, column_of, numbers_of
from agiledart_dataflow.data.column_schema import ColumnField, schema_of
from agiledart_dataflow.data.columns import Columns
from agiledart_dataflow.data.lazy_module import lazy_import
from agiledart_dataflow.data.schema import generic

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from agiledart_dataflow.data.column import Array
else:
    np = lazy_import("numpy")
    pa = lazy_import("pyarrow")

Form = Literal["arrow", "arrays", "polars"]


@runtime_checkable
class _DataFrame(Protocol):
    def to_arrow(self) -> Any: ...


@runtime_checkable
class _ArrowTable(Protocol):
    schema: Any
    num_rows: int


@runtime_checkable
class _Array(Protocol):
    def tolist(self) -> list[Any]: ...


def in_form(columns: Columns, form: Form) -> Any:
    """Return columns in the form that a function takes; numbers are views where no value is missing."""
    if form == "arrays":
        return {field.name: _array(columns.named(field.name)) for field in columns.schema.fields}
    batch = record_batch(columns)
    if form == "arrow":
        return batch
    import polars as pl

    return pl.from_arrow(batch)


def _array(column: Column) -> "Array":
    """Return the values as a read-only array, whatever the column's own form is."""
    if column.kind not in NUMERIC or column.valid is not None:
        listed = column.to_list()
        array = np.empty(len(listed), dtype=object)
        array[:] = listed
        array.flags.writeable = False
        return array
    read_only: Array = np.asarray(memoryview(column.values).toreadonly())
    return read_only.view(_TIME_DTYPES[column.kind]) if column.kind in _TIME_DTYPES else read_only


def _kept(array: "Array", dtype: str) -> "Array":
    """Return the array's values in this dtype, in read-only memory. An array that `_array` returned comes back without a copy."""
    if array.dtype != dtype:
        return array.astype(dtype)
    owner: Any = array
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            return array.copy()
        owner = owner.base
    return array


_DTYPES: dict[str, str] = {"int": "int64", "float": "float64", "bool": "bool"}
_TIME_DTYPES: dict[str, str] = {"time": "datetime64[us]", "span": "timedelta64[us]"}


def record_batch(columns: Columns) -> Any:
    """Return columns as a pyarrow.RecordBatch."""
    arrays = []
    for field in columns.schema.fields:
        column = columns.named(field.name)
        if column.kind in ("text", "bytes"):
            arrays.append(column.arrow())
        elif column.kind == "object":
            arrays.append(_arrow_objects(field, column.to_list()))
        else:
            array = arrow_numbers(column.values, column.valid)
            arrays.append(array.view(_ARROW_TIMES[column.kind]()) if column.kind in _ARROW_TIMES else array)
    return pa.record_batch(arrays, names=[field.name for field in columns.schema.fields])


def _arrow_objects(field: ColumnField, values: list[Any]) -> Any:
    """Return values of any type as a pyarrow array of a type that Arrow infers, if need be from their parts. Raises TypeError."""
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError):
        pass
    try:
        return pa.array(msgspec.to_builtins(values, builtin_types=_ARROW_OBJECTS))
    except (pa.ArrowException, OverflowError) as error:
        raise TypeError(
            f"the field {field.name} is {field.type!r}, for which Arrow has no array ({error}); use a dict in place of a batch"
        ) from None


_ARROW_OBJECTS = (bytes, datetime, date, time, timedelta, Decimal)
"""Types for which Arrow has arrays itself."""
_ARROW_TIMES: dict[str, Callable[[], Any]] = {"time": lambda: pa.timestamp("us"), "span": lambda: pa.duration("us")}
_ARROW_TYPES: dict[str, Callable[[], Any]] = {
    "int": lambda: pa.int64(), "float": lambda: pa.float64(), "bool": lambda: pa.bool_(), "text": lambda: pa.string(),
    "bytes": lambda: pa.binary(), **_ARROW_TIMES,
}  # fmt: skip


def columns_of(made: Any, row_type: Any, *, zones: bool = False) -> Columns:
    """Return a function's result as columns of a row type; `zones` as in `from_arrow`.

    Raises TypeError or ValueError, naming the field.
    """
    schema = schema_of(row_type)
    if isinstance(made, Columns):
        return made
    if isinstance(made, Mapping):
        names, length = list(made), max((len(values) for values in made.values()), default=0)
        parts = [_from_array(field, _taken(made, field, names)) for field in schema.fields]
    else:
        if isinstance(made, _DataFrame):
            made = made.to_arrow()
        if not isinstance(made, _ArrowTable):
            raise TypeError(f"it returned a {type(made).__name__}, not a RecordBatch, a dict of arrays or a DataFrame")
        names, length = list(made.schema.names), made.num_rows
        parts = [from_arrow(field, _taken(made, field, names), zones=zones) for field in schema.fields]
    for field, part in zip(schema.fields, parts, strict=True):
        if len(part) != length:
            raise ValueError(f"the field {field.name} has {len(part)} values, others {length}")
    return Columns(schema, parts, length)


def _taken(made: Any, field: ColumnField, names: list[str]) -> Any:
    if field.name not in names:
        raise ValueError(f"the field {field.name} is missing in what it returned; there are {', '.join(names)}")
    return made[field.name]


def _from_array(field: ColumnField, values: Any) -> Column:
    """Return an array or a list as the column of a field. Raises TypeError, naming the field, for values of another type."""
    if field.kind not in NUMERIC:
        return column_of(field, _listed(values))
    array = np.asarray(values)
    if array.ndim != 1:
        raise TypeError(f"the field {field.name} is one {field.type!r} a row, not an array in {array.ndim} dimensions")
    if array.dtype.kind in "mM":
        return _from_times(field, array)
    dtype = _DTYPES.get(field.kind)
    if dtype is not None and np.can_cast(array.dtype, dtype):
        return Column(field.kind, _kept(array, dtype))
    return column_of(field, _listed(values))


def _from_times(field: ColumnField, array: "Array") -> Column:
    """Return an array of times or spans, of any unit, as microseconds."""
    dtype = _TIME_DTYPES.get(field.kind, "")
    if not dtype or np.dtype(dtype).kind != array.dtype.kind:
        raise TypeError(f"the field {field.name} is {field.type!r} and cannot be {array.dtype}")
    micros = _kept(array, dtype)
    missing = np.isnat(micros)
    if array.dtype != dtype and not bool((missing | (micros.astype(array.dtype) == array)).all()):
        raise ValueError(
            f"the field {field.name} is in microseconds, which cannot hold these {array.dtype} values; "
            f"round them: .astype({dtype!r})"
        )
    if missing.any():
        return column_of(field, micros.tolist())
    return Column(field.kind, micros.view(np.int64))


def _listed(values: Any) -> list[Any]:
    listed: list[Any] = values.tolist() if isinstance(values, _Array) else list(values)
    return listed


def from_arrow(field: ColumnField, array: Any, *, zones: bool = False) -> Column:
    """Return a pyarrow array as the column of a field; converted within its family of types, where no information is lost.

    The meaning of a value of another family (a number as a time, in which unit?) is up to the user. Raises TypeError.
    Times with a zone are taken as UTC, without one, as columns have them; with `zones` they keep it, as objects.
    """
    # A column of a table comes as chunks; a Column has one array.
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):
            array = pa.concat_arrays(array.chunks)
    if field.kind == "object":
        return _objects(field, array)
    if not _is_of_family(array.type, field.kind):
        raise TypeError(
            f"the field {field.name} is {field.type!r} and the values are {array.type}: cast them, or change the field's type"
        )
    # With `zones` the zone must survive the cast, so such times become objects.
    zone = array.type.tz if zones and field.kind == "time" and pa.types.is_timestamp(array.type) else None
    try:
        array = array.cast(pa.timestamp("us", zone) if zone else _ARROW_TYPES[field.kind]())
    except pa.ArrowException as error:
        raise TypeError(f"the field {field.name} is {field.type!r}: {error}") from None
    if array.null_count and not field.optional:
        raise TypeError(f"the field {field.name} is {field.type!r} and cannot be None")
    if zone:
        return _objects(field, array)
    if field.kind in ("text", "bytes"):
        return Column(field.kind, array)
    valid = None
    if array.null_count:
        valid = numbers_of(array.is_valid())
    if field.kind in _ARROW_TIMES:
        array = array.view(pa.int64())
    if valid is not None:
        array = array.fill_null(False if field.kind == "bool" else 0)
    return Column(field.kind, numbers_of(array), valid)


def _objects(field: ColumnField, array: Any) -> Column:
    """Return the values of a pyarrow array in the field's type: Arrow has no enums, no sets and no rows in rows."""
    try:
        return Column("object", msgspec.convert(array.to_pylist(), generic(list, field.type)))
    except msgspec.ValidationError as error:
        raise TypeError(f"the field {field.name} is {field.type!r}: {error}") from None


_FAMILIES: dict[str, tuple[str, ...]] = {
    "int": ("integer",),
    "float": ("floating", "integer"),
    "bool": ("boolean",),
    "text": ("string", "large_string", "string_view"),
    "bytes": ("binary", "large_binary", "binary_view", "fixed_size_binary"),
    "time": ("timestamp", "date"),
    "span": ("duration",),
}
"""Kind of a field → Arrow's types of the same meaning in other widths and units, as `pyarrow.types.is_…` names them."""


def _is_of_family(arrow_type: Any, kind: str) -> bool:
    """Return whether values of an Arrow type mean the same in a field of this kind; an array of nulls fits everywhere."""
    plain = arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type
    return pa.types.is_null(plain) or any(vars(pa.types)[f"is_{name}"](plain) for name in _FAMILIES[kind])
