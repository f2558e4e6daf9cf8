"""`agiledart explain`: explain scaling decisions, the routes of rows between nodes, and the cost of failures."""

import time
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click
import msgspec

from agiledart_cli.failure_costs import PROMISES, with_costs
from agiledart_cli.known_names import APPLICATION, STAGE
from agiledart_cli.options import agent_options, set_option
from agiledart_cli.output import BAD, WATCH, count, duration, output_option, paint, print_json, print_table
from agiledart_cli.verb_connection import connect
from agiledart_cli.verbs.application_view import BEGUN_STATES, waiting_text
from agiledart_cli.verbs.explain_plan import explain_plan
from agiledart_cli.verbs.placement.explained_placement import placement
from agiledart_control.polling import FINAL_STATES
from agiledart_control.targets import load_target
from agiledart_dataflow.plan.delivery import Delivery
from agiledart_executor.query_files.file_kinds import is_query_file
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.text import harmless_document
from agiledart_node.wire.commands import ExplainRecovery, ExplainScaling, Status

LAST_RESORT_MS = 1e9

LEAST_SILENT_MS = 3_000
"""Silence of a source that `explain waiting` mentions, milliseconds."""

WHY = {
    "lost": "the link was lost",
    "silent": "the peer did not answer",
    "slow": "answers came late",
    "thin": "it carried fewer bytes than offered",
    "better": "it costs less",
    "direct again": "the direct route answers well again",
}

STATES = {"let-go": "dropped", "rolled-back": "rolled back"}
"""State of a change in the response → its text."""


@click.group(short_help="Explain waiting, scaling decisions, placement, routes and the cost of failures.")
def explain() -> None:
    """Explain what an application waits for, scaling decisions, its placement, routes and the cost of failures.

    \b
    Example:
      agiledart explain waiting frequent-routes
      agiledart explain plan rooms.sql
      agiledart explain scaling frequent-routes
      agiledart explain placement frequent-routes
      agiledart explain recovery frequent-routes
      agiledart explain route frequent-routes
    """


explain.add_command(explain_plan)


@explain.command(short_help="Show what a failure costs each source, sink and step.")
@click.argument("target", metavar="APP|FILE:NAME")
@set_option
@agent_options
@output_option
def recovery(target: str, settings: tuple[str, ...], agent: str | None, identity: str | None, output: str) -> None:
    """Show what a failure costs each source, sink and step of an application, and what its code must not do.

    APP is a submitted application. FILE:NAME is a topology; this command only builds it here and asks no agent.

    \b
    Example:
      agiledart explain recovery frequent-routes
      agiledart explain recovery taxi.py:frequent_routes --set trips=csv:trips.csv.gz
      agiledart explain recovery frequent-routes -o json
    """
    if ":" in target or is_query_file(target):
        facts = _facts_of_file(target, settings)
    else:
        if settings:
            raise ConfigurationError(
                f"--set applies to FILE:NAME only; the settings of {target} were given when it was submitted"
            )
        with connect(agent, identity) as client:
            facts = client.ask(ExplainRecovery(target))
    response = with_costs(facts)
    if output == "json":
        print_json(response)
    else:
        print_recovery(harmless_document(response))


def _facts_of_file(target: str, settings: tuple[str, ...]) -> dict[str, Any]:
    from agiledart_dataflow.plan.stages import plan_stages
    from agiledart_executor.user_code.parameter import parse_settings
    from agiledart_executor.user_code.user_builder import build
    from agiledart_node.user_commands.recovery_facts import recovery_facts

    topology = build(load_target(target), parse_settings(settings), Path.cwd())
    specification = topology.specification()
    facts = recovery_facts(specification, plan_stages(specification), topology.delivery, {})
    plain: dict[str, Any] = msgspec.to_builtins(facts)
    return plain


def print_recovery(response: Mapping[str, Any]) -> None:
    """Print a line for each step with the cost of a failure, and what user code must not do."""
    promise = f"{response['name']}: {PROMISES[Delivery(response['delivery'])]} (delivery={response['delivery']!r})"
    click.echo(promise if Delivery(response["delivery"]).is_saved else paint(promise, WATCH))
    for step in response["steps"]:
        text = f" {step['role']:<6} {step['name']}: {step['after_a_failure']}"
        click.echo(paint(f"{text}; the application is refused at its start", BAD) if step["refused"] else text)
    for text in response["user_code_must_not"]:
        click.echo(f" user code must not {text}")


