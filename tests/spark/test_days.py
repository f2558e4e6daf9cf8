"""Parts of the days that `make soak-day` plays whole: trips through a mesh, its log and Spark, beside a plain loop."""

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(900), pytest.mark.xdist_group("spark")]

# Paced, so that a busy machine's Spark is not outrun.
DAYS = (
    ("day_of_pipeline", ("--hours", "0.4", "--max-mib", "4"), "damaged"),
    ("day_of_trips", ("--hours", "1", "--max-bytes", "1MiB"), "trimmed_rows"),
)
"""Benchmark, its options, and the count in its report of rows that show that what it is for has happened."""


@pytest.mark.parametrize(("benchmark", "options", "count"), DAYS, ids=[day[0] for day in DAYS])
def test_tables_equal_those_of_a_plain_loop(benchmark: str, options: tuple[str, ...], count: str) -> None:
    # A process of its own: it starts and stops a Spark session.
    command = [sys.executable, "-m", f"benchmarks.{benchmark}", "-o", "json", "--speed", "60", *options]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=860, check=False)
    assert ran.stdout, ran.stderr
    report = json.loads(ran.stdout)
    assert report["faults"] == []
    assert report[count] > 0
