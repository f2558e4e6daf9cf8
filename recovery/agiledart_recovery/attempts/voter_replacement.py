"""Replacement of voters that are gone, or about to leave, one at a time.

A voter is alive when it answers with the voter slot that the register names. One that has been silent for `voter_timeout` is
replaced. A node on another host is asked to make a voter file (REQUEST_VOTER_SLOT), and the value with its slot is ACCEPTed by
majorities of both sets. Then the value is written once more without the old voters. A node that lost its disk answers with
another slot, so it counts as silent.

A voter that took over a stage gives its slot to a node that hosts nothing of the run, where there is one. Else one failure
would take the voter and an instance together. The coordinator gives its own slot away last, and only while it has no request
that the next one would not know of. Then it leaves the run, since hosts accept nothing from nodes that do not vote.

A voter that wants to leave repeats its request. The coordinator may be that voter, and leaves when the register names voters
without it.
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
"""Time for which a voter's request to leave is valid."""


class VoterReplacement:
    """State of a run's voters, as its coordinator sees it.

    Attributes:
        is_leaving: whether the coordinator's own slot is being given away; a request that begins now would be lost.
    """

    def __init__(self, context: RecoveryContext, run: RunId) -> None:
        self._context, self._run = context, run
        self._last_received_at: dict[VoterId, Instant] = {}
        self._voter_slots: dict[Peer, int] = {}
        self._asked: dict[NodeId, None] = {}
        self._leaving: dict[NodeId, Instant] = {}
        self.is_leaving = False

    def request_replacement(self, node: NodeId, value: RegisterValue) -> str:
        """Request a replacement for a voter that is about to leave. Return why no node can take its slot; empty: one does."""
        mine = next((voter for voter in value.voters if voter.peer.node == node), None)
        if mine is not None:
            self._leaving[node] = self._context.now
            if self._successor(mine, value) is None:
                return "no other node can take its seat in the register"
        return ""

    def _is_leaving(self, voter: Voter) -> bool:
        requested_at = self._leaving.get(voter.peer.node)
        return requested_at is not None and self._context.now - requested_at < LEAVING_NS

    def _successor(self, gone: Voter, value: RegisterValue, besides: Collection[NodeId] = ()) -> Peer | None:
        known = (self._context.me, *self._context.candidates)
        there = [peer for peer in known if self._context.can_reach(peer.node) and not self._is_leaving(Voter(peer, 0))]
        return successor_of(gone, value.voters, [peer for peer in there if peer.node not in besides])

    def began(self, value: RegisterValue) -> None:
        """Begin coordination: all voters count as alive just now."""
        self._last_received_at = {voter.voter_id: self._context.now for voter in value.voters}
        self._voter_slots, self._asked = {}, {}
        self.is_leaving = False

    def answered(self, sender: Peer, voter_slot: int) -> None:
        """Note an answer with a voter slot."""
        if (sender.node, voter_slot) in self._last_received_at:
            self._last_received_at[sender.node, voter_slot] = self._context.now

    def all_answered_since(self, at: Instant) -> bool:
        """Return whether every voter has answered after an instant."""
        return all(answered > at for answered in self._last_received_at.values())

    def missing(self, value: RegisterValue, since: Instant) -> tuple[NodeId, ...]:
        """Return the voters that are silent since an instant, when the others are too few to write anything."""
        answered = {voter_id: None for voter_id, at in self._last_received_at.items() if at >= since}
        if is_quorum(value, answered):
            return ()
        return tuple(voter.peer.node for voter in electors_of(value) if voter.voter_id not in answered)

    def on_voter_slot_made(self, sender: Peer, voter_slot: int) -> None:
        """Note the voter slot of a node that was asked for one; ignore others, which would vote at their own word."""
        if sender.node not in self._asked:
            self._context.observe(MessageIgnored(sender.node, "voter_slot"))
        elif len(self._voter_slots) < 8:
            self._voter_slots[sender] = voter_slot

    def written(self, value: RegisterValue) -> None:
        """Note the voters that the register names now."""
        self._last_received_at = {
            voter.voter_id: self._last_received_at.get(voter.voter_id, self._context.now) for voter in value.voters
        }

    def on_tick(self, proposer: Proposer, *, is_free: bool = True) -> None:
        """Finish a change of voters, or begin one when a voter is gone.

        Args:
            is_free: whether nothing is lost when another node coordinates.
        """
        value = proposer.value
        if proposer.phase is not Phase.LEADING or value is None or value.state is not RunState.RUNNING:
            return
        if value.old_voters:
            proposer.write(msgspec.structs.replace(value, old_voters=()))
            return
        limit = self._context.now - self._context.config.voter_timeout_ns
        gone = [voter for voter in value.voters if self._last_received_at.get(voter.voter_id, limit) < limit]
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
            self._context.send(other, RequestVoterSlot(self._run, value.voters))
            return
        self._voter_slots, self._asked = {}, {}
        self.is_leaving = self.is_leaving or gone[0].peer.node == self._context.me.node
        voters = tuple(
            Voter(other, voter_slot) if voter.voter_id == gone[0].voter_id else voter for voter in value.voters
        )
        self._context.observe(VoterReplaced(self._run, gone[0].peer.node, other.node))
        proposer.write(msgspec.structs.replace(value, voters=voters, old_voters=value.voters))


def _runs_a_stage(value: RegisterValue, node: NodeId) -> bool:
    """Return whether a node hosts an instance that others could."""
    return any(assignment.host.node == node and not assignment.is_pinned for assignment in value.plan.assignments)
