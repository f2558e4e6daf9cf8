"""Process that learns usual durations from a log and writes each model to a feed: Spark's part of `agiledart pipeline demo`.

Its argument is a JSON object; a line on stdout, `{"at": activity}`, shows that the process is alive. The end of its stdin ends it
at once. The model of a window of time is the median duration of each route; it is published when the window is complete.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agiledart_analytics.job_run import spark_sentence
from agiledart_kernel.errors import AgileDartError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_SECONDS = 0.5


def usual_durations(trips: "DataFrame", window_seconds: int) -> "DataFrame":
    """Return the median duration of each route in each window of time, once the window is complete.

    Args:
        trips: stream with `route`, `seconds` and `read_at`.
    """
    from pyspark.sql import functions as f

    timed = trips.withWatermark("read_at", "1 second")
    grouped = timed.groupBy(f.window("read_at", f"{window_seconds} seconds").alias("learned"), "route")
    learned = grouped.agg(f.percentile_approx("seconds", 0.5).alias("usual_seconds"), f.count("*").alias("trips"))
    until = (f.unix_micros(f.col("learned.end")) / 1_000).cast("long")
    return learned.select("route", f.col("usual_seconds").cast("double"), "trips", until.alias("learned_until"))


def learn(session: Any, task: dict[str, Any]) -> "StreamingQuery":
    """Start the query from the log to the feed.

    Args:
        task: `reader` and `writer` options, `folder` of the checkpoint, `window` and `trigger` in seconds.
    """
    trips = session.readStream.format("agiledart").options(**task["reader"]).load()
    writer = usual_durations(trips, int(task["window"])).writeStream.format("agiledart").options(**task["writer"])
    trigger = f"{task['trigger']} seconds"
    checkpoint = str(Path(task["folder"]) / "checkpoint")
    return writer.option("checkpointLocation", checkpoint).trigger(processingTime=trigger).start()


def main(argument: str) -> None:
    """Learn until stdin ends. An error is `{"error": sentence}`."""
    from agiledart.spark import spark_session

    task = json.loads(argument)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        folder = Path(task["folder"])  # the JVM may be killed, and would leave its files elsewhere
        settings = {"spark.local.dir": str(folder / "local")}
        session = spark_session("pipeline demo", config=settings, short=True, log_file=str(folder / "spark.log"))
        _send_line({"at": "started"})
        query = learn(session, task)
        while query.isActive:
            progress = query.lastProgress
            _send_line({"at": "learning", "batch": -1 if progress is None else int(progress["batchId"])})
            time.sleep(LOOK_SECONDS)
        if (error := query.exception()) is not None:
            raise error
    except AgileDartError as error:
        _send_line({"error": str(error)})
    except Exception as error:  # noqa: BLE001  Spark's errors have many classes; the demo gets a sentence
        _send_line({"error": spark_sentence(error)})


def _send_line(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
