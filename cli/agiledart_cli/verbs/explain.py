"""`agiledart explain`: how many instances a stage should have, which way its rows take, what a failure costs it; and why."""

import time
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click
import msgspec

from agiledart_cli.control_client import connect
from agiledart_cli.failure_costs import PROMISES, with_costs
from agiledart_cli.options import agent_options, set_option
from agiledart_cli.output import BAD, WATCH, count, output_option, paint, print_json, print_table
from agiledart_cli.targets import load_target
from agiledart_cli.verbs.application_view import FINAL_STATES
from agiledart_dataflow.plan.delivery import Delivery
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.text import harmless_document
from agiledart_node.wire.commands import ExplainRecovery, ExplainScaling, Status

LAST_RESORT_MS = 1e9
WHY = {
    "lost": "the link was lost",
    "silent": "nothing answered",
    "slow": "answers came late",
    "thin": "it carried less than was offered",
    "better": "it costs less",
    "direct again": "the direct way answers well again",
}


@click.group(short_help="Why the mesh does, or would do, what it does.")
def explain() -> None:
    """Why the mesh does, or would do, what it does.

    \b
    Example:
      agiledart explain scaling frequent-routes
      agiledart explain recovery frequent-routes
      agiledart explain route frequent-routes
    """


@explain.command(short_help="What a failure costs each source, sink and step.")
@click.argument("target", metavar="APP|FILE:NAME")
@set_option
@agent_options
@output_option
def recovery(target: str, settings: tuple[str, ...], agent: str | None, identity: str | None, output: str) -> None:
    """What a failure costs each source, sink and step of an application, and what its code must not do.

    APP is one that was submitted. FILE:NAME is a topology that is only built, here; no agent is asked.

    \b
    Example:
      agiledart explain recovery frequent-routes
      agiledart explain recovery taxi.py:frequent_routes --set trips=csv:trips.csv.gz
      agiledart explain recovery frequent-routes -o json
    """
    if ":" in target:
        facts = _facts_of_file(target, settings)
    else:
        if settings:
            raise ConfigurationError(f"--set is for FILE:NAME; {target} was submitted with what it was given then")
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
    """A line for each step, what user code must not do, and what would be refused."""
    told = f"{response['name']}: {PROMISES[Delivery(response['delivery'])]} (delivery={response['delivery']!r})"
    click.echo(told if Delivery(response["delivery"]).is_saved else paint(told, WATCH))
    for step in response["steps"]:
        text = f" {step['role']:<6} {step['name']}: {step['after_a_failure']}"
        click.echo(paint(f"{text}; refused when it starts", BAD) if step["refused"] else text)
    for text in response["user_code_must_not"]:
        click.echo(f" user code must not {text}")


@explain.command(short_help="How many instances each stage should have, and why.")
@click.argument("name")
@click.argument("stage", required=False, default="")
@agent_options
@output_option
def scaling(name: str, stage: str, agent: str | None, identity: str | None, output: str) -> None:
    """How many instances each stage of an application should have, by the measures of the last five seconds, and why.

    A stage with limits of an application that is saved by epochs scales itself by this after `agiledart scale APP STAGE auto`;
    until then, and for others, it is advice. OFFERED is what the sources have for a stage, taken or not;
    CAN is what it can do; F is the one as a share of the other with what waits, 1 is just enough.

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
    """A line for each stage, a sentence for each that has something to say, and one for each change of a stage."""
    if response["stages"]:
        heads = ["stage", "×", "limits", "offered/s", "waiting", "can/s", "busy", "blocked", "score", "needed"]
        print_table(heads, [_line(stage) for stage in response["stages"]], heads[1:])
    elif response.get("state") in FINAL_STATES:
        click.echo(f"{response['name']} is {response['state']}: only what runs is measured. What changed while it ran:")
    for stage in response["stages"]:
        if stage["unknown_reason"]:
            click.echo(paint(f" {stage['name']}: {stage['unknown_reason']}", WATCH))
        elif stage["why"]:
            click.echo(f" {stage['name']}: {stage['why']}")
        if stage.get("keeps_number"):
            say_so = f"agiledart scale {response['name']} {stage['name']} auto"
            click.echo(f" {stage['name']}: it keeps its number; to have it scale by itself: {say_so}")
        elif stage.get("waits_for"):
            click.echo(paint(f" {stage['name']}: {stage['wanted']} wanted, and waits: {stage['waits_for']}", WATCH))
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
    """`areas 2 → 3, scale asked by ann: done in 1.2 s, 21 key groups to other nodes`; of a policy `scale by secant: …`."""
    what = f" {change['stage']} {change['from']} → {change['to']}, {change['kind']}"
    reason = change["reason"]
    by = f" {reason}" if reason.startswith("asked by") else f" by {reason}" if reason else ""
    if change["state"] == "running":
        return f"{what}{by}: under way"
    if change["state"] != "done":
        return paint(f"{what}{by}: {change['state'].replace('-', ' ')}: {change['why']}", WATCH)
    gap = f", no rows for {change['pause_ms']:.0f} ms" if change["pause_ms"] is not None else ""
    return f"{what}{by}: done in {change['seconds']:.1f} s, {change['moved_groups']} key groups to other nodes{gap}"


@explain.command(short_help="Which way rows take between nodes, and why.")
@click.argument("name", metavar="APP")
@click.argument("edge", required=False, default="")
@agent_options
@output_option
def route(name: str, edge: str, agent: str | None, identity: str | None, output: str) -> None:
    """Which way rows take between the nodes of an application: now, what else is open, what each costs, and the last changes.

    EDGE is the step that rows leave, as in `status`; without it all are shown. COST is the time for one answer at the least that is
    still plausible; ANSWERS a share of slots of 5 ms; rows leave a way when another one costs less than 0.85 of it.

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
    """Each way, with the stage and node that rows leave; raises ConfigurationError where there is no such step."""
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
        for one in stage["instances"]:
            for way in one.get("routes", ()):
                yield {"step": stage["name"], "instance": one["index"], "from": one["node"], **way}


def print_routes(response: Mapping[str, Any]) -> None:
    """A block for each way."""
    if not response["routes"]:
        click.echo(f"{response['name']} sends nothing from one node to another now.")
    for way in response["routes"]:
        by = f"by {way['relay']}" if way["relay"] else "directly"
        since = time.strftime("%H:%M:%S", time.localtime(way["since_ms"] / 1000))
        head = f"{way['step']}[{way['instance']}] on {way['from']} → {way['to']}: {by} since {since} (paths: {way['paths']})"
        click.echo(head if way["state"] == "works" else f"{head}  {paint(way['state'], WATCH)}")
        print_table(
            ["way", "cost", "round trip", "answers", "carries", ""],
            [_circuit_line(one) for one in way["circuits"]],
            ["cost"],
        )
        for change in way["changes"][-3:]:
            at = time.strftime("%H:%M:%S", time.localtime(change["at_ms"] / 1000))
            after, before = (f"by {one}" if one else "directly" for one in (change["to"], change["from"]))
            click.echo(f"  {at} {after}, before {before}: {WHY.get(change['reason'], change['reason'])}")


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
