"""Process that copies a growing log into Parquet and then runs a job on it: the demo's Spark part.

Its argument is a JSON object and its stdin a pipe: a line `finish` ends the copy and requests the result, a JSON object on the last
line of stdout. The lines before it, `{"at": activity, "read": rows so far}`, show that the process is alive. The end of the pipe
means that the parent process has ended, and ends this process at once.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from agiledart_analytics.job_run import copy_live, run_job, spark_sentence
from agiledart_analytics.jobs import find_job
from agiledart_analytics.printable import printable
from agiledart_kernel.errors import AgileDartError

FINISH = "finish"
LOOK_SECONDS = 0.5
NICENESS = 10
"""Niceness of this process: the mesh on the same machine has priority, because the start of a JVM takes all cores for seconds."""


class _Tally:
    """Rows and time of each micro-batch; Spark itself keeps only the last hundred."""

    def __init__(self) -> None:
        self._batches: dict[int, tuple[int, int]] = {}

    def look(self, query: Any) -> None:
        for progress in query.recentProgress:
            spent = int(progress["durationMs"].get("triggerExecution", 0))
            if progress["numInputRows"]:
                self._batches[int(progress["batchId"])] = (int(progress["numInputRows"]), spent)

    def document(self) -> dict[str, Any]:
        rows, spent = (sum(column) for column in zip(*self._batches.values(), strict=True)) if self._batches else (0, 0)
        return {
            "rows": rows,
            "batches": len(self._batches),
            "rows_per_second": round(rows / (spent / 1_000)) if spent else 0,
        }


def main(argument: str) -> None:
    """Copy, wait for `finish`, print the result. An error is `{"error": sentence}`."""
    os.nice(NICENESS)
    task = json.loads(argument)
    finish_requested = threading.Event()
    threading.Thread(target=_listen, args=(finish_requested,), daemon=True).start()
    try:
        document = _work(task, finish_requested)
    except AgileDartError as error:
        document = {"error": str(error)}
    except Exception as error:  # noqa: BLE001  Spark's errors have many classes; the asker gets a sentence
        document = {"error": spark_sentence(error)}
    _send_line(document)


def _work(task: dict[str, Any], finish_requested: threading.Event) -> dict[str, Any]:
    from agiledart.spark import spark_session

    folder = Path(task["folder"])
    session = spark_session("agiledart demo", log_file=str(folder / "spark.log"))
    query = copy_live(session, task["reader"], folder / "copy", folder / "checkpoint", float(task["seconds"]))
    tally = _Tally()
    while query.isActive and not finish_requested.wait(LOOK_SECONDS):
        tally.look(query)
    if query.isActive:
        _read_the_rest(query, tally)
    tally.look(query)
    query.stop()
    if (error := query.exception()) is not None:
        raise error
    document = tally.document()
    _send_line({"at": f"computing {task['job']}", "read": document["rows"]})
    began = time.monotonic()
    if any((folder / "copy").glob("batch=*")):
        outcome = run_job(session, find_job(task["job"]), parquet=str(folder / "copy"), results=task["results"])
        rows = [printable(row) for row in outcome.rows]
        document |= {"columns": outcome.columns, "table": rows, "files": outcome.files}
    document |= {"job": task["job"], "job_seconds": round(time.monotonic() - began, 3)}
    session.stop()
    return document


def _read_the_rest(query: Any, tally: _Tally) -> None:
    """Wait until all present rows of the log are read, and print the progress."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(LOOK_SECONDS):
            tally.look(query)
            _send_line({"at": "reading", "read": tally.document()["rows"]})

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        query.processAllAvailable()
    finally:
        done.set()
        watcher.join()


def _send_line(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _listen(finish_requested: threading.Event) -> None:
    for line in sys.stdin:
        if line.strip() == FINISH:
            finish_requested.set()
    os._exit(1)  # the process that waited has ended: its end of the pipe is closed


if __name__ == "__main__":
    main(sys.argv[1])
