"""Merged files of a table through Spark itself: readers see the same rows, and a stream that reads the table reads none twice."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from agiledart_pipelines import file_tables
from agiledart_pipelines.file_merging import merge_small_files
from agiledart_pipelines.project import PipelineProject

pytestmark = [pytest.mark.xdist_group("spark")]

SCHEMA = "id long, at timestamp, day date, price decimal(10,2), tags array<string>"
COLUMNS = pyarrow.schema(
    {
        "id": pyarrow.int64(),
        "at": pyarrow.timestamp("us", "UTC"),
        "day": pyarrow.date32(),
        "price": pyarrow.decimal128(10, 2),
        "tags": pyarrow.list_(pyarrow.string()),
    }
)
START = datetime(2013, 1, 7, tzinfo=UTC)


def write_rows(file: Path, first: int, count: int) -> None:
    numbers = list(range(first, first + count))
    at = [START + timedelta(seconds=number) for number in numbers]
    columns = {
        "id": numbers,
        "at": at,
        "day": [one.date() for one in at],
        "price": [Decimal(number) for number in numbers],
        "tags": [[str(number), None] for number in numbers],
    }
    pyarrow.parquet.write_table(pyarrow.table(columns, COLUMNS), file)


def copy(spark: Any, source: Path, table: Path, checkpoint: Path, schema: Any) -> None:
    """Bring the table up to date with its source."""
    frame = spark.readStream.schema(schema).parquet(str(source))
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start(str(table)).awaitTermination()


def test_a_stream_reads_each_row_of_a_merged_table_once(spark: Any, tmp_path: Path) -> None:
    project = PipelineProject(tmp_path, tmp_path / "spark-pipeline.yml", "taxi", "default", {})
    source, bronze, silver = tmp_path / "in", project.table_folder("bronze"), project.table_folder("silver")
    source.mkdir()
    schema = spark.createDataFrame([], SCHEMA).schema
    for step in range(3):
        for part in range(2):
            write_rows(source / f"{step}-{part}.parquet", 20 * step + 10 * part, 10)
        copy(spark, source, bronze, tmp_path / "of-bronze", schema)
        copy(spark, bronze, silver, tmp_path / "of-silver", schema)
        for table in (bronze, silver):
            found = spark.read.parquet(str(table)).sort("id").collect()
            assert [row.id for row in found] == list(range(20 * (step + 1)))
            assert [row["at"].timestamp() for row in found] == [
                (START + timedelta(seconds=row.id)).timestamp() for row in found
            ]
            assert [(row.price, row.tags) for row in found] == [(row.id, [str(row.id), None]) for row in found]
        assert merge_small_files(project, ["bronze", "silver"], most=1) == ["bronze", "silver"]
        assert [len(file_tables.live_files(table)) for table in (bronze, silver)] == [1, 1]
