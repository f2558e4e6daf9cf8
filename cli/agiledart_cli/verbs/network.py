"""Verbs about the network: `nodes`, `route`, `token`."""

import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from agiledart_cli.control_client import connect
from agiledart_cli.errors import FAILED
from agiledart_cli.options import agent_options, not_empty
from agiledart_cli.output import (
    BAD,
    count,
    duration,
    milliseconds,
    output_option,
    paint,
    plural,
    print_json,
    print_table,
    say,
)
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.grants import TOKEN_ROLES
from agiledart_kernel.text import harmless_document
from agiledart_node.wire.commands import CreateToken, Nodes, Route


def time_span(ctx: click.Context, parameter: click.Parameter, text: str | None) -> timedelta | None:
    """The time span of an option, such as `24h`, `30m`, `365d`; None when it was not given."""
    if text is None:
        return None
    from agiledart_executor.user_code.user_parameters import parse_span

    try:
        span = parse_span(text)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{text!r} is no time span; write 24h, 30m or 7d.", ctx, parameter) from None
    if span < timedelta(seconds=1):
        raise click.BadParameter(f"{text!r} is too short.", ctx, parameter)
    return span


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
        body = client.ask(Nodes())
    if output == "json":
        print_json(body)
        return
    body = harmless_document(body)
    rows = [
        [
            node["name"] + (" (asked)" if node["is_this_node"] else ""),
            node["node_id"][:8],
            node["address"],
            node["zone"],
            milliseconds(node["rtt_ms"]),
            *_load(node),
        ]
        for node in body["nodes"]
    ]
    print_table(
        ["node", "id", "links at", "zone", "rtt", "used", "free", "schedules", "runs"],
        rows,
        ["rtt", "used", "free", "schedules"],
    )
    if body["known"] > len(rows):
        say(f"{body['known'] - len(rows):,} more are known.")
    if alone := body.get("alone"):
        say(paint(alone, BAD))
    if refused := body.get("refused"):
        say("turned away here: " + ", ".join(f"{count:,} × {reason}" for reason, count in sorted(refused.items())))


