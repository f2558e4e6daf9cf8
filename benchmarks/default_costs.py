"""Cost of the default delivery beside `at-most-once`, in pairs: throughput, CPU, bytes on disks, and the time of a short job.

    python -m benchmarks.default_costs [--pairs 4] [--jobs filter,taxi,short,rules] [--seed 1] [-o json]

Three agents that count as machines of their own; source and sink of a job are on different ones. In each pair a job runs once as
submitted without a word about delivery, and once with `--delivery at-most-once`, in random order.

    filter   a stateless filter, as fast as it goes, from file to file
    taxi     query 1 of the DEBS 2015 challenge, as fast as it goes
    short    the filter at 1,000 rows a second for ten seconds
    rules    twenty filters at ten rows a second for twenty seconds

`seconds` is the time from the start of `submit --wait` to its end; for `rules`, to the end of the last one. `cpu_s` is the CPU time
of all agents and executors, `agents_wrote_mb` the bytes that agents gave to disks. Ratios are of medians.
"""

import argparse
import concurrent.futures
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Final

from agiledart_examples.taxi_trips import generate
from agiledart_experiments.recovery.plug_mesh import PlugMesh, plug_mesh
from agiledart_kernel.randomness import RandomStream
from benchmarks.processes import cpu_seconds
from benchmarks.trip_feed import time_blocks

JOBS: Final = ("filter", "taxi", "short", "rules")
DEFAULT, CHEAPEST = "survive", "at-most-once"
INTERVAL: Final = 10
MACHINES: Final = 3
ROWS: Final = 3_000_000
TRIP_HOURS: Final = 24
SHORT_SECONDS: Final = 10
RULES: Final = 20
RULE_SECONDS: Final = 20

JOB: Final = """
from typing import NamedTuple

from agiledart import Sink, Source, Topology


class Reading(NamedTuple):
    at: int
    value: int


def is_high(reading: Reading) -> bool:
    return reading.value > 50


def job(readings: Source[Reading], report: Sink[Reading], name: str = "job") -> Topology:
    topology = Topology(name)
    topology.source("readings", readings, event_time="at").filter(is_high).sink("report", report)
    return topology
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the pairs; print a line for each on stderr, the figures on stdout."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.default_costs", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--jobs", default=",".join(JOBS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    chosen = parser.parse_args(arguments)
    jobs = [job for job in chosen.jobs.split(",") if job in JOBS]
    random = RandomStream(chosen.seed, "costs of the default delivery")
    document: dict[str, Any] = {"load": [round(os.getloadavg()[0], 2)]}
    with plug_mesh(MACHINES, INTERVAL) as mesh:
        write_inputs(mesh.folder, jobs, chosen.seed)
        for job in jobs:
            pairs = []
            for number in range(chosen.pairs):
                order = [DEFAULT, CHEAPEST]
                random.shuffle(order)
                pairs.append({delivery: measured(mesh, job, number, delivery) for delivery in order})
                print(f"{job} {number + 1}: {json.dumps(pairs[-1])}", file=sys.stderr, flush=True)
            document[job] = summary(pairs)
    document["load"].append(round(os.getloadavg()[0], 2))
    print(json.dumps(document) if chosen.output == "json" else "\n".join(f"{k}: {v}" for k, v in document.items()))
    return 0


def write_inputs(folder: Path, jobs: list[str], seed: int) -> None:
    """Write the inputs of jobs, and their topology."""
    (folder / "job.py").write_text(JOB)
    rows = {"filter": ROWS, "short": 1_000 * SHORT_SECONDS, "rules": 10 * RULE_SECONDS}
    for job in set(jobs) & set(rows):
        span = {"short": 1, "rules": 100}.get(job, 1)
        with (folder / f"{job}.csv").open("w") as lines:
            lines.writelines(f"{number * span},{number * 7_919 % 101}\n" for number in range(rows[job]))
    if "taxi" in jobs:
        blocks = time_blocks(generate(seed=seed), 3_600.0)
        with (folder / "taxi.csv").open("wb") as lines:
            lines.writelines(next(blocks) for _ in range(TRIP_HOURS))


def measured(mesh: PlugMesh, job: str, number: int, delivery: str) -> dict[str, float]:
    """Carry out one run of a job; return its time, CPU time and the bytes on disks of agents."""
    names = [f"{job}{number}{delivery[0]}-{rule}" for rule in range(RULES if job == "rules" else 1)]
    cpu, wrote = spent(mesh)
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(lambda name: carry_out(mesh, job, name, delivery), names))
    seconds = time.monotonic() - began
    cpu_after, wrote_after = spent(mesh)
    for name in names:
        (mesh.folder / f"{name}.csv").unlink()
    return {
        "seconds": round(seconds, 3),
        "cpu_s": round(cpu_after - cpu, 2),
        "agents_wrote_mb": round(wrote_after - wrote, 3),
    }


def carry_out(mesh: PlugMesh, job: str, name: str, delivery: str) -> None:
    """Submit a job and wait for its end."""
    speed = {"short": "?speed=1", "rules": "?speed=1"}.get(job, "")
    target = "agiledart_examples.debs2015:frequent_routes" if job == "taxi" else "job.py:job"
    source = "trips" if job == "taxi" else "readings"
    mesh.ask(
        "submit", target, "--wait", "--name", name, "--set", f"{source}=csv:{job}.csv{speed}@a1",
        "--set", f"report=csv:{name}.csv@a{MACHINES}", *(() if delivery == DEFAULT else ("--delivery", delivery)),
    )  # fmt: skip


def spent(mesh: PlugMesh) -> tuple[float, float]:
    """Return the CPU seconds of all agents and their processes so far, and the MB that agents have written."""
    wrote = 0
    for machine in mesh.machines:
        lines = Path(f"/proc/{machine.pid}/io").read_text().splitlines()
        wrote += sum(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))
    return sum(cpu_seconds(machine.pid) for machine in mesh.machines), wrote / 1e6


def summary(pairs: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """Return the medians of both, and the ratios: the default ÷ the cheapest."""

    def median(delivery: str, figure: str) -> float:
        return statistics.median(pair[delivery][figure] for pair in pairs)

    figures = ("seconds", "cpu_s", "agents_wrote_mb")
    return {
        "pairs": len(pairs),
        **{
            delivery: {figure: round(median(delivery, figure), 3) for figure in figures}
            for delivery in (DEFAULT, CHEAPEST)
        },
        "ratios": {name: round(median(DEFAULT, name) / median(CHEAPEST, name), 3) for name in figures[:2]},
    }


if __name__ == "__main__":
    sys.exit(main())
