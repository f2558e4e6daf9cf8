"""`agiledart provision status`: gates, their leases and costs, and whether applications keep their service levels."""

import contextlib
import json
import time
from collections.abc import Mapping
from typing import Any

import click

from agiledart_cli.options import agent_options
from agiledart_cli.output import (
    BAD,
    GOOD,
    WATCH,
    duration,
    output_option,
    paint,
    print_json,
    print_message,
    print_table,
)
from agiledart_cli.verb_connection import connect
from agiledart_cli.verbs.compliance_lines import service_level_lines
from agiledart_control.control_client import ControlClient
from agiledart_control.errors import CommandRefusedError
from agiledart_kernel.text import harmless_document
from agiledart_node.wire.commands import ListApplications, Status
from agiledart_node.wire.lease_messages import ShowProvisioning

MAX_SHARES = 8
"""Applications whose share of the cost is shown."""

MAX_APPLICATIONS = 50
"""Running applications whose service levels are looked at."""


@click.command(short_help="Show gates, leased machines, costs and decisions.")
@agent_options
@output_option
def status(agent: str | None, identity: str | None, output: str) -> int:
    """Show all gates of the network: leased machines, until when they are paid, the cost of today, what is left, and decisions.
    Then the running applications with a service level, and the shares of their rows that kept it.

    \b
    Example:
      agiledart provision status
      agiledart provision status -o json
    """
    with connect(agent, identity) as client:
        answer = client.ask(ShowProvisioning())
        answer["service_levels"] = _service_levels(client)
    unreadable = [row for row in answer["gates"] if not _is_readable(row)]
    answer["gates"] = [row for row in answer["gates"] if row not in unreadable]
    for row in answer["gates"]:
        row["report"] = json.loads(row["report"])
    if output == "json":
        print_json(answer)
        return 0
    answer = harmless_document(answer)
    if not answer["gates"] and not unreadable:
        print_message("No gate reports. Start one:  agiledart provision run --example gate.toml")
    for row in answer["gates"]:
        _print_gate(row)
    for name, rows in answer["service_levels"].items():
        click.echo(f"service levels of {name}:")
        for line in service_level_lines(rows):
            click.echo(f"  {line}")
    for row in harmless_document(unreadable):
        what = "is not readable here: it has another version"
        print_message(f"The report of gate {row['gate']} beside {row['agent']} {what}.", colour=WATCH)
    if answer["silent_nodes"]:
        print_message(f"No answer from {', '.join(answer['silent_nodes'])}.", colour=WATCH)
    return 0


def _is_readable(row: Mapping[str, Any]) -> bool:
    import msgspec

    from agiledart_cli.gate.gate_report import GateStatus

    with contextlib.suppress(msgspec.MsgspecError):
        msgspec.json.decode(row["report"], type=GateStatus)
        return True
    return False


def _service_levels(client: ControlClient) -> dict[str, list[dict[str, Any]]]:
    """Return application → compliance of its steps, of running applications that have service levels."""
    names = [row["name"] for row in client.ask(ListApplications())["applications"] if row["state"] == "running"]
    levels: dict[str, list[dict[str, Any]]] = {}
    for name in sorted(names)[:MAX_APPLICATIONS]:
        with contextlib.suppress(CommandRefusedError):  # it has just ended, or belongs to another user
            levels[name] = client.ask(Status(name))["summary"].get("service_levels", [])
    return {name: rows for name, rows in levels.items() if rows}


def _print_gate(row: dict[str, Any]) -> None:
    report, now = row["report"], time.time()
    zone = f", zone {row['zone']}" if row["zone"] else ""
    paused = ", paused" if report["is_paused"] else ""
    left = report["max_spend"] - report["spent"]
    click.echo(
        f"gate {row['gate']} beside {row['agent']}{zone}: {report['mode']}{paused}; {report['provider']} {report['offer']} at "
        f"{report['price']:g} for {duration(report['unit_s'])}; seen {duration(row['age_s'])} ago"
    )
    if report["fault"]:
        click.echo(paint(f"  {report['fault']}", BAD))
    if report["max_spend"]:
        click.echo(f"  today {report['spent']:g} of {report['max_spend']:g}, {left:g} left; in all {report['cost']:g}")
    if shares := report.get("by_application"):
        click.echo(
            f"  by application: {', '.join(f'{name} {cost:g}' for name, cost in list(shares.items())[:MAX_SHARES])}"
        )
    if report["demand"]:
        click.echo(paint(f"  demand: {report['demand']}", WATCH))
    print_table(
        ["LEASE", "STATE", "NODE", "PAID FOR", "UNITS", "COST", "WHY"],
        [
            [
                lease["lease_id"],
                paint(lease["state"], GOOD if lease["state"] == "joined" else WATCH),
                lease["node"] or "-",
                duration(max(0.0, lease["paid_until_s"] - now)) if lease["state"] not in ("ended", "failed") else "-",
                lease["units"],
                f"{lease['cost']:g}",
                lease["why"],
            ]
            for lease in report["leases"][:20]
        ],
        right=["UNITS", "COST"],
    )
    for line in report["last"][-5:]:
        what = " ".join(filter(None, (line["action"], line["lease_id"])))
        click.echo(f"  {duration(max(0.0, now - line['at_s']))} ago: {what}: {line['why']}")
