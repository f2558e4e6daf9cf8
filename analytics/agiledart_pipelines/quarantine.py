"""Counts of quarantined rows by the expectation that they fail."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agiledart_pipelines.expectations import FAILED
from agiledart_pipelines.project import PipelineProject

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def failed_counts(
    session: "SparkSession", project: PipelineProject, tables: Sequence[str]
) -> dict[str, dict[str, int]]:
    """Return table → expectation → rows that fail it, of the tables with the column `_failed`."""
    from pyspark.sql import functions as f

    counts: dict[str, dict[str, int]] = {}
    for table in tables:
        frame = session.read.table(f"`{project.database}`.`{table}`")
        if FAILED in frame.columns:
            reasons = frame.select(f.explode(FAILED).alias("reason")).groupBy("reason").count()
            counts[table] = {str(row["reason"]): int(row["count"]) for row in reasons.collect()}
    return counts
