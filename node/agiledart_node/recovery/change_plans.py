"""Plans that a change leads to: a stage with another number of instances, in another place, or away from a node.

The functions are pure. A change gives all instances of a stage a new generation (`generation_change` of the recovery package
carries it out). An instance that keeps its place takes over its state by reference. By the stage's own table few key groups
change
their owner. A new instance goes to a node that already runs the stage and has capacity, because then nothing crosses the network.
Otherwise it goes to the nearest other node with capacity.

A user's mistake raises `TopologyError` or `CommandRefused`, whose text says what to do instead.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

import msgspec

from agiledart_dataflow.plan.stage_plan import Stage, StagePlan
from agiledart_kernel.codec import Codec, encode
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import CommandRefused
from agiledart_node.records.stage_rules import NodeTraits, broken_rule, partners
from agiledart_node.wire.commands import NO_ROOM
from agiledart_recovery.attempts.generation_change import next_generation
from agiledart_recovery.wire.names import InstanceId
from agiledart_recovery.wire.register_value import Assignment, InstanceRole, Plan, RegisterValue, StageChange

_PLAN: Codec[StagePlan] = Codec(StagePlan)


class InsufficientNodeCapacity(CommandRefused):
    """Refusal of a change for lack of capacity; fewer instances might have found some."""


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """A node that could take instances, and how many.

    Attributes:
        free: number of instances that it can still take.
        is_closed: whether it is drained, or is leaving, and so accepts no instances.
        executors: number of executors to which a run may grow there; 0: unknown.
        labels: abilities that its user gave it.
        delays_ms: node → measured one-way delay to it; the node itself is missing.
    """

    peer: Peer
    free: int
    is_closed: bool = False
    executors: int = 0
    labels: tuple[str, ...] = ()
    delays_ms: Mapping[NodeId, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return the node's name for people."""
        return self.peer.name or self.peer.node.short

    @property
    def traits(self) -> NodeTraits:
        """Return the properties that rules ask for."""
        return NodeTraits(self.peer.node, self.name, self.peer.zone, self.peer.host, self.labels)


def stage_plan_of(value: RegisterValue) -> StagePlan:
    """Return stages, numbers and owners of key groups as the register has them.

    Raises:
        CommandRefused: the run's register was bootstrapped by a version that did not store them.
    """
    if not value.plan.body:
        raise CommandRefused(
            f"{value.run.app} was submitted to an older version and can't be changed. Submit it again."
        )
    return _PLAN.decode(value.plan.body)


def scaled(
    value: RegisterValue, name: str, number: int, capacities: Sequence[NodeCapacity], reason: str
) -> Plan | None:
    """Return the plan in which a stage has the given number of instances; None when it has them already.

    Args:
        name: name of the stage, or of one of its steps.
        capacities: nodes with capacity, nearest first, with the hosts of the stage among them.

    Raises:
        TopologyError: there is no such stage, or it cannot have that number.
        CommandRefused: no node has capacity.
    """
    plan = stage_plan_of(value)
    stage = plan.stage_named(name)
    after = plan.with_instances({name: number})
    if number == stage.parallelism:
        return None
    before = [host_of_instance.host for host_of_instance in value.plan.stage(str(stage.index))]
    hosts = before[:number]
    free = {host_of_instance.peer.node: host_of_instance.free for host_of_instance in capacities}
    occupied = occupied_nodes(value, plan, capacities)
    while len(hosts) < number:
        hosts.append(_place(after, after.stages[stage.index], hosts, capacities, free, occupied))
    return _with(value, after, {stage.index: hosts}, "scale", reason)


