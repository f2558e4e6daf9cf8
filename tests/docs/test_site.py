"""The site of the documentation: each page is in its navigation, and it builds without a warning."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def pages_of(entries: list[Any]) -> list[str]:
    """All pages of a navigation, in order."""
    pages: list[str] = []
    for entry in entries:
        pages += [entry] if isinstance(entry, str) else [page for rows in entry.values() for page in pages_of(rows)]
    return pages


def test_each_page_is_once_in_the_navigation() -> None:
    pages = pages_of(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    there = [str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if page.parent.name != "decisions"]
    assert sorted(pages) == sorted(there)


@pytest.mark.skipif(find_spec("mkdocs") is None, reason="no mkdocs here: pip install 'agiledart[docs]'")
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "site" / "search" / "search_index.js").is_file()  # found without a server
