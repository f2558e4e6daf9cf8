"""Run of whole nodes under faults: users submit and stop applications while schedulers and hosts die, sleep, leave and come back.

Always: each scheduler slot has one winner per term, and no scheduler serves more than the limit. In the end, when no fault
happens any more: each slot has one holder, each running application has one scheduler, every user got an answer, no JOIN path
that a user got visits a node twice (jo_1), and the ring is right.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from agiledart_dataflow.plan.delivery import Delivery
from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.randomness import RandomStream
from agiledart_node.context.config import NodeConfig
from agiledart_node.wire.commands import Command, Stop, Submit
from agiledart_node.wire.effects import Replied
from agiledart_overlay.wire.events import LeaveRing
from agiledart_simulation.checkers.leaf_sets import leaf_violations
from agiledart_simulation.checkers.ownership_checker import ring_violations
from agiledart_simulation.checkers.periodic_checks import PeriodicChecks, machine_violations
from agiledart_simulation.checkers.schedulers import scheduler_slot_violations, service_violations
from agiledart_simulation.runs.run_report import RunReport
from agiledart_simulation.runs.scenario import Scenario
from agiledart_simulation.runs.workload import SchedulingObservations, chain
from agiledart_simulation.world.faults import Heal, Pause, Weather, apply
from agiledart_simulation.world.latency_models import Latency
from agiledart_simulation.world.node_ring import NodeRing
from agiledart_simulation.world.trace import Trace

_APPS_PER_SCHEDULER = 3
_NAMES = 12
_REQUEST_TIMEOUT_NS = 150 * SECOND
"""Time within which every request is answered: a stop that drains is cut off after two minutes."""


class ApplicationRun:
    """One run of the scenario `applications`."""

    def __init__(self, scenario: Scenario, *, trace: Trace | None = None, latency: Latency | None = None) -> None:
        self.scenario = scenario
        self.random = RandomStream(scenario.seed, "applications")
        self.trace = trace or Trace()
        self.scheduling = SchedulingObservations()
        config = replace(NodeConfig.lan(), apps_per_scheduler=_APPS_PER_SCHEDULER)
        self.ring = self.scheduling.ring = NodeRing(
            scenario.seed,
            scenario.nodes,
            config,
            zones=min(scenario.zones, scenario.nodes // 4),
            checks_wire=True,
            start_ns=self.random.index(400) * MILLISECOND,
            trace=self.trace,
            queue=scenario.queue,
            latency=latency,
            observations=self.scheduling.observe,
        )
        self.looks = PeriodicChecks(self.ring.world)
        self.asked: list[tuple[str, int, int]] = []
        self.violations: dict[str, None] = {}
        self.reached: dict[str, int] = {}
        self._left: dict[tuple[NodeId, int], None] = {}
        """Incarnations that said good-bye, and stay up without being members."""

    def run(self) -> RunReport:
        """Build the ring, apply faults, let it rest, check the outcome."""
        ring, scenario, world = self.ring, self.scenario, self.ring.world
        if not ring.join_all():
            self.violations["build: some nodes did not join"] = None
        world.run_for(3 * SECOND)
        apply(world, Weather(min(0.02, scenario.loss), scenario.duplicate, scenario.reorder))
        for _ in range(scenario.steps):
            kind = self.random.choice(scenario.kinds)
            if self._act(kind):
                self.reached[kind] = self.reached.get(kind, 0) + 1
            world.run_for(int(scenario.step_ms * MILLISECOND * self.random.uniform()))
            self._check_always()
        apply(world, Heal())
        started = world.now
        world.run_until(self._is_quiet, scenario.quiet_s * SECOND, SECOND)
        quiet_ns = world.now - started
        world.run_for(max(0, _REQUEST_TIMEOUT_NS - quiet_ns))
        self._check_always()
        self._check_outcome()
        self.reached["election"] = len(self.scheduling.elected)
        return RunReport(
            violations=tuple(self.violations)[:50],
            events=world.events,
            messages=world.messages_sent,
            digest=self.trace.digest,
            virtual_s=round(world.now / SECOND, 3),
            quiet_ns=quiet_ns,
            reached=tuple(sorted(self.reached.items())),
        )

    # ---- the hostile phase

    def _up(self) -> list[str]:
        return [node.peer.name for node in self.ring.world.live if node.machine.joined]

    def _down(self) -> list[str]:
        nodes = self.ring.world.nodes
        return [self.ring.names[node] for node in sorted(nodes) if not nodes[node].is_up]

    def _act(self, kind: str) -> bool:
        up, down, random, world = self._up(), self._down(), self.random, self.ring.world
        spare = len(self.ring.ids) - len(up) < self.scenario.max_down and len(up) > 3
        if kind == "submit" and up:
            name = f"app-{random.index(_NAMES)}"
            specification = chain(name, 1 + random.index(4), [random.choice(up)], random.choice(up))
            self._ask(up, Submit("", msgspec.msgpack.encode(specification), b"code", delivery=Delivery.AT_MOST_ONCE))
        elif kind == "stop" and up:
            self._ask(up, Stop(f"app-{random.index(_NAMES)}", now=bool(random.index(2))))
        elif kind in ("kill", "silent") and spare:
            self.ring.crash(self._victim(up), silent=kind == "silent")
        elif kind == "restart" and down and up:
            node = random.choice(down)
            self.ring.start(self.ring.node(node), *(self.ring.node(name) for name in up[:2]))
        elif kind == "leave" and spare:
            leaver = self.ring.node(random.choice(up))
            self._left[world.nodes[leaver].peer.incarnation_key] = None
            world.inject(leaver, LeaveRing())
        elif kind == "pause" and len(up) > 3:
            apply(
                world,
                Pause(
                    self.ring.node(self._victim(up)), int(self.scenario.max_pause_ms * MILLISECOND * random.uniform())
                ),
            )
        elif kind == "weather":
            scenario = self.scenario
            apply(world, Weather(min(0.02, scenario.loss) * random.uniform(), scenario.duplicate, scenario.reorder))
        else:
            return False
        return True

    def _victim(self, up: list[str]) -> str:
        """Return a victim: every other time a scheduler."""
        schedulers = [name for name in up if self.ring.machine(name).schedulers.role.scheduler_slot is not None]
        return self.random.choice(schedulers if schedulers and self.random.index(2) else up)

    def _ask(self, up: list[str], command: Command) -> None:
        at = self.random.choice(up)
        incarnation = self.ring.world.nodes[self.ring.node(at)].peer.incarnation
        self.asked.append((at, incarnation, self.ring.ask(at, command)))

    # ---- judging

    def _complain(self, lines: list[str]) -> None:
        for line in lines:
            if len(self.violations) < 50:
                self.violations[line] = None

    def _check_always(self) -> None:
        winners: dict[tuple[str, int, int], NodeId] = {}
        for node, elected in self.scheduling.elected:
            scheduler_slot = (elected.domain, elected.index, elected.term)
            first = winners.setdefault(scheduler_slot, node)
            if first != node and self.ring.world.nodes[first].is_up:
                names = f"{self.ring.names[first]} and {self.ring.names[node]}"
                place = f"scheduler slot {scheduler_slot[1]} of {scheduler_slot[0] or 'the only zone'}"
                self._complain([f"sc_1: {names} both won {place}, term {scheduler_slot[2]}"])
        self._complain(self.looks.violations)
        self._complain(machine_violations(self.ring.live))

    def _is_quiet(self) -> bool:
        nodes = [node for node in self.ring.live if node.joined]
        return not scheduler_slot_violations(nodes) and not service_violations(nodes) and not self._ring_faults()

    def _ring_faults(self) -> list[str]:
        """Return faults of the ring under the applications, whose nodes watch each other."""
        machines = [node.overlay for node in self.ring.live if node.me.incarnation_key not in self._left]
        return [*leaf_violations(machines, self.scenario.leaf_count), *ring_violations(machines, self.ring.world.now)]

    def _check_outcome(self) -> None:
        nodes = [node for node in self.ring.live if node.joined]
        self._complain(scheduler_slot_violations(nodes))
        self._complain(service_violations(nodes))
        self._complain(self._ring_faults())
        for at, incarnation, request in self.asked:
            there = self.ring.world.nodes[self.ring.node(at)]
            if (
                there.is_up
                and there.peer.incarnation == incarnation
                and there.machine.joined
                and request not in self.ring.answers
            ):
                self._complain([f"answer: {at} never answered request {request}"])
            if isinstance(answer := self.ring.answers.get(request), Replied):
                self._complain(loops_of_joins(answer.body))


def loops_of_joins(body: Mapping[str, Any]) -> list[str]:
    """Return the JOIN paths of an answer that visit a node twice, as violations of jo_1."""
    return [
        f"jo_1: a JOIN of {body.get('name')} went in a loop: {' → '.join(path)}"
        for path in body.get("paths", ())
        if len(set(path)) < len(path)
    ]