def _place(
    plan: StagePlan,
    stage: Stage,
    hosts: Sequence[Peer],
    capacities: Sequence[NodeCapacity],
    free: dict[NodeId, int],
    occupied: Mapping[tuple[int, int], NodeTraits],
) -> Peer:
    """Return the node for one more instance, and take it from the free capacity.

    First comes a host of the stage where the instance may have an executor of its own, then another node with one: that with the
    least delay to the stage's neighbours. Failing both, it goes where the fewest instances share an executor. Nodes that a rule of
    the application forbids are passed over.
    """
    here = Counter(peer.node for peer in hosts)

    def shared(candidate: NodeCapacity) -> float:
        """Return how many instances would share an executor, beyond one."""
        return max(0.0, (here[candidate.peer.node] + 1) / candidate.executors - 1) if candidate.executors else 0.0

    forbidden = ""
    for capacity in sorted(
        capacities,
        key=lambda node: (shared(node), not here[node.peer.node], detour_ms(plan, stage, len(hosts), node, occupied)),
    ):
        if free[capacity.peer.node] > 0:
            rule = broken_rule(plan, stage, len(hosts), capacity.traits, occupied)
            if not rule:
                free[capacity.peer.node] -= 1
                return capacity.peer
            forbidden = forbidden or f" A rule forbids {capacity.name}: {stage.name} {rule}."
    raise InsufficientNodeCapacity(
        f"{NO_ROOM} of {stage.name}: {_names(capacities) or 'none is known'}.{forbidden}"
        " Start another agent, or stop something."
    )


def occupied_nodes(
    value: RegisterValue, plan: StagePlan, capacities: Sequence[NodeCapacity]
) -> dict[tuple[int, int], NodeTraits]:
    """Return (stage, index) → node of all instances; of a node that did not answer, its zone and host only."""
    traits = {capacity.peer.node: capacity.traits for capacity in capacities}
    occupied = {}
    for stage in plan.stages:
        for index, assignment in enumerate(value.plan.stage(str(stage.index))):
            peer = assignment.host
            known = traits.get(peer.node) or NodeTraits(peer.node, peer.name or peer.node.short, peer.zone, peer.host)
            occupied[stage.index, index] = known
    return occupied


def detour_ms(
    plan: StagePlan, stage: Stage, index: int, node: NodeCapacity, occupied: Mapping[tuple[int, int], NodeTraits]
) -> float:
    """Return the sum of the delays between a node and the neighbours of an instance; infinite: one of them is not known.

    Args:
        occupied: (stage, index) → node of all instances.
    """
    adjacent = [
        *(edge.source for edge in plan.incoming(stage.index)),
        *(edge.target for edge in plan.outgoing(stage.index)),
    ]
    hosts = [
        occupied[other, number].node
        for other in adjacent
        for number in range(plan.stages[other].parallelism)
        if (other, number) in occupied and (other, number) != (stage.index, index)
    ]
    return sum(0.0 if host == node.peer.node else node.delays_ms.get(host, inf) for host in hosts)


def best_place(
    plan: StagePlan,
    stage: Stage,
    index: int,
    nodes: Sequence[NodeCapacity],
    occupied: Mapping[tuple[int, int], NodeTraits],
) -> NodeCapacity:
    """Return the node with the least delay to the neighbours of an instance; among equals that with the most free capacity."""
    return min(nodes, key=lambda node: (detour_ms(plan, stage, index, node, occupied), -node.free))


def moved(
    value: RegisterValue, name: str, to: NodeCapacity, reason: str, capacities: Sequence[NodeCapacity] = ()
) -> Plan | None:
    """Return the plan in which a stage, or the instance `STAGE.N`, runs on a node; None when it does already.

    Stages that must run together with it move, too.

    Args:
        capacities: nodes that answered, for rules about other stages.

    Raises:
        TopologyError: there is no such stage.
        CommandRefused: there is no such instance; it is pinned, or a source or sink; a rule forbids the node; or it has no
            capacity.
    """
    return relocated(value, move_targets(value, name, to), name, reason, capacities)


Targets = Mapping[tuple[int, int], NodeCapacity]
"""(stage, index) → node to which it moves."""


