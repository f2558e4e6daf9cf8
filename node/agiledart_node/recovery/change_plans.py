"""Plans that a change leads to: a stage in another number of instances, in another place, or away from a node. Pure functions.

A change gives all instances of a stage a new term (recovery's `lives/changing.py` carries it out); what keeps its place is moved by
reference. Few groups change their owner, by the stage's own table. A new instance goes to a node that has the stage already and has
room, since nothing crosses the network between them; else to the first other one with room, the nearest of those that are offered.

What a user got wrong is a `TopologyError` or `CommandRefused` that says what to do instead.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from agiledart_dataflow.plan.stage_plan import Stage, StagePlan
from agiledart_kernel.codec import Codec, encode
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import CommandRefused
from agiledart_recovery.attempts.generation_change import next_generation
from agiledart_recovery.wire.names import InstanceId
from agiledart_recovery.wire.register_value import Assignment, InstanceRole, Plan, RegisterValue, StageChange

_PLAN: Codec[StagePlan] = Codec(StagePlan)


class InsufficientNodeCapacity(CommandRefused):
    """Fewer instances might have found room."""


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """A node that could take instances, and how many; `is_closed`: it was told to take none. `executors`: to which a run may grow
    there; 0: nobody knows.
    """

    peer: Peer
    free: int
    is_closed: bool = False
    executors: int = 0

    @property
    def name(self) -> str:
        """For people."""
        return self.peer.name or self.peer.node.short


def stage_plan_of(value: RegisterValue) -> StagePlan:
    """Stages, numbers and owners as the register has them.

    Raises:
        CommandRefused: the run was founded by a version that did not keep them.
    """
    if not value.plan.body:
        raise CommandRefused(
            f"{value.run.app} was submitted to an older version and can't be changed. Submit it again."
        )
    return _PLAN.decode(value.plan.body)


def scaled(
    value: RegisterValue, name: str, number: int, capacities: Sequence[NodeCapacity], reason: str
) -> Plan | None:
    """The plan in which a stage has so many instances; None when it has them.

    Args:
        name: of the stage, or of a step of it.
        room: nodes that have room, nearest first, hosts of the stage among them.

    Raises:
        TopologyError: no such stage, or a number that it can't have.
        CommandRefused: no room.
    """
    plan = stage_plan_of(value)
    stage = plan.stage_named(name)
    after = plan.with_instances({name: number})
    if number == stage.parallelism:
        return None
    before = [each.host for each in value.plan.stage(str(stage.index))]
    hosts = before[:number]
    free = {each.peer.node: each.free for each in capacities}
    while len(hosts) < number:
        hosts.append(_place(stage, hosts, capacities, free))
    return _with(value, after, {stage.index: hosts}, "scale", reason)


def _place(stage: Stage, hosts: Sequence[Peer], capacities: Sequence[NodeCapacity], free: dict[NodeId, int]) -> Peer:
    """Where one more instance goes: to a host of the stage while it may have an executor of its own there, then to another node
    with one, then to where the fewest share one.
    """
    here = Counter(peer.node for peer in hosts)

    def shared(one: NodeCapacity) -> float:
        """How many would share an executor, beyond one."""
        return max(0.0, (here[one.peer.node] + 1) / one.executors - 1) if one.executors else 0.0

    for each in sorted(capacities, key=lambda one: (shared(one), not here[one.peer.node])):
        if free[each.peer.node] > 0:
            free[each.peer.node] -= 1
            return each.peer
    raise InsufficientNodeCapacity(
        f"No node has room for one more instance of {stage.name}: {_names(capacities) or 'none is known'}."
        " Start another agent, or stop something."
    )


def moved(value: RegisterValue, name: str, to: NodeCapacity, reason: str) -> Plan | None:
    """The plan in which a stage, or the instance `STAGE.N`, runs on a node; None when it does.

    Raises:
        TopologyError: no such stage.
        CommandRefused: no such instance; it is pinned, or a source or a sink; the node has no room.
    """
    plan = stage_plan_of(value)
    stage, index = _named(plan, name)
    _refuse_pinned(stage)
    before = [each.host for each in value.plan.stage(str(stage.index))]
    hosts = [to.peer if index in (None, number) else host for number, host in enumerate(before)]
    coming = sum(host.node != now.node for host, now in zip(hosts, before, strict=True))
    if not coming:
        return None
    if to.is_closed:
        raise CommandRefused(f"{to.name} is drained, or leaves the ring: it takes nothing. Look at agiledart nodes.")
    if coming > to.free:
        raise CommandRefused(f"{to.name} has room for {to.free} more instances, and {name} has {coming} to move.")
    return _with(value, plan, {stage.index: hosts}, "move", reason)


def _named(plan: StagePlan, name: str) -> tuple[Stage, int | None]:
    """A stage, and the number of an instance when the name ends in one."""
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
        raise CommandRefused(f"{stage.name} is a {stage.kind}: it stays on the node where its data are.")
    if stage.at:
        raise CommandRefused(f"{stage.name} is pinned to {stage.at} by its topology. Submit it again without at=.")


def immovable_stages(value: RegisterValue, node: NodeId) -> list[str]:
    """Stages with an instance on a node that can't leave it: sources, sinks, and what the topology pins there."""
    plan = stage_plan_of(value)
    on = {int(each.instance.stage) for each in value.plan.at(node)}
    return [stage.name for stage in plan.stages if stage.index in on and (stage.kind != "operator" or stage.at)]


