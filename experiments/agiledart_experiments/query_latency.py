"""Experiment `query-latency`: latency of the applications of figure 9 on real agents, by the rate of the input.

Lines are sent over TCP at a rate, each at its time. A result's latency is the time from the moment at which the line that caused
it was due to the moment at which the result stood in the sink's file. A line that the engine does not take in time is late from
then on. The first results of each run are left out, while code is compiled and windows are empty. The results are compared with
those of one process by a digest. With `beside="storm"` Apache Storm gets the same lines at the same times, in turns.
"""

import contextlib
import hashlib
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from statistics import median
from typing import Final

from agiledart_experiments.process_figures import cpu_seconds, pss_mb
from agiledart_experiments.queries.compared_application import (
    APPLICATIONS,
    Cells,
    ComparedApplication,
    cells_of,
    city_metadata,
)
from agiledart_experiments.queries.growing_results import GrowingResults
from agiledart_experiments.queries.query_engines import STORM_WORKERS, MeshEngine, QueryEngine, StormEngine
from agiledart_experiments.queries.timed_sender import TimedSender
from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings
from agiledart_experiments.throwaway_mesh import throwaway_mesh
from agiledart_kernel.errors import ConfigurationError, OperationFailed

RATES: Final = {"small": (500,), "paper": (500, 1_000, 2_000, 4_000)}
SECONDS: Final = {"small": 6, "paper": 60}
SECONDS_BESIDE: Final = {"small": 20, "paper": 24}
"""Length of a run beside another engine, whose virtual machine first has to compile its code."""

PAIRS: Final = {"small": 2, "paper": 8}
AGENTS: Final = 3
WARM: Final = 0.4
"""Share of the input, its beginning, whose results are left out."""

SUSTAINED: Final = 0.95
"""Share of the offered rate that counts as sustained."""

HIGH_LOAD: Final = 0.6
"""Share of what Storm sustains from which the load counts as medium to high."""

GIVE_UP: Final = 3.0
"""Time that results may take, in lengths of the input, before a run is given up."""

PUBLISHED: Final = (0.167, 0.527)
"""Latency below that of Storm at medium to high load, as the paper prints it."""

_STORM: Final = "storm"


@dataclass(frozen=True, slots=True)
class Run:
    """Input and expected results of one application at one rate.

    Attributes:
        lines: of the input.
        metadata: file of the sensors of the ETL.
        expected: results of one process.
        folder: for results.
    """

    application: ComparedApplication
    rate: int
    seconds: int
    lines: Sequence[str]
    metadata: Path
    expected: Sequence[Cells]
    folder: Path


def run(settings: Settings) -> ExperimentReport:
    """Run each application at each rate, one after the other, on a mesh of three agents, and in turns on the other engine."""
    if settings.beside not in ("", _STORM):
        raise ConfigurationError(f"query-latency runs beside storm, not beside {settings.beside}")
    apps = _chosen(settings.apps)
    rates = settings.sizes_or(RATES[settings.scale])
    seconds = (SECONDS_BESIDE if settings.beside else SECONDS)[settings.scale]
    pairs = (settings.runs or PAIRS[settings.scale]) if settings.beside else 1
    rows: list[Row] = []
    with contextlib.ExitStack() as stack:
        mesh = stack.enter_context(throwaway_mesh(AGENTS))
        engines: list[QueryEngine] = [MeshEngine(mesh)]
        if settings.beside:
            engines.append(_storm(stack, mesh.folder / _STORM, settings))
        metadata = mesh.folder / "metadata.txt"
        metadata.write_text("\n".join(city_metadata(settings.seed)) + "\n")
        for app in apps:
            for rate in rates:
                lines = app.lines(settings.seed, rate * seconds)
                expected = app.canonical(app.reference(lines, metadata, mesh.folder))
                setup = Run(app, rate, seconds, lines, metadata, expected, mesh.folder)
                for pair in range(pairs):
                    for engine in engines if pair % 2 == 0 else reversed(engines):
                        settings.progress(f"{app.name} at {rate}/s on {engine.name}, run {pair + 1} of {pairs}")
                        rows.append({**_measure(engine, setup, pair), "load": round(os.getloadavg()[0], 2)})
    parameters = {
        "seconds": seconds,
        "rates": rates,
        "warm": WARM,
        "apps": [app.name for app in apps],
        "agents": AGENTS,
        "pairs": pairs,
    }
    return ExperimentReport(
        parameters, tuple(rows), _goals(rows), (*_NOTES, *sustained_rates(rows), *comparisons(rows))
    )


