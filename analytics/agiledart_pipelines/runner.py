"""Runner of a project's updates, in place of `spark-pipelines`: one JVM, one line a table, a catalog that stays.

An update reads new rows, and computes the views anew. A refresh is noted in a journal before it begins, so that the next update
finishes it after a crash; so is a replacement (`file_tables.py`).
"""

import contextlib
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from agiledart_analytics.job_run import LOST_SPARK, sentence_of, spark_errors, spark_sentence
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_pipelines import file_tables
from agiledart_pipelines.definitions import PipelineDefinitions, load_definitions
from agiledart_pipelines.edges import downstream
from agiledart_pipelines.file_merging import merge_small_files
from agiledart_pipelines.log_lag import LogLag, log_lags, read_offsets
from agiledart_pipelines.project import LAST_UPDATE, RUNNING, PipelineProject
from agiledart_pipelines.quarantine import failed_counts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENT_SECONDS: Final = 5.0
"""Longest wait for the last event of a query that has ended: a busy machine brings it later."""

REFRESH: Final = "refresh"
"""Name of the journal with the tables that an update is to compute from the beginning."""

ATTEMPTS: Final = 3
_OVERLOADED: Final = "Python worker failed to connect back"
"""Spark gives a Python process ten seconds to start, which no setting changes; the checkpoints stay good."""

_FLOW_EVENT: Final = re.compile(r"Flow '?(?P<flow>[^ ']+)'? (?:is|has) (?P<state>[A-Z_]+)")
_UNRESOLVED: Final = re.compile(r"Failed to resolve flow: '(?P<flow>[^']+)'")
_NAMED: Final = re.compile(r"[`.']([a-z0-9_]+)[`']")
_FAILED: Final = ("FAILED", "EXCLUDED", "SKIPPED")


@dataclass
class TableUpdate:
    """Result of an update for one table.

    Attributes:
        state: `completed`, or why not.
        rows: read from its inputs, in streaming tables.
        seconds: from the start of the update to its end.
    """

    state: str
    rows: int | None = None
    seconds: float = 0.0


@dataclass
class PipelineUpdate:
    """Result of one update.

    Attributes:
        ended_at: seconds since 1970.
        quarantined: table → name of an expectation → rows in it.
        read_up_to: key of a log's partition → offset after the last row that was read. `lags`: how far it is behind.
        missing: log that does not answer → since when, seconds since 1970.
    """

    ended_at: float
    seconds: float
    tables: dict[str, TableUpdate] = field(default_factory=dict)
    quarantined: dict[str, dict[str, int]] = field(default_factory=dict)
    read_up_to: dict[str, int] = field(default_factory=dict)
    lags: dict[str, LogLag] = field(default_factory=dict)
    missing: dict[str, float] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)