def move_targets(value: RegisterValue, name: str, to: NodeCapacity) -> Targets:
    """Return the instances that a move of a stage, or of `STAGE.N`, puts on a node, with those that must run together with it.

    Raises:
        TopologyError: there is no such stage.
        CommandRefused: there is no such instance, or one of them is pinned, or a source or sink.
    """
    plan = stage_plan_of(value)
    stage, index = _named(plan, name)
    targets: dict[tuple[int, int], NodeCapacity] = {}
    for linked in partners(plan, stage):
        before = value.plan.stage(str(linked.index))
        moving = [n for n in range(linked.parallelism) if index is None or n == index % linked.parallelism]
        if any(before[number].host.node != to.peer.node for number in moving):
            _refuse_pinned(linked)
        targets |= {(linked.index, number): to for number in moving}
    return targets


def relocated(
    value: RegisterValue, targets: Targets, name: str, reason: str, capacities: Sequence[NodeCapacity] = ()
) -> Plan | None:
    """Return the plan in which instances run on other nodes, all in one barrier; None when they do already.

    Args:
        name: of what moves, for messages.
        capacities: nodes that answered, for rules about other stages.

    Raises:
        CommandRefused: a rule forbids a node, or it has no capacity.
    """
    plan = stage_plan_of(value)
    occupied = occupied_nodes(value, plan, (*capacities, *targets.values()))
    places: dict[int, list[Peer]] = {}
    coming: Counter[NodeId] = Counter()
    for (stage, number), to in targets.items():
        occupied[stage, number] = to.traits
        before = [assignment.host for assignment in value.plan.stage(str(stage))]
        if before[number].node != to.peer.node:
            places.setdefault(stage, before)[number] = to.peer
            coming[to.peer.node] += 1
    if not places:
        return None
    for (stage, number), to in targets.items():
        if stage in places and (rule := broken_rule(plan, plan.stages[stage], number, to.traits, occupied)):
            raise CommandRefused(f"A rule of {value.run.app} forbids {to.name}: {plan.stages[stage].name} {rule}.")
    for to in {to.peer.node: to for to in targets.values() if coming[to.peer.node]}.values():
        if to.is_closed:
            raise CommandRefused(
                f"{to.name} is drained or is leaving the ring, so it accepts no instances. See agiledart nodes."
            )
        if coming[to.peer.node] > to.free:
            raise CommandRefused(
                f"{to.name} has room for {to.free} more instances, but {coming[to.peer.node]} of {name} would move there."
            )
    return _with(value, plan, places, "move", reason)


def _named(plan: StagePlan, name: str) -> tuple[Stage, int | None]:
    """Return a stage, and the number of an instance when the name ends in one."""
    base, dot, number = name.rpartition(".")
    if not dot or not number.isdecimal():
        return plan.stage_named(name), None
    stage = plan.stage_named(base)
    if int(number) >= stage.parallelism:
        most = stage.parallelism - 1
        has = f"{base}.0 to {base}.{most}" if most else f"{base}.0 only"
        raise CommandRefused(f"There is no instance {name}: {base} has {has}.")
    return stage, int(number)


def _refuse_pinned(stage: Stage) -> None:
    if stage.kind != "operator":
        raise CommandRefused(f"{stage.name} is a {stage.kind}: it stays on the node that has its data.")
    if stage.at:
        raise CommandRefused(
            f"{stage.name} is pinned to {stage.at} by its topology. To move it, submit it again without at=."
        )


def drained(value: RegisterValue, node: NodeId, capacities: Sequence[NodeCapacity], reason: str) -> Plan | None:
    """Return the plan without the instances on a node that may move, all in one barrier; None when there are none.

    Whole instances go to the node with the least delay to their neighbours; where no delay is known, to that with the most free
    capacity.

    Raises:
        CommandRefused: no other node has capacity.
    """
    plan = stage_plan_of(value)
    others = [assignment for assignment in capacities if assignment.peer.node != node]
    free = {assignment.peer.node: assignment.free for assignment in others}
    places: dict[int, list[Peer]] = {}
    # Instances that leave bind no partner; each binds again at its new node.
    occupied = {key: traits for key, traits in occupied_nodes(value, plan, capacities).items() if traits.node != node}
    for stage in plan.stages:
        hosts = [assignment.host for assignment in value.plan.stage(str(stage.index))]
        if stage.kind != "operator" or stage.at or all(host.node != node for host in hosts):
            continue
        for number, host in enumerate(hosts):
            if host.node == node:
                best = _with_room(value, plan, stage, number, others, free, occupied)
                free[best.peer.node] -= 1
                hosts[number] = best.peer
                occupied[stage.index, number] = best.traits
        places[stage.index] = hosts
    return _with(value, plan, places, "drain", reason) if places else None


