"""Cost of reading a sink log with Spark, compared with Parquet files of the same rows and Spark's own rate source.

    python -m benchmarks.spark_read [--rows 2000000] [--repeat 5] [--idle 20] [-o json]

All kinds run in one session, one after the other in an order that changes from round to round; the first round is left out. Only
ratios mean something on a machine that others use as well; rows per second of CPU time vary less than rows per second.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from agiledart.spark import spark_session
from agiledart_cli.verbs.cluster import Mesh
from agiledart_connectors.codecs.lines import GeneratedLines
from agiledart_connectors.files.line_reader import CsvReader
from agiledart_examples.clean_trips import CleanTrip, clean
from agiledart_examples.debs2015 import Trip
from agiledart_examples.taxi_trips import generate
from agiledart_node.wire.commands import CreateToken
from agiledart_sink_log.log_writer import LogOptions, LogWriter
from agiledart_sink_log.row_form import encoded, row_form
from benchmarks.processes import cpu_seconds, rss_by_kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SINK = "bench-trips"
STORED_ROWS = 750
"""Rows of a stored batch, as a busy sink writes them."""

DIFFERENT = 100_000
"""Generated trips; more rows are these again."""

PARTITIONS = 4
MEASURES = ("rows_per_s", "rows_per_cpu_s")
BATCH_ROWS = 500_000
"""Rows of a micro-batch."""


@dataclass
class Bench:
    """Handles and paths of the benchmark.

    Attributes:
        agent: process id of the agent that serves the log.
        reader: options of `format("agiledart")`.
    """

    spark: "SparkSession"
    folder: Path
    rows: int
    agent: int
    metrics: str
    reader: dict[str, str]
    runs: int = 0
    taken: dict[str, list[dict[str, float]]] = field(default_factory=dict)

    def time(self, name: str, work: Callable[[], tuple[int, float]]) -> None:
        """Run the action; record rows per second, by the clock and by CPU time of all processes."""
        before = cpu_seconds(os.getpid())
        rows, seconds = work()
        spent = cpu_seconds(os.getpid()) - before
        self.taken.setdefault(name, []).append(
            {"rows_per_s": rows / seconds, "rows_per_cpu_s": rows / max(spent, 0.01)}
        )
        sys.stderr.write(f"  {name:22} {rows / seconds:12,.0f} rows/s {rows / max(spent, 0.01):12,.0f} rows/CPU-s\n")


def encoded_batches(rows: int) -> Iterator[tuple[bytes, int]]:
    """Yield stored batches of clean trips, so many rows in all."""
    reader = CsvReader(GeneratedLines(islice(generate(seed=7), min(rows, DIFFERENT) * 21 // 20 + 100), "taxi:"), Trip)
    made: list[CleanTrip] = []
    while len(made) < min(rows, DIFFERENT):
        got = reader.read(10_000, time.time_ns())
        made += [trip for trip in map(clean, got.rows) if trip is not None]
    stored = [pair for at in range(0, len(made), STORED_ROWS) for pair in encoded(made[at : at + STORED_ROWS])]
    left = rows
    for body, count in cycle(stored):
        if left < count:
            return
        left -= count
        yield body, count


def write_log(root: Path, rows: int) -> int:
    """Write a log of so many rows (rounded down to whole stored batches) where an agent will serve it; return its rows."""
    form = row_form(CleanTrip)
    log = LogWriter(root, SINK, LogOptions(PARTITIONS, max_bytes=1 << 40), form.text, form.fields, "bench", 1)
    total = 0
    for number, (body, count) in enumerate(encoded_batches(rows)):
        log.partitions[number % PARTITIONS].append(body, count)
        log.commit()
        total += count
    log.close()
    return total


def write_parquet(spark: "SparkSession", reader: dict[str, str], folder: Path, rows: int) -> None:
    """Write the log's rows as Parquet, in files of about half a micro-batch."""
    files = max(PARTITIONS, 2 * rows // BATCH_ROWS)
    frame = spark.read.format("agiledart").options(**reader).load()
    frame.repartition(files).write.mode("overwrite").parquet(str(folder))


def batch(frame: "DataFrame", rows: int) -> tuple[int, float]:
    """Read all of a table and throw it away."""
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return rows, time.perf_counter() - began


def stream(bench: Bench, frame: "DataFrame", rows: int) -> tuple[int, float]:
    """Read a stream until so many rows are through; return rows, and seconds spent in micro-batches with rows."""
    bench.runs += 1
    writer = frame.writeStream.format("noop").option(
        "checkpointLocation", str(bench.folder / f"checkpoint{bench.runs}")
    )
    query = writer.start()
    seen: dict[int, tuple[int, float]] = {}
    while sum(count for count, _ in seen.values()) < rows:
        if (error := query.exception()) is not None:
            raise error
        for progress in query.recentProgress:
            if progress["numInputRows"]:
                spent = progress["durationMs"]["triggerExecution"] / 1_000
                seen[int(progress["batchId"])] = (int(progress["numInputRows"]), spent)
        time.sleep(0.05)
    query.stop()
    return sum(count for count, _ in seen.values()), sum(spent for _, spent in seen.values())


def kinds(bench: Bench) -> list[tuple[str, Callable[[], tuple[int, float]]]]:
    """Return (name, work) of each kind that is compared."""
    spark, rows, files = bench.spark, bench.rows, str(bench.folder / "parquet")
    schema = spark.read.parquet(files).schema

    def log_stream() -> "DataFrame":
        reader = spark.readStream.format("agiledart").options(**bench.reader)
        return reader.option("maxRowsPerBatch", BATCH_ROWS).load()

    def file_stream() -> "DataFrame":
        return spark.readStream.schema(schema).option("maxFilesPerTrigger", 2).parquet(files)

    def rate_stream() -> "DataFrame":
        reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", BATCH_ROWS)
        return reader.option("numPartitions", PARTITIONS).load()

    return [
        ("batch agiledart", lambda: batch(spark.read.format("agiledart").options(**bench.reader).load(), rows)),
        ("batch parquet", lambda: batch(spark.read.parquet(files), rows)),
        ("stream agiledart", lambda: stream(bench, log_stream(), rows)),
        ("stream parquet", lambda: stream(bench, file_stream(), rows)),
        ("stream rate", lambda: stream(bench, rate_stream(), rows)),
    ]


def answers(metrics: str) -> float:
    """Return the readers' requests that the agent has answered so far, by its own count."""
    with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=10) as response:
        text = response.read().decode()
    lines = [line for line in text.splitlines() if line.startswith("agiledart_sink_log_answers_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def idle(bench: Bench, seconds: float, trigger: str) -> dict[str, Any]:
    """Return CPU, requests and memory of a query that has read everything; `trigger` "" is as soon as possible."""
    bench.runs += 1
    frame = (
        bench.spark.readStream.format("agiledart").options(**bench.reader).option("startingOffsets", "latest").load()
    )
    writer = frame.writeStream.format("noop").option(
        "checkpointLocation", str(bench.folder / f"checkpoint{bench.runs}")
    )
    query = (writer.trigger(processingTime=trigger) if trigger else writer).start()
    time.sleep(5)
    before, agent_before = cpu_seconds(os.getpid()), cpu_seconds(bench.agent)
    asked, began = answers(bench.metrics), time.perf_counter()
    time.sleep(seconds)
    took = time.perf_counter() - began
    figures: dict[str, Any] = {"requests_per_s": round((answers(bench.metrics) - asked) / took, 2)}
    agent = cpu_seconds(bench.agent) - agent_before
    figures["agent_cpu_percent"] = round(100 * agent / took, 1)
    figures["spark_cpu_percent"] = round(100 * (cpu_seconds(os.getpid()) - before - agent) / took, 1)
    figures["memory_mb"] = rss_by_kind(os.getpid())
    query.stop()
    return figures


def summary(bench: Bench) -> dict[str, Any]:
    """Return median and spread of each kind, and their ratios."""
    spreads: dict[str, Any] = {}
    for name, taken in bench.taken.items():
        spreads[name] = {}
        for measure in MEASURES:
            values = sorted(sample[measure] for sample in taken)
            spreads[name][measure] = {
                "median": round(statistics.median(values)), "min": round(values[0]), "max": round(values[-1]),
            }  # fmt: skip

    def ratio(one: str, other: str, measure: str) -> float:
        """Return the median of the ratios within each round, since a disturbance affects both halves of a round."""
        rounds = zip(bench.taken[one], bench.taken[other], strict=True)
        return round(statistics.median(a[measure] / b[measure] for a, b in rounds), 3)

    pairs = (
        ("batch agiledart", "batch parquet"),
        ("stream agiledart", "stream parquet"),
        ("stream agiledart", "stream rate"),
    )
    ratios = {f"{kind} / {other}": {m: ratio(kind, other, m) for m in MEASURES} for kind, other in pairs}
    return {"figures": spreads, "ratios": ratios}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="make bench-spark", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--idle", type=float, default=20.0, help="seconds for which an idle query is watched")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="adb-", dir="/tmp") as name, Mesh(1) as mesh:
        folder = Path(name)
        mesh.start()
        agent = mesh.agents[0]
        sys.stderr.write("writing a log …\n")
        rows = write_log(agent.folder, given.rows)
        token = folder / "reader.token"
        token.touch(mode=0o600)
        with mesh.client(0) as client:
            token.write_text(str(client.ask(CreateToken(role="reader", scope=f"sink:{SINK}", uses=10_000))["token"]))
        reader = {"sink": SINK, "tokenFile": str(token)}
        sys.stderr.write("starting Spark …\n")
        spark = spark_session("bench", log_file=str(folder / "spark.log"))
        place = json.loads((agent.folder / "agent.json").read_text())
        bench = Bench(spark, folder, rows, agent.process.pid, str(place["metrics"]), reader)
        _until_served(bench)
        write_parquet(spark, reader, folder / "parquet", rows)
        work = kinds(bench)
        for number in range(given.repeat + 1):
            sys.stderr.write(f"round {number}{' (left out)' if not number else ''}\n")
            for kind, action in [*work[number % len(work) :], *work[: number % len(work)]]:
                bench.time(kind, action)
            if not number:
                bench.taken.clear()
        document = {"rows": rows, "repeat": given.repeat, "cores": os.cpu_count(), **summary(bench)}
        document["memory_after_reading_mb"] = rss_by_kind(os.getpid())
        document["idle"] = {t or "as soon as possible": idle(bench, given.idle, t) for t in ("", "1 second")}
        spark.stop()
    if given.output == "json":
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")
        return 0
    for name, measures in document["figures"].items():
        rate = measures["rows_per_s"]
        sys.stdout.write(f"{name:18} {rate['median']:12,} rows/s  ({rate['min']:,} to {rate['max']:,})\n")
    for name, ratio in document["ratios"].items():
        sys.stdout.write(f"{name:36} {ratio['rows_per_s']:6.2f}   by CPU time {ratio['rows_per_cpu_s']:6.2f}\n")
    for name, figures in document["idle"].items():
        sys.stdout.write(f"idle, {name}: {figures}\n")
    return 0


def _until_served(bench: Bench) -> None:
    """Wait until the log is served: the agent announces a log added behind its back within half a minute."""
    deadline = time.monotonic() + 60
    while True:
        try:
            bench.spark.read.format("agiledart").options(**bench.reader, agentTimeout="1s").load()
            return
        except Exception:
            if time.monotonic() > deadline:
                raise
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main())
