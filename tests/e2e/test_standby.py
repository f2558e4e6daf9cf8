"""A step with a standby: agents name the standby, an executor waits there, and it takes over from a killed host."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agiledart_node.wire.commands import ExplainRecovery
from tests.e2e.mesh import Mesh, cli, executors_of, mesh, wait_for
from tests.e2e.plug import Job, pull_the_plug

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("plug")]

READINGS = 9_000
CODE = """
from datetime import timedelta
from typing import NamedTuple

from agiledart import Pane, Sink, Source, Topology, sum_of, tumbling


class Reading(NamedTuple):
    at: int
    key: int
    value: int


def build(readings: Source[Reading], report: Sink[Pane], copy: Sink[Pane], name: str = "ready") -> Topology:
    topology = Topology(name, delivery="exactly-once")
    rows = topology.source("readings", readings, event_time=lambda reading: reading.at)
    window = rows.key_by(lambda reading: reading.key).window(tumbling(timedelta(milliseconds=50)))
    sums = window.aggregate("sums", sum_of(lambda reading: reading.value))
    sums.sink("report", report)
    sums.sink("copy", copy)
    topology.place("sums", apart_from=["readings", "copy"])
    topology.standby("sums")
    return topology
"""


@pytest.fixture
def ring() -> Iterator[Mesh]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "1")
        with mesh(0) as made:
            made.grow_on(*range(1, 5))
            yield made


def standbys(job: Job) -> list[str]:
    """Nodes that hold the state of the step ready."""
    return list((job.status().get("epoch") or {}).get("standbys", {}).get("sums", ()))


def test_the_standby_takes_over_from_a_killed_host(ring: Mesh, tmp_path: Path) -> None:
    (tmp_path / "plug.py").write_text(CODE)
    (tmp_path / "rows.csv").write_text("".join(f"{n},{n % 7},{n * n % 101}\n" for n in range(READINGS)))
    told = cli(
        "run", "plug.py:build", "--set", "readings=csv:rows.csv", "--set", "report=null:", "--set",
        "copy=csv:expected.csv", cwd=tmp_path,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    job = Job(ring, tmp_path, "ready")
    (standby,) = wait_for(lambda: standbys(job), 30, "a standby")
    (primary,) = job.status()["placement"]["sums"]
    assert standby != primary
    wait_for(lambda: executors_of(ring.agent(standby)), 20, "an executor waits on the standby")
    facts = ring.agents[0].ask(ExplainRecovery("ready"))
    assert [step["standbys"] for step in facts["steps"] if step["name"] == "sums"] == [[standby]]
    pull_the_plug(ring.agent(primary))
    final = wait_for(
        lambda: (now := job.status()).get("placement", {}).get("sums") == [standby] and now, 30, "a take-over"
    )
    assert final["state"] in ("running", "recovering", "finished")
    end = job.until_over()
    assert (end["state"], end["reason"]) == ("finished", "")
    assert job.out.read_text() == (tmp_path / "expected.csv").read_text()
    wait_for(lambda: not any(executors_of(agent) for agent in ring.living()), 20, "no executor waits any more")
