"""Cost of reading a sink log with Spark, compared with Parquet files of the same rows: stored as rows, and by columns.

    python -m benchmarks.spark_read [--rows 2000000] [--repeat 5] [--idle 20] [--only batch,two] [-o json]

All kinds run in one session, one after the other in an order that changes from round to round. Rounds are left out until
Parquet's figure changes by less than 5 %, because Java compiles what runs often. A stream counts from its second micro-batch to
its last one, so its start is left out. Only ratios mean something on a machine that others use as well; they are taken within a
round, by the CPU time of all processes.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from agiledart.spark import spark_session
from agiledart_agent.identity.reader_identity import identity_from_token
from agiledart_cli.verbs.cluster import Mesh
from agiledart_connectors.codecs.lines import GeneratedLines
from agiledart_connectors.files.line_reader import CsvReader
from agiledart_connectors.opening import open_sink
from agiledart_connectors.sink_origin import SinkOrigin
from agiledart_dataflow.data.arrow_ipc import decoded
from agiledart_dataflow.data.arrow_ipc import encoded as encoded_columns
from agiledart_dataflow.data.columns import Columns
from agiledart_dataflow.plan.connector_abilities import WritesColumns
from agiledart_dataflow.plan.connectors import parse_connector
from agiledart_examples.clean_trips import CleanTrip, clean
from agiledart_examples.debs2015 import Trip
from agiledart_examples.taxi_trips import generate
from agiledart_sink_log.client import SinkLogClient
from agiledart_sink_log.layout import AUTO, NEVER, log_directory
from agiledart_sink_log.log_writer import LogOptions, LogWriter
from agiledart_sink_log.row_form import encoded, row_form
from agiledart_sink_log.segment_rewriter import full_segments
from benchmarks.processes import cpu_by_kind, cpu_seconds, rss_by_kind
from benchmarks.served_logs import reader_token, wait_until_served

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_SINK = "bench-rows"
COLUMNS_SINK = "bench-columns"
STORED_ROWS = 750
"""Rows of a stored batch, as a busy sink writes them."""

PARTITIONS = 4
MEASURES = ("rows_per_s", "rows_per_cpu_s")
MICRO_BATCHES = 6
STEADY = 0.05
SEGMENT_BYTES = 4 << 20
ANSWERS = "agiledart_sink_log_answers_total"


@dataclass
class Bench:
    """Handles and paths of the benchmark.

    Attributes:
        agent: process id of the agent that serves the log.
        reader: options of `format("agiledart")` without the log.
    """

    spark: "SparkSession"
    folder: Path
    rows: int
    agent: int
    metrics: str
    reader: dict[str, str]
    runs: int = 0
    taken: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    parts: dict[str, list[dict[str, float]]] = field(default_factory=dict)

    def time(self, name: str, work: Callable[[], tuple[int, float, float]]) -> None:
        """Run the action; record rows per second, by the clock and by CPU time, and the CPU time of each kind of process."""
        before = cpu_by_kind(os.getpid())
        rows, seconds, spent = work()
        self.taken.setdefault(name, []).append(
            {"rows_per_s": rows / seconds, "rows_per_cpu_s": rows / max(spent, 0.01)}
        )
        after = cpu_by_kind(os.getpid())
        self.parts.setdefault(name, []).append(
            {part: (cpu - before.get(part, 0.0)) / self.rows * 1e9 for part, cpu in after.items()}
        )
        sys.stderr.write(f"  {name:22} {rows / seconds:12,.0f} rows/s {rows / max(spent, 0.01):12,.0f} rows/CPU-s\n")


def trips(rows: int) -> Iterator[list[CleanTrip]]:
    """Yield so many different clean trips, ordered by the end of the trip, in lists of any length."""
    reader = CsvReader(GeneratedLines(islice(generate(seed=7), rows * 21 // 20 + 10_000), "taxi:"), Trip)
    left = rows
    while left and (got := reader.read(10_000, time.time_ns())).rows:
        made = [trip for trip in map(clean, got.rows) if trip is not None][:left]
        left -= len(made)
        yield made


def encoded_batches(rows: int) -> Iterator[tuple[bytes, int]]:
    """Yield stored batches of clean trips, so many rows in all."""
    waiting: list[CleanTrip] = []
    for made in trips(rows):
        waiting += made
        while len(waiting) >= STORED_ROWS:
            yield from encoded(waiting[:STORED_ROWS])
            del waiting[:STORED_ROWS]
    if waiting:
        yield from encoded(waiting)


def write_log(root: Path, sink: str, batches: Iterable[tuple[bytes, int]], columns: str) -> int:
    """Write a log where an agent will serve it, and return its rows. Its last segments hold little."""
    form = row_form(CleanTrip)
    total = 0
    for number, part in enumerate((batches, [*islice(encoded_batches(STORED_ROWS), 1)] * PARTITIONS)):
        segment = SEGMENT_BYTES if number == 0 else 1  # with the least size the rows so far become a full segment
        options = LogOptions(PARTITIONS, max_bytes=1 << 40, segment_bytes=segment, columns=columns)
        log = LogWriter(root, sink, options, form.text, form.fields, "bench", 1)
        for place, (body, count) in enumerate(part):
            log.partitions[place % PARTITIONS].append(body, count)
            log.commit()
            total += count
        log.close()
    return total


def write_parquet(spark: "SparkSession", reader: dict[str, str], folder: Path) -> None:
    """Write the log's rows as Parquet, in files of half a micro-batch."""
    frame = spark.read.format("agiledart").options(**reader, sink=ROWS_SINK).load()
    frame.repartition(2 * MICRO_BATCHES).write.mode("overwrite").parquet(str(folder))


