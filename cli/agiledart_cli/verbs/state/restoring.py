"""`agiledart checkpoint restore`: start a topology with the state of a checkpoint."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from agiledart_cli.control_client import ControlClient, connect
from agiledart_cli.errors import CommandRefusedError
from agiledart_cli.known_names import BUILDER
from agiledart_cli.options import agent_options, not_empty, parallelism_option, parse_parallelism, set_option
from agiledart_cli.output import WATCH, count, output_option, plural, print_json, print_message
from agiledart_cli.verbs.application_view import print_plan
from agiledart_cli.verbs.applications import KEEP_SECONDS
from agiledart_cli.verbs.state.export_file import fetched
from agiledart_cli.verbs.state.restore_plan import PlannedTopology, RestorePlan, graph_of, plan_restore
from agiledart_cli.verbs.submit import SUBMIT_SECONDS, make_submission, name_of
from agiledart_dataflow.plan.delivery import Delivery
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_kernel.text import harmless, harmless_document
from agiledart_node.wire.commands import (
    MAX_UPLOAD_CHUNK_BYTES,
    CheckpointOrigin,
    ExportCheckpoint,
    Submit,
    UploadCheckpoint,
)


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
    with connect(agent, identity) as client, _file_of(client, origin) as path:
        match, about, digest = _matched(path, origin, command, drops)
        if output != "json":
            _print_matched(match, about)
        command = msgspec.structs.replace(command, dry_run=dry_run)
        if not dry_run:
            _upload(client, path, digest, command)
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


@contextlib.contextmanager
def _file_of(client: ControlClient, origin: str) -> Iterator[Path]:
    """Yield the file of a checkpoint; a retained checkpoint is downloaded first."""
    path = Path(origin)
    if path.is_file():
        yield path
        return
    if "/" in origin or path.suffix:
        with contextlib.suppress(CommandRefusedError):
            response = client.ask(ExportCheckpoint(origin), timeout=KEEP_SECONDS)
            with _fetched(client, response) as got:
                yield got
            return
        raise ConfigurationError(f"There is no file {origin}, and no retained checkpoint of that name.")
    response = client.ask(
        ExportCheckpoint(origin), on_progress=lambda text: print_message(f"  {text}"), timeout=KEEP_SECONDS
    )
    with _fetched(client, response) as got:
        yield got


@contextlib.contextmanager
def _fetched(client: ControlClient, response: dict[str, Any]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="agiledart-") as folder:
        path = Path(folder) / "checkpoint"
        fetched(client, response, path)
        yield path


def _matched(path: Path, origin: str, command: Submit, drops: tuple[str, ...]) -> tuple[RestorePlan, str, bytes]:
    """Return what the topology restores of a file, a text about the file, and its hash. Raises errors for the user."""
    from agiledart_agent.checkpoints.checkpoint_file import InvalidCheckpointFile, verify
    from agiledart_agent.checkpoints.pending_merge_rows import pending_merge_rows
    from agiledart_dataflow.plan.specification import Specification
    from agiledart_dataflow.plan.stages import expand_parallelism, plan_stages

    try:
        manifest, digest = verify(path)
        before = graph_of(manifest.specification, manifest.plan, origin)
        stages = {stage.index: stage.name for stage in before.plan.stages}
        waiting = {stages.get(index, str(index)): rows for index, rows in pending_merge_rows(path, manifest).items()}
    except InvalidCheckpointFile as error:
        raise OperationFailed(harmless(str(error).replace(str(path), origin))) from None
    except OSError as error:
        raise OperationFailed(f"{origin} cannot be read: {(error.strerror or str(error)).lower()}") from None
    specification = msgspec.msgpack.decode(command.specification, type=Specification)
    after = PlannedTopology(
        specification, plan_stages(specification, expand_parallelism(specification, command.parallelism))
    )
    match = plan_restore(before, after, manifest.snapshots, waiting, drops)
    about = f"{manifest.application} v{manifest.version}, epoch {manifest.epoch}"
    return match, f"checkpoint {manifest.name} of {about}" if manifest.name else about, digest


def _print_matched(found: RestorePlan, about: str) -> None:
    print_message(f"From {harmless(about)}:")
    for name, text in found.taken:
        print_message(f"  {name} {text}")
    if found.dropped:
        print_message(f"  omitted: {', '.join(found.dropped)}", colour=WATCH)
    if found.empty:
        print_message(
            f"  {plural(len(found.empty), 'step')} without state, new or omitted: {', '.join(found.empty)}",
            colour=WATCH,
        )


def _upload(client: ControlClient, path: Path, digest: bytes, command: Submit) -> None:
    """Upload the file to the asked agent; chunks that it has already are skipped."""
    size, at = path.stat().st_size, 0
    name = name_of(command)
    with path.open("rb") as file:
        while True:
            file.seek(at)
            data = file.read(MAX_UPLOAD_CHUNK_BYTES)
            progress = client.ask(UploadCheckpoint(name, digest.hex(), size, at, data))
            if progress["is_whole"]:
                return
            if not data or int(progress["have"]) <= at:
                raise OperationFailed(f"The agent accepted only {count(at)} of {count(size)} bytes. Try again.")
            at = int(progress["have"])
