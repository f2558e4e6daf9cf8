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
from agiledart_kernel.count import Count
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.limits import (
    LIVES_OF_AN_ERA,
    MAX_CHAIN,
    MAX_CHANGES,
    MAX_EDGES,
    MAX_FRAGMENTS,
    MAX_LEFT,
    MAX_PARTIES,
    MAX_PLAN_BYTES,
    MAX_REASON,
    MAX_VOTERS,
)
from agiledart_recovery.wire.names import NOTHING_SAVED, Digest, Name, Order, Party, Run, Snapshot, Voter

AFTER_DEPLOYMENT: Final = 2
"""The first life that hosts enter with new processes."""


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


class IfLost(StrEnum):
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

    party: Party
    role: Role
    host: Peer
    is_pinned: bool = False
    has_log: bool = False
    if_lost: IfLost = IfLost.WAIT


class Fate(StrEnum):
    """What became of a change."""

    RUNNING = "running"
    DONE = "done"
    LET_GO = "let-go"
    ROLLED_BACK = "rolled-back"


class Change(msgspec.Struct, frozen=True, gc=False, array_like=True):
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
    term: Count
    before: Count
    after: Count
    kind: Annotated[str, msgspec.Meta(max_length=16)] = ""
    reason: Annotated[str, msgspec.Meta(max_length=MAX_REASON)] = ""
    fate: Fate = Fate.RUNNING
    why: Annotated[str, msgspec.Meta(max_length=MAX_REASON)] = ""
    moved_groups: Count = 0
    moved_bytes: Count = 0
    took_ns: Count = 0
    gap_ns: Count = 0

    @property
    def name(self) -> tuple[str, int]:
        """In one run no stage takes a term twice."""
        return self.stage, self.term


class Plan(msgspec.Struct, frozen=True, array_like=True):
    """Who runs what.

    Args:
        edges: stage → stage.
        syncs: a merge by position has several sources, so logs are synced before a commit.
        body: what forming needs to start it (tables, executors); recovery carries it and never reads it.
        changes: what made it of the plan before, one for each stage that takes a new term. In the plan, so that whoever commits
            it can note them, also a coordinator that never heard the request.
    """

    assignments: Annotated[tuple[Assignment, ...], msgspec.Meta(max_length=MAX_PARTIES)]
    edges: Annotated[tuple[tuple[Name, Name], ...], msgspec.Meta(max_length=MAX_EDGES)] = ()
    syncs: bool = False
    body: Annotated[bytes, msgspec.Meta(max_length=MAX_PLAN_BYTES)] = b""
    changes: Annotated[tuple[Change, ...], msgspec.Meta(max_length=MAX_EDGES)] = ()

    @property
    def may_go_back(self) -> bool:
        """Whether the run goes on from the epoch before the committed one where a state of that is lost."""
        return any(each.if_lost is IfLost.PREVIOUS for each in self.assignments)

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

    def is_at(self, party: Party, node: NodeId) -> bool:
        """Does a node run this party?"""
        return any(each.party == party for each in self.at(node))

    def stage(self, stage: str) -> tuple[Assignment, ...]:
        """Instances of a stage, by their index."""
        return tuple(each for each in self.assignments if each.party.stage == stage)

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


