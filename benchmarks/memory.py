"""Memory of an agent and one executor together while a job runs: rows, and columns with pyarrow.

    python -m benchmarks.memory [--tuples 1000000] [-o json]

PSS: pages that processes share are divided between them. One agent, everything on it; the largest sum is printed.
"""

import argparse
import itertools
import json
import sys
import tempfile
import time
from pathlib import Path

from agiledart_cli.verbs.cluster import Mesh
from agiledart_control.submission import make_submission
from agiledart_examples.taxi_trips import generate
from agiledart_node.wire.commands import Info, Status
from benchmarks.engines import setup
from benchmarks.engines.data import file_of
from benchmarks.run import QUERY, memory

GOALS = {"rows": 98.0, "columns": 140.0}
_LOOK_SECONDS = 0.1


def largest(target: str, settings: dict[str, str]) -> float:
    """Return the largest PSS of agent and executor in MB, from the start of the job to its end."""
    seen = 0.0
    with Mesh(1) as mesh:
        mesh.start()
        agent = mesh.agents[0].process.pid
        with mesh.client(0) as client:
            submission = make_submission(target, settings, {})
            name = client.ask(submission)["name"]
            while (body := client.ask(Status(name)))["state"] in ("deploying", "running"):
                for executor in client.ask(Info())["executors"]:
                    try:
                        seen = max(seen, memory(executor["pid"]) + memory(agent))
                    except OSError:
                        continue
                time.sleep(_LOOK_SECONDS)
            if body["state"] != "finished":
                raise SystemExit(f"{target}: {body['state']}: {body.get('reason')}")
    return seen


def main() -> int:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--tuples", type=int, default=1_000_000, help="of the job in columns; a tenth as many trips")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    given = parser.parse_args()
    sizes: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="adm-", dir="/tmp") as folder:
        trips = Path(folder) / "trips.csv"
        with trips.open("w") as file:
            file.writelines(line + "\n" for line in itertools.islice(generate(seed=3), given.tuples // 10))
        sizes["rows"] = largest(QUERY, {"trips": f"csv:{trips}", "report": f"csv:{folder}/rows.csv"})
        tuples = file_of(setup.FOLDER / "data", given.tuples)
        target = f"{setup.HERE / 'ours' / 'zone_windows.py'}:windows"
        sizes["columns"] = largest(target, {"trips": f"csv:{tuples}", "results": f"csv:{folder}/columns.csv"})
    if given.output == "json":
        print(json.dumps({f"agent_and_executor_{name}_pss_mb": round(size, 1) for name, size in sizes.items()}))
        return 0
    for name, size in sizes.items():
        print(f"agent and executor, {name:8} {size:7.1f} MB PSS   goal ≤ {GOALS[name]:g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
