"""Does a job survive hours of failures, and is anything left behind? Processes are killed one after the other.

    python -m benchmarks.soak_plug [--minutes 480] [--every 300] [--keys 20000] [--rate 500] [--seed 1] [-o json]

Six agents that count as machines of their own run the job of the experiment `pull-the-plug` (running sums by key). Every `--every`
seconds one of them dies: the agent of a random machine with its executors, the source's and the sink's as well, or its executors
only. It is started again after twenty seconds with nothing but its state directory. One machine is spared, to measure the memory of
an agent that runs all the time.

At the end the job is stopped and its file compared with a plain loop over the input, line by line. Disk: bytes below all state
directories each minute; it is level when the most of the last third is at most a tenth (and 4 MB) above the most of the third
before.
"""

import argparse
import contextlib
import importlib.resources
import json
import os
import signal
import sys
import time
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from agiledart_experiments.recovery.plug_mesh import AgentMachine, PlugMesh, plug_mesh, until
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.randomness import RandomStream
from benchmarks.soak_path import fit, memory_mb

MACHINES: Final = 6
SPARED: Final = "a3"
PADDING_BYTES: Final = 416
INTERVAL: Final = 10
AWAY_SECONDS: Final = 20.0
SAMPLE_SECONDS: Final = 60.0
TIMEOUT_S: Final = 180.0
MORE_DISK: Final = 1.1
SPARE_DISK_MB: Final = 4.0


@dataclass
class Curves:
    """Samples, one per minute."""

    disk_mb: list[float] = field(default_factory=list)
    spared_rss_mb: list[float] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)


@dataclass
class Blow:
    """One failure."""

    minute: float
    machine: str
    what: str
    back_s: float


def main(arguments: list[str] | None = None) -> int:
    """Run it; a line for each failure on stderr, the figures on stdout."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak_plug", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=480.0)
    parser.add_argument("--every", type=float, default=300.0, help="seconds between two failures")
    parser.add_argument("--keys", type=int, default=20_000, help="430 bytes of state each")
    parser.add_argument("--rate", type=int, default=500, help="rows a second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    chosen = parser.parse_args(arguments)
    load = os.getloadavg()[0]
    with plug_mesh(MACHINES, INTERVAL) as mesh:
        source = importlib.resources.files("agiledart_experiments.recovery") / "plug_job.py"
        (mesh.folder / "plug_job.py").write_text(source.read_text())
        write_input(mesh.folder / "in.csv", chosen.keys, int((chosen.minutes + 30) * 60 * chosen.rate), chosen.rate)
        mesh.ask(
            "submit", "plug_job.py:plug", "--set", "readings=csv:in.csv?speed=1@a1", "--set", f"padding_bytes={PADDING_BYTES}",
            "--set", f"report=csv:{mesh.folder / 'out.csv'}@a{MACHINES}", "--parallelism", "sums=3",
        )  # fmt: skip
        curves, blows = watched(mesh, chosen)
        committed(mesh)
        mesh.ask("stop", "plug")
        document = {"load": round(load, 2), **asdict(curves), **verdict(curves, blows), **compared(mesh.folder)}
    document |= {"blows": [asdict(blow) for blow in blows], "minutes": chosen.minutes}
    print(
        json.dumps(document)
        if chosen.output == "json"
        else "\n".join(f"{name}: {figure}" for name, figure in document.items())
    )
    return 0 if document["exact"] and document["disk_is_level"] else 1


def write_input(file: Path, keys: int, rows: int, rate: int) -> None:
    """Write the input: each key in rotation, at the pace."""
    with file.open("w") as lines:
        for number in range(rows):
            lines.write(f"{number * 1_000 // rate},{number * 7_919 % keys},{number % 101}\n")


def watched(mesh: PlugMesh, chosen: argparse.Namespace) -> tuple[Curves, list[Blow]]:
    """Watch the job for the duration of the soak."""
    random = RandomStream(chosen.seed, "soak plug")
    curves, blows = Curves(), list[Blow]()
    committed(mesh)
    began = time.monotonic()
    next_blow, next_look = began + chosen.every, began
    while (now := time.monotonic()) < began + chosen.minutes * 60:
        if now >= next_look:
            next_look += SAMPLE_SECONDS
            look(mesh, curves)
        if now >= next_blow:
            next_blow += chosen.every
            blows.append(strike(mesh, random, (now - began) / 60))
            print(json.dumps(asdict(blows[-1])), file=sys.stderr, flush=True)
        time.sleep(max(0.0, min(next_look, next_blow) - time.monotonic()))
    return curves, blows


def strike(mesh: PlugMesh, random: RandomStream, minute: float) -> Blow:
    """Kill one machine's processes and restart them; wait until the job commits again."""
    mortal = [machine for machine in mesh.machines if machine.name != SPARED]
    victim = mortal[random.index(len(mortal))]
    executors_only = bool(victim.executors()) and random.uniform() < 0.25
    before = committed(mesh)
    began = time.monotonic()
    victim.signal(signal.SIGKILL, executors_only=executors_only)
    if not executors_only:
        victim.kill_and_remove()
        time.sleep(AWAY_SECONDS)
        victim.start()
    until(lambda: True if committed(mesh) > before else None, TIMEOUT_S, "an epoch after the failure")
    what = "executors" if executors_only else "agent"
    return Blow(round(minute, 2), victim.name, what, round(time.monotonic() - began, 1))


