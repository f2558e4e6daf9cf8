"""Schedulers in the simulator: found, elected, replaced, resigning, and one for each scheduler slot."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_node.context.config import NodeConfig
from agiledart_node.node import Node
from agiledart_node.scheduling import submission_dispatcher
from agiledart_node.wire.commands import ListApplications, Nodes, Status, Stop, Submit
from agiledart_node.wire.effects import RefusedRequest, Replied
from agiledart_simulation.checkers.schedulers import (
    holders,
    scheduler_slot_violations,
    schedulers_of,
    service_violations,
)
from agiledart_simulation.runs.scheduling_run import RunOptions, run_submissions
from agiledart_simulation.runs.workload import SchedulingObservations, Workload, chain
from agiledart_simulation.world.node_ring import NodeRing


def count_violations(nodes: Iterable[Node], applications: Mapping[str, int], limit: int) -> list[str]:
    """Return violations of sc_1: a domain with a ≥ 1 applications has max(1, ⌈a/limit⌉) schedulers.

    Valid when no scheduler left, died or ended.

    Args:
        applications: running ones, by domain.
    """
    served = schedulers_of(nodes)
    violations = []
    for domain, count in applications.items():
        want, have = max(1, -(-count // limit)), len(served.get(domain, []))
        if have != want:
            violations.append(
                f"sc_1: {domain or 'the only zone'} has {have} schedulers for {count} applications, not {want}"
            )
    return violations


class Town:
    """A small ring that was joined for real; `limit` applications make a scheduler full."""

    def __init__(
        self, seed: int, count: int, limit: int = 3, *, zones: int = 0, start_ns: int = 0, **config: Any
    ) -> None:
        self.scheduling = SchedulingObservations()
        settings = replace(NodeConfig.lan(), apps_per_scheduler=limit, **config)
        self.ring = self.scheduling.ring = NodeRing(
            seed,
            count,
            settings,
            zones=zones,
            checks_wire=True,
            start_ns=start_ns,
            observations=self.scheduling.observe,
        )
        assert self.ring.join_all()
        self.run(3)

    def run(self, seconds: float) -> None:
        self.ring.world.run_for(int(seconds * SECOND))

    def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        return self.ring.world.run_until(condition, int(seconds * SECOND), 100 * MILLISECOND)

    def submit(self, number: int, at: str, hosts: str = "") -> int:
        specification = chain(f"app-{number}", 2, [hosts or at], hosts or at)
        return self.ring.ask(at, Submit("", msgspec.msgpack.encode(specification), b"code", delivery="at-most-once"))

    def runs(self, *requests: int) -> list[dict[str, Any]]:
        assert self.until(lambda: all(request in self.ring.answers for request in requests), 60), "no answer"
        bodies = []
        for request in requests:
            answer = self.ring.answers[request]
            assert isinstance(answer, Replied), answer
            bodies.append(answer.body)
        return bodies

    def ask(self, at: str, command: Any) -> dict[str, Any]:
        return self.runs(self.ring.ask(at, command))[0]

    @property
    def nodes(self) -> list[Node]:
        return list(self.ring.live)

    @property
    def schedulers(self) -> list[Node]:
        return [there[0] for there in holders(self.nodes).values()]

    def is_sound(self) -> bool:
        return not scheduler_slot_violations(self.nodes) and not service_violations(self.nodes)


def test_the_number_of_schedulers_follows_that_of_applications() -> None:
    town = Town(1, 8)
    for number in range(7):
        (body,) = town.runs(town.submit(number, f"a{number % 8 + 1}"))
        assert body["scheduler"] in {node.me.name for node in town.schedulers}
        assert count_violations(town.nodes, {"": number + 1}, 3) == []
    assert schedulers_of(town.nodes) == {"": [3, 3, 1]}
    town.run(15)
    assert town.is_sound()
    assert town.scheduling.missed == 0
    rows = town.ask("a5", Nodes())["nodes"]
    assert sorted(row["schedules"] for row in rows if row["schedules"] is not None) == [1, 3, 3]
    assert len(town.ask("a7", ListApplications())["applications"]) == 7
    assert town.ask("a2", Stop("app-3", True))["state"] == "stopped"
    assert town.until(lambda: sum(sum(counts) for counts in schedulers_of(town.nodes).values()) == 6, 5)


def test_concurrent_submissions_fill_scheduler_slots_one_after_another() -> None:
    town = Town(2, 12)
    requests = [town.submit(number, f"a{number % 12 + 1}") for number in range(14)]
    town.runs(*requests)
    assert schedulers_of(town.nodes) == {"": [3, 3, 3, 3, 2]}
    town.run(12)
    assert town.is_sound()


def test_zones_have_their_own_schedulers_and_a_region_shares_them() -> None:
    town = Town(3, 12, 5, zones=3)
    town.runs(*[town.submit(number, f"a{number + 1}") for number in range(9)])
    assert schedulers_of(town.nodes) == {"zone-0": [3], "zone-1": [3], "zone-2": [3]}
    assert all(node.me.zone == domain for (domain, _), (node,) in holders(town.nodes).items())
    region = Town(3, 12, 5, zones=3, scheduler_scope="region")
    region.runs(*[region.submit(number, f"a{number + 1}") for number in range(9)])
    assert [sum(counts) for counts in schedulers_of(region.nodes).values()] == [9]
    assert len(region.schedulers) == 2
    assert len({node.me.zone for node in region.schedulers}) == 2


@pytest.mark.parametrize("silent", [False, True])
def test_applications_of_a_dead_scheduler_find_another(silent: bool) -> None:
    town = Town(4, 12, 50)
    town.runs(*[town.submit(number, f"a{number + 1}") for number in range(6)])
    town.run(2)
    (scheduler,) = town.schedulers
    assert sum(scheduler.me.node in node.schedulers.scheduler_state.copies for node in town.nodes) == 2
    victims = sum(
        scheduler.me.node in {node for node, app, _ in town.ring.running if app == f"app-{n}"} for n in range(6)
    )
    town.ring.crash(scheduler.me.name, silent=silent)
    assert town.until(lambda: bool(town.schedulers) and town.is_sound(), 20)
    town.run(5)
    assert town.is_sound()
    (successor,) = town.schedulers
    scheduler_slot = successor.schedulers.role.scheduler_slot
    assert scheduler_slot is not None
    assert (scheduler_slot.index, scheduler_slot.term) == (0, 2)
    assert len(successor.schedulers.role.served) >= 6 - victims
    row = town.ask(town.nodes[0].me.name, Status("app-5"))
    assert row["state"] in ("running", "failed")


def test_a_scheduler_that_dies_while_it_deploys_is_replaced() -> None:
    town = Town(5, 8, 50, start_ns=3 * SECOND)
    first = town.submit(0, "a1")
    town.runs(first)
    (scheduler,) = town.schedulers
    name = scheduler.me.name
    other = next(node.me.name for node in town.nodes if node is not scheduler)
    host = next(node.me.name for node in town.nodes if node.me.name not in (name, other))
    request = town.submit(1, other, host)
    town.run(1)
    assert request not in town.ring.answers
    town.ring.crash(name)
    assert town.until(lambda: request in town.ring.answers, 60)
    answer = town.ring.answers[request]
    assert isinstance(answer, Replied), answer
    assert answer.body["scheduler"] != name
    assert answer.body["version"] == 2
    assert any("is gone; trying another" in text for text in town.ring.progress[request])
    town.run(15)
    assert scheduler_slot_violations(town.nodes) == []
    versions = {version for _, app, version in town.ring.running if app == "app-1"}
    assert versions == {2}


def test_a_scheduler_without_applications_resigns_and_the_ring_falls_silent() -> None:
    town = Town(6, 8, resign_ns=20 * SECOND, gossip_interval_ns=200 * MILLISECOND)
    town.runs(town.submit(0, "a1"))
    town.ask("a2", Stop("app-0", True))
    assert town.until(lambda: not town.schedulers, 60)
    assert town.until(lambda: not any(len(node.schedulers.known) for node in town.nodes), 30)
    town.runs(town.submit(1, "a3"))
    assert [scheduler_slot.term for node in town.nodes if (scheduler_slot := node.schedulers.role.scheduler_slot)] == [
        2
    ]


def test_a_scheduler_that_leaves_transfers_its_slot() -> None:
    from agiledart_overlay.wire.events import LeaveRing

    town = Town(7, 10, 50)
    town.runs(*[town.submit(number, f"a{number + 1}") for number in range(5)])
    (scheduler,) = town.schedulers
    town.ring.world.inject(scheduler.me.node, LeaveRing())
    town.run(3)
    town.ring.crash(scheduler.me.name)
    assert town.until(lambda: len(town.schedulers) == 1 and town.is_sound(), 20)


def test_after_a_partition_one_of_two_owners_of_a_scheduler_slot_stays() -> None:
    town = Town(8, 16, 50)
    world = town.ring.world
    left, right = tuple(town.ring.ids[:8]), tuple(town.ring.ids[8:])
    names = town.ring.names
    world.network.partition(left)
    town.run(20)
    one = town.submit(0, names[left[0]])
    two = town.submit(1, names[right[0]])
    town.runs(one, two)
    assert len(town.nodes) == 16
    assert [len(there) for there in holders(town.nodes).values()] == [2]
    world.network.heal()
    assert town.until(lambda: town.is_sound() and len(town.schedulers) == 1, 120)
    town.run(15)
    assert town.is_sound()
    assert len(town.schedulers) == 1


def test_a_ring_of_one_is_its_own_scheduler_at_once() -> None:
    town = Town(9, 1)
    (body,) = town.runs(town.submit(0, "a1"))
    assert body["scheduler"] == "a1"
    assert body["seconds_to_running"] < 0.1


def test_the_first_submission_to_five_nodes_takes_no_round_of_gossip() -> None:
    town = Town(10, 5)
    (body,) = town.runs(town.submit(0, "a3"))
    assert body["seconds_to_running"] < 0.3


def test_a_scheduler_finishes_more_submissions_than_it_remembers(monkeypatch: pytest.MonkeyPatch) -> None:
    """It forgot the oldest unfinished one for each that came beyond; its waiting users then had it closed as failed."""
    monkeypatch.setattr(submission_dispatcher, "MAX_HANDED_OVER", 4)
    figures = run_submissions(RunOptions(3, 40, 4, 12, service_ns=SECOND, single_master=True))
    assert (figures.running, figures.refused, figures.schedulers) == (12, (), 1)


@pytest.mark.soak
def test_a_thousand_applications_in_one_zone_make_twenty_schedulers() -> None:
    """O5 of the overlay specification: 1000 → 20, and one more at 51."""
    counts = {}
    for applications in (49, 50, 51, 1000):
        scheduling = SchedulingObservations()
        config = NodeConfig.simulation(400)
        ring = scheduling.ring = NodeRing(1, 400, config, observations=scheduling.observe)
        ring.assemble()
        workload = Workload(ring, applications, 1)
        ring.note_names(workload.pinned())
        assert workload.run(0)
        assert not [application.refusal for application in workload.applications if application.refusal]
        counts[applications] = len(scheduling.elected)
        assert scheduler_slot_violations(ring.live) == []
    assert counts == {49: 1, 50: 1, 51: 2, 1000: 20}


def test_a_full_scheduler_of_one_node_is_named_in_the_refusal() -> None:
    town = Town(1, 1, limit=2)
    town.runs(town.submit(0, "a1"), town.submit(1, "a1"))
    request = town.submit(2, "a1")
    assert town.until(lambda: request in town.ring.answers, 60), "no answer"
    answer = town.ring.answers[request]
    assert isinstance(answer, RefusedRequest)
    assert answer.text.startswith("The schedulers of this network serve as many applications as they may")
    assert town.is_sound()
