"""Access to logs that a benchmark wrote behind an agent's back."""

import time
from pathlib import Path
from typing import Final

from agiledart_agent.identity.reader_identity import identity_from_token
from agiledart_cli.verbs.cluster import Mesh
from agiledart_node.wire.commands import CreateToken
from agiledart_sink_log.client import SinkLogClient, SinkLogError

LOOK_SECONDS: Final = 0.5
MOST_SECONDS: Final = 60.0


def reader_token(mesh: Mesh, folder: Path) -> Path:
    """Return a file with a token that may read all logs of a mesh."""
    with mesh.client(0) as client:
        text = str(client.ask(CreateToken(role="reader", uses=10_000))["token"])
    token = folder / "reader.token"
    token.touch(mode=0o600)
    token.write_text(text)
    return token


def wait_until_served(token: Path, *sinks: str) -> None:
    """Wait until readers find these logs: an agent announces a log that it did not write within half a minute.

    Raises `SinkLogError` when a log is not found in time.
    """
    identity, addresses = identity_from_token(f"@{token}")
    deadline = time.monotonic() + MOST_SECONDS
    with SinkLogClient(addresses, identity) as reader:
        for sink in sinks:
            while True:
                try:
                    reader.locate(sink)
                    break
                except SinkLogError:
                    if time.monotonic() > deadline:
                        raise
                time.sleep(LOOK_SECONDS)
