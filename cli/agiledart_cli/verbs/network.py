"""Verbs about the network: `nodes` and `route`, and who is shut out of it: `ban`, `unban`, `bans`."""

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import click

from agiledart_cli.control_client import ControlClient, connect
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
from agiledart_cli.verbs.access.join_tokens import time_span
from agiledart_kernel.bans import MAX_REASON, MAX_SECONDS
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.text import harmless_document
from agiledart_node.wire.commands import ListBans, Nodes, SetBan, TraceRoute

HEX_DIGITS = 64


@click.command(short_help="The nodes that an agent knows.")
@agent_options
@output_option
def nodes(agent: str | None, identity: str | None, output: str) -> None:
    """The nodes that an agent knows, with what they run.

    \b
    Example:
      agiledart nodes
      agiledart nodes --agent pi1:9464 --identity @reader.token -o json

    A node knows its neighbours on the ring, not every node: in a small ring that is everyone. `used` and `free` are
    operator instances (agiledart agent --capacity); `schedules` says how many applications a node serves as scheduler:
    most nodes are none.
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
            node["address"],
            node["zone"],
            milliseconds(node["rtt_ms"]),
            *_load(node),
        ]
        for node in response["nodes"]
    ]
    print_table(
        ["node", "id", "links at", "zone", "rtt", "used", "free", "schedules", "runs"],
        rows,
        ["rtt", "used", "free", "schedules"],
    )
    if response["known"] > len(rows):
        print_message(f"{response['known'] - len(rows):,} more are known.")
    if alone := response.get("isolation_warning"):
        print_message(paint(alone, BAD))
    if mixed := _versions(response["nodes"]):
        print_message(paint(mixed, WATCH))
    for clock in response.get("clocks") or ():
        print_message(paint(clock, BAD))
    if refused := response.get("refused"):
        print_message(
            "turned away here: " + ", ".join(f"{count:,} × {reason}" for reason, count in sorted(refused.items()))
        )


def _versions(nodes: Sequence[Mapping[str, Any]]) -> str:
    """Who runs which version, when not all run the same; empty: all do."""
    from agiledart_dataflow.plan.specification import release

    by: dict[str, list[str]] = {}
    for node in nodes:
        if node["answers"]:
            by.setdefault(release(node.get("software", ""), node.get("specification", 0)), []).append(node["name"])
    return "; ".join(f"{what}: {', '.join(sorted(names))}" for what, names in sorted(by.items())) if len(by) > 1 else ""


def _load(node: Mapping[str, Any]) -> list[str]:
    if not node["answers"]:
        return ["", "", "", paint("does not answer", BAD)]
    runs = ", ".join(node["applications"])
    schedules = "" if node.get("schedules") is None else str(node["schedules"])
    return [
        count(node["instances"]),
        count(max(0, node["capacity"] - node["instances"])),
        schedules,
        f"{runs} (leaving)".strip()
        if node["is_leaving"]
        else f"{runs} (drained)".strip()
        if node.get("is_draining")
        else runs,
    ]


@click.command(short_help="The hops that a key takes over the ring.")
@click.argument("key")
@agent_options
@output_option
def route(key: str, agent: str | None, identity: str | None, output: str) -> None:
    """The hops that a key takes from an agent to the node that is responsible for it.

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


@click.command(short_help="Shut a node, a key or a token out of the network.")
@click.argument("target", metavar="NODE|KEY|TOKEN|@FILE")
@click.option("--reason", default="", help="For people: why.")
@click.option(
    "--until", "span", callback=time_span, metavar="SPAN", default=None, help="For how long. Default: for good."
)
@agent_options
@output_option
def ban(target: str, reason: str, span: timedelta | None, agent: str | None, identity: str | None, output: str) -> None:
    """Shut a node, a key or a token out of the network: its links close everywhere within seconds, and it gets no new ones.

    \b
    Example:
      agiledart ban pi7 --reason "stolen"
      agiledart ban 6d0b… --until 30d              (a key: 64 hex digits, as `status` shows it)
      agiledart ban @pi7.token                     (everybody who came in by this token)

    Ask an agent that holds the network's authority key (the one that founded it), or with the token of an admin. Whoever
    is banned may come back by another token: ban the token as well, or it makes the next key a member.
    """
    if len(reason) > MAX_REASON or not reason.isprintable():
        raise ConfigurationError(f"--reason has at most {MAX_REASON} printable characters.")
    seconds = MAX_SECONDS if span is None else min(MAX_SECONDS, int(span.total_seconds()))
    with connect(agent, identity) as client:
        key = _key_of(client, target)
        response = client.ask(SetBan(key, int(time.time()) + seconds, reason))
    _print_result(response, output, f"{target} is banned{'' if span is None else f' for {duration(seconds)}'}.")


@click.command(short_help="Take a ban back.")
@click.argument("target", metavar="KEY|TOKEN|@FILE")
@agent_options
@output_option
def unban(target: str, agent: str | None, identity: str | None, output: str) -> None:
    """Take a ban back. `agiledart bans` shows what is banned; a node that was shut out has to be started again.

    \b
    Example:
      agiledart unban 6d0b…
    """
    with connect(agent, identity) as client:
        known = [row["target"] for row in client.ask(ListBans())["bans"]]
        matching = [key for key in known if key.startswith(target.lower())] if len(target) >= 8 else []
        key = matching[0] if len(matching) == 1 else _key_of(client, target)
        response = client.ask(SetBan(key, 0))
    _print_result(response, output, f"{key[:16]}… is banned no more.")


@click.command(short_help="What is banned, and was.")
@agent_options
@output_option
def bans(agent: str | None, identity: str | None, output: str) -> None:
    """What is banned, and was, as the asked agent knows it; all agents learn it within seconds.

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


def _print(response: dict[str, Any]) -> None:
    now = time.time()
    rows = []
    for one in response["bans"]:
        left = one["until_ms"] / 1_000 - now
        state = f"for {duration(left)}" if one["in_force"] else "no more"
        rows.append(
            [
                one["target"][:16],
                state,
                duration(max(0.0, now - one["given_ms"] / 1_000)),
                one["by"][:16],
                one["reason"],
            ]
        )
    print_table(["banned", "still", "given ago", "by", "reason"], rows)


def _key_of(client: ControlClient, target: str) -> str:
    """The 64 hex digits that are meant: a key, a token's link, or the key of a node by its name or id."""
    if len(target) == HEX_DIGITS and all(c in "0123456789abcdefABCDEF" for c in target):
        return target.lower()
    if target.startswith(("@", "adart1")) or target == "-":
        from agiledart_agent.identity.tokens import parse_token, read_token

        return parse_token(read_token(target)).record.token.hex()
    rows = client.ask(Nodes())["nodes"]
    found = [row for row in rows if target in (row["name"], row["node_id"])]
    if len(found) != 1:
        names = ", ".join(sorted(str(row["name"]) for row in rows)[:20])
        what = "is no node that this agent knows" if not found else "is the name of several nodes: give its key"
        raise ConfigurationError(f"{target} {what}. Known: {names}")
    if not found[0]["key"]:
        print_message(f"{target} has no link with the agent that was asked.", colour=BAD)
        raise ConfigurationError(f"Ask an agent that has one, or give the key of {target}: 64 hex digits.")
    return str(found[0]["key"])