def _load(node: Mapping[str, Any]) -> list[str]:
    if not node["answers"]:
        return ["", "", "", paint("does not answer", BAD)]
    runs = ", ".join(node["applications"])
    schedules = "" if node.get("schedules") is None else str(node["schedules"])
    return [
        count(node["instances"]),
        count(max(0, node["capacity"] - node["instances"])),
        schedules,
        f"{runs} (leaving)" if node["is_leaving"] else runs,
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
        body = client.ask(Route(key))
    if output == "json":
        print_json(body)
        return
    body = harmless_document(body)
    click.echo(
        f"key {body['key']}   {plural(body['hops'], 'hop')}, there and back {milliseconds(body['round_trip_ms'])}"
    )
    rows = [
        [number, node["name"], node["node_id"], milliseconds(node["rtt_from_here_ms"])]
        for number, node in enumerate(body["path"])
    ]
    print_table(["hop", "node", "id", "rtt from here"], rows, ["hop", "rtt from here"])


@click.group(short_help="Make a join token, or read one.")
def token() -> None:
    """Make a join token, or read one.

    \b
    Example:
      agiledart token create --output pi2.token    (then, on pi2: agiledart agent --join @pi2.token)
      agiledart token create --role reader --expires 7d
      agiledart token show @pi2.token
      agiledart token redeem @reader.token reader.identity

    A token is a secret: whoever has it can become a member until it expires.
    """


@token.command(short_help="Make a token.")
@click.option("--role", type=click.Choice(TOKEN_ROLES), default="agent", show_default=True)
@click.option("--uses", type=click.IntRange(1), default=20, show_default=True, help="How many nodes may use it.")
@click.option(
    "--expires",
    callback=time_span,
    metavar="SPAN",
    default="24h",
    show_default=True,
    help="How long it lets anyone in.",
)
@click.option(
    "--member-for",
    callback=time_span,
    metavar="SPAN",
    default="365d",
    show_default=True,
    help="How long the membership lasts.",
)
@click.option("--scope", default="", metavar="app:NAME|sink:NAME", help="Only for this application or sink.")
@agent_options
@click.option(
    "-o",
    "--output",
    metavar="table|json|FILE",
    default="table",
    callback=not_empty,
    show_default=True,
    help="How to print; or a file that only you can read, into which the token goes.",
)
def create(
    role: str,
    uses: int,
    expires: timedelta,
    member_for: timedelta,
    scope: str,
    agent: str | None,
    identity: str | None,
    output: str,
) -> None:
    """Make a token, signed by an agent that holds the network's authority key (the one that founded it).

    \b
    Example:
      agiledart token create --uses 1 --expires 10m
      agiledart token create --role submitter --output submitter.token
    """
    command = CreateToken(role, uses, int(expires.total_seconds()), int(member_for.total_seconds()), scope)
    with connect(agent, identity) as client:
        body = client.ask(command)
    if output == "json":
        print_json(body)
        return
    file = "FILE" if output == "table" else output
    if output == "table":
        click.echo(body["token"])
    else:
        _write_secret(Path(output), body["token"])
        say(f"Wrote {output}; only you can read it.")
    join = f"agiledart agent --join @{file}" if role == "agent" else f"agiledart … --agent HOST:PORT --identity @{file}"
    say(f"{plural(uses, 'use')}, for {duration(expires.total_seconds())}, role {role}:  {join}")


def _write_secret(file: Path, text: str) -> None:
    """A file that only this user can read, from its first moment on."""
    from agiledart_agent.durable_file import write_durably

    try:
        write_durably(file, f"{text}\n".encode())
    except OSError as error:
        raise ConfigurationError(f"--output {file}: {error.strerror}") from None


@token.command(short_help="What a token is for, without its secret.")
@click.argument("text", metavar="TOKEN|@FILE|-")
@output_option
def show(text: str, output: str) -> int:
    """What a token is for, without its secret. Asks no agent.

    \b
    Example:
      agiledart token show @pi2.token
    """
    from agiledart_agent.identity.tokens import describe, parse_token, read_token

    now = int(time.time())
    found = describe(parse_token(read_token(text)), now)
    body = {name: getattr(found, name) for name in found.__slots__}
    if output == "json":
        print_json(body)
    else:
        left = found.join_before - now
        until = f"for {duration(left)} more" if left > 0 else paint(f"no more: expired {duration(-left)} ago", "red")
        click.echo(f" role        {found.role}{f' of {found.scope}' if found.scope else ''}")
        click.echo(f" uses        {found.uses} (counted in a later version)")
        click.echo(f" lets in     {until}")
        click.echo(f" members for {duration(found.member_for)}")
        click.echo(f" issued by   {found.issued_by}")
        click.echo(f" network     {found.network[:16]}…")
        click.echo(f" begins at   {', '.join(found.addresses) or 'no address'}")
    return FAILED if found.is_expired else 0


@token.command(short_help="Turn a reader's token into an identity file.")
@click.argument("text", metavar="TOKEN|@FILE|-")
@click.argument("file", type=click.Path(path_type=Path))
@output_option
def redeem(text: str, file: Path, output: str) -> None:
    """Turn a reader's token into an identity file, for jobs that read sink logs for longer than the token lets anyone in.

    \b
    Example:
      agiledart token redeem @reader.token reader.identity

    The file is a secret; only you may read it. Asks no agent.
    """
    from agiledart_agent.identity.reader_identity import identity_from_token, write_identity

    identity, addresses = identity_from_token(text)
    write_identity(file, identity, addresses)
    if output == "json":
        print_json({"file": str(file), "addresses": list(addresses)})
        return
    say(f"Wrote {file}. Readers name it as identityFile; they begin at {', '.join(addresses) or 'no address'}.")
