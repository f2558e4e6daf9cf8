"""The page on the doors of a batch names files and tests that are there, and a test for each door."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "explanation" / "doors-of-a-batch.md"


def doors() -> list[list[str]]:
    """The cells of each row of the table."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| **")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_each_door_names_an_existing_test() -> None:
    assert len(doors()) >= 10
    folder = ROOT
    for name, _, _, tests in doors():
        named = re.findall(r"`((?:tests/)?[\w/]*(?:test_\w+\.py|conformance))`", tests)
        assert named, name
        for test in named:
            path = ROOT / test if test.startswith("tests/") else folder / test
            assert path.exists(), f"{name}: {test}"
            folder = path.parent


def test_each_door_names_existing_code() -> None:
    shipped = "\n".join(path.read_text() for root in ("dataflow", "executor") for path in (ROOT / root).rglob("*.py"))
    for name, _, where, _ in doors():
        for word in re.findall(r"`([\w./]+)`", where):
            last = word.removesuffix(".py").split("/")[-1].split(".")[-1]
            assert last in shipped or list(ROOT.glob(f"*/*/{word}")), f"{name}: {word}"
