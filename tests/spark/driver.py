"""A Spark driver of its own that copies logs into Parquet: `python -m tests.spark.driver MASTER LOG_FILE [CONFIG]`.

Takes one JSON object a line on stdin, `{"reader": {…}, "folder", "kind", "seconds"}`, and answers each with one on stdout:
`{"batches", "rows"}` when the copy has ended, or `{"error", "whole"}`. Its first line says that the session is there.
"""

import json
import sys
from pathlib import Path
from typing import Any

from agiledart.spark import follow, spark_session
from agiledart_analytics.job_run import copy_live, spark_sentence
from agiledart_kernel.errors import AgileDartError
from tests.spark.written import FEED, FILES


def start_copy(session: Any, task: dict[str, Any]) -> Any:
    """The query of a task; its rows end in `folder/copy`, its place in `folder/checkpoint`."""
    folder, seconds = Path(task["folder"]), float(task["seconds"])
    if task["kind"] == FEED:
        frame = session.readStream.format("agiledart").options(**task["reader"]).load()
        feed = frame.writeStream.format("agiledart").options(**task["writer"])
        feed = feed.option("checkpointLocation", str(folder / "checkpoint"))
        return (
            feed.trigger(processingTime=f"{seconds} seconds") if seconds else feed.trigger(availableNow=True)
        ).start()
    if task["kind"] != FILES:
        return copy_live(session, task["reader"], folder / "copy", folder / "checkpoint", seconds)
    writer = session.readStream.format("agiledart").options(**task["reader"]).load().writeStream.format("parquet")
    writer = writer.option("path", str(folder / "copy")).option("checkpointLocation", str(folder / "checkpoint"))
    return (
        writer.trigger(processingTime=f"{seconds} seconds") if seconds else writer.trigger(availableNow=True)
    ).start()


def main(master: str, log_file: str, config: str = "{}") -> None:
    session = spark_session("driver", master=master, log_file=log_file, config=json.loads(config))
    _say({"ready": session.version})
    for line in sys.stdin:
        try:
            batches, rows = follow(start_copy(session, json.loads(line)))
            _say({"batches": batches, "rows": rows})
        except AgileDartError as error:
            _say({"error": str(error), "whole": str(error)})
        except Exception as error:  # noqa: BLE001  Spark's errors have many classes; the test gets the sentence
            _say({"error": spark_sentence(error), "whole": str(error)})
    session.stop()


def _say(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
