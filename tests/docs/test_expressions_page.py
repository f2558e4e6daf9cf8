"""The examples of the reference of expressions do what they assert, and it names every function that there is."""

from pathlib import Path
from typing import Any

from agiledart import Expression
from tests.docs.blocks import blocks_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "expressions.md"


def test_every_example_runs() -> None:
    names: dict[str, Any] = {"__name__": "expressions_page"}
    blocks = [block for block in blocks_of(PAGE) if block.language == "python"]
    assert len(blocks) >= 6
    for block in blocks:
        lines = "\n" * block.line  # so that an error names the line of the page
        exec(compile(lines + block.text, str(PAGE), "exec"), names)


def test_every_method_is_named() -> None:
    text = PAGE.read_text()
    methods = [name for name in vars(Expression) if not name.startswith("_") and name != "node"]
    assert [name for name in methods if f".{name}(" not in text and f"`{name}" not in text] == []
