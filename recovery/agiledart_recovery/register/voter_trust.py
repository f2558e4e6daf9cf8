"""Trust in proposers: whom a voter or a host of a run believes, by the value that it *holds*, not by the one in a message.

A message that names its sender among the voters proves nothing. Believed are the voters of the held value. A node that was away
while the voters changed asks them, believes whom one of them names, and asks that one in turn. One answer is enough: a held voter
that lies could send every message itself, so it gains nothing, and often one voter alone has seen two changes. Where a majority of
the held voters is dead, by the failure detector, or knows nothing of the run any more, too few are left to ask. Then the value in
the message decides for a host, as for a node that holds none: else the run could never use that host again. A voter slot
promises then, too, and the promise changes no value; it takes no value and follows no coordinator that is not confirmed.
"""

from dataclasses import dataclass
from typing import Final, Protocol

from agiledart_kernel.instants import SECOND, Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.limits import ATTEMPTS_PER_CONFIGURATION
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.register.proposer import electors_of
from agiledart_recovery.wire.messages import QueryVoters, VotersKnown
from agiledart_recovery.wire.names import CheckpointId, RunId, Voter
from agiledart_recovery.wire.register_value import RegisterValue

ASK_AGAIN_NS: Final = SECOND
"""Time between two questions about the same run: a proposer repeats its messages, and a stranger may do so, too."""

MAX_CONFIRMED: Final = 16
"""Nodes that are believed beside the held voters."""


_NOTHING: Final = CheckpointId(0, 0)


class KnownVoters(Protocol):
    """Voters of a run that a node holds: a register's value, or what a host has of it on its disk."""

    @property
    def attempt(self) -> int:
        """Return the attempt of the value."""

    @property
    def configuration(self) -> int:
        """Return the configuration of that attempt."""

    @property
    def committed(self) -> CheckpointId:
        """Return the last committed epoch."""

    @property
    def voters(self) -> tuple[Voter, ...]:
        """Return the voters."""

    @property
    def old_voters(self) -> tuple[Voter, ...]:
        """Return those that they replace, during a change."""

    def may_be_sent_by(self, node: NodeId) -> bool:
        """Return whether a node is one of them."""


@dataclass(frozen=True, slots=True)
class NamedVoters:
    """Voters of a run that were named without a value: in the file of an attempt, or with the request for a voter slot."""

    voters: tuple[Voter, ...]
    attempt: int = 0
    committed: CheckpointId = _NOTHING
    old_voters: tuple[Voter, ...] = ()

    @property
    def configuration(self) -> int:
        """Return the configuration of the attempt."""
        return self.attempt // ATTEMPTS_PER_CONFIGURATION

    def may_be_sent_by(self, node: NodeId) -> bool:
        """Return whether a node is one of them."""
        return any(voter.peer.node == node for voter in self.voters)


