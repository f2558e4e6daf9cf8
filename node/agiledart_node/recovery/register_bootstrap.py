"""Bootstrap of a run's register: five voters on distinct hosts, or three, make voter slots; one of them writes the first value.

Guards vote first, because a voter should not die with a host. Hosts follow, ordered by the number of their stages with state,
fewest
first. With fewer than three known nodes a single voter must do: a host without which the run stands still anyway.
Source: recovery specification §10 (register).
"""

from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import NamedTuple

from agiledart_dataflow.plan.deployment import DeploymentPart
from agiledart_dataflow.plan.losses import EMPTY, FAIL, MOVE, PREVIOUS
from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_kernel.codec import Codec, encode
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.instants import Duration
from agiledart_kernel.limits import MAX_RECORD_BYTES
from agiledart_kernel.machine import Event
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import CommandRefused, NodeContext
from agiledart_node.wire.checkpoint_commands import ImportedSnapshot
from agiledart_node.wire.formation_messages import Acknowledged
from agiledart_node.wire.recovery_messages import BootstrapRegister, CreateVoter, VoterCreated
from agiledart_recovery.limits import MAX_PLAN_BYTES
from agiledart_recovery.recovery_machine import RecoveryMachine
from agiledart_recovery.register.key_splitting import key_digest, split_key
from agiledart_recovery.wire import events
from agiledart_recovery.wire.names import INITIAL_CHECKPOINT, InstanceId, RunId, Voter
from agiledart_recovery.wire.register_value import (
    Assignment,
    InstanceRole,
    InstanceSnapshot,
    LossPolicy,
    Plan,
    RegisterValue,
    SavedState,
)

FEW_VOTERS, VOTERS = 3, 5
"""Numbers of voters. Of three one may be lost, of five two: as many as replica nodes of a snapshot may be lost."""

_ROLES = {"source": InstanceRole.SOURCE, "operator": InstanceRole.STAGE, "sink": InstanceRole.SINK}
_IF_LOST = {FAIL: LossPolicy.FAIL, EMPTY: LossPolicy.EMPTY, PREVIOUS: LossPolicy.PREVIOUS}
_PLAN: Codec[StagePlan] = Codec(StagePlan)
_VALUE: Codec[RegisterValue] = Codec(RegisterValue, limit=MAX_RECORD_BYTES)


def instance_id_of(stage: int, index: int, generation: int = 1) -> InstanceId:
    """Return an instance's id in the recovery protocol, which names stages by their number, so any stage name fits."""
    return InstanceId(str(stage), generation, index)


def copy_of(instance: InstanceId) -> tuple[int, int]:
    """Return (stage, index) of an instance."""
    return int(instance.stage), instance.index


def plan_of(raw: bytes, places: dict[tuple[int, int], Peer]) -> Plan:
    """Return the plan in the register's form.

    Sources and sinks run where their files are, so they wait for their host unless their topology lets them move. Other stages
    may move.
    The stages are stored as they were planned; a later plan has other numbers, places and owners (`change_plans`).

    When rows carry positions and have several sources, a merge may have seen rows that lie behind a barrier. Such a source
    therefore
    forces what it has sent to its disk before an epoch counts. Which sources have a log is not known here; the others do nothing
    then.
    """
    stages = _PLAN.decode(raw)
    assignments = tuple(
        Assignment(
            instance_id_of(stage, index),
            role := _ROLES[stages.stages[stage].kind],
            peer,
            is_pinned=role is not InstanceRole.STAGE and stages.stages[stage].if_lost != MOVE,
            has_log=role is InstanceRole.SOURCE,
            if_lost=_IF_LOST.get(stages.stages[stage].if_lost, LossPolicy.WAIT),
            standby=stages.stages[stage].standby,
        )
        for (stage, index), peer in sorted(places.items())
    )
    edges = tuple((str(edge.source), str(edge.target)) for edge in stages.edges)
    return Plan(assignments, edges, stages.merges_by_position, body=raw if len(raw) <= MAX_PLAN_BYTES else b"")


def choose_voters(raw: bytes, places: dict[tuple[int, int], Peer], guards: Iterable[Peer]) -> list[Peer]:
    """Return the voters, best first: an odd number of nodes on distinct hosts."""
    stages = _PLAN.decode(raw)
    burden: dict[NodeId, int] = {}
    for (stage, _), peer in sorted(places.items()):
        burden[peer.node] = burden.get(peer.node, 0) + stages.stages[stage].has_state
    hosts = sorted(
        {peer.node: peer for peer in places.values()}.values(), key=lambda peer: (burden[peer.node], peer.node)
    )
    by_host: dict[str, Peer] = {}
    for peer in (*guards, *hosts):
        by_host.setdefault(peer.host or peer.node.hex, peer)
    candidates = list(by_host.values())
    if (
        len(candidates) < FEW_VOTERS
    ):  # a mesh on one machine or two: the death of two agents there should stop nothing either
        candidates = list({peer.node: peer for peer in (*guards, *hosts)}.values())
    if len(candidates) >= VOTERS:
        return candidates[:VOTERS]
    return candidates[:FEW_VOTERS] if len(candidates) >= FEW_VOTERS else hosts[:1]


