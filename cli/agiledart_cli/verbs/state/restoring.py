"""`agiledart checkpoint restore`: start a topology with the state of a checkpoint."""

import click
import msgspec

from agiledart_cli.builder_names import BUILDER
from agiledart_cli.options import agent_options, not_empty, parallelism_option, parse_parallelism, set_option
from agiledart_cli.output import output_option, print_json, print_message
from agiledart_cli.verb_connection import connect
from agiledart_cli.verbs.application_view import print_plan
from agiledart_cli.verbs.state.checkpoint_transfer import checkpoint_file, matched, print_matched, upload
from agiledart_control.submission import SUBMIT_SECONDS, make_submission, name_of
from agiledart_dataflow.plan.delivery import Delivery
from agiledart_kernel.text import harmless_document
from agiledart_node.wire.checkpoint_commands import CheckpointOrigin


@click.command(short_help="Start a topology with the state of a checkpoint.")
@click.argument("origin", metavar="S|FILE")
@click.argument("target", metavar="FILE:NAME", type=BUILDER)
@set_option
@parallelism_option
@click.option("--name", default="", callback=not_empty, help="The application's name. Default: the topology's own.")
@click.option("--drop", "drops", multiple=True, metavar="STEP", help="Omit the state of this step; may be repeated.")
@click.option("--executors", type=click.IntRange(1, 64), default=None, help="Worker processes of each node to use.")
@click.option(
    "--dry-run", is_flag=True, help="Show which steps would be restored, omitted or empty, and the placement."
)
@agent_options
@output_option
def restore(
    origin: str,
    target: str,
    settings: tuple[str, ...],
    parallelism: tuple[str, ...],
    name: str,
    drops: tuple[str, ...],
    executors: int | None,
    dry_run: bool,
    agent: str | None,
    identity: str | None,
    output: str,
) -> int:
    """Run a topology with the state of a checkpoint: the retained checkpoint S, or a FILE that `export` wrote.

    \b
    Example:
      agiledart checkpoint restore before-the-change taxi.py:frequent_routes
      agiledart checkpoint restore routes.checkpoint taxi.py:frequent_routes --parallelism routes=4 --dry-run
      agiledart checkpoint restore before-the-change taxi.py:frequent_routes --drop old_step --name routes-2

    Steps are matched by name: a source continues at its position, a step continues with its state, on its present number of
    instances. New steps start empty, and the command names them. It refuses a step of the checkpoint that the topology does not
    have, or that has other keys or another meaning there, unless --drop omits its state. Rows that wait to be merged fit the same
    topology only. ORIGIN is a FILE when it exists or has a dot or a slash, else the name S.
    """
    from agiledart_executor.user_code.parameter import parse_settings

    command = make_submission(
        target,
        parse_settings(settings),
        parse_parallelism(parallelism),
        name=name,
        executors=executors or 0,
    )
    if not Delivery.named(command.delivery).is_saved:
        command = msgspec.structs.replace(command, delivery=Delivery.EXACTLY_ONCE)
    with connect(agent, identity) as client, checkpoint_file(client, origin) as path:
        match, about, digest = matched(path, origin, command, drops)
        if output != "json":
            print_matched(match, about)
        command = msgspec.structs.replace(command, dry_run=dry_run)
        if not dry_run:
            upload(client, path, digest, name_of(command))
            command = msgspec.structs.replace(
                command, origin=CheckpointOrigin(match.kind, about, digest, match.snapshots)
            )
        response = client.ask(command, on_progress=lambda text: print_message(f"  {text}"), timeout=SUBMIT_SECONDS)
    from agiledart_connectors.probing import FILE_EXISTS

    for row in response.get("checks", ()):
        if row["is_good"] and row["stage"] in match.sinks and row["text"] == FILE_EXISTS:
            row["text"] = "exists; continues where the checkpoint ends"
    if output == "json":
        taken = {"from": about, "kind": match.kind, "taken": [name for name, _ in match.taken]}
        print_json({**response, "checkpoint": {**taken, "dropped": list(match.dropped), "empty": list(match.empty)}})
    else:
        print_plan(harmless_document(response), dry_run=dry_run)
    return 0
