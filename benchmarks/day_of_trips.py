"""A day of taxi trips through a mesh into a bounded log that is trimmed while Spark reads along: soak, and proof of the result.

    python -m benchmarks.day_of_trips [--hours 24] [--speed 600] [--max-bytes 16MiB] [-o json]

One agent generates and cleans trips of so many hours of event time. Another writes them into a log whose bound is a fraction of
the bytes written. Spark copies the log into Parquet as it grows, with failOnDataLoss: were a row trimmed unread, the copy
would fail. In the end the daily tables that Spark makes of the copy are compared with those of a plain loop over the same trips.
Meanwhile disk and memory are looked at twice a second. The exit code is 1 when a table differs or a bound is broken.
"""

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from agiledart import ReadTime
from agiledart.spark import spark_session
from agiledart_analytics.job_run import copy_live, run_job
from agiledart_analytics.jobs import find_job
from agiledart_cli.verbs.cluster import Mesh
from agiledart_control.control_client import ControlClient
from agiledart_control.submission import make_submission
from agiledart_examples.clean_trips import clean
from agiledart_examples.debs2015 import Trip
from agiledart_examples.taxi_trips import generate
from agiledart_kernel.errors import OperationFailed
from agiledart_node.wire.commands import CreateToken, Status
from benchmarks.processes import rss_by_kind

TARGET: Final = "agiledart_examples.clean_trips:clean_trips"
NAME: Final = "clean-trips"
START: Final = datetime(2013, 1, 7, 8, 0)  # noqa: DTZ001  local time of the city, as in the data
SEED: Final = 24
PARTITIONS: Final = 4
TOP: Final = 10
FIRST_LINES: Final = 500
"""Lines of a first run, so that the log exists and the copy has begun before much is written. The second run repeats them."""

LOOK_SECONDS: Final = 0.5
OVER_BOUND: Final = 1.25
"""A partition may exceed its share by the segment that is being written, a quarter of the share."""

PARTS: Final = ("agents", "executors", "jvm", "planner", "workers")


@dataclass
class Plain:
    """Results of a plain loop over the trips.

    Attributes:
        lines: generated trips. `rows`: the clean trips among them.
        routes: (day, start, end) → trips, cents. `areas`: (day, start) → trips, cents.
    """

    lines: int = 0
    rows: int = 0
    routes: dict[tuple[str, str, str], list[int]] = field(default_factory=dict)
    areas: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    def daily_routes(self) -> list[tuple[Any, ...]]:
        """As the job of this name says it."""
        return _ranked(sorted(self.routes.items(), key=lambda item: (item[0][0], -item[1][0], *item[0][1:])))

    def daily_areas(self) -> list[tuple[Any, ...]]:
        """As the job of this name says it."""
        return _ranked(sorted(self.areas.items(), key=lambda item: (item[0][0], -item[1][1], item[0][1])))


def _ranked(ordered: list[Any]) -> list[tuple[Any, ...]]:
    ranks: Counter[str] = Counter()
    ranked = []
    for (day, *names), (trips, cents) in ordered:
        ranks[day] += 1
        if ranks[day] <= TOP:
            ranked.append((day, ranks[day], *names, trips, cents))
    return ranked


def plain_loop(hours: float) -> Plain:
    """Generate, split, convert and count trips without the engine, the log or Spark."""
    totals, end = Plain(), str(START + timedelta(hours=hours))
    for line in generate(seed=SEED):
        cells = line.split(",")
        if cells[3] >= end:
            return totals
        totals.lines += 1
        if (cleaned := clean(trip(cells))) is None:
            continue
        times = 2 if totals.lines <= FIRST_LINES else 1
        totals.rows += times
        day = cells[3][:10]
        for sums in (
            totals.routes.setdefault((day, cleaned.start_cell, cleaned.end_cell), [0, 0]),
            totals.areas.setdefault((day, cleaned.start_cell), [0, 0]),
        ):
            sums[0] += times
            sums[1] += times * cleaned.total_cents
    raise AssertionError("the generator never ends")


def trip(cells: list[str]) -> Trip:
    """Return the columns of a line as the topology sees them."""
    picked_up, dropped_off = (datetime.fromisoformat(text) for text in cells[2:4])
    journey, paid = [float(text) for text in cells[4:10]], [float(text) for text in cells[11:17]]
    return Trip(cells[0], cells[1], picked_up, dropped_off, *journey, cells[10], *paid, ReadTime(0))  # type: ignore[call-arg,arg-type]


