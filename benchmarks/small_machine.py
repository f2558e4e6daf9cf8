"""Many small applications on one agent: memory, CPU, and how long each submission takes.

    python -m benchmarks.small_machine [--applications 20] [--seconds 20] [--share none|owner] [-o json]

Each application reads a file at 10 rows a second of its event time, keeps the rows above a bound, and counts them by key and
minute into a sink log. PSS: pages that processes share are divided between them. With root and cgroup v2 the processes run in
a cgroup of 1 GB; without, the output says so. Reads `/proc`.
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agiledart_agent.settings import SHARE_MODES
from agiledart_cli.verbs.cluster import Mesh
from agiledart_control.control_client import ControlClient
from agiledart_control.submission import make_submission
from agiledart_kernel.errors import OperationFailed
from agiledart_node.wire.commands import ListApplications, Status
from benchmarks.engines import setup
from benchmarks.processes import tree
from benchmarks.run import cpu_seconds, memory

RULE = f"{setup.HERE / 'ours' / 'small_rule.py'}:rule"
ROWS_A_SECOND = 10
LIMIT_BYTES = 1_000_000_000
CGROUPS = Path("/sys/fs/cgroup")
START_SECONDS = 60.0
REST_SECONDS = 5.0
"""Time after the last submission before CPU is measured."""

_LOOK_SECONDS = 0.002


def write_readings(path: Path, seconds: float) -> None:
    """Write an input that lasts for so many seconds at `ROWS_A_SECOND`."""
    with path.open("w") as file:
        for number in range(int(seconds * ROWS_A_SECOND)):
            file.write(f"{number * 1_000 // ROWS_A_SECOND},{number % 7},{number * 7_919 % 101}\n")


@contextlib.contextmanager
def memory_limit() -> Iterator[bool]:
    """Put this process and those that it starts into a cgroup of 1 GB; yield whether that was possible."""
    folder = CGROUPS / f"small-machine-{os.getpid()}"
    if not (CGROUPS / "cgroup.controllers").exists():
        yield False
        return
    try:
        before = CGROUPS / Path("/proc/self/cgroup").read_text().strip().rpartition("::")[2].lstrip("/")
        folder.mkdir()
        try:
            (folder / "memory.max").write_text(str(LIMIT_BYTES))
            (folder / "cgroup.procs").write_text(str(os.getpid()))
        except OSError:
            folder.rmdir()
            raise
    except OSError:
        yield False
        return
    try:
        yield True
    finally:
        (before / "cgroup.procs").write_text(str(os.getpid()))
        with contextlib.suppress(OSError):  # a process that has just been killed may still be in it
            folder.rmdir()


def submit_timed(client: ControlClient, name: str, readings: Path) -> float:
    """Submit one application. Return the seconds until it runs; raises `SystemExit` when it does not."""
    settings = {"readings": f"csv:{readings}?speed=1", "results": f"log:{name}"}
    submission = make_submission(RULE, settings, {}, name=name)
    began = time.monotonic()
    try:
        client.ask(submission)
    except OperationFailed as error:
        raise SystemExit(f"{name}: {error}") from None
    while (body := client.ask(Status(name)))["state"] == "deploying":
        if time.monotonic() - began > START_SECONDS:
            raise SystemExit(f"{name} does not run after {START_SECONDS:.0f} s: {body.get('reason')}")
        time.sleep(_LOOK_SECONDS)
    if body["state"] != "running":
        raise SystemExit(f"{name}: {body['state']}: {body.get('reason')}")
    return time.monotonic() - began


def role(pid: int, agent: int) -> str:
    """Return whether a process of the agent's tree is the agent, its nursery, an executor or another."""
    if pid == agent:
        return "agent"
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"agiledart_executor.programs.nursery" in words:  # a forked executor has the same command line
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            return "nursery" if parent == agent else "executors"
        if b"agiledart_executor.programs.worker" in words:
            return "executors"
    return "others"


def sizes(agent: int) -> dict[str, list[float]]:
    """Return the PSS in MB of each process of the agent's tree, by role."""
    by_role: dict[str, list[float]] = {}
    for pid in tree(agent):
        with contextlib.suppress(OSError):
            by_role.setdefault(role(pid, agent), []).append(memory(pid))
    return by_role


def cpu_percent(agent: int, seconds: float) -> dict[str, float]:
    """Return the share of one core that the agent's tree takes, in percent, by role."""
    before = {pid: cpu_seconds(pid) for pid in tree(agent)}
    began = time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    shares: dict[str, float] = {}
    for pid, cpu in before.items():
        with contextlib.suppress(OSError):
            name = role(pid, agent)
            shares[name] = shares.get(name, 0.0) + 100 * (cpu_seconds(pid) - cpu) / took
    return {name: round(share, 2) for name, share in sorted(shares.items())}


def measure(applications: int, seconds: float, folder: Path) -> dict[str, Any]:
    """Start the applications one after the other, and measure while all run."""
    readings = folder / "readings.csv"
    write_readings(readings, applications * 5 + seconds + 600)
    with Mesh(1) as mesh:
        mesh.start()
        agent = mesh.agents[0].process.pid
        idle = {"rss_mb": round(memory(agent, "Rss"), 1), "pss_mb": round(memory(agent), 1)}
        with mesh.client(0) as client:
            times = [submit_timed(client, f"r{number}", readings) for number in range(applications)]
            time.sleep(REST_SECONDS)
            shares = cpu_percent(agent, seconds)
            by_role = sizes(agent)
            states = [body["state"] for body in client.ask(ListApplications())["applications"]]
    ordered = sorted(times)
    figures: dict[str, Any] = {
        "applications": applications,
        "running": states.count("running"),
        "idle_agent": idle,
        "pss_mb": {name: round(sum(values), 1) for name, values in sorted(by_role.items())},
        "pss_mb_all": round(sum(map(sum, by_role.values())), 1),
        "executors": len(by_role.get("executors", ())),
        "executor_pss_mb_p50": round(statistics.median(by_role.get("executors", [0.0])), 2),
        "cpu_percent": shares,
        "cpu_percent_all": round(sum(shares.values()), 1),
        "submit_to_running_s_p50": round(statistics.median(times), 3),
        "submit_to_running_s_p99": round(ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)], 3),
        "submit_to_running_s_first": round(times[0], 3),
        "submit_to_running_s_by_ten": [
            round(statistics.median(times[first : first + 10]), 3) for first in range(0, applications, 10)
        ],
    }
    if applications >= 20:
        tenth, last = statistics.median(times[5:15]), statistics.median(times[-10:])
        figures["last_ten_submissions_to_the_tenth"] = round(last / tenth, 2)
    return figures


def main() -> int:
    """Measure once."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--applications", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=20.0, help="for which CPU is measured")
    parser.add_argument("--share", choices=SHARE_MODES, default=SHARE_MODES[0], help="[executors] share of the agent")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    given = parser.parse_args()
    os.environ["AGILEDART_AGENT__EXECUTORS_SHARE"] = given.share
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="small-", dir="/tmp") as folder, memory_limit() as is_limited:
        figures = measure(given.applications, given.seconds, Path(folder))
    figures |= {
        "share": given.share,
        "in_a_cgroup_of_1_gb": is_limited,
        "load_before": round(load, 1),
        "load_after": round(os.getloadavg()[0], 1),
    }
    if given.output == "json":
        print(json.dumps(figures, indent=1))
        return 0
    for name, value in figures.items():
        print(f"{name:36} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
