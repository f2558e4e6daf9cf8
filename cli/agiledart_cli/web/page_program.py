"""Program of the page that an agent starts at a visit (`agent.web`): it reads only, and ends when no viewer is left.

    python -m agiledart_cli.web.page_program STATE_DIR IDLE_SECONDS

Each line of its input is a visit, with the secret of the page's address; the answer is the page's port. It ends when its
input ends, as it does with the agent.
"""

import os
import select
import sys
import time
from collections.abc import Sequence

from agiledart_cli.web.mesh_watcher import MeshWatcher
from agiledart_cli.web.page_requests import PageRequests
from agiledart_cli.web.page_server import PageServer, serving
from agiledart_control import control_client
from agiledart_control.control_client import ControlClient

LOOK_SECONDS = 1.0
MAX_LINE = 1_024


def serve_until_idle(state_dir: str, idle_seconds: float, input_fd: int, output_fd: int) -> None:
    """Serve the page of the agent in a state directory."""

    def connected() -> ControlClient:
        return control_client.connect(state_dir)

    watcher = MeshWatcher(connected)
    server = PageServer(0, watcher, PageRequests(connected), time.monotonic)
    seen = time.monotonic()
    with serving(server):
        while time.monotonic() - seen < idle_seconds or watcher.has_viewers:
            if watcher.has_viewers:
                seen = time.monotonic()
            ready, _, _ = select.select([input_fd], [], [], min(LOOK_SECONDS, idle_seconds))
            if not ready:
                continue
            line = os.read(input_fd, MAX_LINE)
            if not line:
                return
            server.access.secret = line.decode().split()[-1]
            seen = time.monotonic()
            os.write(output_fd, f"{server.server_address[1]}\n".encode())


def main(arguments: Sequence[str]) -> None:
    """Run the program."""
    state_dir, idle_seconds = arguments
    serve_until_idle(state_dir, float(idle_seconds), sys.stdin.fileno(), sys.stdout.fileno())


if __name__ == "__main__":
    main(sys.argv[1:])
