"""A standalone cluster of three workers reads a log of sixteen partitions, beside two local cores.

    python -m benchmarks.spark_cluster [--rows 50000000] [--workers 3] [-o json]

The log's rows are clean trips by columns, the same hundred thousand again and again. Each master counts the rows and sums a
column, twice; both results must be what was written. All processes share one machine, so this shows that a cluster reads the
log right, and what it costs beside local cores; it does not show what more machines would give.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final

from tests.spark.clusters import environment, standalone

from agiledart.spark import LOCAL_MASTER
from agiledart_cli.verbs.cluster import Mesh
from agiledart_examples.clean_trips import CleanTrip
from agiledart_sink_log.column_form import ColumnForm
from agiledart_sink_log.layout import NEVER
from agiledart_sink_log.log_writer import LogOptions, LogWriter
from agiledart_sink_log.row_form import encoded, row_form
from benchmarks.served_logs import reader_token, wait_until_served
from benchmarks.spark_read import trips

SINK: Final = "bench-cluster"
PARTITIONS: Final = 16
BATCH_ROWS: Final = 10_000
BATCHES: Final = 10
"""Different stored batches."""

COMMIT_BATCHES: Final = 160
PASSES: Final = 2
_READ: Final = """
import json, sys, time
from agiledart.spark import spark_session
master, token, log, sink, passes = sys.argv[1:]
memory = {} if master.startswith("local") else {"spark.executor.memory": "600m"}
session = spark_session("cluster", master=master, log_file=log, config=memory)
for _ in range(int(passes)):
    began = time.monotonic()
    frame = session.read.format("agiledart").options(sink=sink, tokenFile=token).load()
    rows, cents = frame.selectExpr("count(*)", "sum(total_cents)").first()
    print(json.dumps([rows, cents, time.monotonic() - began]), flush=True)
session.stop()
"""


def write(root: Path, rows: int) -> tuple[int, int]:
    """Write the log where an agent will serve it; return its rows, at least so many, and the sum of their `total_cents`."""
    form = row_form(CleanTrip)
    columns = ColumnForm(form.fields)
    made = [trip for part in trips(BATCH_ROWS * BATCHES) for trip in part]
    stored = []
    for at in range(0, len(made), BATCH_ROWS):
        part = made[at : at + BATCH_ROWS]
        plain = [row for body, _ in encoded(part) for row in columns.decoded_rows(body)]
        stored.append((columns.encoded(columns.columns_of(plain)), len(part), sum(trip.total_cents for trip in part)))
    # Nothing is to be rewritten while it is read: all of it is by columns.
    options = LogOptions(PARTITIONS, max_bytes=1 << 40, columns=NEVER)
    log = LogWriter(root, SINK, options, form.text, form.fields, "bench", 1)
    total = cents = 0
    for number, ((index, messages), count, sum_of_cents) in enumerate(islice(cycle(stored), -(-rows // BATCH_ROWS))):
        log.partitions[number % PARTITIONS].append_columns(index, messages, count)
        total, cents = total + count, cents + sum_of_cents
        if number % COMMIT_BATCHES == COMMIT_BATCHES - 1:
            log.commit()
    log.commit()
    log.close()
    return total, cents


def read(master: str, token: Path, expected: tuple[int, int]) -> dict[str, Any]:
    """Return what a master takes for each pass. Raises `RuntimeError` when a result is not what was written."""
    command = [sys.executable, "-c", _READ, master, str(token), str(token.with_name("spark.log")), SINK, str(PASSES)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    if ran.returncode or any((rows, cents) != expected for rows, cents, _ in lines):
        raise RuntimeError(f"{master} read {lines}, not {expected}: {ran.stderr[-500:]}")
    rates = [round(expected[0] / seconds) for _, _, seconds in lines]
    return {"seconds": [round(seconds, 1) for _, _, seconds in lines], "rows_per_s": rates}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="benchmarks.spark_cluster", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    given = parser.parse_args()
    loads = [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory(prefix="adc-", dir="/tmp") as name, Mesh(1) as mesh:
        folder = Path(name)
        mesh.start()
        expected = write(mesh.agents[0].folder, given.rows)
        sys.stderr.write(f"{expected[0]:,} rows are written\n")
        token = reader_token(mesh, folder)
        wait_until_served(token, SINK)
        document: dict[str, Any] = {"rows": expected[0], "partitions": PARTITIONS, "workers": given.workers}
        document[LOCAL_MASTER] = read(LOCAL_MASTER, token, expected)
        with standalone(folder, given.workers) as cluster:
            document["cluster"] = read(cluster.url, token, expected)
        document["loads"] = [*loads, os.getloadavg()[0]]
    if given.output == "json":
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    else:
        for key, value in document.items():
            sys.stdout.write(f"{key:12} {json.dumps(value)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
