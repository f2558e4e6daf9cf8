"""`agiledart secret`: manage passwords of connectors, each encrypted for the nodes that may use it."""

import sys
from typing import Any

import click

from agiledart_cli.options import agent_options
from agiledart_cli.output import BAD, GOOD, output_option, print_json, print_message, print_table, when
from agiledart_cli.verb_connection import connect
from agiledart_control.control_client import ControlClient
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.node_id import node_id_of_key
from agiledart_kernel.text import harmless_document
from agiledart_node.wire.commands import MAX_SECRET_BYTES, MAX_SECRET_NAME, Nodes, Secrets, SetSecret

HEX_DIGITS = 64

_TO = click.option(
    "--to", "nodes", multiple=True, required=True, metavar="NODE", help="Name, id or key of a node; may be repeated."
)
_FOR = click.option("--for", "application", required=True, metavar="APP", help="The application that may use it.")


@click.group(short_help="Manage the passwords of connectors on nodes.")
def secret() -> None:
    """Manage passwords of connectors, each encrypted for the nodes that need it. A connector refers to one: ?credentials=NAME.

    \b
    Example:
      agiledart secret set broker --to pi1 --to pi2 --for rooms     (prompts for it, or reads a pipe)
      agiledart submit rooms.py:rooms --set "readings=mqtts://host/rooms/+?credentials=broker"

    Only the named nodes can decrypt it. Only executors of that application receive it, at their start, in runs submitted by the
    user who set it. No record, log or process list contains it.
    """


@secret.command(name="set", short_help="Set a secret on nodes.")
@click.argument("name")
@_TO
@_FOR
@agent_options
@output_option
def set_secret(
    name: str, nodes: tuple[str, ...], application: str, agent: str | None, identity: str | None, output: str
) -> None:
    """Set a secret on nodes. The command reads its text from a pipe or prompts for it, never from the command line.

    \b
    Example:
      agiledart secret set broker --to pi1 --for rooms < broker.txt

    For MQTT the text is user:password, for HTTP the token, for SQL the whole URL. Running applications keep their old secret.
    """
    from agiledart_agent.executors.secret_store import sealed_for

    _check_name(name)
    text = _read_text(name)
    rows = []
    with connect(agent, identity) as client:
        for node in _found(client, nodes):
            sealed = sealed_for(bytes.fromhex(node["key"]), application, name, text)
            rows += client.ask(SetSecret(application, node["node_id"], name, sealed))["secrets"]
    _print_result(rows, output, f"{name} is set on {', '.join(nodes)} for {application}.")


@secret.command(short_help="Remove a secret from nodes.")
@click.argument("name")
@_TO
@_FOR
@agent_options
@output_option
def remove(
    name: str, nodes: tuple[str, ...], application: str, agent: str | None, identity: str | None, output: str
) -> None:
    """Remove a secret that you have set from nodes. Running applications keep it.

    \b
    Example:
      agiledart secret remove broker --to pi1 --for rooms
    """
    _check_name(name)
    with connect(agent, identity) as client:
        for node in _found(client, nodes, needs_key=False):
            client.ask(SetSecret(application, node["node_id"], name, b""))
    _print_result([], output, f"{name} is removed from {', '.join(nodes)}.")


@secret.command(name="list", short_help="List the secrets and their nodes.")
@click.option("--for", "application", default="", metavar="APP", help="Only those of this application.")
@agent_options
@output_option
def list_secrets(application: str, agent: str | None, identity: str | None, output: str) -> None:
    """List your secrets and their nodes, never their texts; an admin sees all secrets.

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
        click.echo("No node has a secret.")
    else:
        rows = [
            [row["name"], row["application"], row["node"], row["owner"][:16], when(row["set_ms"])]
            for row in shown["secrets"]
        ]
        print_table(["name", "for", "on", "set by", "when"], rows)
    if shown["silent_nodes"]:
        print_message(f"No answer from {', '.join(shown['silent_nodes'])}: their secrets are missing.", colour=BAD)


def _check_name(name: str) -> None:
    if not name.isprintable() or "/" in name or name.startswith(".") or not 1 <= len(name) <= MAX_SECRET_NAME:
        raise ConfigurationError(
            f"invalid name of a secret {name!r}: use up to {MAX_SECRET_NAME} characters, no / and no . at the beginning."
        )


def _read_text(name: str) -> str:
    """Return the text of a secret from a pipe, or from a prompt without echo."""
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
    """Return the rows of these nodes. The command verifies that each key matches its node id."""
    rows = client.ask(Nodes())["nodes"]
    chosen = []
    for node in dict.fromkeys(nodes):
        if len(node) == HEX_DIGITS:
            key = bytes.fromhex(node)
            chosen.append({"node_id": node_id_of_key(key).hex, "key": node.lower()})
            continue
        matching = [row for row in rows if node in (row["name"], row["node_id"])]
        if len(matching) != 1:
            fault = (
                "is not a node that this agent knows" if not matching else "is the name of several nodes: give its id"
            )
            raise ConfigurationError(
                f"{node} {fault}. Known: {', '.join(sorted(str(row['name']) for row in rows)[:20])}"
            )
        row = matching[0]
        if needs_key and (not row["key"] or node_id_of_key(bytes.fromhex(row["key"])).hex != row["node_id"]):
            raise ConfigurationError(f"The asked agent has no link with {node}: ask {node} itself, or give its key.")
        chosen.append(row)
    return chosen


def _print_result(rows: list[dict[str, Any]], output: str, text: str) -> None:
    if output == "json":
        print_json({"secrets": rows, "silent_nodes": []})
    else:
        print_message(text, colour=GOOD)
