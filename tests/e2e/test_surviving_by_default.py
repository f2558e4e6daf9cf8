"""Without a word about delivery, an application survives a kill -9 of a host of state; one without state leaves no snapshot."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.mesh import Mesh, cli, mesh, wait_for
from tests.e2e.plug import CODE, pull_the_plug, undisturbed
from tests.e2e.test_at_least_once import SHOWING, Showing

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("plug")]

READINGS = 15_000
PASSING = """

def passing(readings: Source[Reading], out: Sink[Reading], name: str = "passing") -> Topology:
    topology = Topology(name)
    rows = topology.source("readings", readings, event_time=lambda reading: reading.at)
    rows.filter(lambda reading: reading.value % 2 == 0, name="even").sink("out", out)
    return topology
"""


@pytest.fixture
def ring() -> Iterator[Mesh]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "2")
        with mesh(0) as made:
            made.grow_on(*range(1, 6))
            yield made


def test_a_killed_host_of_state_costs_no_row_and_files_are_exact(ring: Mesh, tmp_path: Path) -> None:
    lines = undisturbed(tmp_path, READINGS).splitlines()
    (tmp_path / "plug.py").write_text(CODE + SHOWING.replace(', delivery="at-least-once"', "") + PASSING)
    told = cli(
        "submit", "plug.py:passing", "--set", f"readings=csv:{tmp_path / 'rows.csv'}?speed=1@a1",
        "--set", f"out=csv:{tmp_path / 'even.csv'}@a3", "--agent", str(ring.agents[0].state_dir), cwd=tmp_path,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    assert "nothing but positions is saved" in told.stdout
    job = Showing(ring, tmp_path, "showing")
    wait_for(lambda: (job.status().get("epoch") or {}).get("committed"), 60, "a committed epoch")
    assert not [path for agent in ring.agents for path in (agent.state_dir / "runs").glob("passing.*/elements/*")]
    victim = next(name for name in job.status()["placement"]["sums"] if name not in ("a1", "a3"))
    pull_the_plug(ring.agent(victim))
    final = job.until_over()
    assert (final["state"], final["reason"], final["delivery"], final["lost"]) == ("finished", "", "survive", 0)
    assert any("restarted, attempt 2" in entry["text"] for entry in final["history"])
    shown = job.shown()
    assert sorted(shown["copy"]) == sorted(lines), "the file is cut back to the epoch"
    for sink, rows in shown.items():
        counts = Counter(rows)
        assert set(counts) == set(lines), f"at {sink} each row is seen, and no other one"
        assert len(rows) - len(lines) <= final["summary"]["duplicated"].get(sink, 0), sink
