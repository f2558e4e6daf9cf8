"""`agiledart run`: run a topology in this process, for development and for small jobs."""

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from agiledart_cli.builder_names import BUILDER
from agiledart_cli.errors import FAILED, INTERRUPTED
from agiledart_cli.options import parallelism_by_step, parallelism_option, parse_parallelism, set_option
from agiledart_cli.output import count, duration, milliseconds, output_option, per_second, print_json, print_message
from agiledart_cli.signals import unwound_by_signals
from agiledart_cli.verbs.application_view import malformed_text
from agiledart_control.targets import load_target

if TYPE_CHECKING:
    from agiledart_dataflow.counts.statistics import Summary
    from agiledart_executor.local_runs.local_run import LocalRun


@click.command()
@click.argument("target", metavar="FILE:NAME", type=BUILDER)
@set_option
@parallelism_option
@click.option("--seed", type=int, default=None, help="Run the steps in a random order from this seed (for tests).")
@click.option("-q", "--quiet", is_flag=True, help="Print no progress and no figures at the end; only errors.")
@output_option
def run(
    target: str, settings: tuple[str, ...], parallelism: tuple[str, ...], seed: int | None, quiet: bool, output: str
) -> int:
    """Run a topology here, in one process, without a mesh.

    \b
    Example:
      agiledart run taxi.py:frequent_routes --set trips=csv:trips.csv.gz
      agiledart run agiledart_examples.debs2015:frequent_routes \\
          --set "trips=taxi:?count=1000" --set report=stdout:

    FILE:NAME is a Python file (or a dotted module) and the function in it that returns a Topology; its parameters are
    set with --set. Sources and sinks are written KIND:PATH?OPTION=VALUE. The same command with `submit` runs it on the
    mesh; here breakpoints work and @NODE is ignored. Ctrl-C ends the run. Its figures go to stderr at the end, or to
    stdout as JSON with -o json. Exit code 1 when all records of a source were malformed.
    """
    from agiledart_executor.local_runs.local_run import run_topology
    from agiledart_executor.user_code.parameter import parse_settings
    from agiledart_executor.user_code.user_builder import build

    topology = build(load_target(target), parse_settings(settings))
    chosen = parallelism_by_step(topology.specification(), parse_parallelism(parallelism))
    with unwound_by_signals(), ProgressLine(is_quiet=quiet) as progress:
        done = run_topology(
            topology, parallelism=chosen, schedule_seed=seed, on_progress=progress.show, on_log=progress.print_message
        )
    if output == "json":
        print_json(document(topology.name, done))
    elif not quiet:
        report(topology.name, done)
    for source in done.useless_sources:
        print_message(
            f"{source}: all records were malformed; the messages above show what is wrong with the first of them"
        )
    return INTERRUPTED if done.interrupted else FAILED if done.useless_sources else 0


class ProgressLine:
    """Progress line on stderr that is overwritten during a run, on terminals only. A context manager.

    Args:
        is_quiet: show no progress.
    """

    def __init__(self, *, is_quiet: bool = False) -> None:
        self._on = not is_quiet and sys.stderr is not None and sys.stderr.isatty()
        self._began = time.monotonic()
        self._has_printed = False

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(self, *_: object) -> None:
        if self._has_printed:
            click.echo("\r\x1b[K", nl=False, err=True)

    def show(self, summary: "Summary") -> None:
        """Print the counts so far."""
        if self._on:
            self._has_printed = True
            rate = summary.records_in / max(time.monotonic() - self._began, 1e-9)
            text = f"read {count(summary.records_in)} ({per_second(rate)})   results {count(results_of(summary))}"
            click.echo(f"\r\x1b[K {text}", nl=False, err=True)

    def print_message(self, text: str) -> None:
        """Print lines above the progress line."""
        if self._has_printed:
            click.echo("\r\x1b[K", nl=False, err=True)
        print_message(text)


def results_of(summary: "Summary") -> int:
    """Return how many rows all sinks have written."""
    return sum(summary.results.values())


def document(name: str, done: "LocalRun") -> dict[str, Any]:
    """Return the JSON object of `agiledart run -o json`."""
    import msgspec

    summary = msgspec.to_builtins(done.summary)
    summary["steps"] = {step: counts.by_public_name() for step, counts in done.summary.steps.items()}
    summary["latency_ms"] = summary.pop("latency")
    return {
        "name": name,
        **summary,
        "wall_seconds": round(done.wall_seconds, 3),
        "interrupted": done.interrupted,
    }


def report(name: str, done: "LocalRun") -> None:
    """Print the figures of a run on stderr; stdout belongs to the topology's sinks."""
    summary = done.summary
    rate = summary.records_in / done.wall_seconds if done.wall_seconds else 0.0
    how = "interrupted after" if done.interrupted else "done in"
    print_message(f"{name}: {how} {duration(done.wall_seconds)}, read {count(summary.records_in)} ({per_second(rate)})")
    if summary.malformed:
        print_message(f"  malformed: {malformed_text(summary.malformed)}")
    if summary.late:
        print_message(f"  late: {count(summary.late)}")
    if summary.shed:
        print_message(f"  shed: {', '.join(f'{number:,} {reason}' for reason, number in summary.shed.items())}")
    for step, counts in summary.steps.items():
        others = (
            (counts.dropped, "dropped"),
            (counts.skipped, "skipped after errors"),
            (counts.dead_letters, "dead letters"),
            (counts.failed, "results not made"),
            (counts.late, "late"),
            (counts.rejected, "rejected"),
        )
        rest = "".join(f", {count(number)} {text}" for number, text in others if number)
        print_message(f"  {step}: {count(counts.rows_in)} in, {count(counts.rows_out)} out{rest}")
    for sink, latency in summary.latency.items():
        kind = "latency" if summary.paced else "backlog (not paced)"
        figures = ", ".join(
            f"{p} {milliseconds(value)}"
            for p, value in (("p50", latency.p50), ("p95", latency.p95), ("p99", latency.p99))
        )
        print_message(f"  {sink}: {kind} {figures}")
