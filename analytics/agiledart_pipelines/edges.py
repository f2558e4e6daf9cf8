"""Edges of a pipeline: which table reads which, and edges that Spark would lose.

Spark Connect carries out some operators at once and looks their tables up in the catalog, not in the pipeline. Then Spark does
not see that the flow reads a table of the same pipeline, and starts it beside that table instead of after it: from the second
update on its rows are an update late. Seen in 4.3.0 with `withColumn`, `withColumnRenamed`, `withWatermark`. So edges are
compared before a run: those of the whole plan, and those that remain without what lies below such an operator.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agiledart_pipelines.sql_files import tables_read

SAFE: Final = frozenset(
    {
        *("read", "project", "filter", "join", "set_op", "sort", "limit", "aggregate", "deduplicate", "subquery_alias"),
        *("collect_metrics", "sql", "range", "local_relation"),
    }
)
"""Operators below which Spark sees the tables of the pipeline; tests/spark/test_pipeline_edges.py asks Spark itself."""

_NAMES: Final = {
    "with_watermark": "withWatermark",
    "with_columns": "withColumn",
    "with_columns_renamed": "withColumnRenamed",
    "to_schema": "to",
    "to_df": "toDF",
}
ADVICE: Final = {
    "withWatermark": "Put the watermark where the logs are read: read_logs(spark).withWatermark(…).",
    "": 'Write select("*", …alias("name")) in its place.',
}
"""Operator → what to write instead; "" for all others."""


@dataclass(frozen=True)
class TableRead:
    """A table that a flow reads.

    Attributes:
        is_stream: the flow reads it as a stream.
        operator: the operator that hides the table from Spark; "" for none.
    """

    table: str
    is_stream: bool
    operator: str = ""


def edges_of(relation: Any) -> list[TableRead]:
    """Return the tables that a plan of Spark Connect reads, by the last part of their names."""
    return list(_walk(relation, ""))


def _walk(message: Any, operator: str) -> Iterator[TableRead]:
    from google.protobuf.message import Message  # of the extra [pipeline]

    if message.DESCRIPTOR.name == "Relation":
        kind = message.WhichOneof("rel_type") or ""
        if kind == "read" and message.read.WhichOneof("read_type") == "named_table":
            name = message.read.named_table.unparsed_identifier.replace("`", "").rpartition(".")[2]
            yield TableRead(name, message.read.is_streaming, operator)
            return
        if kind == "sql":
            for read in tables_read(message.sql.query):
                yield TableRead(read.table, read.is_stream, operator)
        operator = operator or ("" if kind in SAFE else _NAMES.get(kind, kind))
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        is_map = field.message_type.GetOptions().map_entry
        parts = value.values() if is_map else value if field.is_repeated else (value,)
        for part in parts:
            if isinstance(part, Message):
                yield from _walk(part, operator)


def lost_edges(edges: Mapping[str, Sequence[TableRead]], tables: Sequence[str]) -> dict[str, list[TableRead]]:
    """Return flow → edges to tables of the same pipeline that Spark would lose."""
    own = set(tables)
    hidden = {flow: [edge for edge in read if edge.operator and edge.table in own] for flow, read in edges.items()}
    return {flow: lost for flow, lost in hidden.items() if lost}


def downstream(
    edges: Mapping[str, Sequence[TableRead]], tables: Sequence[str], streams_only: bool = False
) -> list[str]:
    """Return the given tables and all that read them, directly or through others, in the order of discovery."""
    reached = list(dict.fromkeys(tables))
    for name in reached:
        for flow, read in edges.items():
            if flow not in reached and any(
                edge.table == name and (edge.is_stream or not streams_only) for edge in read
            ):
                reached.append(flow)
    return reached
