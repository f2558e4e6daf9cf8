"""The comparison with other engines.

python -m benchmarks.engines [--jobs j1,zone,vehicle,j3] [--engines ours,numpy,…] [--rounds 5] [--size 500000] [--output FILE]
"""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.engines import catalogue, report, setup
from benchmarks.engines.running import adopt
from benchmarks.engines.throughput import JobFigures, Throughput

MIN_ROUNDS = 5


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def arguments() -> argparse.ArgumentParser:
    """What may be said."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engines", description=__doc__)
    parser.add_argument("--jobs", default="", help="of j1, zone, vehicle, j3, saturated; all when left out")
    parser.add_argument("--engines", default="", help="beginnings of names, separated by commas; all when left out")
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS, help="of J1 and J2")
    parser.add_argument("--size", type=int, default=500_000, help="tuples of a plain engine's large run")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the order within rounds")
    parser.add_argument("--output", type=Path, help="a file for everything as JSON")
    parser.add_argument("--nice", action="store_true", help="stand back behind other work on this machine")
    return parser


def usable(engines: list[catalogue.Engine]) -> list[catalogue.Engine]:
    """Those whose environment can be had; says why the others cannot."""
    missing: dict[str, str] = {}
    for environment in sorted({engine.environment for engine in engines} - {""}):
        try:
            setup.prepare(environment)
        except setup.MissingError as error:
            missing[environment] = str(error)
            _say(f"left out: {error}")
    return [engine for engine in engines if engine.environment not in missing]


def main() -> int:
    """Run the comparison; 0 when it ran, whatever it found."""
    parser = arguments()
    given = parser.parse_args()
    try:
        jobs = catalogue.chosen(given.jobs, (*catalogue.JOBS,))
        names = catalogue.chosen(given.engines, tuple(engine.name for engine in catalogue.ENGINES))
    except ValueError as error:
        parser.error(str(error))
    if given.nice:
        os.nice(19)
    adopt()
    engines = usable([engine for engine in catalogue.ENGINES if engine.name in names])
    measured: dict[str, JobFigures] = {}
    latencies: list[dict[str, Any]] = []
    for job in jobs:
        _say(catalogue.TITLES[job])
        throughput = Throughput(job, engines, given.size, given.seed, _say)
        measured[job] = throughput.figures
        for number in range(given.rounds):
            throughput.round(number)
        print(report.throughput_table(throughput.figures), end="\n\n", flush=True)
    print(report.goal_table(measured))
    if given.output:
        about = {"rounds": given.rounds, "size": given.size, "seed": given.seed}
        given.output.write_text(report.as_json(about, measured, latencies) + "\n")
        _say(f"written: {given.output}")
    return 0
