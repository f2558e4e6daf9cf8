"""Edges of a plan of Spark Connect: tables that it reads, and operators that hide them from Spark."""

from typing import Any

import pytest

from agiledart_pipelines.edges import TableRead, downstream, edges_of, lost_edges

EDGES = {
    "bronze": [],
    "silver": [TableRead("bronze", True)],
    "late": [TableRead("silver", True, "withColumn")],
    "gold": [TableRead("silver", False)],
    "other": [TableRead("elsewhere", True, "withColumn")],
}


def test_edges_that_spark_would_lose() -> None:
    assert lost_edges(EDGES, list(EDGES)) == {"late": [TableRead("silver", True, "withColumn")]}


def test_tables_that_read_others() -> None:
    assert downstream(EDGES, ["bronze"]) == ["bronze", "silver", "late", "gold"]
    assert downstream(EDGES, ["bronze"], streams_only=True) == ["bronze", "silver", "late"]
    assert downstream(EDGES, ["gold"]) == ["gold"]


def test_tables_are_read_from_a_plan() -> None:
    proto: Any = pytest.importorskip("pyspark.sql.connect.proto", reason="grpcio is not installed (extra [connect])")

    def table(name: str, is_streaming: bool = True) -> Any:
        read = proto.Read(named_table=proto.Read.NamedTable(unparsed_identifier=name), is_streaming=is_streaming)
        return proto.Relation(read=read)

    bronze = table("`spark_catalog`.`default`.`bronze`")
    assert edges_of(proto.Relation(project=proto.Project(input=bronze))) == [TableRead("bronze", True)]
    for kind, relation, name in (
        ("with_columns", proto.WithColumns(input=bronze), "withColumn"),
        ("with_watermark", proto.WithWatermark(input=bronze), "withWatermark"),
        ("drop", proto.Drop(input=bronze), "drop"),
    ):
        hidden = proto.Relation(**{kind: relation})
        over = proto.Relation(filter=proto.Filter(input=hidden))
        assert edges_of(over) == [TableRead("bronze", True, name)]
        joined = proto.Relation(join=proto.Join(left=over, right=table("days", is_streaming=False)))
        assert edges_of(joined) == [TableRead("bronze", True, name), TableRead("days", False)]
