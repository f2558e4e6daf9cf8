"""Evidence for trials on a mesh of machines: committed epochs, the end of a recovery, and the sink's file line by line."""

import importlib.resources
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

from agiledart_experiments.recovery.plug_mesh import AgentMachine, PlugMesh
from agiledart_kernel.errors import OperationFailed

STAGE = "sums"


def put_job(mesh: PlugMesh) -> None:
    """Copy the code of the job into the folder of a mesh."""
    source = importlib.resources.files("agiledart_experiments.recovery") / "plug_job.py"
    (mesh.folder / "plug_job.py").write_text(source.read_text())


def write_input(file: Path, keys: int, load_ms: int, rows: int, rows_a_second: int) -> None:
    """Write the input: each key once within the first `load_ms`, then `rows` rows at a steady rate."""
    with file.open("w") as lines:
        for number in range(keys):
            lines.write(f"{number * load_ms // keys},{number},{number % 101}\n")
        for number in range(rows):
            at = load_ms + number * 1_000 // rows_a_second
            lines.write(f"{at},{number * 7_919 % keys},{number % 101}\n")


def status_of(mesh: PlugMesh) -> dict[str, Any] | None:
    """Return the status of the job; None while no agent answers. Raises `OperationFailed` when the job has ended."""
    try:
        status: dict[str, Any] = mesh.ask("status", "plug")
    except OperationFailed:
        return None
    if status["state"] not in ("running", "recovering"):
        raise OperationFailed(f"the job is {status['state']}: {status['reason']}")
    return status


def epoch_of(mesh: PlugMesh) -> dict[str, Any] | None:
    """Return the status with the last committed epoch while the job runs; None while it recovers or has no epoch."""
    status = status_of(mesh)
    if status is None:
        return None
    epoch: dict[str, Any] = status.get("epoch") or {}
    return {**status, "epoch": epoch} if status["state"] == "running" and epoch else None


def phase_name(name: str) -> str:
    """Return the name of the metric sample that holds the seconds of a recovery phase."""
    return f'agiledart_recovery_phase_seconds_total{{phase="{name}"}}'


def recovered(mesh: PlugMesh, observers: list[AgentMachine], before: dict[str, float]) -> dict[str, float] | None:
    """Return the recovery metrics of the observers once one more recovery has ended, else None."""
    now = mesh.total("agiledart_recovery_", observers)
    ended = "agiledart_recovery_recoveries_total"
    return now if now.get(ended, 0.0) > before.get(ended, 0.0) else None


def ledger(folder: Path) -> dict[str, int]:
    """Compare the rows of the sink with those of a plain loop over as many readings; return the counts."""
    text = (folder / "out.csv").read_text()
    written = text[: text.rfind("\n") + 1].splitlines()  # the last line may be incomplete
    sums: dict[int, int] = {}
    expected: list[str] = []
    with (folder / "in.csv").open() as lines:
        for line in islice(lines, len(written)):
            at, key, value = map(int, line.split(","))
            sums[key] = sums.get(key, 0) + value
            expected.append(f"{at},{key},{sums[key]}")
    actual_rows, expected_rows = Counter(written), Counter(expected)
    return {
        "rows": len(written),
        "lost": sum((expected_rows - actual_rows).values()),
        "twice": sum((actual_rows - expected_rows).values()),
        "out_of_order": 0 if written == expected else 1,
    }
