"""Download of a checkpoint file from an agent; the file is complete and verified, or absent."""

import base64
import os
import sys
from pathlib import Path
from typing import Any

import click

from agiledart_cli.output import count
from agiledart_control.control_client import ControlClient
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.text import harmless
from agiledart_node.wire.transfer_commands import ReadCheckpoint


def fetched(client: ControlClient, response: dict[str, Any], path: Path) -> None:
    """Download a checkpoint file from the agent in chunks, and verify all of it before it gets its name."""
    from agiledart_agent.checkpoints.checkpoint_file import InvalidCheckpointFile, verify
    from agiledart_agent.state_files.durable_file import sync_folder

    part = path.absolute().with_name(f".{path.name}.{os.getpid()}.part")
    size, at = int(response["bytes"]), 0
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            while at < size:
                piece = client.ask(ReadCheckpoint(response["application"], response["digest"], at))
                data = base64.b64decode(piece["data"])
                if not data:
                    raise OperationFailed(f"The agent sent only {at:,} of {size:,} bytes. Try again.")
                at += len(data)
                file.write(data)
                _print_progress(at, size)
            file.flush()
            os.fsync(file.fileno())
        _, digest = verify(part)
        if digest.hex() != response["digest"]:
            raise OperationFailed("The downloaded file is not the announced checkpoint. Try again.")
        part.replace(path)
        sync_folder(path.absolute().parent)
    except InvalidCheckpointFile as error:
        raise OperationFailed(f"The downloaded file is damaged: {harmless(str(error))}. Try again.") from None
    except OSError as error:
        raise OperationFailed(f"{path} cannot be written: {(error.strerror or str(error)).lower()}") from None
    finally:
        _end_progress()
        part.unlink(missing_ok=True)


def _print_progress(at: int, size: int) -> None:
    """Print the progress on a terminal."""
    if sys.stderr.isatty():
        click.echo(f"\r  {count(at)} of {count(size)} bytes", err=True, nl=False)


def _end_progress() -> None:
    if sys.stderr.isatty():
        click.echo("", err=True)
