"""The page on the flags of an overlay node and the code say the same: the same fields, set by the same modules."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from agiledart_overlay.state.agreement import AgreedNeighbour, Agreement
from agiledart_overlay.state.view import View

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "explanation" / "overlay-flags.md"
OVERLAY = ROOT / "overlay" / "agiledart_overlay"

CLASSES = {"## `agreed`": Agreement, "## A side": AgreedNeighbour, "## `view`": View}
"""Heading of the page's part → the class that it lists."""

_NAMES = {
    "view": View, "_view": View, "agreed": Agreement, "side": AgreedNeighbour, "predecessor": AgreedNeighbour,
    "successor": AgreedNeighbour,
}  # fmt: skip
"""Names that the code gives them."""

_CHANGES = ("append", "clear", "pop", "extend", "setdefault", "update", "remove")
"""Methods by which a list or dict is changed."""


def rows(heading: str) -> dict[str, tuple[str, str]]:
    """Field → (setters, reactors), of one part of the page."""
    part = next(part for part in re.split(r"\n(?=## )", PAGE.read_text()) if part.startswith(heading))
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line.startswith("| `")
    ]
    return {field.strip("`"): (set_by, reacts) for field, _, set_by, reacts in cells}


def fields(kind: type) -> list[str]:
    slots: tuple[str, ...] = kind.__slots__  # type: ignore[attr-defined]
    return [name for name in slots if not name.startswith("_")]


def modules(text: str) -> list[str]:
    """Modules that a cell names."""
    return [word for word in re.findall(r"`([\w/]+)`", text) if (OVERLAY / f"{word}.py").exists()]


def owner(node: ast.expr) -> type | None:
    """Whose field an attribute of this expression is."""
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return _NAMES.get(name)


def changed(tree: ast.Module) -> Iterator[tuple[type, str]]:
    """(class, field) of everything that a module sets, or changes by a method of a list or dict."""
    for node in ast.walk(tree):
        target: ast.AST | None = None
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            target = node
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            target = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES:
            target = node.func.value
        if isinstance(target, ast.Attribute) and (kind := owner(target.value)) is not None:
            yield kind, target.attr


def setters() -> dict[tuple[type, str], set[str]]:
    """(class, field) → modules that set it, but for the module of the class itself."""
    found: dict[tuple[type, str], set[str]] = {}
    for path in OVERLAY.rglob("*.py"):
        for kind, field in changed(ast.parse(path.read_text())):
            found.setdefault((kind, field), set()).add(str(path.relative_to(OVERLAY).with_suffix("")))
    return found


@pytest.mark.parametrize("heading", list(CLASSES))
def test_the_page_and_the_class_have_the_same_fields(heading: str) -> None:
    assert sorted(rows(heading)) == sorted(fields(CLASSES[heading]))


@pytest.mark.parametrize("heading", list(CLASSES))
def test_every_setter_of_a_field_is_named_and_no_other(heading: str) -> None:
    kind, known = CLASSES[heading], setters()
    own = kind.__module__.removeprefix("agiledart_overlay.").replace(".", "/")
    for field, (set_by, _) in rows(heading).items():
        named = set(modules(set_by)) - {own, "state/view"}
        assert named == known.get((kind, field), set()) - {own, "state/view"}, field


@pytest.mark.parametrize("heading", list(CLASSES))
def test_every_reactor_mentions_the_field(heading: str) -> None:
    for field, (set_by, reacts) in rows(heading).items():
        for module in modules(f"{set_by} {reacts}"):
            text = (OVERLAY / f"{module}.py").read_text()
            methods = {
                "finished": "finish",
                "lease": "lease",
                "successor": "confirm_neighbour",
                "since": "confirm_neighbour",
            }
            assert re.search(rf"\b{field}\b", text) or methods.get(field, "\0") in text, f"{field}: {module}"


def test_a_field_missing_on_the_page_would_be_found() -> None:
    assert {field for kind, field in setters() if kind is Agreement} <= set(rows("## `agreed`")) | {"agreed"}
    tree = ast.parse("view.agreed.new = True\nagreed.finished[0] = 1\nview.gone.append(2)\ndel self._view.watched[3]")
    assert list(changed(tree)) == [(Agreement, "new"), (Agreement, "finished"), (View, "gone"), (View, "watched")]
