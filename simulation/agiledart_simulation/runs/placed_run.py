"""One application of the scenario `placing`: its register, its changes, and the checks of each change."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

import msgspec

from agiledart_dataflow.counts.interval_measures import INTERVAL_NS, EdgeMeasures, IntervalMeasures
from agiledart_dataflow.plan.placement_rules import NO_RULES, PLACE, PlacementRules, written
from agiledart_dataflow.plan.specification import Specification, StepSpecification
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_kernel.codec import encode
from agiledart_kernel.instants import SECOND
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_node.records.application import RUNNING
from agiledart_node.records.stage_rules import NodeTraits, broken_rule
from agiledart_node.recovery.change_plans import stage_plan_of
from agiledart_recovery.wire.names import CheckpointId, InstanceId, RunId, Voter
from agiledart_recovery.wire.register_value import Assignment, ChangeOutcome, InstanceRole, Plan, RegisterValue

LEAST_REST_NS: Final = 58 * SECOND
"""A minute, less the time in which nodes answer once more before a move starts."""

LOOK_NS: Final = 30 * SECOND
MOST_WAITED: Final = 32

_LOOKING_NS: Final = SECOND
"""Time for which a look may not know yet what a user has moved."""


def specification_of(name: str, rules: Sequence[PlacementRules]) -> Specification:
    """Return a chain: a source, one step for each entry of `rules`, a sink."""
    steps = [StepSpecification(0, "rows", "source", row_type="int")]
    for number, rule in enumerate(rules):
        options = () if rule == NO_RULES else ((PLACE, written(rule)),)
        steps.append(StepSpecification(number + 1, f"s{number}", "top", (number,), row_type="int", options=options))
    steps.append(StepSpecification(len(steps), "out", "sink", (len(steps) - 1,), row_type="int"))
    return Specification(name, tuple(steps))


@dataclass
class VirtualRecord:
    """The part of an application's record that re-placement reads."""

    version: int
    specification: bytes
    state: str = RUNNING
    stopping: bool = False
    placed_by_user: tuple[str, ...] = ()
    signed_command: bytes = b""


