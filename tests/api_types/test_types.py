"""mypy must accept `accepted.py` and find exactly the marked mistakes of `rejected.py`."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.slow
def test_mypy_accepts_valid_and_rejects_invalid_types() -> None:
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context"]
    files = [str(HERE / "accepted.py"), str(HERE / "rejected.py")]
    run = subprocess.run([*command, *files], capture_output=True, text=True, check=False, cwd=HERE.parents[1])
    found = {
        (Path(match[1]).name, int(match[2])) for match in re.finditer(r"^(\S+?):(\d+): error", run.stdout, re.MULTILINE)
    }
    lines = (HERE / "rejected.py").read_text().splitlines()
    expected = {("rejected.py", number) for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    assert found == expected, run.stdout + run.stderr


def test_type_checked_code_also_builds() -> None:
    from agiledart import csv
    from tests.api_types.accepted import build, lists, operators

    assert len(build().specification().steps) == 21
    assert len(operators(csv("readings.csv"), csv("alarms.csv")).specification().steps) >= 30
    assert lists().local_only == ["list", "call", "records"]