@explain.command(short_help="Show how many instances each stage should have, and why.")
@click.argument("name", type=APPLICATION)
@click.argument("stage", required=False, default="", type=STAGE)
@agent_options
@output_option
def scaling(name: str, stage: str, agent: str | None, identity: str | None, output: str) -> None:
    """Show how many instances each stage of an application should have by the measurements of the last five seconds, and why.

    After `agiledart scale APP STAGE auto` a stage with limits follows these numbers, if checkpoints save the application;
    otherwise they are advice. OFFERED is the rate that the sources have for a stage, accepted or not. CAN is the greatest
    rate of the stage. SCORE is CAN as a share of OFFERED and the waiting rows; 1 is just enough.

    \b
    Example:
      agiledart explain scaling frequent-routes
      agiledart explain scaling frequent-routes route-frequency -o json
    """
    with connect(agent, identity) as client:
        response = client.ask(ExplainScaling(name, stage))
    if output == "json":
        print_json(response)
    else:
        print_scaling(harmless_document(response))


def print_scaling(response: Mapping[str, Any]) -> None:
    """Print a line for each stage, its reasons as sentences, and a sentence for each change of a stage."""
    if response["stages"]:
        heads = ["stage", "×", "limits", "offered/s", "waiting", "can/s", "busy", "blocked", "score", "needed"]
        print_table(heads, [_line(stage) for stage in response["stages"]], heads[1:])
    elif response.get("state") in FINAL_STATES:
        click.echo(
            f"{response['name']} is {response['state']}: only running applications are measured. Its changes while it ran:"
        )
    for stage in response["stages"]:
        if stage["unknown_reason"]:
            click.echo(paint(f" {stage['name']}: {stage['unknown_reason']}", WATCH))
        if stage["why"]:
            click.echo(f" {stage['name']}: {stage['why']}")
        if stage.get("keeps_number"):
            command = f"agiledart scale {response['name']} {stage['name']} auto"
            click.echo(f" {stage['name']}: a user fixed its number; to turn autoscaling on: {command}")
        elif stage.get("waits_for"):
            click.echo(paint(f" {stage['name']}: should have {stage['wanted']}, waits: {stage['waits_for']}", WATCH))
    for change in response.get("changes", ()):
        click.echo(_changed(change))
    if silent := response["silent_nodes"]:
        click.echo(paint(f" no figures from {', '.join(silent)}", WATCH))


def _line(stage: Mapping[str, Any]) -> list[Any]:
    low, high = stage["limits"]
    limits = f"{low}..{high}" if stage["scales"] else str(high)
    figures = stage["measures"]
    return [
        *(stage["name"], stage["instances"], limits),
        *(_whole(figures["offered"]), _whole(figures["backlog"]), _whole(figures["capacity"])),
        *(_share(figures["busy"]), _share(figures["blocked"])),
        "" if stage["health_score"] is None else f"{stage['health_score']:.2f}",
        "" if stage["needed"] is None else stage["needed"],
    ]


def _whole(number: float | None) -> str:
    return "" if number is None else count(round(number))


