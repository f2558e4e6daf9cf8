"""`agiledart checkpoint`: list, take, export, restore and remove checkpoints of an application."""

from pathlib import Path

import click

from agiledart_cli.known_names import APPLICATION
from agiledart_cli.options import agent_options
from agiledart_cli.output import GOOD, count, output_option, print_json, print_message
from agiledart_cli.verb_connection import connect
from agiledart_cli.verbs.application_view import print_checkpoints, print_retained
from agiledart_cli.verbs.applications import KEEP_SECONDS
from agiledart_cli.verbs.state.export_file import fetched
from agiledart_cli.verbs.state.lost_voters import recover
from agiledart_cli.verbs.state.restoring import restore
from agiledart_cli.verbs.wait_reporter import of_application, waits_reported
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.text import harmless_document
from agiledart_node.wire.checkpoint_commands import Checkpoints, ExportCheckpoint, RemoveCheckpoint

TAKE_SECONDS = 120.0
"""Timeout of the commit of a checkpoint; the agent gives up earlier by itself."""


@click.group(short_help="List, take, export and restore checkpoints.")
def checkpoint() -> None:
    """List, take, export and restore checkpoints of an application with delivery="exactly-once".

    \b
    Example:
      agiledart checkpoint list frequent-routes
      agiledart checkpoint take frequent-routes
      agiledart stop frequent-routes --checkpoint before-the-change
      agiledart checkpoint export before-the-change --output routes.checkpoint
      agiledart checkpoint restore before-the-change taxi.py:frequent_routes
      agiledart checkpoint recover frequent-routes --without pi3 --without pi4
    """


@checkpoint.command(name="list", short_help="List the snapshots of each instance and the retained checkpoints.")
@click.argument("name", type=APPLICATION, required=False, default="")
@agent_options
@output_option
def list_checkpoints(name: str, agent: str | None, identity: str | None, output: str) -> None:
    """List the snapshots of each instance in the last two committed checkpoints with their replica nodes, and the retained
    checkpoints (`stop --checkpoint`). NAME may also be a retained checkpoint. Without NAME: all retained
    checkpoints of all applications.

    `agiledart status` shows the result of this: how many machines may be lost at once.

    \b
    Example:
      agiledart checkpoint list
      agiledart checkpoint list frequent-routes
      agiledart checkpoint list frequent-routes -o json
      agiledart checkpoint list before-the-change
    """
    with connect(agent, identity) as client:
        response = client.ask(Checkpoints(name))
    if output == "json":
        print_json(response)
    elif name:
        print_checkpoints(harmless_document(response))
    elif not response["retained"]:
        click.echo("No checkpoint is retained. Retain one: agiledart stop APP --checkpoint S")
    else:
        print_retained(harmless_document(response)["retained"])


@checkpoint.command(short_help="Take a checkpoint now, and wait until it is committed.")
@click.argument("name", type=APPLICATION)
@agent_options
@output_option
def take(name: str, agent: str | None, identity: str | None, output: str) -> None:
    """Take a checkpoint now, unless one is in progress, and wait until it is committed; rows in the sinks are then committed.

    \b
    Example:
      agiledart checkpoint take frequent-routes
    """
    with connect(agent, identity) as client, waits_reported(agent, identity, of_application(name)):
        response = client.ask(Checkpoints(name, take=True), timeout=TAKE_SECONDS)
    if output == "json":
        print_json(response)
    else:
        print_checkpoints(harmless_document(response))


@checkpoint.command(short_help="Remove a retained checkpoint.")
@click.argument("name", metavar="S")
@agent_options
@output_option
def remove(name: str, agent: str | None, identity: str | None, output: str) -> None:
    """Remove a retained checkpoint for good from all nodes that store it. If several have the same name, give the hash of the
    file: the refusal shows it, and  checkpoint list -o json.

    \b
    Example:
      agiledart checkpoint remove before-the-change
    """
    with connect(agent, identity) as client:
        response = client.ask(RemoveCheckpoint(name))
    if output == "json":
        print_json(response)
    else:
        response = harmless_document(response)
        print_message(
            f"{response['name']} of {response['application']} is removed from {', '.join(response['nodes'])}.",
            colour=GOOD,
        )


@checkpoint.command(short_help="Write the state of an application into one file.")
@click.argument("name", metavar="APP|S", type=APPLICATION)
@click.option("--output", "-f", "path", required=True, type=click.Path(path_type=Path), help="The file to write.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@agent_options
@click.option("-o", "output", type=click.Choice(["text", "json"]), default="text", help="Format of the final message.")
def export(name: str, path: Path, force: bool, agent: str | None, identity: str | None, output: str) -> None:
    """Write the newest committed checkpoint of a running application, or a retained checkpoint, into one file.

    \b
    Example:
      agiledart checkpoint export frequent-routes --output routes.checkpoint
      agiledart checkpoint export before-the-change --output routes.checkpoint --agent pi1:9464 --identity me

    The file appears under its name only after it is complete and verified, and only you can read it. It is not encrypted: its
    readers see the state. The application keeps running. A running application takes precedence over a retained checkpoint of
    the same name.
    """
    if path.exists() and not force:
        raise ConfigurationError(f"{path} exists already: use another name, or --force to overwrite it.")
    if not path.absolute().parent.is_dir():
        raise ConfigurationError(f"There is no folder {path.absolute().parent} to write {path.name} into.")
    with connect(agent, identity) as client:
        response = client.ask(
            ExportCheckpoint(name), on_progress=lambda text: print_message(f"  {text}"), timeout=KEEP_SECONDS
        )
        fetched(client, response, path)
    if output == "json":
        print_json({**response, "file": str(path)})
    else:
        response = harmless_document(response)
        print_message(
            f"{path}: {response['application']} v{response['version']}, checkpoint {response['epoch']},"
            f" {count(response['bytes'])} bytes.",
            colour=GOOD,
        )


checkpoint.add_command(recover)
checkpoint.add_command(restore)
