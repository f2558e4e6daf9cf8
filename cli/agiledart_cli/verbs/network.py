"""Verbs for the network: `nodes`, `route`, `ban`, `unban`, `bans`."""

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import click

from agiledart_cli.options import agent_options
from agiledart_cli.output import (
    BAD,
    GOOD,
    WATCH,
    count,
    duration,
    milliseconds,
    output_option,
    paint,
    plural,
    print_json,
    print_message,
    print_table,
)
from agiledart_cli.verb_connection import connect
from agiledart_cli.verbs.access.join_tokens import time_span
from agiledart_control.control_client import ControlClient
from agiledart_kernel.bans import MAX_REASON, MAX_SECONDS
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.text import harmless_document
from agiledart_node.wire.commands import ListBans, Nodes, SetBan, TraceRoute

HEX_DIGITS = 64


@click.command(short_help="List the nodes that an agent knows.")
@agent_options
@output_option
def nodes(agent: str | None, identity: str | None, output: str) -> None:
    """List the nodes that an agent knows, with their applications.

    \b
    Example:
      agiledart nodes
      agiledart nodes --agent pi1:9464 --identity @reader.token -o json

    A node knows its neighbours on the ring; in a small ring these are all nodes. `used` and `free` count operator instances
    (agiledart agent --capacity). `schedules` is the number of applications that the node serves as scheduler; it is empty for
    nodes that are no scheduler. `speed` is that of one core, 1 is the reference; `labels` were given by agiledart agent --label.
    """
    with connect(agent, identity) as client:
        response = client.ask(Nodes())
    if output == "json":
        print_json(response)
        return
    response = harmless_document(response)
    rows = [
        [
            node["name"] + (" (asked)" if node["is_this_node"] else ""),
            node["node_id"][:8],
            node["address"] + (f" by {relay}" if (relay := node.get("relay")) else ""),
            node["zone"],
            milliseconds(node["rtt_ms"]),
            *_load(node),
        ]
        for node in response["nodes"]
    ]
    print_table(
        ["node", "id", "links at", "zone", "rtt", "used", "free", "speed", "labels", "schedules", "runs"],
        rows,
        ["rtt", "used", "free", "speed", "schedules"],
        cuts=(10, 8, 2, 0, 3),
    )
    if response["known"] > len(rows):
        print_message(f"The agent knows {response['known'] - len(rows):,} more nodes.")
    if isolation := response.get("isolation_warning"):
        print_message(paint(isolation, BAD))
    if mixed := _versions(response["nodes"]):
        print_message(paint(mixed, WATCH))
    for clock in response.get("clocks") or ():
        print_message(paint(clock, BAD))
    if refused := response.get("refused"):
        print_message(
            "refused here: " + ", ".join(f"{count:,} × {reason}" for reason, count in sorted(refused.items()))
        )


def _versions(nodes: Sequence[Mapping[str, Any]]) -> str:
    """Return the nodes by version; empty when all nodes run the same version."""
    from agiledart_dataflow.plan.specification import release

    by: dict[str, list[str]] = {}
    for node in nodes:
        if node["answers"]:
            by.setdefault(release(node.get("software", ""), node.get("specification", 0)), []).append(node["name"])
    return (
        "; ".join(f"{version}: {', '.join(sorted(names))}" for version, names in sorted(by.items()))
        if len(by) > 1
        else ""
    )


def _load(node: Mapping[str, Any]) -> list[str]:
    if not node["answers"]:
        return ["", "", "", "", "", paint("does not answer", BAD)]
    runs = ", ".join(node["applications"])
    schedules = "" if node.get("schedules") is None else str(node["schedules"])
    return [
        count(node["instances"]),
        count(max(0, node["capacity"] - node["instances"])),
        "" if node.get("speed") is None else f"{node['speed']:.2f}",
        ",".join(node.get("labels", ())),
        schedules,
        f"{runs} (leaving)".strip()
        if node["is_leaving"]
        else f"{runs} (drained)".strip()
        if node.get("is_draining")
        else runs,
    ]


@click.command(short_help="Show the hops of a key over the ring.")
@click.argument("key")
@agent_options
@output_option
def route(key: str, agent: str | None, identity: str | None, output: str) -> None:
    """Show the hops of a key from an agent to the node that is responsible for it.

    \b
    Example:
      agiledart route a3                           (a node's name)
      agiledart route name:frequent-routes         (any text, hashed)
      agiledart route 7f3a                         (hex digits, the rest zeros)
    """
    with connect(agent, identity) as client:
        response = client.ask(TraceRoute(key))
    if output == "json":
        print_json(response)
        return
    response = harmless_document(response)
    click.echo(
        f"key {response['key']}   {plural(response['hops'], 'hop')}, there and back {milliseconds(response['round_trip_ms'])}"
    )
    rows = [
        [number, node["name"], node["node_id"], milliseconds(node["rtt_from_here_ms"])]
        for number, node in enumerate(response["path"])
    ]
    print_table(["hop", "node", "id", "rtt from here"], rows, ["hop", "rtt from here"])


