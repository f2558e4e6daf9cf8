"""Data pipelines on sink logs, with Spark's declarative pipelines: `agiledart pipeline init|run|status|refresh|backfill|export`.

A project is a folder with `spark-pipeline.yml` and `transformations/*.py`, as `spark-pipelines` knows it. The transformations
import `read_logs` and `expect` from here. May import the public `agiledart`, the kernel and pyspark (inside functions).
"""

from agiledart_pipelines.expectations import Expected, expect
from agiledart_pipelines.logs import read_logs

__all__ = ["Expected", "expect", "read_logs"]
