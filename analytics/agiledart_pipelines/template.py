"""Files of a new project: a working pipeline on clean taxi trips, or a plain one on any log."""

from pathlib import Path
from typing import Final

from agiledart_kernel.errors import ConfigurationError
from agiledart_pipelines.logs import LOGS_FILE
from agiledart_pipelines.project import SPECIFICATIONS

TAXI: Final = "taxi"
PLAIN: Final = "plain"

_SPECIFICATION: Final = """# A pipeline of Spark; also spark-pipelines knows this file. agiledart pipeline run updates its tables.
name: {name}
storage: {storage}
libraries:
  - glob:
      include: transformations/**
configuration:
  spark.sql.shuffle.partitions: "2"
  spark.sql.session.timeZone: UTC
  # A division by zero and a text that is no number are null, which expect() counts as failed. With "true" one such
  # row ends the update.
  spark.sql.ansi.enabled: "false"
"""

_LOGS: Final = """# Options of format("agiledart"): docs/how-to/spark.md lists them.
[logs]
sink = "{sink}"
{access}
# Field whose day backfill replaces.
[backfill]
time_field = "{time_field}"
"""

_BRONZE: Final = '''"""Bronze: exactly the committed rows of the logs, and where each row comes from (_log, _node, _partition,
_offset, _stored_at)."""

from agiledart_pipelines import read_logs
from pyspark import pipelines as dp
from pyspark.sql import functions as f


@dp.table
def bronze():
    return read_logs(spark).select("*", f.to_date("{time_field}").alias("_day"))  # noqa: F821  Spark sets spark
'''

_SILVER: Final = '''"""Silver: rows that meet all expectations, late ones too. Quarantine: all others, with the names of all
that they fail (_failed).

Each row of bronze is in exactly one of the two: an expectation that is null counts as failed. On tables of this pipeline write
select("*", ….alias("name")), not withColumn: agiledart pipeline says why.
"""

from agiledart_pipelines import expect
from pyspark import pipelines as dp

EXPECTATIONS = {{
{expectations}
}}


def checked():
    return expect(spark.readStream.table("bronze"), EXPECTATIONS)  # noqa: F821  Spark sets spark


@dp.table
def silver():
    return checked().passed


@dp.table
def quarantine():
    return checked().failed
'''

_GOLD: Final = '''"""Gold: tables for people. Each update computes them anew from silver, so late rows and back-fills count in
them."""

from pyspark import pipelines as dp
from pyspark.sql import functions as f

COUNTS = (f.count(f.lit(1)).alias("trips"), f.sum("total_cents").alias("revenue_cents"))


def window_of(field, length):
    return f.window(field, length).alias("period")


@dp.materialized_view
def routes_by_quarter():
    trips = spark.read.table("silver")  # noqa: F821  Spark sets spark
    counted = trips.groupBy(window_of("dropoff_at", "15 minutes"), "start_cell", "end_cell").agg(*COUNTS)
    return counted.select(f.col("period.start").alias("window_start"), "start_cell", "end_cell", "trips", "revenue_cents")


@dp.materialized_view
def revenue_by_area():
    trips = spark.read.table("silver")  # noqa: F821  Spark sets spark
    counted = trips.groupBy("_day", f.col("start_cell").alias("area")).agg(*COUNTS)
    return counted.select(f.col("_day").alias("day"), "area", "trips", "revenue_cents")


@dp.materialized_view
def latency_by_minute():
    """From the reading of a trip at its source to the storing of its row."""
    rows = spark.read.table("silver")  # noqa: F821  Spark sets spark
    passed = (f.col("_stored_at").cast("double") - f.col("read_at").cast("double")) * 1000
    by_minute = rows.groupBy(window_of("_stored_at", "1 minute"), "_log").agg(
        f.count(f.lit(1)).alias("trips"), f.median(passed).alias("p50_ms"), f.max(passed).alias("max_ms")
    )
    return by_minute.select(f.col("period.start").alias("minute"), "_log", "trips", "p50_ms", "max_ms")
'''

_DURATIONS: Final = """# Usual durations of trips. agiledart pipeline train durations
kind = "linear"
table = "silver"
label = "seconds"

[features]
miles = "miles"
hour = "hour(pickup_at)"
"""

_TIPS: Final = """# Tips in cents. agiledart pipeline train tips
kind = "tree"
table = "silver"
label = "tip_cents"

[features]
fare_cents = "fare_cents"
seconds = "seconds"
by_card = "if(payment = 'CRD', 1, 0)"
"""

_TAXI_EXPECTATIONS: Final = """    "takes time": "seconds > 0",
    "plausible speed": "miles * 3600 / seconds < 120",
    "has a fare": "total_cents >= fare_cents and fare_cents > 0","""
_PLAIN_EXPECTATIONS: Final = '    "has a time": "{time_field} is not null",'


def write_project(
    folder: Path, sink: str, access: str, template: str = TAXI, time_field: str = "dropoff_at"
) -> list[Path]:
    """Write a new project, and return its files.

    Args:
        access: line of the logs' options that names the reader's file, such as `identityFile = "reader.identity"`.
        time_field: field of the rows with their event time.

    Raises `ConfigurationError` when the folder has a project.
    """
    if any((folder / name).exists() for name in SPECIFICATIONS):
        raise ConfigurationError(f"{folder} has a pipeline already. Choose another name, or remove it.")
    expectations = _TAXI_EXPECTATIONS if template == TAXI else _PLAIN_EXPECTATIONS.format(time_field=time_field)
    texts = {
        SPECIFICATIONS[0]: _SPECIFICATION.format(
            name=folder.name, storage=(folder.absolute() / "state" / "storage").as_uri()
        ),
        LOGS_FILE: _LOGS.format(sink=sink, access=access, time_field=time_field),
        "transformations/bronze.py": _BRONZE.format(time_field=time_field),
        "transformations/silver.py": _SILVER.format(expectations=expectations),
        ".gitignore": "state/\n*.identity\n*.token\n",
    }
    if template == TAXI:
        texts |= {
            "transformations/gold.py": _GOLD,
            "models/durations.toml": _DURATIONS,
            "models/tips.toml": _TIPS,
        }
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return [folder / name for name in texts]
