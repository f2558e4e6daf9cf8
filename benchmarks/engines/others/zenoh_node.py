"""J3 over Zenoh: three peers on this machine joined over TCP, nothing encrypted, no discovery by multicast.

    python -m benchmarks.engines.others.zenoh_node tuple|batched PORT WARM_SECONDS          starts the three
    python -m benchmarks.engines.others.zenoh_node tuple|batched PORT WARM_SECONDS ROLE BASE  is one of them

Messages go out at once (`express`) and wait for a slow receiver instead of being dropped (`BLOCK`).
"""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import zenoh

from benchmarks.engines.jobs import Latencies, print_result
from benchmarks.engines.others.nodes import END, ROLES, aggregate, sink, source

_PROPAGATE_SECONDS = 1.0
"""Time for the subscriptions to reach all peers."""


def session(index: int, base: int) -> Any:
    """Open a session of a peer that listens and dials the peers before it."""
    config = zenoh.Config()
    config.insert_json5("mode", '"peer"')
    config.insert_json5("scouting/multicast/enabled", "false")
    config.insert_json5("listen/endpoints", json.dumps([f"tcp/127.0.0.1:{base + index}"]))
    if index:
        config.insert_json5("connect/endpoints", json.dumps([f"tcp/127.0.0.1:{base + i}" for i in range(index)]))
    return zenoh.open(config)


def messages(subscriber: Any) -> Iterator[bytes]:
    """Yield the payloads of arriving messages."""
    for sample in subscriber:
        payload: bytes = sample.payload.to_bytes()
        yield payload
        if payload == END:
            return


def node(role: str, port: int, warm: float, base: int, *, batched: bool) -> None:
    """Run one of the three processes."""
    index = ROLES.index(role)
    opened = session(index, base)
    send: Any = opened.declare_publisher(
        f"bench/{index}", congestion_control=zenoh.CongestionControl.BLOCK, express=True
    ).put
    if role == "source":
        sys.stdin.readline()
        source(port, send, batched=batched)
        time.sleep(_PROPAGATE_SECONDS)  # the last messages must leave before the session closes
    else:
        subscriber = opened.declare_subscriber(f"bench/{index - 1}")
        print("UP", flush=True)
        if role == "aggregate":
            aggregate(messages(subscriber), send, batched=batched)
            time.sleep(_PROPAGATE_SECONDS)
        else:
            latencies = Latencies(warm)
            sink(messages(subscriber), latencies, batched=batched)
            print_result(**latencies.result())
    opened.close()


def three(mode: str, port: str, warm: str) -> int:
    """Start the three processes, the source last."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        base = min(free.getsockname()[1], 60_000)
    processes = []
    for role in ROLES:
        command = [sys.executable, "-m", "benchmarks.engines.others.zenoh_node", mode, port, warm, role, str(base)]
        reads = subprocess.PIPE if role == "source" else None
        processes.append(subprocess.Popen(command, stdin=reads, stdout=None if role == "source" else subprocess.PIPE))
        if role != "source":
            assert processes[-1].stdout is not None
            processes[-1].stdout.readline()
    time.sleep(_PROPAGATE_SECONDS)
    processes[0].communicate(b"\n")
    for process in processes[1:]:
        sys.stdout.buffer.write(process.communicate()[0])
    return max(process.returncode for process in processes)


if __name__ == "__main__":
    if len(sys.argv) == 4:
        sys.exit(three(*sys.argv[1:]))
    node(sys.argv[4], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[5]), batched=sys.argv[1] == "batched")
