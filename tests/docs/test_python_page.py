"""The how-to about meshes from Python: its blocks run in order on a mesh. `tests/spark/test_notebook.py` runs its notebook."""

from pathlib import Path

import pytest

from tests.docs.blocks import blocks_of, environment_of
from tests.e2e.mesh import mesh

HOW_TO = Path(__file__).resolve().parents[2] / "docs" / "how-to"

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def test_every_block_of_the_page_works(tmp_path: Path) -> None:
    blocks = [block for block in blocks_of(HOW_TO / "from-python.md") if block.language in ("python", "console")]
    assert len(blocks) == 5
    with mesh(3) as made:
        environment = environment_of(tmp_path) | {"AGILEDART_AGENT": str(made.agents[0].state_dir)}
        for block in blocks:
            assert not block.reason
            block.run(tmp_path, environment)
    assert len((tmp_path / "warm.csv").read_text().splitlines()) == 400
