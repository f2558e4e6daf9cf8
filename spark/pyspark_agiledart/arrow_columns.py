"""Conversion of a log's rows to columns: Spark's types of the fields, and stored batches as Arrow batches.

Columns of a log need little: they are validated, and those of times and spans are converted. Rows (MessagePack) are decoded by
type into tuples, transposed to columns, and passed to Arrow, which also reads the texts of times. This is ten times as fast as
Python rows in Spark. Times without a zone are taken as UTC, spans become seconds, decimals keep 18 places, a
`ReadTime` is a timestamp.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import compress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_sink_log.column_form import arrow_type, decoded_column
from agiledart_sink_log.column_index import IS_NULL, ZoneCondition
from pyspark_agiledart.row_filter import Condition, rows_that_match, zone_condition
from pyspark_agiledart.types import Fields, FieldType

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import DataType, StructType

PLACES: Final = 18
_SMALLEST: Final = Decimal(1).scaleb(-PLACES)

Convert = Callable[[Any], Any]

_DECODED: Final[dict[str, Any]] = {
    "string": str,
    "int": int,
    "float": float,
    "bool": bool,
    "bytes": bytes,
    "datetime": datetime,
    "date": date,
    "time": str,
    "timedelta": timedelta,
    "decimal": Decimal,
    "read_time": int,
    "json": str,
}


def spark_schema(fields: Fields) -> "StructType":
    """Return the schema of a log's rows in Spark; every column is nullable."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(name, _spark_type(kind), True) for name, kind in fields])


def _spark_type(kind: FieldType) -> "DataType":
    from pyspark.sql import types

    if kind.name == "struct":
        return types.StructType([types.StructField(name, _spark_type(part), True) for name, part in kind.parts])
    if kind.name == "list":
        return types.ArrayType(_spark_type(kind.parts[0][1]), True)
    if kind.name == "map":
        return types.MapType(_spark_type(kind.parts[0][1]), _spark_type(kind.parts[1][1]), True)
    simple: dict[str, DataType] = {
        "string": types.StringType(),
        "int": types.LongType(),
        "float": types.DoubleType(),
        "bool": types.BooleanType(),
        "bytes": types.BinaryType(),
        "datetime": types.TimestampType(),
        "date": types.DateType(),
        "time": types.StringType(),
        "timedelta": types.DoubleType(),
        "decimal": types.DecimalType(38, PLACES),
        "read_time": types.TimestampType(),
        "json": types.StringType(),
    }
    return simple[kind.name]


