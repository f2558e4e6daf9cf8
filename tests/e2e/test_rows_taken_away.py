"""A plain output file, exactly once, from which a user removes rows written since the last epoch: the run brings them back."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agiledart_node.wire.commands import Status
from tests.e2e.mesh import Mesh, cli, mesh, wait_for
from tests.e2e.plug import FINAL
from tests.e2e.test_rolled_files import READINGS, STEP

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("plug")]

CODE = """
from typing import NamedTuple

from agiledart import Sink, Source, Topology


class Reading(NamedTuple):
    at: int
    value: int


def same(reading: Reading) -> Reading:
    return reading


def plain(readings: Source[Reading], out: Sink[Reading]) -> Topology:
    topology = Topology("plain", delivery="exactly-once")
    topology.source("readings", readings, event_time=lambda reading: reading.at).map(same, name="same").sink("out", out)
    return topology
"""


@pytest.fixture
def ring() -> Iterator[Mesh]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "5")
        with mesh(3) as made:
            yield made


@pytest.mark.soak
def test_removed_rows_are_restored(ring: Mesh, tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(CODE)
    lines = "".join(f"{n * STEP},{n % 101}\n" for n in range(READINGS))
    (tmp_path / "rows.csv").write_text(lines)
    out = tmp_path / "out.csv"
    told = cli(
        "submit", "plain.py:plain", "--set", f"readings=csv:{tmp_path}/rows.csv?speed=1@a2", "--set",
        f"out=csv:{out}@a3", "--agent", str(ring.agents[0].state_dir), cwd=tmp_path,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr

    def epoch() -> int:
        return int((ring.agents[0].ask(Status("plain")).get("epoch") or {}).get("committed", 0))

    wait_for(lambda: epoch() >= 1 and out.stat().st_size > 0, 120, "rows are committed")
    before = epoch()
    wait_for(lambda: epoch() > before, 60, "the next epoch has just been committed")
    size = out.stat().st_size
    wait_for(lambda: out.stat().st_size > size, 60, "rows of an open epoch are there")
    os.truncate(out, size)
    status = wait_for(lambda: (told := ring.agents[0].ask(Status("plain")))["state"] in FINAL and told, 180, "it ends")
    assert (status["state"], status["reason"]) == ("finished", "")
    texts = [entry["text"] for entry in status["history"]]
    assert any("restarted, attempt" in text for text in texts), texts
    assert out.read_text() == lines
