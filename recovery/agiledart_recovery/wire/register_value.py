"""The register's value: which life and epoch of a run count, where its parties are, and what the committed epoch needs.

Departs: the specification keeps a digest of the epoch's manifest. Here the manifest itself (`saved`) is in the value: with a
digest alone, a coordinator that dies between ACCEPT and COMMITTED leaves nobody who knows the holders of a host that died with it.
"""

from collections.abc import Iterable
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Final

import msgspec

from agiledart_kernel.codec import encode
from agiledart_kernel.counts import Count
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.limits import (
    ATTEMPTS_PER_CONFIGURATION,
    MAX_CHAIN,
    MAX_CHANGES,
    MAX_EDGES,
    MAX_EXCLUDED_VOTERS,
    MAX_FRAGMENTS,
    MAX_INSTANCES,
    MAX_PLAN_BYTES,
    MAX_REASON,
    MAX_VOTERS,
)
from agiledart_recovery.wire.names import (
    INITIAL_CHECKPOINT,
    CheckpointId,
    Digest,
    InstanceId,
    Name,
    RunId,
    SignedCommandBytes,
    Voter,
)

FIRST_RESTARTED_ATTEMPT: Final = 2
"""The first life that hosts enter with new processes."""


class InstanceRole(StrEnum):
    """What a party is."""

    SOURCE = "source"
    STAGE = "stage"
    SINK = "sink"


class RunState(StrEnum):
    """How it stands with a run, as far as the register says."""

    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"


class LossPolicy(StrEnum):
    """What becomes of the run when a pinned party's host, or a state, is lost."""

    WAIT = ""
    FAIL = "fail"
    EMPTY = "empty"
    PREVIOUS = "previous"