def run_key(secret: bytes, run: RunId, number: int) -> bytes:
    """Return the key that encrypts a run's state."""
    return sha256(b"run key" + secret + encode(run) + number.to_bytes(16)).digest()


class InitialCheckpoint(NamedTuple):
    """A checkpoint with which a run begins.

    Args:
        origin: describes how much of it is restored.
        replica_node: the node that has its file.
        snapshots: snapshots for each stage of the new plan, by the instance numbers of the run that saved them.
    """

    origin: str
    replica_node: NodeId
    snapshots: tuple[ImportedSnapshot, ...]

    @property
    def saved(self) -> tuple[SavedState, ...]:
        """Return the snapshots in the register's form, under generation 0, which no instance of a run has."""
        chains: dict[InstanceId, list[InstanceSnapshot]] = {}
        for imported in self.snapshots:
            snapshot = InstanceSnapshot(INITIAL_CHECKPOINT, imported.digest, imported.length, 1, (self.replica_node,))
            chains.setdefault(instance_id_of(imported.stage, imported.index, 0), []).append(snapshot)
        return tuple(SavedState(instance, tuple(chain)) for instance, chain in chains.items())


async def bootstrap_register(
    context: NodeContext,
    run: RunId,
    plan: Plan,
    candidates: list[Peer],
    key: bytes,
    initial_checkpoint: InitialCheckpoint | None = None,
    *,
    saves_less: bool = False,
) -> None:
    """Make the voter slots, each with its share of the key, and have the first value written.

    Raises:
        CommandRefused: a voter does not answer.
    """
    timeout = Duration(context.config.ask_timeout_ns)
    nodes = tuple(peer.node for peer in candidates)
    shares = dict(zip(nodes, split_key(key, nodes), strict=True))
    made = await context.requests.ask_all(
        candidates,
        lambda number, peer: CreateVoter(number, run.app, run.version, shares[peer.node]),
        VoterCreated,
        timeout,
    )
    silent = [peer.name or peer.node.short for peer, answer in made if answer is None]
    if silent:
        raise CommandRefused(f"{', '.join(silent)} did not become a voter of {run.app}'s register. Submit it again.")
    voters = tuple(Voter(peer, answer.voter_slot) for peer, answer in made if answer is not None)
    saved, origin = (
        (initial_checkpoint.saved, initial_checkpoint.origin) if initial_checkpoint is not None else ((), "")
    )
    value = RegisterValue(
        run,
        0,
        0,
        plan,
        INITIAL_CHECKPOINT,
        voters,
        saved=saved,
        key_digest=key_digest(key),
        origin=origin,
        saves_less=saves_less,
    )
    number = context.requests.number()
    answer = await context.requests.ask(
        candidates[0], BootstrapRegister(number, encode(value)), number, Acknowledged, timeout
    )
    if answer is None or answer.reason:
        name = candidates[0].name or candidates[0].node.short
        raise CommandRefused(f"{name} did not create the register of {run.app}. Submit it again.")


class RegisterBootstrap:
    """Creates the register of a new run, as the scheduler that asks voters and as a voter that is asked.

    Args:
        context, machine: of this node.
        secret: the keys of runs are derived from it.
        step, flush: hand an event to the machine, and carry out its effects.
    """

    def __init__(
        self,
        context: NodeContext,
        machine: RecoveryMachine,
        secret: bytes,
        step: Callable[[Event], None],
        flush: Callable[[], None],
    ) -> None:
        self._context, self._machine, self._secret = context, machine, secret
        self._step, self._flush = step, flush

    async def create(
        self,
        part: DeploymentPart,
        places: dict[tuple[int, int], Peer],
        guards: tuple[Peer, ...],
        initial_checkpoint: InitialCheckpoint | None = None,
    ) -> None:
        """Create the register of a run that was just deployed; the run then enters its first attempt.

        Args:
            initial_checkpoint: the checkpoint that the run begins with.

        Raises:
            CommandRefused: a voter does not answer.
        """
        run = RunId(part.application, part.version)
        plan = plan_of(part.plan, places)
        key = run_key(self._secret, run, part.number)
        await bootstrap_register(
            self._context,
            run,
            plan,
            choose_voters(part.plan, places, guards),
            key,
            initial_checkpoint,
            saves_less=part.saves_less,
        )

    def make_voter(self, sender: Peer, message: CreateVoter) -> None:
        """Make a voter slot for a run at a scheduler's request, and answer once it is on the disk."""
        run = RunId(message.application, message.version)
        self._step(events.MakeVoterSlot(run, sender.node, message.share))
        voter_slot = self._machine.voter_slots.get(run)
        if voter_slot is not None:
            voter_slot.keep(lambda: self._context.send(sender, VoterCreated(message.request, voter_slot.voter_slot)))
            self._flush()

    def bootstrap_register(self, sender: Peer, message: BootstrapRegister) -> None:
        """Write the first value of a register; the scheduler asks for it when all voter slots are made."""
        try:
            value = _VALUE.decode(message.value)
        except RemoteProtocolError:
            self._context.drop("register form")
            return
        known = value.run in self._machine.voter_slots and not value.faults()
        if known:
            self._step(events.BootstrapRun(value))
        self._context.send(
            sender, Acknowledged(message.request, "" if known else "this node has no voter slot of this run")
        )
