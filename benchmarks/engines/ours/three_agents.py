"""J3 on our engine: three agents on this machine, an executor each, TLS between them; submitted as users submit.

    python -m benchmarks.engines.ours.three_agents rows|columns PORT WARM_SECONDS [null]

The sink's file has each result's due time and the milliseconds since, so the same latencies are left out as
elsewhere. With `null` the sink only counts, for rates at which the file would be what is measured.
"""

import sys
import time
from pathlib import Path
from typing import Any

from agiledart_cli.verbs.cluster import Mesh
from agiledart_control.control_client import ControlClient
from agiledart_control.submission import make_submission
from agiledart_node.wire.commands import Status
from benchmarks.engines.jobs import Latencies, print_result
from benchmarks.engines.setup import HERE

NAME = "latency"
_POLL_SECONDS = 0.2
_RUNNING = ("deploying", "running")
_ENDS = {"trips": ["a1"], "totals+result": ["a2"], "results": ["a3"]}
FORMS = {
    "rows": ("latency", {**_ENDS, "derived": ["a1"]}),
    "columns": ("latency_columns", {**_ENDS, "kept+derived": ["a1"]}),
}
"""Form → (builder, stage → agents on which it must run)."""


def submit(client: ControlClient, form: str, port: int, results: str) -> None:
    """Submit the job, and make sure that tuples cross two hops."""
    settings = {"trips": f"tcp:127.0.0.1:{port}@a1", "results": f"{results}@a3", "name": NAME}
    builder, expected = FORMS[form]
    body = client.ask(make_submission(f"{HERE / 'ours' / 'taxi_pipeline.py'}:{builder}", settings, {}))
    if body["placement"] != expected:
        raise SystemExit(f"placed otherwise than wanted: {body['placement']}")


def wait(client: ControlClient) -> dict[str, Any]:
    """Wait until the job has ended; return its status."""
    while True:
        body: dict[str, Any] = client.ask(Status(NAME))
        if body["state"] not in _RUNNING:
            if body["state"] != "finished":
                raise SystemExit(f"{body['state']}: {body.get('reason')}")
            return body
        time.sleep(_POLL_SECONDS)


def latencies(path: Path, warm: float) -> dict[str, Any]:
    """Return the latencies of the rows that the sink wrote: zone, due time in ns, milliseconds since, …"""
    recorded = Latencies(warm)
    with path.open() as file:
        for line in file:
            _, due, late, _ = line.split(",", 3)
            recorded.add(int(due), int(due) + int(float(late) * 1e6))
    return recorded.result()


def main() -> None:
    """Carry out one run."""
    form, port, warm, counts_only = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4:] == ["null"]
    with Mesh(3) as mesh:
        mesh.start()
        path = mesh.folder / "results.csv"
        with mesh.client(0) as client:
            submit(client, form, port, "null:" if counts_only else f"csv:{path}")
            body = wait(client)
        if not counts_only:
            print_result(**latencies(path, warm))
            return
        summary = body["summary"]
        print_result(outputs=summary["results"]["results"], samples=0, last_ns=time.time_ns())


if __name__ == "__main__":
    main()