class VoterTrust:
    """Nodes that this node believes about one run."""

    def __init__(self, context: RecoveryContext, run: RunId) -> None:
        self._context, self._run = context, run
        self._asked_at: Instant | None = None
        self._confirmed: dict[NodeId, tuple[Peer, int]] = {}  # with the attempt that the answer was about
        self._ignorant: dict[NodeId, None] = {}
        self._named: dict[NodeId, VotersKnown] = {}

    def confirms(self, held: KnownVoters, sender: NodeId) -> bool:
        """Return whether the held value or an answer of its voters names a node among the voters."""
        return sender == self._context.me.node or held.may_be_sent_by(sender) or sender in self._confirmed_at(held)

    def _confirmed_at(self, held: KnownVoters) -> dict[NodeId, Peer]:
        """Return the nodes that were voters in the held attempt or later; an answer of before says nothing of it."""
        return {node: peer for node, (peer, attempt) in self._confirmed.items() if attempt >= held.attempt}

    def renew(self, before: KnownVoters | None, held: KnownVoters | None) -> None:
        """Forget the confirmed nodes when the held voters change, because the later value may have replaced them.

        An attempt may see several changes of voters, so the attempt of an answer does not say which of them it is about.
        """
        if held is not None and (before is None or held.voters != before.voters):
            self._confirmed, self._named = {}, {}

    def believes(self, held: KnownVoters, sender: NodeId) -> bool:
        """Return whether a node may speak for the register to a host: it is confirmed, or too few voters are left to ask."""
        if self.confirms(held, sender):
            return True
        lost = len(held.voters) - len(self._to_ask(held))
        return 2 * lost > len(held.voters)

    def has_replaced(self, held: KnownVoters, voter: tuple[NodeId, int]) -> bool:
        """Return whether a believed node has named the present voters, and this slot is none of them."""
        return any(
            message.attempt >= held.attempt and voter not in [known.voter_id for known in message.voters]
            for node, message in self._named.items()
            if held.may_be_sent_by(node)
        )

    def ask(self, held: KnownVoters) -> None:
        """Ask the held voters, and those that they have confirmed, for the present voters.

        This node asks itself, too: its slot may have seen a change of voters that the participant here has not.
        """
        now = self._context.now
        if self._asked_at is not None and now - self._asked_at < ASK_AGAIN_NS:
            return
        self._asked_at = now
        peers = {voter.peer.node: voter.peer for voter in (*held.voters, *held.old_voters)} | self._confirmed_at(held)
        for peer in peers.values():
            self._context.send(peer, QueryVoters(self._run))

    def _to_ask(self, held: KnownVoters) -> list[NodeId]:
        """Return the held voters that can be asked, and have not said that they know nothing of the run any more."""
        me = self._context.me.node
        nodes = [voter.peer.node for voter in held.voters if voter.peer.node not in self._ignorant]
        return [node for node in nodes if node == me or self._context.can_reach(node)]

    def on_voters(self, held: KnownVoters, sender: Peer, message: VotersKnown) -> bool:
        """Take the answer of a believed node; return whether it is one. An answer about an earlier attempt says nothing new."""
        is_own = sender.node == self._context.me.node
        if not (is_own or held.may_be_sent_by(sender.node) or sender.node in self._confirmed_at(held)):
            return False
        if message.voters:
            self._ignorant.pop(sender.node, None)
            self._named[sender.node] = message
        else:
            self._ignorant[sender.node] = None
        if message.attempt < held.attempt:
            return True
        for voter in message.voters:
            known = self._confirmed.pop(voter.peer.node, None)
            if len(self._confirmed) >= MAX_CONFIRMED:
                self._confirmed.pop(next(iter(self._confirmed)))  # the one that was named longest ago
            attempt = message.attempt if known is None else max(known[1], message.attempt)
            self._confirmed[voter.peer.node] = voter.peer, attempt
        return True


class VoterTrusts:
    """Trust in the proposers of all runs that this node votes for, or hosts."""

    def __init__(self, context: RecoveryContext) -> None:
        self._context = context
        self._by_run: dict[RunId, VoterTrust] = {}

    def of(self, run: RunId) -> VoterTrust:
        """Return what is believed about a run."""
        if run not in self._by_run:
            self._by_run[run] = VoterTrust(self._context, run)
        return self._by_run[run]

    def known(self, run: RunId) -> VoterTrust | None:
        """Return what is believed about a run, if a question about it is open."""
        return self._by_run.get(run)

    def forget(self, run: RunId) -> None:
        """Forget a run."""
        self._by_run.pop(run, None)


def newest_of(*held: KnownVoters | None) -> KnownVoters | None:
    """Return the newest of what a node holds as a voter and as a host of a run, of equal ones the first; None: it holds nothing."""
    known = [voters for voters in held if voters is not None]
    return max(known, key=lambda voters: (voters.attempt, voters.committed), default=None)


def voters_known(run: RunId, value: RegisterValue) -> VotersKnown:
    """Return the answer of a voter that holds a value."""
    voters: tuple[Voter, ...] = electors_of(value)
    return VotersKnown(run, value.attempt, voters)


def may_know(value: RegisterValue, node: NodeId) -> bool:
    """Return whether a node may know the voters of a run: only its voters and its hosts may."""
    return value.may_be_sent_by(node) or node in value.informed
