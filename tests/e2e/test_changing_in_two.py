"""A ring of two: the node that takes a stage over holds the only fragment of its state, and no other node can be asked for it."""

from pathlib import Path

import pytest

from tests.e2e.elastic import Elastic, undisturbed, write_input
from tests.e2e.mesh import cli, mesh, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("plug")]

READINGS = 100_000
"""More than the changes need, on any machine: the test stops the application when they are done."""


def test_a_stage_changes_between_two_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "1")
    write_input(tmp_path, READINGS)
    with mesh(2) as ring:
        job = Elastic(
            ring, tmp_path, "elastic", "--parallelism", "sums=1..4", source="csv:rows.csv?speed=1", pause_ms=0
        )
        wait_for(lambda: job.committed() >= 1, 60, "an epoch is committed")
        for words in (("scale", "sums", "4"), ("scale", "sums", "1"), ("move", "sums", "a2"), ("move", "sums", "a1")):
            verb, stage, wanted = words
            told = cli(verb, "elastic", stage, wanted, "--agent", str(ring.agents[0].state_dir))
            assert told.returncode == 0, (words, told.stdout + told.stderr)
        job.cli("stop", "elastic")
        over = job.until_over()
        assert over["state"] == "stopped"
        assert not any("restarted, attempt" in entry["text"] for entry in over["history"]), "in one life"
        assert job.out.read_text() == undisturbed(tmp_path, over["summary"]["records_in"])
