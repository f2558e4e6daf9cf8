"""`agiledart simulate`: run the simulator for one seed, a range of seeds, or a time."""

import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agiledart_cli.output import BAD, GOOD, output_option, paint, print_json, print_message, print_table
from agiledart_kernel.version import VERSION

if TYPE_CHECKING:
    from agiledart_simulation.runs.campaign import Campaign
    from agiledart_simulation.runs.run_report import RunReport
    from agiledart_simulation.runs.scenario import Scenario

_HELP = {
    "nodes": "Nodes at the start.",
    "id_bits": "Length of ids: 8, 16, 32, 64 or 128.",
    "leaf_count": "Size of a leaf set.",
    "steps": "Number of faults.",
    "step_ms": "Longest time between two faults.",
    "kinds": "Kinds of faults, separated by commas.",
    "loss": "Probability that a message is lost.",
    "duplicate": "Probability that a message arrives twice.",
    "reorder": "Probability that a message overtakes others.",
    "burst": "Probability that a burst of losses begins.",
    "spike": "Probability that a message is very late.",
    "spike_ms": "Greatest delay of such a message.",
    "host_rate": "Bytes a second of a node, in and out; 0: no limit.",
    "drift_ppm": "Greatest drift of clocks.",
    "zones": "Groups of nodes with short latencies; 0: none.",
    "max_down": "Most nodes down or cut off at one time.",
    "max_pause_ms": "Longest sleep of a node.",
    "seeds_each": "Number of peers that a starting node knows.",
    "preset": "Figures of the overlay: lan, wan or simulation.  [default: wan with --latency, else lan]",
    "permanent": "Fault that persists at the end: none, dead, mute, deaf, oneway, stutter or flap.",
    "queue": "Order of simultaneous events: heap or wheel.",
    "quiet_s": "Seconds after the last fault in which the ring must recover.",
    "link_ms": "Longest delay of a message; 0: a quiet local network.",
    "cluster": "Greatest distance between most ids; 0: anywhere.",
}
"""Options of a scenario and their help; an absent option is drawn from the seed."""

_FLOATS = ("loss", "duplicate", "reorder", "burst", "spike")
_TEXTS = ("kinds", "preset", "permanent", "queue")


def _scenario_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for name, text in reversed(_HELP.items()):
        kind = click.FloatRange(0, 1) if name in _FLOATS else str if name in _TEXTS else click.IntRange(min=0)
        command = click.option(f"--{name.replace('_', '-')}", name, type=kind, help=text)(command)
    return command