def drained(value: RegisterValue, node: NodeId, capacities: Sequence[NodeCapacity], reason: str) -> Plan | None:
    """The plan without the instances on a node that may move, all in one barrier; None when there are none.

    Whole instances go to the node with the most room.

    Raises:
        CommandRefused: there is no room.
    """
    plan = stage_plan_of(value)
    left = [each for each in capacities if each.peer.node != node]
    free = {each.peer.node: each.free for each in left}
    places: dict[int, list[Peer]] = {}
    for stage in plan.stages:
        hosts = [each.host for each in value.plan.stage(str(stage.index))]
        if stage.kind != "operator" or stage.at or all(host.node != node for host in hosts):
            continue
        for number, host in enumerate(hosts):
            if host.node == node:
                best = max(left, key=lambda one: free[one.peer.node], default=None)
                if best is None or free[best.peer.node] <= 0:
                    raise InsufficientNodeCapacity(
                        f"No other node has room for {stage.name} of {value.run.app}: {_names(left) or 'there is none'}."
                        " Start another agent, or stop something."
                    )
                free[best.peer.node] -= 1
                hosts[number] = best.peer
        places[stage.index] = hosts
    return _with(value, plan, places, "drain", reason) if places else None


def _names(capacities: Sequence[NodeCapacity]) -> str:
    return ", ".join(f"{each.name} has room for {each.free}" for each in capacities)


def _with(value: RegisterValue, plan: StagePlan, places: Mapping[int, Sequence[Peer]], kind: str, reason: str) -> Plan:
    """The register's plan with these stages in a new term, in these places."""
    before = stage_plan_of(value)
    stages, changes, made = list(plan.stages), [], list(value.plan.assignments)
    for index, hosts in places.items():
        name = str(index)
        generation = next_generation(value, name)
        stages[index] = msgspec.structs.replace(stages[index], generation=generation)
        groups, size = _moving(value, before.stages[index], stages[index], hosts)
        known = len(value.plan.stage(name))
        changes.append(
            StageChange(name, generation, known, len(hosts), kind, reason, moved_groups=groups, moved_bytes=size)
        )
        at = next(place for place, each in enumerate(made) if each.instance.stage == name)
        if_lost = made[at].if_lost
        made = [each for each in made if each.instance.stage != name]
        made[at:at] = [
            Assignment(InstanceId(name, generation, number), InstanceRole.STAGE, host, if_lost=if_lost)
            for number, host in enumerate(hosts)
        ]
    body = encode(msgspec.structs.replace(plan, stages=tuple(stages)))
    return msgspec.structs.replace(value.plan, assignments=tuple(made), body=body, changes=tuple(changes))


def _moving(value: RegisterValue, before: Stage, after: Stage, hosts: Sequence[Peer]) -> tuple[int, int]:
    """(key groups that go to another node, bytes of their state as it was saved last)."""
    old = value.plan.stage(str(before.index))
    length = {
        each.instance.index: sum(
            snapshot.length for saved in value.saved_for(each.instance) for snapshot in saved.chain
        )
        for each in old
    }
    owners, owned = before.owners or bytes(1), after.owners or bytes(1)
    groups = size = 0
    for was, now in zip(owners, owned, strict=True):
        if old[was].host.node != hosts[now].node:
            groups += 1
            size += length[was] // max(1, owners.count(was))
    return groups, size
