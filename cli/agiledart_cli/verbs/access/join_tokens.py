"""`agiledart token`: create, list, show and revoke join tokens."""

import dataclasses
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from agiledart_cli.errors import FAILED
from agiledart_cli.options import agent_options, not_empty
from agiledart_cli.output import (
    GOOD,
    duration,
    output_option,
    paint,
    plural,
    print_json,
    print_message,
    print_table,
)
from agiledart_cli.verb_connection import connect
from agiledart_control.control_client import ControlClient
from agiledart_kernel.bans import MAX_REASON, MAX_SECONDS
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.grants import OPERATOR_ROLES, TOKEN_ROLES, Quota
from agiledart_kernel.node_id import node_id_of_key
from agiledart_kernel.registrations import closed_token_target
from agiledart_kernel.text import harmless_document
from agiledart_node.wire.commands import CreateToken, SetBan, Tokens

MIN_PREFIX = 8


def time_span(ctx: click.Context, parameter: click.Parameter, text: str | None) -> timedelta | None:
    """Return the time span of an option, such as `24h`, `30m`, `365d`; None when the option is absent."""
    if text is None:
        return None
    from agiledart_kernel.spans import parse_span

    try:
        span = parse_span(text)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text!r} is not a time span; write 24h, 30m or 7d, with its unit.", ctx, parameter
        ) from None
    if span < timedelta(seconds=1):
        raise click.BadParameter(f"{text!r} is too short.", ctx, parameter)
    return span


