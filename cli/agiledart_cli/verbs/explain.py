"""`agiledart explain scaling`: how many instances each stage of an application should have, and why."""

from collections.abc import Mapping
from typing import Any

import click

from agiledart_cli.control_client import connect
from agiledart_cli.options import agent_options
from agiledart_cli.output import WATCH, count, output_option, paint, print_json, print_table
from agiledart_kernel.text import harmless_document
from agiledart_node.wire.commands import ExplainScaling


@click.group(short_help="Why the mesh does, or would do, what it does.")
def explain() -> None:
    """Why the mesh does, or would do, what it does.

    \b
    Example:
      agiledart explain scaling frequent-routes
    """


@explain.command(short_help="How many instances each stage should have, and why.")
@click.argument("name")
@click.argument("stage", required=False, default="")
@agent_options
@output_option
def scaling(name: str, stage: str, agent: str | None, identity: str | None, output: str) -> None:
    """How many instances each stage of an application should have, by the measures of the last five seconds, and why.

    This is advice: nothing changes a running stage yet. OFFERED is what the sources have for a stage, taken or not;
    CAN is what it can do; F is the one as a share of the other with what waits, 1 is just enough.

    \b
    Example:
      agiledart explain scaling frequent-routes
      agiledart explain scaling frequent-routes route-frequency -o json
    """
    with connect(agent, identity) as client:
        body = client.ask(ExplainScaling(name, stage))
    if output == "json":
        print_json(body)
    else:
        print_scaling(harmless_document(body))


def print_scaling(body: Mapping[str, Any]) -> None:
    """A line for each stage, and a sentence for each that has something to say."""
    heads = ["stage", "×", "limits", "offered/s", "waiting", "can/s", "busy", "blocked", "f", "needed"]
    print_table(heads, [_line(stage) for stage in body["stages"]], heads[1:])
    for stage in body["stages"]:
        if stage["void"]:
            click.echo(paint(f" {stage['name']}: {stage['void']}", WATCH))
        elif stage["why"]:
            click.echo(f" {stage['name']}: {stage['why']}")
    if silent := body["silent_nodes"]:
        click.echo(paint(f" no figures from {', '.join(silent)}", WATCH))


def _line(stage: Mapping[str, Any]) -> list[Any]:
    low, high = stage["limits"]
    limits = f"{low}..{high}" if stage["scales"] else str(high)
    figures = stage["measures"]
    return [
        *(stage["name"], stage["instances"], limits),
        *(_whole(figures["offered"]), _whole(figures["backlog"]), _whole(figures["capacity"])),
        *(_share(figures["busy"]), _share(figures["blocked"])),
        "" if stage["f"] is None else f"{stage['f']:.2f}",
        "" if stage["needed"] is None else stage["needed"],
    ]


def _whole(number: float | None) -> str:
    return "" if number is None else count(round(number))


def _share(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"
