"""Runs that a node hosts, and fragments that it stores for other hosts, with the table of the messages to both.

RESET and COMMITTED carry a register's value, and open a run that is not known here. The other messages of a coordinator prove
nothing by themselves: only a node that may command the known attempt may send them.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from agiledart_kernel.peer import Peer
from agiledart_recovery.attempts.participant import Participant
from agiledart_recovery.fragments.fragment_store import FragmentStore
from agiledart_recovery.limits import MAX_RUNS
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.register.voter_slot import VoterSlot
from agiledart_recovery.register.voter_trust import VoterTrusts, newest_of
from agiledart_recovery.wire import messages
from agiledart_recovery.wire.effects import DeleteFragments, FragmentKey
from agiledart_recovery.wire.names import InstanceId, RunId
from agiledart_recovery.wire.observations import MessageIgnored
from agiledart_recovery.wire.register_value import RegisterValue, RunState

ToParticipant = Callable[[Participant, Peer, Any], None]

_WITH_A_VALUE: Final[dict[type, ToParticipant]] = {
    messages.Reset: lambda to, sender, message: to.on_reset(sender, message),
    messages.Committed: lambda to, sender, message: to.on_committed(sender, message),
}
"""Messages of a coordinator that carry a register's value."""

_WITHOUT_A_VALUE: Final[dict[type, ToParticipant]] = {
    messages.Start: lambda to, sender, message: to.on_start(sender, message),
    messages.Begin: lambda to, sender, message: to.on_begin(sender, message),
    messages.QueryPrepared: lambda to, sender, message: to.on_ask(sender, message),
    messages.Sync: lambda to, sender, message: to.on_sync(sender, message),
    messages.ProposeGeneration: lambda to, sender, message: to.generation_preparation.on_prepare(sender, message),
    messages.GenerationDropped: lambda to, _, message: to.generation_preparation.on_dropped(message),
}
"""Messages of a coordinator that do not prove by themselves that the sender may send them."""

_HANDOVERS: Final[dict[type, ToParticipant]] = {
    messages.StateHandedOver: lambda to, sender, message: to.generation_preparation.on_state_handed_over(
        sender, message
    ),
    messages.StateHandedOverOk: lambda to, sender, message: to.preparation.handover_sender.on_ok(sender, message),
}
"""Messages between hosts of a run."""


