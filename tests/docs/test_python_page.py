"""The how-to about meshes from Python: its blocks run in order on a mesh, and so does its notebook."""

import contextlib
import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import blocks_of, environment_of
from tests.e2e.mesh import mesh

HOW_TO = Path(__file__).resolve().parents[2] / "docs" / "how-to"

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(scope="module")
def agent() -> Iterator[str]:
    with mesh(3) as made:
        yield str(made.agents[0].state_dir)


def test_every_block_of_the_page_works(agent: str, tmp_path: Path) -> None:
    environment = environment_of(tmp_path) | {"AGILEDART_AGENT": agent}
    blocks = [block for block in blocks_of(HOW_TO / "from-python.md") if block.language in ("python", "console")]
    assert len(blocks) == 5
    for block in blocks:
        assert not block.reason
        block.run(tmp_path, environment)
    assert len((tmp_path / "warm.csv").read_text().splitlines()) == 400


@pytest.mark.skipif(find_spec("pyspark") is None, reason="no pyspark here: pip install 'agiledart[spark]'")
def test_the_notebook_runs(agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGILEDART_AGENT", agent)
    notebook = json.loads((HOW_TO / "from-python.ipynb").read_text())
    names: dict[str, Any] = {}
    with contextlib.chdir(tmp_path):
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                exec("".join(cell["source"]), names)
    assert names["status"]["state"] == "finished"
    assert names["rooms"] == {"attic": 800, "cellar": 400}