def quota_of(ctx: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> Quota:
    """Return the quota of several `WHAT=NUMBER` options."""
    given: dict[str, int] = {}
    for text in texts:
        name, _, number = text.partition("=")
        if name not in Quota.__struct_fields__ or not (number.isdecimal() and 0 < int(number) <= 2**40):
            words = ", ".join(Quota.__struct_fields__)
            raise click.BadParameter(
                f"{text!r} is not a quota; write WHAT=NUMBER, where WHAT is one of {words}.", ctx, parameter
            )
        given[name] = int(number)
    return Quota(**given)


@click.group(short_help="Create join tokens, list their members, revoke them.")
def token() -> None:
    """Create join tokens, list their members, revoke them.

    \b
    Example:
      agiledart token create --output pi2.token    (then, on pi2: agiledart agent --join @pi2.token)
      agiledart token create --role reader --expires 7d
      agiledart token show @pi2.token
      agiledart token list                         (with the members of each)
      agiledart token revoke @pi2.token            (it admits no further member)
      agiledart token redeem @reader.token reader.identity

    A token is a secret: its holder can become a member until it expires or is used up.
    """


@token.command(short_help="Create a token.")
@click.option("--role", type=click.Choice(TOKEN_ROLES), default="agent", show_default=True)
@click.option("--uses", type=click.IntRange(1), default=20, show_default=True, help="How many nodes may join with it.")
@click.option(
    "--expires",
    callback=time_span,
    metavar="SPAN",
    default="24h",
    show_default=True,
    help="How long the token admits members.",
)
@click.option(
    "--member-for",
    callback=time_span,
    metavar="SPAN",
    default="365d",
    show_default=True,
    help="How long the membership lasts.",
)
@click.option(
    "--scope", default="", metavar="app:NAME|sink:NAME|feed:NAME", help="Only for this application, sink or feed."
)
@click.option(
    "--operator",
    type=click.Choice(("none", *OPERATOR_ROLES)),
    help="Role of whoever runs the machine of a new agent, at its control socket.  [default: submitter]",
)
@click.option(
    "--quota",
    callback=quota_of,
    metavar="WHAT=NUMBER",
    multiple=True,
    help="How much a submitter may have: applications in the network; executors, memory_mb, disk_mb on each node.",
)
@agent_options
@click.option(
    "-o",
    "--output",
    metavar="table|json|FILE",
    default="table",
    callback=not_empty,
    show_default=True,
    help="Output format, or a file for the token; only you can read the file.",
)
def create(
    role: str,
    uses: int,
    expires: timedelta,
    member_for: timedelta,
    scope: str,
    operator: str | None,
    quota: Quota,
    agent: str | None,
    identity: str | None,
    output: str,
) -> None:
    """Create a token, signed by an agent that holds the network's authority key (the founding agent).

    \b
    Example:
      agiledart token create --uses 1 --expires 10m
      agiledart token create --operator none       (the new agent hosts and takes no commands)
      agiledart token create --role submitter --output submitter.token
      agiledart token create --role submitter --quota applications=2 --quota memory_mb=1024 --output guest.token
    """
    if operator and role != "agent":
        raise ConfigurationError(f"--operator is for tokens of agents; a {role} commands with its own key.")
    operator = (operator or "submitter").replace("none", "") if role == "agent" else ""
    times = int(expires.total_seconds()), int(member_for.total_seconds())
    command = CreateToken(role, uses, *times, scope, quota, operator)
    with connect(agent, identity) as client:
        response = client.ask(command)
    if output == "json":
        print_json(response)
        return
    file = "FILE" if output == "table" else output
    if output == "table":
        click.echo(response["token"])
    else:
        _write_secret(Path(output), response["token"])
        print_message(f"Wrote {output}; only you can read it.")
    join = f"agiledart agent --join @{file}" if role == "agent" else f"agiledart … --agent HOST:PORT --identity @{file}"
    print_message(f"{plural(uses, 'use')}, for {duration(expires.total_seconds())}, role {role}:  {join}")


def _write_secret(file: Path, text: str) -> None:
    """Write a file that only this user can read from its creation on."""
    from agiledart_agent.state_files.durable_file import write_durably

    try:
        write_durably(file, f"{text}\n".encode())
    except OSError as error:
        raise ConfigurationError(f"--output {file}: {error.strerror}") from None


@token.command(short_help="Show what a token permits, without its secret.")
@click.argument("text", metavar="TOKEN|@FILE|-")
@output_option
def show(text: str, output: str) -> int:
    """Show what a token permits, without its secret. Asks no agent.

    \b
    Example:
      agiledart token show @pi2.token
    """
    from agiledart_agent.identity.tokens import describe, parse_token, read_token

    now = int(time.time())
    described = describe(parse_token(read_token(text)), now)
    response = dataclasses.asdict(described)
    if output == "json":
        print_json(response)
    else:
        left = described.join_before - now
        until = f"for {duration(left)}" if left > 0 else paint(f"expired {duration(-left)} ago", "red")
        click.echo(f" role        {described.role}{f' of {described.scope}' if described.scope else ''}")
        click.echo(f" uses        {described.uses} (remaining uses:  agiledart token list)")
        click.echo(f" admits      {until}")
        click.echo(f" members for {duration(described.member_for)}")
        if quota := " ".join(f"{name}={most}" for name, most in described.quota.items() if most):
            click.echo(f" quota       {quota}")
        click.echo(f" issued by   {described.issued_by}")
        click.echo(f" network     {described.network[:16]}…")
        click.echo(f" agents      {', '.join(described.addresses) or 'no address'}")
    return FAILED if described.is_expired else 0


@token.command(short_help="Turn a reader's token into an identity file.")
@click.argument("text", metavar="TOKEN|@FILE|-")
@click.argument("file", type=click.Path(path_type=Path))
@output_option
def redeem(text: str, file: Path, output: str) -> None:
    """Turn a reader's token into an identity file, for jobs that read sink logs after the token has expired.

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
    print_message(
        f"Wrote {file}. Readers use it as identityFile; their first agents are {', '.join(addresses) or 'no address'}."
    )


@token.command("list", short_help="List the network's tokens and their members.")
@agent_options
@output_option
def list_tokens(agent: str | None, identity: str | None, output: str) -> None:
    """List the network's tokens and their members; never the tokens themselves, which are secrets.

    \b
    Example:
      agiledart token list
      agiledart token list -o json                 (with the key of each member)

    `used` counts keys, not starts: a node that restarts does not count again. It can exceed the limit after a network partition,
    when both sides counted separately; all of them remain members.
    """
    with connect(agent, identity) as client:
        response = client.ask(Tokens())
    if output == "json":
        print_json(response)
        return
    rows = [_row(row) for row in harmless_document(response)["tokens"]]
    if not rows:
        click.echo("This network has no tokens.")
        return
    print_table(["token", "role", "used", "state", "admits", "members"], rows, ["used"])


def _row(token: dict[str, Any]) -> list[str]:
    left = token["join_before_ms"] / 1_000 - time.time()
    nodes = [node_id_of_key(bytes.fromhex(member["key"])).short for member in token["members"]]
    if token["role"] != "agent":
        nodes = [member["key"][:8] for member in token["members"]]
    shown = " ".join(nodes[:8]) + (f" and {len(nodes) - 8:,} more" if len(nodes) > 8 else "")
    role = f"{token['role']} of {token['scope']}" if token["scope"] else token["role"]
    used = f"{token['used']:,} of {token['uses']:,}" if token["uses"] else "0"
    lets_in = f"for {duration(left)}" if left > 0 else f"expired {duration(-left)} ago"
    return [token["token"][:16], role, used, token["state"], lets_in, shown]


@token.command(short_help="Revoke a token: it admits no further member.")
@click.argument("token", metavar="TOKEN|@FILE|-|HASH")
@click.option("--reason", default="", help="Reason, shown to people.")
@click.option("--undo", is_flag=True, help="Let the token admit members again, within its uses and its time.")
@agent_options
@output_option
def revoke(token: str, reason: str, undo: bool, agent: str | None, identity: str | None, output: str) -> None:
    """Revoke a token: it admits no further member. Its members stay; to ban them, too:  agiledart ban @FILE

    \b
    Example:
      agiledart token revoke @pi.token
      agiledart token revoke 6d0b12f4              (as `token list` shows it)

    Ask an agent that holds the network's authority key (the founding agent), or use the token of an admin.
    """
    if len(reason) > MAX_REASON - 32 or not reason.isprintable():
        raise ConfigurationError(f"--reason has at most {MAX_REASON - 32} printable characters.")
    with connect(agent, identity) as client:
        link = _link_of(client, token)
        until = 0 if undo else int(time.time()) + MAX_SECONDS
        response = client.ask(
            SetBan(closed_token_target(link).hex(), until, f"token {link.hex()[:16]}: {reason or 'revoked'}")
        )
    if output == "json":
        print_json({**response, "token": link.hex()})
    elif undo:
        print_message(f"Token {link.hex()[:16]}… admits members again, within its uses and its time.", colour=GOOD)
    else:
        print_message(
            f"Token {link.hex()[:16]}… is revoked: it admits no further member; its members stay.", colour=GOOD
        )


def _link_of(client: ControlClient, text: str) -> bytes:
    """Return the hash of a token's link, from the token or from a prefix of that hash."""
    if text.startswith(("@", "adart1")) or text == "-":
        from agiledart_agent.identity.tokens import parse_token, read_token

        return parse_token(read_token(text)).record.token
    known = [str(row["token"]) for row in client.ask(Tokens())["tokens"]]
    matching = [link for link in known if link.startswith(text.lower())] if len(text) >= MIN_PREFIX else []
    if len(matching) != 1:
        raise ConfigurationError(
            f"This network has no token {text}. Give its file as @FILE, or at least {MIN_PREFIX} of the hex digits that "
            "`agiledart token list` shows."
        )
    return bytes.fromhex(matching[0])
