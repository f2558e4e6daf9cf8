"""ARCHITECTURE.md names files that exist: a table that leads nowhere is worse than none."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
_NAMED = re.compile(r"`([\w./…-]+(?:\.py|\.md|/))`")


def _is_there(name: str, folder: str) -> bool:
    """A name with a root (`node/…/wire/commands.py`), or one within the folder of the name before it."""
    pattern = name.replace("…", "*").rstrip("/")
    if any(ROOT.glob(pattern)):
        return True
    return any(ROOT.glob(f"{folder}/*/{pattern}")) or any(ROOT.glob(f"{folder}/**/{pattern}"))


def _rows() -> list[str]:
    table = PAGE.split("## Where would I change …?")[1].split("\n## ")[0]
    return [line for line in table.splitlines() if line.startswith("| ") and not line.startswith("| What")]


@pytest.mark.parametrize("row", _rows(), ids=lambda row: row.split("|")[1].strip())
def test_the_files_of_a_row_exist(row: str) -> None:
    names = _NAMED.findall(row)
    assert names
    folder, missing = "", []
    for name in names:
        root = name.split("/")[0]
        if "/" in name and (ROOT / root).is_dir():
            folder = root
        if not _is_there(name, folder):
            missing.append(name)
    assert missing == []


def test_the_table_has_the_rows_that_readers_look_for() -> None:
    assert len(_rows()) >= 10


def test_all_folders_are_described() -> None:
    told = set(re.findall(r"`(\w+)/`", PAGE.split("## The folders")[1].split("\n## ")[0]))
    packages = {path.parent.parent.name for path in ROOT.glob("*/agiledart*/__init__.py")} | {"spark"}
    assert packages <= told
