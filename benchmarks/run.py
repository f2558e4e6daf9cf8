"""Memory, start-up and rates of agents and executors on this machine, beside the goals of the design.

    python -m benchmarks.run [--trips 100000] [--submissions 10] [-o json]

Rates of rows through the engine stand beside a plain Python loop that parses the same lines, measured in the same run: on a
shared machine only the ratio means something.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from agiledart_cli.verbs.cluster import Mesh
from agiledart_control.control_client import ControlClient
from agiledart_control.submission import make_submission
from agiledart_examples.taxi_trips import generate
from agiledart_node.wire.commands import Info, Status, Stop

QUERY = "agiledart_examples.debs2015:frequent_routes"
NAME = "frequent-routes"

GOALS = {
    "agent_idle_rss_mb": "≤ 60",
    "agent_and_executor_pss_mb": "≤ 98",
    "submit_to_running_s_max": "p99 ≤ 2",
}


def memory(pid: int, what: str = "Pss") -> float:
    """Return the MB of a process: `Pss` (shared pages divided) or `Rss`."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) / 1024
    return 0.0


def cpu_seconds(pid: int) -> float:
    """Return user and system time of a process so far, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def write_trips(path: Path, count: int) -> None:
    """Write generated trips as a plain file, so that no decompression is measured."""
    with path.open("w") as file:
        file.writelines(line + "\n" for line in itertools.islice(generate(seed=3), count))


def plain_loop(path: Path) -> float:
    """Return the seconds for the least work of any Python program on the lines: read, split, convert."""
    began = time.perf_counter()
    counted = 0
    with path.open() as file:
        for line in file:
            fields = line.split(",")
            counted += float(fields[6]) < 0 and float(fields[7]) > 0 and float(fields[8]) < 0 and float(fields[9]) > 0
    assert counted
    return time.perf_counter() - began


def wait_until_ended(client: ControlClient) -> dict[str, Any]:
    """Wait until the query has ended; return its status."""
    while True:
        body: dict[str, Any] = client.ask(Status(NAME))
        if body["state"] not in ("deploying", "running"):
            return body
        time.sleep(0.05)


def submit(client: ControlClient, source: str, report: str) -> float:
    """Return the seconds from submission to running."""
    began = time.perf_counter()
    client.ask(make_submission(QUERY, {"trips": source, "report": report}, {}))
    return time.perf_counter() - began


def measure_agents(folder: Path, trips: Path, count: int, submissions: int) -> dict[str, Any]:
    """Measure idle memory, start, submission and the rate through three nodes."""
    figures: dict[str, Any] = {}
    began = time.perf_counter()
    with Mesh(5) as mesh:
        mesh.start()
        figures["ring_of_5_s"] = time.perf_counter() - began
        pids = [agent.process.pid for agent in mesh.agents]
        before = {pid: cpu_seconds(pid) for pid in pids}
        idle = time.perf_counter()
        time.sleep(5)
        figures["agent_idle_rss_mb"] = statistics.median(memory(pid, "Rss") for pid in pids)
        figures["agent_idle_pss_mb"] = statistics.median(memory(pid) for pid in pids)
        spent = sum(cpu_seconds(pid) - before[pid] for pid in pids) / len(pids)
        figures["agent_idle_cpu_percent"] = 100 * spent / (time.perf_counter() - idle)
        with mesh.client(0) as client:
            times = []
            for _ in range(submissions):
                times.append(submit(client, f"csv:{trips}?speed=1@a2", f"csv:{folder}/r.csv@a3"))
                client.ask(Stop(NAME, now=True))
                wait_until_ended(client)
            figures["submit_to_running_s_median"] = statistics.median(times)
            figures["submit_to_running_s_max"] = max(times)

            submit(client, f"csv:{trips}@a2", f"csv:{folder}/r.csv@a3")
            executors: dict[int, float] = {}
            pairs: list[float] = []
            began = time.perf_counter()
            while client.ask(Status(NAME))["state"] in ("deploying", "running"):
                for index, agent in enumerate(mesh.agents):
                    with mesh.client(index) as other:
                        for executor in other.ask(Info())["executors"]:
                            try:
                                executors[executor["pid"]] = memory(executor["pid"], "Rss")
                                pairs.append(memory(executor["pid"]) + memory(agent.process.pid))
                            except OSError:
                                continue
                time.sleep(0.1)
            took = time.perf_counter() - began
        figures["mesh_seconds"] = took
        figures["mesh_trips_per_s"] = count / took
        if executors:
            figures["executor_rss_mb"] = statistics.median(executors.values())
            figures["agent_and_executor_pss_mb"] = max(pairs)
    return figures


def measure_run(folder: Path, trips: Path, count: int) -> dict[str, Any]:
    """Measure one process: the engine's rate and the plain loop's, alternating."""
    ratios, rates = [], []
    for _ in range(3):
        plain = plain_loop(trips)
        script = (
            "import time; from agiledart import csv; from agiledart_examples.debs2015 import frequent_routes;"
            "from agiledart_executor.local_runs.local_run import run_topology;"
            f"t = frequent_routes(csv({str(trips)!r}), csv({str(folder / 'l.csv')!r}));"
            "b = time.perf_counter(); run_topology(t); print(time.perf_counter() - b)"
        )
        ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        took = float(ran.stdout.split()[-1])
        ratios.append(took / plain)
        rates.append(count / took)
    return {"run_trips_per_s": statistics.median(rates), "run_over_plain_split_loop": statistics.median(ratios)}


def measure_start(folder: Path) -> dict[str, Any]:
    """Measure the seconds from the command to a ring of one agent that answers, and those of `agiledart --help`."""
    figures = {}
    times = [_timed(partial(_start_one, folder / f"s{n}")) for n in range(3)]
    figures["agent_start_s"] = statistics.median(times)
    helps = [
        _timed(
            lambda: subprocess.run([sys.executable, "-m", "agiledart_cli.main", "--help"], stdout=subprocess.DEVNULL)
        )
        for _ in range(3)
    ]
    figures["help_s"] = statistics.median(helps)
    return figures


def _timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def _start_one(state: Path) -> None:
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "agiledart_cli.main",
            "agent",
            "--state-dir",
            str(state),
            "--listen",
            "127.0.0.1:0",
            "--metrics",
            "127.0.0.1:0",
        ],
        stderr=subprocess.DEVNULL,
    )
    try:
        while not (state / "agent.json").exists():
            time.sleep(0.005)
    finally:
        process.kill()
        process.wait()


def main() -> int:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--trips", type=int, default=100_000)
    parser.add_argument("--submissions", type=int, default=10)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    given = parser.parse_args()
    figures: dict[str, Any] = {"trips": given.trips, "cores": os.cpu_count()}
    with tempfile.TemporaryDirectory(prefix="adb-", dir="/tmp") as name:
        folder = Path(name)
        trips = folder / "trips.csv"
        print("writing trips …", file=sys.stderr)
        write_trips(trips, given.trips)
        print("starting agents …", file=sys.stderr)
        figures |= measure_start(folder)
        print("in one process …", file=sys.stderr)
        figures |= measure_run(folder, trips, given.trips)
        print("five agents …", file=sys.stderr)
        figures |= measure_agents(folder, trips, given.trips, given.submissions)
    if given.output == "json":
        print(json.dumps({key: round(v, 4) if isinstance(v, float) else v for key, v in figures.items()}, indent=2))
        return 0
    for key, value in figures.items():
        shown = f"{value:,.3f}" if isinstance(value, float) else f"{value:,}"
        print(f"{key:32} {shown:>14}   {'goal ' + GOALS[key] if key in GOALS else ''}".rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
