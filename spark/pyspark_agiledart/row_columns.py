"""Columns that say where a row comes from (`metadata=true`), and the choice of columns (`columns`)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from agiledart_kernel.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructField, StructType

LOG: Final = "_log"
NODE: Final = "_node"
PARTITION: Final = "_partition"
OFFSET: Final = "_offset"
STORED_AT: Final = "_stored_at"
METADATA: Final = (LOG, NODE, PARTITION, OFFSET, STORED_AT)
"""Log, node that served it, partition, offset in it, and time at which the sink stored the row; log, partition and offset together
name one row."""


def metadata_fields() -> "list[StructField]":
    """Return Spark's fields of the columns."""
    from pyspark.sql import types

    kinds = (types.StringType(), types.StringType(), types.IntegerType(), types.LongType(), types.TimestampType())
    return [types.StructField(name, kind, True) for name, kind in zip(METADATA, kinds, strict=True)]


def chosen_schema(schema: "StructType", metadata: bool, columns: Sequence[str]) -> "StructType":
    """Return the schema of a query: the log's fields, the metadata columns, and of these the named ones.

    Raises `ConfigurationError` for a name that is not there, or one that is there twice.
    """
    from pyspark.sql.types import StructType

    fields = list(schema.fields)
    if metadata:
        twice = [field.name for field in fields if field.name in METADATA]
        if twice:
            raise ConfigurationError(f"The log has a field {twice[0]} of its own; read it without metadata=true.")
        fields += metadata_fields()
    if not columns:
        return StructType(fields)
    by_name = {field.name: field for field in fields}
    missing = [name for name in columns if name not in by_name]
    if missing:
        raise ConfigurationError(f"columns names {', '.join(missing)}; the log has {', '.join(by_name)}.")
    return StructType([by_name[name] for name in dict.fromkeys(columns)])


def metadata_arrays(
    sink: str, node: str, partition: int, first: int, stored_ms: "pyarrow.Array"
) -> "dict[str, pyarrow.Array]":
    """Return the metadata columns of consecutive rows.

    Args:
        first: offset of the first row.
        stored_ms: time of storing of each row, milliseconds since 1970.
    """
    import numpy
    import pyarrow
    import pyarrow.compute as compute

    rows = len(stored_ms)
    return {
        LOG: pyarrow.repeat(pyarrow.scalar(sink, pyarrow.string()), rows),
        NODE: pyarrow.repeat(pyarrow.scalar(node, pyarrow.string()), rows),
        PARTITION: pyarrow.repeat(pyarrow.scalar(partition, pyarrow.int32()), rows),
        OFFSET: pyarrow.array(numpy.arange(first, first + rows, dtype="int64")),
        STORED_AT: compute.multiply(stored_ms, 1_000).cast(pyarrow.timestamp("us", tz="UTC")),
    }


def repeated_times(stored_ms: Sequence[tuple[int, int]]) -> "pyarrow.Array":
    """Return the time of storing of each row, from (rows, milliseconds since 1970) of consecutive stored batches."""
    import numpy
    import pyarrow

    times: Any = numpy.repeat(
        numpy.array([at for _, at in stored_ms], dtype="int64"), [count for count, _ in stored_ms]
    )
    return pyarrow.array(times)