@dataclass
class PlacedRun:
    """A run, as its coordinator has it.

    Attributes:
        recovers_until: instant until which it is brought back.
        changing: (plan, whether placement asked for it) of the change under way.
        held_at: instant at which a user moved a stage.
        failures: failed moves of placement since the last good one; `failed_at`: instant of the last one.
    """

    id: RunId
    record: VirtualRecord
    value: RegisterValue
    rates: tuple[float, ...]
    random: RandomStream
    complain: Callable[[str], None]
    recovers_until: int = 0
    changing: tuple[Plan, bool] | None = None
    moved_at: int | None = None
    failures: int = 0
    failed_at: int = 0
    held_at: int = 0
    coordinator: Any = None
    void: dict[tuple[int, int], bool] = field(default_factory=dict)

    def begin(self) -> None:
        """Make the coordinator that the node asks; it shows this run."""
        run = self

        class ShownCoordinator(SimpleNamespace):
            is_coordinating, is_over = True, False
            proposer = SimpleNamespace(value=True)

            @property
            def value(self) -> RegisterValue:
                return run.value

            @property
            def progress(self) -> SimpleNamespace:
                return SimpleNamespace(since=1 if run.recovers_until else None)

            @property
            def commit_protocol(self) -> SimpleNamespace:
                plan = run.changing[0] if run.changing is not None else SimpleNamespace(changes=())
                return SimpleNamespace(generation_change=SimpleNamespace(plan=plan, age_ns=0))

        self.coordinator = ShownCoordinator()

    def reports_of(self, peer: Peer) -> dict[str, Any]:
        """Return the reports of a host's instances; those of a void instance have no measures."""
        plan = stage_plan_of(self.value)
        reports = {}
        for stage in plan.stages:
            for index, assignment in enumerate(self.value.plan.stage(str(stage.index))):
                if assignment.host.node != peer.node or (stage.index, index) in self.void:
                    continue
                rows = round(self.rates[stage.index] * 5)
                edges = tuple(EdgeMeasures(edge.index, (rows,), (0,) * 5) for edge in plan.outgoing(stage.index))
                measures = IntervalMeasures(
                    INTERVAL_NS, rows, rows * 100_000, 0, (rows / 5,) * 5, (0,) * 5, (rows,), edges
                )
                reports[f"{stage.index}.{index}"] = {"measures": msgspec.to_builtins(measures)}
        return reports

    def start(
        self, now: int, plan: Plan, traits: dict[Any, NodeTraits], free: dict[Any, int], *, by_placement: bool
    ) -> str:
        """Start a change; return a refusal. Checks everything that must hold at this moment."""
        if self.changing is not None:
            self.complain(f"M2: {self.id.app} starts a second change")
        moved = self._moved(plan)
        if by_placement:
            self._check_start(now, moved)
            for (stage, index), host in moved:
                self._check_target(plan, stage, index, host, traits, free)
            self.moved_at = now
        self.changing = plan, by_placement
        return ""

    def _moved(self, plan: Plan) -> list[tuple[tuple[int, int], Peer]]:
        """Return the instances that a plan puts elsewhere, with their new hosts."""
        moved = []
        for stage in stage_plan_of(self.value).stages:
            before = self.value.plan.stage(str(stage.index))
            for index, assignment in enumerate(plan.stage(str(stage.index))):
                if index >= len(before) or before[index].host.node != assignment.host.node:
                    moved.append(((stage.index, index), assignment.host))
        return moved

    def _check_start(self, now: int, moved: Sequence[tuple[tuple[int, int], Peer]]) -> None:
        if self.recovers_until:
            self.complain(f"M4: {self.id.app} moves while it is brought back")
        if self.moved_at is not None and now - self.moved_at < LEAST_REST_NS:
            self.complain(f"M3: {self.id.app} moves {(now - self.moved_at) / SECOND:.0f} s after its last move")
        if self.failures:
            looks = min(MOST_WAITED, 1 << (self.failures - 1))
            if now - self.failed_at < looks * LOOK_NS:
                self.complain(f"M6: {self.id.app} moves less than {looks} looks after failure {self.failures}")
        plan = stage_plan_of(self.value)
        for (stage, _), _host in moved:
            if plan.stages[stage].kind != "operator":
                self.complain(f"M5: {plan.stages[stage].name} of {self.id.app} is pinned, and moves")
            if plan.stages[stage].name in self.record.placed_by_user and now - self.held_at > _LOOKING_NS:
                self.complain(
                    f"M5: a user has moved {plan.stages[stage].name} of {self.id.app}, and it moves by itself"
                )

    def _check_target(
        self, plan: Plan, stage: int, index: int, host: Peer, traits: dict[Any, NodeTraits], free: dict[Any, int]
    ) -> None:
        name = stage_plan_of(self.value).stages[stage].name
        if host.node not in traits:
            self.complain(f"M7: {name} of {self.id.app} moves to {host.name}, which is dead or drained")
            return
        if free[host.node] <= 0:
            self.complain(f"M7: {name} of {self.id.app} moves to {host.name}, which is full")
        stage_plan = stage_plan_of(self.value)
        hosts = {
            (of.index, number): traits.get(
                assignment.host.node, NodeTraits(assignment.host.node, assignment.host.name, assignment.host.zone)
            )
            for of in stage_plan.stages
            for number, assignment in enumerate(plan.stage(str(of.index)))
        }
        if rule := broken_rule(stage_plan, stage_plan.stages[stage], index, traits[host.node], hosts):
            self.complain(f"M1: {name} of {self.id.app} moves to {host.name}, and it {rule}")

    def end(self, now: int, fate: ChangeOutcome, why: str = "") -> None:
        """End the change under way."""
        if self.changing is None:
            return
        plan, by_placement = self.changing
        self.changing = None
        changes = tuple(
            msgspec.structs.replace(c, fate=fate, why=why, changeover_pause_ns=SECOND // 5) for c in plan.changes
        )
        current = plan if fate is ChangeOutcome.DONE else self.value.plan
        self.value = msgspec.structs.replace(self.value, plan=current, changes=(*self.value.changes, *changes)[-16:])
        if by_placement and fate is ChangeOutcome.DONE:
            self.failures = 0
        elif by_placement:
            self.failures, self.failed_at = self.failures + 1, now

    def replaced(self, dead: Peer, successor: Peer) -> None:
        """Let another node take over the instances of a dead one, as recovery does."""
        assignments = tuple(
            msgspec.structs.replace(a, host=successor) if a.host.node == dead.node else a
            for a in self.value.plan.assignments
        )
        plan = msgspec.structs.replace(self.value.plan, assignments=assignments)
        self.value = msgspec.structs.replace(self.value, plan=plan, attempt=self.value.attempt + 1)

    def instances_on(self, node: Any) -> int:
        """Return how many of its instances a node runs."""
        return len(self.value.plan.at(node))


def placed_run(
    number: int,
    rules: Sequence[PlacementRules],
    hosts: Sequence[Peer],
    random: RandomStream,
    complain: Callable[[str], None],
) -> PlacedRun:
    """Return a run whose instances are on these hosts, in the order of its stages."""
    name = f"app{number}"
    specification = specification_of(name, rules)
    plan = plan_stages(specification)
    roles = {"source": InstanceRole.SOURCE, "sink": InstanceRole.SINK, "operator": InstanceRole.STAGE}
    assignments = tuple(
        Assignment(InstanceId(str(stage.index), 1, 0), roles[stage.kind], host, is_pinned=stage.kind != "operator")
        for stage, host in zip(plan.stages, hosts, strict=True)
    )
    edges = tuple((str(edge.source), str(edge.target)) for edge in plan.edges)
    value = RegisterValue(
        RunId(name, 1), 0, 1, Plan(assignments, edges, body=encode(plan)), CheckpointId(1, 1), (Voter(hosts[0], 1),)
    )
    rates = [100.0]
    for _ in plan.stages[1:]:
        rates.append(rates[-1] * random.choice((0.2, 1.0, 1.0)))
    run = PlacedRun(
        RunId(name, 1), VirtualRecord(1, msgspec.msgpack.encode(specification)), value, tuple(rates), random, complain
    )
    run.begin()
    return run
