"""The examples of the reference of operators do what they assert."""

from pathlib import Path
from typing import Any

from tests.docs.blocks import blocks_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "operators.md"


def test_every_example_runs() -> None:
    names: dict[str, Any] = {"__name__": "operators_page"}
    blocks = [block for block in blocks_of(PAGE) if block.language == "python"]
    assert len(blocks) >= 10
    for block in blocks:
        lines = "\n" * block.line  # so that an error names the line of the page
        exec(compile(lines + block.text, str(PAGE), "exec"), names)
