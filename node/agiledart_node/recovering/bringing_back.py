"""A new life on one host: what ran is ended, executors start anew, instances are restored, linked, and wait for the word to read.

Each host starts its instances by itself and tells all other hosts where they listen; who has heard of all that its own instances
send to links them. So no host waits for an order of hosts, and a life is entered in the time of the slowest.
"""

from dataclasses import dataclass, field

import msgspec

from agiledart_dataflow.plan.deployment import (
    DeploymentPart,
    InstanceAddress,
    InstancePlace,
    PlacedInstance,
    RestoreFrom,
    SavedAt,
)
from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import OperationFailed, RemoteProtocolError
from agiledart_kernel.instants import Duration
from agiledart_kernel.machine import Completed, Failed
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.desk.desk import Desk
from agiledart_node.records.application import RUNNING, ApplicationRecord, HistoryEntry, StageEntry, kept_history
from agiledart_node.recovering.founding import copy_of
from agiledart_node.wire.effects import LinkInstances, StartInstances
from agiledart_node.wire.formation_messages import Acknowledged
from agiledart_node.wire.recovery_messages import Listening
from agiledart_recovery.wire.effects import EnterLife
from agiledart_recovery.wire.value import Plan, Role

_PLAN: Codec[StagePlan] = Codec(StagePlan)

MAX_LIVES_AHEAD = 4
"""Lives of which addresses are remembered before this host has entered them."""


@dataclass(slots=True)
class HostedRun:
    """What a host knows of a run that survives it.

    Attributes:
        part: as it was deployed first, with the code and with all instances of this node.
        base: the life that stands in frames is this one and the register's.
        life: the register's, that was entered here last.
        record: the application's, as it was seen last; the ring forgets it when all nodes lose power.
        heard: life → where instances listen; `wanted`: what is waited for, and the number under which.
    """

    part: DeploymentPart
    base: int
    life: int = 0
    record: bytes = b""
    heard: dict[int, dict[tuple[int, int], str]] = field(default_factory=dict)
    wanted: tuple[int, frozenset[tuple[int, int]], int] | None = None

    def note(self, life: int, addresses: tuple[InstanceAddress, ...]) -> bool:
        """Somebody listens. Whether nobody has to say it again: it is kept, or of a life that is over here."""
        if life < self.life:
            return True
        if life not in self.heard and len(self.heard) >= MAX_LIVES_AHEAD:
            return False
        known = self.heard.setdefault(life, {})
        known.update({(one.stage, one.index): one.address for one in addresses})
        return True

    def has_all(self) -> bool:
        """Is everything known that is waited for?"""
        if self.wanted is None:
            return False
        life, copies, _ = self.wanted
        return copies <= self.heard.get(life, {}).keys()


def part_of_life(run: HostedRun, effect: EnterLife) -> DeploymentPart:
    """The part of this node in a life, as its executors are told."""
    nodes: dict[NodeId, Peer] = {peer.node: peer for peer in run.part.nodes}
    nodes.update(effect.plan.hosts)
    position = {node: number for number, node in enumerate(nodes)}
    assignment = tuple(InstancePlace(*copy_of(one.party), position[one.host.node]) for one in effect.plan.assignments)
    slots = {placed.copy: placed.executor for placed in run.part.instances}
    mine = tuple(PlacedInstance(*copy_of(one.party), slots.get(copy_of(one.party), 0)) for one in effect.assignments)
    return msgspec.structs.replace(
        run.part,
        life=run.base + effect.life,
        plan=effect.plan.body or run.part.plan,
        nodes=tuple(nodes.values()),
        assignment=assignment,
        instances=mine,
        addresses=(),
        coordinator=notes_end(effect.plan) or run.part.coordinator,
        executors=max([run.part.executors, *(placed.executor + 1 for placed in mine)]),
    )


def entries_of(record: ApplicationRecord, raw: bytes) -> tuple[StageEntry, ...]:
    """The stages of a record with the numbers of a plan."""
    try:
        numbers = [stage.parallelism for stage in _PLAN.decode(raw).stages]
    except RemoteProtocolError:
        return record.stages
    if len(numbers) != len(record.stages):
        return record.stages
    return tuple(
        msgspec.structs.replace(stage, parallelism=number) for stage, number in zip(record.stages, numbers, strict=True)
    )


def notes_end(plan: Plan) -> Peer | None:
    """Who notes the application's end: the first host of a sink, which may have moved."""
    return min((one.host for one in plan.of(Role.SINK)), key=lambda peer: peer.node, default=None)


