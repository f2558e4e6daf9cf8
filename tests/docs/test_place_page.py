"""The how-to about placement off line: its blocks run in order, and its notebook runs from the first cell to the last."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import blocks_of, environment_of

HOW_TO = Path(__file__).resolve().parents[2] / "docs" / "how-to"


def test_every_block_of_the_page_works(tmp_path: Path) -> None:
    environment = environment_of(tmp_path)
    blocks = blocks_of(HOW_TO / "place-off-line.md")
    assert len(blocks) >= 4
    for block in blocks:
        assert not block.reason
        block.run(tmp_path, environment)


def test_the_notebook_runs(capsys: pytest.CaptureFixture[str]) -> None:
    notebook = json.loads((HOW_TO / "place-off-line.ipynb").read_text())
    names: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert names["result"].evaluation.value == 38
    assert names["evaluation"].violations == ()
    assert "hill_climbing 0.67999" in capsys.readouterr().out
