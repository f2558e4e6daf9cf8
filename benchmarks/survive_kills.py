"""Longest time without a new result after kill -9 of a host, without a word about delivery, on the DEBS stream.

    python -m benchmarks.survive_kills [--kills 20] [--kinds between,state,sink,source,bystander,calm]
        [--speed 120] [--seed 1] [-o json]

Six agents that count as machines of their own run query 1 of the DEBS 2015 challenge at the pace of its event times. Its stateless
step and its windows are moved to machines between source and sink. Each kill ends the agent of one kind of host and its executors.
The machines of source and sink begin again at once, the others once the application runs without them. A bystander, which runs no
step, is frozen for ten seconds instead: no result may come later for it. In `calm`, nothing happens for ten seconds. At the end the
application is stopped. Its file is compared with that of an undisturbed run, line by line: which rows are lost, and which are there
twice.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from agiledart_examples.taxi_trips import generate
from agiledart_experiments.recovery.plug_mesh import COMMAND, LOOK_SECONDS, PlugMesh, plug_mesh, until
from agiledart_kernel.errors import OperationFailed
from benchmarks.trip_feed import time_blocks

MACHINES: Final = 6
INTERVAL: Final = 10
NAME: Final = "frequent-routes"
TARGET: Final = "agiledart_examples.debs2015:frequent_routes"
SOURCE, SINK = "a1", f"a{MACHINES}"
KINDS: Final = {"between": "ride_of", "state": "route-frequency", "sink": "report", "source": "trips"}
"""Kind of host → the step that makes a machine one."""

BYSTANDER: Final = "bystander"
CALM: Final = "calm"
FROZEN_SECONDS: Final = 10.0

HOMES: Final = {"ride_of": ("a2", "a3"), "route-frequency": ("a4", "a5")}
"""Step → the machines between source and sink on which it may be when one of them is killed."""

CALM_SECONDS: Final = 6.0
SECONDS_A_KILL: Final = 40.0
TIMEOUT_S: Final = 180.0


def main(arguments: list[str] | None = None) -> int:
    """Run it; a line for each kill on stderr, the figures on stdout."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.survive_kills", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--kills", type=int, default=20, help="of each kind")
    parser.add_argument("--kinds", default=",".join((*KINDS, BYSTANDER, CALM)))
    parser.add_argument("--speed", type=float, default=120.0, help="of the stream, as a multiple of real time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    chosen = parser.parse_args(arguments)
    kinds = [kind for kind in chosen.kinds.split(",") if kind in (*KINDS, BYSTANDER, CALM)]
    loads = [os.getloadavg()[0]]
    with plug_mesh(MACHINES, INTERVAL) as mesh:
        seconds = 60.0 + SECONDS_A_KILL * chosen.kills * len(kinds)
        write_trips(mesh.folder / "trips.csv", seconds * chosen.speed, chosen.seed)
        expected = undisturbed(mesh.folder)
        out = mesh.folder / "out.csv"
        mesh.ask(
            "submit", TARGET, "--set", f"trips=csv:{mesh.folder / 'trips.csv'}?speed={chosen.speed:g}@{SOURCE}",
            "--set", f"report=csv:{out}@{SINK}",
        )  # fmt: skip
        took: dict[str, list[float]] = {kind: [] for kind in kinds}
        for _ in range(chosen.kills):
            for kind in kinds:
                took[kind].append(kill(mesh, kind, out) if kind in KINDS else watch(mesh, kind, out))
                loads.append(os.getloadavg()[0])
                print(f"{kind}: {took[kind][-1]:.2f} s at load {loads[-1]:.1f}", file=sys.stderr, flush=True)
        calm(mesh)
        ended = mesh.ask("stop", NAME)
        document = figures(took) | compared(out, expected)
    document |= {"counted_as_duplicates": ended["summary"].get("duplicated", {}), "loads": [min(loads), max(loads)]}
    print(json.dumps(document) if chosen.output == "json" else "\n".join(f"{k}: {v}" for k, v in document.items()))
    return 0 if not document["lost"] else 1


def write_trips(file: Path, span: float, seed: int) -> None:
    """Write the trips of so many seconds of event time."""
    blocks = time_blocks(generate(seed=seed), 60.0)
    with file.open("wb") as lines:
        for _ in range(int(span // 60.0) + 1):
            lines.write(next(blocks))


def undisturbed(folder: Path) -> list[str]:
    """Return the lines that one process writes that reads the whole file."""
    words = ("run", TARGET, "--set", "trips=csv:trips.csv", "--set", "report=csv:expected.csv")
    subprocess.run([*COMMAND, *words], cwd=folder, check=True, capture_output=True)
    return (folder / "expected.csv").read_text().splitlines()


def status(mesh: PlugMesh) -> dict[str, Any] | None:
    """Return the status of a running application; None while it is recovering, or no agent answers."""
    try:
        response: dict[str, Any] = mesh.ask("status", NAME)
    except OperationFailed:
        return None
    if response["state"] not in ("running", "recovering"):
        raise RuntimeError(f"the application is {response['state']}: {response['reason']}")
    return response if response["state"] == "running" and not response.get("recovery") else None


def calm(mesh: PlugMesh) -> dict[str, Any]:
    """Return the status once all machines are in the ring and the application has saved its state; with steps in their places."""
    until(lambda: True if all(machine.is_alive for machine in mesh.machines) else None, TIMEOUT_S, "all machines live")
    now = until(lambda: status(mesh), TIMEOUT_S, "the application runs")
    for step, homes in HOMES.items():
        if now["placement"][step][0] not in homes:
            until(lambda step=step, home=homes[0]: moved(mesh, step, home), TIMEOUT_S, f"{step} is moved")  # type: ignore[misc]
    time.sleep(CALM_SECONDS)
    return until(lambda: status(mesh), TIMEOUT_S, "the application runs")


def moved(mesh: PlugMesh, step: str, home: str) -> bool | None:
    """Move a step; None when that is refused just now."""
    try:
        mesh.ask("move", NAME, step, home)
    except OperationFailed:
        return None
    return True


def kill(mesh: PlugMesh, kind: str, out: Path) -> float:
    """Kill a host of a kind; return the longest time without a new result until the application runs again, in seconds."""
    victim = mesh.machine(calm(mesh)["placement"][KINDS[kind]][0])
    begins_at_once = victim.name in (SOURCE, SINK)
    seen = set(out.read_text().splitlines())
    runs_again = threading.Event()

    def restart() -> None:
        if begins_at_once:
            victim.start()
        until(lambda: status(mesh), TIMEOUT_S, "the application runs")
        runs_again.set()

    victim.signal(signal.SIGKILL)
    victim.kill_and_remove()
    last = time.monotonic()
    end, longest, is_over = last + TIMEOUT_S, 0.0, False
    threading.Thread(target=restart).start()
    while not is_over:
        ran_again = runs_again.is_set()
        new = {line.rstrip("\n") for line in out.read_text().splitlines(keepends=True) if line.endswith("\n")} - seen
        now = time.monotonic()
        if new:
            longest, last, is_over = max(longest, now - last), now, ran_again
            seen |= new
        if now > end:
            raise OperationFailed(f"no new result within {TIMEOUT_S:.0f} s of the kill of a {kind}")
        time.sleep(LOOK_SECONDS)
    if not begins_at_once:
        victim.start()
    return longest


def watch(mesh: PlugMesh, kind: str, out: Path) -> float:
    """Return the longest time without a new result while a machine that runs no step is frozen, or nothing happens, in seconds."""
    busy = {host for hosts in calm(mesh)["placement"].values() for host in hosts}
    victim = next(machine for machine in mesh.machines if machine.name not in busy)
    if kind == BYSTANDER:
        victim.signal(signal.SIGSTOP)
    last = time.monotonic()
    end, size, longest = last + FROZEN_SECONDS, out.stat().st_size, 0.0
    while (now := time.monotonic()) < end:
        if out.stat().st_size != size:
            longest, last, size = max(longest, now - last), now, out.stat().st_size
        time.sleep(LOOK_SECONDS)
    victim.signal(signal.SIGCONT)
    return max(longest, now - last)


def figures(took: dict[str, list[float]]) -> dict[str, Any]:
    """Return the median, the 95th percentile and the maximum of each kind, in seconds."""
    rows = {}
    for kind, seconds in took.items():
        p95 = statistics.quantiles(seconds, n=20, method="inclusive")[-1] if len(seconds) > 1 else max(seconds)
        figures = {"median_s": statistics.median(seconds), "p95_s": p95, "max_s": max(seconds)}
        rows[kind] = {"kills": len(seconds)} | {name: round(figure, 2) for name, figure in figures.items()}
    return rows


def without_delay(line: str) -> str:
    """Return a result without its last column, the delay, which differs from run to run."""
    return line.rpartition(",")[0]


def compared(out: Path, expected: list[str]) -> dict[str, Any]:
    """Compare the file of the stopped application with as many lines of the undisturbed one."""
    expected = [without_delay(line) for line in expected]
    lines = [without_delay(line) for line in out.read_text().splitlines()]
    last = max((number for number, line in enumerate(expected) if line == lines[-1]), default=len(expected) - 1)
    wanted, written = Counter(expected[: last + 1]), Counter(lines)
    return {
        "rows": len(lines),
        "lost": (wanted - written).total(),
        "repeated": (written - wanted).total(),
    }


if __name__ == "__main__":
    sys.exit(main())