@click.command(short_help="Run a simulated ring with faults, repeatable from a seed.")
@click.argument("scenario", default="swarm", metavar="[SCENARIO]")
@click.option("--seed", type=click.IntRange(min=0), help="Run this seed.  [default: 1]")
@click.option("--seeds", metavar="A-B", help="Run these seeds, one after the other.")
@click.option("--minutes", type=click.FloatRange(min=0), help="Run seeds from --seed on for this time.")
@click.option(
    "--most-nodes",
    type=click.IntRange(min=3),
    default=25,
    show_default=True,
    help="Greatest drawn number of nodes.",
)
@click.option("--latency", "latency_file", metavar="FILE", help="Measured round trips between the nodes.")
@click.option("--list", "lists", is_flag=True, help="List the scenarios.")
@click.option("--keep", metavar="FILE", help="Also write the JSON document to a file.")
@_scenario_options
@output_option
def simulate(
    scenario: str,
    seed: int | None,
    seeds: str | None,
    minutes: float | None,
    most_nodes: int,
    latency_file: str | None,
    lists: bool,
    keep: str | None,
    output: str,
    **options: Any,
) -> int:
    """Run a simulated ring of the agents' own code with faults, then check that it has recovered.

    The seed determines all values that no option fixes, and the command prints them; the same seed and options give the same
    run, event for event, on every machine. Exit code 1 when a check failed; the command then prints how to replay the run.

    \b
    Example:
      agiledart simulate --list
      agiledart simulate swarm --seed 7
      agiledart simulate partitions --seeds 1-100 -o json
      agiledart simulate swarm --minutes 40 --keep night.json
      agiledart simulate crashes --seed 3 --nodes 100 --leaf-count 24
      agiledart simulate weather --latency pings.csv.gz --loss 0.05
    """
    from agiledart_simulation.runs.campaign import Campaign
    from agiledart_simulation.world.latency_models import load

    if lists:
        return _list(output)
    fixed: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if "kinds" in fixed:
        words = [word for word in fixed["kinds"].split(",") if word and word != "none"]
        fixed["kinds"] = tuple(words)
    places = None if latency_file is None else load(Path(latency_file))
    if places is not None:
        fixed = {"preset": "wan", "quiet_s": 180, **fixed}
    campaign = Campaign(scenario, most_nodes, fixed, None if places is None else places.fresh)
    numbers = _numbers(seed, seeds, minutes)
    began = time.process_time()
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    is_one = seeds is None and minutes is None

    def continue_after(drawn: "Scenario", report: "RunReport") -> bool:
        if report.violations or is_one:
            _print_run(drawn, report)
        elif len(campaign.runs) % 20 == 0:
            print_message(f"{len(campaign.runs)} runs, {len(campaign.failed)} failed, seed {drawn.seed}")
        return deadline is None or time.monotonic() < deadline

    try:
        campaign.run(numbers, continue_after)
    except KeyboardInterrupt:
        if not campaign.runs:
            raise
        print_message(f"interrupted after {len(campaign.runs)} runs")
    document = {**_version(), "cpu_seconds": round(time.process_time() - began, 1), **campaign.to_dict()}
    if keep:
        import json

        Path(keep).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if output == "json":
        print_json(document)
    else:
        _print(campaign)
    return 1 if campaign.failed or campaign.unreached else 0


def _numbers(seed: int | None, seeds: str | None, minutes: float | None) -> Iterator[int]:
    if seeds is not None:
        first, dash, last = seeds.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise click.UsageError(f"--seeds {seeds}: one seed, or a range such as 1-100")
        return iter(range(int(first), int(last or first) + 1))
    start = 1 if seed is None else seed
    return count(start) if minutes is not None else iter((start,))


def _version() -> dict[str, str]:
    return {"version": VERSION, "python": sys.version.split()[0]}


def _list(output: str) -> int:
    from agiledart_simulation.runs.scenario import SCENARIOS

    if output == "json":
        print_json([{"name": name, "about": about, "kinds": kinds} for name, (about, kinds) in SCENARIOS.items()])
    else:
        print_table(["SCENARIO", "ABOUT"], [[name, about] for name, (about, _) in SCENARIOS.items()])
    return 0


def _print_run(scenario: "Scenario", report: "RunReport") -> None:
    """Print one run on stderr: all options, and the violations."""
    print_message(" ".join(f"{name}={value}" for name, value in scenario.options.items()))
    for line in report.violations[:10]:
        print_message(f"  {line}", colour=BAD)
    if report.violations:
        print_message(f"  replay: {scenario.command}   # digest {report.digest}, agiledart {_version()['version']}")


def _print(campaign: "Campaign") -> None:
    rows = []
    for scenario, report in campaign.runs if len(campaign.runs) <= 20 else campaign.failed:
        verdict = paint("wrong", BAD) if report.violations else paint("ok", GOOD)
        cells = [
            scenario.seed,
            scenario.nodes,
            report.events,
            f"{report.virtual_s:.0f} s",
            f"{report.quiet_ns / 1e9:.1f} s",
        ]
        rows.append([*cells, report.digest, verdict])
    if rows:
        right = ("SEED", "NODES", "EVENTS", "VIRTUAL", "QUIET AFTER")
        print_table(["SEED", "NODES", "EVENTS", "VIRTUAL", "QUIET AFTER", "DIGEST", "RESULT"], rows, right)
    if len(campaign.runs) > 1:
        faults = sum(number for kind, number in campaign.reached.items() if not kind.startswith("message-"))
        events = sum(report.events for _, report in campaign.runs)
        print_message(f"{len(campaign.runs)} runs, {len(campaign.failed)} failed, {faults} faults, {events} events.")
    if campaign.unreached:
        print_message(f"never reached: {', '.join(campaign.unreached)}", colour=BAD)
