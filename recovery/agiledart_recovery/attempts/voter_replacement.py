"""Voters that are gone, or want to go, give their seats to others, one at a time.

A voter is heard when it answers under the seat that the register names. One that was not heard for `voter_patience` is replaced: a
node on another host is asked to make a file (ASK_SEAT), and the value with its seat is ACCEPTed by majorities of both sets. Then
the value is written once more without the voters before. A node that lost its disk answers under another seat, so it is not heard.
A voter that took over a stage gives its seat to a node that hosts nothing of the run, where there is one: else it would be lost
together with holders of what it runs. Who coordinates gives its own away last, and only while nothing is under way that the next
one would not know of; then it lets go of the run, since hosts take nothing from who does not vote.
One that wants to go says so again and again; the coordinator may be it, and lets go when the register has the voters without it.
"""

from collections.abc import Collection
from typing import Final

import msgspec

from agiledart_kernel.instants import SECOND, Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.register.proposer import Phase, Proposer, electors_of
from agiledart_recovery.register.quorums import VoterId, is_quorum, successor_of
from agiledart_recovery.wire.messages import RequestVoterSlot
from agiledart_recovery.wire.names import RunId, Voter
from agiledart_recovery.wire.observations import MessageIgnored, VoterReplaced
from agiledart_recovery.wire.register_value import RegisterValue, RunState

LEAVING_NS: Final = 10 * SECOND
"""For so long a voter that said so is about to leave."""


class VoterReplacement:
    """What a coordinator knows of its voters.

    Attributes:
        is_leaving: the coordinator's own seat is being given away; what is begun now would be lost.
    """

    def __init__(self, context: RecoveryContext, run: RunId) -> None:
        self._context, self._run = context, run
        self._last_heard_at: dict[VoterId, Instant] = {}
        self._voter_slots: dict[Peer, int] = {}
        self._asked: dict[NodeId, None] = {}
        self._leaving: dict[NodeId, Instant] = {}
        self.is_leaving = False

    def request_replacement(self, node: NodeId, value: RegisterValue) -> str:
        """A voter is about to leave. Why nobody can take its seat; empty: somebody does."""
        mine = next((voter for voter in value.voters if voter.peer.node == node), None)
        if mine is not None:
            self._leaving[node] = self._context.now
            if self._successor(mine, value) is None:
                return "no other node can take its seat in the register"
        return ""

    def _is_leaving(self, voter: Voter) -> bool:
        said = self._leaving.get(voter.peer.node)
        return said is not None and self._context.now - said < LEAVING_NS

    def _successor(self, gone: Voter, value: RegisterValue, besides: Collection[NodeId] = ()) -> Peer | None:
        known = (self._context.me, *self._context.candidates)
        there = [peer for peer in known if self._context.can_reach(peer.node) and not self._is_leaving(Voter(peer, 0))]
        return successor_of(gone, value.voters, [peer for peer in there if peer.node not in besides])

    def began(self, value: RegisterValue) -> None:
        """Coordination begins: everybody has just been heard."""
        self._last_heard_at = {voter.voter_id: self._context.now for voter in value.voters}
        self._voter_slots, self._asked = {}, {}
        self.is_leaving = False

    def answered(self, sender: Peer, voter_slot: int) -> None:
        """An answer under a seat."""
        if (sender.node, voter_slot) in self._last_heard_at:
            self._last_heard_at[sender.node, voter_slot] = self._context.now

    def all_answered_since(self, at: Instant) -> bool:
        """Whether every voter has answered after an instant."""
        return all(answered > at for answered in self._last_heard_at.values())

    def missing(self, value: RegisterValue, since: Instant) -> tuple[NodeId, ...]:
        """Voters that were not heard since an instant, when those that were are too few to write anything."""
        answered = {voter_id: None for voter_id, at in self._last_heard_at.items() if at >= since}
        if is_quorum(value, answered):
            return ()
        return tuple(voter.peer.node for voter in electors_of(value) if voter.voter_id not in answered)

    def on_voter_slot_made(self, sender: Peer, voter_slot: int) -> None:
        """A node that was asked has made a voter's file; one that was not would vote at its own word."""
        if sender.node not in self._asked:
            self._context.observe(MessageIgnored(sender.node, "seat"))
        elif len(self._voter_slots) < 8:
            self._voter_slots[sender] = voter_slot

    def written(self, value: RegisterValue) -> None:
        """The register names these voters now."""
        self._last_heard_at = {
            voter.voter_id: self._last_heard_at.get(voter.voter_id, self._context.now) for voter in value.voters
        }

    def on_tick(self, proposer: Proposer, *, is_free: bool = True) -> None:
        """Finish a change, or begin one when a voter is gone.

        Args:
            is_free: nothing is lost when another node coordinates.
        """
        value = proposer.value
        if proposer.phase is not Phase.LEADING or value is None or value.state is not RunState.RUNNING:
            return
        if value.old_voters:
            proposer.write(msgspec.structs.replace(value, old_voters=()))
            return
        limit = self._context.now - self._context.config.voter_timeout_ns
        gone = [voter for voter in value.voters if self._last_heard_at.get(voter.voter_id, limit) < limit]
        gone += [voter for voter in value.voters if self._is_leaving(voter)]
        besides: dict[NodeId, Peer] = {}
        if not gone:
            me, besides = self._context.me.node, value.plan.hosts
            gone = [voter for voter in value.voters if _runs_a_stage(value, voter.peer.node)]
            gone = [voter for voter in gone if voter.peer.node != me] or (gone if is_free else [])
        if not gone:
            return
        other = self._successor(gone[0], value, besides)
        if other is None:
            return
        voter_slot = next(
            (voter_slot for peer, voter_slot in self._voter_slots.items() if peer.node == other.node), None
        )
        if voter_slot is None:
            self._asked[other.node] = None
            self._context.send(other, RequestVoterSlot(self._run))
            return
        self._voter_slots, self._asked = {}, {}
        self.is_leaving = self.is_leaving or gone[0].peer.node == self._context.me.node
        voters = tuple(
            Voter(other, voter_slot) if voter.voter_id == gone[0].voter_id else voter for voter in value.voters
        )
        self._context.observe(VoterReplaced(self._run, gone[0].peer.node, other.node))
        proposer.write(msgspec.structs.replace(value, voters=voters, old_voters=value.voters))


def _runs_a_stage(value: RegisterValue, node: NodeId) -> bool:
    """Whether a node hosts what others could."""
    return any(each.host.node == node and not each.is_pinned for each in value.plan.assignments)