@click.command(short_help="Ban a node, a key or a token from the network.")
@click.argument("target", metavar="NODE|KEY|TOKEN|@FILE")
@click.option("--reason", default="", help="Reason, shown to people.")
@click.option(
    "--until", "span", callback=time_span, metavar="SPAN", default=None, help="Length of the ban. Default: without end."
)
@agent_options
@output_option
def ban(target: str, reason: str, span: timedelta | None, agent: str | None, identity: str | None, output: str) -> None:
    """Ban a node, a key or a token from the network: all nodes close its links within seconds and accept no new ones.

    \b
    Example:
      agiledart ban pi7 --reason "stolen"
      agiledart ban 6d0b… --until 30d              (a key: 64 hex digits, as `status` shows it)
      agiledart ban @pi7.token                     (all members of this token)

    Ask an agent that holds the network's authority key (the founding agent), or use the token of an admin. A banned key may
    return with another token: ban the token as well, or it admits the next key.
    """
    if len(reason) > MAX_REASON or not reason.isprintable():
        raise ConfigurationError(f"--reason has at most {MAX_REASON} printable characters.")
    seconds = MAX_SECONDS if span is None else min(MAX_SECONDS, int(span.total_seconds()))
    with connect(agent, identity) as client:
        key = _key_of(client, target)
        response = client.ask(SetBan(key, int(time.time()) + seconds, reason))
    _print_result(response, output, f"{target} is banned{'' if span is None else f' for {duration(seconds)}'}.")


@click.command(short_help="Revoke a ban.")
@click.argument("target", metavar="KEY|TOKEN|@FILE")
@agent_options
@output_option
def unban(target: str, agent: str | None, identity: str | None, output: str) -> None:
    """Revoke a ban. `agiledart bans` lists the bans; a node that was banned must be restarted.

    \b
    Example:
      agiledart unban 6d0b…
    """
    with connect(agent, identity) as client:
        known = [row["target"] for row in client.ask(ListBans())["bans"]]
        matching = [key for key in known if key.startswith(target.lower())] if len(target) >= 8 else []
        key = matching[0] if len(matching) == 1 else _key_of(client, target)
        response = client.ask(SetBan(key, 0))
    _print_result(response, output, f"{key[:16]}… is no longer banned.")


@click.command(short_help="List the bans, also those that have ended.")
@agent_options
@output_option
def bans(agent: str | None, identity: str | None, output: str) -> None:
    """List the bans that the asked agent knows, also those that have ended; all agents learn of a ban within seconds.

    \b
    Example:
      agiledart bans
    """
    with connect(agent, identity) as client:
        response = client.ask(ListBans())
    if output == "json":
        print_json(response)
    elif not response["bans"]:
        click.echo("Nothing is banned.")
    else:
        _print(harmless_document(response))


def _print_result(response: dict[str, Any], output: str, text: str) -> None:
    if output == "json":
        print_json(response)
    else:
        print_message(text, colour=GOOD)


_ENDLESS_SECONDS = MAX_SECONDS * 0.9
"""A ban that lasts so long was given without an end: the longest that there is."""


def _print(response: dict[str, Any]) -> None:
    now = time.time()
    rows = []
    for ban_row in response["bans"]:
        left = ban_row["until_ms"] / 1_000 - now
        is_endless = left > _ENDLESS_SECONDS
        state = "ended" if not ban_row["in_force"] else "without end" if is_endless else f"for {duration(left)}"
        rows.append(
            [
                ban_row["target"][:16],
                state,
                duration(max(0.0, now - ban_row["given_ms"] / 1_000)),
                ban_row["by"][:16],
                ban_row["reason"],
            ]
        )
    print_table(["banned", "in force", "issued ago", "by", "reason"], rows)


def _key_of(client: ControlClient, target: str) -> str:
    """Return 64 hex digits: a key, the hash of a token's link, or the key of a node given by name or id."""
    if len(target) == HEX_DIGITS and all(c in "0123456789abcdefABCDEF" for c in target):
        return target.lower()
    if target.startswith(("@", "adart1")) or target == "-":
        from agiledart_agent.identity.tokens import parse_token, read_token

        return parse_token(read_token(target)).record.token.hex()
    rows = client.ask(Nodes())["nodes"]
    matching = [row for row in rows if target in (row["name"], row["node_id"])]
    if len(matching) != 1:
        names = ", ".join(sorted(str(row["name"]) for row in rows)[:20])
        fault = "is not a node that this agent knows" if not matching else "is the name of several nodes: give its key"
        raise ConfigurationError(f"{target} {fault}. Known: {names}")
    if not matching[0]["key"]:
        print_message(f"{target} has no link with the asked agent.", colour=BAD)
        raise ConfigurationError(f"Ask an agent that has one, or give the key of {target}: 64 hex digits.")
    return str(matching[0]["key"])