class MadeAgain(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A fragment of an element has another holder."""

    party: Party
    snapshot: Snapshot
    index: Annotated[int, msgspec.Meta(ge=0, lt=MAX_FRAGMENTS)]
    holder: NodeId


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
        earlier: the epoch that `before` is of, if the run may go on from there; see `gone_to_the_other`.
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
    changes: Annotated[tuple[Change, ...], msgspec.Meta(max_length=MAX_CHANGES)] = ()
    origin: Annotated[str, msgspec.Meta(max_length=16)] = ""
    left: Annotated[tuple[NodeId, ...], msgspec.Meta(max_length=MAX_LEFT)] = ()
    order: Order = b""
    gone_back: Snapshot | None = None
    earlier: Snapshot | None = None

    @property
    def at(self) -> Snapshot:
        """The epoch from which instances go on; what sinks have shown is that of the committed one, which may be a later one."""
        return self.gone_back or self.committed

    @property
    def gone_to_the_other(self) -> "Value":
        """The value that goes on from the other one of the two epochs that are kept: back, or forth again.

        What is committed stays so: sinks keep their ends, and numbers of epochs go on. So rows of the epochs between come twice.
        Neither of the two is let go before the next commit, for holders of the later one may come back.
        """
        back = self.earlier if self.earlier != self.committed else None
        return msgspec.structs.replace(self, saved=self.before, before=self.saved, gone_back=back, earlier=self.at)

    @property
    def shown(self) -> tuple[Saved, ...]:
        """What was saved at the committed epoch: a sink's element says up to where its rows count."""
        return self.before if self.gone_back is not None else self.saved

    @property
    def era(self) -> int:
        """As that of ballots: by its life, which every receiver compares, on its disk and in each frame."""
        return self.life // LIVES_OF_AN_ERA

    @property
    def is_regained(self) -> bool:
        """Whether this is the first value of an era: nobody has entered its life yet."""
        return self.era > 0 and self.life == self.era * LIVES_OF_AN_ERA

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

    def chain_to(self, party: Party, digest: bytes) -> tuple[Element, ...]:
        """The chain of a party that ends with this element, as far as the last two committed epochs have one."""
        chains = (saved.chain for saved in (*self.saved, *self.before) if saved.party == party and saved.chain)
        return next((chain for chain in chains if chain[-1].digest == digest), ())

    def with_known(self, saved: Saved) -> Saved:
        """The same, with the holders that the register knows of elements that were saved before."""
        known = self.needed
        chain = tuple(known.get((saved.party, element.snapshot), element) for element in saved.chain)
        return msgspec.structs.replace(saved, chain=chain)

    @property
    def is_brought(self) -> bool:
        """Whether what its instances begin with is of another run, and lies with who was asked to begin this one."""
        return bool(self.origin) and not self.committed.epoch

    @property
    def next_life(self) -> int:
        """The first life of a run is the one that was deployed; one that begins with a checkpoint has left that behind."""
        return self.life + 1 if self.life or not self.origin else AFTER_DEPLOYMENT

    def may_be_told_by(self, node: NodeId) -> bool:
        """Whether a node may say that this is in the register: only voters may."""
        return any(voter.peer.node == node for voter in (*self.voters, *self.outgoing))

    def saved_for(self, party: Party) -> tuple[Saved, ...]:
        """What the committed epoch has of a party: its own, or, in a term whose first epoch is not committed, that of all
        instances of the term before, of which it takes its groups.
        """
        of_stage = tuple(each for each in self.saved if each.party.stage == party.stage)
        return tuple(each for each in of_stage if each.party == party) or of_stage

    def with_holders(self, made: Iterable[MadeAgain]) -> "Value":
        """The value that names these holders, as far as it has such elements and the node has no other fragment of it."""
        news: dict[tuple[Party, Snapshot], dict[int, NodeId]] = {}
        for one in made:
            news.setdefault((one.party, one.snapshot), {})[one.index] = one.holder

        def element_of(saved: Saved, element: Element) -> Element:
            holders = list(element.holders)
            for index, holder in news.get((saved.party, element.snapshot), {}).items():
                if index < len(holders) and holder not in holders:
                    holders[index] = holder
            return msgspec.structs.replace(element, holders=tuple(holders))

        def all_of(known: tuple[Saved, ...]) -> tuple[Saved, ...]:
            return tuple(
                msgspec.structs.replace(saved, chain=tuple(element_of(saved, element) for element in saved.chain))
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
    def needed(self) -> dict[tuple[Party, Snapshot], Element]:
        """Elements that the last two committed epochs need."""
        return {
            (saved.party, element.snapshot): element for saved in (*self.before, *self.saved) for element in saved.chain
        }