def batch(frame: "DataFrame", rows: int) -> tuple[int, float, float]:
    """Read all of a table and throw it away. Return rows, seconds, and seconds of CPU time."""
    began, before = time.perf_counter(), cpu_seconds(os.getpid())
    frame.write.format("noop").mode("overwrite").save()
    return rows, time.perf_counter() - began, cpu_seconds(os.getpid()) - before


def stream(bench: Bench, frame: "DataFrame", rows: int) -> tuple[int, float, float]:
    """Read a stream until so many rows are through; return rows, seconds and CPU seconds behind the second micro-batch."""
    bench.runs += 1
    writer = frame.writeStream.format("noop").option(
        "checkpointLocation", str(bench.folder / f"checkpoint{bench.runs}")
    )
    query = writer.start()
    seen: dict[int, int] = {}
    marks: list[tuple[int, float, float]] = []
    while not marks or marks[-1][0] < rows:
        if (error := query.exception()) is not None:
            raise error
        for progress in query.recentProgress:
            if progress["numInputRows"] and int(progress["batchId"]) not in seen:
                seen[int(progress["batchId"])] = int(progress["numInputRows"])
                marks.append((sum(seen.values()), time.perf_counter(), cpu_seconds(os.getpid())))
        time.sleep(0.02)
    query.stop()
    (first_rows, first_at, first_cpu), (last_rows, last_at, last_cpu) = marks[1], marks[-1]
    return last_rows - first_rows, last_at - first_at, last_cpu - first_cpu


TWO_FIELDS = ("start_cell", "total_cents")


def kinds(bench: Bench) -> list[tuple[str, Callable[[], tuple[int, float, float]]]]:
    """Return (name, work) of each kind that is compared."""
    spark, rows, files = bench.spark, bench.rows, str(bench.folder / "parquet")
    schema = spark.read.parquet(files).schema
    micro_batch = rows // MICRO_BATCHES

    def log_table(sink: str, **options: str) -> "DataFrame":
        return spark.read.format("agiledart").options(**bench.reader, sink=sink, **options).load()

    def log_stream(sink: str) -> "DataFrame":
        reader = spark.readStream.format("agiledart").options(**bench.reader, sink=sink)
        return reader.option("maxRowsPerBatch", micro_batch).load()

    def file_stream() -> "DataFrame":
        return spark.readStream.schema(schema).option("maxFilesPerTrigger", 2).parquet(files)

    two = ",".join(TWO_FIELDS)
    return [
        ("batch columns", lambda: batch(log_table(COLUMNS_SINK), rows)),
        ("batch rows", lambda: batch(log_table(ROWS_SINK), rows)),
        ("batch parquet", lambda: batch(spark.read.parquet(files), rows)),
        ("two fields columns", lambda: batch(log_table(COLUMNS_SINK, columns=two), rows)),
        ("two fields parquet", lambda: batch(spark.read.parquet(files).select(*TWO_FIELDS), rows)),
        ("stream columns", lambda: stream(bench, log_stream(COLUMNS_SINK), rows)),
        ("stream rows", lambda: stream(bench, log_stream(ROWS_SINK), rows)),
        ("stream parquet", lambda: stream(bench, file_stream(), rows)),
    ]


def warm_up(bench: Bench, work: "list[tuple[str, Callable[[], tuple[int, float, float]]]]", most: int) -> int:
    """Run rounds until Parquet's figure is steady, `most` of them; return their number."""
    last = 0.0
    for number in range(1, most + 1):
        sys.stderr.write(f"round {number} (left out)\n")
        for kind, action in work:
            bench.time(kind, action)
        now = bench.taken.get("batch parquet", [*bench.taken.values()][-1])[-1]["rows_per_cpu_s"]
        if abs(now - last) < STEADY * now:
            break
        last = now
    bench.taken.clear()
    bench.parts.clear()
    return number


