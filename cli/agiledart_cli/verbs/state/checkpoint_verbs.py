"""`agiledart checkpoint`: what is safe of an application, an epoch now, and state as a file that outlives it."""

from pathlib import Path

import click

from agiledart_cli.control_client import connect
from agiledart_cli.options import agent_options
from agiledart_cli.output import GOOD, count, output_option, print_json, print_message
from agiledart_cli.verbs.application_view import print_checkpoints
from agiledart_cli.verbs.applications import KEEP_SECONDS
from agiledart_cli.verbs.state.export_file import fetched
from agiledart_cli.verbs.state.lost_voters import recover
from agiledart_cli.verbs.state.restoring import restore
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.text import harmless_document
from agiledart_node.wire.commands import Checkpoints, ExportCheckpoint, RemoveCheckpoint

TAKE_SECONDS = 120.0
"""For an epoch to be committed; the agent gives up by itself before."""


@click.group(short_help="What is safe of an application; export, restore.")
def checkpoint() -> None:
    """What is safe of an application with delivery="exactly-once", an epoch now, and its state as a file.

    \b
    Example:
      agiledart checkpoint list frequent-routes
      agiledart checkpoint take frequent-routes
      agiledart stop frequent-routes --checkpoint before-the-change
      agiledart checkpoint export before-the-change --output routes.checkpoint
      agiledart checkpoint restore before-the-change taxi.py:frequent_routes
      agiledart checkpoint recover frequent-routes --without pi3 --without pi4
    """


@checkpoint.command(name="list", short_help="What each instance saved, who keeps it, and what outlives the run.")
@click.argument("name")
@agent_options
@output_option
def list_checkpoints(name: str, agent: str | None, identity: str | None, output: str) -> None:
    """What each instance of an application saved for the last two committed epochs, and who keeps it; and the checkpoints of it
    that were kept under a name (`stop --checkpoint`). NAME may be such a checkpoint's, too.

    SURVIVES in `agiledart status` is what follows from that: how many machines may be lost at once.

    \b
    Example:
      agiledart checkpoint list frequent-routes
      agiledart checkpoint list frequent-routes -o json
      agiledart checkpoint list before-the-change
    """
    with connect(agent, identity) as client:
        response = client.ask(Checkpoints(name))
    if output == "json":
        print_json(response)
    else:
        print_checkpoints(harmless_document(response))


@checkpoint.command(short_help="Begin an epoch now, and wait until it is committed.")
@click.argument("name")
@agent_options
@output_option
def take(name: str, agent: str | None, identity: str | None, output: str) -> None:
    """Begin an epoch now, unless one is under way, and wait until it is committed: what the sinks took until then counts.

    \b
    Example:
      agiledart checkpoint take frequent-routes
    """
    with connect(agent, identity) as client:
        response = client.ask(Checkpoints(name, take=True), timeout=TAKE_SECONDS)
    if output == "json":
        print_json(response)
    else:
        print_checkpoints(harmless_document(response))


@checkpoint.command(short_help="Keep a checkpoint no longer.")
@click.argument("name", metavar="S")
@agent_options
@output_option
def remove(name: str, agent: str | None, identity: str | None, output: str) -> None:
    """Let a checkpoint that was kept under a name go, on all nodes that keep it. It is gone for good. Where several have one name,
    the hash of the file says which one: it is in the refusal, and in  checkpoint list -o json.

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
            f"{response['name']} of {response['application']} is gone from {', '.join(response['nodes'])}.", colour=GOOD
        )


@checkpoint.command(short_help="The state of an application as one file.")
@click.argument("name", metavar="APP|S")
@click.option("--output", "-f", "path", required=True, type=click.Path(path_type=Path), help="The file to write.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@agent_options
@click.option(
    "-o", "output", type=click.Choice(["text", "json"]), default="text", help="What to print when it is done."
)
def export(name: str, path: Path, force: bool, agent: str | None, identity: str | None, output: str) -> None:
    """Write the newest committed epoch of an application that runs, or a checkpoint that is kept under a name, into one file.

    \b
    Example:
      agiledart checkpoint export frequent-routes --output routes.checkpoint
      agiledart checkpoint export before-the-change --output routes.checkpoint --agent pi1:9464 --identity me

    The file is whole or not there, readable by you alone, and checked to its last byte before it has its name. It is not
    encrypted: who has it can read the state. The application goes on meanwhile. An application that runs comes before a checkpoint
    of its name.
    """
    if path.exists() and not force:
        raise ConfigurationError(f"{path} is there already: take another name, or --force to write over it.")
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
            f"{path}: {response['application']} v{response['version']}, epoch {response['epoch']}, {count(response['bytes'])} bytes.",
            colour=GOOD,
        )


checkpoint.add_command(recover)
checkpoint.add_command(restore)
