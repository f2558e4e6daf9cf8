"""Form of rows by columns: which fields have a flat column, and the conversion of rows to Arrow columns and back.

| field | Arrow column | bounds in the zone map |
|---|---|---|
| `string` | utf8 | texts, shortened |
| `time`, `json` | utf8 | texts, shortened |
| `int` | int64 | whole numbers |
| `float` | float64 | numbers; none when NaN is among them |
| `bool` | bool | booleans |
| `bytes` | binary | none |
| `datetime` | timestamp in microseconds, UTC | microseconds since 1970 |
| `date` | date32 | days since 1970 |
| `timedelta` | int64, microseconds | none |
| `decimal` | decimal128 with 18 places | none |
| `read_time` | int64, nanoseconds since 1970 | microseconds since 1970 |

Rows of other types stay rows, and so do rows with a value that its column cannot hold exactly: a time with a zone, a decimal with
more places. Columns are users' bytes: `decoded` validates them in full. pyarrow is imported at the first use.
"""

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal
from functools import cached_property, lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import msgspec

from agiledart_dataflow.data.lazy_module import lazy_import
from agiledart_kernel.checksum import crc32c
from agiledart_sink_log.column_index import Bound, ColumnEntry, encode_index, text_bounds

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    pa = lazy_import("pyarrow")
    pc = lazy_import("pyarrow.compute")

PLACES: Final = 18
_SMALLEST: Final = Decimal(1).scaleb(-PLACES)
_DECODED: Final[dict[str, Any]] = {
    "string": str,
    "int": int,
    "float": float,
    "bool": bool,
    "bytes": bytes,
    "datetime": str,
    "date": date,
    "time": str,
    "timedelta": timedelta,
    "decimal": Decimal,
    "read_time": int,
    "json": str,
}
_MICROSECOND: Final = timedelta(microseconds=1)
_ENCODER = msgspec.msgpack.Encoder()


def has_pyarrow() -> bool:
    """Return whether pyarrow is installed; nothing is imported."""
    return find_spec("pyarrow") is not None


def has_flat_columns(fields: Sequence[Mapping[str, object]]) -> bool:
    """Return whether each field of a log's rows has a flat column."""
    kinds = [field.get("type") for field in fields]
    return bool(kinds) and all(isinstance(kind, str) and kind in _DECODED for kind in kinds)


@lru_cache(maxsize=64)
def arrow_type(kind: str) -> "pa.DataType":
    """Return the Arrow type of the column of a field."""
    types: dict[str, pa.DataType] = {
        "int": pa.int64(),
        "float": pa.float64(),
        "bool": pa.bool_(),
        "bytes": pa.binary(),
        "datetime": pa.timestamp("us", tz="UTC"),
        "date": pa.date32(),
        "timedelta": pa.int64(),
        "decimal": pa.decimal128(38, PLACES),
        "read_time": pa.int64(),
    }
    return types.get(kind, pa.string())


class ColumnForm:
    """Conversion of the rows of one log.

    Args:
        fields: of the log, as in its description; each has a flat column.
    """

    def __init__(self, fields: Sequence[Mapping[str, object]]) -> None:
        self.kinds = [str(field["type"]) for field in fields]
        decoded = [
            _DECODED[kind] | None if field.get("nullable") else _DECODED[kind]
            for kind, field in zip(self.kinds, fields, strict=True)
        ]
        row: Any = tuple
        several: Any = list
        self._decoder: msgspec.msgpack.Decoder[list[Any]] = msgspec.msgpack.Decoder(several[row[tuple(decoded)]])

    @cached_property
    def _types(self) -> "list[pa.DataType]":
        """Arrow types of the columns; a sink that gets rows only never needs pyarrow."""
        return [arrow_type(kind) for kind in self.kinds]

    # ---- rows to columns

    def decoded_rows(self, body: bytes) -> list[Any]:
        """Return the rows of a stored batch. Raises ValueError when they are not of the log's type, or have no flat form."""
        try:
            return self._decoder.decode(body)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ValueError(str(error)) from None

    def columns_of(self, rows: list[Any]) -> "list[pa.Array]":
        """Return the columns of rows. Raises ValueError for a value that its column cannot hold exactly."""
        try:
            return [_array(*column) for column in zip(self.kinds, self._types, zip(*rows, strict=True), strict=True)]
        except (pa.ArrowException, OverflowError, TypeError, ArithmeticError) as error:
            raise ValueError(str(error)) from None

    def encoded(self, arrays: "Sequence[pa.Array]", times: "pa.Array | None" = None) -> tuple[bytes, list[bytes]]:
        """Return (index with its length, columns) of a stored batch.

        Args:
            times: time of storing of each row; stored where they differ. None: all rows were stored at once.
        """
        kinds = list(self.kinds)
        if times is not None and len(times.unique()) > 1:
            arrays, kinds = [*arrays, times], [*kinds, "stored"]
        messages = [message_of(array) for array in arrays]
        entries = [
            ColumnEntry(len(message), crc32c(message), array.null_count, *_bounds(kind, array))
            for kind, array, message in zip(kinds, arrays, messages, strict=True)
        ]
        return encode_index(entries), messages

    # ---- columns to rows

    def decoded(self, number: int, message: bytes | bytearray | memoryview, rows: int) -> "pa.Array":
        """Return a column, validated in full; the number after the last field is the time of storing. Raises ValueError."""
        kind = self._types[number] if number < len(self._types) else pa.int64()
        return decoded_column(message, kind, rows)

    def rows_of(self, messages: Sequence[bytes | memoryview], rows: int) -> bytes:
        """Return the MessagePack array of the rows of a batch, as a sink writes it. Raises ValueError for damaged columns."""
        columns = [
            _values(kind, self.decoded(number, messages[number], rows)) for number, kind in enumerate(self.kinds)
        ]
        return _ENCODER.encode(list(zip(*columns, strict=True)))


