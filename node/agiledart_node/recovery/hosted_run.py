"""A new attempt on one host: stop what ran, start executors anew, restore and link instances, wait for the start of the sources.

Each host starts its instances by itself and announces their addresses to all other hosts. Once it knows the addresses of all
instances that its own instances send to, it links them. So no host waits for an order of hosts, and the slowest host determines
how
long it takes to enter an attempt.
"""

from dataclasses import dataclass, field

import msgspec

from agiledart_dataflow.plan.deployment import (
    DeploymentPart,
    InstanceAddress,
    InstancePlace,
    PlacedInstance,
    RestoreFrom,
    SnapshotChain,
)
from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import OperationFailed, RemoteProtocolError
from agiledart_kernel.instants import Duration
from agiledart_kernel.machine import Completed, Failed
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import NodeContext
from agiledart_node.records.application import RUNNING, ApplicationRecord, HistoryEntry, StageEntry, kept_history
from agiledart_node.recovery.register_bootstrap import copy_of
from agiledart_node.wire.effects import LinkInstances, StartInstances
from agiledart_node.wire.formation_messages import Acknowledged
from agiledart_node.wire.recovery_messages import AttemptListening
from agiledart_recovery.wire.effects import EnterAttempt
from agiledart_recovery.wire.register_value import InstanceRole, Plan

_PLAN: Codec[StagePlan] = Codec(StagePlan)

MAX_ATTEMPTS_AHEAD = 4
"""Attempts whose addresses are remembered before this host has entered them."""


@dataclass(slots=True)
class HostedRun:
    """A run with a register, as one of its hosts knows it.

    Attributes:
        part: as first deployed, with the code and all instances of this node.
        base: added to the register's attempt to get the attempt that stands in frames.
        attempt: the register's attempt that this host entered last.
        record: the application's record, as last seen; the ring loses it when all nodes lose power.
        known_addresses: attempt → addresses of instances.
        awaited: attempt, instances whose addresses this host needs, and the number of the pending request.
    """

    part: DeploymentPart
    base: int
    attempt: int = 0
    record: bytes = b""
    known_addresses: dict[int, dict[tuple[int, int], str]] = field(default_factory=dict)
    awaited: tuple[int, frozenset[tuple[int, int]], int] | None = None

    def note(self, attempt: int, addresses: tuple[InstanceAddress, ...]) -> bool:
        """Note where instances listen. Return whether the sender can stop repeating it: it is kept, or of an earlier attempt."""
        if attempt < self.attempt:
            return True
        if attempt not in self.known_addresses and len(self.known_addresses) >= MAX_ATTEMPTS_AHEAD:
            return False
        known = self.known_addresses.setdefault(attempt, {})
        known.update({(address.stage, address.index): address.address for address in addresses})
        return True

    def has_all(self) -> bool:
        """Return whether all awaited addresses are known."""
        if self.awaited is None:
            return False
        attempt, copies, _ = self.awaited
        return copies <= self.known_addresses.get(attempt, {}).keys()


def part_of_attempt(run: HostedRun, effect: EnterAttempt) -> DeploymentPart:
    """Return the part of this node in an attempt, for its executors."""
    nodes: dict[NodeId, Peer] = {peer.node: peer for peer in run.part.nodes}
    nodes.update(effect.plan.hosts)
    position = {node: number for number, node in enumerate(nodes)}
    assignment = tuple(
        InstancePlace(*copy_of(assigned.instance), position[assigned.host.node]) for assigned in effect.plan.assignments
    )
    slots = {placed.copy: placed.executor for placed in run.part.instances}
    mine = tuple(
        PlacedInstance(*copy_of(assigned.instance), slots.get(copy_of(assigned.instance), 0))
        for assigned in effect.assignments
    )
    return msgspec.structs.replace(
        run.part,
        attempt=run.base + effect.attempt,
        plan=effect.plan.body or run.part.plan,
        nodes=tuple(nodes.values()),
        assignment=assignment,
        instances=mine,
        addresses=(),
        coordinator=end_recorder(effect.plan) or run.part.coordinator,
        executors=max([run.part.executors, *(placed.executor + 1 for placed in mine)]),
    )


def entries_of(record: ApplicationRecord, raw: bytes) -> tuple[StageEntry, ...]:
    """Return the stages of a record with the instance numbers of a plan."""
    try:
        numbers = [stage.parallelism for stage in _PLAN.decode(raw).stages]
    except RemoteProtocolError:
        return record.stages
    if len(numbers) != len(record.stages):
        return record.stages
    return tuple(
        msgspec.structs.replace(stage, parallelism=number) for stage, number in zip(record.stages, numbers, strict=True)
    )


def end_recorder(plan: Plan) -> Peer | None:
    """Return the node that writes the application's end into its record: the first host of a sink, which may have moved."""
    return min((assignment.host for assignment in plan.of(InstanceRole.SINK)), key=lambda peer: peer.node, default=None)