_NOTES: Final = (
    "latency: from the time at which a line was due to the time at which its result stood in the sink's file",
    "sustained: all results came, the last within 1/0.95 of the time of the input",
    "cpu_s: CPU of all processes of the engine while the input lasted, a proxy of energy; pss_mb: their memory at its end",
    f"Storm: {STORM_WORKERS} workers, no acknowledgements, the serial collector; one task for each step, as in AgileDART's runs",
    "EdgeWise is not compared: it is published as source only, a fork of Storm 1.1.0 (github.com/XinweiFu/EdgeWise-ATC-19)",
)


def _chosen(names: tuple[str, ...]) -> list[ComparedApplication]:
    """Return the applications to run; all without names. Raises `ConfigurationError` for an unknown name."""
    for name in names:
        if name not in APPLICATIONS:
            raise ConfigurationError(f"query-latency has no application {name!r}; it has {', '.join(APPLICATIONS)}")
    return [APPLICATIONS[name] for name in names or APPLICATIONS]


def _storm(stack: contextlib.ExitStack, folder: Path, settings: Settings) -> StormEngine:
    """Start Storm; it ends with the stack."""
    from agiledart_experiments.storm.storm_cluster import storm_cluster
    from agiledart_experiments.storm.storm_installation import storm_installation

    installation = storm_installation(settings.progress)
    settings.progress("Storm is started")
    return StormEngine(stack.enter_context(storm_cluster(folder, installation)))


def _measure(engine: QueryEngine, setup: Run, pair: int) -> Row:
    """Run an application on an engine; return its figures."""
    app = setup.application
    name = f"{app.name}-{setup.rate}-{pair}"
    file = setup.folder / f"{name}-{engine.name}.csv"
    sender, results = TimedSender(setup.lines, setup.rate), GrowingResults(file)
    try:
        engine.start(app, name, sender.port, file, setup.metadata)
        with sender.accept() as connection:
            _wait_for_workers(engine.workers_s)
            before = cpu_seconds(engine.processes())
            sender.send(connection, GIVE_UP * setup.seconds)
            results.wait_for(len(setup.expected), GIVE_UP * setup.seconds)
            processes = engine.processes()
            cpu, memory = cpu_seconds(processes) - before, pss_mb(processes)
            engine.stop(name)
    finally:
        results.close()
        sender.close()
    return {
        "app": app.name,
        "rate": setup.rate,
        "engine": engine.name,
        "pair": pair,
        **_latencies(sender, setup, cells_of(results.text), results.times),
        "cpu_s": round(cpu, 2),
        "pss_mb": round(memory, 1),
    }


def _wait_for_workers(seconds: float) -> None:
    """Wait until workers of other processes have opened their connections, of which no engine gives notice."""
    time.sleep(seconds)


def _latencies(sender: TimedSender, setup: Run, results: list[Cells], times: list[float]) -> Row:
    """Return quantiles of the latencies, and whether the results are those of one process."""
    app, count = setup.application, len(setup.expected)
    results, times = results[:count], times[:count]
    if not results:
        raise OperationFailed(f"{app.name} at {setup.rate}/s gave no results")
    has_delay = len(results[0]) > len(setup.expected[0])
    canonical = app.canonical(results, has_delay=has_delay)
    is_equal = canonical == list(setup.expected)
    causes = app.causes(setup.lines, results)
    first = int(len(setup.lines) * WARM)
    late = [(at - sender.due(cause)) * 1e3 for at, cause in zip(times, causes, strict=True) if cause >= first]
    if not late:
        raise OperationFailed(f"{app.name} at {setup.rate}/s gave no results after its warm-up: its input is too short")
    delays = sorted(late)
    took = max(times) - sender.began
    return {
        "p50_ms": round(quantile(delays, 0.50), 3),
        "p95_ms": round(quantile(delays, 0.95), 3),
        "p99_ms": round(quantile(delays, 0.99), 3),
        "results": len(results),
        "seconds": round(took, 2),
        "sustained": is_equal and took <= setup.seconds / SUSTAINED,
        "digest": digest(canonical),
        "is_equal": is_equal,
        "difference": None if is_equal else _first_difference(canonical, setup.expected),
    }


