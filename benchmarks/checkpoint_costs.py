"""Cost of epochs for a job with large keyed state, compared with the same job without epochs.

    python -m benchmarks.checkpoint_costs [--pairs 8] [--keys 150000] [--seconds 40] [--interval 10] [--changing 0.01] -o json

Three agents that count as machines of their own; source, keyed sums (64 MB of state by default) and sink run on one each. In
each pair both run once, in random order: saturated from a file, first until each key is there and an epoch has all of them, then
for so many seconds that are measured, in which a share of the keys changes. `epoch` has the duration of an epoch in these seconds,
its size and the bytes sent to replica nodes (medians of the pairs), and the size of the whole state in the same run. `pause_ms`
has the longest single wait of rows for a snapshot, and the total wait for one epoch; see also `benchmarks.snapshot_pauses`.
Ratios are of medians of the pairs; `load` is the machine's at their beginning, because a busy machine says little.
"""

import argparse
import importlib.resources
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from agiledart_experiments.recovery.plug_mesh import AgentMachine, PlugMesh, plug_mesh, until
from agiledart_kernel.randomness import RandomStream
from benchmarks.processes import cpu_seconds

PADDING_BYTES = 416
MACHINES = 3
ROWS_A_SECOND = 600_000
"""More than this machine takes: the input must not end while it is measured."""

EPOCHS = "agiledart_recovery_epochs_total"
SENT = 'agiledart_recovery_fragment_traffic_bytes_total{direction="out"}'
PAUSED = "agiledart_recovery_snapshot_pause_seconds_total"
LONGEST = "agiledart_recovery_snapshot_longest_pause_seconds"
READ = 'agiledart_application_ledger_records_total{{app="{name}",reason="read"}}'
TIMEOUT_S = 300.0


def main(arguments: list[str] | None = None) -> int:
    """Run the pairs; print a line for each on stderr, the figures on stdout."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoint_costs", description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--keys", type=int, default=150_000, help="430 bytes of state each")
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--changing", type=float, default=0.01, help="share of the keys that the measured rows are of")
    parser.add_argument("--interval", type=int, default=10, help="seconds between epochs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")
    chosen = parser.parse_args(arguments)
    random = RandomStream(chosen.seed, "checkpoint costs")
    load = os.getloadavg()[0]
    pairs: list[dict[str, dict[str, Any]]] = []
    with plug_mesh(MACHINES, chosen.interval) as mesh:
        source = importlib.resources.files("agiledart_experiments.recovery") / "plug_job.py"
        (mesh.folder / "plug_job.py").write_text(source.read_text())
        rows = int((chosen.seconds + 3 * chosen.interval) * ROWS_A_SECOND)
        write_input(mesh.folder / "in.csv", chosen.keys, max(1, int(chosen.keys * chosen.changing)), rows)
        for number in range(chosen.pairs):
            order = ["exactly-once", "at-most-once"]
            random.shuffle(order)
            pair = {guarantee: measured(mesh, f"job{number}{guarantee[:2]}", guarantee, chosen) for guarantee in order}
            pairs.append(pair)
            print(f"pair {number + 1}: {json.dumps(pair)}", file=sys.stderr, flush=True)
    document = {
        "load": round(load, 2),
        "keys": chosen.keys,
        "state_bytes": chosen.keys * (PADDING_BYTES + 14),
        **summary(pairs),
    }
    print(
        json.dumps(document)
        if chosen.output == "json"
        else "\n".join(f"{name}: {figure}" for name, figure in document.items())
    )
    return 0


def write_input(file: Path, keys: int, changing: int, rows: int) -> None:
    """Write the input: each key once, then readings of some keys in rotation."""
    with file.open("w") as lines:
        for number in range(keys + rows):
            key = number if number < keys else number * 7_919 % changing
            lines.write(f"{number},{key},{number % 101}\n")


def measured(mesh: PlugMesh, name: str, delivery: str, chosen: argparse.Namespace) -> dict[str, Any]:
    """Carry out one run; return rows per second, CPU time and figures of its epochs."""
    mesh.ask(
        "submit", "plug_job.py:plug", "--set", "readings=csv:in.csv@a1", "--set", f"report=csv:{name}.csv@a3",
        "--set", f"name={name}", "--set", f"padding_bytes={PADDING_BYTES}", "--set", f"delivery={delivery}",
    )  # fmt: skip
    until(lambda: read(mesh, name) >= chosen.keys or None, TIMEOUT_S, "each key is there")
    whole = whole_state(mesh, chosen.keys) if delivery == "exactly-once" else 0.0
    began, rows = time.monotonic(), read(mesh, name)
    executors, agents = cpu(mesh)
    before = mesh.total("agiledart_recovery_", mesh.machines)
    time.sleep(max(0.0, chosen.seconds - (time.monotonic() - began)))
    last = mesh.total("agiledart_recovery_", mesh.machines)
    seconds, rows = time.monotonic() - began, read(mesh, name) - rows
    after = cpu(mesh)
    epoch = mesh.ask("status", name).get("epoch") or {}
    memory = max((rss(pid) for machine in mesh.machines for pid in machine.executors()), default=0.0)
    mesh.ask("stop", name, "--now")
    (mesh.folder / f"{name}.csv").unlink(missing_ok=True)
    epochs = gained(before, last, "agiledart_recovery_epochs_total")
    return {
        "rows_a_second": round(rows / seconds, 1),
        "executor_cpu_us_a_row": round((after[0] - executors) / max(1, rows) * 1e6, 3),
        "agents_cpu_s": round(after[1] - agents, 2),
        "memory_mb": round(memory, 1),
        "epochs": epochs,
        "took_s": round(epoch.get("duration_ms", 0.0) / 1e3, 3),
        "whole_bytes": whole,
        "bytes": round(gained(before, last, "agiledart_recovery_snapshot_bytes_total") / max(1.0, epochs)),
        "sent_bytes": round(gained(before, last, SENT) / max(1.0, epochs)),
        "pause_ms_max": round(longest(mesh) * 1e3, 1),
        "paused_ms": round(gained(before, last, PAUSED) * 1e3 / max(1.0, epochs), 1),
    }


def whole_state(mesh: PlugMesh, keys: int) -> float:
    """Return the bytes of an epoch that holds all keys whole. Wait until it is committed, so that later epochs can build on it."""
    counted = "agiledart_recovery_snapshot_bytes_total"
    last = mesh.total("agiledart_recovery_", mesh.machines)

    def grown() -> float | None:
        now = figure(mesh.total("agiledart_recovery_", mesh.machines), counted)
        return now - figure(last, counted) if now - figure(last, counted) > keys * PADDING_BYTES else None

    size = float(until(grown, TIMEOUT_S, "an epoch has all keys"))
    number = figure(mesh.total("agiledart_recovery_", mesh.machines), EPOCHS)
    until(
        lambda: figure(mesh.total("agiledart_recovery_", mesh.machines), EPOCHS) > number or None,
        TIMEOUT_S,
        "it is committed",
    )
    return size


def gained(before: dict[str, float], after: dict[str, float], name: str) -> float:
    """Return by how much a sample has grown."""
    return figure(after, name) - figure(before, name)


def read(mesh: PlugMesh, name: str) -> int:
    """Return the number of lines that the job's source has read."""
    return int(mesh.total("agiledart_application_ledger", mesh.machines).get(READ.format(name=name), 0))


