"""Experiment `query-latency`: latency of the queries of figure 9 on real agents, by the rate of the input.

Taxi trips come from a file that is paced by its event times, so that windows hold the same trips at every rate. A result's latency
is the time from reading the trip that caused it to writing the result: the query's own column `delay`. The first results of each
run are left out, while code is imported and windows are empty. The results are compared with a run in one process by a digest.
"""

import csv
import hashlib
import importlib
import time
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Final

from agiledart_examples.taxi_trips import generate
from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings
from agiledart_experiments.throwaway_mesh import ThrowawayMesh, throwaway_mesh
from agiledart_kernel.errors import ConfigurationError, OperationFailed

APPS: Final = {"frequent-routes": "frequent_routes", "profitable-areas": "profitable_areas"}
RATES: Final = {"small": (500,), "paper": (500, 1_000, 2_000, 4_000)}
SECONDS: Final = {"small": 6, "paper": 60}
WARM: Final = 0.25
"""Share of the results, the first ones, that is left out."""

SUSTAINED: Final = 0.95
"""Share of the offered rate that counts as sustained."""

TINY_TRIPS: Final = 20
"""Trips of a run that measures how long an application takes to start and end."""


def run(settings: Settings) -> ExperimentReport:
    """Run each query at each rate, one after the other, on a mesh of three agents."""
    seconds = SECONDS[settings.scale]
    rates = settings.sizes_or(RATES[settings.scale])
    apps = _chosen(settings.apps)
    rows: list[Row] = []
    with throwaway_mesh(3) as mesh:
        tiny = mesh.folder / "trips.csv"
        _write_trips(tiny, TINY_TRIPS, 1, settings.seed)
        settings.progress("the time of a start is measured")
        overhead = _submit(mesh, apps[0], "start", tiny, 1e6)
        for rate in rates:
            trips = mesh.folder / f"trips-{rate}.csv"
            speed = _write_trips(trips, rate * seconds, seconds, settings.seed)
            for app in apps:
                settings.progress(f"{app} at {rate}/s")
                rows.append(_measure(mesh, app, rate, seconds, trips, speed, overhead))
    goals = [
        Goal(f"{row['app']} at {row['rate']}/s: results equal those of one process", row["is_equal"]) for row in rows
    ]
    notes = (
        "latency: from reading a trip to writing the result that it causes, on this machine's clock",
        "sustained: the run took at most 1/0.95 of the time of its input, without the time of a start, which is measured before",
        "cpu_s: CPU of executors and agents during the run, a proxy of energy",
    )
    parameters = {"seconds": seconds, "rates": rates, "warm": WARM, "apps": apps, "agents": 3}
    return ExperimentReport(parameters, tuple(rows), tuple(goals), notes)


def _chosen(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the applications to run; all without names. Raises `ConfigurationError` for an unknown name."""
    for name in names:
        if name not in APPS:
            raise ConfigurationError(f"query-latency has no application {name!r}; it has {', '.join(APPS)}")
    return names or tuple(APPS)


def _write_trips(file: Path, count: int, seconds: int, seed: int) -> float:
    """Write trips; return the speed at which they last for `seconds`."""
    lines = list(generate(seed, count))
    file.write_text("\n".join(lines) + "\n")
    first, last = (datetime.fromisoformat(line.split(",")[3]) for line in (lines[0], lines[-1]))
    return max(1.0, (last - first).total_seconds() / seconds)


def _submit(mesh: ThrowawayMesh, app: str, name: str, trips: Path, speed: float) -> float:
    """Run an application to its end; return how many seconds that took."""
    began = time.monotonic()
    answer = mesh.ask(
        *("submit", f"agiledart_examples.debs2015:{APPS[app]}", "--name", name, "--wait"),
        *("--set", f"trips=csv:{trips}?speed={speed:.3f}@a1", "--set", f"report=csv:{mesh.folder / name}.csv@a3"),
        *("--delivery", "at-most-once"),
    )
    if answer["state"] != "finished":
        raise OperationFailed(f"{name} is {answer['state']}: {answer.get('reason', '')}")
    return time.monotonic() - began


def _measure(mesh: ThrowawayMesh, app: str, rate: int, seconds: int, trips: Path, speed: float, overhead: float) -> Row:
    """Run a query at a rate; return its figures."""
    name = f"{app}-{rate}"
    results = mesh.folder / f"{name}.csv"
    before = mesh.cpu_seconds()
    took = _submit(mesh, app, name, trips, speed)
    lines = list(csv.reader(results.read_text().splitlines()))
    delays = sorted(float(line[-1]) for line in lines[int(len(lines) * WARM) :])
    if not delays:
        raise OperationFailed(f"{name} gave no results: its input is too short")
    return {
        "app": app,
        "rate": rate,
        "p50_ms": quantile(delays, 0.50),
        "p95_ms": quantile(delays, 0.95),
        "p99_ms": quantile(delays, 0.99),
        "results": len(lines),
        "seconds": round(took - overhead, 2),
        "sustained": took - overhead <= seconds / SUSTAINED,
        "cpu_s": round(mesh.cpu_seconds() - before, 2),
        "digest": digest(line[:-1] for line in lines),
        "is_equal": digest(line[:-1] for line in lines) == _reference_digest(app, trips, mesh.folder),
    }


def quantile(ordered: list[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed."""
    place = max(0, -(-int(len(ordered) * share * 1_000_000) // 1_000_000) - 1)
    return ordered[min(place, len(ordered) - 1)]


def digest(rows: Iterable[list[str]]) -> str:
    """Return a digest of rows in their order."""
    whole = hashlib.sha256()
    for row in rows:
        whole.update(("\x1f".join(row) + "\n").encode())
    return whole.hexdigest()[:16]


def _reference_digest(app: str, trips: Path, folder: Path) -> str:
    """Return the digest of the results of the same query in this process."""
    from agiledart import csv as csv_connector
    from agiledart_executor.local_runs.local_run import run_topology

    builder = vars(importlib.import_module("agiledart_examples.debs2015"))[APPS[app]]
    file = folder / f"reference-{app}.csv"
    file.unlink(missing_ok=True)
    run_topology(builder(csv_connector(str(trips)), csv_connector(str(file))))
    return digest(line[:-1] for line in csv.reader(file.read_text().splitlines()))
