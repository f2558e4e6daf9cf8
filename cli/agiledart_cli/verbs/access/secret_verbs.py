"""`agiledart secret`: passwords of connectors, sealed to the nodes that may open them."""

import sys
from typing import Any

import click

from agiledart_cli.control_client import ControlClient, connect
from agiledart_cli.options import agent_options
from agiledart_cli.output import BAD, GOOD, output_option, print_json, print_message, print_table, when
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.node_id import node_id_of_key
from agiledart_kernel.text import harmless_document
from agiledart_node.wire.commands import MAX_SECRET_BYTES, MAX_SECRET_NAME, Nodes, Secrets, SetSecret

HEX_DIGITS = 64

_TO = click.option(
    "--to", "nodes", multiple=True, required=True, metavar="NODE", help="Name, id or key of a node; may be repeated."
)
_FOR = click.option("--for", "application", required=True, metavar="APP", help="The application that may use it.")


@click.group(short_help="Passwords of connectors, for the nodes that need them.")
def secret() -> None:
    """Passwords of connectors, sealed to the nodes that need them. A connector names one as any credential: ?credentials=NAME.

    \b
    Example:
      agiledart secret set broker --to pi1 --to pi2 --for rooms     (asks for it, or reads a pipe)
      agiledart submit rooms.py:rooms --set "readings=mqtts://host/rooms/+?credentials=broker"

    Only the nodes can open it, and only executors of that application get it, when they start, of runs that whoever set it submits.
    It stands in no record, log or list of processes.
    """


@secret.command(name="set", short_help="Give a secret to nodes.")
@click.argument("name")
@_TO
@_FOR
@agent_options
@output_option
def set_secret(
    name: str, nodes: tuple[str, ...], application: str, agent: str | None, identity: str | None, output: str
) -> None:
    """Give a secret to nodes. Its text comes from a pipe, or is asked for; it never stands in the command line.

    \b
    Example:
      agiledart secret set broker --to pi1 --for rooms < broker.txt

    For MQTT the text is user:password, for HTTP the token, for SQL the whole URL. Runs that go on keep what they were started with.
    """
    from agiledart_agent.executors.secret_store import sealed_for

    _check_name(name)
    text = _read_text(name)
    rows = []
    with connect(agent, identity) as client:
        for node in _found(client, nodes):
            sealed = sealed_for(bytes.fromhex(node["key"]), application, name, text)
            rows += client.ask(SetSecret(application, node["node_id"], name, sealed))["secrets"]
    _print_result(rows, output, f"{name} is kept by {', '.join(nodes)} for {application}.")


@secret.command(short_help="Have nodes forget a secret.")
@click.argument("name")
@_TO
@_FOR
@agent_options
@output_option
def remove(
    name: str, nodes: tuple[str, ...], application: str, agent: str | None, identity: str | None, output: str
) -> None:
    """Have nodes forget a secret that you have set. Runs that go on keep what they were started with.

    \b
    Example:
      agiledart secret remove broker --to pi1 --for rooms
    """
    _check_name(name)
    with connect(agent, identity) as client:
        for node in _found(client, nodes, needs_key=False):
            client.ask(SetSecret(application, node["node_id"], name, b""))
    _print_result([], output, f"{name} is forgotten by {', '.join(nodes)}.")


@secret.command(name="list", short_help="Which secrets are kept where.")
@click.option("--for", "application", default="", metavar="APP", help="Only those of this application.")
@agent_options
@output_option
def list_secrets(application: str, agent: str | None, identity: str | None, output: str) -> None:
    """Which secrets are kept where, never their texts: yours, and all of them for an admin.

    \b
    Example:
      agiledart secret list
    """
    with connect(agent, identity) as client:
        response = client.ask(Secrets(application))
    if output == "json":
        print_json(response)
        return
    shown = harmless_document(response)
    if not shown["secrets"]:
        click.echo("No node keeps a secret.")
    else:
        rows = [
            [row["name"], row["application"], row["node"], row["owner"][:16], when(row["set_ms"])]
            for row in shown["secrets"]
        ]
        print_table(["name", "for", "on", "set by", "when"], rows)
    if shown["silent_nodes"]:
        print_message(f"No answer from {', '.join(shown['silent_nodes'])}: theirs are not here.", colour=BAD)


def _check_name(name: str) -> None:
    if not name.isprintable() or "/" in name or name.startswith(".") or not 1 <= len(name) <= MAX_SECRET_NAME:
        raise ConfigurationError(
            f"{name!r} is no name of a secret: up to {MAX_SECRET_NAME} characters, without / and no . first."
        )


def _read_text(name: str) -> str:
    """From a pipe, or from the user, who does not see it."""
    if sys.stdin.isatty():
        text = click.prompt(f"{name}", hide_input=True, confirmation_prompt="again", err=True)
    else:
        text = sys.stdin.buffer.read(MAX_SECRET_BYTES + 2).decode("utf-8", "replace")
    text = text.rstrip("\r\n")
    if not text or len(text.encode()) > MAX_SECRET_BYTES or "\n" in text or "\0" in text:
        raise ConfigurationError(
            f"A secret is one line of 1 to {MAX_SECRET_BYTES:,} bytes. Give it by a pipe:  agiledart secret set {name} … < FILE"
        )
    return str(text)


def _found(client: ControlClient, nodes: tuple[str, ...], *, needs_key: bool = True) -> list[dict[str, Any]]:
    """The rows of these nodes; that a key belongs to its node's id is computed here, not believed."""
    rows = client.ask(Nodes())["nodes"]
    found = []
    for node in dict.fromkeys(nodes):
        if len(node) == HEX_DIGITS:
            key = bytes.fromhex(node)
            found.append({"node_id": node_id_of_key(key).hex, "key": node.lower()})
            continue
        matching = [row for row in rows if node in (row["name"], row["node_id"])]
        if len(matching) != 1:
            what = "is no node that this agent knows" if not matching else "is the name of several nodes: give its id"
            raise ConfigurationError(
                f"{node} {what}. Known: {', '.join(sorted(str(row['name']) for row in rows)[:20])}"
            )
        row = matching[0]
        if needs_key and (not row["key"] or node_id_of_key(bytes.fromhex(row["key"])).hex != row["node_id"]):
            raise ConfigurationError(
                f"The agent that was asked has no link with {node}: ask that one, or give its key."
            )
        found.append(row)
    return found


def _print_result(rows: list[dict[str, Any]], output: str, text: str) -> None:
    if output == "json":
        print_json({"secrets": rows, "silent_nodes": []})
    else:
        print_message(text, colour=GOOD)
