"""The register's value: which life and epoch of a run count, where its parties are, and what the committed epoch needs.

Departs: the specification keeps a digest of the epoch's manifest. Here the manifest itself (`saved`) is in the value: with a
digest alone, a coordinator that dies between ACCEPT and COMMITTED leaves nobody who knows the holders of a host that died with it.
"""

from enum import StrEnum
from hashlib import sha256
from typing import Annotated

import msgspec

from agiledart_kernel.codec import encode
from agiledart_kernel.count import Count
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.limits import MAX_CHAIN, MAX_EDGES, MAX_FRAGMENTS, MAX_PARTIES, MAX_PLAN_BYTES, MAX_VOTERS
from agiledart_recovery.wire.names import NOTHING_SAVED, Digest, Name, Party, Run, Snapshot, Voter


class Role(StrEnum):
    """What a party is."""

    SOURCE = "source"
    STAGE = "stage"
    SINK = "sink"


class State(StrEnum):
    """How it stands with a run, as far as the register says."""

    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"


class Assignment(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A party and its host.

    Args:
        is_pinned: it cannot run elsewhere; without its host the run waits.
        has_log: a source that writes its judged rows to a log before they leave, and is asked to SYNC it.
    """

    party: Party
    role: Role
    host: Peer
    is_pinned: bool = False
    has_log: bool = False


class Plan(msgspec.Struct, frozen=True, array_like=True):
    """Who runs what.

    Args:
        edges: stage → stage.
        syncs: a merge by position has several sources, so logs are synced before a commit.
        body: what forming needs to start it (tables, executors); recovery carries it and never reads it.
    """

    assignments: Annotated[tuple[Assignment, ...], msgspec.Meta(max_length=MAX_PARTIES)]
    edges: Annotated[tuple[tuple[Name, Name], ...], msgspec.Meta(max_length=MAX_EDGES)] = ()
    syncs: bool = False
    body: Annotated[bytes, msgspec.Meta(max_length=MAX_PLAN_BYTES)] = b""

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

    def of(self, role: Role) -> tuple[Assignment, ...]:
        """Parties of one role."""
        return tuple(each for each in self.assignments if each.role is role)


class Element(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What one instance saved at one barrier, and where its fragments are: `holders[i]` has fragment i (0: nobody has)."""

    snapshot: Snapshot
    digest: Digest
    length: Count
    m: Annotated[int, msgspec.Meta(ge=1, le=MAX_FRAGMENTS)]
    holders: Annotated[tuple[NodeId, ...], msgspec.Meta(max_length=MAX_FRAGMENTS)]

    @property
    def survives(self) -> int:
        """How many holders may be lost; below 0 the fragments alone do not rebuild it."""
        return sum(1 for holder in self.holders if holder) - self.m


class Saved(msgspec.Struct, frozen=True, array_like=True):
    """What rebuilds a party: a whole element and the changes behind it, oldest first. Empty: it starts from nothing.

    Args:
        position: of a source: small, so it is in the register, and any host can read on from there.
    """

    party: Party
    chain: Annotated[tuple[Element, ...], msgspec.Meta(max_length=MAX_CHAIN)] = ()
    position: Annotated[bytes, msgspec.Meta(max_length=4_096)] = b""

    @property
    def snapshot(self) -> Snapshot:
        """What it is restored to."""
        return self.chain[-1].snapshot if self.chain else NOTHING_SAVED


class SinkEnd(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Up to where a node's part of a sink is committed. A sink that moved has a part, and an end, on each node."""

    stage: Name
    index: Count
    host: NodeId
    snapshot: Snapshot
    offset: Count

    @property
    def part(self) -> tuple[str, int, NodeId]:
        """Which part."""
        return self.stage, self.index, self.host


class Value(msgspec.Struct, frozen=True, array_like=True):
    """What the register says. Life 0: founded and not started. Epoch and its life are `committed`.

    Args:
        generation: grows when an admin goes on without a lost majority.
        saved, before: what the committed epoch and the one committed before it need.
        parts: each node's part of each sink, also of sinks that have moved on.
        reason: why it failed; empty otherwise.
        outgoing: the voters before, when this value changes them: until the next value they must agree, too.
        key: of the run; elements are sealed under it before they are cut, so that holders cannot read them.
    """

    run: Run
    generation: Count
    life: Count
    plan: Plan
    committed: Snapshot
    voters: Annotated[tuple[Voter, ...], msgspec.Meta(min_length=1, max_length=MAX_VOTERS)]
    parts: Annotated[tuple[SinkEnd, ...], msgspec.Meta(max_length=MAX_PARTIES)] = ()
    saved: Annotated[tuple[Saved, ...], msgspec.Meta(max_length=MAX_PARTIES)] = ()
    before: Annotated[tuple[Saved, ...], msgspec.Meta(max_length=MAX_PARTIES)] = ()
    state: State = State.RUNNING
    reason: Annotated[str, msgspec.Meta(max_length=400)] = ""
    outgoing: Annotated[tuple[Voter, ...], msgspec.Meta(max_length=MAX_VOTERS)] = ()
    key: Digest = b""

    def faults(self) -> list[str]:
        """What makes it no value that a peer may send; empty when it is sound."""
        parties = [each.party for each in self.plan.assignments]
        nodes = [voter.peer.node for voter in self.voters]
        found = []
        if len(self.voters) % 2 == 0 or len(dict.fromkeys(nodes)) != len(nodes):
            found.append("an even number of voters, or one twice")
        if len(dict.fromkeys(parties)) != len(parties):
            found.append("a party twice")
        if self.committed.life > self.life:
            found.append("an epoch of a life to come is committed")
        return found

    def saved_of(self, party: Party) -> Saved:
        """What the committed epoch has of a party, whatever its term."""
        for each in self.saved:
            if (each.party.stage, each.party.index) == (party.stage, party.index):
                return each
        return Saved(party)

    @property
    def nodes(self) -> dict[NodeId, Peer]:
        """Hosts of the plan; then nodes that hold parts of sinks that have moved on."""
        nodes = dict(self.plan.hosts)
        for end in self.parts:
            nodes.setdefault(end.host, Peer(end.host))
        return nodes

    @property
    def needed(self) -> dict[tuple[Party, Snapshot], Element]:
        """Elements that the last two committed epochs need."""
        return {
            (saved.party, element.snapshot): element for saved in (*self.before, *self.saved) for element in saved.chain
        }
