"""Server of generated taxi trips over TCP for one client, so many times as fast as they happened, until the client closes.

    python -m benchmarks.trip_feed SPEED [SEED]

Prints the port. The generator stays out of the processes that are measured: its 13,000 taxis and trips under way take 13 MB.
"""

import contextlib
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from agiledart_examples.taxi_trips import generate

SEND_INTERVAL_SECONDS = 0.1
"""Trips that end within one turn, as their clock goes, leave together."""

_DROPOFF = 3
"""Column of the time by which the stream is sorted."""


def time_blocks(lines: Iterable[str], span: float) -> Iterator[bytes]:
    """Yield the lines of each span of so many seconds of event time, empty spans included."""
    end: float | None = None
    block: list[str] = []
    for line in lines:
        now = datetime.fromisoformat(line.split(",", _DROPOFF + 1)[_DROPOFF]).replace(tzinfo=UTC).timestamp()
        if end is None:
            end = now + span
        while now >= end:
            yield "".join(block).encode()
            block.clear()
            end += span
        block.append(line + "\n")


def feed(client: socket.socket, speed: float, seed: int) -> None:
    """Send until the client closes; a slow client makes the generator wait."""
    start = time.monotonic()
    for number, block in enumerate(time_blocks(generate(seed=seed), SEND_INTERVAL_SECONDS * speed), start=1):
        time.sleep(max(0.0, start + number * SEND_INTERVAL_SECONDS - time.monotonic()))
        client.sendall(block)


def main() -> None:
    """Serve one client."""
    speed, seed = float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    client, _ = listener.accept()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        feed(client, speed, seed)


if __name__ == "__main__":
    main()
