"""Runs that a node votes for: a voter slot and a coordinator for each, and the table of the messages to them.

| sender | what it has to prove |
|---|---|
| a proposer | the ballot is its own, and the value that is held names it among the voters, or one of those does |
| a coordinator | the same |
| a voter | it was asked for its vote, or it brings an admin's signed command |
| a host | a plan that this coordinator knows of names it; to a voter slot, the value that it holds |

A message that proves nothing is ignored and observed, by its reason.
"""

from collections.abc import Callable
from typing import Any, Final

from agiledart_kernel.peer import Peer
from agiledart_recovery.attempts.coordinator import Coordinator
from agiledart_recovery.limits import MAX_RUNS
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.register.proposer import electors_of
from agiledart_recovery.register.voter_slot import VoterSlot
from agiledart_recovery.register.voter_trust import VoterTrusts, may_know, voters_known
from agiledart_recovery.wire import messages
from agiledart_recovery.wire.effects import ReservedSlot, VoterFile
from agiledart_recovery.wire.names import Ballot, RunId, Voter
from agiledart_recovery.wire.observations import MessageIgnored
from agiledart_recovery.wire.register_status import RegisterStatus
from agiledart_recovery.wire.register_value import RegisterValue

_VOTER_SLOT_BITS = 60

ToCoordinator = Callable[[Coordinator, Peer, Any], None]

_VOTES: Final[dict[type, ToCoordinator]] = {
    messages.Promise: lambda to, sender, message: to.proposer.on_promise(sender, message),
    messages.Accepted: lambda to, sender, message: to.on_accepted(sender, message),
    messages.BallotRefused: lambda to, sender, message: to.leadership.on_refused(sender, message),
    messages.LeaderAcknowledged: lambda to, sender, message: to.leadership.on_leader_acknowledged(sender, message),
}
"""Messages that only a node that was asked for its vote may send."""

_FROM_HOSTS: Final[dict[type, ToCoordinator]] = {
    messages.ResetOk: lambda to, sender, message: to.entry.on_reset_ok(sender, message),
    messages.ResetRefused: lambda to, sender, message: to.entry.on_reset_refused(sender, message),
    messages.AttemptProgress: lambda to, sender, message: to.entry.on_entering(sender, message),
    messages.Prepared: lambda to, sender, message: to.on_prepared(sender, message),
    messages.Synced: lambda to, sender, message: to.on_synced(sender, message),
    messages.CommittedOk: lambda to, sender, message: to.on_committed_ok(sender, message),
    messages.NewAttemptNeeded: lambda to, sender, message: to.on_new_attempt_needed(sender, message),
    messages.RowsPassed: lambda to, _, message: to.commit_protocol.on_rows_passed(message),
    messages.FragmentsReplaced: lambda to, sender, message: to.on_remade(sender, message),
    messages.GenerationReady: lambda to, sender, message: to.on_generation_ready(sender, message),
    messages.GenerationProgress: lambda to, sender, message: to.commit_protocol.generation_change.on_progress(
        sender, message
    ),
}
"""Messages that only a host of the run may send."""


def _has_signed_command(message: messages.RunMessage) -> bool:
    """Return whether a message brings an admin's signed command, which is verified by itself, whichever node sends it."""
    return isinstance(message, messages.BallotRefused) and message.signed_command != b""


