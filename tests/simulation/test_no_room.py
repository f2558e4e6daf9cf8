"""No node has room: the application waits at its scheduler, everybody can see it, and it runs when there is room."""

from typing import Any

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.observation import Observation
from agiledart_node.scheduling.observations import ApplicationWaits
from agiledart_node.wire.commands import Stop
from tests.simulation.mesh import Mesh, pipeline, submission

PLACES = 8
"""Instances that a node takes here."""


class Full(Mesh):
    """Three nodes with so few places that two applications fill them."""

    def __init__(self, seed: int = 1, **config: Any) -> None:
        self.alarms: list[tuple[NodeId, ApplicationWaits]] = []
        super().__init__(seed, 3, capacity=PLACES, **config)
        self.observations = self._note
        self.build()

    def _note(self, node: NodeId, observation: Observation) -> None:
        if isinstance(observation, ApplicationWaits):
            self.alarms.append((node, observation))

    def send(self, name: str, copies: int = 8, asked: str = "a1") -> int:
        steps = pipeline(name, source_at=asked, sink_at=asked)
        return self.ask(asked, submission(steps, parallelism={"count": copies}))

    def fill(self) -> None:
        for name in ("first", "second"):
            self.answer(self.send(name))

    def waiting(self) -> list[str]:
        return [name for node in self.live for name in node.schedulers.waiting]

    def wait_until_waiting(self, *names: str) -> None:
        assert self.world.run_until(lambda: self.waiting() == [*names], 20 * SECOND, 50 * MILLISECOND), self.waiting()

    def held(self) -> int:
        return max(
            sum(len(part.instances) for (at, _, _), parts in self.running.items() for part in parts if at == node)
            for node in self.ids
        )


def test_a_pending_application_is_visible_and_runs_when_capacity_is_free() -> None:
    mesh = Full()
    mesh.fill()
    request = mesh.send("third")
    mesh.wait_until_waiting("third")
    mesh.world.run_for(20 * SECOND)
    status = mesh.status("a3", "third")
    assert status["state"] == "deploying"
    assert status["reason"].startswith("waiting for capacity: no node has capacity for instance")
    assert (
        "Start more agents, raise the capacity of one (agiledart agent --capacity), stop an application"
        in status["reason"]
    )
    assert [entry["text"].partition(":")[0] for entry in status["history"]] == [
        "submitted to a1",
        "waiting for capacity",
    ]
    ((_, alarm),) = mesh.alarms
    assert (alarm.application, alarm.waiting) == ("third", 1)
    assert any("third waiting for capacity" in line for line in mesh.progress[request])
    assert request not in mesh.answers
    mesh.answer(mesh.ask("a2", Stop("first", True)))
    body = mesh.answer(request, 6 * SECOND)
    assert body["state"] == "running"
    assert mesh.status("a2", "third")["reason"] == ""
    assert mesh.waiting() == []
    assert mesh.held() <= PLACES


def test_stop_ends_the_pending_state() -> None:
    mesh = Full(2)
    mesh.fill()
    request = mesh.send("third")
    mesh.wait_until_waiting("third")
    assert mesh.answer(mesh.ask("a3", Stop("third", False)))["state"] == "stopped"
    assert mesh.refusal(request, 6 * SECOND) == "stopped by tester"
    assert mesh.waiting() == []
    assert mesh.hosts("third") == []
    mesh.world.run_for(5 * SECOND)
    assert all(key[0] != "third" for node in mesh.live for key in node.hosted)


def test_the_pending_queue_is_bounded() -> None:
    mesh = Full(3, max_pending=1)
    mesh.fill()
    mesh.send("third")
    mesh.wait_until_waiting("third")
    told = mesh.refusal(mesh.send("fourth"))
    assert told.startswith("no node has capacity")
    assert told.endswith("1 others wait for room already.")
    assert mesh.status("a1", "fourth")["state"] == "failed"


def test_without_a_pending_queue_an_application_is_refused_at_once() -> None:
    mesh = Full(4, max_pending=0)
    mesh.fill()
    assert mesh.refusal(mesh.send("third"), 5 * SECOND).startswith("no node has capacity")


def test_the_pending_state_times_out() -> None:
    mesh = Full(5, pending_timeout_ns=12 * SECOND)
    mesh.fill()
    request = mesh.send("third")
    mesh.wait_until_waiting("third")
    assert mesh.refusal(request, 14 * SECOND).endswith("third has waited for 12 s, which is the limit.")
    assert mesh.status("a1", "third")["state"] == "failed"
    assert mesh.waiting() == []


def test_an_application_too_large_for_empty_nodes_is_not_queued() -> None:
    mesh = Full(6)
    assert mesh.refusal(mesh.send("giant", 3 * PLACES), 5 * SECOND).startswith("no node has capacity")
    assert mesh.alarms == []


def test_a_small_application_overtakes_a_large_one_without_capacity() -> None:
    mesh = Full(7)
    mesh.fill()
    large = mesh.send("large", 16)
    mesh.wait_until_waiting("large")
    small = mesh.send("small", 6)
    mesh.wait_until_waiting("large", "small")
    mesh.answer(mesh.ask("a2", Stop("first", True)))
    mesh.answer(small, 8 * SECOND)
    assert large not in mesh.answers
    mesh.answer(mesh.ask("a2", Stop("second", True)))
    mesh.answer(mesh.ask("a2", Stop("small", True)))
    mesh.answer(large, 8 * SECOND)


def test_a_pending_application_survives_its_scheduler() -> None:
    """It is submitted once more through another one; the applications on the dead node have failed and left room."""
    mesh = Full(8)
    mesh.fill()
    (scheduler,) = [node.me.name for node in mesh.live if node.schedulers.role.scheduler_slot is not None]
    asked = next(name for name in ("a1", "a2", "a3") if name != scheduler)
    request = mesh.send("third", asked=asked)
    mesh.wait_until_waiting("third")
    mesh.crash(scheduler)
    body = mesh.answer(request, 60 * SECOND)
    assert (body["state"], body["version"]) == ("running", 2)
    assert mesh.waiting() == []
