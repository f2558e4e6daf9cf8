"""A node is emptied while rows flow, on real agents, and takes work again, or leaves; results are those of an undisturbed run."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agiledart_node.wire.commands import Nodes
from tests.e2e.mesh import Mesh, cli, mesh, wait_for
from tests.e2e.plug import Job, as_csv, pull_the_plug, undisturbed, voters_of

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("plug")]

READINGS = 90_000


@pytest.fixture
def ring() -> Iterator[Mesh]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "1")
        with mesh(4) as made:
            yield made


def told(ring: Mesh, *words: str) -> tuple[int, str]:
    answer = cli(*words, "--agent", str(ring.agents[0].state_dir))
    return answer.returncode, answer.stdout + answer.stderr


def node(ring: Mesh, name: str) -> dict[str, Any]:
    return next(dict(row) for row in ring.agents[0].ask(Nodes())["nodes"] if row["name"] == name)


def hosts(*jobs: Job) -> set[str]:
    return {name for job in jobs for names in job.status()["placement"].values() for name in names}


@pytest.mark.soak
def test_a_node_is_drained_while_rows_flow_accepts_work_again_and_leaves(ring: Mesh, tmp_path: Path) -> None:
    expected = undisturbed(tmp_path, READINGS)
    steady = Job(ring, tmp_path, "steady", "--parallelism", "sums=2")
    roaming = Job(ring, tmp_path, "roaming", entry="roaming", at="a2")
    for job in (steady, roaming):
        job.until_committed()
    for name, stage in (("steady", "sums.0"), ("roaming", "sums")):
        assert told(ring, "move", name, stage, "a2")[0] == 0
    wait_for(lambda: steady.status()["placement"]["sums"][0] == "a2", 30, "its state is on a2")
    for words, code, text in (
        (("a22",), 2, "No node 'a22' in the ring. Did you mean a2?"),
        (("a3",), 1, "steady has its sink report there, which stays where its data are"),
        (("a1",), 1, 'on_source_lost="move"'),
        (("a2", "--stay", "--undo"), 2, "give only one of them"),
        (("a2", "--undo"), 0, "It already did"),
    ):
        assert (code, text in (answer := told(ring, "drain", *words))[1]) == (answer[0], True), (words, answer)

    code, text = told(ring, "drain", "a2", "--stay", "-o", "json")
    assert code == 0, text
    body = msgspec.json.decode(text[text.index("{") : text.rindex("}") + 1])
    assert (body["node"], body["state"], body["is_unchanged"]) == ("a2", "drained", False)
    left = {row["name"]: row["instances"] for row in body["applications"]}
    assert (sorted(left), left["roaming"]) == (["roaming", "steady"], 2)
    assert "roaming has left in" in text
    wait_for(lambda: "a2" not in hosts(steady, roaming), 30, "their records say so")
    assert (node(ring, "a2")["is_draining"], node(ring, "a2")["instances"]) == (True, 0)
    assert "It was already so" in told(ring, "drain", "a2", "--stay")[1]
    assert "a2 is drained or is leaving the ring" in told(ring, "move", "steady", "sums", "a2")[1]
    assert told(ring, "drain", "a2", "--undo")[0] == 0
    assert not node(ring, "a2")["is_draining"]

    code, text = told(ring, "drain", "a2")
    assert (code, "a2 has left the ring" in text) == (0, True), text
    process = ring.agent("a2").process
    assert process is not None
    assert process.wait(20) == 0
    for job in (steady, roaming):
        over = job.until_over()
        assert (over["state"], over["reason"]) == ("finished", "")
        assert job.out.read_text() == expected
        assert as_csv(job.logged()) == expected
    assert not any("restarted, attempt" in entry["text"] for entry in steady.status()["history"]), "in one life"


@pytest.mark.soak
def test_a_voter_transfers_its_slot_before_it_leaves(tmp_path: Path) -> None:
    expected = undisturbed(tmp_path, 30_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "1")
        with mesh(0) as made:
            made.grow_on(1, 2, 3, 4, 1)  # four machines, so that there are three voters
            job = Job(made, tmp_path, "seats")
            job.until_committed()

            before = voters_of(made)
            leaving = next(name for name in before if name not in hosts(job))  # a host transfers its stages by itselff
            code, text = told(made, "drain", leaving)
            assert (code, "seats: another node votes in its register" in text) == (0, True), text
            after = voters_of(made)
            assert (leaving in after, len(after)) == (False, len(before))
            over = job.until_over()
            assert (over["state"], over["reason"]) == ("finished", "")
            assert job.out.read_text() == expected
            assert as_csv(job.logged()) == expected


@pytest.mark.soak
def test_a_terminated_voter_transfers_its_vote_so_that_two_more_may_be_lost(tmp_path: Path) -> None:
    expected = undisturbed(tmp_path, 60_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "1")
        with mesh(0) as made:
            made.grow_on(1, 2, 3, 4, 5, 6, 7, 8)  # five vote, and two can take a vote over
            job = Job(made, tmp_path, "going")
            job.until_committed()
            before = voters_of(made)
            assert len(before) == 5
            stateful = next(agent.name for agent in made.agents if agent.name not in (*before, "a1", "a3"))
            assert told(made, "move", "going", "sums", stateful)[0] == 0
            wait_for(lambda: hosts(job) == {"a1", stateful, "a3"}, 30, f"its state is on {stateful}")
            assert made.agent(stateful).end() == 0
            wait_for(lambda: stateful not in hosts(job), 30, "another agent has its state")
            before = voters_of(made)
            idle = [name for name in before if name not in hosts(job)]
            leaving, *lost = [*idle, *(name for name in before if name not in (*idle, "a1", "a3"))][:3]
            began = time.monotonic()
            assert made.agent(leaving).end() == 0
            took = time.monotonic() - began
            after = voters_of(made)
            assert (leaving in after, len(after)) == (False, 5), f"{leaving} ended in {took:.1f} s"
            for name in lost:
                pull_the_plug(made.agent(name))
                seen = len(job.logged())
                wait_for(lambda above=seen: len(job.logged()) > above, 60, f"rows are committed without {name}")
            over = job.until_over()
            assert (over["state"], over["reason"]) == ("finished", "")
            assert job.out.read_text() == expected
            assert as_csv(job.logged()) == expected


def test_an_application_survives_the_shutdown_of_all_agents(tmp_path: Path) -> None:
    expected = undisturbed(tmp_path, 14_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "1")
        with mesh(0) as made:
            made.grow_on(1, 2, 3, 4, 5, 6)  # five vote, and at most three of them run something
            job = Job(made, tmp_path, "whole")
            job.until_committed()
            addresses = {agent.name: agent.address for agent in made.agents}
            processes = [agent.process for agent in made.agents if agent.process is not None]
            for process in processes:
                process.send_signal(signal.SIGTERM)
            assert [process.wait(30) for process in processes] == [0] * len(made.agents)
            for agent in made.agents:
                agent.start("--listen", addresses[agent.name])
                agent.ready()
            over = job.until_over()
            assert (over["state"], over["reason"]) == ("finished", "")
            assert job.out.read_text() == expected
            assert as_csv(job.logged()) == expected
