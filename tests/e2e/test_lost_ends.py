"""Agents with a source or a sink are killed for good: by the topology's policy others go on there, or the application fails."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agiledart_sink_log.layout import log_directory
from agiledart_sink_log.log_reader import LogReader
from tests.e2e.mesh import AgentProcess, Mesh, cli, mesh, wait_for
from tests.e2e.plug import Job, as_csv, pull_the_plug
from tests.e2e.test_sink_log import client, rows_from

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("plug")]

READINGS = 12_000
CODE = """
from datetime import timedelta
from typing import NamedTuple

from agiledart import Pane, Sink, Source, Topology, sum_of, tumbling


class Reading(NamedTuple):
    at: int
    key: int
    value: int


def build(
    readings: Source[Reading], report: Sink[Pane], name: str = "ends", lost: str = "wait", state: str = "wait"
) -> Topology:
    policies = {"on_source_lost": lost, "on_sink_lost": lost, "on_state_lost": state}
    topology = Topology(name, delivery="exactly-once", **policies)
    rows = topology.source("readings", readings, event_time=lambda reading: reading.at)
    window = rows.key_by(lambda reading: reading.key).window(tumbling(timedelta(milliseconds=50)))
    window.aggregate("sums", sum_of(lambda reading: reading.value)).sink("report", report)
    return topology
"""


@pytest.fixture
def ring() -> Iterator[Mesh]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "1")
        with mesh(0) as made:
            made.grow_on(*range(1, 6))
            yield made


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder with code and input, and what one undisturbed process writes."""
    folder = tmp_path_factory.mktemp("ends")
    (folder / "ends.py").write_text(CODE)
    (folder / "rows.csv").write_text("".join(f"{n},{n % 7},{n * n % 101}\n" for n in range(READINGS)))
    words = ["run", "ends.py:build", "--set", "readings=csv:rows.csv", "--set", "report=csv:expected.csv"]
    told = cli(*words, cwd=folder)
    assert told.returncode == 0, told.stderr
    return folder, (folder / "expected.csv").read_text()


class Ends(Job):
    """Source on a2, log on a3; neither is the agent that is asked."""

    def __init__(self, ring: Mesh, folder: Path, name: str, lost: str, *more: str) -> None:
        self.ring, self.name = ring, name
        told = cli(
            "submit", "ends.py:build", "--set", f"readings=csv:{folder / 'rows.csv'}?speed=1@a2",
            "--set", f"report=log:{name}@a3", "--set", f"name={name}", "--set", f"lost={lost}",
            "--agent", str(ring.agents[0].state_dir), *more, cwd=folder,
        )  # fmt: skip
        assert told.returncode == 0, told.stderr


def part_of(agent: AgentProcess, name: str) -> tuple[int, list[Any]]:
    """(offset of the first row, committed rows) of the part of a log that an agent has."""
    folder = log_directory(agent.state_dir, name)
    if not (folder / "log.json").exists():
        return 0, []
    reader, rows = LogReader(folder), []
    ends = reader.ends(0)
    offset = ends.first
    while offset < ends.committed:
        batches, offset, _ = reader.fetch(0, offset, 10_000, 1 << 20)
        for batch in batches:
            rows += msgspec.msgpack.decode(batch.body)
    return ends.first, rows


def test_source_and_sink_continue_elsewhere(ring: Mesh, expected: tuple[Path, str]) -> None:
    job = Ends(ring, expected[0], "moves", "move")
    job.until_committed()
    source, sink = ring.agent("a2"), ring.agent("a3")
    pull_the_plug(source)
    wait_for(lambda: job.status().get("placement", {}).get("readings", ["a2"]) != ["a2"], 60, "the source has moved")
    pull_the_plug(sink)
    told = job.until_over()
    assert (told["state"], told["reason"]) == ("finished", "")
    (host,) = told["placement"]["report"]
    assert host not in ("a2", "a3")
    lines = expected[1].splitlines(keepends=True)
    first, rows = part_of(ring.agent(host), "moves")
    assert 0 < first < len(lines), "the log's offsets go on where the register has them"
    assert as_csv(rows) == "".join(lines[first:])
    _, before = part_of(sink, "moves")
    assert as_csv(before) == "".join(lines[: len(before)])
    with client(ring.living(), ring.agents[0]) as reader:  # which asks the ring where the log is now
        assert as_csv([list(row) for row in rows_from(reader, "moves", first, len(lines))]) == "".join(lines[first:])


def test_a_run_set_to_fail_without_its_sink_fails(ring: Mesh, expected: tuple[Path, str]) -> None:
    job = Ends(ring, expected[0], "fails", "fail")
    job.until_committed()
    pull_the_plug(ring.agent("a3"))
    told = job.until_over()
    assert told["state"] == "failed"
    assert "a3, which ran a sink of this run, is lost" in told["reason"]


@pytest.mark.soak
def test_a_state_without_any_copy_begins_empty(ring: Mesh, expected: tuple[Path, str]) -> None:
    job = Ends(ring, expected[0], "empties", "wait", "--set", "state=empty", "--parallelism", "sums=5")
    job.until_committed()
    host = next(one for one in job.status()["placement"]["sums"] if one not in ("a2", "a3"))
    pull_the_plug(ring.agent(host))
    for agent in ring.living():
        for path in (agent.state_dir / "fragments").glob("*"):
            path.unlink()
    told = job.until_over()
    assert (told["state"], told["reason"]) == ("finished", "")
    assert any("began with an empty state" in entry["text"] for entry in told["history"])
