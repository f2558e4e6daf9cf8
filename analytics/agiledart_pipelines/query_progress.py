"""Progress of a pipeline's streaming queries: a listener of Spark that counts by table; classic and Spark Connect."""

import threading
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener


class QueryProgress(StreamingQueryListener):
    """Rows, late rows and durations of the queries, by the name of their table. Spark calls it in a thread of its own."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._running: dict[str, str] = {}
        self._ended: set[str] = set()
        self._rows: dict[str, int] = {}
        self._total: dict[str, int] = {}
        self._late: dict[str, int] = {}
        self._seconds: dict[str, float] = {}

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  Spark's name
        """Note a table that streams, even when it has no new rows."""
        with self._lock:
            self._running[str(event.runId)] = table = _table(event.name)
            self._rows.setdefault(table, 0)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802  Spark's name
        """Add a micro-batch."""
        progress = event.progress
        table = _table(progress.name)
        with self._lock:
            rows = sum(max(0, int(source.numInputRows)) for source in progress.sources)
            self._rows[table] = self._rows.get(table, 0) + rows
            self._total[table] = self._total.get(table, 0) + rows
            spent = progress.durationMs.get("triggerExecution", 0) / 1_000
            self._seconds[table] = self._seconds.get(table, 0.0) + spent
            late = sum(int(operator.numRowsDroppedByWatermark) for operator in progress.stateOperators)
            self._late[table] = self._late.get(table, 0) + late

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802  Spark's name
        """Do nothing: an idle query reads nothing."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802  Spark's name
        """Note that all progress of a query was reported: Spark keeps the order of its events."""
        with self._lock:
            self._ended.add(self._running.pop(str(event.runId), ""))
            self._lock.notify_all()

    def begin_update(self) -> None:
        """Forget the rows of the last update."""
        with self._lock:
            self._rows.clear()
            self._ended.clear()

    def rows_of(self, table: str, timeout_seconds: float = 0.0) -> int | None:
        """Return the rows that a streaming table read in this update; None for a table that does not stream.

        Args:
            timeout_seconds: longest wait for the end of its query, since events come some time after what they report.
        """
        with self._lock:
            self._lock.wait_for(lambda: table in self._ended, timeout_seconds)
            return self._rows.get(table)

    def figures(self) -> dict[str, dict[str, float]]:
        """Return figure → label → value, summed since the start of the session, for metrics."""
        with self._lock:
            return {"rows": dict(self._total), "late": dict(self._late), "seconds": dict(self._seconds)}


def _table(name: str | None) -> str:
    return (name or "").replace("`", "").rpartition(".")[2]
