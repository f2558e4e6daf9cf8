"""Back-fill: read one day from the logs again, and replace it in all tables."""

from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote
from uuid import uuid4

from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_pipelines import file_tables
from agiledart_pipelines.definitions import PipelineDefinitions
from agiledart_pipelines.edges import downstream
from agiledart_pipelines.logs import log_options
from agiledart_pipelines.project import PipelineProject

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DAY: Final = "_day"
"""Column of each streaming table: the day of a row in event time."""

_PLACE: Final = ("_log", "_partition")
_FILE: Final = "_file"
_ZONE: Final = "spark.sql.session.timeZone"


def replace_day(
    session: "SparkSession", project: PipelineProject, definitions: PipelineDefinitions, day: date, time_field: str
) -> int:
    """Read the rows of a day from the logs again and put them in place of those in the tables; return their number.

    The table that reads the logs gets the rows; tables that stream from it lose the day, and the next update computes it for
    them. The caller holds the lock, has updated the project just before, and updates it afterwards.

    Args:
        time_field: field of the logs' rows whose day counts.

    Raises:
        ConfigurationError: the project has no table that reads logs, or a table has no column `_day`.
        OperationFailed: the logs have lost rows of the day that the table has.
    """
    bronze = [table for table in definitions.streaming_tables if not definitions.edges.get(table)]
    if len(bronze) != 1:
        raise ConfigurationError(f"backfill needs one table that reads the logs; this project has {len(bronze)}.")
    tables = [
        name
        for name in downstream(definitions.edges, bronze, streams_only=True)
        if name in definitions.streaming_tables
    ]
    frames = {table: session.read.table(f"`{project.database}`.`{table}`") for table in tables}
    without = [table for table, frame in frames.items() if DAY not in frame.columns]
    if without:
        raise ConfigurationError(
            f"backfill replaces days: select a column {DAY} in {', '.join(without)}, as bronze does."
        )
    stored = frames[bronze[0]]
    _check_retention(session, project, stored, day)
    folder = project.state / f"backfill-{uuid4().hex}"
    rows = _rows_again(session, project, stored, day, time_field)
    added = _write_day(project.table_folder(bronze[0]), rows, folder / "day")
    replaced = {
        table: _files_without(frame, day, project.table_folder(table), folder / table)
        for table, frame in frames.items()
    }
    file_tables.begin_replacement(project, folder, replaced, {bronze[0]: added})
    file_tables.finish_replacement(project)
    session.catalog.refreshTable(f"`{project.database}`.`{bronze[0]}`")
    return stored.where(f"{DAY} = date'{day}'").count()


def _files_without(frame: "DataFrame", day: date, table: Path, folder: Path) -> dict[str, str]:
    """Write the files of a table that have rows of a day again, without them; return old path → new path, "" for no rows."""
    from pyspark.sql import functions as f

    named = frame.select("*", f.col("_metadata.file_name").alias(_FILE))
    touched = [str(row[0]) for row in named.where(f"{DAY} = date'{day}'").select(_FILE).distinct().collect()]
    replaced = {str(table / name): "" for name in touched}
    if touched:
        left = named.where(f.col(_FILE).isin(touched)).where(f"not ({DAY} <=> date'{day}')")
        left.repartition(_FILE).write.partitionBy(_FILE).parquet(str(folder))
    for part in sorted(folder.glob(f"{_FILE}=*")):
        [content] = _parquet_files(part)
        replaced[str(table / unquote(part.name.removeprefix(f"{_FILE}=")))] = str(content)
    return replaced


def _write_day(table: Path, rows: "DataFrame", folder: Path) -> list[str]:
    """Write rows as files beside those of a table, which do not count before they are listed; return their paths."""
    rows.write.parquet(str(folder))
    added: list[str] = []
    for number, file in enumerate(_parquet_files(folder)):
        target = table / f"part-{number:05d}-{folder.parent.name}.parquet"
        file.replace(target)
        added.append(str(target))
    return added


def _rows_again(
    session: "SparkSession", project: PipelineProject, stored: "DataFrame", day: date, time_field: str
) -> "DataFrame":
    """Return the day's rows of the logs, up to where the table has read them."""
    from pyspark.sql import functions as f

    first, last = utc_days(day, str(session.conf.get(_ZONE)))
    where = f"{time_field} >= '{first} 00:00:00' AND {time_field} < '{last + timedelta(days=1)} 00:00:00'"
    rows = session.read.format("agiledart").options(**log_options(project.root), where=where).load()
    rows = rows.where(f.to_date(time_field) == f.lit(day))
    ends = stored.groupBy(*_PLACE).agg(f.max("_offset").alias("_last"))
    known = rows.join(ends, list(_PLACE)).where("_offset <= _last")
    missing = [name for name in stored.columns if name not in (*rows.columns, DAY)]
    if missing:
        raise ConfigurationError(
            f"The table that reads the logs has columns that they do not have: {', '.join(missing)}. A table for backfill "
            f"holds the logs' rows as they are, and {DAY}."
        )
    return known.select(*rows.columns, f.to_date(time_field).alias(DAY)).select(*stored.columns)


def utc_days(day: date, zone: str) -> tuple[date, date]:
    """Return first and last day in UTC that a day of a time zone may have a part of; logs hold times in UTC."""
    return (day, day) if zone == "UTC" else (day - timedelta(days=1), day + timedelta(days=1))


def _check_retention(session: "SparkSession", project: PipelineProject, stored: "DataFrame", day: date) -> None:
    """Refuse when the logs no longer have rows of the day that the table has."""
    from pyspark.sql import functions as f

    first = (
        session.read.format("agiledart").options(**log_options(project.root), columns="_log,_partition,_offset").load()
    )
    first = first.groupBy(*_PLACE).agg(f.min("_offset").alias("_first"))
    gone = (
        stored.where(f"{DAY} = date'{day}'")
        .join(first, list(_PLACE), "left")
        .where("_first is null or _offset < _first")
    )
    lost = gone.count()
    if lost:
        raise OperationFailed(
            f"The logs no longer have {lost:,} rows of {day} that the tables have: their retention removed them. Nothing was "
            f"replaced. Keep the logs longer (max_bytes, max_age), or compute from the tables:  agiledart pipeline refresh TABLE"
        )


def _parquet_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*.parquet"))
