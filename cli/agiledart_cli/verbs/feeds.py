"""`agiledart feed`: create, list and remove feeds, the logs that take rows from writers."""

import click

from agiledart_cli.options import agent_options
from agiledart_cli.output import BAD, GOOD, count, output_option, print_json, print_message, print_table, when
from agiledart_cli.verb_connection import connect
from agiledart_control.control_client import ControlClient
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.text import harmless_document
from agiledart_node.wire.commands import CreateFeed, Feeds, Info, Nodes, RemoveFeed

_MIB = 1 << 20

at_option = click.option(
    "--at", "node", metavar="NODE", help="Node that keeps the feed, by name or id. Default: the asked agent's."
)


@click.group(short_help="Manage feeds: logs that take rows from Spark, for applications.")
def feed() -> None:
    """Manage feeds. A feed is a log that takes rows from writers, such as Spark, and that applications read as feed:NAME.

    \b
    Example:
      agiledart feed create usual-durations --at pi1
      agiledart token create --role writer --scope feed:usual-durations --output writer.token
      agiledart feed list

    In Spark:  frame.writeStream.format("agiledart").option("feed", "usual-durations").option("tokenFile", "writer.token")
    In a topology:  topology.source("usual", "feed:usual-durations", …), mostly as the stream of connect().
    """


@feed.command(short_help="Create a feed on a node.")
@click.argument("name")
@at_option
@click.option(
    "--max-mb",
    type=click.IntRange(1, 1 << 20),
    default=256,
    show_default=True,
    help="Size above which the oldest rows are removed, MiB.",
)
@agent_options
@output_option
def create(name: str, node: str | None, max_mb: int, agent: str | None, identity: str | None, output: str) -> None:
    """Create a feed. One that an admin creates is open to all applications, one of a submitter to the submitter's applications.

    \b
    Example:
      agiledart feed create usual-durations
      agiledart feed create usual-durations --at pi1 --max-mb 64
    """
    with connect(agent, identity) as client:
        keeper, shown = _node(client, node)
        client.ask(CreateFeed(name, keeper, max_mb * _MIB))
    if output == "json":
        print_json({"feed": name, "node": shown})
        return
    print_message(f"{name} is a feed on {shown}.", colour=GOOD)
    print_message(
        f"Let Spark write to it:  agiledart token create --role writer --scope feed:{name} --output {name}.token"
    )


@feed.command(name="list", short_help="List the feeds of all nodes.")
@agent_options
@output_option
def list_feeds(agent: str | None, identity: str | None, output: str) -> None:
    """List the feeds of all nodes.

    \b
    Example:
      agiledart feed list
    """
    with connect(agent, identity) as client:
        response = client.ask(Feeds())
    if output == "json":
        print_json(response)
        return
    shown = harmless_document(response)
    if not shown["feeds"]:
        click.echo("There is no feed. Create one:  agiledart feed create NAME")
    else:
        rows = [
            [
                row["name"],
                row["node"],
                count(row["rows"]),
                _mib(row["log_bytes"]),
                _mib(row["staged_bytes"]),
                when(row["published_ms"]) if row["published_ms"] else "never",
                row["owner"][:16] or "open to all",
            ]
            for row in shown["feeds"]
        ]
        columns = ["feed", "on", "rows", "log MiB", "staged MiB", "published", "owner"]
        print_table(columns, rows, right=["rows", "log MiB", "staged MiB"])
    if shown["silent_nodes"]:
        print_message(f"No answer from {', '.join(shown['silent_nodes'])}: their feeds are missing.", colour=BAD)


@feed.command(short_help="Remove a feed with its rows.")
@click.argument("name")
@at_option
@agent_options
@output_option
def remove(name: str, node: str | None, agent: str | None, identity: str | None, output: str) -> None:
    """Remove a feed with its rows. Applications that read it wait for another feed of this name.

    \b
    Example:
      agiledart feed remove usual-durations
    """
    with connect(agent, identity) as client:
        if node is None:
            keepers = {row["node_id"]: row["node"] for row in client.ask(Feeds())["feeds"] if row["name"] == name}
            if len(keepers) != 1:
                what = f"is on {', '.join(keepers.values())}: say which with --at" if keepers else "is not a feed"
                raise ConfigurationError(f"{name} {what}. agiledart feed list shows all.")
            ((keeper, shown),) = keepers.items()
        else:
            keeper, shown = _node(client, node)
        client.ask(RemoveFeed(name, keeper))
    if output == "json":
        print_json({"feed": name, "node": shown})
    else:
        print_message(f"{name} is removed from {shown}.", colour=GOOD)


def _node(client: ControlClient, node: str | None) -> tuple[str, str]:
    """Return (id, name) of a node; of the asked agent without one. Raises ConfigurationError."""
    if node is None:
        asked = client.ask(Info())
        return str(asked["node_id"]), str(asked["name"])
    rows = client.ask(Nodes())["nodes"]
    matching = [row for row in rows if node in (row["name"], row["node_id"])]
    if len(matching) != 1:
        fault = "is the name of several nodes: give its id" if matching else "is not a node that this agent knows"
        raise ConfigurationError(f"{node} {fault}. Known: {', '.join(sorted(str(row['name']) for row in rows)[:20])}")
    return str(matching[0]["node_id"]), str(matching[0]["name"])


def _mib(size: int) -> str:
    return f"{size / _MIB:.1f}"