def in_life(
    record: ApplicationRecord, part: DeploymentPart, life: int, wall_ms: int, note: str = "", what: str = "brought back"
) -> ApplicationRecord:
    """The record of an application that was brought back: where it runs now, what of it has moved, and what could not come back.

    Args:
        what: has happened, if it is something else.
    """
    after = msgspec.structs.replace(
        record,
        life=life,
        nodes=part.nodes,
        assignment=part.assignment,
        coordinator=part.coordinator,
        plan=part.plan,
        stages=entries_of(record, part.plan),
    )
    old, new = record.placement, after.placement
    moved = [f"{stage} on {', '.join(dict.fromkeys(nodes))}" for stage, nodes in new.items() if nodes != old.get(stage)]
    told = "; ".join([*moved, *([note] if note else [])])
    text = f"{what}, life {life}" + (f": {told}" if told else "")
    return msgspec.structs.replace(after, history=kept_history(record.history, HistoryEntry(wall_ms, RUNNING, text)))


def restore_from(effect: EnterLife, epoch: int, origin: str = "") -> RestoreFrom:
    """Where the instances of this node go on. `origin`: of a run that begins with a checkpoint."""
    chains = [(saved.party, [element.digest for element in saved.chain]) for saved in effect.saved if saved.chain]
    elements = tuple(SavedAt(*copy_of(party), digests[-1], tuple(digests[:-1])) for party, digests in chains)
    shown = tuple(SavedAt(*copy_of(saved.party), saved.chain[-1].digest) for saved in effect.shown if saved.chain)
    return RestoreFrom(epoch, elements, "" if epoch else origin, shown)


async def bring_back(desk: Desk, run: HostedRun, effect: EnterLife, epoch: int, origin: str = "") -> DeploymentPart:
    """Enter a life here; the part that runs then. `epoch`, `origin`: where it goes on.

    Raises:
        OperationFailed: it could not be entered; in words.
    """
    key = (effect.run.app, effect.run.version)
    run.life = effect.life
    run.heard = {life: known for life, known in run.heard.items() if life >= effect.life}
    part = part_of_life(run, effect)
    number = desk.talks.number()
    name = effect.plan.digest if effect.plan.changes else b""
    start = StartInstances(number, part, restore_from(effect, epoch, origin), name)
    addresses = _addresses(part, await _driven(desk, number, start))
    run.note(effect.life, addresses)
    others = [peer for node, peer in effect.plan.hosts.items() if node != desk.me.node]
    desk.talks.begin(_tell(desk, others, (*key, effect.life), addresses))
    plan = _PLAN.decode(part.plan)
    below = {edge.target for placed in part.instances for edge in plan.outgoing(placed.stage)}
    wanted = frozenset((place.stage, place.index) for place in part.assignment if place.stage in below)
    await _heard_all(desk, run, effect.life, wanted)
    number = desk.talks.number()
    known = tuple(InstanceAddress(*copy, run.heard[effect.life][copy]) for copy in sorted(wanted))
    await _driven(desk, number, LinkInstances(number, *key, known))
    return part


async def _heard_all(desk: Desk, run: HostedRun, life: int, wanted: frozenset[tuple[int, int]]) -> None:
    number = desk.talks.number()
    if run.wanted is not None:
        desk.talks.answered(run.wanted[2], False)  # an earlier life need not be entered any more
    mine = run.wanted = (life, wanted, number)
    if not run.has_all():
        await desk.talks.answers({number: None}, Duration(desk.config.start_timeout_ns))
    if run.wanted is not mine:
        raise OperationFailed("a later life has begun")
    has_all, run.wanted = run.has_all(), None
    if not has_all:
        raise OperationFailed("other hosts did not say where their instances listen")


async def _tell(
    desk: Desk, others: list[Peer], about: tuple[str, int, int], addresses: tuple[InstanceAddress, ...]
) -> None:
    timeout = Duration(desk.config.start_timeout_ns)
    await desk.talks.ask_all(others, lambda number, _: Listening(number, *about, addresses), Acknowledged, timeout)


async def _driven(desk: Desk, number: int, effect: StartInstances | LinkInstances) -> object:
    answers = await desk.driven(number, effect, desk.config.start_timeout_ns)
    answer = answers.get(number)
    if isinstance(answer, Completed):
        return answer.result
    if isinstance(answer, Failed):
        raise OperationFailed(answer.reason)
    raise OperationFailed(f"{desk.me.name} did not bring its instances back in time")


def _addresses(part: DeploymentPart, result: object) -> tuple[InstanceAddress, ...]:
    given = result if isinstance(result, dict) else {}
    return tuple(InstanceAddress(*placed.copy, str(given.get(placed.copy, ""))) for placed in part.instances)
