"""`agiledart model`: send a model's file to the nodes of a running application, which then knows it by its hash."""

from hashlib import sha256
from pathlib import Path

import click

from agiledart_cli.known_names import APPLICATION
from agiledart_cli.options import agent_options
from agiledart_cli.output import GOOD, count, output_option, print_json, print_message
from agiledart_cli.verb_connection import connect
from agiledart_control.control_client import ControlClient
from agiledart_kernel.errors import ConfigurationError, OperationFailed, system_text
from agiledart_kernel.limits import MAX_MODEL_BYTES
from agiledart_kernel.text import harmless_document
from agiledart_node.wire.commands import ShareModel
from agiledart_node.wire.transfer_commands import MAX_UPLOAD_CHUNK_BYTES, UploadModel

SHARE_SECONDS = 1_800.0

PICKLE = b"\x80"
"""First byte of a pickle of protocol 2 and later."""


@click.command(short_help="Send a model to the nodes of an application while rows flow.")
@click.argument("name", metavar="APP", type=APPLICATION)
@click.argument("file", type=click.Path(path_type=Path))
@agent_options
@output_option
def model(name: str, file: Path, agent: str | None, identity: str | None, output: str) -> None:
    """Send an ONNX model to all nodes of an application while its rows flow; they fetch it from each other, by its hash.

    \b
    Example:
      agiledart model rooms quality.onnx
      mosquitto_pub -t models -m sha256:9f86d08…      (a row of the control stream of `score`)

    The printed name is a row of the control stream that the step `score` reads. The model counts from that row on, and each
    later row names its version. Nothing changes before. Exit code 1 when a node could not fetch the file.
    """
    data = _read(file)
    with connect(agent, identity) as client:
        digest = sha256(data).hexdigest()
        _upload(client, name, digest, data)
        response = client.ask(
            ShareModel(name, digest, len(data)),
            on_progress=lambda text: print_message(f"  {text}"),
            timeout=SHARE_SECONDS,
        )
    if output == "json":
        print_json(response)
        return
    shown = harmless_document(response)
    print_message(
        f"{', '.join(shown['nodes'])} have version {shown['version']} ({count(shown['size'])} bytes).", colour=GOOD
    )
    click.echo(shown["reference"])


def _read(file: Path) -> bytes:
    """Return a model's file. Raises `ConfigurationError`: it cannot be read, or is no model that nodes take."""
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_MODEL_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {system_text(error)}") from None
    if len(data) > MAX_MODEL_BYTES:
        raise ConfigurationError(f"{file} has more than the {MAX_MODEL_BYTES:,} bytes that a model may have.")
    if not data:
        raise ConfigurationError(f"{file} is empty: export the model again.")
    if data.startswith(PICKLE):
        raise ConfigurationError(
            f"{file} is a pickle, which no node opens. Convert the model to ONNX:  pip install skl2onnx"
        )
    return data


def _upload(client: ControlClient, name: str, digest: str, data: bytes) -> None:
    """Upload the file to the asked agent, piece by piece."""
    at = 0
    while True:
        piece = data[at : at + MAX_UPLOAD_CHUNK_BYTES]
        progress = client.ask(UploadModel(name, digest, len(data), at, piece))
        if progress["is_whole"]:
            return
        if int(progress["have"]) <= at:
            raise OperationFailed(f"The agent accepted only {count(at)} of {count(len(data))} bytes. Try again.")
        at = int(progress["have"])
