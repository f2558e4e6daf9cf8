"""A ring of two: the node that takes a stage over holds the only fragment of its state, and no other node can be asked for it."""

from pathlib import Path

import pytest

from tests.e2e.elastic import Elastic, undisturbed
from tests.e2e.mesh import cli, mesh, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("plug")]

READINGS = 25_000


def test_a_stage_changes_between_two_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "1")
    expected = undisturbed(tmp_path, READINGS)
    with mesh(2) as ring:
        job = Elastic(
            ring, tmp_path, "elastic", "--parallelism", "sums=1..4", source="csv:rows.csv?speed=1", pause_ms=0
        )
        wait_for(lambda: job.committed() >= 1, 60, "an epoch is committed")
        for words in (("scale", "sums", "4"), ("scale", "sums", "1"), ("move", "sums", "a2"), ("move", "sums", "a1")):
            verb, stage, wanted = words
            told = cli(verb, "elastic", stage, wanted, "--agent", str(ring.agents[0].state_dir))
            assert told.returncode == 0, (words, told.stdout + told.stderr)
        over = job.until_over()
        assert (over["state"], over["reason"]) == ("finished", "")
        assert not any("restarted, attempt" in entry["text"] for entry in over["history"]), "in one life"
        assert job.out.read_text() == expected
