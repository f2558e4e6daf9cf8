"""Most operators in one topology on five agents: every row as in one process, every count adds up."""

import csv
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agiledart import collect, records
from agiledart.testing import run_local
from agiledart_kernel.randomness import RandomStream
from tests.e2e.mesh import cli, mesh
from tests.e2e.operators_job import Reading, Room, build

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

ROOMS = [Room(name, floor) for floor, name in enumerate("abcdefg")]


def readings(seed: int, count: int, disorder: int) -> list[Reading]:
    """Rows in some disorder."""
    random = RandomStream(seed, "readings")
    rows, now = [], 1_000
    for _ in range(count):
        now += random.index(3)
        rows.append(Reading(now - random.index(disorder + 1), random.choice("abcdefgh"), random.index(20)))
    return rows if disorder else sorted(rows)


def write(path: Path, rows: list[Reading] | list[Room]) -> Path:
    """A CSV file without a header."""
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def test_most_operators_on_five_agents(tmp_path: Path) -> None:
    first, second = readings(1, 6_000, disorder=12), readings(2, 1_500, disorder=0)
    expected: Any = run_local(build(records(first), records(second), records(ROOMS), collect))
    assert set(Counter(name for name, _ in expected)) >= {"late", "errors", "fifths", "pattern", "lookup", "distinct"}
    job = shutil.copy(Path(__file__).with_name("operators_job.py"), tmp_path)
    with mesh(5) as made:
        words = [
            *("submit", f"{job}:build", "--parallelism", "3", "--agent", str(made.agents[0].state_dir), "--wait"),
            *("--set", f"first=csv:{write(tmp_path / 'first.csv', first)}@a2"),
            *("--set", f"second=csv:{write(tmp_path / 'second.csv', second)}@a3"),
            *("--set", f"rooms=csv:{write(tmp_path / 'rooms.csv', ROOMS)}@a4"),
            *("--set", f"out=csv:{tmp_path / 'out.csv'}@a5", "-o", "json"),
        ]
        ran = cli(*words, timeout=180)
        assert ran.returncode == 0, ran.stderr
        with (tmp_path / "out.csv").open(newline="") as file:
            assert [tuple(row) for row in csv.reader(file)] == expected
        status = cli("status", "operators", "--agent", str(made.agents[1].state_dir), "-o", "json")
        assert status.returncode == 0, status.stderr
        assert json.loads(status.stdout)["state"] == "finished"
