"""An hour of trips through a mesh into a log that is trimmed while Spark reads along; `make soak-day` does it for a day."""

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(600), pytest.mark.xdist_group("spark")]


def test_tables_of_a_trimmed_log_equal_those_of_a_plain_loop() -> None:
    # A process of its own: it starts and stops a Spark session. Paced, so that a busy machine's Spark is not outrun.
    command = [sys.executable, "-m", "benchmarks.day_of_trips", "-o", "json"]
    options = ["--hours", "1", "--speed", "60", "--max-bytes", "1MiB"]
    ran = subprocess.run([*command, *options], capture_output=True, text=True, timeout=560, check=False)
    assert ran.stdout, ran.stderr
    found = json.loads(ran.stdout)
    assert found["faults"] == []
    assert found["trimmed_rows"] > 0
