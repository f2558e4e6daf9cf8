"""Workload of submissions: random applications for a world of nodes, and their outcomes.

An application is a chain: one to three sources, a drawn number of operators, a sink. Each operator is a stage of its own, so
that the counts are those of the papers. Sources and sink stand at random nodes of the zone in which it is submitted.

Source: [AgileDART] (10,000 nodes, 20 zones, applications of ten operators on average); the project's specification of the
dataflow graph §5 (2 to 18 operators, 1 to 3 sources).
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from agiledart_dataflow.plan.connectors import ConnectorSpecification
from agiledart_dataflow.plan.delivery import Delivery
from agiledart_dataflow.plan.specification import Specification, StepSpecification
from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.machine import Effect
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.observation import Observation
from agiledart_kernel.randomness import RandomStream
from agiledart_node.scheduling.observations import (
    ElectionBegun,
    SchedulerElected,
    SchedulerLookedUp,
    SchedulerResigned,
)
from agiledart_node.wire.commands import Submit
from agiledart_node.wire.effects import RefusedRequest, Replied
from agiledart_simulation.world.node_ring import NodeRing

LEAST_OPERATORS, MOST_OPERATORS = 2, 18
MOST_SOURCES = 3


def chain(name: str, operators: int, sources: Iterable[str], sink: str) -> Specification:
    """Return a chain: `sources` → so many operators in a row → `sink`; sources and sink are names of nodes."""
    steps: list[StepSpecification] = []

    def add(step: str, kind: str, inputs: tuple[int, ...], **fields: Any) -> int:
        steps.append(StepSpecification(len(steps), step, kind, inputs, **fields))
        return len(steps) - 1

    heads = []
    for number, at in enumerate(sources, start=1):
        there = ConnectorSpecification("taxi", "", (), at)
        heads.append(add(f"source{number}", "source", (), connector=there, at=at))
    first, left = tuple(heads), operators
    if len(heads) > 1:
        first, left = (add("all", "union", first),), operators - 1
    for number in range(1, left + 1):
        first = (add(f"step{number}", "stateful", first, keyed=True),)
    add("sink", "sink", first, connector=ConnectorSpecification("null", "", (), sink), at=sink)
    return Specification(name, tuple(steps))


@dataclass(slots=True)
class SubmittedApplication:
    """One submission of the workload.

    Attributes:
        at: name of the node that the user asks.
        operators: that the mapping places; sources and sink are not among them.
        asked_ns: when, since the world's beginning.
        answer: reply or refusal.
        running_ns: from the request to the answer; 0 while there is none.
    """

    name: str
    zone: str
    at: str
    operators: int
    specification: Specification
    asked_ns: int = 0
    request: int = 0
    answer: Effect | None = None
    running_ns: int = 0

    @property
    def response(self) -> dict[str, Any]:
        """Return the answer, when it runs; empty otherwise."""
        return self.answer.body if isinstance(self.answer, Replied) else {}

    @property
    def refusal(self) -> str:
        """Return why it does not run."""
        return self.answer.text if isinstance(self.answer, RefusedRequest) else ""


@dataclass(slots=True)
class SchedulingObservations:
    """Reports of a world's nodes about schedulers.

    Attributes:
        look_ups: in the order of their ends.
        begun: elections begun, as (instant, domain, index).
        missed: of these, those begun although a scheduler of the domain had capacity.
        elected, resigned: scheduler slots taken and given up.
    """

    ring: NodeRing | None = None
    look_ups: list[SchedulerLookedUp] = field(default_factory=list)
    begun: list[tuple[int, str, int]] = field(default_factory=list)
    missed: int = 0
    elected: list[tuple[NodeId, SchedulerElected]] = field(default_factory=list)
    resigned: list[tuple[NodeId, SchedulerResigned]] = field(default_factory=list)
    _slot_holders: dict[NodeId, None] = field(default_factory=dict)

    def observe(self, node: NodeId, observation: Observation) -> None:
        """Note an observation; pass this to `NodeRing(observations=)`."""
        if isinstance(observation, SchedulerLookedUp):
            self.look_ups.append(observation)
        elif isinstance(observation, ElectionBegun):
            assert self.ring is not None
            self.begun.append((self.ring.world.now, observation.domain, observation.index))
            self.missed += self._has_capacity(observation.domain)
        elif isinstance(observation, SchedulerElected):
            self.elected.append((node, observation))
            self._slot_holders[node] = None
        elif isinstance(observation, SchedulerResigned):
            self.resigned.append((node, observation))
            self._slot_holders.pop(node, None)

    def _has_capacity(self, domain: str) -> bool:
        assert self.ring is not None
        for node in self._slot_holders:
            there = self.ring.world.nodes[node]
            role = there.machine.schedulers.role
            if (
                there.is_up
                and role.scheduler_slot is not None
                and role.scheduler_slot.domain == domain
                and role.has_capacity
            ):
                return True
        return False


class Workload:
    """Random applications, spread evenly over the zones of a world.

    Args:
        ring: where they run.
        count: how many.
        seed: of everything that is drawn.
    """

    def __init__(self, ring: NodeRing, count: int, seed: int) -> None:
        self.ring = ring
        random = RandomStream(seed, "workload")
        names_by_zone: dict[str, list[str]] = {}
        for node in ring.ids:
            names_by_zone.setdefault(ring.zones[node], []).append(ring.names[node])
        zones = list(names_by_zone)
        self.applications: list[SubmittedApplication] = []
        for number in range(count):
            zone = zones[number % len(zones)]
            names = names_by_zone[zone]
            operators = LEAST_OPERATORS + random.index(MOST_OPERATORS - LEAST_OPERATORS + 1)
            sources = [random.choice(names) for _ in range(1 + random.index(min(MOST_SOURCES, operators)))]
            name = f"application-{number + 1}"
            specification = chain(name, operators, sources, random.choice(names))
            self.applications.append(SubmittedApplication(name, zone, random.choice(names), operators, specification))

    def pinned(self) -> list[NodeId]:
        """Return the nodes at which a source or a sink stands, once each."""
        node_names = {
            step.at: None for application in self.applications for step in application.specification.steps if step.at
        }
        return [self.ring.by_name[node_name] for node_name in node_names]

    @property
    def submitted(self) -> list[SubmittedApplication]:
        """Return the applications that users have submitted so far, in this order."""
        return [application for application in self.applications if application.request]

    def submit(self, interval_ns: int, count: int | None = None) -> list[SubmittedApplication]:
        """Have users submit the next applications with this time between two; 0: all at once.

        Args:
            count: how many; None: all that are left.
        """
        begun = len(self.submitted)
        batch = self.applications[begun : None if count is None else begun + count]
        for number, application in enumerate(batch):
            specification = application.specification
            command = Submit(
                specification.name, msgspec.msgpack.encode(specification), b"code", delivery=Delivery.AT_MOST_ONCE
            )
            application.asked_ns = self.ring.world.now + number * interval_ns
            application.request = self.ring.ask(application.at, command, number * interval_ns)
        return batch

    def run(self, interval_ns: int, limit_ns: int = 3_600 * SECOND, count: int | None = None) -> bool:
        """Submit the next ones and wait for all their answers; return false when some did not come in time."""
        batch = self.submit(interval_ns, count)
        self.ring.world.run_for(len(batch) * interval_ns)
        answers = self.ring.answers
        is_done = self.ring.world.run_until(
            lambda: all(application.request in answers for application in batch), limit_ns, 100 * MILLISECOND
        )
        for application in batch:
            application.answer = answers.get(application.request)
            if application.answer is not None:
                application.running_ns = self.ring.answered_at[application.request] - application.asked_ns
        return is_done

    def operators_per_node(self, *, pinned: bool = False) -> dict[int, int]:
        """Return how many nodes host so many operators; with `pinned`, sources and sinks count, too."""
        return dict(sorted(Counter(self.operators_of_nodes(pinned=pinned).values()).items()))

    def operators_of_nodes(self, *, pinned: bool = False) -> dict[NodeId, int]:
        """Return the number of operators that each node hosts; with `pinned`, sources and sinks count, too."""
        held = dict.fromkeys(self.ring.ids, 0)
        for (node, _, _), parts in self.ring.running.items():
            for part in parts:
                for placed in part.instances:
                    held[node] += pinned or self._is_operator(part.application, placed.stage)
        return held

    def _is_operator(self, application: str, stage: int) -> bool:
        specification = self.applications[int(application.rpartition("-")[2]) - 1].specification
        return specification.steps[stage].kind not in ("source", "sink")
