"""Value of a run's register: the current attempt and epoch, the hosts of its instances, and what the committed epoch needs.

Departs: the specification keeps a digest of the epoch's manifest. Here the manifest itself (`saved`) is in the value. With a
digest alone, the manifest could be lost: a coordinator may die between ACCEPT and COMMITTED together with a host, and then no
node knows the replica nodes of that host's state.
"""

from collections.abc import Iterable
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Final

import msgspec

from agiledart_kernel.codec import encode
from agiledart_kernel.counts import Count
from agiledart_kernel.name_patterns import ApplicationName
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.limits import (
    ATTEMPTS_PER_CONFIGURATION,
    MAX_CHAIN,
    MAX_CHANGES,
    MAX_CONTENT_BYTES,
    MAX_EDGES,
    MAX_EXCLUDED_VOTERS,
    MAX_FRAGMENTS,
    MAX_INSTANCES,
    MAX_PLAN_BYTES,
    MAX_REASON,
    MAX_STANDBY,
    MAX_VOTERS,
)
from agiledart_recovery.wire.names import (
    INITIAL_CHECKPOINT,
    CheckpointId,
    Digest,
    InstanceId,
    RunId,
    SignedCommandBytes,
    Voter,
)

FIRST_RESTARTED_ATTEMPT: Final = 2
"""The first attempt that hosts enter with new processes."""


class InstanceRole(StrEnum):
    """Role of an instance."""

    SOURCE = "source"
    STAGE = "stage"
    SINK = "sink"


class RunState(StrEnum):
    """State of a run, as far as the register says."""

    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"


class LossPolicy(StrEnum):
    """Policy for the run when a pinned instance's host, or a state, is lost."""

    WAIT = ""
    FAIL = "fail"
    EMPTY = "empty"
    PREVIOUS = "previous"