class RowReader:
    """Converter of stored batches of one log to Arrow record batches with Spark's schema.

    Args:
        fields: of the log's rows.
        wanted: Spark's schema: that of the log, or one from the user, with columns chosen by name.
        where: conditions of the rows to return.
        added: names of columns that `batch` gets besides the rows.
        is_one_of_several: the log is one of several: a field that it lacks is null, and one of another type is refused.

    Raises `ConfigurationError` when `wanted` or `where` names a field that the log does not have.
    """

    def __init__(
        self,
        fields: Fields,
        wanted: "StructType",
        where: Sequence[Condition] = (),
        added: Collection[str] = (),
        is_one_of_several: bool = False,
    ) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        places = {name: index for index, (name, _) in enumerate(fields)}
        names = [field.name for field in wanted.fields if field.name not in added]
        missing = [name for name in (*names, *(part.field for part in where)) if name not in places]
        if missing and not is_one_of_several:
            raise ConfigurationError(
                f"The log has no field {', '.join(missing)}; it has {', '.join(places)}. Leave .schema(…) out, or name these."
            )
        own = to_arrow_schema(spark_schema(fields), timezone="UTC")
        self._schema = to_arrow_schema(wanted, timezone="UTC")
        self._where = tuple(where)
        self._used = {places[name] for name in (*names, *(part.field for part in where)) if name in places}
        self._kinds = {name: fields[index][1].name for name, index in places.items()}
        self._convert = {name: _column_converter(fields[index][1]) for name, index in places.items()}
        self._own = {name: own.field(index).type for name, index in places.items()}
        self._places = places
        self._fields = fields
        if is_one_of_several:
            self._check_types(names)
        self._decoder = _rows_decoder(fields, self._used, texts=True)
        self._has_texts = True
        self.columns: tuple[int, ...] = tuple(sorted(self._used))

    @property
    def stored_at_column(self) -> int:
        """Return the number of the column with the times of storing: the one after the fields."""
        return len(self._fields)

    def zone_conditions(self) -> list[ZoneCondition]:
        """Return the conditions by which an agent may leave out batches. Raises `ConfigurationError` for a wrong literal."""
        zones = [
            zone_condition(part, self._places[part.field], self._kinds[part.field], self._own[part.field])
            for part in self._where
            if part.field in self._places
        ]
        return [zone for zone in zones if zone is not None]

    def _check_types(self, names: Sequence[str]) -> None:
        for name in names:
            wanted = self._schema.field(name).type
            if name in self._own and self._own[name] != wanted:
                raise ConfigurationError(
                    f"the field {name} is {self._own[name]} in it and {wanted} in the query, whose logs it joined. Rename the "
                    f"field, or read the log apart"
                )

    def read(self, body: bytes | memoryview, skip: int = 0, keep: int | None = None) -> "pyarrow.RecordBatch":
        """Return the rows of one stored batch, `keep` of them after the first `skip`. Raises `OperationFailed`."""
        return self.batch(self.rows(body, skip, keep))

    def rows(self, body: bytes | memoryview, skip: int = 0, keep: int | None = None) -> list[Any]:
        """Return the same rows as decoded from the log, for `batch`."""
        rows = self._decode(body)
        return rows[skip : None if keep is None else skip + keep] if skip or keep is not None else rows

    def batch(self, rows: list[Any], added: "Mapping[str, pyarrow.Array] | None" = None) -> "pyarrow.RecordBatch":
        """Return rows of one or several stored batches by columns, those that match the conditions. Raises `OperationFailed`.

        Args:
            added: columns of the same length that do not come from the rows.
        """
        import pyarrow

        columns: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [()] * len(self._fields)
        extra = dict(added or {})
        try:
            if self._where:
                columns, extra, count = self._matching(columns, extra, len(rows))
            else:
                count = len(rows)
            arrays = [
                extra[field.name] if field.name in extra else self._array(columns, field, count)
                for field in self._schema
            ]
        except (pyarrow.ArrowException, msgspec.MsgspecError, OverflowError, TypeError, ValueError) as error:
            raise OperationFailed(f"A row of the log does not fit into Spark's columns: {error}") from None
        return pyarrow.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _matching(
        self, columns: Sequence[Sequence[Any]], extra: "dict[str, pyarrow.Array]", count: int
    ) -> "tuple[Sequence[Sequence[Any]], dict[str, pyarrow.Array], int]":
        """Return the rows that match the conditions, and their number."""
        mask = self._mask(lambda name: self._own_array(columns, name), count)
        if mask is None:
            return columns, extra, count
        chosen = mask.to_pylist()
        left = sum(chosen)
        if left == count:
            return columns, extra, count
        picked: list[Sequence[Any]] = [
            list(compress(column, chosen)) if index in self._used else () for index, column in enumerate(columns)
        ]
        return picked, {name: array.filter(mask) for name, array in extra.items()}, left

    def _mask(self, own: "Callable[[str], pyarrow.Array]", count: int) -> "pyarrow.Array | None":
        """Return which rows match; None: all."""
        import pyarrow

        known = [part for part in self._where if part.field in self._places]
        if any(part.operator != IS_NULL for part in self._where if part.field not in self._places):
            return pyarrow.array([False] * count, pyarrow.bool_())  # the field is null in each row of this log
        return rows_that_match(known, {part.field: own(part.field) for part in known}) if known else None

    def column_batch(
        self,
        parts: Mapping[int, memoryview],
        rows: int,
        skip: int,
        keep: int,
        added: "Mapping[str, pyarrow.Array] | None" = None,
    ) -> "pyarrow.RecordBatch":
        """Return `keep` rows after the first `skip` of a batch that is stored by columns, those that match the conditions.

        Args:
            parts: number of a field → its column as stored, for each of `columns`.
            rows: number of rows of the stored batch.
            added: as in `batch`.

        Raises `OperationFailed` for columns that are not what the log's schema says.
        """
        import pyarrow

        arrays: dict[str, pyarrow.Array] = {}

        def own(name: str) -> pyarrow.Array:
            if name not in arrays:
                kind = self._kinds[name]
                stored = decoded_column(parts[self._places[name]], arrow_type(kind), rows).slice(skip, keep)
                arrays[name] = _own_form(kind, stored, self._own[name])
            return arrays[name]

        extra = dict(added or {})
        try:
            mask = self._mask(own, keep) if self._where else None
            cut = [self._cut(field, extra, own, keep) for field in self._schema]
            if mask is not None:
                cut = [array.filter(mask) for array in cut]
        except (pyarrow.ArrowException, OverflowError, ValueError) as error:
            raise OperationFailed(f"A column of the log is not what its schema says: {error}") from None
        return pyarrow.RecordBatch.from_arrays(cut, schema=self._schema)

    def _cut(
        self,
        field: "pyarrow.Field",
        extra: "Mapping[str, pyarrow.Array]",
        own: "Callable[[str], pyarrow.Array]",
        count: int,
    ) -> Any:
        import pyarrow

        if field.name in extra:
            return extra[field.name]
        if field.name not in self._places:
            return pyarrow.nulls(count, field.type)
        array = own(field.name)
        return array if array.type == field.type else array.cast(field.type)

    def _array(self, columns: Sequence[Sequence[Any]], field: "pyarrow.Field", count: int) -> Any:
        import pyarrow

        if field.name not in self._places:
            return pyarrow.nulls(count, field.type)
        array = self._own_array(columns, field.name)
        return array if array.type == field.type else array.cast(field.type)

    def _own_array(self, columns: Sequence[Sequence[Any]], name: str) -> Any:
        import pyarrow

        values = columns[self._places[name]]
        array = _at_once(self._kinds[name], values, self._own[name])
        if array is None:
            if (convert := self._convert[name]) is not None:
                values = [None if value is None else convert(value) for value in values]
            array = pyarrow.array(values, type=self._own[name])
        return array

    def _decode(self, body: bytes | memoryview) -> list[Any]:
        try:
            found: list[Any] = self._decoder.decode(body)
            return found
        except msgspec.MsgspecError as error:
            if not self._has_texts:
                raise OperationFailed(f"A batch of the log holds no rows of its schema: {error}") from None
        self._has_texts = False  # times with zones are no texts; from now on all are decoded one by one
        self._decoder = _rows_decoder(self._fields, self._used, texts=False)
        return self._decode(body)


