"""Proposer of a run's register, on the coordinator: reads by PREPARE at a quorum, writes by ACCEPT at a quorum.

The quorum of a value is a majority of its voters and, when it changes them, of the previous voters (`old_voters`).

| phase | trigger |
|---|---|
| IDLE | `begin` → READING, with a ballot above all that were seen |
| READING | quorums of the known value *and* of the newest reported one → that one is ACCEPTed again: CONFIRMING |
| CONFIRMING | a quorum has it → LEADING, outcome READ: whatever was acknowledged before is in this value |
| LEADING | `write` → WRITING, number + 1 |
| WRITING | a quorum has it → LEADING, outcome WRITTEN |
| any | a voter has promised a higher ballot → IDLE, outcome OVERTAKEN; the write may have happened or not: read again |

The awkward case: the newest value names other voters than were asked. Then its voters are asked, too, and their answers may
name others again. Each change had majorities of both sets, so the chain leads to the newest. A change that only a few accepted,
and that the next proposer reads, still counts as a change. Suppose the new voters alone confirmed it: then the old voters could
choose another value without it, and both would be acknowledged. So the value itself carries the previous voters, and the
proposer writes it once more without them.
"""

from enum import Enum

import msgspec

from agiledart_kernel.counts import saturating_increment
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.limits import MAX_ROUND_STEP, ROUNDS_PER_CONFIGURATION
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.register.quorums import VoterId, is_quorum
from agiledart_recovery.wire.messages import Accept, Accepted, BallotRefused, Prepare, Promise
from agiledart_recovery.wire.names import Ballot, RunId, Stamp, Voter
from agiledart_recovery.wire.observations import ValueAcknowledged
from agiledart_recovery.wire.register_value import RegisterValue


class Phase(Enum):
    """Phase of a proposer; the module's head has the table."""

    IDLE = "idle"
    READING = "reading"
    CONFIRMING = "confirming"
    LEADING = "leading"
    WRITING = "writing"


class RegisterOutcome(Enum):
    """Outcome of an answer to the proposer."""

    READ = "read"
    WRITTEN = "written"
    OVERTAKEN = "overtaken"


def electors_of(value: RegisterValue) -> tuple[Voter, ...]:
    """Return all voters whose answer may count for a value."""
    return tuple({voter.voter_id: voter for voter in (*value.voters, *value.old_voters)}.values())