class VotedRuns:
    """Voter slots and coordinators of one node.

    Attributes:
        handlers: message type → its handler.
    """

    def __init__(self, context: RecoveryContext, trusts: VoterTrusts) -> None:
        self._context, self._trusts = context, trusts
        self.voter_slots: dict[RunId, VoterSlot] = {}
        self.coordinators: dict[RunId, Coordinator] = {}
        self.handlers: dict[type, Callable[[Peer, Any], None]] = {
            messages.Prepare: self._on_prepare,
            messages.Accept: self._on_accept,
            messages.RequestVoterSlot: self._on_request_voter_slot,
            messages.VoterSlotMade: self._on_voter_slot_made,
            messages.LeaderAnnounced: self._on_leader_announced,
            messages.QueryVoters: self._on_query_voters,
            messages.KeyShareDealt: self._on_share_dealt,
            **dict.fromkeys(_VOTES, self._on_vote),
            **dict.fromkeys(_FROM_HOSTS, self._on_host),
        }

    def _ignore(self, sender: Peer, reason: str) -> None:
        self._context.observe(MessageIgnored(sender.node, reason))

    # ---- voter slots

    def _on_prepare(self, sender: Peer, message: messages.Prepare) -> None:
        self._use_reserved(sender, message.run)
        if (voter_slot := self._slot_for(sender, message.run, message.ballot)) is not None:
            voter_slot.on_prepare(sender, message)

    def _on_accept(self, sender: Peer, message: messages.Accept) -> None:
        if message.value.run != message.run or message.value.faults():
            self._ignore(sender, "value")
            return
        self._take_reserved(sender, message.value)
        if (voter_slot := self._slot_for(sender, message.run, message.stamp.ballot, message.value)) is not None:
            before = voter_slot.held
            voter_slot.on_accept(sender, message)
            if (trust := self._trusts.known(message.run)) is not None:
                trust.renew(before, voter_slot.held)

    def _slot_for(
        self, sender: Peer, run: RunId, ballot: Ballot, value: RegisterValue | None = None, *, leads: bool = False
    ) -> VoterSlot | None:
        """Return the voter slot of a run, if there is one and the ballot is the sender's; only the node of a ballot may use it."""
        voter_slot = self.voter_slots.get(run)
        if voter_slot is None:
            self._ignore(sender, "voter_slot")
        elif (ballot.node, ballot.incarnation) != (sender.node, sender.incarnation):
            self._ignore(sender, "ballot")
            return None
        elif not self._may_propose(voter_slot, sender, ballot, value, leads=leads):
            self._ignore(sender, "voter")
            if ballot.configuration < voter_slot.configuration:
                voter_slot.refuse(sender, ballot)  # an admin's command proves that the run goes on without it
            return None
        return voter_slot

    def _may_propose(
        self, voter_slot: VoterSlot, sender: Peer, ballot: Ballot, value: RegisterValue | None, *, leads: bool
    ) -> bool:
        """Return whether a node may propose values: a voter of the held value may, and a node with a later configuration.

        The slot itself verifies the admin's command of a later configuration. A voter that an admin has declared lost may read,
        and write again what it has read, for so it learns that the run goes on without it. It may not announce that it leads.
        """
        held, accepted = voter_slot.held, voter_slot.value
        if (
            held is None
            or ballot.configuration > held.configuration
            or (accepted is not None and sender.node in accepted.left and value in (None, accepted) and not leads)
        ):
            return True
        trust = self._trusts.of(voter_slot.run)
        only_reads = value is None and not leads
        if trust.confirms(held, sender.node) or (only_reads and trust.believes(held, sender.node)):
            return True
        trust.ask(held)
        return False

    def _on_query_voters(self, sender: Peer, message: messages.QueryVoters) -> None:
        voter_slot = self.voter_slots.get(message.run)
        held = voter_slot.value if voter_slot is not None else None
        if held is None:
            self._context.send(sender, messages.VotersKnown(message.run, 0, ()))
        elif not may_know(held, sender.node):
            self._ignore(sender, "voter")
        else:
            self._context.send(sender, voters_known(message.run, held))

    def _on_share_dealt(self, sender: Peer, message: messages.KeyShareDealt) -> None:
        voter_slot = self.voter_slots.get(message.run)
        if voter_slot is None or not voter_slot.names_host(sender.node):
            self._ignore(sender, "host")
        else:
            voter_slot.on_share_dealt(sender, message)

    def _on_request_voter_slot(self, sender: Peer, message: messages.RequestVoterSlot) -> None:
        """Make a voter slot, or reserve the number of another one beside a slot of other nodes.

        A stranger may have asked first, or may ask later: no request takes the slot that another node was promised.
        """
        requested_by = (Voter(sender, 0), *message.voters)
        voter_slot = self.voter_slots.get(message.run) or self.make_voter_slot(message.run, requested_by)
        if voter_slot is None:
            return
        number, held = voter_slot.voter_slot, voter_slot.held
        if voter_slot.value is not None or (held is not None and not held.may_be_sent_by(sender.node)):
            reserved = next(
                (slot for slot in voter_slot.reserved if slot.requested_by[0].peer.node == sender.node), None
            )
            if reserved is not None:  # no write: a stranger may ask again and again
                self._context.send(sender, messages.VoterSlotMade(message.run, reserved.voter_slot))
                return
            reserved = ReservedSlot(self._context.random.bits(_VOTER_SLOT_BITS), requested_by)
            voter_slot.reserve(reserved)
            number = reserved.voter_slot
        voter_slot.keep(lambda: self._context.send(sender, messages.VoterSlotMade(message.run, number)))

    def _use_reserved(self, sender: Peer, run: RunId) -> None:
        """Vote with the slot that was reserved for a proposer when the held one has no value and waits for other nodes."""
        voter_slot = self.voter_slots.get(run)
        if voter_slot is None or voter_slot.value is not None or voter_slot.held is None:
            return
        slots = [slot for slot in voter_slot.reserved if slot.is_for(sender.node)]
        if slots and not voter_slot.held.may_be_sent_by(sender.node):
            self._vote_with(run, slots[0])

    def _take_reserved(self, sender: Peer, value: RegisterValue) -> None:
        """Vote with the slot that was reserved for a coordinator, when its value names that one and the held slot votes no more.

        The held slot votes no more when it has no value, when its own value does not name it, or when a voter that it believes
        says so. A slot that a stranger has filled believes strangers, so it stays. The coordinator then replaces this voter,
        because it does not answer.
        """
        run, me, voter_slot = value.run, self._context.me.node, self.voter_slots.get(value.run)
        if voter_slot is None or voter_slot.held is None:
            return
        named = [voter.voter_slot for voter in value.voters if voter.peer.node == me]
        slots = [slot for slot in voter_slot.reserved if slot.voter_slot in named and slot.is_for(sender.node)]
        if not slots or voter_slot.voter_slot in named:
            return
        held, own, trust = voter_slot.held, (me, voter_slot.voter_slot), self._trusts.of(run)
        is_out = voter_slot.value is None or own not in [voter.voter_id for voter in electors_of(voter_slot.value)]
        if is_out or trust.believes(held, sender.node) or trust.has_replaced(held, own):
            self._vote_with(run, slots[0])
        else:
            trust.ask(held)

    def _vote_with(self, run: RunId, slot: ReservedSlot) -> None:
        before = self.voter_slots[run].held
        taken = self.add_voter_slot(VoterFile(run, slot.voter_slot, requested_by=slot.requested_by))
        self._trusts.of(run).renew(before, taken.held)

    def make_voter_slot(self, run: RunId, requested_by: tuple[Voter, ...] = ()) -> VoterSlot | None:
        """Return the voter slot of a run, a new one if need be; None when this node votes for too many runs.

        Args:
            requested_by: those from whom a new slot takes its first value; none for one of the first voters.
        """
        voter_slot = self.voter_slots.get(run)
        if voter_slot is None and len(self.voter_slots) < MAX_RUNS:
            number = self._context.random.bits(_VOTER_SLOT_BITS)
            voter_slot = self.add_voter_slot(VoterFile(run, number, requested_by=requested_by))
        return voter_slot

    def add_voter_slot(self, file: VoterFile) -> VoterSlot:
        """Vote for a run with the voter slot of this file."""
        voter_slot = self.voter_slots[file.run] = VoterSlot(self._context, file)
        self.coordinators[file.run] = Coordinator(self._context, voter_slot)
        return voter_slot

    def register_status(self, run: RunId, acknowledged_value: RegisterValue | None) -> RegisterStatus:
        """Return what this node has of a run's register. Its host side knows the acknowledged value."""
        voter_slot = self.voter_slots.get(run)
        if voter_slot is None:
            return RegisterStatus(acknowledged_value=acknowledged_value)
        led_value = self.coordinators[run].proposer.value
        acknowledged_value = max(
            (value for value in (acknowledged_value, led_value) if value is not None),
            key=lambda value: (value.attempt, value.committed),
            default=None,
        )
        return RegisterStatus(
            voter_slot.voter_slot, voter_slot.promised, voter_slot.accepted, voter_slot.value, acknowledged_value
        )

    # ---- coordinators

    def _coordinator_for(self, sender: Peer, run: RunId) -> Coordinator | None:
        coordinator = self.coordinators.get(run)
        if coordinator is None:
            self._ignore(sender, "coordinator")
        return coordinator

    def _on_leader_announced(self, sender: Peer, message: messages.LeaderAnnounced) -> None:
        if self._slot_for(sender, message.run, message.ballot, leads=True) is not None:
            self.coordinators[message.run].leadership.on_leader_announced(sender, message)

    def _on_voter_slot_made(self, sender: Peer, message: messages.VoterSlotMade) -> None:
        coordinator = self._coordinator_for(sender, message.run)
        if coordinator is not None:
            coordinator.voter_replacement.on_voter_slot_made(sender, message.voter_slot)

    def _on_vote(self, sender: Peer, message: messages.RunMessage) -> None:
        coordinator = self._coordinator_for(sender, message.run)
        if coordinator is None:
            return
        if coordinator.is_voter(sender.node) or _has_signed_command(message):
            _VOTES[type(message)](coordinator, sender, message)
        else:
            self._ignore(sender, "voter")

    def _on_host(self, sender: Peer, message: messages.RunMessage) -> None:
        coordinator = self._coordinator_for(sender, message.run)
        if coordinator is None:
            return
        if coordinator.leads and coordinator.proposer.value is not None and not coordinator.is_host(sender.node):
            self._ignore(sender, "host")
        else:
            _FROM_HOSTS[type(message)](coordinator, sender, message)
