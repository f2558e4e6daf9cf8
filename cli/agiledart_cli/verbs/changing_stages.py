"""Verbs that change applications while their rows flow: `scale`, `move`, `drain`."""

from collections.abc import Mapping
from typing import Any

import click

from agiledart_cli.control_client import connect
from agiledart_cli.options import agent_options
from agiledart_cli.output import GOOD, output_option, print_json, print_message
from agiledart_kernel.text import harmless_document
from agiledart_node.wire.commands import DrainNode, MoveStage, ScaleStage

CHANGE_SECONDS = 180.0
"""For a change to be done, let go or rolled back; the agent gives up by itself before."""

NO_WAIT = click.option("--no-wait", is_flag=True, help="Come back when it is under way.")


@click.command(short_help="Give a stage more or fewer instances while rows flow.")
@click.argument("name", metavar="APP")
@click.argument("stage")
@click.argument("number", metavar="N|auto")
@NO_WAIT
@agent_options
@output_option
def scale(
    name: str, stage: str, number: str, no_wait: bool, agent: str | None, identity: str | None, output: str
) -> None:
    """Give a stage of an application N instances while its rows flow. No row is lost, doubled or reordered.

    `auto` has a stage with limits scale by itself, until you give it a number.

    \b
    Example:
      agiledart scale frequent-routes route-frequency 3
      agiledart scale frequent-routes route-frequency 1 --no-wait
      agiledart scale frequent-routes route-frequency auto

    Waits until it is done. Exit code 1 when it was let go or rolled back; what the application had is then as it was.
    The application must have delivery="exactly-once"; the stage may have what --parallelism STAGE=1..8 allowed.
    """
    is_auto = number == "auto"
    if not is_auto and not number.lstrip("-").isdecimal():
        raise click.BadParameter(f"{number!r} is neither a number nor auto", param_hint="N|auto")
    wanted = 0 if is_auto else int(number)
    with connect(agent, identity) as client:
        command = ScaleStage(name, stage, wanted, not no_wait, is_auto)
        response = client.ask(command, on_progress=lambda text: print_message(f"  {text}"), timeout=CHANGE_SECONDS)
    if is_auto and output != "json":
        print_message(f"{stage} of {name} scales by itself.", colour=GOOD)
    else:
        _print(response, output, f"{stage} of {name} has {number} already: nothing was begun.")


@click.command(short_help="Have a stage, or one instance of it, run on another node while rows flow.")
@click.argument("name", metavar="APP")
@click.argument("stage", metavar="STAGE[.N]")
@click.argument("node")
@NO_WAIT
@agent_options
@output_option
def move(name: str, stage: str, node: str, no_wait: bool, agent: str | None, identity: str | None, output: str) -> None:
    """Have a stage of an application, or its instance N, run on another node while its rows flow, with its state.

    \b
    Example:
      agiledart move frequent-routes route-frequency pi2
      agiledart move frequent-routes route-frequency.0 pi2

    Waits until it is done. Exit code 1 when it was let go or rolled back; what the application had is then as it was.
    """
    with connect(agent, identity) as client:
        command = MoveStage(name, stage, node, not no_wait)
        response = client.ask(command, on_progress=lambda text: print_message(f"  {text}"), timeout=CHANGE_SECONDS)
    _print(response, output, f"{stage} of {name} runs on {node} already: nothing was begun.")


@click.command(short_help="Empty a node while rows flow; it leaves the ring, or stays without work.")
@click.argument("node")
@click.option("--stay", is_flag=True, help="It stays in the ring, emptied, and takes nothing.")
@click.option("--undo", is_flag=True, help="It takes work again. What has left does not come back by itself.")
@agent_options
@output_option
def drain(node: str, stay: bool, undo: bool, agent: str | None, identity: str | None, output: str) -> None:
    """Have other nodes run what a node runs, with its state, while rows flow; then it leaves the ring, and its agent ends.

    \b
    Example:
      agiledart drain pi2                 (before it is taken away)
      agiledart drain pi2 --stay          (before work on it; its agent runs on)
      agiledart drain pi2 --undo          (it takes work again; so does an agent that is started anew)

    Applications leave one after the other. Nothing is begun when one of them can't: a source, sink or step that is bound to the
    node, or an application without delivery="exactly-once"; the answer says which, and what helps. Sources and sinks with
    on_source_lost="move" and on_sink_lost="move" go last, and read again from the last committed epoch. Exit code 1 when something
    finds no room: the node takes work again then, and what has left stays away.
    """
    if stay and undo:
        raise click.UsageError("--undo has it take work again, and --stay has it take none: give one of them.")
    with connect(agent, identity) as client:
        command = DrainNode(node, stay, undo)
        response = client.ask(command, on_progress=lambda text: print_message(f"  {text}"), timeout=CHANGE_SECONDS)
    if output == "json":
        print_json(response)
        return
    shown = harmless_document(response)
    name, state = shown["node"], shown["state"]
    gone = f", without {', '.join(row['name'] for row in shown['applications'])}" if shown["applications"] else ""
    told = {
        "left": f"{name} has left the ring{gone}.",
        "leaving": f"{name} is empty and leaves the ring{gone}.",
        "drained": f"{name} is empty{gone}, and takes nothing until agiledart drain {name} --undo.",
        "serving": f"{name} takes work.",
    }
    already = " It did already." if state == "serving" else " It was so already."
    print_message(f"{told[state]}{already if shown['is_unchanged'] else ''}", colour=GOOD)


def _print(response: Mapping[str, Any], output: str, already: str) -> None:
    if output == "json":
        print_json(response)
        return
    shown = harmless_document(response)
    if shown["is_unchanged"]:
        print_message(already, colour=GOOD)
    elif not shown["changes"]:
        print_message(f"{shown['name']}: it is under way.", colour=GOOD)
    for change in shown["changes"]:
        what = f"{change['stage']} of {shown['name']}: {change['from']} \u2192 {change['to']}"
        if change["state"] == "running":
            print_message(f"{what}, under way.", colour=GOOD)
        else:
            groups = f"{change['moved_groups']} key groups to other nodes"
            print_message(f"{what}, done in {change['seconds']:.1f} s, {groups}.", colour=GOOD)