class Assignment(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An instance and its host.

    Args:
        is_pinned: it cannot run elsewhere; without its host the run waits. What is not pinned is saved at replica nodes.
        has_log: a source that may write its rows to a log before they leave, and is asked to SYNC it where the plan syncs.
        if_lost: of a pinned instance: when its host is gone; of another one: when its state cannot be rebuilt.
        standby: number of standby hosts that its stage asks for.
    """

    instance: InstanceId
    role: InstanceRole
    host: Peer
    is_pinned: bool = False
    has_log: bool = False
    if_lost: LossPolicy = LossPolicy.WAIT
    standby: Annotated[int, msgspec.Meta(ge=0, le=MAX_STANDBY)] = 0


class Standby(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A host that holds an instance's committed state in a waiting executor, to take the instance over."""

    instance: InstanceId
    host: Peer


class ChangeOutcome(StrEnum):
    """Outcome of a change."""

    RUNNING = "running"
    DONE = "done"
    DROPPED = "let-go"
    ROLLED_BACK = "rolled-back"


class StageChange(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Change of a stage to a new generation: other instances, other hosts, another table of owners.

    Source: scaling specification §8.

    Args:
        generation: the new one.
        before, after: how many instances.
        kind: scale, move or drain.
        reason: the requester, or the cause.
        why: why it was dropped or rolled back.
        moved_groups: key groups that go to another node.
        moved_bytes: of their state, as it was saved last.
        took_ns: from the request to the commit.
        changeover_pause_ns: the longest pause of some group's rows, as its senders saw it: from the last row that an instance
            of the
            old generation took to the first that one of the new generation took. 0 while no sender has reported.
    """

    stage: ApplicationName
    generation: Count
    before: Count
    after: Count
    kind: Annotated[str, msgspec.Meta(max_length=16)] = ""
    reason: Annotated[str, msgspec.Meta(max_length=MAX_REASON)] = ""
    fate: ChangeOutcome = ChangeOutcome.RUNNING
    why: Annotated[str, msgspec.Meta(max_length=MAX_REASON)] = ""
    moved_groups: Count = 0
    moved_bytes: Count = 0
    took_ns: Count = 0
    changeover_pause_ns: Count = 0

    @property
    def name(self) -> tuple[str, int]:
        """Return (stage, generation); in one run no stage takes a generation twice."""
        return self.stage, self.generation


class Plan(msgspec.Struct, frozen=True, array_like=True):
    """Plan of a run: which node runs which instance.

    Args:
        edges: stage → stage.
        syncs: a merge by position has several sources, so logs are synced before a commit.
        body: what the node needs to start it (tables, executors); recovery carries it and never reads it.
        changes: the changes that led from the previous plan to this one, one for each stage with a new generation. They are in the
            plan so that any coordinator that commits it can record them, also one that never received the request.
    """

    assignments: Annotated[tuple[Assignment, ...], msgspec.Meta(max_length=MAX_INSTANCES)]
    edges: Annotated[tuple[tuple[ApplicationName, ApplicationName], ...], msgspec.Meta(max_length=MAX_EDGES)] = ()
    syncs: bool = False
    body: Annotated[bytes, msgspec.Meta(max_length=MAX_PLAN_BYTES)] = b""
    changes: Annotated[tuple[StageChange, ...], msgspec.Meta(max_length=MAX_EDGES)] = ()

    @property
    def may_roll_back(self) -> bool:
        """Return whether the run continues from the previous epoch when a state of the committed one is lost."""
        return any(assignment.if_lost is LossPolicy.PREVIOUS for assignment in self.assignments)

    @property
    def digest(self) -> bytes:
        """Return a digest that is equal for equal plans."""
        return sha256(encode(self)).digest()[:16]

    @property
    def wants_standby(self) -> bool:
        """Return whether some stage asks for a standby host."""
        return any(assignment.standby for assignment in self.assignments)

    @property
    def hosts(self) -> dict[NodeId, Peer]:
        """Return the nodes that run an instance, in the order of the instances."""
        return {assignment.host.node: assignment.host for assignment in self.assignments}

    def at(self, node: NodeId) -> tuple[Assignment, ...]:
        """Return the assignments of a node."""
        return tuple(assignment for assignment in self.assignments if assignment.host.node == node)

    def is_at(self, instance: InstanceId, node: NodeId) -> bool:
        """Return whether a node runs this instance."""
        return any(assignment.instance == instance for assignment in self.at(node))

    def stage(self, stage: str) -> tuple[Assignment, ...]:
        """Return the assignments of a stage, by their index."""
        return tuple(assignment for assignment in self.assignments if assignment.instance.stage == stage)

    def of(self, role: InstanceRole) -> tuple[Assignment, ...]:
        """Return the assignments of one role."""
        return tuple(assignment for assignment in self.assignments if assignment.role is role)


class InstanceSnapshot(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Snapshot of one instance at one barrier. `replica_nodes[i]` has fragment i (0: no node has it).

    Args:
        content: all of it, where it is so small that the register holds it, and no disk and no replica node does.
    """

    checkpoint: CheckpointId
    digest: Digest
    length: Count
    m: Annotated[int, msgspec.Meta(ge=1, le=MAX_FRAGMENTS)]
    replica_nodes: Annotated[tuple[NodeId, ...], msgspec.Meta(max_length=MAX_FRAGMENTS)]
    content: Annotated[bytes, msgspec.Meta(max_length=MAX_CONTENT_BYTES)] = b""

    @property
    def survives(self) -> int:
        """Return how many replica nodes may be lost; below 0 the fragments alone do not rebuild it."""
        return sum(1 for replica_node in self.replica_nodes if replica_node) - self.m


class SavedState(msgspec.Struct, frozen=True, array_like=True):
    """State that rebuilds an instance: a full snapshot and the increments behind it, oldest first. Empty: it starts from nothing.

    Args:
        position: of a source: small, so it is in the register, and any host can read on from there.
    """

    instance: InstanceId
    chain: Annotated[tuple[InstanceSnapshot, ...], msgspec.Meta(max_length=MAX_CHAIN)] = ()
    position: Annotated[bytes, msgspec.Meta(max_length=4_096)] = b""

    @property
    def checkpoint(self) -> CheckpointId:
        """Return the checkpoint to which the instance is restored."""
        return self.chain[-1].checkpoint if self.chain else INITIAL_CHECKPOINT


class ReplacedFragment(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A fragment of a snapshot with a new replica node."""

    instance: InstanceId
    checkpoint: CheckpointId
    index: Annotated[int, msgspec.Meta(ge=0, lt=MAX_FRAGMENTS)]
    replica_node: NodeId


class SinkEnd(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Position up to which a node's part of a sink is committed. A sink that moved has a part, and an end, on each node."""

    stage: ApplicationName
    index: Count
    host: NodeId
    checkpoint: CheckpointId
    offset: Count

    @property
    def part(self) -> tuple[str, int, NodeId]:
        """Return the name of the part: stage, index and host."""
        return self.stage, self.index, self.host


class RegisterValue(msgspec.Struct, frozen=True, array_like=True):
    """Value of a run's register. Attempt 0: bootstrapped and not started. `committed` names the epoch and its attempt.

    Args:
        quorum_generation: grows when an admin continues the run without a lost majority.
        saved, before: what the committed epoch and the one committed before it need.
        parts: each node's part of each sink, also of sinks that have moved on.
        reason: why it failed; of a run that was ended with its state kept, the user; of a running one, what this attempt could not
            restore; empty otherwise.
        old_voters: the previous voters, when this value changes them: until the next value they must agree, too.
        key_digest: of the run's key. Snapshots are encrypted under the key before they are cut, so that replica nodes cannot read
            them; the key itself is split among the voters.
        changes: the latest changes, oldest first, a running one included.
        origin: until an epoch is committed `saved` is a checkpoint of another run, by the numbers of its instances, and this is
            how
            much of it: `whole` or `steps`. Empty: the run began with nothing.
        left: voters that an admin declared lost for ever. One that comes back is notified that the run continues without it.
        signed_command: the admin's command for that; without one no node accepts a new configuration.
        rolled_back_to: the epoch that `saved` belongs to, where a state of the committed one is lost; None: the committed one.
        fallback_checkpoint: the epoch that `before` belongs to, if the run may continue from there; see `switched_checkpoint`.
        saves_less: no epoch begins while no rows come, and what the register can hold is written nowhere else.
        standbys: hosts that hold the committed state of an instance, to take it over.
    """

    run: RunId
    quorum_generation: Count
    attempt: Count
    plan: Plan
    committed: CheckpointId
    voters: Annotated[tuple[Voter, ...], msgspec.Meta(min_length=1, max_length=MAX_VOTERS)]
    parts: Annotated[tuple[SinkEnd, ...], msgspec.Meta(max_length=MAX_INSTANCES)] = ()
    saved: Annotated[tuple[SavedState, ...], msgspec.Meta(max_length=MAX_INSTANCES)] = ()
    before: Annotated[tuple[SavedState, ...], msgspec.Meta(max_length=MAX_INSTANCES)] = ()
    state: RunState = RunState.RUNNING
    reason: Annotated[str, msgspec.Meta(max_length=400)] = ""
    old_voters: Annotated[tuple[Voter, ...], msgspec.Meta(max_length=MAX_VOTERS)] = ()
    key_digest: Digest = b""
    changes: Annotated[tuple[StageChange, ...], msgspec.Meta(max_length=MAX_CHANGES)] = ()
    origin: Annotated[str, msgspec.Meta(max_length=16)] = ""
    left: Annotated[tuple[NodeId, ...], msgspec.Meta(max_length=MAX_EXCLUDED_VOTERS)] = ()
    signed_command: SignedCommandBytes = b""
    rolled_back_to: CheckpointId | None = None
    fallback_checkpoint: CheckpointId | None = None
    saves_less: bool = False
    standbys: Annotated[tuple[Standby, ...], msgspec.Meta(max_length=MAX_INSTANCES)] = ()

    @property
    def at(self) -> CheckpointId:
        """Return the checkpoint from which instances continue; sinks have emitted up to the committed one, which may be later."""
        return self.rolled_back_to or self.committed

    @property
    def switched_checkpoint(self) -> "RegisterValue":
        """Return the value that continues from the other of the two epochs that are kept: roll back, or roll forward again.

        What is committed stays so: sinks keep their ends, and numbers of epochs continue. So rows of the epochs between come
        twice. Both epochs are kept until the next commit, for replica nodes of the later one may come back.
        """
        back = self.fallback_checkpoint if self.fallback_checkpoint != self.committed else None
        return msgspec.structs.replace(
            self, saved=self.before, before=self.saved, rolled_back_to=back, fallback_checkpoint=self.at
        )

    @property
    def emitted(self) -> tuple[SavedState, ...]:
        """Return what was saved at the committed epoch: a sink's snapshot says up to where its rows are committed."""
        return self.before if self.rolled_back_to is not None else self.saved

    @property
    def configuration(self) -> int:
        """Return the configuration of the attempt, as that of ballots.

        Every receiver compares attempts, on its disk and in each frame.
        """
        return self.attempt // ATTEMPTS_PER_CONFIGURATION

    @property
    def is_first_of_configuration(self) -> bool:
        """Return whether this is the first value of a configuration: no host has entered its attempt yet."""
        return self.configuration > 0 and self.attempt == self.configuration * ATTEMPTS_PER_CONFIGURATION

    def faults(self) -> list[str]:
        """Return what makes the value invalid for a peer to send; empty when it is valid."""
        instances = [assignment.instance for assignment in self.plan.assignments]
        nodes = [voter.peer.node for voter in self.voters]
        faults = []
        if len(self.voters) % 2 == 0 or len(dict.fromkeys(nodes)) != len(nodes):
            faults.append("an even number of voters, or a voter twice")
        if len(dict.fromkeys(instances)) != len(instances):
            faults.append("an instance twice")
        if self.committed.attempt > self.attempt:
            faults.append("an epoch of a later attempt is committed")
        return faults

    def chain_to(self, instance: InstanceId, digest: bytes) -> tuple[InstanceSnapshot, ...]:
        """Return the chain of an instance that ends with this snapshot, as far as the last two committed epochs have one."""
        chains = (saved.chain for saved in (*self.saved, *self.before) if saved.instance == instance and saved.chain)
        return next((chain for chain in chains if chain[-1].digest == digest), ())

    @property
    def saved_outside(self) -> tuple[SavedState, ...]:
        """Return what the committed epoch needs, without snapshots whose content is here: no later epoch builds on them."""
        return tuple(saved for saved in self.saved if not any(snapshot.content for snapshot in saved.chain))

    def with_known(self, saved: SavedState) -> SavedState:
        """Return the same state with the replica nodes that the register knows of earlier snapshots."""
        known = self.needed
        chain = tuple(known.get((saved.instance, snapshot.checkpoint), snapshot) for snapshot in saved.chain)
        return msgspec.structs.replace(saved, chain=chain)

    @property
    def is_brought(self) -> bool:
        """Return whether the initial state comes from another run, and lies with the node that was asked to begin this run."""
        return bool(self.origin) and not self.committed.epoch

    @property
    def next_attempt(self) -> int:
        """Return the number of the next attempt.

        The first attempt of a run is the deployed one; a run that begins with a checkpoint has left that behind.
        """
        return self.attempt + 1 if self.attempt or not self.origin else FIRST_RESTARTED_ATTEMPT

    def may_be_sent_by(self, node: NodeId) -> bool:
        """Return whether a node may announce that this value is in the register: only voters may."""
        return any(voter.peer.node == node for voter in (*self.voters, *self.old_voters))

    def saved_for(self, instance: InstanceId) -> tuple[SavedState, ...]:
        """Return what the committed epoch has of an instance.

        That is its own state. In a generation whose first epoch is not committed, it is that of all instances of the previous
        generation, from which the instance takes its groups.
        """
        of_stage = tuple(saved for saved in self.saved if saved.instance.stage == instance.stage)
        return tuple(saved for saved in of_stage if saved.instance == instance) or of_stage

    def with_replica_nodes(self, made: Iterable[ReplacedFragment]) -> "RegisterValue":
        """Return the value with these new replica nodes, where it has such snapshots and the node has no other fragment of them."""
        news: dict[tuple[InstanceId, CheckpointId], dict[int, NodeId]] = {}
        for replaced in made:
            news.setdefault((replaced.instance, replaced.checkpoint), {})[replaced.index] = replaced.replica_node

        def with_new_nodes(saved: SavedState, snapshot: InstanceSnapshot) -> InstanceSnapshot:
            replica_nodes = list(snapshot.replica_nodes)
            for index, replica_node in news.get((saved.instance, snapshot.checkpoint), {}).items():
                if index < len(replica_nodes) and replica_node not in replica_nodes:
                    replica_nodes[index] = replica_node
            return msgspec.structs.replace(snapshot, replica_nodes=tuple(replica_nodes))

        def with_new_states(known: tuple[SavedState, ...]) -> tuple[SavedState, ...]:
            return tuple(
                msgspec.structs.replace(saved, chain=tuple(with_new_nodes(saved, snapshot) for snapshot in saved.chain))
                for saved in known
            )

        return msgspec.structs.replace(self, saved=with_new_states(self.saved), before=with_new_states(self.before))

    @property
    def nodes(self) -> dict[NodeId, Peer]:
        """Return the hosts of the plan; then nodes that store parts of sinks that have moved on."""
        nodes = dict(self.plan.hosts)
        for end in self.parts:
            nodes.setdefault(end.host, Peer(end.host))
        return nodes

    @property
    def informed(self) -> dict[NodeId, Peer]:
        """Return the nodes that receive attempts and commits: `nodes`, and standby hosts, on which no attempt waits."""
        return {standby.host.node: standby.host for standby in self.standbys} | self.nodes

    def stands_by(self, node: NodeId) -> tuple[Assignment, ...]:
        """Return the instances of which a node is the standby host."""
        instances = {standby.instance: None for standby in self.standbys if standby.host.node == node}
        return tuple(assignment for assignment in self.plan.assignments if assignment.instance in instances)

    def needs_key(self, node: NodeId) -> bool:
        """Return whether a node saves or restores state of the run: a host of the plan, or a standby host."""
        return node in self.plan.hosts or any(standby.host.node == node for standby in self.standbys)

    @property
    def needed(self) -> dict[tuple[InstanceId, CheckpointId], InstanceSnapshot]:
        """Return the snapshots that the last two committed epochs need."""
        return {
            (saved.instance, snapshot.checkpoint): snapshot
            for saved in (*self.before, *self.saved)
            for snapshot in saved.chain
        }
