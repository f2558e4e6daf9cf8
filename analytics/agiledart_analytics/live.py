"""A process that copies a log into Parquet while it grows, and answers a question about it when told: the demo's Spark part.

It is given one JSON object as its argument and a pipe as stdin: a line `finish` ends the copy and asks for the result, which is the
last line on stdout, a JSON object. The lines before it, `{"at": what it does, "read": rows so far}`, are there so that nobody
takes slow for dead. The end of the pipe means that whoever asked is gone, and ends the process at once.
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
from agiledart_kernel.errors import AgileDartError

FINISH = "finish"
LOOK_SECONDS = 0.5
NICENESS = 10
"""On a machine that also runs the mesh, results of the mesh come first: starting a JVM takes all cores for seconds."""


class _Tally:
    """Rows and time of each micro-batch; Spark itself remembers only the last hundred."""

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
    """Copy, wait, answer. An error is `{"error": sentence}`."""
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
        rows = [
            [value.isoformat(" ") if hasattr(value, "isoformat") else value for value in row] for row in outcome.rows
        ]
        document |= {"columns": outcome.columns, "table": rows, "files": outcome.files}
    document |= {"job": task["job"], "job_seconds": round(time.monotonic() - began, 3)}
    session.stop()
    return document


def _read_the_rest(query: Any, tally: _Tally) -> None:
    """Until all rows that are in the log now are read, telling how far it is."""
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
    os._exit(1)  # the pipe's other end is closed: nobody waits for anything any more


if __name__ == "__main__":
    main(sys.argv[1])
