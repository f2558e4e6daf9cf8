"""J3 over dora-rs: three nodes of one dataflow, started by `dora run`.

    python -m benchmarks.engines.others.dora_node tuple|batched PORT WARM_SECONDS               starts the dataflow
    python -m benchmarks.engines.others.dora_node tuple|batched PORT WARM_SECONDS ROLE FOLDER   is one node

Queues are as long as a run, because a full one drops tuples. A node stays until the sink has written its result: a
node that leaves closes its output, and the closing overtakes messages that still wait.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.engines.jobs import Latencies, print_result
from benchmarks.engines.others.nodes import ROLES, aggregate, sink, source

_QUEUE = 2_000_000
_RESULT = "result.json"


def messages(node: Any) -> Iterator[bytes]:
    """Yield the payloads of arriving messages."""
    for event in node:
        if event["type"] == "INPUT":
            yield event["value"].to_numpy(zero_copy_only=True).tobytes()
        elif event["type"] == "STOP":
            return


def run_node(role: str, port: int, warm: float, folder: Path, *, batched: bool) -> None:
    """Run one node of the dataflow."""
    import dora

    node = dora.Node()

    def send(payload: bytes) -> None:
        node.send_output("out", payload)

    if role == "source":
        source(port, send, batched=batched)
    elif role == "aggregate":
        aggregate(messages(node), send, batched=batched)
    else:
        latencies = Latencies(warm)
        sink(messages(node), latencies, batched=batched)
        part = folder / "result.part"
        part.write_text(json.dumps(latencies.result()))
        part.rename(folder / _RESULT)
    while not (folder / _RESULT).exists():
        time.sleep(0.01)


def dataflow(mode: str, port: str, warm: str, folder: Path) -> str:
    """Return the YAML of a dataflow of three nodes in a row."""
    text = ["nodes:"]
    for index, role in enumerate(ROLES):
        words = f"-m benchmarks.engines.others.dora_node {mode} {port} {warm} {role} {folder}"
        text += [f"  - id: {role}", f"    path: {sys.executable}", f"    args: {words}"]
        if index:
            text += ["    inputs:", "      x:", f"        source: {ROLES[index - 1]}/out"]
            text += [f"        queue_size: {_QUEUE}", "        queue_policy: backpressure"]
        if role != "sink":
            text += ["    outputs:", "      - out"]
    return "\n".join(text) + "\n"


def three(mode: str, port: str, warm: str) -> int:
    """Start the dataflow and wait for it."""
    with tempfile.TemporaryDirectory(prefix="dora-") as name:
        folder = Path(name)
        flow = folder / "flow.yml"
        flow.write_text(dataflow(mode, port, warm, folder))
        dora = Path(sys.executable).parent / "dora"
        done = subprocess.run(
            [str(dora), "run", str(flow)], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        result = folder / _RESULT
        if not result.exists():
            sys.stderr.buffer.write(done.stdout[-2000:])
            return 1
        print_result(**json.loads(result.read_text()))
    return 0


if __name__ == "__main__":
    if len(sys.argv) == 4:
        sys.exit(three(*sys.argv[1:]))
    run_node(sys.argv[4], int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[5]), batched=sys.argv[1] == "batched")