def record_of_attempt(
    record: ApplicationRecord,
    part: DeploymentPart,
    attempt: int,
    wall_ms: int,
    note: str = "",
    what: str = "restarted",
) -> ApplicationRecord:
    """Return the record of a restarted application: where it runs now, which stages have moved, and what was lost.

    Args:
        note: further text for the history.
        what: the event, if not a restart.
    """
    after = msgspec.structs.replace(
        record,
        attempt=attempt,
        nodes=part.nodes,
        assignment=part.assignment,
        coordinator=part.coordinator,
        plan=part.plan,
        stages=entries_of(record, part.plan),
    )
    old, new = record.placement, after.placement
    moved = [f"{stage} on {', '.join(dict.fromkeys(nodes))}" for stage, nodes in new.items() if nodes != old.get(stage)]
    texts = "; ".join([*moved, *([note] if note else [])])
    text = f"{what}, attempt {attempt}" + (f": {texts}" if texts else "")
    return msgspec.structs.replace(after, history=kept_history(record.history, HistoryEntry(wall_ms, RUNNING, text)))


def restore_from(effect: EnterAttempt, epoch: int, origin: str = "") -> RestoreFrom:
    """Return the snapshots from which this node's instances continue.

    Args:
        origin: origin of the initial checkpoint, if the run begins with one.
    """
    chains = [(saved.instance, [snapshot.digest for snapshot in saved.chain]) for saved in effect.saved if saved.chain]
    snapshots = tuple(
        SnapshotChain(*copy_of(instance), digests[-1], tuple(digests[:-1])) for instance, digests in chains
    )
    emitted_rows = tuple(
        SnapshotChain(*copy_of(saved.instance), saved.chain[-1].digest) for saved in effect.emitted if saved.chain
    )
    return RestoreFrom(epoch, snapshots, "" if epoch else origin, emitted_rows)


async def restart(
    context: NodeContext, run: HostedRun, effect: EnterAttempt, epoch: int, origin: str = ""
) -> DeploymentPart:
    """Enter an attempt on this host. Return the part that runs then.

    Args:
        epoch: the epoch from which the attempt continues.
        origin: origin of the initial checkpoint, if the run begins with one.

    Raises:
        OperationFailed: the attempt could not be entered; the text says why.
    """
    key = (effect.run.app, effect.run.version)
    run.attempt = effect.attempt
    run.known_addresses = {
        attempt: known for attempt, known in run.known_addresses.items() if attempt >= effect.attempt
    }
    part = part_of_attempt(run, effect)
    number = context.requests.number()
    name = effect.plan.digest if effect.plan.changes else b""
    start = StartInstances(number, part, restore_from(effect, epoch, origin), name)
    addresses = _addresses(part, await _driven(context, number, start))
    run.note(effect.attempt, addresses)
    others = [peer for node, peer in effect.plan.hosts.items() if node != context.me.node]
    context.requests.begin(_announce_addresses(context, others, (*key, effect.attempt), addresses))
    plan = _PLAN.decode(part.plan)
    below = {edge.target for placed in part.instances for edge in plan.outgoing(placed.stage)}
    awaited = frozenset((place.stage, place.index) for place in part.assignment if place.stage in below)
    await _await_addresses(context, run, effect.attempt, awaited)
    number = context.requests.number()
    known = tuple(InstanceAddress(*copy, run.known_addresses[effect.attempt][copy]) for copy in sorted(awaited))
    await _driven(context, number, LinkInstances(number, *key, known))
    return part


async def _await_addresses(
    context: NodeContext, run: HostedRun, attempt: int, awaited: frozenset[tuple[int, int]]
) -> None:
    number = context.requests.number()
    if run.awaited is not None:
        context.requests.resolve(run.awaited[2], False)  # an earlier attempt need not be entered any more
    mine = run.awaited = (attempt, awaited, number)
    if not run.has_all():
        await context.requests.answers({number: None}, Duration(context.config.start_timeout_ns))
    if run.awaited is not mine:
        raise OperationFailed("a later attempt has begun")
    has_all, run.awaited = run.has_all(), None
    if not has_all:
        raise OperationFailed("other hosts did not report the addresses of their instances in time")


async def _announce_addresses(
    context: NodeContext, others: list[Peer], about: tuple[str, int, int], addresses: tuple[InstanceAddress, ...]
) -> None:
    timeout = Duration(context.config.start_timeout_ns)
    await context.requests.ask_all(
        others, lambda number, _: AttemptListening(number, *about, addresses), Acknowledged, timeout
    )


async def _driven(context: NodeContext, number: int, effect: StartInstances | LinkInstances) -> object:
    answers = await context.ask_driver(number, effect, context.config.start_timeout_ns)
    answer = answers.get(number)
    if isinstance(answer, Completed):
        return answer.result
    if isinstance(answer, Failed):
        raise OperationFailed(answer.reason)
    raise OperationFailed(f"{context.me.name} did not restart its instances in time")


def _addresses(part: DeploymentPart, result: object) -> tuple[InstanceAddress, ...]:
    given = result if isinstance(result, dict) else {}
    return tuple(InstanceAddress(*placed.copy, str(given.get(placed.copy, ""))) for placed in part.instances)
