"""The file of a checkpoint between an agent and the command line: downloaded, matched with a topology, uploaded."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from agiledart_cli.output import WATCH, count, plural, print_message
from agiledart_cli.verbs.applications import KEEP_SECONDS
from agiledart_cli.verbs.state.export_file import fetched
from agiledart_cli.verbs.state.restore_plan import PlannedTopology, RestorePlan, graph_of, plan_restore
from agiledart_control.control_client import ControlClient
from agiledart_control.errors import CommandRefusedError
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_kernel.text import harmless
from agiledart_node.wire.checkpoint_commands import ExportCheckpoint
from agiledart_node.wire.commands import Submit
from agiledart_node.wire.transfer_commands import MAX_UPLOAD_CHUNK_BYTES, UploadCheckpoint


@contextlib.contextmanager
def checkpoint_file(client: ControlClient, origin: str) -> Iterator[Path]:
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


def matched(path: Path, origin: str, command: Submit, drops: tuple[str, ...]) -> tuple[RestorePlan, str, bytes]:
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


def upload(client: ControlClient, path: Path, digest: bytes, name: str) -> None:
    """Upload the file to the asked agent for an application; chunks that it has already are skipped."""
    size, at = path.stat().st_size, 0
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


def print_matched(plan: RestorePlan, about: str) -> None:
    """Print which steps continue with which state."""
    print_message(f"From {harmless(about)}:")
    for name, text in plan.taken:
        print_message(f"  {name} {text}")
    if plan.dropped:
        print_message(f"  omitted: {', '.join(plan.dropped)}", colour=WATCH)
    if plan.empty:
        print_message(
            f"  {plural(len(plan.empty), 'step')} without state, new or omitted: {', '.join(plan.empty)}",
            colour=WATCH,
        )
