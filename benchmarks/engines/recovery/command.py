"""`kill -9` of a host of 64 MB of keyed state, ours and Flink (DataStream API in Java) alternately on this machine.

    python -m benchmarks.engines.recovery [--rounds 5] [--engines ours,flink] [--scale small] [--seed 1] [-o json]

In each round every engine has one turn, in an order that is drawn: its processes are started, every key comes once, a checkpoint
with the whole state is awaited, one host of state is killed at a random moment between two checkpoints, its host is started again
as a spare, the job is stopped, and the rows at the sink are compared with a plain loop's.
"""

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Final

from agiledart_kernel.errors import AgileDartError
from agiledart_kernel.randomness import RandomStream
from benchmarks.engines import setup
from benchmarks.engines.catalogue import chosen
from benchmarks.engines.pairing import shuffled
from benchmarks.engines.recovery import flink_run, our_run, report
from benchmarks.engines.recovery.failure_runs import FailureRun, PrintLine, RecoveryLoad, load_of
from benchmarks.engines.recovery.flink_cluster import DEFAULTS, TUNED

RunTurn = Callable[[int, RecoveryLoad, RandomStream, PrintLine], FailureRun]

FORMS: Final[Mapping[str, Mapping[str, str]]] = {"flink-tuned": TUNED, "flink-defaults": DEFAULTS}
ENGINES: Final[Mapping[str, RunTurn]] = {
    report.OURS: our_run.turn,
    **{name: partial(flink_run.turn, name, settings) for name, settings in FORMS.items()},
}


def _print_line(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def arguments() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.engines.recovery",
        description="kill -9 of a host of keyed state, ours beside Flink: seconds to the next result, rows repeated, CPU.",
    )
    parser.add_argument(
        "--rounds", type=int, default=5, help="a turn of each engine, that is one kill, in each (default 5)"
    )
    parser.add_argument(
        "--engines", default="", help=f"of {', '.join(ENGINES)}, or beginnings of them; all when left out"
    )
    parser.add_argument(
        "--scale",
        choices=("small", "paper"),
        default="paper",
        help="small: 1 MB and 2 s; paper: 64 MB and 10 s (default)",
    )
    parser.add_argument("--seed", type=int, default=1, help="of orders, moments and hosts")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    return parser


def main(words: list[str] | None = None) -> int:
    """Return 0 when all goals are met, 1 when a goal is missed, 2 when nothing could be compared, 130 when interrupted."""
    parser = arguments()
    given = parser.parse_args(words)
    if given.rounds < 1:
        parser.error("--rounds: at least 1")
    try:
        names = chosen(given.engines, tuple(ENGINES))
    except ValueError as error:
        parser.error(f"--engines: {error}")
    if any(name in FORMS for name in names):
        try:
            setup.prepare("flink")
        except setup.MissingError as error:
            _print_line(f"Flink cannot take part: {error}. Install it, or measure ours alone with --engines ours.")
            return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that all processes are ended
    load, runs, failed = load_of(given.scale), list[FailureRun](), list[str]()
    interrupted = False
    began = time.time()
    try:
        for number in range(given.rounds):
            for name in shuffled(names, given.seed, number):
                _one(name, number, load, given.seed, runs, failed)
    except KeyboardInterrupt:
        interrupted = True
        _print_line("interrupted; results so far:")
    about = {
        "seed": given.seed,
        "cores": os.cpu_count(),
        "seconds": round(time.time() - began),
        "flink": {
            "version": setup.ENVIRONMENTS["flink"][0],
            **{name: dict(settings) for name, settings in FORMS.items()},
        },
    }
    if runs:
        print(
            json.dumps(report.as_json(load, about, runs, failed), indent=1)
            if given.output == "json"
            else report.as_text(runs, failed)
        )
    if interrupted:
        return 130
    if not runs:
        return 2
    return 0 if not failed and all(goal.met for goal in report.evaluated(runs)) else 1


def _one(name: str, number: int, load: RecoveryLoad, seed: int, runs: list[FailureRun], failed: list[str]) -> None:
    """Carry out a turn; report a failed one and leave it out. In a round all engines wait equally long from loading to failure."""
    print_line = partial(_print_progress, number, name)
    print_line("starts")
    try:
        runs.append(ENGINES[name](number, load, RandomStream(seed, f"recovery-{number}"), print_line))
    except AgileDartError as error:
        failed.append(f"round {number + 1}, {name}: {error}")
        print_line(f"failed: {error}")
    else:
        print_line(json.dumps(asdict(runs[-1])))


def _print_progress(number: int, name: str, text: str) -> None:
    _print_line(f"round {number + 1}, {name}: {text}")
