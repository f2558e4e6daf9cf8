"""`agiledart tap`: show a live sample of the rows that leave a step."""

import csv
import io
import json
import re
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import click

from agiledart_cli.errors import FAILED
from agiledart_cli.known_names import APPLICATION, STEP
from agiledart_cli.options import agent_options
from agiledart_cli.output import BAD, count, per_second, print_message
from agiledart_cli.verb_connection import connect
from agiledart_control.control_client import ControlClient
from agiledart_control.polling import FINAL_STATES, tap_responses
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.text import harmless
from agiledart_node.wire.commands import Status

RATE_SECONDS = 1.0

_C1 = re.compile("[\x7f-\x9f]")
"""Control characters that JSON allows unescaped and some terminals interpret."""


@click.command(short_help="Show a live sample of the rows that leave a step.")
@click.argument("name", type=APPLICATION)
@click.argument("step", type=STEP)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="End after so many rows (with --rate: lines).")
@click.option("--rate", is_flag=True, help="Show the number of rows a second instead of the rows.")
@agent_options
@click.option(
    "-o",
    "--output",
    type=click.Choice(["json", "table", "csv"]),
    default="json",
    show_default=True,
    help="json: an object a line; table: text; csv: time, node, instance, then the fields of the row.",
)
def tap(
    name: str, step: str, limit: int | None, rate: bool, agent: str | None, identity: str | None, output: str
) -> int:
    """Show a live sample of the rows that leave a step, from all nodes that run it.

    \b
    Example:
      agiledart tap frequent-routes count
      agiledart tap frequent-routes count --limit 5 -o table
      agiledart tap frequent-routes trips --rate

    Shows at most 50 rows a second of each instance, and shortens long rows. The application never waits for a tap, and samples
    nothing without one. For a sink: the rows that it wrote. Ends with Ctrl-C, with the application, or at --limit.
    """
    with connect(agent, identity) as client:
        if rate:
            return _rates(client, name, step, limit, output)
        return _rows(client, name, step, limit, output)


def _rows(client: ControlClient, name: str, step: str, limit: int | None, output: str) -> int:
    show = {"json": _show_json, "table": _show_line, "csv": _show_csv}[output]
    shown, silent = 0, ""
    response: Any = {}
    for response in tap_responses(client.ask, name, step):
        for row in response["rows"]:
            show(row)
            shown += 1
            if limit is not None and shown >= limit:
                return 0
        if response["rows"]:
            sys.stdout.flush()
        if (missing := ", ".join(response["silent_nodes"])) != silent:
            silent = missing
            if missing:
                print_message(f"No answer from {missing}: their rows are missing.", colour=BAD)
    return _ended(name, response["state"], shown)


def _ended(name: str, state: str, shown: int) -> int:
    if not shown:
        print_message(f"{name} has ended ({state}): no rows to show.")
        return FAILED
    print_message(f"{name} is {state}.")
    return FAILED if state == "failed" else 0


def time_text(time_ms: int | None) -> str:
    """Return an event time in UTC; the number itself when it is outside the calendar, a dash for rows without one."""
    if time_ms is None:
        return "-"
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"


def _show_json(row: Mapping[str, Any]) -> None:
    time = None if row["time_ms"] is None else time_text(row["time_ms"])
    line = {"time": time, "node": row["node"], "instance": row["instance"], "row": row["row"]}
    text = json.dumps(line, ensure_ascii=False)
    click.echo(_C1.sub(lambda match: f"\\u{ord(match.group()):04x}", text))


def _show_line(row: Mapping[str, Any]) -> None:
    fields = row["row"]
    text = (
        "  ".join(f"{name}={_cell(value)}" for name, value in fields.items())
        if isinstance(fields, dict)
        else _cell(fields)
    )
    click.echo(f"{time_text(row['time_ms'])}  {row['node']}.{row['instance']}  {harmless(text)}")


def _show_csv(row: Mapping[str, Any]) -> None:
    fields = row["row"]
    values = list(fields.values()) if isinstance(fields, dict) else fields if isinstance(fields, list) else [fields]
    line = io.StringIO()
    cells = [time_text(row["time_ms"]), row["node"], row["instance"], *[_cell(value) for value in values]]
    csv.writer(line, lineterminator="").writerow(cells)
    click.echo(harmless(line.getvalue()) if sys.stdout.isatty() else line.getvalue())


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _rates(client: ControlClient, name: str, step: str, limit: int | None, output: str) -> int:
    """Print a line each second with the rate of the step, from the figures of its instances."""
    response = client.ask(Status(name))
    known = [word for stage in response["stages"] for word in stage["name"].split("+")]
    if known and step not in known:
        from agiledart_node.context.node_context import did_you_mean

        raise ConfigurationError(f"{name} has no step {step!r}.{did_you_mean(step, known)} Steps: {', '.join(known)}")
    before, at, lines = _left(response, step), time.monotonic(), 0
    while response["state"] not in FINAL_STATES:
        time.sleep(RATE_SECONDS)
        response, now = client.ask(Status(name)), time.monotonic()
        total = _left(response, step)
        value = max(0, total - before) / (now - at)
        before, at, lines = total, now, lines + 1
        if output == "json":
            click.echo(json.dumps({"step": step, "rows_per_second": round(value, 3), "rows": total}))
        elif output == "csv":
            click.echo(f"{step},{value:.3f},{total}")
        else:
            click.echo(f"{step}  {per_second(value)}  {count(total)} rows")
        sys.stdout.flush()
        if limit is not None and lines >= limit:
            return 0
    return _ended(name, response["state"], lines)


def _left(response: Mapping[str, Any], step: str) -> int:
    """Return how many rows have left a step so far."""
    return int((response.get("summary") or {}).get("steps", {}).get(step, {}).get("rows_out", 0))
