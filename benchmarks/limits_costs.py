"""Cost of limits for a job with one instance of each stage: alternating runs with and without limits.

    python -m benchmarks.limits_costs [--rows 1000000] [--pairs 5] [--job NAME] [-o json]

Each run is `agiledart run` over the same rows in a process of its own, from `csv:` to `csv:`, once with limits 1..8 and once
without; user's CPU time is counted, less what a run of no rows takes. Results must have the same bytes. Ratios are of neighbours.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from agiledart import Sink, Source, Topology, count_of, tumbling

LIMITS = "1..8"
KEYS = 300


class LimitsTrip(NamedTuple):
    """Input row of the jobs."""

    at: datetime
    zone: int
    vehicle: str
    fare: float


def dear(trip: LimitsTrip) -> LimitsTrip:
    """Do some microseconds of work."""
    total = trip.fare
    for _ in range(30):
        total = total * 1.000001 + 1
    return trip._replace(fare=total)


def windows(trips: Source[LimitsTrip], report: Sink[Any]) -> Topology:
    """Build a job: a filter, then a count in windows by key."""
    topology = Topology("windows")
    rows = topology.source("trips", trips, event_time=lambda trip: trip.at)
    paying = rows.filter(lambda trip: trip.fare > 2, "some")
    counted = (
        paying.key_by(lambda trip: trip.zone).window(tumbling(timedelta(minutes=1))).aggregate("counts", count_of())
    )
    counted.sink("report", report)
    return topology


def filtered(trips: Source[LimitsTrip], report: Sink[Any]) -> Topology:
    """Build a job of a filter alone."""
    topology = Topology("filtered")
    rows = topology.source("trips", trips, event_time=lambda trip: trip.at)
    rows.filter(lambda trip: trip.fare > 12, "some").sink("report", report)
    return topology


def mapped(trips: Source[LimitsTrip], report: Sink[Any]) -> Topology:
    """Build a job: a function of some microseconds a row, then a count in windows by key."""
    topology = Topology("mapped")
    rows = topology.source("trips", trips, event_time=lambda trip: trip.at).map(dear)
    counted = rows.key_by(lambda trip: trip.zone).window(tumbling(timedelta(minutes=1))).aggregate("counts", count_of())
    counted.sink("report", report)
    return topology


JOBS = {"windows": "counts", "filtered": "some", "mapped": "counts"}
"""Job → the step that gets limits."""


def written(path: Path, rows: int) -> None:
    """Write the rows of all runs: 50 per second of event time, 300 keys."""
    begin = datetime(2026, 6, 1)  # noqa: DTZ001  as it stands in the file
    with path.open("w") as file:
        for n in range(rows):
            at = begin + timedelta(seconds=n // 50)
            file.write(f"{at},{n * 7_919 % KEYS},vehicle {n % 1_000},{n % 97 / 4}\n")


def spent(job: str, rows: Path, report: Path, *, limits: bool) -> float:
    """Return the seconds of user CPU time of one run."""
    wanted = ["--parallelism", f"{JOBS[job]}={LIMITS}"] if limits else []
    command = [str(Path(sys.executable).with_name("agiledart")), "run", f"benchmarks.limits_costs:{job}", "-o", "json"]
    command += ["--set", f"trips=csv:{rows}", "--set", f"report=csv:{report}", *wanted]
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def compared(job: str, rows: int, pairs: int, folder: Path) -> dict[str, Any]:
    """Return the figures of all pairs of one job."""
    trips, few = folder / "trips.csv", folder / "few.csv"
    written(few, 10)
    written(trips, rows)
    results = {limits: folder / f"{job}-{limits}.csv" for limits in (False, True)}
    begun = statistics.median(spent(job, few, folder / "few-out.csv", limits=False) for _ in range(3))
    took: dict[bool, list[float]] = {False: [], True: []}
    for number in range(pairs):
        for limits in (False, True) if number % 2 else (True, False):
            took[limits].append(spent(job, trips, results[limits], limits=limits) - begun)
    assert results[False].read_bytes() == results[True].read_bytes(), "limits have changed the result"
    ratios = [with_them / without for with_them, without in zip(took[True], took[False], strict=True)]
    return {
        "job": job,
        "rows": rows,
        "seconds_without": [round(seconds, 3) for seconds in took[False]],
        "seconds_with": [round(seconds, 3) for seconds in took[True]],
        "ratio": round(statistics.median(ratios), 3),
        "ratio_of_least": round(min(took[True]) / min(took[False]), 3),
        "load": os.getloadavg()[0],
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--job", choices=tuple(JOBS), action="append", help="may be repeated; all without it")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        for job in given.job or JOBS:
            figures = compared(job, given.rows, given.pairs, Path(name))
            text = (
                f"{job}: with limits {figures['ratio']} times as much CPU (least of each {figures['ratio_of_least']})"
            )
            print(json.dumps(figures) if given.output == "json" else text, flush=True)


if __name__ == "__main__":
    main()