def cpu(mesh: PlugMesh) -> tuple[float, float]:
    """Return the CPU seconds of all executors, and of all agents."""
    executors = sum(cpu_seconds(pid) for machine in mesh.machines for pid in machine.executors())
    return executors, sum(_own(machine) for machine in mesh.machines)


def _own(machine: AgentMachine) -> float:
    fields = Path(f"/proc/{machine.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss(pid: int) -> float:
    """Return the resident memory in MB."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except OSError:
        return 0.0


def figure(figures: dict[str, float], name: str) -> float:
    """Return one sample of a figure."""
    return figures.get(name, 0.0)


def longest(mesh: PlugMesh) -> float:
    """Return the longest single wait of rows for a snapshot since the mesh began, in seconds."""
    return max(figure(mesh.total(LONGEST, [machine]), LONGEST) for machine in mesh.machines)


def summary(pairs: list[dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """Return the ratios: with epochs ÷ without."""

    def ratio(name: str) -> list[float]:
        ratios = sorted(pair["exactly-once"][name] / pair["at-most-once"][name] for pair in pairs)
        return [round(ratios[0], 3), round(statistics.median(ratios), 3), round(ratios[-1], 3)]

    def middle(name: str) -> float:
        return round(float(statistics.median(figures[name] for figures in with_epochs)), 3)

    with_epochs = [pair["exactly-once"] for pair in pairs]
    return {
        "pairs": len(pairs),
        "throughput_ratio": ratio("rows_a_second"),
        "executor_cpu_ratio": ratio("executor_cpu_us_a_row"),
        "memory_ratio": ratio("memory_mb"),
        "pause_ms": {"max": max(figures["pause_ms_max"] for figures in with_epochs), "an_epoch": middle("paused_ms")},
        "epochs": sum(figures["epochs"] for figures in with_epochs),
        "epoch": {name: middle(name) for name in ("took_s", "bytes", "sent_bytes", "whole_bytes")},
        "agents_cpu_s": round(statistics.median(figures["agents_cpu_s"] for figures in with_epochs), 2),
    }


if __name__ == "__main__":
    sys.exit(main())
