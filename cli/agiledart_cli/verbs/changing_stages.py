"""Verbs that change applications while their rows flow: `scale`, `move`, `drain`."""

from collections.abc import Mapping
from typing import Any

import click

from agiledart_cli.known_names import APPLICATION, NODE, STAGE
from agiledart_cli.options import agent_options
from agiledart_cli.output import GOOD, output_option, print_json, print_message
from agiledart_cli.verb_connection import connect
from agiledart_cli.verbs.wait_reporter import of_application, of_node, waits_reported
from agiledart_kernel.text import harmless_document
from agiledart_node.wire.commands import AUTO_NODE, DrainNode, MoveStage, ScaleStage

CHANGE_SECONDS = 180.0
"""Timeout of a change; the agent completes, drops or rolls it back earlier by itself."""

NO_WAIT = click.option("--no-wait", is_flag=True, help="Return once the change has started.")


@click.command(short_help="Change the number of instances of a stage while rows flow.")
@click.argument("name", metavar="APP", type=APPLICATION)
@click.argument("stage", type=STAGE)
@click.argument("number", metavar="N|auto")
@NO_WAIT
@agent_options
@output_option
def scale(
    name: str, stage: str, number: str, no_wait: bool, agent: str | None, identity: str | None, output: str
) -> None:
    """Give a stage of an application N instances while its rows flow. No row is lost, duplicated or reordered.

    `auto` turns on autoscaling for a stage with limits, until you give it a number.

    \b
    Example:
      agiledart scale frequent-routes route-frequency 3
      agiledart scale frequent-routes route-frequency 1 --no-wait
      agiledart scale frequent-routes route-frequency auto

    Waits until the change is complete. Exit code 1 when it was dropped or rolled back; the application then runs as before.
    The application needs delivery="exactly-once" or "at-least-once"; N must lie within the limits of --parallelism STAGE=1..8.
    """
    is_auto = number == "auto"
    if not is_auto and not number.lstrip("-").isdecimal():
        raise click.BadParameter(f"{number!r} is neither a number nor auto", param_hint="N|auto")
    wanted = 0 if is_auto else int(number)
    with connect(agent, identity) as client, waits_reported(agent, identity, of_application(name)):
        command = ScaleStage(name, stage, wanted, not no_wait, is_auto)
        response = client.ask(command, on_progress=lambda text: print_message(f"  {text}"), timeout=CHANGE_SECONDS)
    if is_auto and output != "json":
        print_message(f"Autoscaling of {stage} of {name} is on.", colour=GOOD)
    else:
        _print(response, output, f"{stage} of {name} already has {number} instances: nothing to do.")


@click.command(short_help="Move a stage, or one instance of it, to another node while rows flow.")
@click.argument("name", metavar="APP", type=APPLICATION)
@click.argument("stage", metavar="STAGE[.N]", type=STAGE)
@click.argument("node", metavar="NODE|auto", type=NODE)
@NO_WAIT
@agent_options
@output_option
def move(name: str, stage: str, node: str, no_wait: bool, agent: str | None, identity: str | None, output: str) -> None:
    """Move a stage of an application, or its instance N, to another node while its rows flow, with its state.

    \b
    Example:
      agiledart move frequent-routes route-frequency pi2
      agiledart move frequent-routes route-frequency.0 pi2
      agiledart move frequent-routes route-frequency auto

    A stage that you have moved stays there, until `auto` lets it move by itself again ([placement] moves of the agents).
    Waits until the change is complete. Exit code 1 when it was dropped or rolled back; the application then runs as before.
    """
    with connect(agent, identity) as client, waits_reported(agent, identity, of_application(name)):
        command = MoveStage(name, stage, node, not no_wait)
        response = client.ask(command, on_progress=lambda text: print_message(f"  {text}"), timeout=CHANGE_SECONDS)
    if node == AUTO_NODE and output != "json":
        print_message(f"{stage} of {name} may move by itself again.", colour=GOOD)
    else:
        _print(response, output, f"{stage} of {name} already runs on {node}: nothing to do.")


@click.command(short_help="Move all work off a node; it then leaves the ring, or stays without work.")
@click.argument("node", type=NODE)
@click.option("--stay", is_flag=True, help="The node stays in the ring, without work, and accepts none.")
@click.option(
    "--undo", is_flag=True, help="The node accepts work again. Work that moved away does not return by itself."
)
@agent_options
@output_option
def drain(node: str, stay: bool, undo: bool, agent: str | None, identity: str | None, output: str) -> None:
    """Move all work of a node, with its state, to other nodes while rows flow; the node then leaves the ring and its agent ends.

    \b
    Example:
      agiledart drain pi2                 (before you take the machine away)
      agiledart drain pi2 --stay          (before maintenance; its agent keeps running)
      agiledart drain pi2 --undo          (it accepts work again; so does a restarted agent)

    Applications move one after the other. If one of them cannot move, nothing starts: a source, sink or step is bound to the
    node, or the application lacks delivery="exactly-once" or "at-least-once"; the answer names it and says what helps. Sources
    and sinks with on_source_lost="move" and on_sink_lost="move" move last, and read again from the last committed checkpoint.
    Exit code 1 when no node has free capacity: the node then accepts work again, and work that has moved stays where it is.
    """
    if stay and undo:
        raise click.UsageError("--undo makes the node accept work, --stay makes it accept none: give only one of them.")
    with connect(agent, identity) as client, waits_reported(agent, identity, of_node(node)):
        command = DrainNode(node, stay, undo)
        response = client.ask(command, on_progress=lambda text: print_message(f"  {text}"), timeout=CHANGE_SECONDS)
    if output == "json":
        print_json(response)
        return
    shown = harmless_document(response)
    name, state = shown["node"], shown["state"]
    gone = f"; moved away: {', '.join(row['name'] for row in shown['applications'])}" if shown["applications"] else ""
    texts = {
        "left": f"{name} has left the ring{gone}.",
        "leaving": f"{name} has no work and leaves the ring{gone}.",
        "drained": f"{name} has no work{gone}. It accepts none until agiledart drain {name} --undo.",
        "serving": f"{name} accepts work.",
    }
    already = " It already did." if state == "serving" else " It was already so."
    print_message(f"{texts[state]}{already if shown['is_unchanged'] else ''}", colour=GOOD)


def _print(response: Mapping[str, Any], output: str, already: str) -> None:
    if output == "json":
        print_json(response)
        return
    shown = harmless_document(response)
    if shown["is_unchanged"]:
        print_message(already, colour=GOOD)
    elif not shown["changes"]:
        print_message(f"{shown['name']}: the change has started.", colour=GOOD)
    for change in shown["changes"]:
        summary = f"{change['stage']} of {shown['name']}: {change['from']} \u2192 {change['to']}"
        if change["state"] == "running":
            print_message(f"{summary}, started.", colour=GOOD)
        else:
            groups = f"{change['moved_groups']} key groups moved to other nodes"
            print_message(f"{summary}, done in {change['seconds']:.1f} s, {groups}.", colour=GOOD)
