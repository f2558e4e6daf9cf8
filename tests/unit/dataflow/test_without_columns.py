"""Nodes without NumPy and pyarrow run expressions over rows; processes that do not need them do not load them."""

import subprocess
import sys
from pathlib import Path

JOB = """
import sys
from datetime import timedelta
from typing import NamedTuple

if sys.argv[2] == "without":
    sys.modules.update(dict.fromkeys(("numpy", "pyarrow", "polars"), None))

from agiledart import Topology, col, collect, count, csv, tumbling
from agiledart_executor.local_runs.local_run import run_topology
from agiledart_kernel.errors import AgileDartError


class Trip(NamedTuple):
    at: int
    zone: str
    fare: float


topology = Topology("plain")
trips = topology.source("trips", csv(sys.argv[1]), event_time="at", rows=Trip)
if sys.argv[2] == "rows":
    trips = trips.filter(lambda row: True, "all")
stats = trips.where(col("fare") > 2).with_columns(double=col("fare") * 2).key_by(col("zone")).window(
    tumbling(timedelta(seconds=1))
).aggregate("stats", n=count(), total=col("double").sum())
stats.sink("out", collect)
print([tuple(row) for row in run_topology(topology).collected["out"]], "numpy" in sys.modules and sys.modules["numpy"] is not None)
if sys.argv[2] == "without":
    topology = Topology("batches")
    trips = topology.source("trips", csv(sys.argv[1]), event_time="at", rows=Trip)
    trips.map_batches(lambda batch: batch, "same").sink("out", collect)
    try:
        run_topology(topology)
    except AgileDartError as error:
        print(error)
"""


def outcome(tmp_path: Path, how: str) -> list[str]:
    """Output of the job."""
    path = tmp_path / "trips.csv"
    path.write_text("".join(f"{i * 10},z{i % 2},{i % 5}.5\n" for i in range(300)))
    command = [sys.executable, "-c", JOB, str(path), how]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()


def test_expressions_need_no_numpy(tmp_path: Path) -> None:
    with_columns, rows, without = (outcome(tmp_path, how) for how in ("columns", "rows", "without"))
    assert with_columns[0].endswith("True")
    assert rows[0].endswith("False")
    assert without[0].endswith("False")
    assert with_columns[0].split("]")[0] == rows[0].split("]")[0] == without[0].split("]")[0]
    assert "('z0', 0, 1000, 30, 210.0)" in rows[0]
    assert "pip install 'agiledart[columns]'" in without[1]
