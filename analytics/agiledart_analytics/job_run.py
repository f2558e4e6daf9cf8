"""Run of a job over a sink log or Parquet files, with its result as rows and as Parquet; and the live copy of a log.

The live copy writes each micro-batch into a folder named by its number and replaces its content, because Spark may deliver the
same batch twice after a crash. So the copy has each committed row exactly once.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agiledart.spark import first_cause
from agiledart_analytics.jobs import AnalyticsJob
from agiledart_kernel.errors import AgileDartError, ConfigurationError, OperationFailed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

MAX_ROWS_HELD = 10_000
"""Greatest number of result rows in this process; the Parquet files have all rows."""


_SPARKS_ERRORS: Final = ("pyspark.", "py4j.", "grpc.")
"""Modules whose errors reach users from a session of Spark."""

_STREAM_FAILED: Final = re.compile(r"\A\[STREAM_FAILED\] Query \[[^\]]*\] terminated with exception: ")
_FRAME: Final = re.compile(r'^ +File "([^"]+)", line (\d+)', re.MULTILINE)

LOST_SPARK: Final = "StatusCode.UNAVAILABLE"
"""Part of the error of a session whose server has ended."""

_FULL_DISK: Final = "No space left on device"
_SECOND_QUERIES: Final = (
    "[CONCURRENT_STREAM_LOG_UPDATE",
    "[CONCURRENT_QUERY",
    "as another query with same id is already active",
)
"""Parts of Spark's errors about a checkpoint that another query uses; tests/spark starts such queries."""


@dataclass(frozen=True)
class JobResult:
    """Result of a job.

    Attributes:
        rows: the first `MAX_ROWS_HELD` in the job's order. `total`: number of all rows.
        files: folder of Parquet files, or "".
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    total: int
    files: str


def run_job(
    session: "SparkSession",
    job: AnalyticsJob,
    *,
    reader: Mapping[str, str] | None = None,
    sinks: Sequence[str] = (),
    parquet: str = "",
    results: str = "",
) -> JobResult:
    """Run a job once, on the committed rows.

    Args:
        reader: options of `format("agiledart")`; the default sink is that of the job.
        sinks: logs to read together; missing logs are skipped, unless all are missing.
        parquet: read these files instead of a log.
        results: folder whose subfolder of the job's name is replaced by the result as Parquet.

    Raises `OperationFailed` with one sentence for any error of Spark.
    """
    try:
        frame = _input(session, job, reader or {}, sinks, parquet)
        missing = [name for name in job.needs if name not in frame.columns]
        if missing:
            raise ConfigurationError(
                f"{job.name} needs the columns {', '.join(missing)}; the rows have {', '.join(frame.columns)}."
            )
        result = job.compute(frame).cache()
        try:
            total = result.count()
            # Arrow keeps times as the data have them; collect() would turn them into this machine's time zone.
            held = result.limit(MAX_ROWS_HELD).toArrow().to_pylist()
            rows = tuple(tuple(_without_zone(value) for value in row.values()) for row in held)
            folder = ""
            if results:
                folder = str(Path(results).expanduser().absolute() / job.name)
                result.coalesce(1).write.mode("overwrite").parquet(folder)
        finally:
            result.unpersist()
    except AgileDartError:
        raise
    except Exception as error:  # noqa: BLE001  Spark's errors have many classes and pages of Java; users get the sentence
        raise OperationFailed(spark_sentence(error)) from None
    return JobResult(tuple(result.columns), rows, total, folder)


def copy_live(
    session: "SparkSession", reader: Mapping[str, str], folder: Path, checkpoint: Path, seconds: float = 1.0
) -> "StreamingQuery":
    """Start the live copy of a log into Parquet; each committed row once, even if this process is killed and restarted.

    Args:
        reader: options of `format("agiledart")`.
        folder: of the files: one subfolder for each micro-batch.
        checkpoint: Spark's; belongs to this folder.
        seconds: between micro-batches; 0 copies the present rows only.
    """
    stream = session.readStream.format("agiledart").options(**reader).load()

    def keep(batch: "DataFrame", number: int) -> None:
        batch.write.mode("overwrite").parquet(str(folder / f"batch={number}"))

    writer = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    writer = writer.trigger(processingTime=f"{seconds} seconds") if seconds else writer.trigger(availableNow=True)
    return writer.start()


@contextlib.contextmanager
def spark_errors() -> Iterator[None]:
    """Turn an error of Spark, Java or gRPC inside this block into `OperationFailed` with one sentence; leave all other errors."""
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith(_SPARKS_ERRORS):
            raise
        raise OperationFailed(spark_sentence(error)) from error


def spark_sentence(error: BaseException) -> str:
    """Return the useful part of an error of Spark: the sentence of AgileDart in it if there is one, else its cause."""
    return sentence_of(str(error)) or type(error).__name__


def sentence_of(text: str) -> str:
    """Return the useful part of the text of an error of Spark; "" for an empty one."""
    for line in reversed(text.splitlines()):
        kind, colon, rest = line.strip().partition(": ")
        if colon and kind.startswith(("agiledart_", "pyspark_agiledart")):
            return rest.partition(" SQLSTATE")[0].strip()
    if "No module named 'pyspark_agiledart'" in text or "No module named 'agiledart" in text:
        return (
            "Spark's executors do not have the package agiledart. Install it on each machine of the cluster (pip install "
            "'agiledart[spark]'), or send it: agiledart.spark.ship_package(session)."
        )
    if "DATA_SOURCE_NOT_FOUND" in text:
        return (
            "Spark does not find the source agiledart: another package called pyspark_… may fail to import. Way out:  "
            "from pyspark_agiledart import DefaultSource; spark.dataSource.register(DefaultSource)"
        )
    if LOST_SPARK in text:
        return (
            f"Spark does not answer any more ({first_cause(text)}): its process has ended, perhaps for lack of memory. Run the "
            f"command again: finished work counts."
        )
    if _FULL_DISK in text:
        return f"Spark cannot write: {_FULL_DISK}. Free space, then run it again: finished work counts."
    if any(sign in text for sign in _SECOND_QUERIES):
        return (
            "Another query uses this checkpoint. Two queries on one checkpoint would repeat or lose rows: stop one of them, or "
            "give each a checkpointLocation of its own."
        )
    if (raised := _raised_in_python(text)) is not None:
        return raised
    return _STREAM_FAILED.sub("", first_cause(text)).rstrip(";")


def _raised_in_python(text: str) -> str | None:
    """Return the error that users' Python raised on a worker, with file and line; None without one."""
    _, mark, trace = text.partition("Traceback (most recent call last):\n")
    places = _FRAME.findall(trace)
    raised = next((line for line in trace.splitlines() if line and not line[0].isspace()), "")
    if not mark or not raised:
        return None
    return f"{raised.strip()} ({places[-1][0]}:{places[-1][1]})" if places else raised.strip()


def _without_zone(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def _input(
    session: "SparkSession", job: AnalyticsJob, reader: Mapping[str, str], sinks: Sequence[str], parquet: str
) -> "DataFrame":
    if parquet:
        return session.read.parquet(parquet)
    if not sinks:
        return session.read.format("agiledart").options(**{"sink": job.sink, **reader}).load()
    frames: list[DataFrame] = []
    absent: Exception | None = None
    for sink in sinks:
        try:
            frames.append(session.read.format("agiledart").options(**{**reader, "sink": sink}).load())
        except Exception as error:
            if "There is no log" not in spark_sentence(error):
                raise
            absent = absent or error
    if not frames and absent is not None:
        raise absent
    return reduce(lambda first, second: first.unionByName(second), frames)
