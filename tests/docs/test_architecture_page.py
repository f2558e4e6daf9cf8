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


def _folders() -> dict[str, str]:
    """Folder → its row in the table of folders."""
    table = PAGE.split("## The folders")[1].split("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    return {folder: row for row in rows for folder in re.findall(r"`(\w+)/`", row.split("|")[1])}


PACKAGES = sorted(path.parent for prefix in ("agiledart", "pyspark_") for path in ROOT.glob(f"*/{prefix}*/__init__.py"))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_a_package_and_its_rooms_are_described(package: Path) -> None:
    assert package.name in PAGE
    row = _folders()[package.parent.name]
    rooms = sorted(path.parent.name for path in package.glob("*/__init__.py"))
    assert [room for room in rooms if f"`{room}`" not in row] == []


def test_described_folders_and_rooms_exist() -> None:
    for folder, row in _folders().items():
        assert (ROOT / folder).is_dir(), folder
        modules = {path.stem for path in (ROOT / folder).glob("*/*")} | {path.name for path in ROOT.glob("*/*/")}
        rooms = row.split("|")[3]
        assert [name for name in re.findall(r"`(\w+)`", rooms) if name not in modules] == [], folder


def test_all_decisions_are_listed() -> None:
    listed = set(re.findall(r"\b(0\d{3}) ", PAGE.split("## Decisions")[1].split("\n## ")[0]))
    pages = {path.name[:4] for path in (ROOT / "docs" / "decisions").glob("0*.md")}
    assert pages == listed
