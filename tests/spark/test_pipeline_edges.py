"""Operators on tables of the same pipeline: below those that the check lets pass, Spark sees the edge; measured on Spark itself."""

import json
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


def test_operators_that_pass_the_check_keep_the_edge(tmp_path: Path) -> None:
    inputs, project = tmp_path / "inputs", tmp_path / "project"
    inputs.mkdir()
    (project / "transformations").mkdir(parents=True)
    text = SOURCE.format(folder=inputs)
    for name, operator in STREAMS.items():
        text += f'\n@dp.table\ndef {name}():\n    return spark.readStream.table("bronze"){operator}\n'
    for name, operator in VIEWS.items():
        text += f'\n@dp.materialized_view\ndef {name}():\n    return spark.read.table("bronze"){operator}\n'
    (project / "transformations" / "tables.py").write_text(text + QUERY)
    (project / "transformations" / "more.sql").write_text(SQL)
    (project / "spark-pipeline.yml").write_text(
        "name: edges\nstorage: unused\nlibraries:\n  - glob:\n      include: transformations/**\n"
        'configuration:\n  spark.sql.shuffle.partitions: "1"\n'
    )
    (project / LOGS_FILE).write_text('[logs]\nsink = "none"\nidentityFile = "none"\n')
    driver = Driver(project)
    names = ("bronze", *STREAMS, *VIEWS, "sql_stream", "sql_view", "queried")
    for update in range(3):
        rows = [json.dumps({"n": update * 10 + number, "at": "2013-01-07 08:00:00"}) for number in range(10)]
        (inputs / f"{update}.json").write_text("\n".join(rows))
        # A refresh reads bronze's input again: a stream below it that is not refreshed, too, would have its rows twice.
        driver.ask("update", *(("bronze",) if update == 2 else ()))
        counts = {name: driver.ask("sql", f"select count(*) from {name}")[0][0] for name in names}
        assert set(counts.values()) == {10 * (update + 1)}, counts
    driver.close()