def _with_room(
    value: RegisterValue,
    plan: StagePlan,
    stage: Stage,
    number: int,
    others: Sequence[NodeCapacity],
    free: Mapping[NodeId, int],
    occupied: Mapping[tuple[int, int], NodeTraits],
) -> NodeCapacity:
    """Return the best node for an instance that rules allow; see `best_place`. Raises InsufficientNodeCapacity."""
    rules = {other.peer.node: broken_rule(plan, stage, number, other.traits, occupied) for other in others}
    able = [other for other in others if free[other.peer.node] > 0 and not rules[other.peer.node]]
    if able:
        return best_place(plan, stage, number, [replace(node, free=free[node.peer.node]) for node in able], occupied)
    forbidden = next(
        (f" A rule forbids {other.name}: {rule}." for other in others if (rule := rules[other.peer.node])), ""
    )
    raise InsufficientNodeCapacity(
        f"No other node has room for {stage.name} of {value.run.app}: {_names(others) or 'no other node is known'}.{forbidden}"
        " Start another agent, or stop something."
    )


def _names(capacities: Sequence[NodeCapacity]) -> str:
    return ", ".join(f"{capacity.name} has room for {capacity.free}" for capacity in capacities)


def _with(value: RegisterValue, plan: StagePlan, places: Mapping[int, Sequence[Peer]], kind: str, reason: str) -> Plan:
    """Return the register's plan with these stages in a new generation, on these hosts."""
    before = stage_plan_of(value)
    stages, changes, assignments = list(plan.stages), [], list(value.plan.assignments)
    for index, hosts in places.items():
        name = str(index)
        generation = next_generation(value, name)
        stages[index] = msgspec.structs.replace(stages[index], generation=generation)
        groups, size = _moving(value, before.stages[index], stages[index], hosts)
        known = len(value.plan.stage(name))
        changes.append(
            StageChange(name, generation, known, len(hosts), kind, reason, moved_groups=groups, moved_bytes=size)
        )
        at = next(place for place, assignment in enumerate(assignments) if assignment.instance.stage == name)
        if_lost, standby = assignments[at].if_lost, assignments[at].standby
        assignments = [assignment for assignment in assignments if assignment.instance.stage != name]
        assignments[at:at] = [
            Assignment(InstanceId(name, generation, number), InstanceRole.STAGE, host, if_lost=if_lost, standby=standby)
            for number, host in enumerate(hosts)
        ]
    body = encode(msgspec.structs.replace(plan, stages=tuple(stages)))
    return msgspec.structs.replace(value.plan, assignments=tuple(assignments), body=body, changes=tuple(changes))


def _moving(value: RegisterValue, before: Stage, after: Stage, hosts: Sequence[Peer]) -> tuple[int, int]:
    """Return (number of key groups that move to another node, bytes of their state as last saved)."""
    old = value.plan.stage(str(before.index))
    length = {
        assignment.instance.index: sum(
            snapshot.length for saved in value.saved_for(assignment.instance) for snapshot in saved.chain
        )
        for assignment in old
    }
    owners, owned = before.owners or bytes(1), after.owners or bytes(1)
    groups = size = 0
    for old_owner, new_owner in zip(owners, owned, strict=True):
        if old[old_owner].host.node != hosts[new_owner].node:
            groups += 1
            size += length[old_owner] // max(1, owners.count(old_owner))
    return groups, size