def decoded_column(message: bytes | bytearray | memoryview, kind: "pa.DataType", rows: int) -> "pa.Array":
    """Return the first `rows` values of the column in an IPC message, validated in full. Raises ValueError."""
    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(message), _message_schema(kind))
        if batch.num_rows < rows:
            raise ValueError(f"a column of {batch.num_rows} values in a batch of {rows} rows")
        array = batch.column(0)
        array.validate(full=True)
        array = array[:rows]
    except (pa.ArrowException, OSError, MemoryError, EOFError) as error:
        raise ValueError(f"a column that is not readable: {error}") from None
    return array


@lru_cache(maxsize=64)
def _message_schema(kind: "pa.DataType") -> "pa.Schema":
    """Return the schema of a message of one column; there are as many as types of columns."""
    return pa.schema([pa.field("", kind)])


def message_of(array: "pa.Array") -> bytes:
    """Return the IPC record batch message of one column, compressed by lz4."""
    batch = pa.RecordBatch.from_arrays([array], names=[""])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_batch(batch)
    messages = pa.ipc.MessageReader.open_stream(sink.getvalue())
    messages.read_next_message()  # the schema, which the log's description has
    raw: bytes = messages.read_next_message().serialize().to_pybytes()
    return raw


def _array(kind: str, own: "pa.DataType", values: Sequence[Any]) -> "pa.Array":
    if kind == "datetime":
        return pa.array(values, pa.string()).cast(pa.timestamp("us")).cast(own)
    if kind == "timedelta":
        return pa.array([None if value is None else value // _MICROSECOND for value in values], own)
    if kind == "decimal":
        return pa.array([None if value is None else _exact(value) for value in values], own)
    return pa.array(values, own)


def _exact(value: Decimal) -> Decimal:
    if not value.is_finite() or value != value.quantize(_SMALLEST) or (value.is_signed() and not value):
        raise ValueError(f"{value} has more than {PLACES} places")
    return value


def _bounds(kind: str, array: "pa.Array") -> tuple[Bound | None, Bound | None]:
    """Return the zone map of a column."""
    if kind in ("bytes", "timedelta", "decimal") or array.null_count == len(array):
        return None, None
    if kind == "float" and pc.any(pc.is_nan(array)).as_py():
        return None, None
    if kind == "datetime":
        array = array.cast(pa.int64())
    if kind == "date":
        array = array.cast(pa.int32())
    bounds = pc.min_max(array)
    least, greatest = bounds["min"].as_py(), bounds["max"].as_py()
    if isinstance(least, str):
        return text_bounds(least, greatest)
    return (least // 1_000, greatest // 1_000) if kind == "read_time" else (least, greatest)


def _values(kind: str, array: "pa.Array") -> list[Any]:
    """Return the values of a column as a sink encodes them."""
    if kind == "datetime":
        array = array.cast(pa.timestamp("us"))
    values: list[Any] = array.to_pylist()
    if kind == "timedelta":
        return [None if value is None else timedelta(microseconds=value) for value in values]
    if kind == "decimal":
        return [None if value is None else format(value.normalize(), "f") for value in values]
    return values