def _own_form(kind: str, stored: "pyarrow.Array", own: Any) -> "pyarrow.Array":
    """Return a stored column in Spark's form."""
    import pyarrow

    if kind == "read_time":
        return _microseconds(stored, own)
    if kind == "timedelta":
        seconds = [None if value is None else value / 1_000_000 for value in stored.to_pylist()]
        return pyarrow.array(seconds, own)
    return stored


def _microseconds(times: "pyarrow.Array", own: Any) -> "pyarrow.Array":
    """Return times in nanoseconds as Spark's timestamps."""
    import pyarrow
    import pyarrow.compute as compute

    if times.null_count == len(times) or compute.min(times).as_py() >= 0:  # Arrow's division rounds towards zero
        return compute.divide(times, 1_000).cast(own)
    return pyarrow.array([None if value is None else value // 1_000 for value in times.to_pylist()], own)


def _at_once(name: str, values: Sequence[Any], own: Any) -> Any:
    """Return a column that Arrow converts by itself; None for other types and for values that it does not know."""
    import pyarrow

    if name == "datetime":
        try:
            return pyarrow.array(values, type=pyarrow.string()).cast(pyarrow.timestamp("us")).cast(own)
        except pyarrow.ArrowException:  # a zone, for example
            return None
    if name == "read_time":
        return _microseconds(pyarrow.array(values, type=pyarrow.int64()), own)
    return None


def _rows_decoder(fields: Fields, used: Collection[int], *, texts: bool) -> Any:
    """Return the decoder of rows; fields that are not used stay undecoded. `texts`: times without a zone remain texts for Arrow."""
    several: Any = list
    row: Any = tuple
    kinds = [
        (_text(kind) if texts and kind.name == "datetime" else _decoded(kind)) if index in used else msgspec.Raw
        for index, (_, kind) in enumerate(fields)
    ]
    return msgspec.msgpack.Decoder(several[row[tuple(kinds)]])


def _text(kind: FieldType) -> Any:
    return str | None if kind.nullable else str


def _decoded(kind: FieldType) -> Any:
    """Return the type as which msgspec decodes a field; nested rows are arrays, too."""
    makers: dict[str, Any] = {"struct": tuple, "list": list, "map": dict}
    inner = tuple(_decoded(part) for _, part in kind.parts)
    found: Any = makers[kind.name][inner] if kind.name in makers else _DECODED[kind.name]
    return found | None if kind.nullable else found


def _column_converter(kind: FieldType) -> Convert | None:
    """Return the converter of a column's own values, as `_converter`; there a time may still be a text."""
    if kind.name == "datetime":
        return lambda value: msgspec.convert(value, datetime) if isinstance(value, str) else value
    return _converter(kind)


def _converter(kind: FieldType) -> Convert | None:
    """Return the conversion of a decoded value for Arrow; None when Arrow accepts it. Never called for None."""
    if kind.name == "read_time":
        return lambda value: value // 1_000
    if kind.name == "timedelta":
        return lambda value: value.total_seconds()
    if kind.name == "decimal":
        return lambda value: value.quantize(_SMALLEST) if -value.as_tuple().exponent > PLACES else value
    inner = [_converter(part) for _, part in kind.parts]
    if kind.name == "struct":
        names = [name for name, _ in kind.parts]
        return lambda value: {
            name: _apply(convert, one) for name, convert, one in zip(names, inner, value, strict=True)
        }
    if kind.name == "list" and inner[0] is not None:
        return lambda value: [_apply(inner[0], one) for one in value]
    if kind.name == "map":
        return lambda value: [(_apply(inner[0], key), _apply(inner[1], one)) for key, one in value.items()]
    return None


def _apply(convert: Convert | None, value: Any) -> Any:
    return value if convert is None or value is None else convert(value)