class Proposer:
    """One node's access to a register.

    Attributes:
        value, stamp: the newest that is known to be acknowledged by a quorum; None before the first read.
        ballot: the ballot of its requests.
        highest: the highest ballot that it has received.
    """

    def __init__(self, context: RecoveryContext, run: RunId) -> None:
        self._context, self.run = context, run
        self.phase = Phase.IDLE
        self.ballot = self.highest = Ballot()
        self.value: RegisterValue | None = None
        self.stamp = Stamp()
        self._number = 0
        self._known: RegisterValue
        self._want: RegisterValue
        self._asked: tuple[Voter, ...] = ()
        self._promises: dict[VoterId, Promise] = {}
        self._accepted: dict[VoterId, None] = {}

    # ---- what the coordinator wants

    def begin(self, known: RegisterValue) -> None:
        """Read the register. `known` names the voters to ask; where none has accepted a value, `known` is written, and the run
        starts.
        """
        assert self.phase is Phase.IDLE, self.phase
        self.phase = Phase.READING
        self.ballot = self.highest = Ballot(
            saturating_increment(self.highest.round), self._context.me.node, self._context.me.incarnation
        )
        self._number, self._known = 0, known
        self._asked = electors_of(known)
        self._promises = {}
        self.repeat()

    def recover_quorum(self, first: RegisterValue, below: Ballot) -> None:
        """Write the first value of a configuration, without reading: the old voters are no majority, and no other node has one.

        Args:
            below: all ballots of the configuration are above it.
        """
        assert self.phase is Phase.IDLE, self.phase
        self.highest = max(self.highest, below)
        self.ballot = self.highest = Ballot(
            saturating_increment(self.highest.round), self._context.me.node, self._context.me.incarnation
        )
        self._number, self._known, self._promises = 0, first, {}
        self._propose(first, Phase.CONFIRMING)

    def release(self) -> None:
        """Send no more requests under this ballot."""
        self.phase = Phase.IDLE

    def write(self, value: RegisterValue) -> None:
        """Change the register; only while LEADING. Removed voters receive the value once, else they would take over."""
        assert self.phase is Phase.LEADING, self.phase
        before = () if self.value is None else electors_of(self.value)
        self._propose(value, Phase.WRITING)
        for voter in before:
            if voter not in electors_of(value):
                self._context.send(voter.peer, Accept(self.run, Stamp(self.ballot, self._number), value))

    def repeat(self) -> None:
        """Repeat the request to voters that have not answered."""
        if self.phase is Phase.READING:
            for voter in self._asked:
                if voter.voter_id not in self._promises:
                    self._context.send(voter.peer, Prepare(self.run, self.ballot, self._known.signed_command))
        elif self.phase in (Phase.CONFIRMING, Phase.WRITING):
            message = Accept(self.run, Stamp(self.ballot, self._number), self._want)
            for voter in electors_of(self._want):
                if voter.voter_id not in self._accepted:
                    self._context.send(voter.peer, message)

    def silent(self) -> tuple[NodeId, ...]:
        """Return the voters that have not answered the current request."""
        if self.phase is Phase.READING:
            return tuple(voter.peer.node for voter in self._asked if voter.voter_id not in self._promises)
        if self.phase in (Phase.CONFIRMING, Phase.WRITING):
            return tuple(voter.peer.node for voter in electors_of(self._want) if voter.voter_id not in self._accepted)
        return ()

    # ---- answers

    def on_promise(self, sender: Peer, message: Promise) -> None:
        """Take a voter's answer to PREPARE."""
        if self.phase is not Phase.READING or message.ballot != self.ballot:
            return
        if not any(voter.voter_id == (sender.node, message.voter_slot) for voter in self._asked):
            return  # also of a slot that the register does not name: its value may be a stranger's
        value = message.value
        if value is not None and (
            value.run != self.run or value.configuration > self.ballot.configuration or value.faults()
        ):
            return
        self._promises[sender.node, message.voter_slot] = message
        newest = self._newest()
        if newest is not None and newest.configuration < self._known.configuration:
            newest = None  # an admin has ended that configuration
        if newest is not None:
            self._follow(newest)
        if is_quorum(self._known, self._promises) and (newest is None or is_quorum(newest, self._promises)):
            self._propose(newest or self._known, Phase.CONFIRMING)

    def on_accepted(self, sender: Peer, message: Accepted) -> RegisterOutcome | None:
        """Note that a voter has the value on its disk."""
        is_mine = message.stamp == Stamp(self.ballot, self._number)
        if self.phase not in (Phase.CONFIRMING, Phase.WRITING) or not is_mine:
            return None
        self._accepted[sender.node, message.voter_slot] = None
        if not self._is_chosen():
            return None
        outcome = RegisterOutcome.READ if self.phase is Phase.CONFIRMING else RegisterOutcome.WRITTEN
        self.phase, self.value, self.stamp = Phase.LEADING, self._want, message.stamp
        self._context.observe(ValueAcknowledged(message.stamp, self._want))
        return outcome

    def has_asked(self, node: NodeId) -> bool:
        """Return whether a node was asked for its vote under this ballot."""
        asked = (*self._asked, *(electors_of(self._want) if self._number else ()))
        return any(voter.peer.node == node for voter in asked)

    def is_asked(self, sender: Peer, ballot: Ballot) -> bool:
        """Return whether an answer belongs to the current request."""
        asked = self._asked if self.phase is Phase.READING else electors_of(self._want) if self._number else ()
        is_asked_voter = any(voter.peer.node == sender.node for voter in asked)
        return self.phase is not Phase.IDLE and ballot == self.ballot and is_asked_voter

    def on_refused(self, sender: Peer, message: BallotRefused) -> RegisterOutcome | None:
        """Handle a refusal: a voter has promised a higher ballot, or allows only a smaller step."""
        if not self.is_asked(sender, message.ballot):
            return None
        if message.promised < self.ballot:
            start = max(message.promised.round, self.ballot.configuration * ROUNDS_PER_CONFIGURATION)
            step = min(start + MAX_ROUND_STEP, self.ballot.round)
            signed_command = self._known.signed_command if self.phase is Phase.READING else self._want.signed_command
            self._context.send(
                sender, Prepare(self.run, msgspec.structs.replace(self.ballot, round=step), signed_command)
            )
            return None
        return self.observe_ballot(message.promised)

    def observe_ballot(self, ballot: Ballot) -> RegisterOutcome | None:
        """Note a ballot of another proposer."""
        self.highest = max(self.highest, ballot)
        if ballot <= self.ballot or self.phase is Phase.IDLE:
            return None
        self.phase = Phase.IDLE
        return RegisterOutcome.OVERTAKEN

    # ---- inside

    def _newest(self) -> RegisterValue | None:
        """Return the value of the highest stamp among the promises."""
        best = max(self._promises.values(), key=lambda promise: promise.accepted)
        return best.value

    def _follow(self, value: RegisterValue) -> None:
        """Ask also the voters that a value names."""
        voter_ids = [voter.voter_id for voter in self._asked]
        for voter in electors_of(value):
            if voter.voter_id not in voter_ids:
                self._asked = (*self._asked, voter)
                self._context.send(voter.peer, Prepare(self.run, self.ballot, self._known.signed_command))

    def _propose(self, value: RegisterValue, phase: Phase) -> None:
        self.phase, self._want = phase, value
        self._number += 1
        self._accepted = {}
        self.repeat()

    def _is_chosen(self) -> bool:
        return is_quorum(self._want, self._accepted)