class ResourceWatch:
    """Watch over the log's size and the memory of this process's descendants, until it is stopped."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.disk: list[int] = []
        self.memory: dict[str, list[float]] = {}

    def __enter__(self) -> "ResourceWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            self.disk.append(_bytes_below(self._log))
            for name, size in rss_by_kind(os.getpid()).items():
                self.memory.setdefault(name, []).append(size)

    def document(self) -> dict[str, Any]:
        """Return the maxima, and the last third of the run compared with the second, which shows unbounded growth."""
        figures: dict[str, Any] = {"looks": len(self.disk), "log_bytes_max": max(self.disk, default=0)}
        for name in PARTS:
            if sizes := self.memory.get(name):
                third = max(1, len(sizes) // 3)
                middle, last = sizes[third : 2 * third] or sizes, sizes[-third:]
                figures[f"{name}_mb"] = {
                    "max": max(sizes), "second_third": round(sum(middle) / len(middle), 1),
                    "last_third": round(sum(last) / len(last), 1),
                }  # fmt: skip
        return figures


def _bytes_below(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*.segment"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:  # trimmed this moment
            continue
    return total


def run(hours: float, speed: float, max_bytes: str, seconds: float) -> dict[str, Any]:
    """Run the whole experiment. Raises `OperationFailed` when the application or the copy fails."""
    sys.stderr.write("the plain loop …\n")
    plain = plain_loop(hours)
    with Mesh(2) as mesh, tempfile.TemporaryDirectory(prefix="add-", dir="/tmp", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        sys.stderr.write("starting agents and Spark …\n")
        mesh.start()
        log = mesh.agents[0].folder / "sink-logs" / NAME
        session = spark_session("day of trips", log_file=str(folder / "spark.log"))
        token = folder / "reader.token"
        token.touch(mode=0o600)
        sys.stderr.write(f"{plain.lines:,} trips …\n")
        with mesh.client(0) as client:
            token.write_text(str(client.ask(CreateToken(role="reader", scope=f"sink:{NAME}", uses=10_000))["token"]))
            sink = f"log:{NAME}?partitions={PARTITIONS}&max_bytes={max_bytes}@a1"
            first = f"taxi:?count={FIRST_LINES}&seed={SEED}@a2"
            client.ask(make_submission(TARGET, {"trips": first, "out": sink}, {}))
            _until_ended(client)
            reader = {"sink": NAME, "tokenFile": str(token)}
            query = copy_live(session, reader, folder / "copy", folder / "checkpoint", seconds)
            query.processAllAvailable()
            with ResourceWatch(log) as watch:
                began = time.monotonic()
                trips = f"taxi:?count={plain.lines}&seed={SEED}&speed={speed:g}@a2"
                client.ask(make_submission(TARGET, {"trips": trips, "out": sink}, {}))
                status = _until_ended(client, query)
                took = time.monotonic() - began
                query.processAllAvailable()
                read_after = time.monotonic() - began - took
            query.stop()
        written = sum(int(path.read_bytes()[8:16].hex(), 16) for path in log.glob("*/committed"))
        trimmed = sum(int(path.read_bytes()[:8].hex(), 16) for path in log.glob("*/committed"))
        tables = {}
        for job, wanted in (("daily-routes", plain.daily_routes()), ("daily-areas", plain.daily_areas())):
            outcome = run_job(session, find_job(job), parquet=str(folder / "copy"))
            rows = [tuple(str(value)[:10] if n == 0 else value for n, value in enumerate(row)) for row in outcome.rows]
            tables[job] = {"rows": len(rows), "equal": rows == wanted, "first": rows[:3]}
        copied = session.read.parquet(str(folder / "copy")).count()
        document = {
            "hours": hours, "speed": speed, "max_bytes": max_bytes, "trips": plain.lines, "clean_rows": plain.rows,
            "written_rows": written, "trimmed_rows": trimmed, "copied_rows": copied,
            "seconds": round(took, 1), "seconds_to_catch_up": round(read_after, 1),
            "rows_per_s": round(plain.rows / took), "state": status["state"], "tables": tables, **watch.document(),
        }  # fmt: skip
        session.stop()
    return document


def _until_ended(client: ControlClient, query: Any = None) -> dict[str, Any]:
    """Wait for the application's end. Raises `OperationFailed` when it fails, or the copy does."""
    while True:
        status: dict[str, Any] = client.ask(Status(NAME))
        if query is not None and (error := query.exception()) is not None:
            raise OperationFailed(f"the copy failed: {error}")
        if status["state"] == "finished":
            return status
        if status["state"] not in ("deploying", "running"):
            raise OperationFailed(f"the application is {status['state']}: {status.get('reason', '')}")
        time.sleep(LOOK_SECONDS)


def faults(document: dict[str, Any], max_bytes: int) -> list[str]:
    """Return a sentence for each part of the result that is wrong."""
    wrong = [
        f"{name}: not what the plain loop finds" for name, table in document["tables"].items() if not table["equal"]
    ]
    wrong += [
        f"{name} is {document[name]:,}, not {document['clean_rows']:,}"
        for name in ("written_rows", "copied_rows")
        if document[name] != document["clean_rows"]
    ]
    if not document["trimmed_rows"]:
        wrong.append("nothing was trimmed: the bound is too wide for this many hours")
    if document["log_bytes_max"] > OVER_BOUND * max_bytes:
        wrong.append(f"the log took {document['log_bytes_max']:,} bytes of {max_bytes:,}")
    return wrong


def main() -> int:
    """Run the experiment and print its result."""
    parser = argparse.ArgumentParser(prog="make soak-day", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--hours", type=float, default=24.0, help="event time")
    parser.add_argument("--speed", type=float, default=600.0, help="event time over real time")
    parser.add_argument("--max-bytes", default="16MiB", help="bound of the log, in MiB or KiB")
    parser.add_argument("--seconds", type=float, default=1.0, help="between Spark's micro-batches")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    given = parser.parse_args()
    factor = {"KiB": 1 << 10, "MiB": 1 << 20}.get(given.max_bytes[-3:])
    if factor is None or not given.max_bytes[:-3].isdigit():
        parser.error(f"--max-bytes is a size such as 16MiB or 512KiB, not {given.max_bytes}")
    try:
        document = run(given.hours, given.speed, given.max_bytes, given.seconds)
    except OperationFailed as error:
        sys.stderr.write(f"{error}\n")
        return 1
    wrong = faults(document, int(given.max_bytes[:-3]) * factor)
    document["faults"] = wrong
    if given.output == "json":
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")
    else:
        for name, value in document.items():
            sys.stdout.write(f"{name:20} {json.dumps(value)}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
