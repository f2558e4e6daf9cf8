"""`agiledart audit`: show who requested what from which agent."""

import time
from datetime import timedelta
from typing import Any

import click

from agiledart_cli.errors import FAILED
from agiledart_cli.options import agent_options
from agiledart_cli.output import BAD, GOOD, count, output_option, plural, print_json, print_message, print_table, when
from agiledart_cli.verb_connection import connect
from agiledart_cli.verbs.access.join_tokens import time_span
from agiledart_control.control_client import ControlClient
from agiledart_kernel.text import harmless_document
from agiledart_node.wire.commands import Audit

MAX_ANSWERS = 1_000
"""Greatest number of responses for one output; all agents together keep fewer lines than these hold."""


@click.command(short_help="Show who requested what, from where, and whether it was permitted.")
@click.option(
    "--since",
    "span",
    callback=time_span,
    metavar="SPAN",
    default=None,
    help="Only entries newer than this: 30m, 24h, 7d.",
)
@click.option("--requester", default="", metavar="KEY", help="Only requests of this key or role; a prefix is enough.")
@click.option("--app", "application", default="", metavar="APP", help="Only requests about this application.")
@click.option("--verify", is_flag=True, help="Show no lines; report for each agent whether its audit trail is intact.")
@agent_options
@output_option
def audit(
    span: timedelta | None,
    requester: str,
    application: str,
    verify: bool,
    agent: str | None,
    identity: str | None,
    output: str,
) -> int:
    """Show who requested what from which agent, from where, and whether it was permitted. For admins.

    \b
    Example:
      agiledart audit --since 24h --app taxi
      agiledart audit --requester 6d0b… -o json
      agiledart audit --verify

    Each agent records the requests that it received: commands that change something, and all refused requests. A hash chain
    links its lines, so the command always reports altered and removed lines; the exit code is then 1. The agent deletes the
    oldest lines when its limit is reached.
    """
    since_ms = 0 if span is None else max(0, int((time.time() - span.total_seconds()) * 1_000))
    with connect(agent, identity) as client:
        response = _ask(client, Audit(since_ms, requester, application, {}, verify=True), wants_rows=not verify)
    if output == "json":
        print_json(response)
    else:
        _print(harmless_document(response), verify)
    return FAILED if any(node["faults"] for node in response["nodes"]) else 0


def _ask(client: ControlClient, command: Audit, *, wants_rows: bool) -> dict[str, Any]:
    """Return the responses of all agents as one document."""
    response: dict[str, Any] = client.ask(command)
    if not wants_rows:
        return {**response, "rows": []}
    rows, part = list(response["rows"]), response
    for _ in range(MAX_ANSWERS):
        if not any(node["has_more"] for node in part["nodes"]):
            break
        after = {node["node_id"]: node["after"] for node in part["nodes"]}
        part = client.ask(Audit(command.since_ms, command.requester, command.application, after))
        rows += part["rows"]
    rows.sort(key=lambda row: (row["at_ms"], row["node"], row["number"]))
    return {**response, "rows": rows}


def _print(response: dict[str, Any], verify: bool) -> None:
    if verify:
        for node in response["nodes"]:
            if not node["faults"]:
                print_message(f"{node['node']}: {plural(node['kept'], 'line')}, intact", colour=GOOD)
    elif not response["rows"]:
        click.echo("No entry matches.")
    else:
        print_table(
            ["when", "node", "requester", "action", "application", "outcome"],
            [_cells(row) for row in response["rows"]],
            cuts=(2, 4, 1, 3),
            notes=[_note(row) for row in response["rows"]],
        )
    for node in response["nodes"]:
        for fault in node["faults"]:
            print_message(f"{node['node']}: {fault}.", colour=BAD)
    if response["silent_nodes"]:
        print_message(f"No answer from {', '.join(response['silent_nodes'])}: their lines are missing.", colour=BAD)


def _cells(row: dict[str, Any]) -> list[str]:
    outcome = "failed" if row["outcome"] else "done"
    return [
        when(row["at_ms"]),
        row["node"],
        row["requester"],
        row["action"],
        row["application"],
        outcome if row["allowed"] else f"refused: {row['reason']}",
    ]


def _note(row: dict[str, Any]) -> str:
    """Return what a line adds to its columns."""
    parts = [row["outcome"]] if row["outcome"] else []
    if row["details"]:
        parts.append(row["details"])
    if row["suppressed"]:
        parts.append(f"({count(row['suppressed'])} similar requests before)")
    return "; ".join([*parts, f"from {row['origin']}"])