def metric(metrics: str, name: str) -> float:
    """Return a metric of the agent, all labels together."""
    with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=10) as response:
        text = response.read().decode()
    lines = [line for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def filtered(bench: Bench) -> dict[str, float]:
    """Return what a condition that 1 % of the rows match, which lie together, leaves of the bytes."""
    table = bench.spark.read.format("agiledart").options(**bench.reader, sink=COLUMNS_SINK)
    ends = [row[0] for row in table.option("columns", "dropoff_at").load().sort("dropoff_at").collect()]
    begin, end = ends[len(ends) // 2], ends[len(ends) // 2 + len(ends) // 100]
    sizes = []
    for where in ("", f"dropoff_at >= '{begin}' AND dropoff_at < '{end}'"):
        before = metric(bench.metrics, "agiledart_sink_log_sent_bytes_total")
        count = table.option("where", where).load().count()
        sizes.append(metric(bench.metrics, "agiledart_sink_log_sent_bytes_total") - before)
    return {
        "rows": count,
        "share_of_rows": round(count / bench.rows, 4),
        "share_of_bytes": round(sizes[1] / sizes[0], 4),
    }


def transport(bench: Bench, client: SinkLogClient, rounds: int = 5) -> dict[str, float]:
    """Return the CPU time of both ends for a byte of columns, nanoseconds: median of some rounds."""
    taken = []
    for _ in range(rounds):
        size, before, began = 0, cpu_seconds(bench.agent), time.process_time()
        for ends in client.ends(COLUMNS_SINK).partitions:
            at = ends.first
            while at < ends.committed:
                got = client.fetch_parts(
                    COLUMNS_SINK, ends.partition, at, range(12), max_rows=1_000_000, max_bytes=4 << 20
                )
                size += sum(len(part) for stored in got.batches for part in stored.parts)
                at = got.next_offset
        mine, agents = time.process_time() - began, cpu_seconds(bench.agent) - before
        taken.append(((mine + agents) / size * 1e9, mine / size * 1e9, agents / size * 1e9))
    both, reader, agent = (statistics.median(column) for column in zip(*taken, strict=True))
    return {"both_ns": round(both, 2), "reader_ns": round(reader, 2), "agent_ns": round(agent, 2)}


def writing(folder: Path, rows: int = 200_000) -> dict[str, int]:
    """Return the rows per second of CPU time with which a sink writes columns, and rows."""
    made = [trip for part in trips(20_000) for trip in part]
    figures = {}
    for kind, url in (("columns", "log:written-columns"), ("rows", "log:written-rows?columns=never")):
        sink = open_sink(parse_connector(url), CleanTrip, time.time_ns, SinkOrigin("bench", 1, folder))
        parts = [made[at : at + 10_000] for at in range(0, len(made), 10_000)]
        columns = [decoded(encoded_columns(Columns.from_rows(part, CleanTrip)), CleanTrip) for part in parts]
        began = time.process_time()
        for number in range(rows // 10_000):
            if isinstance(sink, WritesColumns):
                sink.write_columns(columns[number % len(columns)])
            else:
                sink.write(parts[number % len(parts)])
            sink.flush()
        sink.close()
        figures[kind] = round(rows / (time.process_time() - began))
    return figures


def idle(bench: Bench, seconds: float, trigger: str) -> dict[str, Any]:
    """Return CPU, requests and memory of a query that has read everything; `trigger` "" is as soon as possible."""
    bench.runs += 1
    frame = (
        bench.spark.readStream.format("agiledart")
        .options(**bench.reader, sink=COLUMNS_SINK)
        .option("startingOffsets", "latest")
        .load()
    )
    writer = frame.writeStream.format("noop").option(
        "checkpointLocation", str(bench.folder / f"checkpoint{bench.runs}")
    )
    query = (writer.trigger(processingTime=trigger) if trigger else writer).start()
    time.sleep(5)
    before, agent_before = cpu_seconds(os.getpid()), cpu_seconds(bench.agent)
    asked, began = metric(bench.metrics, ANSWERS), time.perf_counter()
    time.sleep(seconds)
    took = time.perf_counter() - began
    figures: dict[str, Any] = {"requests_per_s": round((metric(bench.metrics, ANSWERS) - asked) / took, 2)}
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

    def ratio(numerator: str, denominator: str, measure: str) -> float:
        """Return the median of the ratios within each round, since a disturbance affects both halves of a round."""
        rounds = zip(bench.taken[numerator], bench.taken[denominator], strict=True)
        return round(statistics.median(a[measure] / b[measure] for a, b in rounds), 3)

    pairs = [(f"{kind} {form}", f"{kind} parquet") for kind in ("batch", "stream") for form in ("columns", "rows")]
    pairs.append(("two fields columns", "two fields parquet"))
    pairs = [(kind, other) for kind, other in pairs if kind in bench.taken and other in bench.taken]
    ratios = {f"{kind} / {other}": {m: ratio(kind, other, m) for m in MEASURES} for kind, other in pairs}
    parts = {
        name: {
            part: round(statistics.median(sample.get(part, 0.0) for sample in samples))
            for part in sorted({part for sample in samples for part in sample})
        }
        for name, samples in bench.parts.items()
    }
    return {"figures": spreads, "ratios": ratios, "cpu_ns_a_row": parts}


def besides(bench: Bench, token: str, seconds: float) -> dict[str, Any]:
    """Return what is measured besides reading: transport, a condition, writing, and an idle query for so many seconds."""
    identity, addresses = identity_from_token(token)
    with SinkLogClient(addresses, identity) as client:
        document: dict[str, Any] = {"transport": transport(bench, client)}
    document["filter"] = filtered(bench)
    document["writing_rows_per_cpu_s"] = writing(bench.folder)
    triggers = ("", "1 second") if seconds else ()
    document["idle"] = {trigger or "as soon as possible": idle(bench, seconds, trigger) for trigger in triggers}
    return document


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="make bench-spark", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument(
        "--warm", type=int, default=12, help="most rounds that are left out until Parquet's figure is steady"
    )
    parser.add_argument("--idle", type=float, default=20.0, help="seconds for which an idle query is watched")
    parser.add_argument(
        "--only", default="", help="kinds that begin so, such as batch,two; without what is measured besides"
    )
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="adb-", dir="/tmp") as name, Mesh(1) as mesh:
        folder = Path(name)
        mesh.start()
        agent = mesh.agents[0]
        sys.stderr.write("writing logs …\n")
        stored = list(encoded_batches(given.rows))
        rows = write_log(agent.folder, ROWS_SINK, stored, NEVER)
        write_log(agent.folder, COLUMNS_SINK, stored, AUTO)
        del stored
        token = reader_token(mesh, folder)
        reader = {"tokenFile": str(token)}
        sys.stderr.write("starting Spark …\n")
        spark = spark_session("bench", log_file=str(folder / "spark.log"))
        place = json.loads((agent.folder / "agent.json").read_text())
        bench = Bench(spark, folder, rows, agent.process.pid, str(place["metrics"]), reader)
        wait_until_served(token, ROWS_SINK, COLUMNS_SINK)
        while list(full_segments(agent.folder)):
            time.sleep(0.5)
        write_parquet(spark, reader, folder / "parquet")
        only = tuple(given.only.split(","))
        work = [(kind, action) for kind, action in kinds(bench) if kind.startswith(only)]
        document: dict[str, Any] = {"rows": rows, "repeat": given.repeat, "cores": os.cpu_count()}
        document["load_before"] = os.getloadavg()
        document["warm_rounds"] = warm_up(bench, work, given.warm)
        for number in range(given.repeat):
            sys.stderr.write(f"round {number + 1} of {given.repeat}\n")
            for kind, action in [*work[number % len(work) :], *work[: number % len(work)]]:
                bench.time(kind, action)
        document |= summary(bench)
        document["memory_after_reading_mb"] = rss_by_kind(os.getpid())
        if not given.only:
            document |= besides(bench, f"@{token}", given.idle)
        document["bytes_a_row"] = {
            sink: round(_size(agent.folder, sink) / rows, 1) for sink in (ROWS_SINK, COLUMNS_SINK)
        }
        document["load_after"] = os.getloadavg()
        spark.stop()
    if given.output == "json":
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")
    else:
        _print_table(document)
    return 0


def _print_table(document: Mapping[str, Any]) -> None:
    for name, measures in document["figures"].items():
        rate = measures["rows_per_s"]
        sys.stdout.write(f"{name:18} {rate['median']:12,} rows/s  ({rate['min']:,} to {rate['max']:,})\n")
    for name, ratio in document["ratios"].items():
        sys.stdout.write(f"{name:36} {ratio['rows_per_s']:6.2f}   by CPU time {ratio['rows_per_cpu_s']:6.2f}\n")
    for name, parts in document["cpu_ns_a_row"].items():
        sys.stdout.write(f"{name:18} CPU, ns a row: {parts}\n")
    for name in ("transport", "filter", "writing_rows_per_cpu_s", "bytes_a_row", "load_before", "load_after"):
        if name in document:
            sys.stdout.write(f"{name}: {document[name]}\n")
    for name, figures in document.get("idle", {}).items():
        sys.stdout.write(f"idle, {name}: {figures}\n")


def _size(root: Path, sink: str) -> int:
    return sum(path.stat().st_size for path in log_directory(root, sink).rglob("*.segment"))


if __name__ == "__main__":
    sys.exit(main())