class Assignment(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A party and its host.

    Args:
        is_pinned: it cannot run elsewhere; without its host the run waits. What is not pinned is saved at holders.
        has_log: a source that may write its rows to a log before they leave, and is asked to SYNC it where the plan syncs.
        if_lost: of a pinned party: when its host is gone; of another one: when its state cannot be rebuilt.
    """

    instance: InstanceId
    role: InstanceRole
    host: Peer
    is_pinned: bool = False
    has_log: bool = False
    if_lost: LossPolicy = LossPolicy.WAIT


class ChangeOutcome(StrEnum):
    """What became of a change."""

    RUNNING = "running"
    DONE = "done"
    DROPPED = "let-go"
    ROLLED_BACK = "rolled-back"


class StageChange(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A stage takes a new term: other instances, other places, another table of owners. Source: scaling specification §8.

    Args:
        term: the new one.
        before, after: how many instances.
        kind: scale, move or drain.
        reason: who asked for it, or what.
        why: it was let go or rolled back.
        moved_groups: key groups that go to another node.
        moved_bytes: of their state, as it was saved last.
        took_ns: from the request to the commit.
        gap_ns: for so long rows of some group stood still, as its senders saw it: from what an instance of the term before took
            last to what one of the new term took first. 0 while nobody has said.
    """

    stage: Name
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
        """In one run no stage takes a term twice."""
        return self.stage, self.generation


class Plan(msgspec.Struct, frozen=True, array_like=True):
    """Who runs what.

    Args:
        edges: stage → stage.
        syncs: a merge by position has several sources, so logs are synced before a commit.
        body: what forming needs to start it (tables, executors); recovery carries it and never reads it.
        changes: what made it of the plan before, one for each stage that takes a new term. In the plan, so that whoever commits
            it can note them, also a coordinator that never heard the request.
    """

    assignments: Annotated[tuple[Assignment, ...], msgspec.Meta(max_length=MAX_INSTANCES)]
    edges: Annotated[tuple[tuple[Name, Name], ...], msgspec.Meta(max_length=MAX_EDGES)] = ()
    syncs: bool = False
    body: Annotated[bytes, msgspec.Meta(max_length=MAX_PLAN_BYTES)] = b""
    changes: Annotated[tuple[StageChange, ...], msgspec.Meta(max_length=MAX_EDGES)] = ()

    @property
    def may_roll_back(self) -> bool:
        """Whether the run goes on from the epoch before the committed one where a state of that is lost."""
        return any(each.if_lost is LossPolicy.PREVIOUS for each in self.assignments)

    @property
    def digest(self) -> bytes:
        """Equal plans, equal digests."""
        return sha256(encode(self)).digest()[:16]

    @property
    def hosts(self) -> dict[NodeId, Peer]:
        """Nodes that run something, in the order of the parties."""
        return {each.host.node: each.host for each in self.assignments}

    def at(self, node: NodeId) -> tuple[Assignment, ...]:
        """What a node runs."""
        return tuple(each for each in self.assignments if each.host.node == node)

    def is_at(self, instance: InstanceId, node: NodeId) -> bool:
        """Does a node run this party?"""
        return any(each.instance == instance for each in self.at(node))

    def stage(self, stage: str) -> tuple[Assignment, ...]:
        """Instances of a stage, by their index."""
        return tuple(each for each in self.assignments if each.instance.stage == stage)

    def of(self, role: InstanceRole) -> tuple[Assignment, ...]:
        """Parties of one role."""
        return tuple(each for each in self.assignments if each.role is role)


class InstanceSnapshot(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What one instance saved at one barrier, and where its fragments are: `holders[i]` has fragment i (0: nobody has)."""

    checkpoint: CheckpointId
    digest: Digest
    length: Count
    m: Annotated[int, msgspec.Meta(ge=1, le=MAX_FRAGMENTS)]
    replica_nodes: Annotated[tuple[NodeId, ...], msgspec.Meta(max_length=MAX_FRAGMENTS)]

    @property
    def survives(self) -> int:
        """How many holders may be lost; below 0 the fragments alone do not rebuild it."""
        return sum(1 for replica_node in self.replica_nodes if replica_node) - self.m


class SavedState(msgspec.Struct, frozen=True, array_like=True):
    """What rebuilds a party: a whole element and the changes behind it, oldest first. Empty: it starts from nothing.

    Args:
        position: of a source: small, so it is in the register, and any host can read on from there.
    """

    instance: InstanceId
    chain: Annotated[tuple[InstanceSnapshot, ...], msgspec.Meta(max_length=MAX_CHAIN)] = ()
    position: Annotated[bytes, msgspec.Meta(max_length=4_096)] = b""

    @property
    def checkpoint(self) -> CheckpointId:
        """What it is restored to."""
        return self.chain[-1].checkpoint if self.chain else INITIAL_CHECKPOINT


class ReplacedFragment(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A fragment of an element has another holder."""

    instance: InstanceId
    checkpoint: CheckpointId
    index: Annotated[int, msgspec.Meta(ge=0, lt=MAX_FRAGMENTS)]
    replica_node: NodeId


class SinkEnd(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Up to where a node's part of a sink is committed. A sink that moved has a part, and an end, on each node."""

    stage: Name
    index: Count
    host: NodeId
    checkpoint: CheckpointId
    offset: Count

    @property
    def part(self) -> tuple[str, int, NodeId]:
        """Which part."""
        return self.stage, self.index, self.host


class RegisterValue(msgspec.Struct, frozen=True, array_like=True):
    """What the register says. Life 0: founded and not started. Epoch and its life are `committed`.

    Args:
        generation: grows when an admin goes on without a lost majority.
        saved, before: what the committed epoch and the one committed before it need.
        parts: each node's part of each sink, also of sinks that have moved on.
        reason: why it failed; of one that was ended with its state kept, by whom; of a run that goes on, what this life could not
            bring back; empty otherwise.
        outgoing: the voters before, when this value changes them: until the next value they must agree, too.
        key: of the run; elements are sealed under it before they are cut, so that holders cannot read them.
        changes: the last of them, oldest first, the one that runs among them.
        origin: until an epoch is committed `saved` is a checkpoint of another run, by the numbers of its instances, and this is
            how much of it: `whole` or `steps`. Empty: the run began with nothing.
        left: voters that an admin said are gone for ever; who of them comes back is told that the run goes on without it.
        order: with which the admin said it; without one nobody believes that an era has begun.
        gone_back: the epoch that `saved` is of, where a state of the committed one is lost; None: it is of the committed one.
        earlier: the epoch that `before` is of, if the run may go on from there; see `switched_checkpoint`.
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
    key: Digest = b""
    changes: Annotated[tuple[StageChange, ...], msgspec.Meta(max_length=MAX_CHANGES)] = ()
    origin: Annotated[str, msgspec.Meta(max_length=16)] = ""
    left: Annotated[tuple[NodeId, ...], msgspec.Meta(max_length=MAX_EXCLUDED_VOTERS)] = ()
    signed_command: SignedCommandBytes = b""
    rolled_back_to: CheckpointId | None = None
    fallback_checkpoint: CheckpointId | None = None

    @property
    def at(self) -> CheckpointId:
        """The epoch from which instances go on; what sinks have shown is that of the committed one, which may be a later one."""
        return self.rolled_back_to or self.committed

    @property
    def switched_checkpoint(self) -> "RegisterValue":
        """The value that goes on from the other one of the two epochs that are kept: back, or forth again.

        What is committed stays so: sinks keep their ends, and numbers of epochs go on. So rows of the epochs between come twice.
        Neither of the two is let go before the next commit, for holders of the later one may come back.
        """
        back = self.fallback_checkpoint if self.fallback_checkpoint != self.committed else None
        return msgspec.structs.replace(
            self, saved=self.before, before=self.saved, rolled_back_to=back, fallback_checkpoint=self.at
        )

    @property
    def emitted(self) -> tuple[SavedState, ...]:
        """What was saved at the committed epoch: a sink's element says up to where its rows count."""
        return self.before if self.rolled_back_to is not None else self.saved

    @property
    def configuration(self) -> int:
        """As that of ballots: by its life, which every receiver compares, on its disk and in each frame."""
        return self.attempt // ATTEMPTS_PER_CONFIGURATION

    @property
    def is_first_of_configuration(self) -> bool:
        """Whether this is the first value of an era: nobody has entered its life yet."""
        return self.configuration > 0 and self.attempt == self.configuration * ATTEMPTS_PER_CONFIGURATION

    def faults(self) -> list[str]:
        """What makes it no value that a peer may send; empty when it is sound."""
        instances = [each.instance for each in self.plan.assignments]
        nodes = [voter.peer.node for voter in self.voters]
        found = []
        if len(self.voters) % 2 == 0 or len(dict.fromkeys(nodes)) != len(nodes):
            found.append("an even number of voters, or one twice")
        if len(dict.fromkeys(instances)) != len(instances):
            found.append("a party twice")
        if self.committed.attempt > self.attempt:
            found.append("an epoch of a life to come is committed")
        return found

    def chain_to(self, instance: InstanceId, digest: bytes) -> tuple[InstanceSnapshot, ...]:
        """The chain of a party that ends with this element, as far as the last two committed epochs have one."""
        chains = (saved.chain for saved in (*self.saved, *self.before) if saved.instance == instance and saved.chain)
        return next((chain for chain in chains if chain[-1].digest == digest), ())

    def with_known(self, saved: SavedState) -> SavedState:
        """The same, with the holders that the register knows of elements that were saved before."""
        known = self.needed
        chain = tuple(known.get((saved.instance, snapshot.checkpoint), snapshot) for snapshot in saved.chain)
        return msgspec.structs.replace(saved, chain=chain)

    @property
    def is_brought(self) -> bool:
        """Whether what its instances begin with is of another run, and lies with who was asked to begin this one."""
        return bool(self.origin) and not self.committed.epoch

    @property
    def next_attempt(self) -> int:
        """The first life of a run is the one that was deployed; one that begins with a checkpoint has left that behind."""
        return self.attempt + 1 if self.attempt or not self.origin else FIRST_RESTARTED_ATTEMPT

    def may_be_sent_by(self, node: NodeId) -> bool:
        """Whether a node may say that this is in the register: only voters may."""
        return any(voter.peer.node == node for voter in (*self.voters, *self.old_voters))

    def saved_for(self, instance: InstanceId) -> tuple[SavedState, ...]:
        """What the committed epoch has of a party: its own, or, in a term whose first epoch is not committed, that of all
        instances of the term before, of which it takes its groups.
        """
        of_stage = tuple(each for each in self.saved if each.instance.stage == instance.stage)
        return tuple(each for each in of_stage if each.instance == instance) or of_stage

    def with_replica_nodes(self, made: Iterable[ReplacedFragment]) -> "RegisterValue":
        """The value that names these holders, as far as it has such elements and the node has no other fragment of it."""
        news: dict[tuple[InstanceId, CheckpointId], dict[int, NodeId]] = {}
        for one in made:
            news.setdefault((one.instance, one.checkpoint), {})[one.index] = one.replica_node

        def element_of(saved: SavedState, snapshot: InstanceSnapshot) -> InstanceSnapshot:
            replica_nodes = list(snapshot.replica_nodes)
            for index, replica_node in news.get((saved.instance, snapshot.checkpoint), {}).items():
                if index < len(replica_nodes) and replica_node not in replica_nodes:
                    replica_nodes[index] = replica_node
            return msgspec.structs.replace(snapshot, replica_nodes=tuple(replica_nodes))

        def all_of(known: tuple[SavedState, ...]) -> tuple[SavedState, ...]:
            return tuple(
                msgspec.structs.replace(saved, chain=tuple(element_of(saved, snapshot) for snapshot in saved.chain))
                for saved in known
            )

        return msgspec.structs.replace(self, saved=all_of(self.saved), before=all_of(self.before))

    @property
    def nodes(self) -> dict[NodeId, Peer]:
        """Hosts of the plan; then nodes that hold parts of sinks that have moved on."""
        nodes = dict(self.plan.hosts)
        for end in self.parts:
            nodes.setdefault(end.host, Peer(end.host))
        return nodes

    @property
    def needed(self) -> dict[tuple[InstanceId, CheckpointId], InstanceSnapshot]:
        """Elements that the last two committed epochs need."""
        return {
            (saved.instance, snapshot.checkpoint): snapshot
            for saved in (*self.before, *self.saved)
            for snapshot in saved.chain
        }
