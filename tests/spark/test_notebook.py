"""The notebook of the how-to about meshes from Python runs, cell by cell."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.mesh import mesh

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "from-python.ipynb"

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("spark")]


def test_the_notebook_runs(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        spark, "stop", lambda: None
    )  # it gets the session of the tests, and the tests after it need that
    names: dict[str, Any] = {}
    with mesh(3) as made, contextlib.chdir(tmp_path):
        monkeypatch.setenv("AGILEDART_AGENT", str(made.agents[0].state_dir))
        for cell in json.loads(NOTEBOOK.read_text())["cells"]:
            if cell["cell_type"] == "code":
                exec("".join(cell["source"]), names)
    assert names["spark"] is spark
    assert names["status"]["state"] == "finished"
    assert names["rooms"] == {"attic": 800, "cellar": 400}
