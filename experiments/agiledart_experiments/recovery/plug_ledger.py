"""What trials on a mesh of machines judge by: its epochs, the end of a recovery, and the sink's file line by line."""

import importlib.resources
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

from agiledart_experiments.recovery.plug_mesh import AgentMachine, PlugMesh
from agiledart_kernel.errors import OperationFailed

STAGE = "sums"


def put_job(mesh: PlugMesh) -> None:
    """The code of the job into the folder of a mesh."""
    source = importlib.resources.files("agiledart_experiments.recovery") / "plug_job.py"
    (mesh.folder / "plug_job.py").write_text(source.read_text())


def write_input(file: Path, keys: int, load_ms: int, rows: int, rows_a_second: int) -> None:
    """Readings: each key once within the first moments, then as many rows at a pace."""
    with file.open("w") as lines:
        for number in range(keys):
            lines.write(f"{number * load_ms // keys},{number},{number % 101}\n")
        for number in range(rows):
            at = load_ms + number * 1_000 // rows_a_second
            lines.write(f"{at},{number * 7_919 % keys},{number % 101}\n")


def status_of(mesh: PlugMesh) -> dict[str, Any] | None:
    """Of the job while it lives; nothing while nobody answers. Raises `OperationFailed` when it has ended."""
    try:
        status: dict[str, Any] = mesh.ask("status", "plug")
    except OperationFailed:
        return None
    if status["state"] not in ("running", "recovering"):
        raise OperationFailed(f"the job is {status['state']}: {status['reason']}")
    return status


def epoch_of(mesh: PlugMesh) -> dict[str, Any] | None:
    """What is safe, while it runs undisturbed."""
    status = status_of(mesh)
    if status is None:
        return None
    epoch: dict[str, Any] = status.get("epoch") or {}
    return {**status, "epoch": epoch} if status["state"] == "running" and epoch else None


def phase_name(name: str) -> str:
    """The sample of a phase of recoveries."""
    return f'agiledart_recovery_phase_seconds_total{{phase="{name}"}}'


def recovered(mesh: PlugMesh, observers: list[AgentMachine], before: dict[str, float]) -> dict[str, float] | None:
    """The figures of those who go on, once one more recovery has ended."""
    now = mesh.total("agiledart_recovery_", observers)
    ended = "agiledart_recovery_recoveries_total"
    return now if now.get(ended, 0.0) > before.get(ended, 0.0) else None


def ledger(folder: Path) -> dict[str, int]:
    """Rows of the sink beside those of a plain loop over as many readings."""
    text = (folder / "out.csv").read_text()
    wrote = text[: text.rfind("\n") + 1].splitlines()  # the last line may be half there
    sums: dict[int, int] = {}
    expected: list[str] = []
    with (folder / "in.csv").open() as lines:
        for line in islice(lines, len(wrote)):
            at, key, value = map(int, line.split(","))
            sums[key] = sums.get(key, 0) + value
            expected.append(f"{at},{key},{sums[key]}")
    theirs, ours = Counter(wrote), Counter(expected)
    return {
        "rows": len(wrote),
        "lost": sum((ours - theirs).values()),
        "twice": sum((theirs - ours).values()),
        "out_of_order": 0 if wrote == expected else 1,
    }
