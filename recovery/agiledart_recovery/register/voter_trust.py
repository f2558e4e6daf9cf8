"""Trust in proposers: whom a voter or a host of a run believes, by the value that it *holds*, not by the one in a message.

A message that names its sender among the voters proves nothing. Believed are the voters of the held value. A node that was away
while the voters changed asks them, believes whom one of them names, and asks that one in turn. One answer is enough: a held voter
that lies could send every message itself, so it gains nothing, and often one voter alone has seen two changes. Where a majority of
the held voters is dead, by the failure detector, or knows nothing of the run any more, too few are left to ask. Then the value in
the message decides for a host, as for a node that holds none: else the run could never use that host again. A voter slot stays
strict: other voters, among them one in its place, continue the run without its vote.
"""

from typing import Final

from agiledart_kernel.instants import SECOND, Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.register.proposer import electors_of
from agiledart_recovery.wire.messages import QueryVoters, VotersKnown
from agiledart_recovery.wire.names import RunId, Voter
from agiledart_recovery.wire.register_value import RegisterValue

ASK_AGAIN_NS: Final = SECOND
"""Time between two questions about the same run: a proposer repeats its messages, and a stranger may do so, too."""

MAX_CONFIRMED: Final = 16
"""Nodes that are believed beside the held voters."""


class VoterTrust:
    """Nodes that this node believes about one run."""

    def __init__(self, context: RecoveryContext, run: RunId) -> None:
        self._context, self._run = context, run
        self._asked_at: Instant | None = None
        self._confirmed: dict[NodeId, Peer] = {}
        self._ignorant: dict[NodeId, None] = {}

    def confirms(self, held: RegisterValue, sender: NodeId) -> bool:
        """Return whether the held value or an answer of its voters names a node among the voters."""
        return sender == self._context.me.node or held.may_be_sent_by(sender) or sender in self._confirmed

    def believes(self, held: RegisterValue, sender: NodeId) -> bool:
        """Return whether a node may speak for the register to a host: it is confirmed, or too few voters are left to ask."""
        if self.confirms(held, sender):
            return True
        lost = len(held.voters) - len(self._to_ask(held))
        return 2 * lost > len(held.voters)

    def ask(self, held: RegisterValue) -> None:
        """Ask the held voters, and those that they have confirmed, for the present voters.

        This node asks itself, too: its slot may have seen a change of voters that the participant here has not.
        """
        now = self._context.now
        if self._asked_at is not None and now - self._asked_at < ASK_AGAIN_NS:
            return
        self._asked_at = now
        peers = {voter.peer.node: voter.peer for voter in electors_of(held)} | self._confirmed
        for peer in peers.values():
            self._context.send(peer, QueryVoters(self._run))

    def _to_ask(self, held: RegisterValue) -> list[NodeId]:
        """Return the held voters that can be asked, and have not said that they know nothing of the run any more."""
        me = self._context.me.node
        nodes = [voter.peer.node for voter in held.voters if voter.peer.node not in self._ignorant]
        return [node for node in nodes if node == me or self._context.can_reach(node)]

    def on_voters(self, held: RegisterValue, sender: Peer, message: VotersKnown) -> bool:
        """Take the answer of a believed node; return whether it is one. An answer about an earlier attempt says nothing new."""
        is_own = sender.node == self._context.me.node
        if not (is_own or held.may_be_sent_by(sender.node) or sender.node in self._confirmed):
            return False
        if message.voters:
            self._ignorant.pop(sender.node, None)
        else:
            self._ignorant[sender.node] = None
        if message.attempt < held.attempt:
            return True
        for voter in message.voters:
            if len(self._confirmed) < MAX_CONFIRMED:
                self._confirmed[voter.peer.node] = voter.peer
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


def voters_known(run: RunId, value: RegisterValue) -> VotersKnown:
    """Return the answer of a voter that holds a value."""
    voters: tuple[Voter, ...] = electors_of(value)
    return VotersKnown(run, value.attempt, voters)


def may_know(value: RegisterValue, node: NodeId) -> bool:
    """Return whether a node may know the voters of a run: only its voters and its hosts may."""
    return value.may_be_sent_by(node) or node in value.nodes
