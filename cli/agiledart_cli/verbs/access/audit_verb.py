"""`agiledart audit`: who wanted what of which agent."""

import time
from datetime import timedelta
from typing import Any

import click

from agiledart_cli.control_client import ControlClient, connect
from agiledart_cli.errors import FAILED
from agiledart_cli.options import agent_options
from agiledart_cli.output import BAD, GOOD, count, output_option, plural, print_json, print_message, print_table, when
from agiledart_cli.verbs.access.join_tokens import time_span
from agiledart_kernel.text import harmless_document
from agiledart_node.wire.commands import Audit

MAX_ANSWERS = 1_000
"""Asked for one output; every agent together keeps no more than that."""


@click.command(short_help="Who wanted what, whence, and whether it was allowed.")
@click.option(
    "--since", "span", callback=time_span, metavar="SPAN", default=None, help="Not what was longer ago: 30m, 24h, 7d."
)
@click.option("--requester", default="", metavar="KEY", help="Only requests of this key or role; a prefix is enough.")
@click.option("--app", "application", default="", metavar="APP", help="Only what was about this application.")
@click.option("--verify", is_flag=True, help="Show no lines; say of each agent whether its lines are whole.")
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
    """Who wanted what of which agent, whence, and whether it was allowed. For admins.

    \b
    Example:
      agiledart audit --since 24h --app taxi
      agiledart audit --requester 6d0b… -o json
      agiledart audit --verify

    Each agent keeps what it was asked itself: orders (what changes something), and whatever it refused. Its lines hang together
    by hashes, so altered and removed ones are told, always; the exit code is 1 then. The oldest go when there are too many.
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
    """All answers as one."""
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
                print_message(f"{node['node']}: {plural(node['kept'], 'line')}, whole", colour=GOOD)
    elif not response["rows"]:
        click.echo("Nobody wanted anything of that kind.")
    else:
        print_table(
            ["when", "node", "requester", "action", "application", "allowed", "origin", ""], [_cells(row) for row in response["rows"]]
        )
    for node in response["nodes"]:
        for fault in node["faults"]:
            print_message(f"{node['node']}: {fault}.", colour=BAD)
    if response["silent_nodes"]:
        print_message(f"No answer from {', '.join(response['silent_nodes'])}: their lines are not here.", colour=BAD)


def _cells(row: dict[str, Any]) -> list[str]:
    said = [row["details"]] if row["details"] else []
    if row["allowed"] and row["outcome"]:
        said.append(f"but: {row['outcome']}")
    if row["suppressed"]:
        said.append(f"({count(row['suppressed'])} more before)")
    return [
        when(row["at_ms"]),
        row["node"],
        row["requester"],
        row["action"],
        row["application"],
        "yes" if row["allowed"] else f"no: {row['reason']}",
        row["origin"],
        " ".join(said),
    ]
