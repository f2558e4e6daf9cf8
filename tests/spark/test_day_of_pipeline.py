"""A part of a day of two cities' trips through a pipeline project, with damaged rows and an outage; `make soak-day` does all."""

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(900), pytest.mark.xdist_group("spark")]


def test_tables_of_a_project_equal_those_of_a_plain_loop() -> None:
    # A process of its own: it starts and stops a Spark session.
    command = [sys.executable, "-m", "benchmarks.day_of_pipeline", "-o", "json"]
    options = ["--hours", "0.4", "--speed", "60", "--max-mib", "4"]
    ran = subprocess.run([*command, *options], capture_output=True, text=True, timeout=860, check=False)
    assert ran.stdout, ran.stderr
    found = json.loads(ran.stdout)
    assert found["faults"] == []
    assert found["damaged"] > 0
