"""Rows of Spark in the form of a log: the fields of a schema, and Arrow batches as MessagePack arrays of plain values."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_sink_log.row_form import encoded

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import DataType, StructType

PIECE_ROWS: Final = 2_000
"""Rows of one stored batch: readers decode whole ones."""

Plain = Callable[[Any], Any]
_SIMPLE: Final = {
    "string": "string", "char": "string", "varchar": "string",
    "byte": "int", "tinyint": "int", "short": "int", "smallint": "int", "integer": "int", "int": "int",
    "long": "int", "bigint": "int", "float": "float", "double": "float", "boolean": "bool", "binary": "bytes",
    "timestamp": "datetime", "timestamp_ntz": "datetime", "date": "date", "decimal": "decimal",
}  # fmt: skip


def fields_of_schema(schema: "StructType") -> list[dict[str, object]]:
    """Return the fields of a log for a schema of Spark; each may be null. Raises `ConfigurationError` for an unknown type."""
    return [{"name": field.name, **_described(field.name, field.dataType)} for field in schema.fields]


def _described(column: str, kind: "DataType") -> dict[str, object]:
    from pyspark.sql import types

    if isinstance(kind, types.StructType):
        parts: object = {"struct": [{"name": part.name, **_described(column, part.dataType)} for part in kind.fields]}
    elif isinstance(kind, types.ArrayType):
        parts = {"list": _described(column, kind.elementType)}
    elif isinstance(kind, types.MapType):
        parts = {"map": [_described(column, kind.keyType), _described(column, kind.valueType)]}
    elif (name := _SIMPLE.get(kind.typeName())) is not None:
        parts = name
    else:
        raise ConfigurationError(
            f"The column {column} has the type {kind.simpleString()}, which a feed does not have. Cast it, for example to string."
        )
    return {"type": parts, "nullable": True}


class RowWriter:
    """Converter of Arrow batches to stored batches.

    Args:
        schema: Spark's schema of the rows.

    Attributes:
        schema: the fields as JSON, as agents get them.
    """

    def __init__(self, schema: "StructType") -> None:
        fields = fields_of_schema(schema)
        self.schema = msgspec.json.encode(fields)
        self._plains = [_plain(field["type"]) for field in fields]

    def pieces(self, batch: "pyarrow.RecordBatch") -> Iterator[tuple[bytes, int]]:
        """Yield (body, rows) of the stored batches that hold the rows. Raises `OperationFailed` for a row that is too large."""
        for start in range(0, batch.num_rows, PIECE_ROWS):
            part = batch.slice(start, PIECE_ROWS)
            columns = [_values(column, plain) for column, plain in zip(part.columns, self._plains, strict=True)]
            try:
                yield from encoded(list(zip(*columns, strict=True)))
            except (ValueError, OverflowError) as error:
                raise OperationFailed(f"A row cannot be written to the feed: {error}") from None


def _values(column: "pyarrow.Array", plain: Plain | None) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return values if plain is None else [None if value is None else plain(value) for value in values]


def _plain(kind: object) -> Plain | None:
    """Return the conversion of a value that Arrow gives, for MessagePack; None when there is none. Never called for None."""
    if kind == "datetime":
        return _without_zone
    if not isinstance(kind, dict):
        return None
    [(name, parts)] = kind.items()
    inner = [_plain(part["type"]) for part in ([parts] if name == "list" else parts)]
    if name == "struct":
        names = [part["name"] for part in parts]
        return lambda value: [_apply(convert, value[name]) for name, convert in zip(names, inner, strict=True)]
    if name == "map":
        return lambda value: {_apply(inner[0], key): _apply(inner[1], part) for key, part in value}
    return None if inner[0] is None else lambda value: [_apply(inner[0], part) for part in value]


def _apply(convert: Plain | None, value: Any) -> Any:
    return value if convert is None or value is None else convert(value)


def _without_zone(value: datetime) -> datetime:
    """Return a time as logs hold it: in UTC, without a zone."""
    return value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
