"""The table of protections: each cell says no, yes or bound, and each test that it names exists."""

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
TEXT: Final = (ROOT / "docs/how-to/who-may.md").read_text().partition("## Protections")[2]
ROWS: Final = [
    [cell.strip() for cell in line.strip("|").split("|")] for line in TEXT.splitlines() if re.match(r"\| [`a-z]", line)
]
TESTS: Final = dict(re.findall(r"^\* \(([a-z])\) `([^`]+)`$", TEXT, re.MULTILINE))


def test_every_role_has_a_cell_for_every_thing() -> None:
    roles = ["stranger", "`reader`", "`submitter`", "admitted agent", "`admin`", "local user", "user's code"]
    assert [row[0] for row in ROWS] == roles
    assert {len(row) for row in ROWS} == {7}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_every_cell_is_no_yes_or_bound_and_names_its_test(row: list[str]) -> None:
    for cell in row[1:]:
        matched = re.fullmatch(r"(no|yes|bound)(?: \(([a-z])\))?", cell)
        assert matched is not None, cell
        assert matched[2] in TESTS or cell == "yes", f"{cell}: this cell names no test"


@pytest.mark.parametrize("named", TESTS.values())
def test_each_named_test_exists(named: str) -> None:
    path, _, function = named.partition("::")
    assert f"def {function}(" in (ROOT / path).read_text()
