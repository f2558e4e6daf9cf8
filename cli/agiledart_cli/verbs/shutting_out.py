"""Verbs about who is shut out: `ban`, `unban`, `bans`."""

import time
from datetime import timedelta
from typing import Any

import click

from agiledart_cli.control_client import ControlClient, connect
from agiledart_cli.options import agent_options
from agiledart_cli.output import BAD, GOOD, duration, output_option, print_json, print_table, say
from agiledart_cli.verbs.network import time_span
from agiledart_kernel.bans import MAX_REASON, MAX_SECONDS
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.text import harmless_document
from agiledart_node.wire.commands import Ban, Bans, Nodes

HEX_DIGITS = 64


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
        body = client.ask(Ban(key, int(time.time()) + seconds, reason))
    _tell(body, output, f"{target} is banned{'' if span is None else f' for {duration(seconds)}'}.")


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
        known = [row["target"] for row in client.ask(Bans())["bans"]]
        matching = [key for key in known if key.startswith(target.lower())] if len(target) >= 8 else []
        key = matching[0] if len(matching) == 1 else _key_of(client, target)
        body = client.ask(Ban(key, 0))
    _tell(body, output, f"{key[:16]}… is banned no more.")


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
        body = client.ask(Bans())
    if output == "json":
        print_json(body)
    elif not body["bans"]:
        click.echo("Nothing is banned.")
    else:
        _print(harmless_document(body))


def _tell(body: dict[str, Any], output: str, text: str) -> None:
    if output == "json":
        print_json(body)
    else:
        say(text, colour=GOOD)


def _print(body: dict[str, Any]) -> None:
    now = time.time()
    rows = []
    for one in body["bans"]:
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
        say(f"{target} has no link with the agent that was asked.", colour=BAD)
        raise ConfigurationError(f"Ask an agent that has one, or give the key of {target}: 64 hex digits.")
    return str(found[0]["key"])
