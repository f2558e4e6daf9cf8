"""A state of the last epoch is lost for ever, and the application goes on from the epoch before, as its topology says.

The host is killed with SIGKILL and stays away; of what it saved last no fragment is left, of what it saved before that all are.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agiledart_agent.fragments.fragment_file_store import FragmentUnavailable, _read_header
from agiledart_recovery.wire.register_value import RegisterValue
from tests.e2e.mesh import Mesh, cli, mesh, wait_for
from tests.e2e.plug import Job, as_csv, pull_the_plug, register_of

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.soak, pytest.mark.xdist_group("plug")]

READINGS = 40_000
CODE = """
from datetime import timedelta
from typing import NamedTuple

from agiledart import Pane, Sink, Source, Topology, sum_of, tumbling


class Reading(NamedTuple):
    at: int
    key: int
    value: int


def build(readings: Source[Reading], report: Sink[Pane], copy: Sink[Pane], name: str = "returns") -> Topology:
    topology = Topology(name, delivery="exactly-once", on_state_lost="previous")
    rows = topology.source("readings", readings, event_time=lambda reading: reading.at)
    window = rows.key_by(lambda reading: reading.key).window(tumbling(timedelta(milliseconds=50)))
    sums = window.aggregate("sums", sum_of(lambda reading: reading.value))
    sums.sink("report", report)
    sums.sink("copy", copy)
    return topology
"""


@pytest.fixture
def ring() -> Iterator[Mesh]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "5")
        with mesh(0) as made:
            made.grow_on(*range(1, 6))
            yield made


@pytest.fixture
def expected(tmp_path: Path) -> str:
    """Output of one undisturbed process."""
    (tmp_path / "returns.py").write_text(CODE)
    (tmp_path / "rows.csv").write_text("".join(f"{n},{n % 7},{n * n % 101}\n" for n in range(READINGS)))
    words = ["--set", "readings=csv:rows.csv", "--set", "report=null:", "--set", "copy=csv:expected.csv"]
    told = cli("run", "returns.py:build", *words, cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    return (tmp_path / "expected.csv").read_text()


class Returning(Job):
    """Source on a2, log and file on a3; neither is the agent that is asked."""

    def __init__(self, ring: Mesh, folder: Path) -> None:
        self.ring, self.name, self.out = ring, "returns", folder / "out.csv"
        told = cli(
            "submit", "returns.py:build", "--set", f"readings=csv:{folder / 'rows.csv'}?speed=1@a2",
            "--set", f"report=log:{self.name}@a3", "--set", f"copy=csv:{self.out}@a3", "--parallelism", "sums=5",
            "--agent", str(ring.agents[0].state_dir), cwd=folder,
        )  # fmt: skip
        assert told.returncode == 0, told.stderr


def rows_shown(value: RegisterValue) -> int:
    """Up to where the log is committed: the stage of the larger number is the file, whose end is in bytes."""
    return min(value.parts, key=lambda end: int(end.stage)).offset


def test_rows_of_the_last_epoch_are_duplicated_and_none_is_lost(ring: Mesh, expected: str, tmp_path: Path) -> None:
    job, shown = Returning(ring, tmp_path), dict[int, int]()

    def two_epochs() -> RegisterValue | None:
        value = register_of(ring)
        if value is None or not value.committed.epoch:
            return None
        is_new = value.committed.epoch not in shown
        shown[value.committed.epoch] = rows_shown(value)
        known = value.fallback_checkpoint is not None and value.fallback_checkpoint.epoch in shown
        return value if is_new and known else None

    last = wait_for(two_epochs, 120, "an epoch with another one before it")
    for agent in ring.agents:
        for path in (agent.state_dir / "fragments").glob("*"):
            try:
                header = _read_header(path)
            except (OSError, FragmentUnavailable):
                continue  # of the next epoch, which is being written
            if header.about.key.checkpoint == last.committed:
                path.unlink()
    host = next(one for one in job.status()["placement"]["sums"] if one not in ("a1", "a2", "a3"))
    pull_the_plug(ring.agent(host))
    told = job.until_over()
    assert told["state"] == "finished", (told["reason"], told["history"])
    before, epoch = last.fallback_checkpoint.epoch, last.committed.epoch
    assert any(
        f"rolled back to epoch {before}, because a state of epoch {epoch} is lost with" in entry["text"]
        for entry in told["history"]
    ), told["history"]
    lines = expected.splitlines(keepends=True)
    assert shown[before] < shown[epoch]
    twice = "".join(lines[: shown[epoch]] + lines[shown[before] :])
    assert as_csv(job.logged()) == twice, "emitted rows stay, and all after the earlier epoch follow"
    assert job.out.read_text() == twice
    assert told["summary"]["imbalances"] == []
    assert told["summary"]["results"] == {"report": len(lines), "copy": len(lines)}, "duplicates count once"
