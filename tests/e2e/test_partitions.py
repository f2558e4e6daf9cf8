"""An exactly-once job while hosts are cut off for 5 to 60 seconds, each in turn: one side commits, and the result is exact.

Each host is a network namespace behind one of two bridges; it needs root and `ip`. `AGILEDART_CUTS=N` cuts so often.
"""

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agiledart_control.errors import CommandRefusedError, NoAgentError
from agiledart_node.wire.commands import Status
from tests.e2e.hosts import Hosts, brought_up, mesh_on
from tests.e2e.mesh import AgentProcess, Mesh, cli, executors_of, wait_for
from tests.e2e.plug import Job, as_csv, undisturbed, voters_of

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.soak]

COUNT = 5
CUTS = int(os.environ.get("AGILEDART_CUTS", "2"))
LONGEST = 60.0
SLEEP_SECONDS = 30.0


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    yield from brought_up(COUNT)


@pytest.fixture
def ring(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mesh]:
    monkeypatch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "1")
    with mesh_on(hosts) as made:
        yield made


def epoch_at(agent: AgentProcess, name: str) -> int:
    """The committed epoch as an agent knows it; -1: it receives nothing."""
    try:
        told = agent.ask(Status(name))
    except (CommandRefusedError, NoAgentError, OSError):
        return -1
    epoch: dict[str, Any] = told.get("epoch") or {}
    return int(epoch.get("committed", -1)) if epoch.get("age_s") is not None else -1


def is_beginning(job: Job, expected: str) -> bool:
    """Whether readers of committed rows have seen the beginning of the right result."""
    return expected.startswith(as_csv(job.logged()))


def test_one_side_commits_and_no_row_is_lost_or_duplicated(hosts: Hosts, ring: Mesh, tmp_path: Path) -> None:
    dice = random.Random(CUTS)
    lengths = [dice.uniform(5.0, LONGEST) for _ in range(CUTS)]
    seconds = int(sum(lengths)) + 25 * CUTS
    expected = undisturbed(tmp_path, 1_000 * seconds)
    job = Job(ring, tmp_path, "parts")
    job.until_committed()
    for number, length in enumerate(lengths):
        alone = ring.agents[number % COUNT]
        others = [agent for agent in ring.agents if agent is not alone]
        hosts.move([alone.name], "right")
        end, advanced = time.monotonic() + length, {"alone": 0, "others": 0}
        last: dict[str, int] = {}
        settles = time.monotonic() + 3.0  # answers that were under way
        while time.monotonic() < end:
            for side, agents in (("alone", [alone]), ("others", others[:1])):
                epoch = max(epoch_at(agent, "parts") for agent in agents)
                if time.monotonic() > settles and 0 <= last.get(side, -1) < epoch:
                    advanced[side] += 1
                last[side] = max(epoch, last.get(side, -1))
            assert is_beginning(job, expected), f"cut {number}: {alone.name} is alone"
            time.sleep(0.5)
        assert not advanced["alone"], f"{alone.name} has no majority, and committed: {advanced}"
        before = max(epoch_at(agent, "parts") for agent in ring.agents)
        hosts.move([alone.name], "left")
        wait_for(
            lambda before=before: max(epoch_at(agent, "parts") for agent in ring.agents) > before + 1,
            60,
            "it commits again",
        )
        assert is_beginning(job, expected), f"after cut {number}"
    ring.wait_for_ring(90.0)
    over = job.until_over()
    assert (over["state"], over["reason"]) == ("finished", "")
    assert job.out.read_text() == expected
    assert as_csv(job.logged()) == expected


def seen_by(agent: AgentProcess, name: str) -> dict[str, Any]:
    """Output of `status` on one agent; nothing while it does not answer."""
    try:
        return dict(agent.ask(Status(name)))
    except (CommandRefusedError, NoAgentError, OSError):
        return {"state": ""}


def rows_read(told: dict[str, Any]) -> int:
    """Lines that the source has read."""
    (source,) = (stage for stage in told["stages"] if stage["name"] == "readings")
    return sum(one.get("steps", {}).get("readings", {}).get("rows_in", 0) for one in source["instances"])


def test_a_minority_partition_reports_itself_works_on_and_its_rows_come_later(
    hosts: Hosts, ring: Mesh, tmp_path: Path
) -> None:
    expected = undisturbed(tmp_path, 90_000)
    job = Job(ring, tmp_path, "isle", at="a3")  # all of it is on a3
    job.until_committed()
    alone = ring.agent("a3")
    assert {name for names in job.status()["placement"].values() for name in names} == {"a3"}
    voters = voters_of(ring)
    others = [name for name in voters if name != "a3"]
    assert len(others) > len(voters) / 2
    hosts.move(["a3"], "right")
    wait_for(lambda: seen_by(alone, "isle")["state"] == "minority", 30, "it says that it is an island")
    for _ in range(10):
        told = seen_by(alone, "isle")
        assert (told["state"], told["recovery"]["phase"]) == ("minority", "minority")
        assert set(told["recovery"]["waits_for"]) == {*others}
        assert "its rows are committed when enough voters are reached again" in told["recovery"]["reason"]
        assert is_beginning(job, expected)
        time.sleep(0.5)
    first, since = rows_read(told), told["recovery"]["seconds"]
    wait_for(lambda: rows_read(seen_by(alone, "isle")) > first, 20, "it works on")
    later = seen_by(alone, "isle")
    assert later["recovery"]["seconds"] > since > 4.0, "for how long nothing has been committed"
    assert later["epoch"]["committed"] == told["epoch"]["committed"]
    where = "--agent", str(alone.state_dir)
    for words in (("status", "isle"), ("list",), ("top", "--once")):
        shown = cli(*words, *where)
        assert (shown.returncode, "minority" in shown.stdout) == (0, True), (words, shown)
        assert "no commit for" in shown.stdout, (words, shown)
    assert seen_by(ring.agent("a1"), "isle")["recovery"]["waits_for"] == ["a3"], "the others wait for it"
    hosts.move(["a3"], "left")
    wait_for(lambda: seen_by(alone, "isle")["state"] in ("running", "finished"), 90, "it is one ring again")
    ring.wait_for_ring(90.0)
    over = job.until_over()
    assert (over["state"], over["reason"]) == ("finished", "")
    assert job.out.read_text() == expected
    assert as_csv(job.logged()) == expected


def test_a_coordinator_that_slept_changes_nothing(ring: Mesh, tmp_path: Path) -> None:
    expected = undisturbed(tmp_path, 90_000)
    job = Job(ring, tmp_path, "sleeper")
    job.until_committed()
    coordinator = ring.agent(wait_for(lambda: job.status().get("epoch"), 30, "a node coordinates")["coordinator"])
    pids = [*executors_of(coordinator), coordinator.pid]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    end = time.monotonic() + SLEEP_SECONDS
    while time.monotonic() < end:
        assert is_beginning(job, expected)
        time.sleep(0.5)
    for pid in pids:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            continue
    over = job.until_over()
    assert (over["state"], over["reason"]) == ("finished", "")
    assert job.out.read_text() == expected
    assert as_csv(job.logged()) == expected
