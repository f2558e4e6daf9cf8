"""How long Spark lets one wait for its first table: a stream, an analysis, and an analysis on the Spark that was kept.

    python -m benchmarks.spark_starts [--rows 300000] [--repeat 3] [-o json]

Each figure is the time from the start of a command's process to its end, or to the first table of a stream. One start of each kind
is left out: the first one of a user writes the archive of Spark's classes.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from agiledart_cli.verbs.cluster import Mesh
from agiledart_sink_log.layout import AUTO
from agiledart_sink_log.segment_rewriter import full_segments
from benchmarks.served_logs import LOOK_SECONDS, reader_token, wait_until_served
from benchmarks.spark_read import COLUMNS_SINK, encoded_batches, write_log

GOALS: Final = {"first table of a stream": 13.0, "analysis": 15.0, "analysis, Spark kept": 7.0}
"""Seconds on two quiet cores."""

JOB: Final = "revenue"
_STREAM: Final = """
import sys
from agiledart.spark import spark_session
spark = spark_session()
trips = spark.readStream.format("agiledart").options(sink=sys.argv[1], tokenFile=sys.argv[2]).load()
table = trips.groupBy("start_cell").count().writeStream.outputMode("complete").format("console")
query = table.option("checkpointLocation", sys.argv[3]).trigger(availableNow=True).start()
query.awaitTermination()
"""


def seconds_of(command: list[str], until: str = "") -> float:
    """Return the seconds from the start of a process to its end, or to a line of its output that begins with `until`.

    Raises `RuntimeError` when the process fails.
    """
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    at = 0.0
    for line in process.stdout:
        if until and line.startswith(until) and not at:
            at = time.monotonic() - began
    code = process.wait()
    took = time.monotonic() - began
    if code or (until and not at):
        assert process.stderr is not None
        raise RuntimeError(f"{command[-1]} ended with {code}: {process.stderr.read()[-500:]}")
    return at or took


def measure(folder: Path, token: str, repeat: int) -> dict[str, list[float]]:
    """Return kind → seconds of each start."""
    analysis = [sys.executable, "-m", "agiledart_cli.main", "analytics", "run", JOB, "--sink", COLUMNS_SINK]
    analysis += ["--token-file", token, "-o", "json"]
    starts = iter(range(1_000))

    def stream() -> float:
        checkpoint = str(folder / f"checkpoint{next(starts)}")
        return seconds_of([sys.executable, "-c", _STREAM, COLUMNS_SINK, token, checkpoint], "+---")

    kinds: dict[str, Callable[[], float]] = {
        "first table of a stream": stream,
        "analysis": lambda: seconds_of(analysis),
        "analysis, Spark kept": lambda: seconds_of([*analysis, "--keep-spark"]),
    }
    taken: dict[str, list[float]] = {}
    for name, start in kinds.items():
        start()
        for _ in range(repeat):
            taken.setdefault(name, []).append(round(start(), 2))
            sys.stderr.write(f"  {name}: {taken[name][-1]} s\n")
    return taken


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.spark_starts", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    given = parser.parse_args()
    loads = [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory(prefix="ads-", dir="/tmp") as name, Mesh(1) as mesh:
        folder = Path(name)
        write_log_of(mesh, given.rows)
        token = reader_token(mesh, folder)
        wait_until_served(token, COLUMNS_SINK)
        try:
            taken = measure(folder, str(token), given.repeat)
        finally:
            subprocess.run(
                [sys.executable, "-m", "agiledart_cli.main", "spark", "stop"], check=False, capture_output=True
            )
    document: dict[str, Any] = {
        kind: {"median_s": round(statistics.median(seconds), 1), "goal_s": GOALS[kind], "seconds": seconds}
        for kind, seconds in taken.items()
    }
    document |= {"rows": given.rows, "loads": [*loads, os.getloadavg()[0]]}
    if given.output == "json":
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    else:
        for key, value in document.items():
            sys.stdout.write(f"{key:24} {json.dumps(value)}\n")
    return 0


def write_log_of(mesh: Mesh, rows: int) -> None:
    """Start the mesh on a log of so many clean trips, all of it rewritten by columns."""
    mesh.start()
    folder = mesh.agents[0].folder
    write_log(folder, COLUMNS_SINK, encoded_batches(rows), AUTO)
    while list(full_segments(folder)):
        time.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
