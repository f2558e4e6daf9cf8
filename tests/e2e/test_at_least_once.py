"""`delivery="at-least-once"` on real processes: after a kill -9 nothing is lost, the state is exact, the last rows come again."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.e2e.mesh import Mesh, cli, mesh, wait_for
from tests.e2e.plug import CODE, Job, as_csv, pull_the_plug, undisturbed

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("plug")]

READINGS = 30_000
SHOWING = """

def showing(
    readings: Source[Reading], report: Sink[Pane], copy: Sink[Pane], shown: Sink[Pane], name: str = "showing"
) -> Topology:
    topology = Topology(name, delivery="at-least-once")
    rows = topology.source("readings", readings, event_time=lambda reading: reading.at)
    window = rows.key_by(lambda reading: reading.key).window(tumbling(timedelta(milliseconds=50)))
    sums = window.aggregate("sums", sum_of(lambda reading: reading.value))
    sums.sink("report", report)
    sums.sink("copy", copy)
    sums.sink("shown", shown)
    return topology
"""


@pytest.fixture
def ring() -> Iterator[Mesh]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "3")
        with mesh(0) as made:
            made.grow_on(*range(1, 6))
            yield made


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The folder with code and input, and the lines that one undisturbed process writes."""
    folder = tmp_path_factory.mktemp("showing")
    lines = undisturbed(folder, READINGS).splitlines()
    (folder / "plug.py").write_text(CODE + SHOWING)
    return folder, lines


class Showing(Job):
    """Source on a1, a log, a file and standard output on a3, the state on whichever agent."""

    def __init__(self, ring: Mesh, folder: Path, name: str) -> None:
        self.ring, self.name, self.out = ring, name, folder / f"{name}.jsonl"
        told = cli(
            "submit", "plug.py:showing", "--set", f"readings=csv:{folder / 'rows.csv'}?speed=1@a1",
            "--set", f"report=log:{name}@a3", "--set", f"copy=jsonl:{self.out}@a3", "--set", "shown=stdout:@a3",
            "--set", f"name={name}", "--parallelism", "sums=5", "--agent", str(ring.agents[0].state_dir), cwd=folder,
        )  # fmt: skip
        assert told.returncode == 0, told.stderr
        assert "ends when one of these nodes dies" not in told.stdout

    def shown(self) -> dict[str, list[str]]:
        """Lines of CSV seen at each sink."""
        pane = [msgspec.json.decode(line, type=dict[str, object]) for line in self.out.read_bytes().splitlines()]
        printed = cli("logs", self.name, "--agent", str(self.ring.agent("a3").state_dir)).stdout.splitlines()
        return {
            "report": as_csv(self.logged()).splitlines(),
            "copy": [",".join(str(value) for value in row.values()) for row in pane],
            "shown": [line.rpartition(" ")[2] for line in printed if line.count(",") == 3],
        }


@pytest.mark.soak
def test_a_killed_host_of_state_causes_duplicates_at_most(ring: Mesh, expected: tuple[Path, list[str]]) -> None:
    folder, lines = expected
    job = Showing(ring, folder, "showing")
    wait_for(lambda: (job.status().get("epoch") or {}).get("committed"), 60, "a committed epoch")
    explained = cli("explain", "recovery", job.name, "--agent", str(ring.agents[0].state_dir)).stdout
    assert "delivery='at-least-once'" in explained
    assert explained.count("rows after the last checkpoint appear again") == 3
    assert "refused" not in explained
    so_far = len(job.logged())
    epoch = job.status()["epoch"]["committed"]
    wait_for(lambda: len(job.logged()) > so_far, 30, "rows are seen before their epoch is committed")
    assert job.status()["epoch"]["committed"] <= epoch + 1
    victim = next(name for name in job.status()["placement"]["sums"] if name not in ("a1", "a3"))
    pull_the_plug(ring.agent(victim))
    told = job.until_over()
    assert (told["state"], told["reason"], told["delivery"]) == ("finished", "", "at-least-once")
    assert any("restarted, attempt 2" in entry["text"] for entry in told["history"])
    seen = job.shown()
    summary = told["summary"]
    assert summary["results"] == dict.fromkeys(("report", "copy", "shown"), len(lines)), "the state is exact"
    again = {}
    for sink, rows in seen.items():
        counts = Counter(rows)
        assert set(counts) == set(lines), f"at {sink} each row is seen, and no other one"
        again[sink] = len(rows) - len(lines)
        assert 0 <= again[sink] <= summary["duplicated"][sink], (sink, again, summary["duplicated"])
    assert any(again.values()), "the kill came when rows behind the last epoch had been seen"
    assert told["duplicated"] == sum(summary["duplicated"].values())
    assert {attempt for attempt, _, _ in summary["duplicates_by_attempt"]} == {2}
    said = cli("status", job.name, "--agent", str(ring.agents[0].state_dir)).stdout
    assert f"attempt 2: at most {summary['duplicated']['report']:,} rows emitted again by report" in said
