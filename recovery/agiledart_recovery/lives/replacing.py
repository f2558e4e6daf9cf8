"""Voters that are gone give their seats to others, one at a time.

A voter is heard when it answers under the seat that the register names. One that was not heard for `voter_patience` is replaced: a
node on another host is asked to make a file (ASK_SEAT), and the value with its seat is ACCEPTed by majorities of both sets. Then
the value is written once more without the voters before. A node that lost its disk answers under another seat, so it is not heard.
A voter that took over a stage gives its seat to a node that hosts nothing of the run, where there is one: else it would be lost
together with holders of what it runs. The seat of who coordinates stays.
"""

import msgspec

from agiledart_kernel.instants import Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.desk import Desk
from agiledart_recovery.register.ballots import Chair, is_quorum, successor_of
from agiledart_recovery.register.proposer import Phase, Proposer, electors_of
from agiledart_recovery.wire.messages import AskSeat
from agiledart_recovery.wire.names import Run, Voter
from agiledart_recovery.wire.observations import VoterReplaced
from agiledart_recovery.wire.value import State, Value


class Replacing:
    """What a coordinator knows of its voters."""

    def __init__(self, desk: Desk, run: Run) -> None:
        self._desk, self._run = desk, run
        self._heard: dict[Chair, Instant] = {}
        self._seats: dict[Peer, int] = {}

    def began(self, value: Value) -> None:
        """Coordination begins: everybody has just been heard."""
        self._heard = {voter.chair: self._desk.now for voter in value.voters}
        self._seats = {}

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
        """A node that was asked has made a voter's file."""
        if len(self._seats) < 8:
            self._seats[sender] = seat

    def written(self, value: Value) -> None:
        """The register names these voters now."""
        self._heard = {voter.chair: self._heard.get(voter.chair, self._desk.now) for voter in value.voters}

    def on_tick(self, proposer: Proposer) -> None:
        """Finish a change, or begin one when a voter is gone."""
        value = proposer.value
        if proposer.phase is not Phase.LEADING or value is None or value.state is not State.RUNNING:
            return
        if value.outgoing:
            proposer.write(msgspec.structs.replace(value, outgoing=()))
            return
        limit = self._desk.now - self._desk.config.voter_patience_ns
        gone = [voter for voter in value.voters if self._heard.get(voter.chair, limit) < limit]
        candidates = [peer for peer in (self._desk.me, *self._desk.room) if self._desk.can_reach(peer.node)]
        if not gone:
            others = (voter for voter in value.voters if voter.peer.node != self._desk.me.node)
            gone = [voter for voter in others if _runs_a_stage(value, voter.peer.node)]
            candidates = [peer for peer in candidates if peer.node not in value.plan.hosts]
        if not gone:
            return
        other = successor_of(gone[0], value.voters, candidates)
        if other is None:
            return
        seat = next((seat for peer, seat in self._seats.items() if peer.node == other.node), None)
        if seat is None:
            self._desk.send(other, AskSeat(self._run))
            return
        self._seats = {}
        voters = tuple(Voter(other, seat) if voter.chair == gone[0].chair else voter for voter in value.voters)
        self._desk.observe(VoterReplaced(self._run, gone[0].peer.node, other.node))
        proposer.write(msgspec.structs.replace(value, voters=voters, outgoing=value.voters))


def _runs_a_stage(value: Value, node: NodeId) -> bool:
    """Whether a node hosts what others could."""
    return any(each.host.node == node and not each.is_pinned for each in value.plan.assignments)
