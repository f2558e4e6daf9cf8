"""A day of two cities' trips through a whole pipeline project, with damaged rows and an outage: soak, and proof of each table.

    python -m benchmarks.day_of_pipeline [--hours 24] [--speed 600] [--max-mib 16] [-o json]

Two agents have a log each, whose bound is a fraction of what is written; one trip in a hundred is damaged. A project made by
`agiledart pipeline init` updates its tables again and again. The second agent is killed for one hour of the day, and
comes back on another port. In the end every table is compared with a plain loop over the same trips: the number of rows in
bronze, silver row by row in gold, each damaged row in quarantine with its reasons. Meanwhile disk, memory and files are looked
at. The exit code is 1 when a table differs or a bound is broken.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agiledart_cli.verbs.cluster import Mesh
from agiledart_control.control_client import ControlClient
from agiledart_control.submission import make_submission
from agiledart_examples.clean_trips import clean
from agiledart_examples.taxi_trips import generate
from agiledart_kernel.errors import OperationFailed
from agiledart_node.wire.commands import CreateToken, Status
from agiledart_pipelines import file_tables
from agiledart_pipelines.file_merging import MAX_SMALL_FILES
from agiledart_pipelines.project import open_project
from agiledart_pipelines.runner import PipelineRunner
from agiledart_pipelines.session import open_session
from agiledart_pipelines.template import write_project
from agiledart_sink_log.layout import log_directory
from benchmarks.damaged_trips import damaged, failed_expectations, trips_until
from benchmarks.day_of_trips import LOOK_SECONDS, OVER_BOUND, START, ResourceWatch, trip

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TARGET: Final = "benchmarks.damaged_trips:damaged_trips"
CITIES: Final = ("york", "porto")
PARTITIONS: Final = 2
QUARTER: Final = 15 * 60
OUTAGE_HOURS: Final = 1.0
STREAMING: Final = ("bronze", "silver", "quarantine")
SHORT_HOURS: Final = 3.0
"""Hours before the outage below which Spark starts fast rather than runs fast."""


@dataclass
class PlainTables:
    """Tables that a plain loop makes of the same trips.

    Attributes:
        rows: of bronze. `quarter`: (window's start, start, end) → trips, cents. `areas`: (day, start) → trips, cents.
        quarantine: (taxi, pick-up, seconds, cents, reasons) → rows.
    """

    rows: int = 0
    quarters: dict[tuple[str, ...], list[int]] = field(default_factory=dict)
    areas: dict[tuple[str, ...], list[int]] = field(default_factory=dict)
    quarantine: Counter[tuple[Any, ...]] = field(default_factory=Counter)

    def add(self, seed: int, hours: float) -> int:
        """Add the generated trips of so many hours, and return their number."""
        lines = 0
        for cells in trips_until(generate(seed=seed), START + timedelta(hours=hours)):
            lines += 1
            if (cleaned := clean(trip(cells))) is None:
                continue
            row = damaged(cleaned)
            self.rows += 1
            if reasons := failed_expectations(row):
                self.quarantine[(row.taxi, str(row.pickup_at), row.seconds, row.total_cents, reasons)] += 1
                continue
            at = row.dropoff_at
            start = at - timedelta(seconds=(at.minute * 60 + at.second) % QUARTER, microseconds=at.microsecond)
            for sums in (
                self.quarters.setdefault((str(start), row.start_cell, row.end_cell), [0, 0]),
                self.areas.setdefault((str(at.date()), row.start_cell), [0, 0]),
            ):
                sums[0] += 1
                sums[1] += row.total_cents
        return lines


class DayOfPipeline:
    """One run: two cities' applications, and the project that reads their logs.

    Args:
        hours: of event time; the outage takes the second of three parts of an equal length if there is less than a day.
    """

    def __init__(self, mesh: Mesh, folder: Path, hours: float, speed: float, max_bytes: str) -> None:
        self._mesh, self._folder, self._speed, self._max_bytes = mesh, folder, speed, max_bytes
        self._outage = min(OUTAGE_HOURS, hours / 3)
        self._before = (hours - self._outage) / 2
        self.plain = PlainTables()
        york = self.plain.add(1, hours)
        first, second = self.plain.add(2, self._before), self.plain.add(3, hours - self._outage - self._before)
        self._lines = {1: york, 2: first, 3: second}
        self.updates = 0
        self.most_files: dict[str, int] = {}
        self.missing_seen: set[str] = set()

    def run(self) -> dict[str, Any]:
        """Run it and return its figures. Raises `OperationFailed` when an application or an update fails."""
        self._mesh.start()
        with self._mesh.client(0) as client:
            token = self._folder / "reader.token"
            token.touch(mode=0o600)
            token.write_text(str(client.ask(CreateToken(role="reader", uses=10_000, expires=86_400))["token"]))
            root = self._folder / "taxi"
            write_project(root, ",".join(CITIES), f'tokenFile = "{token}"')
            self.project = open_project(root)
            logs = [log_directory(agent.folder, city) for agent, city in zip(self._mesh.agents, CITIES, strict=True)]
            is_short = self._before < SHORT_HOURS
            with self.project.locked(), open_session(self.project, short=is_short) as session:
                runner = PipelineRunner(session, self.project, wall_clock=time.time)
                for city, seed in zip(CITIES, (1, 2), strict=True):
                    self._submit(client, city, seed)
                while not all(any(log.glob("*/committed")) for log in logs):
                    time.sleep(LOOK_SECONDS)
                with ResourceWatch(logs[0]) as watch:
                    self._follow(client, runner)
                document = self._document(session) | watch.document()
                runner.close()
        return document

    def _submit(self, client: ControlClient, city: str, seed: int) -> None:
        node = self._mesh.agents[CITIES.index(city)].name
        source = f"taxi:?count={self._lines[seed]}&seed={seed}&speed={self._speed:g}@{node}"
        sink = f"log:{city}?partitions={PARTITIONS}&max_bytes={self._max_bytes}@{node}"
        client.ask(make_submission(TARGET, {"trips": source, "out": sink}, {}, name=city))

    def _follow(self, client: ControlClient, runner: PipelineRunner) -> None:
        """Update again and again, through the outage, until both logs are complete and read."""
        began, outage_s = time.monotonic(), self._outage * 3_600 / self._speed
        back_at = 0.0
        has_all = False
        while not has_all:
            if not back_at and self._has_ended(client, CITIES[1]):
                self._mesh.kill(1)
                back_at = time.monotonic() + outage_s
                sys.stderr.write(f"{CITIES[1]} is away after {time.monotonic() - began:.0f} s\n")
            if back_at and time.monotonic() >= back_at and not self._mesh.agents[1].is_alive:
                self._mesh.restart(1)
                sys.stderr.write(f"{CITIES[1]} is back after {time.monotonic() - began:.0f} s\n")
                self._submit(client, CITIES[1], 3)
            is_complete = (
                bool(back_at)
                and self._mesh.agents[1].is_alive
                and all(self._has_ended(client, city) for city in CITIES)
            )
            outcome = runner.update()
            self.updates += 1
            self.missing_seen |= set(outcome.missing)
            for table in STREAMING:
                files = len(file_tables.live_files(self.project.table_folder(table)))
                self.most_files[table] = max(files, self.most_files.get(table, 0))
            sys.stderr.write(f"update {self.updates}: {sum(outcome.read_up_to.values()):,} rows\n")
            has_all = is_complete and not any(lag.rows for lag in outcome.lags.values()) and not outcome.missing
        self.seconds = round(time.monotonic() - began, 1)

    @staticmethod
    def _has_ended(client: ControlClient, city: str) -> bool:
        """Return whether the application of a city has finished. Raises `OperationFailed` when it fails."""
        status: dict[str, Any] = client.ask(Status(city))
        if status["state"] not in ("deploying", "running", "finished"):
            raise OperationFailed(f"the application {city} is {status['state']}: {status.get('reason', '')}")
        return bool(status["state"] == "finished")

    def _document(self, session: "SparkSession") -> dict[str, Any]:
        def rows(query: str) -> list[tuple[Any, ...]]:
            return [tuple(row.values()) for row in session.sql(query).toArrow().to_pylist()]

        [[bronze, places]] = rows("select count(*), count(distinct _log, _partition, _offset) from bronze")
        quarters = rows(
            "select string(window_start), start_cell, end_cell, trips, revenue_cents from routes_by_quarter"
        )
        areas = rows("select string(day), area, trips, revenue_cents from revenue_by_area")
        quarantine = Counter(
            (*row[:-1], tuple(row[-1]))
            for row in rows("select taxi, string(pickup_at), seconds, total_cents, _failed from quarantine")
        )
        [[silver]] = rows("select count(*) from silver")
        plain = self.plain
        tables = self.project.warehouse
        return {
            "rows": plain.rows, "damaged": plain.quarantine.total(), "updates": self.updates, "seconds": self.seconds,
            "equal": {
                "bronze": (bronze, places) == (plain.rows, plain.rows),
                "silver": silver == plain.rows - plain.quarantine.total(),
                "quarantine": quarantine == plain.quarantine,
                "routes_by_quarter": sorted(quarters) == sorted((*key, *sums) for key, sums in plain.quarters.items()),
                "revenue_by_area": sorted(areas) == sorted((*key, *sums) for key, sums in plain.areas.items()),
            },
            "missing_was_reported": sorted(self.missing_seen), "most_files": self.most_files,
            "files_on_disk": {table: len(list((tables / table).glob("*.parquet"))) for table in STREAMING},
            "tables_mb": round(sum(path.stat().st_size for path in tables.rglob("*.parquet")) / 1e6, 1),
        }  # fmt: skip


def faults(document: dict[str, Any], max_bytes: int) -> list[str]:
    """Return a sentence for each part of the result that is wrong."""
    wrong = [f"{table}: not what the plain loop finds" for table, is_equal in document["equal"].items() if not is_equal]
    if document["missing_was_reported"] != [CITIES[1]]:
        wrong.append(f"missing logs were reported as {document['missing_was_reported']}, not as {CITIES[1]}")
    wrong += [
        f"{table} has {count} files"
        for files in ("most_files", "files_on_disk")
        for table, count in document[files].items()
        if count > 2 * MAX_SMALL_FILES
    ]
    if document["log_bytes_max"] > OVER_BOUND * max_bytes:
        wrong.append(f"the log took {document['log_bytes_max']:,} bytes of {max_bytes:,}")
    return wrong


def main() -> int:
    """Run the soak and print its result."""
    parser = argparse.ArgumentParser(prog="make soak-day", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--hours", type=float, default=24.0, help="event time")
    parser.add_argument("--speed", type=float, default=600.0, help="event time over real time")
    parser.add_argument("--max-mib", type=int, default=16, help="bound of each log, MiB")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    given = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="add-", dir="/tmp", ignore_cleanup_errors=True) as name, Mesh(2) as mesh:
        try:
            document = DayOfPipeline(mesh, Path(name), given.hours, given.speed, f"{given.max_mib}MiB").run()
        except OperationFailed as error:
            sys.stderr.write(f"{error}\n")
            return 1
    document |= {"hours": given.hours, "speed": given.speed, "loads": [load, os.getloadavg()[0]]}
    document["faults"] = faults(document, given.max_mib << 20)
    if given.output == "json":
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    else:
        for key, value in document.items():
            sys.stdout.write(f"{key:20} {json.dumps(value)}\n")
    return 1 if document["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