class HostedRuns:
    """Participants and stored fragments of one node.

    Attributes:
        handlers: message type → its handler.
    """

    def __init__(self, context: RecoveryContext, trusts: VoterTrusts, voter_slots: Mapping[RunId, VoterSlot]) -> None:
        self._context, self._trusts, self._voter_slots = context, trusts, voter_slots
        self.participants: dict[RunId, Participant] = {}
        self.fragment_store = FragmentStore()
        self.handlers: dict[type, Callable[[Peer, Any], None]] = {
            **dict.fromkeys(_WITH_A_VALUE, self._on_value),
            **dict.fromkeys(_WITHOUT_A_VALUE, self._on_command),
            **dict.fromkeys(_HANDOVERS, self._on_handover),
            messages.NeededFragments: self._on_needed_fragments,
            messages.HeldFragments: self._on_held_fragments,
            messages.QueryRunKey: self._on_query_run_key,
            messages.RunKeyParts: self._on_run_key_parts,
        }

    def _ignore(self, sender: Peer, reason: str) -> None:
        self._context.observe(MessageIgnored(sender.node, reason))

    # ---- participants

    def _on_value(self, sender: Peer, message: messages.Reset | messages.Committed) -> None:
        run = message.run
        part = self.participants.get(run)
        if part is None and len(self.participants) < MAX_RUNS:
            part = self.participants[run] = Participant(self._context, run)
        if part is None:
            self._answer_unknown(sender, message)
            return
        if part.is_unproven(message.value):
            self._ignore(sender, "configuration")
        elif not self._is_believed(part, sender, message.value):
            self._ignore(sender, "voter")
            if isinstance(message, messages.Reset) and message.value.attempt < part.attempt:
                part.on_reset(
                    sender, message
                )  # refuses it, with the command that proves to a former coordinator that it is one
        else:
            self._release_unneeded(sender, message.value)
            before = part.held
            _WITH_A_VALUE[type(message)](part, sender, message)
            if (trust := self._trusts.known(run)) is not None:
                trust.renew(before, part.held)
        if part.is_blank:
            del self.participants[run]  # the sender was not allowed to open it

    def _is_believed(self, part: Participant, sender: Peer, value: RegisterValue) -> bool:
        """Return whether the held value, not the one in the message, lets a node speak for the register.

        A restarted host holds the voters by which it entered the attempt on its disk. A host may vote on the run, too.
        """
        voter_slot = self._voter_slots.get(part.run)
        own_slot = voter_slot.held if voter_slot is not None else None
        # A slot that was given to another node learns of no later change of voters; the host side does.
        votes = own_slot is not None and own_slot.may_be_sent_by(self._context.me.node)
        held = newest_of(own_slot, part.held) if votes else newest_of(part.held, own_slot)
        if held is None or value.configuration > held.configuration or not value.may_be_sent_by(sender.node):
            return True  # there is none, an admin's command proves it, or the participant itself refuses it
        trust = self._trusts.of(part.run)
        if trust.believes(held, sender.node):
            return True
        trust.ask(held)
        return False

    def _on_command(self, sender: Peer, message: messages.RunMessage) -> None:
        part = self.participants.get(message.run)
        if part is None:
            self._answer_unknown(sender, message)
        elif not part.may_be_commanded_by(sender.node):
            self._ignore(sender, "coordinator")
        else:
            _WITHOUT_A_VALUE[type(message)](part, sender, message)

    def _on_handover(self, sender: Peer, message: messages.RunMessage) -> None:
        part = self.participants.get(message.run)
        if part is None:
            self._answer_unknown(sender, message)
        else:
            _HANDOVERS[type(message)](part, sender, message)

    def _answer_unknown(self, sender: Peer, message: messages.RunMessage) -> None:
        """Answer a message about an attempt: a host that does not know the run may have lost its disk."""
        self._ignore(sender, "run")
        Participant(self._context, message.run).on_other(sender, message)

    # ---- the keys of runs

    def _on_query_run_key(self, sender: Peer, message: messages.QueryRunKey) -> None:
        """Give a host of the run what this node has of the key, as another host or as a voter."""
        part, voter_slot = self.participants.get(message.run), self._voter_slots.get(message.run)
        key = part.key_for(sender.node) if part is not None else b""
        if voter_slot is not None and voter_slot.names_host(sender.node):
            self._context.send(sender, msgspec.structs.replace(voter_slot.key_parts, key=key))
        elif key:
            self._context.send(sender, messages.RunKeyParts(message.run, key))
        else:
            self._ignore(sender, "host")

    def _on_run_key_parts(self, sender: Peer, message: messages.RunKeyParts) -> None:
        part = self.participants.get(message.run)
        if part is None or not part.run_key.on_parts(sender, message):
            self._ignore(sender, "voter")

    # ---- fragments of other hosts

    def _release_unneeded(self, sender: Peer, value: RegisterValue) -> None:
        """Delete the fragments that an acknowledged value does not need; ignore nodes that do not vote."""
        if not value.may_be_sent_by(sender.node):
            return
        ended = value.state is RunState.FINISHED
        self._delete(self.fragment_store.drop_run(value.run) if ended else self.fragment_store.release(value))

    def drop_fragments_of(self, run: RunId) -> None:
        """Delete the fragments of a run that is over."""
        self._delete(self.fragment_store.drop_run(run))

    def _delete(self, gone: tuple[FragmentKey, ...]) -> None:
        if gone:
            self._context.do(DeleteFragments(gone))

    def _on_needed_fragments(self, sender: Peer, message: messages.NeededFragments) -> None:
        self._delete(self.fragment_store.keep(sender.node, message))
        if message.asks:
            self._report_held(sender, message.run, message.instance)

    def on_damaged(self, key: FragmentKey) -> None:
        """Report to the owner of a damaged fragment which ones are still here."""
        owner = self.fragment_store.damaged(key)
        if owner:
            self._report_held(Peer(owner), key.run, key.instance)

    def _report_held(self, to: Peer, run: RunId, instance: InstanceId) -> None:
        self._context.send(to, messages.HeldFragments(run, instance, self.fragment_store.held_for(run, instance)))

    def _on_held_fragments(self, sender: Peer, message: messages.HeldFragments) -> None:
        part = self.participants.get(message.run)
        if part is None or not part.fragment_repair.instances(sender.node):
            self._ignore(sender, "replica_node")
        else:
            part.fragment_repair.on_holds(sender.node, message.instance, message.held)

    def repair(self) -> None:
        """Look for fragments of this host's snapshots that can be repaired now."""
        for part in self.participants.values():
            part.fragment_repair.look()
