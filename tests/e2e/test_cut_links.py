"""Data links are cut, stalled and broken while rows flow: no row is lost or duplicated, and `status` names the waiting host."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agiledart_control.errors import CommandRefusedError
from agiledart_node.wire.commands import Status
from tests.e2e.detour import RELAYS_GO_STRAIGHT, Detours, detours
from tests.e2e.mesh import Mesh, cli, executors_of, mesh, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CODE = """
from datetime import timedelta
from typing import NamedTuple

from agiledart import Pane, Sink, Source, Topology, sum_of, tumbling


class Reading(NamedTuple):
    at: int
    key: int
    value: int


def build(readings: Source[Reading], report: Sink[Pane], name: str = "cut", delivery: str = "at-most-once") -> Topology:
    topology = Topology(name, delivery=delivery)
    rows = topology.source("readings", readings, event_time=lambda reading: reading.at)
    window = rows.key_by(lambda reading: reading.key).window(tumbling(timedelta(milliseconds=50)))
    window.aggregate("sums", sum_of(lambda reading: reading.value)).sink("report", report)
    return topology
"""

READINGS = 6_000
FINAL = ("finished", "failed", "stopped")


@pytest.fixture(scope="module")
def ways() -> Iterator[Detours]:
    with detours() as made:
        yield made


@pytest.fixture(scope="module")
def ring(ways: Detours) -> Iterator[Mesh]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "1")
        with mesh(3) as made:
            yield made


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder with code and input, and what one process writes."""
    folder = tmp_path_factory.mktemp("cut")
    (folder / "job.py").write_text(CODE)
    (folder / "rows.csv").write_text("".join(f"{n},{n % 7},{n * n % 101}\n" for n in range(READINGS)))
    told = cli(
        "run", "job.py:build", "--set", "readings=csv:rows.csv", "--set", "report=csv:expected.csv", cwd=folder
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    return folder, (folder / "expected.csv").read_text()


class Job:
    """One application: source on a1, sink on a3."""

    def __init__(self, ring: Mesh, folder: Path, name: str, delivery: str) -> None:
        self.ring, self.name, self.out = ring, name, folder / f"{name}.csv"
        told = cli(
            "submit", "job.py:build", "--set", f"readings=csv:{folder / 'rows.csv'}?speed=1@a1",
            "--set", f"report=csv:{self.out}@a3", "--set", f"name={name}", "--set", f"delivery={delivery}",
            "--agent", str(ring.agents[0].state_dir), cwd=folder,
        )  # fmt: skip
        assert told.returncode == 0, told.stderr

    def status(self) -> dict[str, Any]:
        """As the first agent sees it."""
        try:
            return dict(self.ring.agents[0].ask(Status(self.name)))
        except CommandRefusedError:
            return {"state": "", "stages": []}

    def instances(self) -> list[dict[str, Any]]:
        """Figures of all instances."""
        return [one for stage in self.status()["stages"] for one in stage["instances"]]

    def figure(self, name: str) -> int:
        """Sum of one over all instances."""
        return sum(one.get(name, 0) for one in self.instances())

    def until_rows_come(self) -> None:
        """Wait until the sink has been given some."""
        wait_for(lambda: self.rows_out() > 100, 60, f"rows of {self.name}")

    def rows_out(self) -> int:
        """Rows that the sink took."""
        return int(self.status().get("summary", {}).get("results", {}).get("report", 0))

    def until_it_waits(self) -> str:
        """Wait until a host waits for another; return the `status` output about it."""
        return str(wait_for(lambda: next(filter(None, (one.get("waits_for", "") for one in self.instances())), ""), 30,
                            f"{self.name} says for whom it waits"))  # fmt: skip

    def ends_as(self, expected: str) -> None:
        """It finishes in its first attempt, with the right rows."""
        told = dict(wait_for(lambda: (told := self.status())["state"] in FINAL and told, 120, f"{self.name} ends"))
        assert (told["state"], told["reason"]) == ("finished", "")
        assert not any("restarted, attempt" in entry["text"] for entry in told["history"])
        assert self.out.read_text() == expected


def cut_and_heal(ways: Detours, job: Job) -> None:
    """Bytes in transit stay where they are, as in a long back-off."""
    ways.cut()
    assert "no answer for" in job.until_it_waits()
    shown = cli("status", job.name, "--agent", str(job.ring.agents[0].state_dir)).stdout
    assert "waits for a" in shown
    ways.heal(resumes=False)
    wait_for(lambda: not any(one.get("waits_for") for one in job.instances()), 30, "no host waits any more")


def stall_and_heal(ways: Detours, job: Job) -> None:
    """Bytes in transit arrive late, beside their retransmission."""
    ways.cut()
    job.until_it_waits()
    ways.heal(resumes=True)


def reset_often(ways: Detours, job: Job) -> None:
    """The connection breaks, again and again."""
    for _ in range(5):
        made, rows = ways.made, job.rows_out()
        ways.reset()
        wait_for(lambda made=made: ways.made > made, 30, "a host dials again")
        wait_for(lambda rows=rows: job.rows_out() > rows or job.status()["state"] in FINAL, 30, "rows come again")


@pytest.mark.parametrize("trouble", [cut_and_heal, stall_and_heal, reset_often])
@pytest.mark.parametrize("delivery", ["at-most-once", "exactly-once"])
def test_a_cut_link_loses_nothing(
    ring: Mesh,
    ways: Detours,
    expected: tuple[Path, str],
    delivery: str,
    trouble: Callable[[Detours, Job], None],
) -> None:
    job = Job(ring, expected[0], f"{trouble.__name__.replace('_', '-')}-{delivery}", delivery)
    job.until_rows_come()
    trouble(ways, job)
    job.ends_as(expected[1])


def test_a_sleeping_receiver_keeps_its_link(ring: Mesh, ways: Detours, expected: tuple[Path, str]) -> None:
    job = Job(ring, expected[0], "sleeper", "at-most-once")
    job.until_rows_come()
    sleepers = executors_of(ring.agent("a3"))
    for pid in sleepers:
        os.kill(pid, signal.SIGSTOP)
    job.until_it_waits()
    for pid in sleepers:
        os.kill(pid, signal.SIGCONT)
    wait_for(lambda: not any(one.get("waits_for") for one in job.instances()), 30, "no host waits any more")
    assert job.figure("frames_resent") == 0
    job.ends_as(expected[1])


def test_relays_bypass_a_cut(expected: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hosts that do not reach each other, before the job begins and while it runs: a third leads from one to the other."""
    monkeypatch.setenv(RELAYS_GO_STRAIGHT, "1")
    with detours() as ways, mesh(3) as ring:
        running = Job(ring, expected[0], "round-a-cut", "at-most-once")
        running.until_rows_come()
        ways.cut()
        begun = Job(ring, expected[0], "round-from-the-start", "exactly-once")
        running.ends_as(expected[1])
        begun.ends_as(expected[1])


def test_a_cut_that_never_heals_ends_with_the_reason(
    expected: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGILEDART_AGENT__PATH_TIMEOUT", "3")
    with detours() as ways, mesh(3) as ring:
        job = Job(ring, expected[0], "never", "at-most-once")
        job.until_rows_come()
        ways.cut()
        told = dict(wait_for(lambda: (told := job.status())["state"] == "failed" and told, 60, "it fails"))
    assert "no path to a" in told["reason"]
    assert "has worked for 3 s" in told["reason"]
