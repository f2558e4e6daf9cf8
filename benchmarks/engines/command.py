"""The comparison with other engines.

python -m benchmarks.engines [--jobs j1,zone,vehicle,j3] [--engines ours,numpy,…] [--rounds 5] [--size 500000] [--output FILE]
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from benchmarks.engines import catalogue, report, setup
from benchmarks.engines.latency import CARRIERS, LatencyEngine, LatencyFigures, LatencyRounds
from benchmarks.engines.running import adopt
from benchmarks.engines.throughput import JobFigures, Throughput

MIN_ROUNDS = 5
LATENCY_ROUNDS = 8
RATES = {"j3": (1_000, 10_000), "saturated": (0,)}

E = TypeVar("E", catalogue.ComparedEngine, LatencyEngine)


def _print_line(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def arguments() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engines", description=__doc__)
    parser.add_argument("--jobs", default="", help="of j1, zone, vehicle, j3, saturated; all when left out")
    parser.add_argument("--engines", default="", help="beginnings of names, separated by commas; all when left out")
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS, help="of J1 and J2")
    parser.add_argument("--size", type=int, default=500_000, help="tuples of a plain engine's large run")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the order within rounds")
    parser.add_argument("--output", type=Path, help="a file for everything as JSON")
    parser.add_argument("--latency-rounds", type=int, default=LATENCY_ROUNDS, help="of J3")
    parser.add_argument("--seconds", type=float, default=8.0, help="of J3, after two that are left out")
    parser.add_argument("--first", action="store_true", help="let J3 come before other work on this machine (root)")
    parser.add_argument("--nice", action="store_true", help="stand back behind other work on this machine")
    return parser


def usable(engines: Sequence[E]) -> list[E]:
    """Return the engines whose environment is available; print why the others are not."""
    missing: dict[str, str] = {}
    for environment in sorted({engine.environment for engine in engines} - {""}):
        try:
            setup.prepare(environment)
        except setup.MissingError as error:
            missing[environment] = str(error)
            _print_line(f"left out: {error}")
    return [engine for engine in engines if engine.environment not in missing]


def main() -> int:
    """Run the comparison; return 0 when it ran, whatever its result."""
    parser = arguments()
    given = parser.parse_args()
    try:
        jobs = catalogue.chosen(given.jobs, (*catalogue.JOBS, *RATES))
        engines = [engine for engine in catalogue.ENGINES if not set(jobs).isdisjoint(engine.jobs)]
        carriers = [carrier for carrier in CARRIERS if not set(jobs).isdisjoint(RATES)]
        known_names = [engine.name for engine in engines] + [carrier.name for carrier in carriers]
        names = catalogue.chosen(given.engines, tuple(known_names))
    except ValueError as error:
        parser.error(str(error))
    if given.nice:
        os.nice(19)
    adopt()
    engines = usable([engine for engine in engines if engine.name in names])
    measured: dict[str, JobFigures] = {}
    latencies: list[LatencyFigures] = []
    for job in [job for job in jobs if job in catalogue.JOBS]:
        _print_line(catalogue.HEADINGS[job])
        throughput = Throughput(job, engines, given.size, given.seed, _print_line)
        measured[job] = throughput.figures
        for number in range(given.rounds):
            throughput.round(number)
        print(report.throughput_table(throughput.figures), end="\n\n", flush=True)
    carriers = usable([carrier for carrier in carriers if carrier.name in names])
    for rate in [rate for job in jobs for rate in RATES.get(job, ())]:
        rounds = LatencyRounds(rate, given.seconds, carriers, given.seed, _print_line)
        if given.first:
            rounds.come_first()
        for number in range(given.latency_rounds if rate else given.rounds):
            rounds.round(number)
        latencies.append(rounds.figures)
        print(report.latency_table(rounds.figures), end="\n\n", flush=True)
    print(report.goal_table(measured, latencies))
    if given.output:
        about = {"rounds": given.rounds, "latency_rounds": given.latency_rounds, "size": given.size, "seed": given.seed}
        given.output.write_text(report.as_json(about, measured, latencies) + "\n")
        _print_line(f"written: {given.output}")
    return 0
