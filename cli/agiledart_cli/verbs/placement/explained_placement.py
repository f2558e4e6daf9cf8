"""`agiledart explain placement`: the cost of an application's placement now, and the change that other hosts would bring."""

import time
from collections.abc import Mapping
from typing import Any

import click

from agiledart_cli.known_names import APPLICATION
from agiledart_cli.options import agent_options
from agiledart_cli.output import BAD, WATCH, milliseconds, output_option, paint, print_json, print_table
from agiledart_cli.verb_connection import connect
from agiledart_kernel.text import harmless_document
from agiledart_node.wire.commands import ExplainPlacement

UNITS = {"response": " ms", "traffic": "/s", "usage": "", "energy": "", "score": "", "availability": ""}


@click.command(short_help="Show what the placement costs now, and what other hosts would change.")
@click.argument("name", type=APPLICATION)
@click.option("--objective", metavar="NAME", default="", help="Metric to compare by, such as usage. Default: response.")
@agent_options
@output_option
def placement(name: str, objective: str, agent: str | None, identity: str | None, output: str) -> None:
    """Show what an application's placement costs now, and the best other hosts of each step with what they would change.

    Predicted is the longest path of measured delays and times for a row; measured is the median at the sinks, of rows that carry
    the time at which they were read. A figure is `measured`, `expected` (topology.expect) or `unknown`.

    \\b
    Example:
      agiledart explain placement frequent-routes
      agiledart explain placement frequent-routes --objective usage -o json
    """
    with connect(agent, identity) as client:
        response = client.ask(ExplainPlacement(name, objective))
    if output == "json":
        print_json(response)
    else:
        print_placement(harmless_document(response))


def print_placement(response: Mapping[str, Any]) -> None:
    """Print the judgement of a placement, a line for each stage, and lines for what may move."""
    if response["value"] is not None:
        click.echo(_headline(response))
    for text in response["violations"]:
        click.echo(paint(f" broken: {text}", BAD))
    rows = [
        [
            stage["name"],
            ",".join(dict.fromkeys(stage["nodes"])),
            _figure(stage["ms"], stage["ms_source"]),
            _figure(stage["rows_per_s"], stage["rows_source"]),
            "; ".join(stage["rules"]),
        ]
        for stage in response["stages"]
    ]
    print_table(["stage", "on", "ms a row", "rows/s", "rules"], rows, ["ms a row", "rows/s"])
    for link in response["links"]:
        click.echo(f" {link['source_node']} → {link['target_node']}: {milliseconds(link['delay_ms'])} {link['source']}")
    unit = UNITS.get(response["objective"], "")
    for movable in response["units"]:
        names = " and ".join(movable["instances"])
        others = "; ".join(_alternative(other, unit) for other in movable["alternatives"])
        click.echo(f" {names} on {movable['node']}: {others or 'no other node is known'}")
    for text in dict.fromkeys(movable["stays"] for movable in response["units"] if movable["stays"]):
        click.echo(paint(f" nothing moves while rows flow: {text}", WATCH))
    for name in response.get("placed_by_user", ()):
        command = f"agiledart move {response['name']} {name} auto"
        click.echo(f" {name}: a user has moved it, so it stays; to let it move by itself: {command}")
    for decision in response.get("decisions", ()):
        click.echo(_decision(decision))
    for note in response["notes"]:
        click.echo(paint(f" note: {note}", WATCH))
    if silent := response["silent_nodes"]:
        click.echo(paint(f" no figures from {', '.join(silent)}", WATCH))


def _headline(response: Mapping[str, Any]) -> str:
    name, unit = response["objective"], UNITS.get(response["objective"], "")
    text = f"{response['name']}: {name} {response['value']:.6g}{unit}"
    if name != "response":
        text += f", predicted response {response['predicted_ms']:.6g} ms"
    if response["measured_ms"] is None:
        return f"{text}; not measured: rows carry no time of reading"
    return f"{text}; measured {response['measured_ms']:.6g} ms (99 %: {response['measured_p99_ms']:.6g} ms)"


def _decision(decision: Mapping[str, Any]) -> str:
    at = time.strftime("%H:%M:%S", time.localtime(decision["at_ms"] / 1_000)) if decision["at_ms"] else ""
    about = f" {decision['instance']} to {decision['node']}" if decision["action"] != "nothing" else ""
    return f" {at} {decision['action']}{about}: {decision['why']}"


def _figure(value: float, source: str) -> str:
    return "" if source == "unknown" else f"{value:.4g}" if source == "measured" else f"{value:.4g} {source}"


def _alternative(other: Mapping[str, Any], unit: str) -> str:
    text = f"{other['node']} {other['change']:+.4g}{unit}"
    return f"{text} (forbidden: {'; '.join(other['forbidden'])})" if other["forbidden"] else text