def _share(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _changed(change: Mapping[str, Any]) -> str:
    """Return a change as text: `areas 2 → 3, scale asked by ann: done in 1.2 s, 21 key groups to other nodes`."""
    summary = f" {change['stage']} {change['from']} → {change['to']}, {change['kind']}"
    reason = change["reason"]
    by = f" {reason}" if reason.startswith("asked by") else f" by {reason}" if reason else ""
    if change["state"] == "running":
        return f"{summary}{by}: in progress"
    if change["state"] != "done":
        return paint(f"{summary}{by}: {STATES.get(change['state'], change['state'])}: {change['why']}", WATCH)
    pause = f", no rows for {change['pause_ms']:.0f} ms" if change["pause_ms"] is not None else ""
    return (
        f"{summary}{by}: done in {change['seconds']:.1f} s, {change['moved_groups']} key groups to other nodes{pause}"
    )


@explain.command(short_help="Show which stage waits, for what, for how long, and what to do.")
@click.argument("name", metavar="APP")
@agent_options
@output_option
def waiting(name: str, agent: str | None, identity: str | None, output: str) -> None:
    """Show why an application does not move: which stage waits, for what, for how long, and what to do.

    Causes are missing nodes, no free capacity, user code that does not return, full disks, systems outside, lost links, slow
    sinks, silent inputs, late checkpoints and full receivers. A stage behind another cause is named with that cause. States that
    have lasted less than three seconds are not shown.

    \b
    Example:
      agiledart explain waiting frequent-routes
      agiledart explain waiting frequent-routes -o json
    """
    with connect(agent, identity) as client:
        response = client.ask(Status(name))
    if output == "json":
        print_json({"name": name, "state": response["state"], "waiting": response.get("waiting", [])})
    else:
        print_waiting(harmless_document(response))


def print_waiting(response: Mapping[str, Any]) -> None:
    """Print each cause of waiting with its advice, and sources without input that hold back nothing."""
    rows = response.get("waiting") or []
    for row in rows:
        click.echo(paint(waiting_text(row), WATCH))
        click.echo(f"  → {row['advice']}")
    for text in _silent_sources(response, " ".join(row["text"] for row in rows)):
        click.echo(text)
    if not rows:
        state = response["state"]
        click.echo(f"{response['name']} is {state}: {'nothing waits' if state in BEGUN_STATES else 'it does not run'}.")


def _silent_sources(response: Mapping[str, Any], named: str) -> Iterator[str]:
    for stage in response.get("stages", ()):
        source = stage["name"].partition("+")[0]
        silences = [instance.get("silent_ms", 0) for instance in stage["instances"]]
        if silences and min(silences) >= LEAST_SILENT_MS and f"for {source}" not in named:
            yield f"{source} has read nothing for {duration(min(silences) / 1000)}; nothing waits for it"


@explain.command(short_help="Show the routes of rows between nodes, and why.")
@click.argument("name", metavar="APP", type=APPLICATION)
@click.argument("edge", required=False, default="")
@agent_options
@output_option
def route(name: str, edge: str, agent: str | None, identity: str | None, output: str) -> None:
    """Show the routes of rows between the nodes of an application: the circuit in use, the other open circuits and their costs,
    and the last changes.

    EDGE is the step that rows leave, as in `status`; without it the command shows all. COST is the least plausible time for one
    answer. ANSWERS is the share of probe slots of 5 ms with an answer. Traffic moves to another circuit when that one costs
    less than 85 % of the current one.

    \b
    Example:
      agiledart explain route frequent-routes
      agiledart explain route frequent-routes trips
      agiledart explain route frequent-routes trips -o json
    """
    with connect(agent, identity) as client:
        status = client.ask(Status(name))
    response = {"name": name, "routes": list(routes_of(status, edge))}
    if output == "json":
        print_json(response)
    else:
        print_routes(harmless_document(response))


def routes_of(status: Mapping[str, Any], edge: str) -> Iterator[dict[str, Any]]:
    """Yield each route with the stage and node that its rows leave. Raises ConfigurationError for an unknown step."""
    stages = status.get("stages", [])
    names = [stage["name"] for stage in stages]
    chosen = [stage for stage in stages if not edge or edge == stage["name"] or edge in stage["name"].split("+")]
    if not chosen:
        near = get_close_matches(edge, names, 1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise ConfigurationError(
            f"{status.get('name', 'It')} has no step {edge!r}.{hint} Steps: {', '.join(names) or 'none'}"
        )
    for stage in chosen:
        for instance in stage["instances"]:
            for row in instance.get("routes", ()):
                yield {"step": stage["name"], "instance": instance["index"], "from": instance["node"], **row}


def print_routes(response: Mapping[str, Any]) -> None:
    """Print a block for each route: its circuits and its last changes."""
    if not response["routes"]:
        click.echo(f"{response['name']} sends no rows from one node to another now.")
    for row in response["routes"]:
        by = f"by relay {row['relay']}" if row["relay"] else "within the node" if row["kind"] == "local" else "directly"
        since = time.strftime("%H:%M:%S", time.localtime(row["since_ms"] / 1000))
        head = f"{row['step']}[{row['instance']}] on {row['from']} → {row['to']}: {by} since {since} (paths: {row['paths']})"
        click.echo(head if row["state"] == "works" else f"{head}  {paint(row['state'], WATCH)}")
        print_table(
            ["circuit", "cost", "round trip", "answers", "rate", ""],
            [_circuit_line(circuit) for circuit in row["circuits"]],
            ["cost"],
        )
        print_hops(row.get("hops", ()))
        for change in row["changes"][-3:]:
            at = time.strftime("%H:%M:%S", time.localtime(change["at_ms"] / 1000))
            after, before = (f"by relay {relay}" if relay else "directly" for relay in (change["to"], change["from"]))
            click.echo(f"  {at} {after}, before {before}: {WHY.get(change['reason'], change['reason'])}")


def print_hops(hops: Sequence[Mapping[str, Any]]) -> None:
    """Print the next hops that the node's agent compares by link cost plus cost to go, in slots of 5 ms."""
    if any(hop["is_relay"] for hop in hops):
        print_table(["next hop", "link", "attempts", "to go", ""], [_hop_line(hop) for hop in hops], ["next hop"])


def _hop_line(hop: Mapping[str, Any]) -> list[str]:
    link, to_go = ("–" if cost is None else f"{cost:.1f} slots" for cost in (hop["omega"], hop["to_go"]))
    further = f", then {', '.join(hop['relays'])}" if hop["relays"] else ""
    return [f"{hop['to']}{further}", link, f"{hop['attempts']:.0f}", to_go, hop["reason"]]


def _circuit_line(circuit: Mapping[str, Any]) -> list[str]:
    cost = circuit["cost_ms"]
    return [
        f"by {circuit['relay']}" if circuit["relay"] else "directly",
        "last resort" if cost >= LAST_RESORT_MS else f"{cost:.0f} ms",
        f"{circuit['round_trip_ms']:.0f} ms",
        f"{circuit['success']:.0%}",
        f"{circuit['bytes_per_second'] / 1000:.0f} kB/s",
        "in use" if circuit["in_use"] else "late" if circuit["late"] else "",
    ]


explain.add_command(placement)