def committed(mesh: PlugMesh) -> int:
    """Return the last epoch of a running job. Raises `OperationFailed` when the job does not run within the timeout."""

    def epoch() -> int | None:
        try:
            status = mesh.ask("status", "plug")
        except OperationFailed:
            return None
        if status["state"] not in ("running", "recovering"):
            raise RuntimeError(f"the job is {status['state']}: {status['reason']}")
        return (status.get("epoch") or {}).get("committed") if status["state"] == "running" else None

    return until(epoch, TIMEOUT_S, "the job runs")


def look(mesh: PlugMesh, curves: Curves) -> None:
    """Take one sample."""
    curves.disk_mb.append(round(sum(folder_bytes(machine) for machine in mesh.machines) / 1e6, 2))
    curves.spared_rss_mb.append(round(memory_mb(mesh.machine(SPARED).pid)[0], 2))
    with contextlib.suppress(OperationFailed):
        curves.epochs.append(((mesh.ask("status", "plug").get("epoch")) or {}).get("committed") or 0)


def folder_bytes(machine: AgentMachine) -> int:
    """Return the bytes below a machine's state directory; files that vanish meanwhile do not count."""
    total = 0
    for folder, _, names in os.walk(machine.state_dir):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size
    return total


def verdict(curves: Curves, blows: list[Blow]) -> dict[str, Any]:
    """Tell whether disks and the spared agent's memory are level."""
    third = len(curves.disk_mb) // 3
    middle, last = max(curves.disk_mb[third : 2 * third], default=0.0), max(curves.disk_mb[2 * third :], default=0.0)
    half = curves.spared_rss_mb[len(curves.spared_rss_mb) // 2 :]
    slope = fit([(minute / 60, size) for minute, size in enumerate(half)])
    return {
        "failures": len(blows),
        "back_s_max": max((blow.back_s for blow in blows), default=0.0),
        "disk_is_level": last <= middle * MORE_DISK + SPARE_DISK_MB,
        "spared_slope_mb_an_hour": round(slope.mb_an_hour, 3),
        "spared_slope_error": round(slope.error, 3) if len(half) > 3 else None,
    }


def compared(folder: Path) -> dict[str, Any]:
    """Compare the sink's file with a plain loop over the input: number of equal rows, and the first different one."""
    sums: dict[int, int] = {}
    rows, first = 0, ""
    with (folder / "out.csv").open() as wrote, (folder / "in.csv").open() as read:
        for line, reading in zip_longest(wrote, read):
            if line is None:
                break
            at, key, value = map(int, (reading or "0,0,0").split(","))
            sums[key] = sums.get(key, 0) + value
            if line != f"{at},{key},{sums[key]}\n":
                first = f"line {rows + 1} is {line.strip()!r} and should be '{at},{key},{sums[key]}'"
                break
            rows += 1
    return {"rows": rows, "exact": not first and rows > 0, "first_difference": first}


if __name__ == "__main__":
    sys.exit(main())
