"""`agiledart run`: a topology in this process, for development and for small jobs."""

import time
from typing import Any

import click

from agiledart_cli.options import parallelism_option, parse_parallelism, set_option
from agiledart_cli.output import count, duration, output_option, print_json, say


@click.command()
@click.argument("target", metavar="FILE:NAME")
@set_option
@parallelism_option
@click.option("--seed", type=int, default=None, help="Run the steps in a random order made from this seed (for tests).")
@output_option
def run(target: str, settings: tuple[str, ...], parallelism: tuple[str, ...], seed: int | None, output: str) -> None:
    """Run a topology here, in one process, without a mesh.

    \b
    Example:
      agiledart run taxi.py:frequent_routes --set trips=csv:trips.csv.gz
      agiledart run agiledart_examples.debs2015:frequent_routes \\
          --set "trips=taxi:?count=1000" --set report=stdout:

    FILE:NAME is a Python file (or a dotted module) and the function in it that returns a Topology; its parameters are
    set with --set. Sources and sinks are written KIND:PATH?OPTION=VALUE. The same command with `submit` runs it on the
    mesh; here breakpoints work and @NODE is ignored. Ctrl-C ends it. Figures go to stderr when it is done, or to
    stdout as JSON with -o json.
    """
    from agiledart_executor.local import run_topology
    from agiledart_executor.user_code import build, load_builder
    from agiledart_executor.user_parameters import parse_settings

    topology = build(load_builder(target), parse_settings(settings))
    began = time.monotonic()
    result = run_topology(topology, parallelism=parse_parallelism(parallelism), schedule_seed=seed)
    report(result, time.monotonic() - began, output)


def report(result: Any, seconds: float, output: str) -> None:
    """Print what a run did."""
    raise NotImplementedError
