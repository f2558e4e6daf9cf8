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
from agiledart_recovery.desk import Desk
from agiledart_recovery.register.ballots import Chair, is_quorum, successor_of
from agiledart_recovery.register.proposer import Phase, Proposer, electors_of
from agiledart_recovery.wire.messages import AskSeat
from agiledart_recovery.wire.names import Run, Voter
from agiledart_recovery.wire.observations import MessageIgnored, VoterReplaced
from agiledart_recovery.wire.value import State, Value

GOING_NS: Final = 10 * SECOND
"""For so long a voter that said so is about to leave."""


class Replacing:
    """What a coordinator knows of its voters.

    Attributes:
        is_leaving: the coordinator's own seat is being given away; what is begun now would be lost.
    """

    def __init__(self, desk: Desk, run: Run) -> None:
        self._desk, self._run = desk, run
        self._heard: dict[Chair, Instant] = {}
        self._seats: dict[Peer, int] = {}
        self._asked: dict[NodeId, None] = {}
        self._going: dict[NodeId, Instant] = {}
        self.is_leaving = False

    def wants_to_go(self, node: NodeId, value: Value) -> str:
        """A voter is about to leave. Why nobody can take its seat; empty: somebody does."""
        mine = next((voter for voter in value.voters if voter.peer.node == node), None)
        if mine is not None:
            self._going[node] = self._desk.now
            if self._successor(mine, value) is None:
                return "no other node can take its seat in the register"
        return ""

    def _is_going(self, voter: Voter) -> bool:
        said = self._going.get(voter.peer.node)
        return said is not None and self._desk.now - said < GOING_NS

    def _successor(self, gone: Voter, value: Value, besides: Collection[NodeId] = ()) -> Peer | None:
        known = (self._desk.me, *self._desk.room)
        there = [peer for peer in known if self._desk.can_reach(peer.node) and not self._is_going(Voter(peer, 0))]
        return successor_of(gone, value.voters, [peer for peer in there if peer.node not in besides])

    def began(self, value: Value) -> None:
        """Coordination begins: everybody has just been heard."""
        self._heard = {voter.chair: self._desk.now for voter in value.voters}
        self._seats, self._asked = {}, {}
        self.is_leaving = False

    def heard(self, sender: Peer, seat: int) -> None:
        """An answer under a seat."""
        if (sender.node, seat) in self._heard:
            self._heard[sender.node, seat] = self._desk.now

    def all_heard_since(self, at: Instant) -> bool:
        """Whether every voter has answered after an instant."""
        return all(heard > at for heard in self._heard.values())

    def missing(self, value: Value, since: Instant) -> tuple[NodeId, ...]:
        """Voters that were not heard since an instant, when those that were are too few to write anything."""
        heard = {chair: None for chair, at in self._heard.items() if at >= since}
        if is_quorum(value, heard):
            return ()
        return tuple(voter.peer.node for voter in electors_of(value) if voter.chair not in heard)

    def on_seat(self, sender: Peer, seat: int) -> None:
        """A node that was asked has made a voter's file; one that was not would vote at its own word."""
        if sender.node not in self._asked:
            self._desk.observe(MessageIgnored(sender.node, "seat"))
        elif len(self._seats) < 8:
            self._seats[sender] = seat

    def written(self, value: Value) -> None:
        """The register names these voters now."""
        self._heard = {voter.chair: self._heard.get(voter.chair, self._desk.now) for voter in value.voters}

    def on_tick(self, proposer: Proposer, *, is_free: bool = True) -> None:
        """Finish a change, or begin one when a voter is gone.

        Args:
            is_free: nothing is lost when another node coordinates.
        """
        value = proposer.value
        if proposer.phase is not Phase.LEADING or value is None or value.state is not State.RUNNING:
            return
        if value.outgoing:
            proposer.write(msgspec.structs.replace(value, outgoing=()))
            return
        limit = self._desk.now - self._desk.config.voter_patience_ns
        gone = [voter for voter in value.voters if self._heard.get(voter.chair, limit) < limit]
        gone += [voter for voter in value.voters if self._is_going(voter)]
        besides: dict[NodeId, Peer] = {}
        if not gone:
            me, besides = self._desk.me.node, value.plan.hosts
            gone = [voter for voter in value.voters if _runs_a_stage(value, voter.peer.node)]
            gone = [voter for voter in gone if voter.peer.node != me] or (gone if is_free else [])
        if not gone:
            return
        other = self._successor(gone[0], value, besides)
        if other is None:
            return
        seat = next((seat for peer, seat in self._seats.items() if peer.node == other.node), None)
        if seat is None:
            self._asked[other.node] = None
            self._desk.send(other, AskSeat(self._run))
            return
        self._seats, self._asked = {}, {}
        self.is_leaving = self.is_leaving or gone[0].peer.node == self._desk.me.node
        voters = tuple(Voter(other, seat) if voter.chair == gone[0].chair else voter for voter in value.voters)
        self._desk.observe(VoterReplaced(self._run, gone[0].peer.node, other.node))
        proposer.write(msgspec.structs.replace(value, voters=voters, outgoing=value.voters))


def _runs_a_stage(value: Value, node: NodeId) -> bool:
    """Whether a node hosts what others could."""
    return any(each.host.node == node and not each.is_pinned for each in value.plan.assignments)