class PipelineRunner:
    """Updates of a project in one session.

    Args:
        session: of `pipeline_session`.
        report: takes a line about a table.
        wall_clock: seconds since 1970.
    """

    def __init__(
        self,
        session: "SparkSession",
        project: PipelineProject,
        report: Callable[[str], None] = lambda line: None,
        wall_clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        from agiledart_pipelines.query_progress import QueryProgress

        self._session, self._project, self._report, self._wall_clock = session, project, report, wall_clock
        self.progress = QueryProgress()
        self.last_update: PipelineUpdate | None = None
        session.streams.addListener(self.progress)

    @spark_errors()
    def update(self, refresh: Sequence[str] = (), *, refresh_all: bool = False) -> PipelineUpdate:
        """Update all tables. The caller holds the project's lock.

        Args:
            refresh: tables to compute from the beginning, with the streaming tables that read them.
            refresh_all: all of them.

        Raises `ConfigurationError` for a wrong project, `OperationFailed` when a table's flow fails, or the project's disk.
        """
        with self._project.file_errors():
            return self._update(refresh, refresh_all)

    def _update(self, refresh: Sequence[str], refresh_all: bool) -> PipelineUpdate:
        began = time.monotonic()
        self._project.write_document(RUNNING, {"pid": os.getpid()})
        file_tables.finish_replacement(self._project)
        attempt = 1
        while True:
            try:
                definitions, outcome = self._attempt(refresh, refresh_all, began)
                break
            except (ConfigurationError, OperationFailed) as error:
                if _OVERLOADED not in str(error) or attempt == ATTEMPTS:
                    if not self.has_lost_spark(error):  # its flows have ended; a Spark that was kept can go on
                        self._project.write_document(RUNNING, None)
                    raise
            attempt += 1
            self._report("  the machine is too busy: Spark's Python did not start within 10 s; trying again")
        for table in merge_small_files(self._project, definitions.streaming_tables, self._report):
            self._session.catalog.refreshTable(f"`{self._project.database}`.`{table}`")
        outcome.quarantined = failed_counts(self._session, self._project, definitions.streaming_tables)
        outcome.read_up_to = read_offsets(self._project)
        missing_before = (self._project.read_document(LAST_UPDATE) or {}).get("missing", {})
        outcome.lags, outcome.missing = log_lags(self._project, self._wall_clock, self._report, missing_before)
        outcome.seconds, outcome.ended_at = time.monotonic() - began, self._wall_clock()
        self._project.write_document(LAST_UPDATE, outcome.document())
        self._project.write_document(RUNNING, None)
        self.last_update = outcome
        return outcome

    def _attempt(
        self, refresh: Sequence[str], refresh_all: bool, began: float
    ) -> tuple[PipelineDefinitions, PipelineUpdate]:
        """Run an update; a journal names the tables that it computes from the beginning until its end."""
        definitions = load_definitions(self._session, self._project)
        reset = self._tables_to_reset(definitions, refresh, refresh_all)
        self._project.write_document(REFRESH, reset or None)
        for table in reset:
            file_tables.clear_table(self._project, table)
        outcome = self._run(definitions, reset, began)
        self._project.write_document(REFRESH, None)
        return definitions, outcome

    @property
    def session(self) -> "SparkSession":
        """Return the session of the updates."""
        return self._session

    @property
    def project(self) -> PipelineProject:
        """Return the project."""
        return self._project

    @staticmethod
    def has_lost_spark(error: BaseException) -> bool:
        """Return whether an update failed because Spark's server does not answer any more."""
        return LOST_SPARK in f"{error} {error.__cause__}"

    def close(self) -> None:
        """Stop listening to the session's queries; before the session ends."""
        with contextlib.suppress(Exception):  # a server that has died has no listeners; its error is on its way already
            self._session.streams.removeListener(self.progress)

    def table(self, name: str) -> "DataFrame":
        """Return a table."""
        return self._session.read.table(f"`{self._project.database}`.`{name}`")

    def export(self, table: str, folder: str) -> None:
        """Write a table as Parquet files. Raises `ConfigurationError` when there is no such table, or `OperationFailed`."""
        try:
            self.table(table).write.parquet(folder)
        except Exception as error:  # Spark's errors have many classes
            tables = [there.name for there in self._session.catalog.listTables(self._project.database)]
            if table not in tables:
                raise _unknown([table], tables) from None
            raise OperationFailed(f"{table} cannot be written: {spark_sentence(error)}") from error

    def definitions(self) -> PipelineDefinitions:
        """Return the project's tables without an update."""
        return load_definitions(self._session, self._project)

    def _tables_to_reset(
        self, definitions: PipelineDefinitions, refresh: Sequence[str], refresh_all: bool
    ) -> list[str]:
        unfinished = [
            name for name in self._project.read_document(REFRESH) or [] if name in definitions.streaming_tables
        ]
        unknown = [name for name in refresh if name not in definitions.tables]
        if unknown:
            raise _unknown(unknown, definitions.tables)
        if refresh_all:
            return definitions.streaming_tables
        reached = downstream(definitions.edges, [*unfinished, *refresh], streams_only=True)
        return [name for name in reached if name in definitions.streaming_tables]

    def _run(self, definitions: PipelineDefinitions, reset: Sequence[str], began: float) -> PipelineUpdate:
        from pyspark.pipelines.spark_connect_pipeline import start_run

        outcome = PipelineUpdate(0.0, 0.0)
        self.progress.begin_update()
        failures: dict[str, str] = {}
        try:
            events = start_run(
                self._session,
                definitions.graph,
                full_refresh=list(reset),
                full_refresh_all=False,
                # Spark updates only the named tables once one is named.
                refresh=[name for name in definitions.tables if name not in reset] if reset else [],
                dry=False,
                storage=(self._project.state / "storage").as_uri(),
            )
            for event in events:
                if "pipeline_event_result" in event:
                    message = str(event["pipeline_event_result"].event.message)
                    failures |= self._note(message, definitions, outcome, time.monotonic() - began)
        except Exception as error:  # Spark's errors have many classes
            raise _failed(definitions, failures, str(error)) from error
        if failures:
            raise _failed(definitions, failures, "")
        return outcome

    def _note(
        self, message: str, definitions: PipelineDefinitions, outcome: PipelineUpdate, seconds: float
    ) -> dict[str, str]:
        """Note an event of Spark; return table → failure that it reports."""
        if (unresolved := _UNRESOLVED.search(message)) is not None:
            return {_last_part(unresolved["flow"]): message}
        match = _FLOW_EVENT.search(message)
        if match is None:
            return {}
        table, state = _last_part(match["flow"]), match["state"]
        if state == "COMPLETED":
            is_stream = table in definitions.streaming_tables
            rows = self.progress.rows_of(table, EVENT_SECONDS if is_stream else 0)
            if rows is None and is_stream:
                rows = 0  # Spark reports no progress of a stream without new rows
            outcome.tables[table] = TableUpdate("completed", rows, round(seconds, 3))
            counted = "computed anew" if rows is None else f"{rows:,} rows read"
            self._report(f"  {table:<24} {counted:<20} after {seconds:.1f} s")
        elif state in _FAILED:
            outcome.tables[table] = TableUpdate(state.lower(), None, round(seconds, 3))
            return {table: message} if state == "FAILED" else {}
        return {}


def _unknown(names: Sequence[str], tables: Sequence[str]) -> ConfigurationError:
    return ConfigurationError(f"There is no table {', '.join(names)}; there are {', '.join(tables)}.")


def _last_part(name: str) -> str:
    return name.replace("`", "").rpartition(".")[2]


def _failed(definitions: PipelineDefinitions, failures: Mapping[str, str], error: str) -> OperationFailed:
    """Return the error of an update: file, line and table of the first flow that failed by itself, and why.

    Args:
        failures: table → event of Spark. `error`: text of the error with which the update ended.
    """
    named = [name for name in _NAMED.findall(f"{error} ") if name in definitions.places]
    by_itself = re.search(r"Flows with errors: (.*)", error)
    first = [name for name in map(_last_part, by_itself[1].split(", ")) if name in failures] if by_itself else []
    table = next(iter([*first, *failures, *named]), "")
    _, mark, reason = failures.get(table, "").partition("Error: ")
    sentence = sentence_of(f"{reason}\n{error}" if mark else error or failures.get(table, ""))
    place = f"{definitions.places.get(table, '')}, table {table}: " if table else ""
    return OperationFailed(f"{place}{sentence}")
