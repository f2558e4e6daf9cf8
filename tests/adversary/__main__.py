"""Run the probes and print what each finding has become: `python -m tests.adversary`, `--soak` for the long searches too."""

import sys
from pathlib import Path

import pytest

from tests.adversary.findings import FINDINGS


def main(arguments: list[str]) -> int:
    """Print the table, then run the probes. Return pytest's exit code."""
    for number, finding in FINDINGS.items():
        print(f"{number:2}  {finding.outcome.value:8}  {finding.role.value:12}  {finding.deed}")
    which = [] if "--soak" in arguments else ["-m", "not soak"]
    rest = [argument for argument in arguments if argument != "--soak"]
    return int(pytest.main([str(Path(__file__).parent), "-q", *which, *rest]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