def _first_difference(results: Sequence[Cells], expected: Sequence[Cells]) -> str:
    """Return the first result that is not the expected one, beside that."""
    for place, (result, wanted) in enumerate(zip(results, expected, strict=False)):
        if result != wanted:
            return f"result {place} is {','.join(result)}, not {','.join(wanted)}"
    return f"there are {len(results)} results, not {len(expected)}"


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


def _goals(rows: Sequence[Row]) -> tuple[Goal, ...]:
    """Return a goal for each application, rate and engine: results equal to those of one process."""
    runs = dict.fromkeys((row["app"], row["rate"], row["engine"]) for row in rows)
    return tuple(
        Goal(
            f"{app} at {rate}/s on {engine}: results equal those of one process",
            all(row["is_equal"] for row in rows if (row["app"], row["rate"], row["engine"]) == (app, rate, engine)),
        )
        for app, rate, engine in runs
    )


def sustained_rates(rows: Sequence[Row]) -> list[str]:
    """Return a sentence for each application: up to which of the tested rates each engine sustained the rate in all its runs.

    A rate counts only when all tested rates below it were sustained as well.
    """
    texts = []
    for app in dict.fromkeys(row["app"] for row in rows):
        rates = sorted({row["rate"] for row in rows if row["app"] == app})
        sustained: dict[str, int] = {}
        for engine in dict.fromkeys(row["engine"] for row in rows if row["app"] == app):
            runs = {rate: [row for row in rows if (row["app"], row["engine"], row["rate"]) == (app, engine, rate)]
                    for rate in rates}  # fmt: skip
            below = takewhile(lambda rate, runs=runs: all(row["sustained"] for row in runs[rate]), rates)  # type: ignore[misc]
            sustained[engine] = max(below, default=0)
        shown = ", ".join(f"{engine} {rate:,}/s" if rate else f"{engine} none" for engine, rate in sustained.items())
        if other := sustained.get(_STORM):
            high = [rate for rate in rates if rate >= HIGH_LOAD * other]
            shown += (
                f"; medium to high load, from {HIGH_LOAD:.0%} of Storm's: {', '.join(f'{rate:,}/s' for rate in high)}"
            )
        texts.append(f"{app}: sustained in all runs, of {', '.join(f'{rate:,}' for rate in rates)}/s: {shown}")
    return texts


def comparisons(rows: Sequence[Row]) -> list[str]:
    """Return a sentence for each application and rate that two engines ran: medians of p50 and p99, and their difference."""
    texts = []
    for app, rate in dict.fromkeys((row["app"], row["rate"]) for row in rows):
        of = {
            engine: {
                name: median(
                    row[name] for row in rows if (row["app"], row["rate"], row["engine"]) == (app, rate, engine)
                )
                for name in ("p50_ms", "p99_ms", "cpu_s", "pss_mb")
            }
            for engine in dict.fromkeys(row["engine"] for row in rows if (row["app"], row["rate"]) == (app, rate))
        }
        if _STORM not in of:
            continue
        ours, other = of["agiledart"], of[_STORM]
        less = 1 - ours["p50_ms"] / other["p50_ms"]
        texts.append(
            f"{app} at {rate}/s: p50 {ours['p50_ms']:.2f} ms, Storm {other['p50_ms']:.2f} ms, {less:.1%} less (published: "
            f"{PUBLISHED[0]:.1%} to {PUBLISHED[1]:.1%} at medium to high load); "
            f"p99 {ours['p99_ms']:.2f} and {other['p99_ms']:.2f} ms; CPU {ours['cpu_s']:.1f} and {other['cpu_s']:.1f} s; "
            f"memory {ours['pss_mb']:.0f} and {other['pss_mb']:.0f} MB"
        )
    return texts
