"""Codec `Columns` ↔ bytes: a short head, then one Arrow IPC record batch. The decoder validates all input.

    body = length of the head (4 bytes, big-endian) · head · record batch message
    head = MessagePack [rows, kinds, objects]

`kinds` has one letter a field: that of its column, or `o` for a list of objects, whose values are in `objects` as MessagePack
and are validated by the field's type. The batch has the other columns; both ends know its schema from the row type.
Compressed batches and dictionaries are refused, because their size tells nothing about their unpacked size.
"""

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from agiledart_dataflow.data.column import EARLIEST_US, LATEST_US, NUMERIC, Column, arrow_numbers, numbers_of
from agiledart_dataflow.data.column_schema import ColumnField, ColumnKind, ColumnSchema, schema_of
from agiledart_dataflow.data.columns import Columns
from agiledart_dataflow.data.lazy_module import lazy_import
from agiledart_dataflow.data.schema import generic
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.limits import MAX_DATA_FRAME_BYTES

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
else:
    np = lazy_import("numpy")
    pa = lazy_import("pyarrow")

MAX_COLUMN_ROWS = 10_000
"""Most rows in one frame of columns; a receiver accepts twice as many, because frames are cut by halves."""

_LETTERS: dict[ColumnKind, str] = {
    "int": "i", "float": "f", "bool": "b", "text": "s", "bytes": "y", "time": "t", "span": "d", "object": "o",
}  # fmt: skip
_COMPRESSION = 3
"""Number of the field `compression` in Arrow's table RecordBatch."""

_encoder = msgspec.msgpack.Encoder()
_HEAD = struct.Struct(">I")
_head = msgspec.msgpack.Decoder(tuple[int, str, msgspec.Raw])


def encoded(columns: Columns) -> bytes:
    """Return the bytes of a batch of columns."""
    parts = [columns.column(number) for number in range(len(columns.schema.fields))]
    arrays, kinds, objects = [], [], []
    for part in parts:
        array = None if part.kind == "object" else _arrow(part)
        if array is None:
            objects.append(part.to_list())
            kinds.append("o")
        else:
            arrays.append(array)
            kinds.append(_LETTERS[part.kind])
    head = _encoder.encode((len(columns), "".join(kinds), objects))
    parcel = [_HEAD.pack(len(head)), head]
    if arrays:
        letters = "".join(kinds).replace("o", "")
        parcel.append(pa.record_batch(arrays, schema=_arrow_schema(letters)).serialize())
    return b"".join(parcel)


def _arrow(column: Column) -> Any:
    """Return the column as a pyarrow.Array; None when it has a text without a UTF-8 form."""
    if column.kind in ("text", "bytes"):
        try:
            return column.arrow()
        except UnicodeEncodeError:
            return None
    return arrow_numbers(column.values, column.valid)


@lru_cache(maxsize=256)
def _arrow_schema(letters: str) -> Any:
    """Return the Arrow schema. Times and spans travel as plain integers; their meaning is in the row type."""
    types = {"i": pa.int64(), "f": pa.float64(), "b": pa.bool_(), "s": pa.string(), "y": pa.binary()}
    types |= {"t": pa.int64(), "d": pa.int64()}
    return pa.schema([pa.field(str(number), types[letter]) for number, letter in enumerate(letters)])


def decoded(body: bytes | bytearray | memoryview, row_type: Any) -> Columns:
    """Return the columns of these bytes; raises `RemoteProtocolError` (`oversize`, `form`) and no other error."""
    if len(body) > MAX_DATA_FRAME_BYTES:
        raise RemoteProtocolError("oversize", f"columns of {len(body)} bytes, at most {MAX_DATA_FRAME_BYTES}")
    view = memoryview(body)
    schema = schema_of(row_type)
    try:
        (length,) = _HEAD.unpack_from(view)
        rows, kinds, rest = _head.decode(view[4 : 4 + length])
        if not 0 <= rows <= 2 * MAX_COLUMN_ROWS or len(kinds) != len(schema.fields):
            raise ValueError(f"{rows} rows of columns {kinds!r}")
        for field, letter in zip(schema.fields, kinds, strict=True):
            if letter not in (_LETTERS[field.kind], "o"):
                raise ValueError(f"the field {field.name} cannot come as {letter!r}")
        objects = _objects_decoder(schema, kinds).decode(rest)
        arrays = _arrays(view[4 + length :], kinds.replace("o", ""), rows)
        lists = iter(objects)
        parts = [
            _listed(next(lists), rows) if letter == "o" else _column(field, next(arrays))
            for field, letter in zip(schema.fields, kinds, strict=True)
        ]
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError, OverflowError, struct.error) as error:
        raise RemoteProtocolError("form", str(error)[:200]) from None
    except (KeyError, IndexError, EOFError, OSError, MemoryError, pa.ArrowException) as error:
        raise RemoteProtocolError("form", f"no record batch: {error!s:.150}") from None
    return Columns(schema, parts, rows)


@lru_cache(maxsize=256)
def _objects_decoder(schema: ColumnSchema, kinds: str) -> msgspec.msgpack.Decoder[Any]:
    lists = [generic(list, field.type) for field, letter in zip(schema.fields, kinds, strict=True) if letter == "o"]
    return msgspec.msgpack.Decoder(generic(tuple, *lists) if lists else tuple[()])


def _listed(values: list[Any], rows: int) -> Column:
    if len(values) != rows:
        raise ValueError(f"{len(values)} values in {rows} rows")
    return Column("object", values)


def _arrays(view: memoryview, letters: str, rows: int) -> Any:
    """Return the arrays of the record batch in this message, after validation."""
    if not letters:
        if len(view):
            raise ValueError("bytes after the last column")
        return iter(())
    buffer = pa.py_buffer(view)
    message = pa.ipc.read_message(buffer)
    if message.type != "record batch" or _is_compressed(message.metadata.to_pybytes()):
        raise ValueError(f"a plain record batch was expected, not {message.type}, compressed or not")
    batch = pa.ipc.read_record_batch(message, _arrow_schema(letters))
    if batch.num_rows != rows:
        raise ValueError(f"{batch.num_rows} values in {rows} rows")
    batch.validate(full=True)
    return iter(batch.columns)


def _is_compressed(metadata: bytes) -> bool:
    """Return whether Arrow's metadata (a flatbuffer: Message, whose header is a RecordBatch) names a compression."""

    def field(table: int, number: int) -> int:
        """Return the place of a table's field; 0 when it is absent."""
        (back,) = struct.unpack_from("<i", metadata, table)
        (size,) = struct.unpack_from("<H", metadata, table - back)
        if 4 + 2 * number >= size:
            return 0
        (offset,) = struct.unpack_from("<H", metadata, table - back + 4 + 2 * number)
        return table + offset if offset else 0

    def followed(place: int) -> int:
        return int(place + struct.unpack_from("<I", metadata, place)[0])

    header = field(followed(0), 2)
    return header == 0 or field(followed(header), _COMPRESSION) != 0


def _column(field: ColumnField, array: Any) -> Column:
    if array.null_count and not field.optional:
        raise ValueError(f"the field {field.name} must not be None")
    if field.kind not in NUMERIC:
        return Column(field.kind, array)
    valid = None
    if array.null_count:
        valid = numbers_of(array.is_valid())
        array = array.fill_null(False if field.kind == "bool" else 0)
    values = numbers_of(array)
    if field.kind == "time" and len(values) and not (values.min() >= EARLIEST_US and values.max() <= LATEST_US):
        raise ValueError(f"the field {field.name} has times outside the years 1 to 9999")
    return Column(field.kind, values, valid)
