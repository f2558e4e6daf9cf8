"""Playing of a case: its commands in a copy of its folder, and what must and must not come out."""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

_BLOCK: Final = re.compile(r"```console\n(.*?)```", re.DOTALL)
_TIMEOUT_S: Final = 120


class Outcome(NamedTuple):
    """Result of a case.

    Attributes:
        missing: expected lines that did not come, or not as often.
        forbidden: lines that must not come and did.
        output: all that the commands printed.
    """

    missing: list[str]
    forbidden: list[str]
    output: str


def commands_of(case: Path) -> list[str]:
    """Return the commands of a case, as its README shows them; those of brokers are left out."""
    text = (case / "README.md").read_text()
    lines = [line for block in _BLOCK.findall(text) for line in block.splitlines()]
    return [line[2:] for line in lines if line.startswith("$ ") and "mqtt.sh" not in line]


def play(case: Path, folder: Path) -> Outcome:
    """Run the commands of a case in a copy."""
    place = folder / "case"
    shutil.copytree(case, place)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "XDG_STATE_HOME": str(folder / "state"),
        "XDG_CONFIG_HOME": str(folder / "config"),
    }
    output = ""
    for command in commands_of(case):
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=place,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
        output += done.stdout + done.stderr
    printed = Counter(line.rstrip() for line in output.splitlines())
    expected = Counter(_lines(case / "expected.txt"))
    forbidden = [*_lines(case / "forbidden.txt"), "Traceback (most recent call last)"]
    return Outcome(
        [line for line, count in expected.items() if printed[line] != count],
        [text for text in forbidden if any(text in line for line in printed)],
        output,
    )


def _lines(path: Path) -> list[str]:
    return [line.rstrip() for line in path.read_text().splitlines() if line.strip()] if path.exists() else []
