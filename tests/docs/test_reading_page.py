"""The page on reading the code names only files and symbols that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "explanation" / "reading-the-code.md").read_text()
PLACES = re.findall(r"`([\w/]+\.py)`(?: `([\w.]+)`)?", PAGE)


def symbols(tree: ast.Module) -> set[str]:
    """Names of the module's functions and classes, and `Class.method` of their methods."""
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = (part for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef))
            found |= {f"{node.name}.{method.name}" for method in methods}
    return found


def test_the_page_has_eight_files_and_three_journeys() -> None:
    assert len([place for place in PLACES if not place[1]]) == 8
    assert PAGE.count("\n| Station |") == 3


@pytest.mark.parametrize(("path", "symbol"), PLACES)
def test_each_place_exists(path: str, symbol: str) -> None:
    tree = ast.parse((ROOT / path).read_text())
    assert not symbol or symbol in symbols(tree)
