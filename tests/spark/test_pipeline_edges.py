"""Operators on tables of the same pipeline: below those that the check lets pass, Spark sees the edge; measured on Spark itself."""

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from agiledart_pipelines.logs import LOGS_FILE
from tests.spark.test_pipeline_project import HAS_CONNECT, Driver

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("spark"),
    pytest.mark.skipif(
        not HAS_CONNECT, reason="pipelines need Spark Connect and pyyaml:  pip install -e '.[pipeline]'"
    ),
]

STREAMS = {
    "selected": '.select("*", f.lit(1).alias("x"))',
    "filtered": '.where("n >= 0")',
    "observed": '.observe("seen", f.count(f.lit(1)).alias("rows"))',
    "distinct_rows": '.dropDuplicates(["n"])',
    "aliased": '.alias("b").where("b.n >= 0")',
}
VIEWS = {
    "counted": '.groupBy("n").agg(f.count(f.lit(1)).alias("rows"))',
    "sorted_rows": '.orderBy("n").limit(1000)',
    "joined": '.join(spark.read.table("bronze").select(f.col("n").alias("m")), f.col("n") == f.col("m"))',
    "united": '.unionByName(spark.read.table("bronze").where("n < 0"))',
}
SOURCE = """
from pyspark import pipelines as dp
from pyspark.sql import functions as f

@dp.table
def bronze():
    return spark.readStream.schema("n bigint, at timestamp").json("{folder}")
"""

SQL = """-- SELECT * FROM a comment
CREATE STREAMING TABLE sql_stream AS SELECT n, at FROM STREAM(bronze) WHERE n >= 0;
CREATE MATERIALIZED VIEW sql_view AS SELECT DISTINCT n FROM sql_stream;
"""
QUERY = """
@dp.table
def queried():
    return spark.sql("SELECT n FROM STREAM(bronze)")
"""


@pytest.mark.soak
def test_operators_that_pass_the_check_keep_the_edge(tmp_path: Path) -> None:
    text = ""
    for name, operator in STREAMS.items():
        text += f'\n@dp.table\ndef {name}():\n    return spark.readStream.table("bronze"){operator}\n'
    for name, operator in VIEWS.items():
        text += f'\n@dp.materialized_view\ndef {name}():\n    return spark.read.table("bronze"){operator}\n'
    with contextlib.closing(Driver(new_project(tmp_path, text))) as driver:
        for update in range(2):
            add_rows(tmp_path, update)
            driver.ask("update")
            check_counts(driver, ("bronze", *STREAMS, *VIEWS), 10 * (update + 1))


@pytest.mark.soak
def test_a_refresh_reaches_tables_of_sql(tmp_path: Path) -> None:
    project = new_project(tmp_path, QUERY)
    (project / "transformations" / "more.sql").write_text(SQL)
    with contextlib.closing(Driver(project)) as driver:
        for update, refreshed in enumerate(((), ("bronze",))):
            add_rows(tmp_path, update)
            # A refresh reads bronze's input again: a stream below it that is not refreshed, too, would have its rows twice.
            driver.ask("update", *refreshed)
            check_counts(driver, ("bronze", "sql_stream", "sql_view", "queried"), 10 * (update + 1))


def new_project(folder: Path, text: str) -> Path:
    """A project whose table bronze reads the files of `folder/inputs`, with more tables."""
    inputs, project = folder / "inputs", folder / "project"
    inputs.mkdir()
    (project / "transformations").mkdir(parents=True)
    (project / "transformations" / "tables.py").write_text(SOURCE.format(folder=inputs) + text)
    (project / "spark-pipeline.yml").write_text(
        "name: edges\nstorage: unused\nlibraries:\n  - glob:\n      include: transformations/**\n"
        'configuration:\n  spark.sql.shuffle.partitions: "1"\n'
    )
    (project / LOGS_FILE).write_text('[logs]\nsink = "none"\nidentityFile = "none"\n')
    return project


def add_rows(folder: Path, update: int) -> None:
    rows = [json.dumps({"n": update * 10 + number, "at": "2013-01-07 08:00:00"}) for number in range(10)]
    (folder / "inputs" / f"{update}.json").write_text("\n".join(rows))


def check_counts(driver: Driver, tables: Sequence[str], rows: int) -> None:
    counts = {name: driver.ask("sql", f"select count(*) from {name}")[0][0] for name in tables}
    assert set(counts.values()) == {rows}, counts
